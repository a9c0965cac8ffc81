//! The seal of cursors and page tokens: nobody can read or make one without the ledger's key, and each opens only for
//! what it was given out for.
//!
//! ```text
//! text      base64url of: header, nonce (12 bytes), sealed content, tag (16 bytes)
//! header    format (2), key id (1), the ledger's epoch as a varint: in clear, and bound
//! bound     purpose, namespace and question, each with its length, and the header
//! keys      HKDF-SHA256 of the ledger's key, with the ledger's id, for each purpose and namespace
//! nonce     the first 12 bytes of HMAC-SHA256 over what is bound and the content
//! ```
//!
//! The nonce is made from the content, so that one content has one text: a frame is encoded once for all its watchers,
//! and no number of frames uses nonces up. Equal nonces of unlike contents would need some 2^48 texts of one namespace.
//!
//! The price of one text for one content: whoever holds two texts sees whether they are alike. So a watcher sees whether
//! anything at all was logged between two cursors, in any namespace.
//!
//! The epoch is readable without the ledger's own: a caller may name one of which this replica has not heard. It is
//! believed only once the seal is open, and the key is the same in every epoch.
//!
//! Invariants:
//!
//! - A text is bound to the ledger, the namespace and its use; a cursor and a page of events also to the ledger's
//!   epoch, which stands in clear; a page also to its run or its filter.
//! - Whatever does not open is noise, and all noise has one answer.
//! - A text hides its content. Its length depends on the number of shards, on a run's id, and on for how many times the
//!   namespace keeps its runs.
//! - The key is derived from the ledger's own (`ledger.seal_key`). It is in no log, error or output.

use std::fmt;
use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use prost::encoding::{decode_varint, encode_varint};
use quick_cache::sync::Cache;
use ring::aead::{Aad, CHACHA20_POLY1305, LessSafeKey, Nonce, UnboundKey};
use ring::{hkdf, hmac};
use uuid::Uuid;

use crate::domain::LedgerEpoch;
use crate::store::{Ledger, SealKey};

const FORMAT: u8 = 2;
const KEY_ID: u8 = 1;
const NONCE_BYTES: usize = 12;
const TAG_BYTES: usize = 16;
const EPOCH_BYTES_MAX: usize = 10;

/// Bytes of a text beside its content, before base64, at most.
pub(super) const OVERHEAD_MAX: usize = 2 + EPOCH_BYTES_MAX + NONCE_BYTES + TAG_BYTES;

/// The namespaces whose keys are kept, for each purpose: about a KiB each. Another one's are derived anew.
const NAMESPACES_MAX: usize = 1024;

/// The length of so many bytes as base64, which makes four characters of three bytes.
pub(super) const fn text_bytes(bytes: usize) -> usize {
    bytes.div_ceil(3) * 4
}

/// The use of a text: a key of its own for each.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Purpose {
    /// A place in the log, for a watch of many runs.
    Cursor,
    /// A page of a run's events.
    Events,
    /// A page of a list of runs.
    Runs,
    /// A page of a list of namespaces.
    Namespaces,
    /// A page of a list of lifecycles.
    Lifecycles,
}

/// What a text is for: it opens for nothing else.
#[derive(Clone, Copy, Debug)]
pub(super) struct Binding<'a> {
    pub(super) purpose: Purpose,
    pub(super) namespace: &'a str,
    /// The question that a page answers: its bytes are unlike for unlike questions. Empty for a cursor, which goes with
    /// any filter.
    pub(super) question: &'a [u8],
}

/// Seals and opens the texts of one ledger. It has the ledger's key, and never shows it.
pub struct Seals {
    ledger: Uuid,
    seal_key: SealKey,
    cursors: Cache<Box<str>, Arc<Keys>>,
    events: Cache<Box<str>, Arc<Keys>>,
    runs: Cache<Box<str>, Arc<Keys>>,
    namespaces: Cache<Box<str>, Arc<Keys>>,
    lifecycles: Cache<Box<str>, Arc<Keys>>,
}

impl fmt::Debug for Seals {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Seals").field("ledger", &self.ledger).finish_non_exhaustive()
    }
}

/// The keys of one purpose in one namespace.
struct Keys {
    content: LessSafeKey,
    nonce: hmac::Key,
}

impl Seals {
    /// The seals of a ledger, in all its epochs.
    #[must_use]
    pub fn new(ledger: Ledger) -> Self {
        let cache = || Cache::new(NAMESPACES_MAX);
        Self {
            ledger: ledger.id,
            seal_key: ledger.seal_key,
            cursors: cache(),
            events: cache(),
            runs: cache(),
            namespaces: cache(),
            lifecycles: cache(),
        }
    }

    /// The text of a content of so many bytes, which `write` appends.
    pub(super) fn seal(
        &self,
        binding: &Binding<'_>,
        epoch: LedgerEpoch,
        content_bytes: usize,
        write: impl FnOnce(&mut Vec<u8>),
    ) -> String {
        let keys = self.keys(binding);
        let (mut bytes, unsent) = binding.begin(OVERHEAD_MAX + content_bytes);
        bytes.extend([FORMAT, KEY_ID]);
        encode_varint(epoch.get(), &mut bytes);
        let bound = bytes.len();
        bytes.extend([0; NONCE_BYTES]);
        write(&mut bytes);
        let (bound, rest) = bytes.split_at_mut(bound);
        let (nonce, content) = rest.split_first_chunk_mut::<NONCE_BYTES>().expect("its place was made above");
        *nonce = keys.nonce_of(bound, content);
        let tag = keys
            .content
            .seal_in_place_separate_tag(Nonce::assume_unique_for_key(*nonce), Aad::from(&*bound), content)
            .expect("only a content of 256 GiB is refused");
        bytes.extend_from_slice(tag.as_ref());
        URL_SAFE_NO_PAD.encode(&bytes[unsent..])
    }

    /// The content of a text, and the epoch that it was given out in; none for a text that was not given out for this.
    pub(super) fn open(&self, binding: &Binding<'_>, text: &str) -> Option<Opened> {
        let (mut bytes, sent) = binding.begin(text.len());
        URL_SAFE_NO_PAD.decode_vec(text, &mut bytes).ok()?;
        let [FORMAT, KEY_ID, after @ ..] = &bytes[sent..] else { return None };
        let mut rest = after;
        let epoch = decode_varint(&mut rest).ok()?;
        let bound = bytes.len() - rest.len();
        let keys = self.keys(binding);
        let (bound, rest) = bytes.split_at_mut(bound);
        let (nonce, sealed) = rest.split_first_chunk_mut::<NONCE_BYTES>()?;
        let nonce = Nonce::assume_unique_for_key(*nonce);
        let content = keys.content.open_in_place(nonce, Aad::from(&*bound), sealed).ok()?.len();
        let begins = bound.len() + NONCE_BYTES;
        bytes.truncate(begins + content);
        bytes.drain(..begins);
        Some(Opened { epoch: epoch.into(), content: bytes })
    }

    fn keys(&self, binding: &Binding<'_>) -> Arc<Keys> {
        let kept = match binding.purpose {
            Purpose::Cursor => &self.cursors,
            Purpose::Events => &self.events,
            Purpose::Runs => &self.runs,
            Purpose::Namespaces => &self.namespaces,
            Purpose::Lifecycles => &self.lifecycles,
        };
        if let Some(keys) = kept.get(binding.namespace) {
            return keys;
        }
        let keys = Arc::new(Keys::derive(self.ledger, &self.seal_key, binding));
        kept.insert(binding.namespace.into(), keys.clone());
        keys
    }
}

/// A text that was opened.
pub(super) struct Opened {
    pub(super) epoch: LedgerEpoch,
    pub(super) content: Vec<u8>,
}

impl Purpose {
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Cursor => "cursor",
            Self::Events => "events",
            Self::Runs => "runs",
            Self::Namespaces => "namespaces",
            Self::Lifecycles => "lifecycles",
        }
    }
}

impl Binding<'_> {
    /// A buffer that begins with what is bound and not sent, with room for more behind, and where that begins.
    fn begin(&self, room: usize) -> (Vec<u8>, usize) {
        let parts = [self.purpose.name().as_bytes(), self.namespace.as_bytes(), self.question];
        let unsent = parts.iter().map(|part| size_of::<u64>() + part.len()).sum();
        let mut bytes = Vec::with_capacity(unsent + room);
        for part in parts {
            bytes.extend((part.len() as u64).to_be_bytes());
            bytes.extend_from_slice(part);
        }
        (bytes, unsent)
    }
}

impl Keys {
    fn derive(ledger: Uuid, seal_key: &SealKey, Binding { purpose, namespace, .. }: &Binding<'_>) -> Self {
        let mut bytes = [0; 64];
        let extracted = hkdf::Salt::new(hkdf::HKDF_SHA256, ledger.as_bytes()).extract(seal_key.secret());
        extracted
            .expand(&[purpose.name().as_bytes(), &[0], namespace.as_bytes()], Length(bytes.len()))
            .and_then(|derived| derived.fill(&mut bytes))
            .expect("HKDF gives up to 8,160 bytes");
        let (content, nonce) = bytes.split_at(32);
        let content = UnboundKey::new(&CHACHA20_POLY1305, content).expect("the key has 32 bytes");
        Self { content: LessSafeKey::new(content), nonce: hmac::Key::new(hmac::HMAC_SHA256, nonce) }
    }

    fn nonce_of(&self, bound: &[u8], content: &[u8]) -> [u8; NONCE_BYTES] {
        let mut hash = hmac::Context::with_key(&self.nonce);
        hash.update(bound);
        hash.update(content);
        *hash.sign().as_ref().first_chunk().expect("SHA-256 has 32 bytes")
    }
}

/// The number of bytes that HKDF is asked for.
struct Length(usize);

impl hkdf::KeyType for Length {
    fn len(&self) -> usize {
        self.0
    }
}

#[cfg(test)]
mod tests;

//! Cursors as releases before 0.3 gave them out: not sealed, with a tag that is no secret. They are taken for one
//! release, in the only namespace that those releases had, and made no more. A client that forges one only skips events
//! that it may read anyway.

use std::hash::Hasher as _;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use prost::Message;
use siphasher::sip::SipHasher13;
use uuid::Uuid;

use crate::domain::LedgerEpoch;
use crate::domain::ids::DEFAULT_NAMESPACE;

const FORMAT: u8 = 1;
const TAG_BYTES: usize = 8;

#[derive(Clone, PartialEq, Message)]
struct Content {
    #[prost(uint64, tag = "1")]
    epoch: u64,
    #[prost(uint64, repeated, tag = "2")]
    positions: Vec<u64>,
    #[prost(uint32, tag = "3")]
    view: u32,
    #[prost(message, optional, tag = "4")]
    shown: Option<Shown>,
}

#[derive(Clone, PartialEq, Message)]
struct Shown {
    #[prost(int64, tag = "1")]
    started_at: i64,
    #[prost(string, tag = "2")]
    run_id: String,
}

/// The epoch and the content of a cursor of this ledger; none where it was not given out for this namespace.
pub(super) fn opened(text: &str, ledger: Uuid, namespace: &str) -> Option<(LedgerEpoch, super::Content)> {
    if namespace != DEFAULT_NAMESPACE {
        return None;
    }
    let bytes = URL_SAFE_NO_PAD.decode(text).ok()?;
    let (told, found) = bytes.split_last_chunk::<TAG_BYTES>()?;
    let (format, content) = told.split_first()?;
    if *format != FORMAT || *found != tag(told, ledger, namespace) {
        return None;
    }
    let Content { epoch, positions, view, shown } = Content::decode(content).ok()?;
    let shown = shown.map(|Shown { started_at, run_id }| super::Shown { started_at, run_id });
    Some((epoch.into(), super::Content { positions, view, shown }))
}

fn tag(told: &[u8], ledger: Uuid, namespace: &str) -> [u8; TAG_BYTES] {
    let mut hasher = SipHasher13::new_with_key(ledger.as_bytes());
    for part in [b"cursor", namespace.as_bytes(), told] {
        hasher.write(part);
        hasher.write(&[0]);
    }
    hasher.finish().to_be_bytes()
}

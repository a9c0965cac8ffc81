//! Page tokens as releases before 0.3 gave them out: not sealed, with a tag that is no secret. They are taken for one
//! release, in the only namespace that those releases had, and made no more. A client that forges one only skips entries
//! that it may read anyway.

use std::hash::Hasher as _;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use siphasher::sip::SipHasher13;
use uuid::Uuid;

use super::{Pages, Question};
use crate::domain::LedgerEpoch;
use crate::domain::ids::DEFAULT_NAMESPACE;

const FORMAT: u8 = 1;

/// The end of a token's page; none where the token was not given out for these pages. The question is theirs, in bytes.
pub(super) fn opened(token: &str, ledger: Uuid, pages: Pages<'_>, question: &[u8]) -> Option<Vec<u8>> {
    let bytes = URL_SAFE_NO_PAD.decode(token).ok()?;
    let (format, rest) = bytes.split_first()?;
    let (found, end) = rest.split_first_chunk()?;
    let binding = pages.binding(question);
    let sound =
        binding.namespace == DEFAULT_NAMESPACE && *format == FORMAT && *found == tag(end, ledger, pages, question);
    sound.then(|| end.to_vec())
}

fn tag(end: &[u8], ledger: Uuid, pages: Pages<'_>, question: &[u8]) -> [u8; 8] {
    let mut tagged = Question(Vec::new());
    let binding = pages.binding(question);
    tagged.part(binding.purpose.name().as_bytes());
    tagged.part(binding.namespace.as_bytes());
    tagged.0.extend_from_slice(question);
    // Tokens of a ledger that had lost nothing did not name its epoch.
    if let Pages::Events(_, epoch) = pages
        && epoch > LedgerEpoch::FIRST
    {
        tagged.part(&epoch.get().to_be_bytes());
    }
    tagged.part(end);
    let mut hasher = SipHasher13::new_with_key(ledger.as_bytes());
    hasher.write(&tagged.0);
    hasher.finish().to_be_bytes()
}

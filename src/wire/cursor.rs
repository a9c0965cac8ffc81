//! The cursor that resumes a watch of many runs. Opaque to clients; bound to its ledger, epoch and namespace, and not
//! to a filter.
//!
//! The tag keeps a cursor from being used where it was not given out. The tag is no secret: a client that forges one
//! only skips events that it may read anyway.

use std::hash::Hasher as _;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use prost::Message;
use siphasher::sip::SipHasher13;

use crate::domain::{LedgerEpoch, Time};
use crate::feed::cursor::{Cursor, View, ViewOf};
use crate::store::Ledger;
use crate::store::query::Place;

const VERSION: u8 = 1;
const TAG_BYTES: usize = 8;

/// The refusal of a cursor: one answer for noise, for a cursor of another ledger or namespace, and for one ahead of the
/// ledger.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the cursor is not one that was given out here")]
pub struct CursorInvalid;

/// The content of a cursor, behind the version: later releases may add fields.
#[derive(Clone, PartialEq, Message)]
struct Inside {
    #[prost(uint64, tag = "1")]
    epoch: u64,
    #[prost(uint64, repeated, tag = "2")]
    positions: Vec<u64>,
    /// 0: the first view is over; 1: of active runs; 2: of all.
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

/// The cursor as clients get it.
#[must_use]
pub fn encode(cursor: &Cursor, ledger: Ledger, namespace: &str) -> String {
    let view = match cursor.view.as_ref().map(|view| view.of) {
        None => 0,
        Some(ViewOf::Active) => 1,
        Some(ViewOf::All) => 2,
    };
    let shown = cursor.view.as_ref().and_then(|view| view.shown.as_ref());
    let shown = shown.map(|place| Shown { started_at: place.started_at.micros(), run_id: place.run_id.to_string() });
    let inside = Inside { epoch: cursor.epoch.into(), positions: cursor.positions.to_vec(), view, shown };
    let mut bytes = Vec::with_capacity(1 + inside.encoded_len() + TAG_BYTES);
    bytes.push(VERSION);
    inside.encode(&mut bytes).expect("a vector takes all");
    let tag = tag(&bytes, ledger, namespace);
    bytes.extend_from_slice(&tag);
    URL_SAFE_NO_PAD.encode(bytes)
}

/// The epoch of the ledger that a cursor is of, which may be another than the ledger's as it is known here; none
/// where it was not given out for this namespace.
#[must_use]
pub fn epoch(text: &str, ledger: Ledger, namespace: &str) -> Option<LedgerEpoch> {
    inside(text, ledger, namespace).ok().map(|inside| inside.epoch.into())
}

/// The cursor in a text that a client sent.
///
/// # Errors
///
/// The cursor was not given out by this ledger, as it is now, for this namespace.
pub fn decode(text: &str, ledger: Ledger, namespace: &str) -> Result<Cursor, CursorInvalid> {
    let inside = inside(text, ledger, namespace)?;
    let epoch = LedgerEpoch::from(inside.epoch);
    if epoch != ledger.epoch || inside.positions.len() != usize::from(ledger.shard_count) {
        return Err(CursorInvalid);
    }
    let of = match inside.view {
        0 => None,
        1 => Some(ViewOf::Active),
        2 => Some(ViewOf::All),
        _ => return Err(CursorInvalid),
    };
    let shown = inside
        .shown
        .map(|shown| Place { started_at: Time::from_micros(shown.started_at), run_id: shown.run_id.into() });
    Ok(Cursor { epoch, positions: inside.positions.into(), view: of.map(|of| View { of, shown }) })
}

/// The content of a cursor of this ledger, whatever its epoch.
fn inside(text: &str, ledger: Ledger, namespace: &str) -> Result<Inside, CursorInvalid> {
    let bytes = URL_SAFE_NO_PAD.decode(text).map_err(|_| CursorInvalid)?;
    let (told, found) = bytes.split_last_chunk::<TAG_BYTES>().ok_or(CursorInvalid)?;
    let (version, inside) = told.split_first().ok_or(CursorInvalid)?;
    if *version != VERSION || *found != tag(told, ledger, namespace) {
        return Err(CursorInvalid);
    }
    Inside::decode(inside).map_err(|_| CursorInvalid)
}

fn tag(told: &[u8], ledger: Ledger, namespace: &str) -> [u8; TAG_BYTES] {
    let mut hasher = SipHasher13::new_with_key(ledger.id.as_bytes());
    for part in [b"cursor", namespace.as_bytes(), told] {
        hasher.write(part);
        hasher.write(&[0]);
    }
    hasher.finish().to_be_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use uuid::Uuid;

    const LEDGER: Ledger = Ledger {
        id: Uuid::from_u128(0x0102_0304_0506_0708_090a_0b0c_0d0e_0f10),
        epoch: LedgerEpoch::new(3),
        shard_count: 4,
    };

    fn live() -> Cursor {
        Cursor { epoch: LEDGER.epoch, positions: vec![0, 7, u64::MAX, 300].into(), view: None }
    }

    fn showing(of: ViewOf) -> Cursor {
        let shown = Place { started_at: Time::from_micros(-5), run_id: "run:1".into() };
        Cursor { view: Some(View { of, shown: Some(shown) }), ..live() }
    }

    #[test]
    fn a_cursor_leads_back_to_its_place() {
        let unshown = Cursor { view: Some(View { of: ViewOf::All, shown: None }), ..live() };
        for cursor in [live(), showing(ViewOf::Active), showing(ViewOf::All), unshown] {
            assert_eq!(decode(&encode(&cursor, LEDGER, "default"), LEDGER, "default"), Ok(cursor));
        }
        assert_eq!(encode(&showing(ViewOf::Active), LEDGER, "default"), VECTOR, "replicas of two releases meet");
    }

    #[test]
    fn a_cursor_of_another_ledger_epoch_or_namespace_is_noise() {
        let cursor = encode(&live(), LEDGER, "default");
        for other in [
            Ledger { id: Uuid::nil(), ..LEDGER },
            Ledger { epoch: 4.into(), ..LEDGER },
            Ledger { shard_count: 5, ..LEDGER },
        ] {
            assert_eq!(decode(&cursor, other, "default"), Err(CursorInvalid), "{other:?}");
        }
        assert_eq!(decode(&cursor, LEDGER, "other"), Err(CursorInvalid));
    }

    #[test]
    fn a_cursor_changed_anywhere_is_noise() {
        let cursor = encode(&showing(ViewOf::All), LEDGER, "default");
        for at in 0..cursor.len() {
            for replacement in ["A", "B", "_", "=", "é", "\0", ""] {
                let mut changed = cursor.clone();
                changed.replace_range(at..=at, replacement);
                assert!(changed == cursor || decode(&changed, LEDGER, "default").is_err(), "{changed}");
            }
        }
    }

    proptest! {
        #[test]
        fn noise_is_never_a_cursor(noise in "\\PC{0,64}", bytes: Vec<u8>) {
            prop_assert!(decode(&noise, LEDGER, "default").is_err());
            prop_assert!(decode(&URL_SAFE_NO_PAD.encode(bytes), LEDGER, "default").is_err());
        }
    }

    const VECTOR: &str = "AQgDEg4AB____________wGsAhgBIhII-___________ARIFcnVuOjG8bxBEJEZa2w";
}

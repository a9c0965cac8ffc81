//! The token that leads from one page of a run's history to the next. Opaque to clients; bound to its ledger and run.
//!
//! The tag keeps a token from being used where it was not given out. It is no secret: who forges one only skips events
//! of a run that they may read anyway.

use std::hash::Hasher as _;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use siphasher::sip::SipHasher13;
use uuid::Uuid;

use crate::domain::RunKey;

const VERSION: u8 = 1;
const BYTES: usize = 1 + 8 + 8;

/// Why a token is not taken: one answer for noise, another ledger's, another run's.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the page token is not one that was given out for this run")]
pub struct PageTokenInvalid;

/// The token for the events of a run after a revision.
#[must_use]
pub fn encode(after_revision: u64, ledger: Uuid, key: &RunKey) -> String {
    let mut token = [VERSION; BYTES];
    token[1..9].copy_from_slice(&after_revision.to_be_bytes());
    token[9..].copy_from_slice(&tag(after_revision, ledger, key));
    URL_SAFE_NO_PAD.encode(token)
}

/// The revision that a token stands at.
///
/// # Errors
///
/// The token was not given out by this ledger for this run.
pub fn decode(token: &str, ledger: Uuid, key: &RunKey) -> Result<u64, PageTokenInvalid> {
    let mut bytes = [0; BYTES];
    // A longer token does not fit and a shorter one leaves bytes over; the engine refuses a second spelling of one.
    let length = URL_SAFE_NO_PAD.decode_slice(token, &mut bytes).map_err(|_| PageTokenInvalid)?;
    let [version, rest @ ..] = bytes;
    let (revision, found) = rest.split_first_chunk().ok_or(PageTokenInvalid)?;
    let after_revision = u64::from_be_bytes(*revision);
    let sound = length == BYTES && version == VERSION && found == tag(after_revision, ledger, key);
    sound.then_some(after_revision).ok_or(PageTokenInvalid)
}

fn tag(after_revision: u64, ledger: Uuid, key: &RunKey) -> [u8; 8] {
    let mut hasher = SipHasher13::new_with_key(ledger.as_bytes());
    for part in ["events", &key.namespace, &key.run_id] {
        hasher.write(part.as_bytes());
        hasher.write(&[0]);
    }
    hasher.write(&after_revision.to_be_bytes());
    hasher.finish().to_be_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const LEDGER: Uuid = Uuid::from_u128(0x0102_0304_0506_0708_090a_0b0c_0d0e_0f10);

    fn key(namespace: &str, run_id: &str) -> RunKey {
        RunKey { namespace: namespace.into(), run_id: run_id.into() }
    }

    #[test]
    fn a_token_leads_back_to_its_revision() {
        for revision in [0, 1, 100, u64::MAX] {
            let token = encode(revision, LEDGER, &key("default", "run"));
            assert_eq!(decode(&token, LEDGER, &key("default", "run")), Ok(revision));
        }
        assert_eq!(encode(100, LEDGER, &key("default", "run")), VECTOR);
    }

    #[test]
    fn a_token_of_another_ledger_namespace_or_run_is_noise() {
        let token = encode(7, LEDGER, &key("default", "run"));
        assert_eq!(decode(&token, Uuid::nil(), &key("default", "run")), Err(PageTokenInvalid));
        assert_eq!(decode(&token, LEDGER, &key("other", "run")), Err(PageTokenInvalid));
        assert_eq!(decode(&token, LEDGER, &key("default", "run2")), Err(PageTokenInvalid));
    }

    #[test]
    fn a_token_changed_anywhere_is_noise() {
        let key = key("default", "run");
        let token = encode(7, LEDGER, &key);
        for at in 0..token.len() {
            for replacement in ["A", "B", "_", "=", "é", "\0", ""] {
                let mut changed = token.clone();
                changed.replace_range(at..=at, replacement);
                assert!(changed == token || decode(&changed, LEDGER, &key).is_err(), "{changed}");
            }
        }
        for noise in ["", "A", "==", " ", &token[1..], &format!("{token}="), &format!("{token}AA"), &"A".repeat(9999)] {
            assert_eq!(decode(noise, LEDGER, &key), Err(PageTokenInvalid), "{noise}");
        }
    }

    proptest! {
        #[test]
        fn noise_is_never_a_token(noise in "\\PC{0,64}", bytes: [u8; BYTES]) {
            prop_assert!(decode(&noise, LEDGER, &key("default", "run")).is_err());
            prop_assert!(decode(&URL_SAFE_NO_PAD.encode(bytes), LEDGER, &key("default", "run")).is_err());
        }
    }

    const VECTOR: &str = "AQAAAAAAAABkuMn7VB3FV00";
}

//! The claims of `ClaimNextRun` by the claimer's own `request_id`: a claimer does not know which run it asks for, so
//! its request is remembered apart from every run, and found again by its namespace and id. An identity's ids are its
//! own: what another one asked under the same id is another request.
//!
//! The grant under such an id stands in a row of `claims`, which is the request's mutex. The row is not made from the
//! log.

use std::collections::{BTreeMap, BTreeSet};

use sha2::{Digest as _, Sha256};

use super::side::{Applied, Side};
use crate::domain::{Ask, ClaimKey, Claimed, Command, Identity, Refusal, Run, RunWrite, Status};

/// The RPC, as refusals name it.
const RPC: &str = "ClaimNextRun";

/// What stands between the digits in front and the id.
const BETWEEN: char = '\u{1f}';

/// The digits by which an identity, or a further run of a request, is told from others.
const IDENTITY_DIGITS: usize = 32;

/// The id of a claimer's request as it is kept: with the identity in front that was proven, if one was.
#[must_use]
pub fn kept_id(identity: Option<&Identity>, id: &str) -> String {
    let Some(Identity { subject, issuer }) = identity else { return id.to_owned() };
    let mut hash = Sha256::new();
    for part in [issuer, subject] {
        hash.update((part.len() as u64).to_be_bytes());
        hash.update(part);
    }
    under(hash, id)
}

/// The id as it is kept for a further run of the same request: a row of `claims` stands for one run.
#[must_use]
pub fn numbered_id(kept: &str, number: usize) -> String {
    let mut hash = Sha256::new();
    // Longer than any issuer is, by its first eight bytes: no identity has such digits.
    hash.update(b"further run");
    hash.update((number as u64).to_be_bytes());
    hash.update(kept);
    under(hash, sent_id(kept))
}

fn under(hash: Sha256, id: &str) -> String {
    let digits = format!("{:x}", hash.finalize());
    format!("{}{BETWEEN}{id}", &digits[..IDENTITY_DIGITS])
}

/// The id that the claimer sent, of one that is kept.
#[must_use]
pub fn sent_id(kept: &str) -> &str {
    match kept.split_once(BETWEEN) {
        Some((digits, id)) if digits.len() == IDENTITY_DIGITS && digits.bytes().all(|b| b.is_ascii_hexdigit()) => id,
        Some(_) | None => kept,
    }
}

/// The claims of requests, as the commands of a batch leave them.
#[derive(Debug)]
pub struct Rows {
    rows: BTreeMap<ClaimKey, Claimed>,
    changed: BTreeSet<ClaimKey>,
}

impl Rows {
    pub(super) fn row(&self, command: &Command) -> Option<&Claimed> {
        self.rows.get(&Self::wanted(command)?)
    }
}

impl Side for Rows {
    type Key = ClaimKey;
    /// Invariant: no other commit changes such a row until this one has ended.
    type Row = (ClaimKey, Claimed);
    /// Claim requests that are to be remembered; none: to be forgotten.
    type Writes = Vec<(ClaimKey, Option<Claimed>)>;

    fn wanted(command: &Command) -> Option<ClaimKey> {
        command.ask.brought().claim_request.map(|request| (command.key.namespace.clone(), request.id.clone()))
    }

    /// A command that gives a claim back rests on the row of its claim request. The row of a claim would be new.
    fn is_read_for(command: &Command, _: Option<&Run>) -> bool {
        let brought = command.ask.brought();
        brought.given_back.is_some() && brought.claim_request.is_some()
    }

    fn of(rows: Vec<Self::Row>) -> Self {
        Self { rows: rows.into_iter().collect(), changed: BTreeSet::new() }
    }

    /// Remembers a claim, or forgets one that is given back.
    fn apply(&mut self, Applied { command, run, .. }: &Applied<'_>) {
        let Some((key, request)) = Self::wanted(command).zip(command.ask.brought().claim_request) else { return };
        if matches!(command.ask, Ask::Claim(_)) {
            let epoch = run.supervision.epoch();
            let claimed = Claimed { key: command.key.clone(), epoch, digest: request.digest, replays: 0 };
            self.rows.insert(key.clone(), claimed);
        } else {
            self.rows.remove(&key);
        }
        self.changed.insert(key);
    }

    fn writes(mut self, _: &[RunWrite]) -> Self::Writes {
        self.changed.into_iter().map(|key| (key.clone(), self.rows.remove(&key))).collect()
    }
}

/// Whether the claim still holds: the run is RUNNING under the lease that was granted.
///
/// # Errors
///
/// [`Refusal::LeaseLost`] where the lease is not the claimer's any more, or the run has ended.
pub fn still_held(claimed: &Claimed, run: Option<&Run>) -> Result<(), Refusal> {
    let Some(run) = run else { return Err(Refusal::RunNotFound { key: claimed.key.clone() }) };
    let lease = run.supervision.lease;
    let holds = lease.is_some_and(|lease| lease.epoch == claimed.epoch && !lease.released && !lease.resting);
    if run.status == Status::Running && holds {
        return Ok(());
    }
    Err(Refusal::lease_lost(RPC, claimed.epoch, run))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn identity(subject: &str, issuer: &str) -> Identity {
        Identity { subject: subject.into(), issuer: issuer.into() }
    }

    #[test]
    fn an_id_is_one_identitys_own_and_is_shown_as_it_was_sent() {
        let ids = ["1", "", "a\u{1f}b", "0123456789abcdef0123456789abcdef"];
        let identities = [None, Some(identity("a", "bc")), Some(identity("ab", "c")), Some(identity("", "abc"))];
        let mut kept = BTreeSet::new();
        for (identity, id) in identities.iter().flat_map(|identity| ids.map(|id| (identity, id))) {
            let text = kept_id(identity.as_ref(), id);
            assert_eq!(sent_id(&text), id);
            assert_eq!(text, kept_id(identity.as_ref(), id));
            for number in [1, 2, 99] {
                let further = numbered_id(&text, number);
                assert_eq!(sent_id(&further), id);
                assert!(kept.insert(further), "{identity:?} {id:?} {number}");
            }
            assert!(kept.insert(text), "{identity:?} {id:?}");
        }
        assert_eq!(kept_id(None, "1"), "1", "as every release kept it");
    }
}

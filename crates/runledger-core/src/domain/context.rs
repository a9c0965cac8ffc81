//! What a decision rests on besides the run and the command.

use super::sides::Found;
use super::{LedgerEpoch, Revision, Steady, Time};

/// The facts that a decision rests on besides the run and the command.
#[derive(Clone, Copy, Debug)]
pub struct Context<'a> {
    /// The store's clock, not before an event of the [present](super::steady::PRESENT_MICROS).
    pub now: Time,
    /// The call that was applied to the run under the command's `request_id`, if any.
    pub applied: Option<&'a AppliedRequest>,
    /// The steady clock, which decides whether a lease or a deadline is over.
    pub steady: Steady,
    /// The rows of the sides that the decision rests on.
    pub sides: Found<'a>,
    /// The number of times that a part of the ledger's past was lost: a lease that was granted in a lost past has a
    /// lower epoch than any since.
    pub ledger_epoch: LedgerEpoch,
}

impl Context<'_> {
    /// A time at which nothing else is known.
    #[must_use]
    pub fn at(now: Time) -> Self {
        Self {
            now,
            steady: Steady::always(now),
            applied: None,
            sides: Found::default(),
            ledger_epoch: LedgerEpoch::FIRST,
        }
    }
}

/// A call that was applied under a `request_id`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AppliedRequest {
    /// The revision of the event that the call made.
    pub revision: Revision,
    /// See [`Command::digest`](super::Command::digest).
    pub digest: [u8; 32],
}

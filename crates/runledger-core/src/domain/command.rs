//! A command: a caller's ask of one run.

mod digest;
mod prepared;

pub(in crate::domain) use self::prepared::Masked;
pub use self::prepared::Prepared;
use super::{Agents, Ask, Principal, Request, Revision, RunKey, TraceContext, Violation};

/// One mutation, validated as far as it can be without the run.
#[derive(Clone, Debug, PartialEq)]
pub struct Command {
    /// The run that the command is for.
    pub key: RunKey,
    /// The command's ask.
    pub ask: Ask,
    /// The revision that the run must have; [`Revision::NONE`]: the run must not exist.
    pub expected_revision: Option<Revision>,
    /// The request id and its digest, which make a retry safe.
    pub request: Option<Request>,
    /// The caller.
    pub principal: Principal,
    /// The agents whose runs the caller may write.
    pub agents: Agents,
    /// The faults of values that are above their limits as they were sent, or that no JSON has: they stand unless the run's
    /// lifecycle masks enough of them. In the place of a value that no JSON has, the ask has another one.
    pub oversize: Vec<Violation>,
    /// What was done for the command before it was queued.
    pub prepared: Prepared,
    /// The call's place in a trace, which the event keeps. It decides nothing, and is no part of the digest.
    pub trace: Option<TraceContext>,
}

impl Command {
    /// Whether the command, repeated without a request id to recognise it by, still has one effect at most, and the
    /// answer to the repetition tells as much.
    #[must_use]
    pub fn is_idempotent(&self) -> bool {
        // A command that expects a revision would have its repetition refused by the revision that it made itself.
        self.ask.is_idempotent() && self.expected_revision.is_none()
    }

    /// The approximate number of bytes that the command takes in memory: for bounds on queues and batches.
    #[must_use]
    pub fn weight(&self) -> usize {
        size_of::<Self>() + self.key.run_id.len() + self.ask.weight() + self.prepared.weight()
    }
}

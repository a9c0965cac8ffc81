//! The claims of `ClaimNextRun` by the claimer's own `request_id`: a claimer does not know which run it asks for, so its
//! request is remembered apart from every run, and found again by its namespace and id.

use super::{Refusal, Run, RunKey, Status};

/// The RPC, as refusals name it.
const RPC: &str = "ClaimNextRun";

/// A claim that was made under a `request_id`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Claimed {
    /// The run that was claimed.
    pub key: RunKey,
    /// The epoch of the lease that was granted.
    pub epoch: u64,
    /// The digest of the request: see [`Request::digest`](super::Request::digest).
    pub digest: [u8; 32],
    /// How often a repetition of the request was answered with it.
    pub replays: u64,
}

/// Whether the claim still holds: the run is RUNNING under the lease that was granted.
///
/// # Errors
///
/// [`Refusal::LeaseLost`] where the lease is not the claimer's any more, or the run has ended.
pub fn still_held(claimed: &Claimed, run: Option<&Run>) -> Result<(), Refusal> {
    let Some(run) = run else { return Err(Refusal::RunNotFound { key: claimed.key.clone() }) };
    let lease = run.supervision.lease;
    let holds = lease.is_some_and(|lease| lease.epoch == claimed.epoch && !lease.released);
    if run.status == Status::Running && holds {
        return Ok(());
    }
    Err(Refusal::lease_lost(RPC, claimed.epoch, run))
}

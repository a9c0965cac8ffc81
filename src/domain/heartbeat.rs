//! The refusal of a heartbeat that renewed no lease. Renewals are no commands: they make no event and take no head, and
//! the store renews only leases of the caller. The cause is found here, on the run as it is.

use super::decide::{lease_is, owned_by};
use super::{Refusal, Renewal, Run, RunKey, Status};

/// The RPC, as refusals name it.
const RPC: &str = "HeartbeatRun";

/// The refusal of a heartbeat that renewed nothing, in the contract's order of checks.
#[must_use]
pub fn refusal(key: &RunKey, run: Option<&Run>, renewal: &Renewal) -> Refusal {
    let Some(run) = run else { return Refusal::RunNotFound { key: key.clone() } };
    let held = lease_is(run, RPC, renewal.epoch, true).and_then(|()| owned_by(run, RPC, renewal.agent_id.as_ref()));
    if let Err(refusal) = held {
        return refusal;
    }
    match run.status {
        Status::Pending | Status::Completed | Status::Aborted | Status::Failed => {
            Refusal::RunNotRunning { run: run.summary() }
        }
        // The lease is over, and no other has followed yet: a renewal now could come after a sweep has looked at it.
        Status::Running => Refusal::lease_lost(RPC, renewal.epoch, run),
    }
}

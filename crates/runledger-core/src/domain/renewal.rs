//! Renewals: which heartbeat renews a lease, and the refusal of one that renews none.
//!
//! A renewal is no command: it makes no event, takes no head, and rests on the lease's own row beside the run. So the
//! stores renew in one statement or transaction of their own (`leases.renew`), and the refusal is found afterwards,
//! on the run as it is.

use super::decide::lease::lease_is;
use super::decide::owner::renewed_by;
use super::{HeldLease, Refusal, Renewal, Run, RunKey, Status, Time};

/// The RPC, as refusals name it.
const RPC: &str = "HeartbeatRun";

impl Renewal {
    /// Whether a heartbeat renews a run's lease at a time: the caller names the lease's epoch, the lease is neither
    /// over nor released, and the run has no owner, or the caller's agent, if it names one, is the owner; where the
    /// caller is confined to its agents, the run must have an owner. The
    /// statement `leases.renew` on Postgres says the same in SQL, and one list of tests holds both.
    #[must_use]
    pub fn renews(&self, held: &HeldLease, run: &Run, now: Time) -> bool {
        let released = run.supervision.lease.is_some_and(|lease| lease.released);
        self.epoch == held.epoch && !released && held.expires_at > now && self.is_of_an_owner(run).is_ok()
    }

    /// Whether another heartbeat, of the same lease, has the same caller as this one.
    #[must_use]
    pub fn is_of_same_caller(&self, other: &Self) -> bool {
        (self.epoch, &self.agent_id, self.is_confined) == (other.epoch, &other.agent_id, other.is_confined)
    }

    fn is_of_an_owner(&self, run: &Run) -> Result<(), Refusal> {
        renewed_by(run, RPC, self.agent_id.as_ref(), self.is_confined)
    }
}

/// The refusal of a heartbeat that renewed nothing, in the contract's order of checks.
#[must_use]
pub fn refusal(key: &RunKey, run: Option<&Run>, renewal: &Renewal) -> Refusal {
    let Some(run) = run else { return Refusal::RunNotFound { key: key.clone() } };
    if let Some(expired) = Refusal::expired(run) {
        return expired;
    }
    let held = lease_is(run, RPC, renewal.epoch, true).and_then(|()| renewal.is_of_an_owner(run));
    if let Err(refusal) = held {
        return refusal;
    }
    match run.status {
        Status::Pending | Status::Completed | Status::Aborted | Status::Failed => {
            Refusal::RunNotRunning { run: run.summary() }
        }
        Status::Running if run.suspension().is_some() => Refusal::run_suspended(run),
        // The lease is over, and no other has followed yet: a renewal now could come after a sweep has looked at it.
        Status::Running => Refusal::lease_lost(RPC, renewal.epoch, run),
    }
}

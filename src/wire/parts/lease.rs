//! A run's lease: its claims, its heartbeats with the progress of the work, and its release. A lease's expiry, and the
//! progress, stand in the lease's own row: `authority::reads` puts them in where a run is read.

use crate::auth::Caller;
use crate::domain::limits::{LEASE_TTL_MS_MAX, LEASE_TTL_MS_MIN, MAX_RUNNING_LIMIT_MAX, PROGRESS_MESSAGE_BYTES_MAX};
use crate::domain::{
    Ask, Claim, Command, Lease, LeaseEpoch, MaxRunning, Progress, Release, Renewal, RunKey, Time, Violation,
};
use crate::store::leases::Renewed;
use crate::wire::from_domain::{FromDomain, IntoMessage};
use crate::wire::mutation::Mutation;
use crate::wire::scalars::{duration, timestamp};
use crate::wire::validate::Violations;
use runledger_proto::v1;

/// The command of a `ClaimRun`.
///
/// # Errors
///
/// Every violation.
pub fn claim_run(request: v1::ClaimRunRequest, caller: &Caller) -> Result<Command, Vec<Violation>> {
    let mut violations = Violations::default();
    let ask = Ask::Claim(Claim {
        expected_epoch: request.expected_epoch.map(LeaseEpoch::from),
        lease_ttl_ms: violations.required_lease_ttl_ms(request.lease_ttl),
        max_running: violations.max_running(request.max_running),
        ..Claim::default()
    });
    let (run_id, request_id, expected_revision) = (request.run_id, request.request_id, request.expected_revision);
    Mutation { ask, run_id, request_id, expected_revision }.command(violations, caller)
}

/// The command of a `ReleaseRun`.
///
/// # Errors
///
/// Every violation.
pub fn release_run(request: v1::ReleaseRunRequest, caller: &Caller) -> Result<Command, Vec<Violation>> {
    let mut violations = Violations::default();
    let lease_epoch = holder(violations.required_lease_epoch(request.lease_epoch));
    let ask = Ask::Release(Release { lease_epoch, not_begun: request.not_begun });
    let (run_id, request_id, expected_revision) = (request.run_id, request.request_id, request.expected_revision);
    Mutation { ask, run_id, request_id, expected_revision }.command(violations, caller)
}

/// The run and the renewal of a `HeartbeatRun`.
///
/// # Errors
///
/// Every violation.
pub fn heartbeat_run(request: v1::HeartbeatRunRequest, caller: &Caller) -> Result<(RunKey, Renewal), Vec<Violation>> {
    let mut violations = Violations::default();
    violations.run_id(&request.run_id);
    let renewal = Renewal {
        epoch: violations.required_lease_epoch(request.lease_epoch),
        agent_id: caller.principal.agent_id.clone(),
        is_confined: caller.agents.is_confined(),
        progress: violations.progress(request.progress),
    };
    violations.settle((RunKey { namespace: caller.namespace.clone(), run_id: request.run_id.into() }, renewal))
}

/// The progress in an `UpdateRun`, as a heartbeat; none where it has no progress. Valid only where
/// [`update_run`](crate::wire::request::update_run) has found no violation.
#[must_use]
pub fn update_renewal(request: &v1::UpdateRunRequest, caller: &Caller) -> Option<(RunKey, Renewal)> {
    let progress = Violations::default().progress(request.progress.clone())?;
    let agent_id = caller.principal.agent_id.clone();
    let key = RunKey { namespace: caller.namespace.clone(), run_id: request.run_id.as_str().into() };
    Some((
        key,
        Renewal {
            epoch: request.lease_epoch.into(),
            agent_id,
            is_confined: caller.agents.is_confined(),
            progress: Some(progress),
        },
    ))
}

/// The lease of a call that only the lease's holder may make; none: the call names no lease.
pub(in crate::wire) fn holder(lease_epoch: impl Into<LeaseEpoch>) -> Option<LeaseEpoch> {
    Some(lease_epoch.into()).filter(|epoch| *epoch > LeaseEpoch::NONE)
}

impl Violations {
    /// The lease that a call must name.
    pub(in crate::wire) fn required_lease_epoch(&mut self, epoch: u64) -> LeaseEpoch {
        if epoch == 0 {
            self.push("lease_epoch", "is required: the epoch of the lease that you hold, from 1");
        }
        epoch.into()
    }

    /// The time that a lease which is asked for lasts.
    pub(in crate::wire) fn lease_ttl_ms(&mut self, ttl: Option<prost_types::Duration>) -> Option<u64> {
        self.duration_ms("lease_ttl", ttl, LEASE_TTL_MS_MIN..=LEASE_TTL_MS_MAX, "1 second to 24 hours")
    }

    /// The same, where a lease must be asked for.
    pub(in crate::wire) fn required_lease_ttl_ms(&mut self, ttl: Option<prost_types::Duration>) -> u64 {
        if ttl.is_none() {
            self.push("lease_ttl", "is required: 1 second to 24 hours");
        }
        self.lease_ttl_ms(ttl).unwrap_or_default()
    }

    /// The progress of the work.
    pub(in crate::wire) fn progress(&mut self, progress: Option<v1::Progress>) -> Option<Progress> {
        let v1::Progress { done, total, message, at: _ } = progress?;
        self.text("progress.message", &message, PROGRESS_MESSAGE_BYTES_MAX);
        if i64::try_from(done.max(total)).is_err() {
            self.push("progress", format!("done and total must be at most {}", i64::MAX));
        }
        if total > 0 && done > total {
            self.push("progress.done", "must not be above progress.total");
        }
        Some(Progress { done, total, message })
    }

    /// The limit of runs with the same value of a label that may be running.
    pub(in crate::wire) fn max_running(&mut self, max: Option<v1::MaxRunning>) -> Option<MaxRunning> {
        let v1::MaxRunning { label, limit } = max?;
        self.label_key(|| "max_running.label".to_owned(), &label);
        if !(1..=MAX_RUNNING_LIMIT_MAX).contains(&limit) {
            self.push("max_running.limit", format!("must be 1 to {MAX_RUNNING_LIMIT_MAX}"));
        }
        Some(MaxRunning { label, limit })
    }
}

impl FromDomain<&Lease> for v1::Lease {
    fn from_domain(lease: &Lease) -> Self {
        let Lease { epoch, ttl_ms, released, resting } = *lease;
        Self { epoch: epoch.into(), ttl: Some(duration(ttl_ms)), expires_at: None, released, resting }
    }
}

impl From<&Renewed> for v1::HeartbeatRunResponse {
    fn from(renewed: &Renewed) -> Self {
        Self {
            revision: renewed.run.revision.into(),
            expires_at: Some(timestamp(renewed.expires_at)),
            abort_request: renewed.run.supervision.abort_request.as_deref().map(IntoMessage::into_message),
            now: Some(timestamp(renewed.now)),
        }
    }
}

/// The progress of the work, and the time at which its worker reported it.
#[must_use]
pub fn progress((progress, at): &(Progress, Time)) -> v1::Progress {
    let Progress { done, total, message } = progress.clone();
    v1::Progress { done, total, message, at: Some(timestamp(*at)) }
}

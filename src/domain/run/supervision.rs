//! Supervision keeps a run from staying open for ever: its lease, its deadlines, a request to abort it, and a late
//! report.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::ResultDigest;
use crate::domain::form::{form, object};
use crate::domain::{
    Event, EventType, Identity, Lease, LeaseEpoch, Metadata, Principal, Ready, Run, Status, Time, Unbegun,
};

/// A request that the worker which executes a run abort it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct AbortRequest {
    /// The time of the request.
    pub at: Time,
    /// The caller that made the request.
    pub by: Principal,
    /// The reason, for people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// The time at which the authority aborts the run by itself; none: never.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deadline: Option<Time>,
}

/// The report that the last lease's holder made after the authority had ended the run. A late report changes no status.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct LateReport {
    /// The time of the report.
    pub at: Time,
    /// The caller that reported.
    pub by: Principal,
    /// The epoch of the lease that the report was made under; [`LeaseEpoch::NONE`] for a run without one.
    pub lease_epoch: LeaseEpoch,
    /// The terminal status that the report names.
    pub status: Status,
    /// The reason, for people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failure_reason: Option<String>,
    /// The reason, for programs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason_code: Option<String>,
    /// The metadata patch of the report; it is not applied, and only the event keeps it.
    #[serde(default, skip_serializing_if = "Metadata::is_empty")]
    pub metadata: Metadata,
    /// The result of the report, which is kept beside the run's own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub result: Option<ResultDigest>,
    /// The number of links that came with it.
    #[serde(default, skip_serializing_if = "is_none")]
    pub links: u32,
    /// The phase that the report names; nothing checks it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub phase: Option<String>,
}

/// The `reason_code` of a late report that the run was completed, where its lifecycle would not have let it complete. A
/// completion has no reason of its own: so its reason is the authority's, and lists what was missing.
const COMPLETION_INCOMPLETE: &str = "COMPLETION_INCOMPLETE";

/// What stands between two things that were missing: no requirement has a space in it.
const BETWEEN: &str = " ";

/// The number of identities that a run keeps of those that executed it before.
const EXECUTED_BY_MAX: usize = 32;

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde hands over a reference")]
fn is_none(links: &u32) -> bool {
    *links == 0
}

impl LateReport {
    /// The report as the run shows it: without the patch, which the event keeps.
    #[must_use]
    pub fn without_metadata(&self) -> Self {
        Self { metadata: Metadata::default(), ..self.clone() }
    }

    /// Notes what the run lacks for the completion that is reported.
    pub(in crate::domain) fn lacks(&mut self, missing: &[String]) {
        if self.status == Status::Completed && !missing.is_empty() {
            self.reason_code = Some(COMPLETION_INCOMPLETE.to_owned());
            self.failure_reason = Some(missing.join(BETWEEN));
        }
    }

    /// Whether the run would not have been completed by this report, had it come in time: then it is no outcome.
    #[must_use]
    pub fn is_incomplete(&self) -> bool {
        self.status == Status::Completed && self.reason_code.as_deref() == Some(COMPLETION_INCOMPLETE)
    }

    /// What the run lacked for the completion that was reported.
    #[must_use]
    pub fn completion_missing(&self) -> Vec<String> {
        let listed = self.failure_reason.as_deref().filter(|_| self.is_incomplete()).unwrap_or_default();
        listed.split(BETWEEN).filter(|missing| !missing.is_empty()).map(str::to_owned).collect()
    }

    fn weight(&self) -> usize {
        [&self.failure_reason, &self.phase].into_iter().flatten().map(String::len).sum::<usize>()
            + self.metadata.weight()
            + size_of::<Self>()
    }
}

/// The fields of a run that the authority watches over.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Supervision {
    /// The last lease that was granted; it stays when the run has ended.
    pub lease: Option<Lease>,
    /// The time at which a pending run that was not started is aborted.
    pub start_deadline: Option<Time>,
    /// The time that the run may be running, in milliseconds.
    pub run_timeout_ms: Option<u64>,
    /// The request to abort the run.
    pub abort_request: Option<Box<AbortRequest>>,
    /// The terminal status is the authority's conclusion from silence: the worker did not report it.
    pub presumed: bool,
    /// The report that came after a presumed end.
    pub late_report: Option<Box<LateReport>>,
    /// The running run has no worker: the next claim takes it.
    pub ready: Option<Box<Ready>>,
    /// The last lease was granted by a claim, and its holder has written nothing yet.
    pub unbegun: Option<Box<Unbegun>>,
    /// The caller that was granted the last lease, where it proved an identity: else the run's owner says who it is. Runs
    /// that an earlier release wrote have none where it named an agent, too.
    pub grantee: Option<Box<Principal>>,
    /// The identities that executed the run, beside the [grantee](Self::grantee): under an earlier lease, or without one.
    /// Each once, the last 32 of them, in the order in which they came. Callers that prove no identity are not among
    /// them, nor is one that gave its lease back without having begun.
    pub executed_by: Vec<Arc<Identity>>,
    /// The total time that the run has been at rest, in microseconds, which does not count towards `run_timeout_ms`, and the
    /// time by which the store's clock was set forward meanwhile.
    pub rest_micros: i64,
    /// By how much the ledger's [steady clock](crate::domain::steady) is ahead of the clock that the deadlines are told by,
    /// in microseconds.
    pub steady_ahead_micros: i64,
}

/// The changes of a run's supervision by an event. No command asks for them: the authority adds them.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct SupervisionChange {
    /// The lease that was granted or given up.
    pub lease: Option<Lease>,
    /// See [`Supervision::start_deadline`].
    pub start_deadline: Option<Time>,
    /// See [`Supervision::run_timeout_ms`].
    pub run_timeout_ms: Option<u64>,
    /// The request to abort the run.
    pub abort_request: Option<Box<AbortRequest>>,
    /// The authority concluded the terminal status from silence.
    pub presumed: bool,
    /// The report that came late.
    pub late_report: Option<Box<LateReport>>,
    /// The run became ready.
    pub ready: Option<Box<Ready>>,
    /// The lease was granted by a claim, which may be given back.
    pub unbegun: Option<Box<Unbegun>>,
    /// The event's caller is the [grantee](Supervision::grantee) of the lease. Older events say nothing of it, and the runs
    /// that were stored with them neither.
    pub to_grantee: bool,
    /// Who joins [`Supervision::executed_by`]. Events of earlier releases do not say so, nor do the runs that were stored with
    /// them.
    pub executor: Option<Executor>,
}

/// An identity that is kept as one that executed the run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Executor {
    /// The event's caller, who executes the run without a lease.
    Caller,
    /// Whoever was granted the lease before.
    Grantee,
}

object!(Supervision {
    lease: "lease",
    start_deadline: "startDeadline",
    run_timeout_ms: "runTimeoutMs",
    abort_request: "abortRequest",
    presumed: "presumed",
    late_report: "lateReport",
    ready: "ready",
    unbegun: "unbegun",
    grantee: "grantee",
    executed_by: "executedBy",
    rest_micros: "restMicros",
    steady_ahead_micros: "steadyAheadMicros"
});

form!(SupervisionChange {
    lease: "lease",
    start_deadline: "startDeadline",
    run_timeout_ms: "runTimeoutMs",
    abort_request: "abortRequest",
    presumed: "presumed",
    late_report: "lateReport",
    ready: "ready",
    unbegun: "unbegun",
    to_grantee: "toGrantee",
    executor: "executor"
});

impl Supervision {
    pub(in crate::domain) fn fold(&mut self, event: &Event) {
        let SupervisionChange {
            lease,
            start_deadline,
            run_timeout_ms,
            abort_request,
            presumed,
            late_report,
            ready,
            unbegun,
            to_grantee,
            executor,
        } = &event.changes.supervision;
        if lease.is_some_and(|lease| !lease.resting) {
            let earlier = self.grantee.take().and_then(|grantee| grantee.identity);
            self.grantee = to_grantee.then(|| Box::new(event.principal.clone()));
            self.keep_executed_by(earlier.filter(|_| *executor == Some(Executor::Grantee)));
        }
        if *executor == Some(Executor::Caller) {
            self.keep_executed_by(event.principal.identity.clone());
        }
        self.lease = lease.or(self.lease);
        self.start_deadline = start_deadline.or(self.start_deadline);
        self.run_timeout_ms = run_timeout_ms.or(self.run_timeout_ms);
        self.presumed |= presumed;
        // Any event of a ready run ends its readiness, and after any event of its holder a claim has been begun. A
        // request to abort the run and a redaction do neither: the holder does not make them.
        if !matches!(event.event_type, EventType::AbortRequested | EventType::Redacted) {
            self.ready.clone_from(ready);
            self.unbegun.clone_from(unbegun);
        }
        if let Some(request) = abort_request {
            self.abort_request = Some(request.clone());
        }
        if let Some(report) = late_report {
            self.late_report = Some(Box::new(report.without_metadata()));
        }
    }

    /// Keeps who executed the run, where the grantee does not say so.
    fn keep_executed_by(&mut self, identity: Option<Arc<Identity>>) {
        let Some(identity) = identity.filter(|identity| !self.was_executed_by(identity)) else { return };
        self.executed_by.push(identity);
        let surplus = self.executed_by.len().saturating_sub(EXECUTED_BY_MAX);
        self.executed_by.drain(..surplus);
    }

    /// Whether an identity is known to have executed the run.
    pub(in crate::domain) fn was_executed_by(&self, identity: &Arc<Identity>) -> bool {
        let grantee = self.grantee.as_ref().and_then(|grantee| grantee.identity.as_ref());
        grantee == Some(identity) || self.executed_by.contains(identity)
    }

    /// Keeps the deadlines of a run that has been started where they are by the steady clock, before an event is folded that
    /// notes another difference of the clocks. While the run is at rest, its time stands still by itself.
    pub(in crate::domain) fn reckon_anew(&mut self, shift: i64, is_at_rest: bool) {
        if shift == 0 {
            return;
        }
        if !is_at_rest {
            self.rest_micros += shift;
        }
        let deadlines = [
            self.abort_request.as_mut().and_then(|request| request.deadline.as_mut()),
            self.ready.as_mut().and_then(|ready| ready.deadline.as_mut()),
        ];
        for deadline in deadlines.into_iter().flatten() {
            *deadline = deadline.plus_micros(shift);
        }
    }

    /// Whether the authority has nothing to watch over.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// The current epoch; [`LeaseEpoch::NONE`] for a run that never had a lease.
    #[must_use]
    pub fn epoch(&self) -> LeaseEpoch {
        self.lease.map_or(LeaseEpoch::NONE, |lease| lease.epoch)
    }

    pub(in crate::domain) fn weight(&self) -> usize {
        let request = self.abort_request.as_ref();
        request.map_or(0, |request| size_of::<AbortRequest>() + request.reason.as_ref().map_or(0, String::len))
            + self.late_report.as_ref().map_or(0, |report| report.weight())
            + self.ready.as_ref().map_or(0, |_| size_of::<Ready>())
            + self.unbegun.as_ref().map_or(0, |unbegun| unbegun.weight())
            + self.grantee.as_ref().map_or(0, |_| size_of::<Principal>())
            + self.executed_by.iter().map(|identity| weight_of(identity)).sum::<usize>()
    }
}

fn weight_of(identity: &Identity) -> usize {
    size_of::<Arc<Identity>>() + size_of::<Identity>() + identity.subject.len() + identity.issuer.len()
}

impl Run {
    /// The time at which a running run is aborted; none: never, or not while it is at rest.
    #[must_use]
    pub fn deadline(&self) -> Option<Time> {
        if self.is_at_rest() {
            return None;
        }
        let Supervision { run_timeout_ms, rest_micros, .. } = self.supervision;
        Some(self.running_at?.plus_ms(run_timeout_ms?).plus_micros(rest_micros))
    }

    /// The time at which the authority has to end the run by itself, with or without a lease, by the
    /// [steady clock](crate::domain::steady); none: never.
    #[must_use]
    pub fn due_at(&self) -> Option<Time> {
        Some(self.first_deadline()?.plus_micros(self.supervision.steady_ahead_micros))
    }

    fn first_deadline(&self) -> Option<Time> {
        let deadline = match self.status {
            Status::Pending => self.supervision.start_deadline,
            Status::Running => match (&self.supervision.ready, self.suspension()) {
                (Some(ready), _) => ready.deadline,
                (None, Some(suspension)) => suspension.deadline,
                (None, None) => self.deadline(),
            },
            Status::Completed | Status::Aborted | Status::Failed => return None,
        };
        let grace = self.supervision.abort_request.as_ref().and_then(|request| request.deadline);
        deadline.into_iter().chain(grace).min()
    }

    /// Whether a worker may hold a lease on the run.
    #[must_use]
    pub fn is_held(&self) -> bool {
        self.status == Status::Running && self.supervision.lease.is_some() && !self.is_at_rest()
    }

    /// The run's last known terminal status: that of a late report, else the run's own. A completion that its lifecycle
    /// would not have allowed is none.
    #[must_use]
    pub fn outcome(&self) -> Option<Status> {
        let late = self.supervision.late_report.as_ref().filter(|report| !report.is_incomplete());
        let reported = late.map(|report| report.status);
        reported.or(Some(self.status).filter(|status| status.is_terminal()))
    }
}

//! Supervision keeps a run from staying open for ever: its lease, its deadlines, a request to abort it, and a late
//! report.

use std::sync::Arc;

use crate::domain::form::{form, object};
use crate::domain::happened::Happened;
use crate::domain::parts::ending::{AbortRequest, LateReport};
use crate::domain::parts::lease::{Executor, Lease, Unbegun};
use crate::domain::parts::rest::Ready;
use crate::domain::{EventType, Identity, LeaseEpoch, Principal, Redaction, Time};

/// The number of identities that a run keeps of those that executed it before.
const EXECUTED_BY_MAX: usize = 32;

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
    pub(in crate::domain) fn fold(&mut self, change: &SupervisionChange, happened: Happened<'_>) {
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
        } = change;
        if lease.is_some_and(|lease| !lease.resting) {
            let earlier = self.grantee.take().and_then(|grantee| grantee.identity);
            self.grantee = to_grantee.then(|| Box::new(happened.principal.clone()));
            self.keep_executed_by(earlier.filter(|_| *executor == Some(Executor::Grantee)));
        }
        if *executor == Some(Executor::Caller) {
            self.keep_executed_by(happened.principal.identity.clone());
        }
        self.lease = lease.or(self.lease);
        self.start_deadline = start_deadline.or(self.start_deadline);
        self.run_timeout_ms = run_timeout_ms.or(self.run_timeout_ms);
        self.presumed |= presumed;
        // Any event of a ready run ends its readiness, and after any event of its holder a claim has been begun. A
        // request to abort the run and a redaction do neither: the holder does not make them.
        if !matches!(happened.event_type, EventType::AbortRequested | EventType::Redacted) {
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
        let Self {
            abort_request,
            late_report,
            ready,
            unbegun,
            grantee,
            executed_by,
            lease: _,
            start_deadline: _,
            run_timeout_ms: _,
            presumed: _,
            rest_micros: _,
            steady_ahead_micros: _,
        } = self;
        abort_request.as_ref().map_or(0, |request| request.weight())
            + late_report.as_ref().map_or(0, |report| report.weight())
            + ready.as_ref().map_or(0, |_| size_of::<Ready>())
            + unbegun.as_ref().map_or(0, |unbegun| unbegun.weight())
            + grantee.as_ref().map_or(0, |_| size_of::<Principal>())
            + executed_by.iter().map(|identity| weight_of(identity)).sum::<usize>()
    }

    pub(in crate::domain) fn take_out(&mut self, redaction: &Redaction) {
        let Self {
            abort_request,
            late_report,
            lease: _,
            start_deadline: _,
            run_timeout_ms: _,
            presumed: _,
            ready: _,
            unbegun: _,
            grantee: _,
            executed_by: _,
            rest_micros: _,
            steady_ahead_micros: _,
        } = self;
        take_out_of(abort_request, late_report, redaction);
    }
}

impl SupervisionChange {
    pub(in crate::domain) fn take_out(&mut self, redaction: &Redaction) -> u64 {
        let Self {
            abort_request,
            late_report,
            lease: _,
            start_deadline: _,
            run_timeout_ms: _,
            presumed: _,
            ready: _,
            unbegun: _,
            to_grantee: _,
            executor: _,
        } = self;
        take_out_of(abort_request, late_report, redaction)
    }
}

fn take_out_of(
    request: &mut Option<Box<AbortRequest>>,
    report: &mut Option<Box<LateReport>>,
    redaction: &Redaction,
) -> u64 {
    request.as_mut().map_or(0, |request| request.take_out(redaction))
        + report.as_mut().map_or(0, |report| report.take_out(redaction))
}

fn weight_of(identity: &Identity) -> usize {
    size_of::<Arc<Identity>>() + size_of::<Identity>() + identity.subject.len() + identity.issuer.len()
}

//! A run that rests: its suspension, and what lets it go on.

use super::lease::holder;
use crate::auth::Caller;
use crate::domain::limits::{RESUME_HINT_BYTES_MAX, SUSPENSION_REASON_BYTES_MAX};
use crate::domain::{
    Ask, Command, Ready, Resume, Resumption, Run, SupervisionChange, Suspend, Suspension, SuspensionTerms, Suspensions,
    SuspensionsChange, TimeoutThen, Violation,
};
use crate::wire::from_domain::{FromDomain, IntoMessage};
use crate::wire::mutation::Mutation;
use crate::wire::scalars::{duration, text, timestamp};
use crate::wire::validate::Violations;
use runledger_proto::v1;

/// The command of a `SuspendRun`.
///
/// # Errors
///
/// Every violation.
pub fn suspend_run(request: v1::SuspendRunRequest, caller: &Caller) -> Result<Command, Vec<Violation>> {
    let mut violations = Violations::default();
    let kind = violations.kind("kind", request.kind).unwrap_or_else(|| {
        violations.push("kind", "is required: what the run waits for, such as HELP or PAUSED");
        String::new()
    });
    let reason = violations.required("reason", request.reason, SUSPENSION_REASON_BYTES_MAX);
    let terms = SuspensionTerms {
        reason: Some(reason),
        resume_hint: violations.optional("resume_hint", request.resume_hint, RESUME_HINT_BYTES_MAX),
        timeout_ms: violations.timeout("timeout", request.timeout),
        timeout_then: violations.timeout_then("timeout_then", request.timeout_then),
    };
    let ask = Ask::Suspend(Suspend {
        lease_epoch: holder(request.lease_epoch),
        kind,
        terms,
        ready_timeout_ms: violations.timeout("ready_timeout", request.ready_timeout),
        keep_slot: request.keep_slot,
        position: violations.position(request.phase, 0),
    });
    let (run_id, request_id, expected_revision) = (request.run_id, request.request_id, request.expected_revision);
    Mutation { ask, run_id, request_id, expected_revision }.command(violations, caller)
}

/// The command of a `ResumeRun`.
///
/// # Errors
///
/// Every violation.
pub fn resume_run(request: v1::ResumeRunRequest, caller: &Caller) -> Result<Command, Vec<Violation>> {
    let mut violations = Violations::default();
    if request.max_running.is_some() && request.lease_ttl.is_none() {
        violations.push("max_running", "only with lease_ttl: else the claim states it");
    }
    let ask = Ask::Resume(Resume {
        reason: violations.optional("reason", request.reason, SUSPENSION_REASON_BYTES_MAX),
        position: violations.position(request.phase, request.max_iterations),
        lease_ttl_ms: violations.lease_ttl_ms(request.lease_ttl),
        max_running: violations.max_running(request.max_running),
    });
    let (run_id, request_id, expected_revision) = (request.run_id, request.request_id, request.expected_revision);
    Mutation { ask, run_id, request_id, expected_revision }.command(violations, caller)
}

/// What an update says of the suspension that its phase brings.
pub(in crate::wire) fn terms(terms: Option<v1::SuspensionTerms>, violations: &mut Violations) -> SuspensionTerms {
    let Some(v1::SuspensionTerms { reason, resume_hint, timeout, timeout_then }) = terms else {
        return SuspensionTerms::default();
    };
    SuspensionTerms {
        reason: violations.optional("suspension.reason", reason, SUSPENSION_REASON_BYTES_MAX),
        resume_hint: violations.optional("suspension.resume_hint", resume_hint, RESUME_HINT_BYTES_MAX),
        timeout_ms: violations.timeout("suspension.timeout", timeout),
        timeout_then: violations.timeout_then("suspension.timeout_then", timeout_then),
    }
}

impl Violations {
    /// What becomes of a suspended run at its deadline; absent when unspecified.
    fn timeout_then(&mut self, field: &str, number: i32) -> Option<TimeoutThen> {
        match v1::TimeoutThen::try_from(number) {
            Ok(v1::TimeoutThen::Unspecified) => None,
            Ok(v1::TimeoutThen::Abort) => Some(TimeoutThen::Abort),
            Ok(v1::TimeoutThen::Resume) => Some(TimeoutThen::Resume),
            Ok(v1::TimeoutThen::Fail) => Some(TimeoutThen::Fail),
            Err(_) => {
                self.push(field, format!("{number} is not a value of TimeoutThen"));
                None
            }
        }
    }
}

fn timeout_then(then: TimeoutThen) -> v1::TimeoutThen {
    match then {
        TimeoutThen::Abort => v1::TimeoutThen::Abort,
        TimeoutThen::Resume => v1::TimeoutThen::Resume,
        TimeoutThen::Fail => v1::TimeoutThen::Fail,
    }
}

impl FromDomain<&Suspension> for v1::Suspension {
    fn from_domain(suspension: &Suspension) -> Self {
        Self {
            kind: suspension.kind.clone(),
            reason: suspension.reason.clone(),
            resume_hint: text(suspension.resume_hint.as_ref()),
            at: Some(timestamp(suspension.at)),
            by: Some((&suspension.by).into_message()),
            lease_epoch: suspension.lease_epoch.map_or(0, Into::into),
            deadline: suspension.deadline.map(timestamp),
            ready_timeout: suspension.ready_timeout_ms.map(duration),
            keep_slot: suspension.keep_slot,
            resumption: suspension.resumption.as_deref().map(IntoMessage::into_message),
            timeout_then: suspension
                .deadline
                .map_or(v1::TimeoutThen::Unspecified, |_| timeout_then(suspension.timeout_then.unwrap_or_default()))
                .into(),
        }
    }
}

impl FromDomain<&Resumption> for v1::Resumption {
    fn from_domain(resumption: &Resumption) -> Self {
        Self {
            at: Some(timestamp(resumption.at)),
            by: Some((&resumption.by).into_message()),
            reason: text(resumption.reason.as_ref()),
            phase: text(resumption.phase.as_ref()),
            max_iterations: resumption.max_iterations.unwrap_or_default(),
        }
    }
}

impl FromDomain<&Ready> for v1::Ready {
    fn from_domain(ready: &Ready) -> Self {
        let Ready { at, deadline, not_begun } = *ready;
        Self { at: Some(timestamp(at)), deadline: deadline.map(timestamp), not_begun }
    }
}

pub(in crate::wire) fn show(run: &Run, shown: &mut v1::Run) {
    shown.ready = run.supervision.ready.as_deref().map(IntoMessage::into_message);
    let Some(refinements) = &run.refinements else { return };
    let Suspensions { suspension, resumed_from } = &refinements.rest;
    shown.suspension = suspension.as_deref().map(|it| Box::new(it.into_message()));
    shown.resumed_from = resumed_from.as_deref().map(|it| Box::new(it.into_message()));
}

pub(in crate::wire) fn show_readiness(change: &SupervisionChange, shown: &mut v1::RunChanges) {
    shown.ready = change.ready.as_deref().map(IntoMessage::into_message);
}

pub(in crate::wire) fn show_change(change: &SuspensionsChange, shown: &mut v1::RunChanges) {
    let SuspensionsChange { suspension, resumption } = change;
    shown.suspension = suspension.as_deref().map(|it| Box::new(it.into_message()));
    shown.resumption = resumption.as_deref().map(|it| Box::new(it.into_message()));
}

#[cfg(test)]
pub(in crate::wire) mod tests {
    use prost_types::Duration;

    use super::*;
    use crate::domain::{Principal, Time};

    /// A suspension that has something in every field.
    pub(in crate::wire) fn whole() -> Suspension {
        let by = Principal::claimed("agent".into());
        let at = Time::from_micros(10);
        let resumption = Resumption {
            at: Time::from_micros(11),
            by: Principal::anonymous(),
            reason: Some("that one".into()),
            phase: Some("acting".into()),
            max_iterations: Some(7),
        };
        Suspension {
            kind: "HELP".into(),
            reason: "which one?".into(),
            resume_hint: Some("say which".into()),
            at,
            by,
            executed_by: None,
            lease_epoch: Some(2.into()),
            deadline: Some(Time::from_micros(12)),
            timeout_then: Some(TimeoutThen::Fail),
            ready_timeout_ms: Some(1_500),
            keep_slot: true,
            by_limit: false,
            resumption: Some(Box::new(resumption)),
        }
    }

    /// As it is shown.
    pub(in crate::wire) fn shown() -> v1::Suspension {
        let at = |micros| Time::from_micros(micros);
        v1::Suspension {
            kind: "HELP".into(),
            reason: "which one?".into(),
            resume_hint: "say which".into(),
            at: Some(timestamp(at(10))),
            by: Some((&Principal::claimed("agent".into())).into_message()),
            lease_epoch: 2,
            deadline: Some(timestamp(at(12))),
            ready_timeout: Some(Duration { seconds: 1, nanos: 500_000_000 }),
            keep_slot: true,
            resumption: Some(v1::Resumption {
                at: Some(timestamp(at(11))),
                by: Some((&Principal::anonymous()).into_message()),
                reason: "that one".into(),
                phase: "acting".into(),
                max_iterations: 7,
            }),
            timeout_then: v1::TimeoutThen::Fail.into(),
        }
    }
}

//! How a run ends: the calls that end it, or ask for it, and what is kept of its end.

use super::attachments::{links, with_metadata};
use super::lease::holder;
use super::metadata;
use crate::auth::Caller;
use crate::domain::limits::{FAILURE_REASON_BYTES_MAX, METADATA_PATCH_BYTES_MAX, TIMEOUT_MS_MAX};
use crate::domain::{
    AbortRequest, Ask, Command, Complete, End, Ending, LateReport, RequestAbort, Run, SupervisionChange, Violation,
};
use crate::wire::from_domain::{FromDomain, IntoMessage};
use crate::wire::mutation::Mutation;
use crate::wire::scalars::{text, timestamp};
use crate::wire::validate::Violations;
use runledger_proto::v1;

/// The command of a `CompleteRun`.
///
/// # Errors
///
/// Every violation.
pub fn complete_run(request: v1::CompleteRunRequest, caller: &Caller) -> Result<Command, Vec<Violation>> {
    let mut violations = Violations::default();
    if request.claim_next.is_some() {
        violations.push("claim_next", "must be absent in a list of commands: claim by a call of its own");
    }
    let result = ("result", request.result);
    let (metadata, result) = with_metadata(request.metadata, METADATA_PATCH_BYTES_MAX, result, &mut violations);
    let added = links(request.links, &mut violations);
    let position = violations.position(request.phase, 0);
    let ask = Ask::Complete(Complete { lease_epoch: holder(request.lease_epoch), metadata, result, added, position });
    let (run_id, request_id, expected_revision) = (request.run_id, request.request_id, request.expected_revision);
    Mutation { ask, run_id, request_id, expected_revision }.command(violations, caller)
}

/// The command of an `AbortRun`.
///
/// # Errors
///
/// Every violation.
pub fn abort_run(request: v1::AbortRunRequest, caller: &Caller) -> Result<Command, Vec<Violation>> {
    let mut violations = Violations::default();
    let why = Ending {
        failure_reason: violations.optional("failure_reason", request.failure_reason, FAILURE_REASON_BYTES_MAX),
        reason_code: violations.reason_code(request.reason_code),
    };
    let (_, result) = with_metadata(None, 0, ("result", request.result), &mut violations);
    let position = violations.position(request.phase, 0);
    let ask = Ask::Abort(End { lease_epoch: holder(request.lease_epoch), why, result, position, is_final: false });
    let (run_id, request_id, expected_revision) = (request.run_id, request.request_id, request.expected_revision);
    Mutation { ask, run_id, request_id, expected_revision }.command(violations, caller)
}

/// The command of a `FailRun`.
///
/// # Errors
///
/// Every violation.
pub fn fail_run(request: v1::FailRunRequest, caller: &Caller) -> Result<Command, Vec<Violation>> {
    let mut violations = Violations::default();
    let why = Ending {
        failure_reason: Some(violations.required("failure_reason", request.failure_reason, FAILURE_REASON_BYTES_MAX)),
        reason_code: violations.reason_code(request.reason_code),
    };
    let (_, result) = with_metadata(None, 0, ("result", request.result), &mut violations);
    let position = violations.position(request.phase, 0);
    let ask =
        Ask::Fail(End { lease_epoch: holder(request.lease_epoch), why, result, position, is_final: request.r#final });
    let (run_id, request_id, expected_revision) = (request.run_id, request.request_id, request.expected_revision);
    Mutation { ask, run_id, request_id, expected_revision }.command(violations, caller)
}

/// The command of a `RequestAbort`.
///
/// # Errors
///
/// Every violation.
pub fn request_abort(request: v1::RequestAbortRequest, caller: &Caller) -> Result<Command, Vec<Violation>> {
    let mut violations = Violations::default();
    let ask = Ask::RequestAbort(RequestAbort {
        reason: violations.optional("reason", request.reason, FAILURE_REASON_BYTES_MAX),
        grace_ms: violations.duration_ms("grace", request.grace, 0..=TIMEOUT_MS_MAX, "0 to 366 days"),
    });
    let (run_id, request_id, expected_revision) = (request.run_id, request.request_id, request.expected_revision);
    Mutation { ask, run_id, request_id, expected_revision }.command(violations, caller)
}

impl FromDomain<&AbortRequest> for v1::AbortRequest {
    fn from_domain(request: &AbortRequest) -> Self {
        Self {
            at: Some(timestamp(request.at)),
            by: Some((&request.by).into_message()),
            reason: text(request.reason.as_ref()),
            deadline: request.deadline.map(timestamp),
        }
    }
}

impl FromDomain<&LateReport> for v1::LateReport {
    fn from_domain(report: &LateReport) -> Self {
        Self {
            at: Some(timestamp(report.at)),
            by: Some((&report.by).into_message()),
            lease_epoch: report.lease_epoch.into(),
            status: v1::RunStatus::from_domain(report.status).into(),
            failure_reason: text(report.failure_reason.as_ref().filter(|_| !report.is_incomplete())),
            reason_code: text(report.reason_code.as_ref()),
            metadata: metadata::shown(&report.metadata),
            result: report.result.map(|result| result.content.into_message()),
            link_count: report.links,
            phase: text(report.phase.as_ref()),
            completion_missing: report.completion_missing(),
        }
    }
}

pub(in crate::wire) fn show(run: &Run, shown: &mut v1::Run) {
    let Ending { failure_reason, reason_code } = &run.ending;
    shown.failure_reason = text(failure_reason.as_ref());
    shown.reason_code = text(reason_code.as_ref());
    shown.presumed = run.supervision.presumed;
    shown.abort_request = run.supervision.abort_request.as_deref().map(IntoMessage::into_message);
    shown.late_report = run.supervision.late_report.as_deref().map(IntoMessage::into_message);
}

pub(in crate::wire) fn show_change(ending: &Ending, change: &SupervisionChange, shown: &mut v1::RunChanges) {
    let Ending { failure_reason, reason_code } = ending;
    shown.failure_reason.clone_from(failure_reason);
    shown.reason_code.clone_from(reason_code);
    shown.presumed = change.presumed;
    shown.abort_request = change.abort_request.as_deref().map(IntoMessage::into_message);
    shown.late_report = change.late_report.as_deref().map(IntoMessage::into_message);
}

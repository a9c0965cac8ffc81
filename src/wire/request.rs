//! Requests as commands and questions of the domain. A request is checked whole: one answer names every violation.

use std::mem::take;

use uuid::Uuid;

use super::mutation::{Mutation, holder};
use super::validate::Violations;
use super::{bindings, contents, phases, suspension};
use crate::auth::Caller;
use crate::clock::draw_id;
use crate::domain::check::Transition;
use crate::domain::ids::derived_run_id;
use crate::domain::limits::{
    FAILURE_REASON_BYTES_MAX, LINK_BYTES_MAX, METADATA_BYTES_MAX, METADATA_PATCH_BYTES_MAX, REDACTED_PATH_BYTES_MAX,
    REDACTED_PATHS_MAX, TIMEOUT_MS_MAX,
};
use crate::domain::{
    Ask, Claim, Command, Complete, End, Ending, LabelsChange, LeaseEpoch, Origin, PositionAsk, RedactedPath, Redaction,
    Release, Renewal, RequestAbort, RunKey, Start, Status, Update, Violation,
};
use runledger_proto::v1;

/// The command of a `StartRun`. Makes the run's id where the request names none: from `request_id`, else at random.
///
/// # Errors
///
/// Every violation.
pub fn start_run(mut request: v1::StartRunRequest, caller: &Caller, ledger: Uuid) -> Result<Command, Vec<Violation>> {
    let mut violations = Violations::default();
    let task_thread_id = violations.required("task_thread_id", take(&mut request.task_thread_id), LINK_BYTES_MAX);
    let agent_id = violations.link("agent_id", take(&mut request.agent_id));
    let bindings = bindings::of_start(&mut request, &mut violations);
    let labels = violations.labels("labels", take(&mut request.labels));
    let input = ("input", request.input.take());
    let (metadata, input) =
        contents::with_metadata(request.metadata.take(), METADATA_BYTES_MAX, input, &mut violations);
    let start = Start {
        deferred: request.deferred,
        task_thread_id,
        agent_id,
        bindings,
        labels,
        metadata,
        lease_ttl_ms: violations.lease_ttl_ms(request.lease_ttl),
        start_timeout_ms: violations.timeout("start_timeout", request.start_timeout),
        run_timeout_ms: violations.timeout("run_timeout", request.run_timeout),
        input,
        origin: Origin {
            parent_run_id: violations.other_run("parent_run_id", request.parent_run_id),
            continues_run_id: violations.other_run("continues_run_id", request.continues_run_id),
        },
        position: PositionAsk {
            lifecycle: violations.lifecycle("lifecycle", &request.lifecycle),
            phase: violations.phase("phase", request.phase),
            iteration: None,
            max_iterations: Some(request.max_iterations).filter(|max| *max > 0),
            max_iterations_then: violations.limit_then("max_iterations_then", request.max_iterations_then),
        },
        priority: violations.priority(Some(request.priority).filter(|priority| *priority != 0)),
    };
    if request.deferred && request.lease_ttl.is_some() {
        violations.push("lease_ttl", "not with deferred: a pending run gets its lease when it is started or claimed");
    }
    if !request.deferred && request.start_timeout.is_some() {
        violations.push("start_timeout", "only with deferred: it is for a run that is created pending");
    }
    let run_id = match (request.run_id.as_str(), request.request_id.as_str()) {
        ("", "") => draw_id().to_string(),
        ("", request_id) => derived_run_id(ledger, &caller.namespace, request_id),
        (_, _) => request.run_id,
    };
    let (request_id, expected_revision) = (request.request_id, request.expected_revision);
    Mutation { ask: Ask::Start(start), run_id, request_id, expected_revision }.command(violations, caller)
}

/// The command of an `UpdateRun`. The progress in it is a [`renewal`](update_renewal).
///
/// # Errors
///
/// Every violation.
pub fn update_run(mut request: v1::UpdateRunRequest, caller: &Caller) -> Result<Command, Vec<Violation>> {
    let mut violations = Violations::default();
    if request.progress.is_some() && request.lease_epoch == 0 {
        violations.push("progress", "needs lease_epoch: progress is kept with a lease");
    }
    violations.progress(request.progress.take());
    let labels = violations.labels("labels", take(&mut request.labels));
    let bindings = bindings::of_update(&mut request, &mut violations);
    let result = ("result", request.result.take());
    let (metadata, result) =
        contents::with_metadata(request.metadata.take(), METADATA_PATCH_BYTES_MAX, result, &mut violations);
    let update = Update {
        lease_epoch: holder(request.lease_epoch),
        bindings,
        metadata,
        result,
        added: contents::links(request.links, &mut violations),
        position: PositionAsk { iteration: request.iteration, ..phases::asked(request.phase, 0, &mut violations) },
        suspension: suspension::terms(request.suspension, &mut violations),
        priority: violations.priority(request.priority),
        labels: LabelsChange { remove: violations.remove_labels(request.remove_labels, &labels), set: labels },
    };
    let (run_id, request_id, expected_revision) = (request.run_id, request.request_id, request.expected_revision);
    Mutation { ask: Ask::Update(update), run_id, request_id, expected_revision }.command(violations, caller)
}

/// The command of a `CompleteRun`.
///
/// # Errors
///
/// Every violation.
pub fn complete_run(request: v1::CompleteRunRequest, caller: &Caller) -> Result<Command, Vec<Violation>> {
    let mut violations = Violations::default();
    let result = ("result", request.result);
    let (metadata, result) =
        contents::with_metadata(request.metadata, METADATA_PATCH_BYTES_MAX, result, &mut violations);
    let added = contents::links(request.links, &mut violations);
    let position = phases::asked(request.phase, 0, &mut violations);
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
    let (_, result) = contents::with_metadata(None, 0, ("result", request.result), &mut violations);
    let position = phases::asked(request.phase, 0, &mut violations);
    let ask = Ask::Abort(End { lease_epoch: holder(request.lease_epoch), why, result, position });
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
    let (_, result) = contents::with_metadata(None, 0, ("result", request.result), &mut violations);
    let position = phases::asked(request.phase, 0, &mut violations);
    let ask = Ask::Fail(End { lease_epoch: holder(request.lease_epoch), why, result, position });
    let (run_id, request_id, expected_revision) = (request.run_id, request.request_id, request.expected_revision);
    Mutation { ask, run_id, request_id, expected_revision }.command(violations, caller)
}

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

pub use super::suspension::{resume_run, suspend_run};

/// The command of an `ArchiveRun`.
///
/// # Errors
///
/// Every violation.
pub fn archive_run(request: v1::ArchiveRunRequest, caller: &Caller) -> Result<Command, Vec<Violation>> {
    let v1::ArchiveRunRequest { run_id, request_id, expected_revision } = request;
    Mutation { ask: Ask::Archive, run_id, request_id, expected_revision }.command(Violations::default(), caller)
}

/// The command of a `RestoreRun`.
///
/// # Errors
///
/// Every violation.
pub fn restore_run(request: v1::RestoreRunRequest, caller: &Caller) -> Result<Command, Vec<Violation>> {
    let v1::RestoreRunRequest { run_id, request_id, expected_revision } = request;
    Mutation { ask: Ask::Restore, run_id, request_id, expected_revision }.command(Violations::default(), caller)
}

/// The command of a `RedactRun`.
///
/// # Errors
///
/// Every violation.
pub fn redact_run(request: v1::RedactRunRequest, caller: &Caller) -> Result<Command, Vec<Violation>> {
    let v1::RedactRunRequest { run_id, paths, reason, request_id, expected_revision } = request;
    let mut violations = Violations::default();
    if paths.is_empty() || paths.len() > REDACTED_PATHS_MAX {
        violations.push("paths", format!("has {}; expected 1 to {REDACTED_PATHS_MAX}", paths.len()));
    }
    let mut found: Vec<RedactedPath> = Vec::new();
    for (nth, path) in paths.iter().take(REDACTED_PATHS_MAX).enumerate() {
        let field = format!("paths[{nth}]");
        violations.text(&field, path, REDACTED_PATH_BYTES_MAX);
        match RedactedPath::parse(path) {
            Some(path) => found.extend((!found.contains(&path)).then_some(path)),
            None => violations.push(&field, "expected /metadata, a JSON pointer below it, /reason, /progress, /input, /result, /links or /links/REL"),
        }
    }
    let reason = violations.optional("reason", reason, FAILURE_REASON_BYTES_MAX);
    let ask = Ask::Redact(Redaction { paths: found, reason });
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

/// The progress in an `UpdateRun`, as a heartbeat; none where it has no progress. Valid only where [`update_run`] has
/// found no violation.
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

/// The run that a request names.
///
/// # Errors
///
/// Every violation.
pub fn run_key(run_id: String, caller: &Caller) -> Result<RunKey, Vec<Violation>> {
    let mut violations = Violations::default();
    violations.run_id(&run_id);
    violations.settle(RunKey { namespace: caller.namespace.clone(), run_id: run_id.into() })
}

/// The question of a `CheckTransition`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TransitionQuestion {
    /// Whether the matrix allows a transition.
    Matrix {
        /// The status to leave; none: there is no run.
        from: Option<Status>,
        /// The status to reach.
        to: Status,
    },
    /// Whether this run, as it is, may reach a status.
    Run {
        /// The run.
        key: RunKey,
        /// The status, the phase, or both to reach.
        transition: Transition,
    },
}

/// The question of a `CheckTransition`.
///
/// # Errors
///
/// Every violation.
pub fn check_transition(
    request: v1::CheckTransitionRequest,
    caller: &Caller,
) -> Result<TransitionQuestion, Vec<Violation>> {
    let mut violations = Violations::default();
    let from = request.from.map(|from| violations.status("from", from));
    let to = violations.status("to", request.to);
    let phase = violations.phase("to_phase", request.to_phase);
    if request.to == i32::from(v1::RunStatus::Unspecified) && phase.is_none() {
        violations.push("to", "is required without to_phase: the status to reach");
    }
    if phase.is_some() && request.run_id.is_empty() {
        violations.push("to_phase", "needs run_id: the phases that may follow are those of a run");
    }
    let question = match (from, request.run_id) {
        // Where there is a violation, this value is not used.
        (Some(from), run_id) if run_id.is_empty() => {
            TransitionQuestion::Matrix { from, to: to.unwrap_or(Status::Running) }
        }
        (from, run_id) => {
            if run_id.is_empty() || from.is_some() {
                let rule = "give either from (RUN_STATUS_UNSPECIFIED: the run does not exist) or run_id";
                violations.push("from", rule);
                violations.push("run_id", rule);
            } else {
                violations.run_id(&run_id);
            }
            let key = RunKey { namespace: caller.namespace.clone(), run_id: run_id.into() };
            TransitionQuestion::Run { key, transition: Transition { to, phase } }
        }
    };
    violations.settle(question)
}

#[cfg(test)]
mod tests;

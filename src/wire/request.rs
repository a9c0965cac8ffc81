//! Requests as commands and questions of the domain. A request is checked whole: one answer names every violation.

use std::mem::take;

use uuid::Uuid;

use super::mutation::Mutation;
use super::parts::lease::holder;
use super::parts::{attachments, bindings, rest};
use super::validate::Violations;
use crate::auth::Caller;
use crate::clock::draw_id;
use crate::domain::check::Transition;
use crate::domain::ids::derived_run_id;
use crate::domain::limits::{LINK_BYTES_MAX, METADATA_BYTES_MAX, METADATA_PATCH_BYTES_MAX};
use crate::domain::{Ask, Command, LabelsChange, Origin, PositionAsk, RunKey, Start, Status, Update, Violation};
use runledger_proto::v1;

pub use super::parts::archive::*;
pub use super::parts::ending::*;
pub use super::parts::lease::*;
pub use super::parts::redaction::*;
pub use super::parts::rest::*;

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
        attachments::with_metadata(request.metadata.take(), METADATA_BYTES_MAX, input, &mut violations);
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
        max_attempts: violations.max_attempts(request.max_attempts),
        attempt_timeout_ms: violations.timeout("attempt_timeout", request.attempt_timeout),
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
        attachments::with_metadata(request.metadata.take(), METADATA_PATCH_BYTES_MAX, result, &mut violations);
    let update = Update {
        lease_epoch: holder(request.lease_epoch),
        bindings,
        metadata,
        result,
        added: attachments::links(request.links, &mut violations),
        position: PositionAsk { iteration: request.iteration, ..violations.position(request.phase, 0) },
        suspension: rest::terms(request.suspension, &mut violations),
        priority: violations.priority(request.priority),
        labels: LabelsChange { remove: violations.remove_labels(request.remove_labels, &labels), set: labels },
    };
    let (run_id, request_id, expected_revision) = (request.run_id, request.request_id, request.expected_revision);
    Mutation { ask: Ask::Update(update), run_id, request_id, expected_revision }.command(violations, caller)
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

//! Refusals of the rules, each with its code, its sentence and its details.

use runledger_proto::v1;
use tonic_types::pb::ResourceInfo;

use super::lifecycles::{self, RefusedPhase};
use super::not_held::{attempt_failed_already, not_held, rests};
use super::{Code, Problem, invalid, suspended};
use crate::domain::{LeaseEpoch, MaxRunning, Refusal, Revision, RunId, RunKey, Status as RunStatus, Summary, Time};
use crate::wire::from_domain::{FromDomain as _, IntoMessage as _};
use crate::wire::scalars::timestamp;

/// Runs that a refused claim names.
const RUNNING_LISTED_MAX: usize = 4;

/// A command that the rules refuse.
#[must_use]
pub fn refusal(refusal: &Refusal) -> Problem {
    match refusal {
        Refusal::RequestIdReused { key, request_id } => request_id_reused(refusal, key, request_id),
        Refusal::RunNotFound { key } => run_not_found(refusal, key),
        Refusal::RunExpired { run, purged_at } => run_expired(refusal, run, *purged_at),
        Refusal::RunIdConflict { field, requested, actual, run } => {
            run_id_conflict(refusal, field, requested, actual, run)
        }
        Refusal::NotOwner { agent_id, owner_agent_id, tab_group_id, rpc, key } => {
            let ownership = v1::OwnershipError {
                run_id: key.run_id.to_string(),
                agent_id: agent_id.clone(),
                owner_agent_id: owner_agent_id.clone(),
                tab_group_id: tab_group_id.clone().unwrap_or_default(),
                action: (*rpc).to_owned(),
            };
            not_owner(refusal, &ownership)
        }
        Refusal::LeaseLost { rpc, asked, epoch, released, suspended, ready, attempt_failed, run } => {
            let message = if *attempt_failed && asked == epoch {
                attempt_failed_already(rpc, run)
            } else if *suspended && *asked == LeaseEpoch::NONE {
                rests(rpc, *epoch, *ready, run)
            } else {
                not_held(rpc, *asked, *epoch, *released, run)
            };
            lease_lost(refusal, message, *asked, *epoch, run)
        }
        Refusal::LeaseHeld { epoch, expires_at, ready, run } => lease_held(refusal, (*epoch, *expires_at), *ready, run),
        Refusal::MaxRunning { max, value, running, run } => max_running(refusal, max, value, running, run),
        Refusal::RevisionMismatch { key, expected, run } => revision_mismatch(refusal, key, *expected, run.as_ref()),
        Refusal::InvalidTransition { run, to } => invalid_transition(refusal, run, *to),
        Refusal::RunNotRunning { run } => run_not_running(refusal, run),
        Refusal::RunNotTerminal { run } => run_not_terminal(refusal, run),
        Refusal::RunNotPending { run } => run_not_pending(refusal, run),
        Refusal::RunBegun { run } => run_begun(refusal, run),
        Refusal::ClaimedBefore { claimed } => claimed_before(refusal, &claimed.key),
        Refusal::NamespaceNotFound { namespace } => super::namespaces::not_found(namespace),
        Refusal::QuotaExceeded { namespace, quota, limit, used } => {
            super::namespaces::quota_exceeded(namespace, quota, *limit, *used)
        }
        Refusal::LifecycleNotFound { lifecycle, key, is_pinned: true } => lifecycles::pinned_not_found(lifecycle, key),
        Refusal::LifecycleNotFound { lifecycle, key: _, is_pinned: false } => lifecycles::not_found(lifecycle),
        Refusal::LifecycleUnsupported { lifecycle, fields } => lifecycles::unsupported(lifecycle, fields),
        Refusal::InvalidPhase { key, lifecycle, from, to, completes, resumes, allowed, run } => {
            let (from, run, completes, resumes) = (from.as_deref(), run.as_ref(), *completes, *resumes);
            lifecycles::invalid_phase(&RefusedPhase { key, lifecycle, from, to, completes, resumes, allowed, run })
        }
        Refusal::IterationLimit { iteration, max_iterations, run } => {
            lifecycles::iteration_limit(*iteration, *max_iterations, run)
        }
        Refusal::RunSuspended { suspension, ready, run } => suspended::run_suspended(suspension, *ready, run),
        Refusal::SelfRaise { run } => suspended::self_raise(run),
        Refusal::BudgetExceeded { budget, spent, limit, run } => {
            suspended::budget_exceeded(budget, *spent, *limit, run)
        }
        Refusal::CompletionIncomplete { lifecycle, missing, went_on, run } => {
            lifecycles::incomplete(lifecycle, missing, *went_on, run)
        }
        Refusal::InvalidFields(violations) => invalid(violations.clone()),
    }
}

fn problem(code: Code, refusal: &Refusal, message: impl Into<String>) -> Problem {
    Problem::new(code, refusal.reason(), message)
}

fn request_id_reused(refusal: &Refusal, key: &RunKey, request_id: &str) -> Problem {
    let message = "This request_id was used for a different request: send a new one.";
    problem(Code::InvalidArgument, refusal, message).info("run_id", &key.run_id).info("request_id", request_id)
}

fn run_not_found(refusal: &Refusal, key: &RunKey) -> Problem {
    let message = format!("Run {} does not exist: check the run_id, or start the run.", key.run_id);
    let resource = ResourceInfo {
        resource_type: "runledger.v1.Run".to_owned(),
        resource_name: key.run_id.to_string(),
        ..ResourceInfo::default()
    };
    problem(Code::NotFound, refusal, message).info("run_id", &key.run_id).detail("google.rpc.ResourceInfo", &resource)
}

fn run_expired(refusal: &Refusal, run: &Summary, purged_at: Time) -> Problem {
    let message = format!(
        "Run {} was {}, and is gone: its namespace keeps runs no longer. Its id is not used again.",
        run.run_id, run.status
    );
    problem(Code::NotFound, refusal, message)
        .info("run_id", &run.run_id)
        .info("status", run.status.name())
        .info("purged_at", &purged_at.to_string())
        .detail("runledger.v1.RunSummary", &v1::RunSummary { started_at: None, ..run.into_message() })
}

fn run_id_conflict(refusal: &Refusal, field: &str, requested: &str, actual: &str, run: &Summary) -> Problem {
    let message = format!("Run {} exists with another {field}: use another run_id.", run.run_id);
    let conflict = v1::RunIdConflictError {
        field: field.to_owned(),
        requested: requested.to_owned(),
        actual: actual.to_owned(),
        run: Some(run.into_message()),
    };
    problem(Code::AlreadyExists, refusal, message)
        .info("run_id", &run.run_id)
        .info("field", field)
        .detail("runledger.v1.RunIdConflictError", &conflict)
}

fn not_owner(refusal: &Refusal, ownership: &v1::OwnershipError) -> Problem {
    let v1::OwnershipError { run_id, action, owner_agent_id, .. } = ownership;
    let message = match owner_agent_id.as_str() {
        // Which of them is open depends on where the run is, and a later call may find it elsewhere.
        "" => format!(
            "Run {run_id} belongs to no agent, and {action} does not make it the caller's. While it is PENDING, a StartRun \
             that is not deferred takes it, or a ClaimNextRun; once its lease is over, or it is ready, a ClaimRun; else it \
             is left to callers of all agents."
        ),
        _ => format!("Run {run_id} belongs to another agent: only its owner may call {action}."),
    };
    problem(Code::PermissionDenied, refusal, message)
        .info("run_id", run_id)
        .info("action", action)
        .detail("runledger.v1.OwnershipError", ownership)
}

fn run_not_running(refusal: &Refusal, run: &Summary) -> Problem {
    let message = format!("Run {} is {}: only a running run can do this.", run.run_id, run.status);
    problem(Code::FailedPrecondition, refusal, message)
        .info("run_id", &run.run_id)
        .info("status", run.status.name())
        .detail("runledger.v1.RunSummary", &v1::RunSummary::from_domain(run))
}

fn run_not_terminal(refusal: &Refusal, run: &Summary) -> Problem {
    let message = format!("Run {} is {}: only a run that has ended is archived.", run.run_id, run.status);
    problem(Code::FailedPrecondition, refusal, message)
        .info("run_id", &run.run_id)
        .info("status", run.status.name())
        .detail("runledger.v1.RunSummary", &v1::RunSummary::from_domain(run))
}

fn run_not_pending(refusal: &Refusal, run: &Summary) -> Problem {
    let message = format!("Run {} is {}: only a pending run's priority changes.", run.run_id, run.status);
    problem(Code::FailedPrecondition, refusal, message)
        .info("run_id", &run.run_id)
        .info("status", run.status.name())
        .detail("runledger.v1.RunSummary", &v1::RunSummary::from_domain(run))
}

fn run_begun(refusal: &Refusal, run: &Summary) -> Problem {
    let message = format!(
        "Run {} was begun, or its lease was not granted by a claim: release it without not_begun, or end it.",
        run.run_id
    );
    problem(Code::FailedPrecondition, refusal, message)
        .info("run_id", &run.run_id)
        .detail("runledger.v1.RunSummary", &v1::RunSummary::from_domain(run))
}

/// Never seen by a caller: a claim is answered with the claim that was made before.
fn claimed_before(refusal: &Refusal, key: &RunKey) -> Problem {
    let message = format!("This request_id has claimed run {}: send the same call again.", key.run_id);
    problem(Code::Aborted, refusal, message).info("run_id", &key.run_id)
}

fn invalid_transition(refusal: &Refusal, run: &Summary, to: RunStatus) -> Problem {
    let message = format!("Invalid lifecycle transition for run {}: {} → {to}", run.run_id, run.status);
    problem(Code::FailedPrecondition, refusal, message.clone())
        .info("run_id", &run.run_id)
        .info("from", run.status.name())
        .info("to", to.name())
        .detail(
            "runledger.v1.LifecycleTransitionError",
            &v1::LifecycleTransitionError {
                name: "LifecycleTransitionError".to_owned(),
                run_id: run.run_id.to_string(),
                from: v1::RunStatus::from_domain(run.status).into(),
                to: v1::RunStatus::from_domain(to).into(),
                message,
                run: Some(run.into_message()),
            },
        )
}

fn lease_lost(refusal: &Refusal, message: String, asked: LeaseEpoch, epoch: LeaseEpoch, run: &Summary) -> Problem {
    let id = &run.run_id;
    problem(Code::FailedPrecondition, refusal, message)
        .info("run_id", id)
        .info("lease_epoch", &asked.to_string())
        .info("current_epoch", &epoch.to_string())
        .detail(
            "runledger.v1.LeaseLostError",
            &v1::LeaseLostError {
                run_id: id.to_string(),
                lease_epoch: asked.into(),
                current_epoch: epoch.into(),
                run: Some(run.into_message()),
            },
        )
}

fn lease_held(
    refusal: &Refusal,
    (epoch, expires_at): (LeaseEpoch, Option<Time>),
    ready: bool,
    run: &Summary,
) -> Problem {
    let id = &run.run_id;
    let message = match expires_at {
        _ if ready => format!("Run {id} is held by nobody, and waits for a claim: claim it."),
        Some(at) => format!("Run {id} is held under epoch {epoch} until {at}: claim it after that."),
        None if epoch > LeaseEpoch::NONE => {
            format!("Run {id} is held under epoch {epoch}: claim it when that is over.")
        }
        None => format!("Run {id} is running without a lease: it cannot be claimed, whoever reports it."),
    };
    problem(Code::FailedPrecondition, refusal, message)
        .info("run_id", id)
        .info("current_epoch", &epoch.to_string())
        .detail(
            "runledger.v1.LeaseHeldError",
            &v1::LeaseHeldError {
                run_id: id.to_string(),
                current_epoch: epoch.into(),
                expires_at: expires_at.map(timestamp),
                run: Some(run.into_message()),
            },
        )
}

fn max_running(refusal: &Refusal, max: &MaxRunning, value: &str, running: &[RunId], run: &Summary) -> Problem {
    let MaxRunning { label, limit } = max;
    let first = running.first().map_or("", RunId::as_str);
    let message = match running.len() {
        1 => format!("Run {} waits: run {first} of the same {label} is running, and the limit is {limit}.", run.run_id),
        count => {
            format!("Run {} waits: {count} of the same {label} are running, and the limit is {limit}.", run.run_id)
        }
    };
    let running_count = u32::try_from(running.len()).unwrap_or(u32::MAX);
    problem(Code::FailedPrecondition, refusal, message)
        .info("run_id", &run.run_id)
        .info("label", label)
        .info("value", value)
        .info("limit", &limit.to_string())
        .info("running", &running_count.to_string())
        .detail(
            "runledger.v1.MaxRunningError",
            &v1::MaxRunningError {
                run_id: run.run_id.to_string(),
                label: label.clone(),
                value: value.to_owned(),
                limit: *limit,
                running: running_count,
                running_run_ids: running.iter().take(RUNNING_LISTED_MAX).map(RunId::to_string).collect(),
                run: Some(run.into_message()),
            },
        )
}

fn revision_mismatch(refusal: &Refusal, key: &RunKey, expected: Revision, run: Option<&Summary>) -> Problem {
    let actual = run.map_or(Revision::NONE, |run| run.revision);
    let id = &key.run_id;
    let message = match (run, expected) {
        (Some(_), Revision::NONE) => format!("Run {id} exists, at revision {actual}: use another run_id, or read it."),
        (Some(_), _) => format!("Run {id} is at revision {actual}, not {expected}: read it and decide again."),
        (None, _) => format!("Run {id} does not exist, and revision {expected} was expected: expect 0, or nothing."),
    };
    problem(Code::Aborted, refusal, message)
        .info("run_id", id)
        .info("expected_revision", &expected.to_string())
        .info("actual_revision", &actual.to_string())
        .detail(
            "runledger.v1.RevisionMismatchError",
            &v1::RevisionMismatchError {
                expected_revision: expected.into(),
                actual_revision: actual.into(),
                run: run.map(v1::RunSummary::from_domain),
            },
        )
}

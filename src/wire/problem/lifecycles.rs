//! Refusals that concern lifecycles.

use runledger_proto::v1;
use tonic_types::pb::{ResourceInfo, RetryInfo};

use super::{Code, Problem, RETRY, namespaces};
use crate::domain::limits::{ALLOWED_PHASES_MAX, LIFECYCLE_PUTS_MAX, LIFECYCLE_VERSIONS_MAX, LIFECYCLES_MAX};
use crate::domain::{LifecycleId, LifecycleName, Namespace, PutRefusal, Requirement, RunKey, Summary};
use crate::wire::from_domain::IntoMessage;

/// A lifecycle that there is not, or not in this version.
#[must_use]
pub fn not_found(lifecycle: &LifecycleName) -> Problem {
    missing(lifecycle, format!("Lifecycle {lifecycle} does not exist: name another one, or have an admin put it."))
}

/// A lifecycle that a run is pinned to, and that somebody deleted by hand.
pub(super) fn pinned_not_found(lifecycle: &LifecycleName, key: &RunKey) -> Problem {
    let id = &key.run_id;
    let message = format!(
        "Lifecycle {lifecycle}, to which run {id} is pinned, was deleted: the run can be aborted, or failed, without a \
         phase."
    );
    missing(lifecycle, message).info("run_id", id)
}

fn missing(lifecycle: &LifecycleName, message: String) -> Problem {
    let name = lifecycle.to_string();
    let resource = ResourceInfo {
        resource_type: "runledger.v1.Lifecycle".to_owned(),
        resource_name: name.clone(),
        ..ResourceInfo::default()
    };
    Problem::new(Code::NotFound, "LIFECYCLE_NOT_FOUND", message)
        .info("lifecycle", &name)
        .detail("google.rpc.ResourceInfo", &resource)
}

/// A lifecycle that was not put.
#[must_use]
pub fn put_refusal(namespace: &Namespace, refusal: PutRefusal) -> Problem {
    let full = |quota, limit| namespaces::quota_exceeded(namespace, quota, limit, limit);
    match refusal {
        PutRefusal::NamespaceNotFound => namespaces::not_found(namespace),
        PutRefusal::TooManyNames => full("lifecycles", LIFECYCLES_MAX),
        PutRefusal::TooManyVersions => full("lifecycle_versions", LIFECYCLE_VERSIONS_MAX.into()),
        PutRefusal::TooOften => {
            let retry = RetryInfo { retry_delay: Some(prost_types::Duration { seconds: 60, nanos: 0 }) };
            let message = format!(
                "{LIFECYCLE_PUTS_MAX} versions of lifecycles were put in namespace {namespace} within a minute, and no \
                 more may be: wait for one."
            );
            full("lifecycle_puts", LIFECYCLE_PUTS_MAX).saying(message).detail(RETRY, &retry)
        }
        PutRefusal::TooManyBytes { limit, used } => {
            namespaces::quota_exceeded(namespace, "max_stored_bytes", limit, used)
        }
    }
}

pub(super) fn unsupported(lifecycle: &LifecycleId, fields: &[&'static str]) -> Problem {
    let fields = fields.join(", ");
    let message = format!(
        "Lifecycle {lifecycle} declares what this release keeps and does not enforce yet, so no run starts with it: \
         {fields}."
    );
    Problem::new(Code::FailedPrecondition, "LIFECYCLE_UNSUPPORTED", message)
        .info("lifecycle", &lifecycle.to_string())
        .info("fields", &fields)
}

/// A step to a phase, or a completion in one, that a lifecycle does not allow.
pub(super) struct RefusedPhase<'a> {
    pub(super) key: &'a RunKey,
    pub(super) lifecycle: &'a LifecycleId,
    pub(super) from: Option<&'a str>,
    pub(super) to: &'a str,
    pub(super) completes: bool,
    /// A resumption, which has to leave for a phase that does not suspend.
    pub(super) resumes: bool,
    pub(super) allowed: &'a [String],
    pub(super) run: Option<&'a Summary>,
}

pub(super) fn invalid_phase(refused: &RefusedPhase<'_>) -> Problem {
    let RefusedPhase { key, lifecycle, from, to, completes, resumes, allowed, run } = *refused;
    let listed = &allowed[..allowed.len().min(ALLOWED_PHASES_MAX)];
    let more = allowed.len() - listed.len();
    let named = match (listed, more) {
        ([], _) => "none".to_owned(),
        (listed, 0) => listed.join(", "),
        (listed, more) => format!("{} and {more} more", listed.join(", ")),
    };
    let message = match (completes, from) {
        (true, _) => format!("By {lifecycle}, a run does not complete in phase {to}: it may in {named}."),
        (false, Some(from)) if resumes && listed.is_empty() => format!(
            "By {lifecycle}, the run goes on in no phase that may follow {from}: all suspend it. Move it by UpdateRun first."
        ),
        (false, Some(from)) if to.is_empty() => {
            format!("By {lifecycle}, the run does not go on in {from}: name the phase that it goes on in; {named} may.")
        }
        (false, Some(_)) if resumes => {
            format!("By {lifecycle}, phase {to} suspends the run: it may go on in {named}.")
        }
        (false, Some(from)) => format!("By {lifecycle}, phase {to} does not follow {from}: {named} may."),
        (false, None) => format!("By {lifecycle}, no run begins in phase {to}: it begins in {named}."),
    };
    let error = v1::PhaseError {
        run_id: key.run_id.to_string(),
        lifecycle: lifecycle.to_string(),
        from: from.unwrap_or_default().to_owned(),
        to: to.to_owned(),
        allowed: listed.to_vec(),
        more: u32::try_from(more).unwrap_or(u32::MAX),
        completes,
        run: run.map(IntoMessage::into_message),
    };
    Problem::new(Code::FailedPrecondition, "INVALID_PHASE", message)
        .info("run_id", &key.run_id)
        .info("lifecycle", &error.lifecycle)
        .info("from", &error.from)
        .info("to", to)
        .detail("runledger.v1.PhaseError", &error)
}

pub(super) fn iteration_limit(iteration: u32, max_iterations: u32, run: &Summary) -> Problem {
    let id = &run.run_id;
    let message = format!(
        "Run {id} would begin iteration {iteration}, and may come to {max_iterations}. Only a resumption raises that."
    );
    let run_id = id.to_string();
    let error = v1::IterationLimitError { run_id, iteration, max_iterations, run: Some(run.into_message()) };
    Problem::new(Code::FailedPrecondition, "ITERATION_LIMIT", message)
        .info("run_id", id)
        .info("iteration", &iteration.to_string())
        .info("max_iterations", &max_iterations.to_string())
        .detail("runledger.v1.IterationLimitError", &error)
}

pub(super) fn incomplete(lifecycle: &LifecycleId, missing: &[Requirement], went_on: bool, run: &Summary) -> Problem {
    let id = &run.run_id;
    let missing: Vec<String> = missing.iter().cloned().map(String::from).collect();
    let missing_list = missing.join(", ");
    let before = "What it brought before it last went on from a suspension does not count. ";
    let before = if went_on { before } else { "" };
    let message =
        format!("By {lifecycle}, run {id} lacks for its completion: {missing_list}. {before}Bring it with this call.");
    let (run_id, lifecycle) = (id.to_string(), lifecycle.to_string());
    let error = v1::CompletionIncompleteError { run_id, lifecycle, missing, run: Some(run.into_message()) };
    Problem::new(Code::FailedPrecondition, "COMPLETION_INCOMPLETE", message)
        .info("run_id", id)
        .info("lifecycle", &error.lifecycle)
        .detail("runledger.v1.CompletionIncompleteError", &error)
}

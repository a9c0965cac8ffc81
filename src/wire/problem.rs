//! A problem: the authority's answer where it does not do what was asked, in one form for every face.
//!
//! Every problem has a `google.rpc.ErrorInfo` whose reason is for programs and never changes; the text is for people
//! and says what to do. Values from a caller are shown only where they were found valid, or as an excerpt.

mod code;
mod not_held;
mod sealed;

use std::time::Duration;

use tonic_types::pb::{ResourceInfo, RetryInfo};

pub use self::code::Code;
use self::not_held::not_held;
pub use self::sealed::Problem;
use super::answer::timestamp;
use super::cursor::CursorInvalid;
use super::page_token::PageTokenInvalid;
use crate::domain::{MaxRunning, Refusal, RunId, RunKey, Status as RunStatus, Summary, Time, Violation};
use crate::store::StoreError;
use runledger_proto::v1;

/// The wait before a client is asked to come back to a full queue.
const OVERLOADED_RETRY: Duration = Duration::from_millis(200);
/// The wait before a client is asked to come back to a store that does not answer.
const UNAVAILABLE_RETRY: Duration = Duration::from_secs(1);
/// The wait before a client is asked to look for another replica.
const DRAINING_RETRY: Duration = Duration::from_millis(100);

/// A command that the rules refuse.
#[must_use]
pub fn refusal(refusal: &Refusal) -> Problem {
    match refusal {
        Refusal::RequestIdReused { key, request_id } => problem(
            Code::InvalidArgument,
            refusal,
            "This request_id was used for a different request: send a new one.".to_owned(),
        )
        .info("run_id", &key.run_id)
        .info("request_id", request_id),
        Refusal::RunNotFound { key } => problem(
            Code::NotFound,
            refusal,
            format!("Run {} does not exist: check the run_id, or start the run.", key.run_id),
        )
        .info("run_id", &key.run_id)
        .detail(
            "google.rpc.ResourceInfo",
            &ResourceInfo {
                resource_type: "runledger.v1.Run".to_owned(),
                resource_name: key.run_id.to_string(),
                ..ResourceInfo::default()
            },
        ),
        Refusal::RunIdConflict { field, requested, actual, run } => problem(
            Code::AlreadyExists,
            refusal,
            format!("Run {} exists with another {field}: use another run_id.", run.run_id),
        )
        .info("run_id", &run.run_id)
        .info("field", field)
        .detail(
            "runledger.v1.RunIdConflictError",
            &v1::RunIdConflictError {
                field: (*field).to_owned(),
                requested: requested.clone(),
                actual: actual.clone(),
                run: Some(run.into()),
            },
        ),
        Refusal::NotOwner { agent_id, owner_agent_id, tab_group_id, rpc, key } => problem(
            Code::PermissionDenied,
            refusal,
            format!("Run {} belongs to another agent: only its owner may call {rpc}.", key.run_id),
        )
        .info("run_id", &key.run_id)
        .info("action", rpc)
        .detail(
            "runledger.v1.OwnershipError",
            &v1::OwnershipError {
                run_id: key.run_id.to_string(),
                agent_id: agent_id.clone(),
                owner_agent_id: owner_agent_id.clone(),
                tab_group_id: tab_group_id.clone().unwrap_or_default(),
                action: (*rpc).to_owned(),
            },
        ),
        Refusal::LeaseLost { rpc, asked, epoch, released, run } => {
            lease_lost(refusal, not_held(rpc, *asked, *epoch, *released, run), *asked, *epoch, run)
        }
        Refusal::LeaseHeld { epoch, expires_at, run } => lease_held(refusal, *epoch, *expires_at, run),
        Refusal::MaxRunning { max, value, running, run } => max_running(refusal, max, value, running, run),
        Refusal::RevisionMismatch { key, expected, run } => {
            revision_mismatch(problem(Code::Aborted, refusal, String::new()), key, *expected, run.as_ref())
        }
        Refusal::InvalidTransition { run, to } => invalid_transition(refusal, run, *to),
        Refusal::RunNotRunning { run } => problem(
            Code::FailedPrecondition,
            refusal,
            format!("Run {} is {}: only a running run can do this.", run.run_id, run.status),
        )
        .info("run_id", &run.run_id)
        .info("status", run.status.name())
        .detail("runledger.v1.RunSummary", &v1::RunSummary::from(run)),
        Refusal::RunBegun { run } => problem(
            Code::FailedPrecondition,
            refusal,
            format!(
                "Run {} was begun, or its lease was not granted by a claim: release it without not_begun, or end it.",
                run.run_id
            ),
        )
        .info("run_id", &run.run_id)
        .detail("runledger.v1.RunSummary", &v1::RunSummary::from(run)),
        // A claim is answered with the one that was made before: no call is refused so.
        Refusal::ClaimedBefore { claimed } => problem(
            Code::Aborted,
            refusal,
            format!("This request_id has claimed run {}: send the same call again.", claimed.key.run_id),
        )
        .info("run_id", &claimed.key.run_id),
        Refusal::InvalidFields(violations) => invalid(violations.clone()),
    }
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
                from: v1::RunStatus::from(run.status).into(),
                to: v1::RunStatus::from(to).into(),
                message,
                run: Some(run.into()),
            },
        )
}

/// A request that breaks rules: at most 20 of the violations, and how many more there are.
#[must_use]
pub fn invalid(violations: Vec<Violation>) -> Problem {
    sealed::invalid(violations)
}

/// A request that is no protobuf message of its type.
#[must_use]
pub fn undecodable(error: &prost::DecodeError) -> Problem {
    invalid(vec![Violation::new("request", error.to_string())])
}

/// A store that did not answer a read, or surely did not apply a commit. The store's own words are for the log.
#[must_use]
pub fn store(error: &StoreError) -> Problem {
    match error {
        StoreError::Unavailable(_) | StoreError::Lost(_) => store_unavailable(),
        StoreError::Refused(_) => store_refused(),
        StoreError::Corrupt { .. } => store_corrupt(),
    }
}

/// The store does not answer; nothing was written.
#[must_use]
pub fn store_unavailable() -> Problem {
    let message = "The store does not answer and nothing was written: try again.";
    Problem::new(Code::Unavailable, "STORE_UNAVAILABLE", message).detail(RETRY, &after(UNAVAILABLE_RETRY))
}

/// The store refuses this call for a lasting reason; nothing was written.
#[must_use]
pub fn store_refused() -> Problem {
    let message = "The store refused the call and nothing was written: see the server's log for the cause.";
    Problem::new(Code::Internal, "STORE_REFUSED", message)
}

/// The store holds something that cannot be read.
#[must_use]
pub fn store_corrupt() -> Problem {
    let message = "A stored record cannot be read: see the server's log for which one.";
    Problem::new(Code::Internal, "STORE_CORRUPT", message)
}

/// A queue is full; nothing was written.
#[must_use]
pub fn overloaded() -> Problem {
    overloaded_for(OVERLOADED_RETRY)
}

/// A queue is full, for about that long; nothing was written.
#[must_use]
pub fn overloaded_for(wait: Duration) -> Problem {
    let message = "The server is overloaded and nothing was written: try again later.";
    let retry = after(wait.max(OVERLOADED_RETRY));
    Problem::new(Code::ResourceExhausted, "OVERLOADED", message).detail(RETRY, &retry)
}

/// The server stops; nothing was written, and a stream can be resumed elsewhere.
#[must_use]
pub fn draining() -> Problem {
    let message = "The server is stopping: send the call again, or resume the stream, on another replica.";
    Problem::new(Code::Unavailable, "DRAINING", message).detail(RETRY, &after(DRAINING_RETRY))
}

/// The stream's connection has come of age; the stream goes on on another one.
#[must_use]
pub fn connection_ends() -> Problem {
    let message = "The connection is being closed because of its age: resume the stream on a new one.";
    Problem::new(Code::Unavailable, "DRAINING", message).detail(RETRY, &after(DRAINING_RETRY))
}

/// A commit was sent and not confirmed. `retry_is_safe`: the same call, sent again, has one effect at most, and its answer
/// tells of it.
#[must_use]
pub fn outcome_unknown(retry_is_safe: bool) -> Problem {
    let (code, message) = if retry_is_safe {
        (Code::Unavailable, "The call may have been applied: send the same call again.")
    } else {
        // No client library retries UNKNOWN by itself.
        let message = "The call may have been applied. Sent again, it could be applied twice, or be refused or UNCHANGED \
                       because of itself: read the run first.";
        (Code::Unknown, message)
    };
    Problem::new(code, "OUTCOME_UNKNOWN", message).info("retry_is_safe", &retry_is_safe.to_string())
}

/// The call's deadline passed; nothing was written.
#[must_use]
pub fn deadline() -> Problem {
    let message = "The call's deadline passed and nothing was written: allow it more time.";
    Problem::new(Code::DeadlineExceeded, "DEADLINE", message)
}

/// A call whose request did not come in time; nothing was written.
#[must_use]
pub fn arrived_too_slowly(wait_max: Duration) -> Problem {
    let message = format!("The request did not arrive within {} s and nothing was written.", wait_max.as_secs());
    Problem::new(Code::DeadlineExceeded, "DEADLINE", message)
}

/// A watch that asks for the events after a revision that the run does not have yet.
#[must_use]
pub fn revision_ahead(key: &RunKey, after_revision: u64, revision: u64) -> Problem {
    let message = format!(
        "after_revision {after_revision} is ahead of run {}, which is at revision {revision}: resume from a revision \
         that a frame named.",
        key.run_id
    );
    Problem::new(Code::OutOfRange, "REVISION_AHEAD", message)
        .info("run_id", &key.run_id)
        .info("after_revision", &after_revision.to_string())
        .info("revision", &revision.to_string())
}

/// A page token that was not given out for this run's history, or for this filter.
#[must_use]
pub fn page_token_invalid(_: PageTokenInvalid) -> Problem {
    let message = "page_token was not given out for this run or filter: begin again without it.";
    Problem::new(Code::InvalidArgument, "PAGE_TOKEN_INVALID", message)
}

/// A cursor that was not given out here, or is ahead of the ledger.
#[must_use]
pub fn cursor_invalid(_: CursorInvalid) -> Problem {
    let message = "cursor was not given out by this ledger for this namespace, or the ledger was restored to an earlier \
                   state: begin again without it.";
    Problem::new(Code::InvalidArgument, "CURSOR_INVALID", message)
}

/// A watch of a run whose revisions may be other ones now.
#[must_use]
pub fn ledger_restored() -> Problem {
    let message = "The ledger was restored or failed over, and may have lost what this watch has shown: begin again \
                   without after_revision and ledger_epoch.";
    Problem::new(Code::OutOfRange, "LEDGER_RESTORED", message)
}

/// A cursor that is older than the events that the ledger still keeps.
#[must_use]
pub fn cursor_expired() -> Problem {
    let message = "The ledger no longer keeps all events after this cursor: begin again without it.";
    Problem::new(Code::OutOfRange, "CURSOR_EXPIRED", message)
}

/// Runs that a refused claim names.
const RUNNING_LISTED_MAX: usize = 4;

const RETRY: &str = "google.rpc.RetryInfo";

fn after(delay: Duration) -> RetryInfo {
    RetryInfo { retry_delay: Some(delay.try_into().expect("a constant of at most seconds")) }
}

fn problem(code: Code, refusal: &Refusal, message: String) -> Problem {
    Problem::new(code, refusal.reason(), message)
}

fn lease_lost(refusal: &Refusal, message: String, asked: u64, epoch: u64, run: &Summary) -> Problem {
    let id = &run.run_id;
    problem(Code::FailedPrecondition, refusal, message)
        .info("run_id", id)
        .info("lease_epoch", &asked.to_string())
        .info("current_epoch", &epoch.to_string())
        .detail(
            "runledger.v1.LeaseLostError",
            &v1::LeaseLostError {
                run_id: id.to_string(),
                lease_epoch: asked,
                current_epoch: epoch,
                run: Some(run.into()),
            },
        )
}

fn lease_held(refusal: &Refusal, epoch: u64, expires_at: Option<Time>, run: &Summary) -> Problem {
    let id = &run.run_id;
    let message = match expires_at {
        Some(at) => format!("Run {id} is held under epoch {epoch} until {at}: claim it after that."),
        None if epoch > 0 => format!("Run {id} is held under epoch {epoch}: claim it when that is over."),
        None => format!("Run {id} is running without a lease: it cannot be claimed, whoever reports it."),
    };
    problem(Code::FailedPrecondition, refusal, message)
        .info("run_id", id)
        .info("current_epoch", &epoch.to_string())
        .detail(
            "runledger.v1.LeaseHeldError",
            &v1::LeaseHeldError {
                run_id: id.to_string(),
                current_epoch: epoch,
                expires_at: expires_at.map(timestamp),
                run: Some(run.into()),
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
                run: Some(run.into()),
            },
        )
}

fn revision_mismatch(problem: Problem, key: &RunKey, expected: u64, run: Option<&Summary>) -> Problem {
    let actual = run.map_or(0, |run| run.revision);
    let id = &key.run_id;
    let message = match (run, expected) {
        (Some(_), 0) => format!("Run {id} exists, at revision {actual}: use another run_id, or read it."),
        (Some(_), _) => format!("Run {id} is at revision {actual}, not {expected}: read it and decide again."),
        (None, _) => format!("Run {id} does not exist, and revision {expected} was expected: expect 0, or nothing."),
    };
    problem
        .message(message)
        .info("run_id", id)
        .info("expected_revision", &expected.to_string())
        .info("actual_revision", &actual.to_string())
        .detail(
            "runledger.v1.RevisionMismatchError",
            &v1::RevisionMismatchError {
                expected_revision: expected,
                actual_revision: actual,
                run: run.map(v1::RunSummary::from),
            },
        )
}

#[cfg(test)]
mod tests;

//! A problem: the authority's answer where it does not do what was asked, in one form for every face.
//!
//! Every problem has a `google.rpc.ErrorInfo` whose reason is for programs and never changes; the text is for people
//! and says what to do. Values from a caller are shown only where they were found valid, or as an excerpt.

mod code;
mod denied;
mod lifecycles;
mod namespaces;
mod not_held;
mod refused;
mod sealed;
mod suspended;

use std::time::Duration;

use tonic_types::pb::RetryInfo;

pub use self::code::Code;
pub use self::denied::{agent_denied, credential_ends, denied, lacking, let_in_no_more, namespace_denied, role_denied};
pub use self::lifecycles::{not_found as lifecycle_not_found, put_refusal};
pub use self::namespaces::{namespace_refusal, not_found as namespace_not_found};
pub use self::refused::refusal;
pub use self::sealed::Problem;
use super::cursor::CursorInvalid;
use super::page_token::PageTokenInvalid;
use crate::domain::{Revision, RunKey, Violation};
use crate::store::StoreError;

/// The wait before a client is asked to come back to a full queue.
const OVERLOADED_RETRY: Duration = Duration::from_millis(200);
/// The wait before a client is asked to come back to a process that has little memory left.
pub const MEMORY_RETRY: Duration = Duration::from_secs(1);
/// The wait before a client is asked to come back to a store that does not answer.
const UNAVAILABLE_RETRY: Duration = Duration::from_secs(1);
/// The wait before a client is asked to look for another replica.
const DRAINING_RETRY: Duration = Duration::from_millis(100);

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

/// A caller makes more calls than the server lets one caller make; nothing was written.
#[must_use]
pub fn caller_limited(limit: &'static str, wait: Duration) -> Problem {
    let message = "This connection, or the agent that it names, makes more calls in a second, or has more calls open, \
                   than the server lets one caller have, and nothing was written: try again later.";
    let problem = Problem::new(Code::ResourceExhausted, "OVERLOADED", message).info("limit", limit);
    problem.detail(RETRY, &after(wait))
}

/// The server has little memory left; nothing was written.
#[must_use]
pub fn memory_short(wait: Duration) -> Problem {
    let message = "The server has little memory left and nothing was written: try again later, or on another replica.";
    let problem = Problem::new(Code::ResourceExhausted, "OVERLOADED", message).info("limit", "memory");
    problem.detail(RETRY, &after(wait))
}

/// The server stops; nothing was written, and a stream can be resumed elsewhere.
#[must_use]
pub fn draining() -> Problem {
    let message = "The server is stopping: send the call again, or resume the stream, on another replica.";
    Problem::new(Code::Unavailable, "DRAINING", message).detail(RETRY, &after(DRAINING_RETRY))
}

/// The connection has come of age, or its client's certificate holds no more; the call or stream goes on on another one.
#[must_use]
pub fn connection_ends() -> Problem {
    let message = "The connection is being closed, for its age or the end of its certificate: go on on a new one.";
    Problem::new(Code::Unavailable, "DRAINING", message).detail(RETRY, &after(DRAINING_RETRY))
}

/// A commit was sent and not confirmed. `retry_is_safe`: the same call, sent again, has one effect at most, and its
/// answer tells of it.
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
pub fn revision_ahead(key: &RunKey, after_revision: Revision, revision: Revision) -> Problem {
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
    let message = "page_token was not given out for this question, or by an earlier release: begin again without it.";
    Problem::new(Code::InvalidArgument, "PAGE_TOKEN_INVALID", message)
}

/// A cursor that was not given out here, or is ahead of the ledger.
#[must_use]
pub fn cursor_invalid(_: CursorInvalid) -> Problem {
    let message = "cursor was not given out by this ledger for this namespace, or by a release before 0.3, or the ledger \
                   was restored to an earlier state: begin again without it.";
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
    let message = "The ledger no longer keeps all that is to be shown after this cursor: begin again without it.";
    Problem::new(Code::OutOfRange, "CURSOR_EXPIRED", message)
}

const RETRY: &str = "google.rpc.RetryInfo";

fn after(delay: Duration) -> RetryInfo {
    RetryInfo { retry_delay: Some(delay.try_into().expect("a constant of at most seconds")) }
}

#[cfg(test)]
mod tests;

//! What metrics tell of a commit's commands.

use crate::domain::{Decided, Disposition, Status, Verdict};
use crate::store::{CommitError, StoreError};
use crate::telemetry::record::{self, Value};

/// Tells of the commands that a commit has decided. Refusals are told of where callers hear of them.
pub(super) fn committed(decided: &Decided) {
    if !record::is_on() {
        return;
    }
    for new in &decided.events {
        transition(new.event.from, Some(new.event.to), Disposition::of(&new.event));
    }
    for verdict in decided.verdicts.iter().flatten() {
        match verdict {
            Verdict::Done(Disposition::Unchanged, run) => {
                transition(Some(run.status), Some(run.status), Disposition::Unchanged);
            }
            // The run may have gone on since.
            Verdict::Replayed { .. } => transition(None, None, Disposition::Replayed),
            // Its event is told of.
            Verdict::Done(..) | Verdict::Redacted { .. } => {}
        }
    }
}

fn transition(from: Option<Status>, to: Option<Status>, disposition: Disposition) {
    record::transition(status(from), status(to), (disposition as usize, disposition.name()));
}

/// The reason for which a commit's span is that of a failure.
pub(super) fn failure(committed: &Result<Decided, CommitError>) -> Option<&'static str> {
    match committed {
        Ok(_) => None,
        Err(CommitError::NotApplied(StoreError::Unavailable(_) | StoreError::Lost(_))) => Some("STORE_UNAVAILABLE"),
        Err(CommitError::NotApplied(StoreError::Refused(_))) => Some("STORE_REFUSED"),
        Err(CommitError::NotApplied(StoreError::Corrupt { .. })) => Some("STORE_CORRUPT"),
        Err(CommitError::Unknown { .. }) => Some("OUTCOME_UNKNOWN"),
    }
}

/// A status, and `none` for a run that was not there.
fn status(status: Option<Status>) -> Value {
    match status {
        None => (0, "none"),
        Some(Status::Pending) => (1, Status::Pending.name()),
        Some(Status::Running) => (2, Status::Running.name()),
        Some(Status::Completed) => (3, Status::Completed.name()),
        Some(Status::Aborted) => (4, Status::Aborted.name()),
        Some(Status::Failed) => (5, Status::Failed.name()),
    }
}

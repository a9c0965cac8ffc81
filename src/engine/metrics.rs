//! What metrics tell of a commit's commands.

use crate::domain::{Decided, EventType, Status, Verdict};
use crate::store::{CommitError, StoreError};
use crate::telemetry::record::{self, Value};

const APPLIED: Value = (0, "applied");
const RECORDED_LATE: Value = (1, "recorded_late");
const UNCHANGED: Value = (2, "unchanged");
const REPLAYED: Value = (3, "replayed");

/// Tells of the commands that a commit has decided. Refusals are told of where callers hear of them.
pub(super) fn committed(decided: &Decided) {
    if !record::is_on() {
        return;
    }
    for new in &decided.events {
        let disposition = if new.event.event_type == EventType::LateReported { RECORDED_LATE } else { APPLIED };
        record::transition(status(new.event.from), status(Some(new.event.to)), disposition);
    }
    for verdict in decided.verdicts.iter().flatten() {
        match verdict {
            Verdict::Applied(_) | Verdict::RecordedLate(_) | Verdict::Redacted { .. } => {}
            Verdict::Unchanged(run) => {
                let unchanged = status(Some(run.status));
                record::transition(unchanged, unchanged, UNCHANGED);
            }
            // The run may have gone on since.
            Verdict::Replayed { .. } => record::transition(status(None), status(None), REPLAYED),
        }
    }
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

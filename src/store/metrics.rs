//! What metrics tell of a store's commits.

use super::{CommitError, StoreError};
use crate::domain::Decided;
use crate::telemetry::record::Value;

/// Decided on hints, in one flush.
pub(super) const OPTIMISTIC: Value = (0, "optimistic");
/// Decided under the shard's head, in two.
pub(super) const UNDER_HEAD: Value = (1, "under_head");
/// By the one writer of SQLite.
pub(super) const WRITER: Value = (2, "writer");

/// A hint did not hold: the commit is made under the head.
pub(super) const WRONG_HINT: Value = (0, "wrong_hint");
/// A run had changed since this process wrote it.
pub(super) const STALE: Value = (1, "stale");
/// The database asked for another try.
pub(super) const CONFLICT: Value = (2, "conflict");

/// The connections that write.
pub(super) const POOL_COMMIT: Value = (0, "commit");
/// The connections that read.
pub(super) const POOL_READ: Value = (1, "read");

/// The outcome of a commit.
pub(super) fn outcome(committed: &Result<Decided, CommitError>) -> Value {
    match committed {
        Ok(decided) if decided.events.is_empty() => (0, "nothing_to_write"),
        Ok(_) => (1, "committed"),
        Err(CommitError::NotApplied(StoreError::Unavailable(_) | StoreError::Lost(_))) => (2, "unavailable"),
        Err(CommitError::NotApplied(StoreError::Refused(_))) => (3, "refused"),
        Err(CommitError::Unknown { .. }) => (4, "unknown"),
        // The rows of a run, and no fault of the store's.
        Err(CommitError::NotApplied(StoreError::Corrupt { .. })) => (5, "corrupt"),
    }
}

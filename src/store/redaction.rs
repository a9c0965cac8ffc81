//! What both stores know of redactions.

use super::StoreError;
use super::scalars::shown;
use crate::domain::RunKey;

/// A redaction that would leave a part of the history as it was.
pub(super) fn not_all_rewritten(key: &RunKey) -> StoreError {
    let source = "an event that was read under the head is not there any more".into();
    StoreError::Corrupt { table: "run_events", column: "event", key: shown(key), source }
}

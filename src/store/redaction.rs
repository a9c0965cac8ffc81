//! What both stores know of redactions.

use std::time::Duration;

use super::StoreError;
use super::scalars::shown;
use crate::domain::{Link, Redaction, RunKey};

/// Events that are read and written at once; fewer where they are large.
pub(super) const PAGE_EVENTS_MAX: usize = 256;

/// The longest time that the one writer of a file works at a redaction: commits wait for it.
pub(super) const WRITER_MAX: Duration = Duration::from_secs(8);

/// A history that is too long to be rewritten in time.
pub(super) fn too_long(key: &RunKey) -> StoreError {
    StoreError::Unavailable(format!("the history of {} is not rewritten within {WRITER_MAX:?}", shown(key)).into())
}

/// The JSON of a link as a redaction leaves it; none where it leaves it as it is.
pub(super) fn left_of_link(redaction: &Redaction, link: &str, key: &RunKey) -> Result<Option<String>, StoreError> {
    let link: Link = serde_json::from_str(link).map_err(|error| StoreError::Corrupt {
        table: "run_links",
        column: "content",
        key: shown(key),
        source: error.into(),
    })?;
    Ok(redaction.of_link(&link).map(|left| left.text()))
}

/// A redaction that would leave a part of the history as it was.
pub(super) fn not_all_rewritten(key: &RunKey) -> StoreError {
    let source = "an event that was read under the head is not there any more".into();
    StoreError::Corrupt { table: "run_events", column: "event", key: shown(key), source }
}

//! A run's revisions: dense, from the first.

/// The revision of a run's first event.
///
/// Readers of history rely on it: before this revision there was no run, and where a run is found or a later event of it,
/// the first event is there too. So whatever takes away what is old takes whole runs, and only terminal ones.
pub const FIRST_REVISION: u64 = 1;

/// The revision before one; none before the first.
#[must_use]
pub fn revision_before(revision: u64) -> Option<u64> {
    revision.checked_sub(1).filter(|before| *before >= FIRST_REVISION)
}

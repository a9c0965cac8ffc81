//! A run's revisions: dense, from the first.

/// The revision of a run's first event.
///
/// Invariant: a run has no event before this revision, and where a run or a later event of it is stored, the first
/// event is stored too. Readers of history rely on this. So retention must remove whole runs, and only terminal ones.
pub const FIRST_REVISION: u64 = 1;

/// The revision before one; none before the first.
#[must_use]
pub fn revision_before(revision: u64) -> Option<u64> {
    revision.checked_sub(1).filter(|before| *before >= FIRST_REVISION)
}

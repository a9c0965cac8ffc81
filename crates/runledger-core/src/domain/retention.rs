//! Retention: how long runs are kept that have ended.
//!
//! A run is purged when its namespace keeps it no longer, under its shard's head, and as a whole or not at all. What
//! stays is its *tombstone*: the row in `runs`, cut to the run's id, status, revision and times. So its id is never
//! used again, and whoever asks for the run is told that it was there.
//!
//! Invariant: once a run is purged, no commit that knew the run writes it again.

use super::Status;

/// The shortest time that runs are kept, in milliseconds.
pub const KEEP_MS_MIN: u64 = 60_000;

/// The longest time that can be said: 100 years.
pub const KEEP_MS_MAX: u64 = 100 * 366 * 24 * 3_600_000;

/// How long runs are kept that have ended, in milliseconds since their last event. None: for ever.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Retention {
    /// Of completed runs.
    pub completed_ms: Option<u64>,
    /// Of aborted runs.
    pub aborted_ms: Option<u64>,
    /// Of failed runs.
    pub failed_ms: Option<u64>,
    /// A run is kept, however long it was, until an exporter has said that it has the run's events.
    pub until_exported: bool,
}

impl Retention {
    /// The time for which runs of a status are kept.
    #[must_use]
    pub fn of(&self, status: Status) -> Option<u64> {
        match status {
            Status::Pending | Status::Running => None,
            Status::Completed => self.completed_ms,
            Status::Aborted => self.aborted_ms,
            Status::Failed => self.failed_ms,
        }
    }

    /// The times for which runs are kept, each with the statuses that it is said of.
    #[must_use]
    pub fn each(&self) -> Vec<(u64, Vec<Status>)> {
        let mut each: Vec<(u64, Vec<Status>)> = Vec::new();
        for status in Status::ALL {
            let Some(keep_ms) = self.of(status) else { continue };
            match each.iter_mut().find(|(known, _)| *known == keep_ms) {
                Some((_, statuses)) => statuses.push(status),
                None => each.push((keep_ms, vec![status])),
            }
        }
        each
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn statuses_that_are_kept_alike_are_looked_for_together() {
        let retention = Retention { completed_ms: Some(7), failed_ms: Some(7), ..Retention::default() };
        assert_eq!(retention.each(), [(7, vec![Status::Completed, Status::Failed])]);
        let retention = Retention { aborted_ms: Some(9), ..retention };
        assert_eq!(retention.each(), [(7, vec![Status::Completed, Status::Failed]), (9, vec![Status::Aborted])]);
        assert_eq!(Retention::default().each(), []);
    }
}

//! The rows that a commit writes: runs and events. Those of the sides are in [`sides`](super::sides).

use std::sync::Arc;

use super::{Event, LeaseEpoch, Position, Request, Revision, Run, RunKey, Status, Time};

/// A run to be stored.
#[derive(Clone, Debug)]
pub struct RunWrite {
    /// The run after the commit.
    pub run: Arc<Run>,
    /// The stored run before the commit; none: the run is new.
    pub before: Option<Stored>,
    /// Whether the metadata differs from what is stored.
    pub metadata_changed: bool,
}

/// The fields of a stored run that a writer needs to know.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stored {
    /// The run's revision.
    pub revision: Revision,
    /// The run's status.
    pub status: Status,
    /// See [`Run::due_at`].
    pub due_at: Option<Time>,
    /// The epoch of the run's lease.
    pub epoch: LeaseEpoch,
    /// Whether the run is [ready](Run::is_ready).
    pub ready: bool,
}

impl Stored {
    pub(super) fn of(run: &Run) -> Self {
        let epoch = run.supervision.epoch();
        Self { revision: run.revision, status: run.status, due_at: run.due_at(), epoch, ready: run.is_ready() }
    }
}

impl RunWrite {
    /// The change of the row that a run has while it is [ready](Run::is_ready): the row is written with the time of the
    /// run's creation, or deleted (none).
    pub(super) fn readiness(&self) -> Option<(RunKey, Option<Time>)> {
        match (self.before.is_some_and(|before| before.ready), self.run.is_ready()) {
            (false, true) => Some((self.run.key(), Some(self.run.started_at))),
            (true, false) => Some((self.run.key(), None)),
            (true, true) | (false, false) => None,
        }
    }
}

/// An event to be appended.
#[derive(Clone, Debug)]
pub struct NewEvent {
    /// The event's position in the shard.
    pub position: Position,
    /// The event.
    pub event: Event,
    /// The request that made it.
    pub request: Option<Request>,
    /// The run right after it, where the log is to carry the whole run.
    pub keyframe: Option<Arc<Run>>,
}

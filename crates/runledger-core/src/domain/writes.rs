//! The rows that a commit writes: runs and events. Those of the sides are in [`sides`](super::sides).

use std::sync::Arc;

use super::{Event, LeaseEpoch, Position, Priority, Request, Rest, Revision, Run, Status, Time};

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
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stored {
    /// The run's revision.
    pub revision: Revision,
    /// The run's status.
    pub status: Status,
    /// See [`Run::due_at`].
    pub due_at: Option<Time>,
    /// The epoch of the run's lease.
    pub epoch: LeaseEpoch,
    /// See [`Run::queued_priority`].
    pub priority: Option<Priority>,
    /// See [`Run::rest`].
    pub rest: Option<Box<Rest>>,
}

impl Stored {
    pub(super) fn new(run: &Run) -> Self {
        let epoch = run.supervision.epoch();
        let rest = run.rest().map(Box::new);
        let priority = run.queued_priority();
        Self { revision: run.revision, status: run.status, due_at: run.due_at(), epoch, priority, rest }
    }
}

/// An event to be appended.
#[derive(Clone, Debug)]
pub struct NewEvent {
    /// The event's position in the shard.
    pub position: Position,
    pub event: Event,
    /// The request that made it.
    pub request: Option<Request>,
    /// The run right after it, where the log is to carry the whole run.
    pub keyframe: Option<Arc<Run>>,
}

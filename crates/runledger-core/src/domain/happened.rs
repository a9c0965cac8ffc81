//! What a part of a run folds of an event, besides its own change.

use super::{EventType, Principal, Revision, Status, Time};

/// What happened.
#[derive(Clone, Copy, Debug)]
pub(super) struct Happened<'a> {
    /// The kind of event.
    pub(super) event_type: EventType,
    /// The run's status after it.
    pub(super) to: Status,
    /// Its time.
    pub(super) at: Time,
    /// The run's revision after it.
    pub(super) revision: Revision,
    /// The caller that made it.
    pub(super) principal: &'a Principal,
}

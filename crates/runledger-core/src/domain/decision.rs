//! What a decision comes to.

use super::{Event, Revision, Run};

/// The effect of a command that is not refused.
#[derive(Clone, Debug, PartialEq)]
pub enum Decision {
    /// The command makes this event, which makes this run.
    Apply(Box<Event>, Box<Run>),
    /// The command is a permitted no-op.
    Unchanged,
    /// The command was applied before, as this revision.
    Replayed {
        /// The revision of the event that the first call made.
        revision: Revision,
    },
}

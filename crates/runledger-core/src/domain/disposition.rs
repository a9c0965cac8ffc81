//! What a call did to its run, as answers, checks and metrics say it.

use super::{Event, EventType};

/// The effect of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Disposition {
    /// The command made its event.
    Applied,
    /// The command made its event, which keeps a late report beside the run.
    RecordedLate,
    /// The command was a permitted no-op.
    Unchanged,
    /// The command's `request_id` was applied before.
    Replayed,
}

impl Disposition {
    /// The effect of a command that made this event.
    #[must_use]
    pub fn of(event: &Event) -> Self {
        if event.event_type == EventType::LateReported { Self::RecordedLate } else { Self::Applied }
    }

    /// Its name in metrics.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Applied => "applied",
            Self::RecordedLate => "recorded_late",
            Self::Unchanged => "unchanged",
            Self::Replayed => "replayed",
        }
    }
}

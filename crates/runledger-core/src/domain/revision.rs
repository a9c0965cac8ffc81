//! A run's revisions: dense, from the first.
//!
//! Invariant: the state of a run after any event is fewer than 32 events away, from the run's first event or from a
//! keyframe. A keyframe is the whole run as the event left it. Every event carries one whose revision is a multiple of
//! 32 ([`KEYFRAME_EVENTS`]).

use super::limits::KEYFRAME_EVENTS;
use super::number::number;

number!(
    /// A run's revision: the number of its events so far, and the place of its last event among them.
    Revision
);

impl Revision {
    /// No event yet: the run does not exist.
    pub const NONE: Self = Self(0);

    /// The revision of a run's first event.
    ///
    /// Invariant: a run has no event before this revision, and where a run or a later event of it is stored, the first
    /// event is stored too. Readers of history rely on this. So retention must remove whole runs, and only terminal
    /// ones.
    pub const FIRST: Self = Self(1);

    /// The revision after this one.
    #[must_use]
    pub const fn next(self) -> Self {
        Self(self.0 + 1)
    }

    /// The revision before this one; none before the first.
    #[must_use]
    pub fn before(self) -> Option<Self> {
        self.0.checked_sub(1).map(Self).filter(|before| *before >= Self::FIRST)
    }

    /// Whether the event of this revision carries a keyframe.
    #[must_use]
    pub const fn has_keyframe(self) -> bool {
        self.0 > 0 && self.0.is_multiple_of(KEYFRAME_EVENTS)
    }

    /// The first event to read for the state after this revision: the last one with a keyframe, else the run's first.
    #[must_use]
    pub fn first_to_fold(self) -> Self {
        Self(self.0 - self.0 % KEYFRAME_EVENTS).max(Self::FIRST)
    }
}

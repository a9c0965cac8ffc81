//! The times of checkpoints, and whether they would be true.

use std::time::Duration;

use tokio::time::Instant;

use super::{CATCHING_UP_INTERVAL, CHECKPOINT_INTERVAL};
use crate::domain::Time;

/// Pages that a watch which catches up passes over, at most, before it sends a checkpoint.
const PAGES_MAX: usize = 32;

/// The time for which a watch that catches up has shown nothing.
pub(super) struct Passing {
    until: Instant,
    pages: usize,
}

impl Passing {
    /// A frame was sent just now.
    pub(super) fn begin() -> Self {
        Self { until: Instant::now() + CATCHING_UP_INTERVAL, pages: 0 }
    }

    /// Counts a page that was passed over. Returns whether a checkpoint is due, and then begins the next interval.
    pub(super) fn is_long(&mut self) -> bool {
        self.pages += 1;
        let is_long = self.pages >= PAGES_MAX || Instant::now() >= self.until;
        if is_long {
            *self = Self::begin();
        }
        is_long
    }
}

/// The time at which the next checkpoint is due, and the time after which the log must have been read for it to be
/// true.
pub(super) struct Quiet {
    pub(super) until: Instant,
    since: Option<Time>,
}

impl Quiet {
    /// A frame was sent just now, when the log had last been read at `as_of`.
    pub(super) fn since(as_of: Option<Time>) -> Self {
        Self { until: Instant::now() + CHECKPOINT_INTERVAL, since: as_of }
    }

    /// The checkpoint's time, if it is due and the log was read since the last frame; begins the next interval then.
    /// While the log was not read, a checkpoint would claim what no read has shown, so none is sent, which tells the
    /// client.
    pub(super) fn over(&mut self, as_of: Option<Time>) -> Option<Time> {
        if Instant::now() < self.until {
            return None;
        }
        if as_of.is_some() && as_of != self.since {
            *self = Self::since(as_of);
            as_of
        } else {
            self.until = Instant::now() + Duration::from_secs(1);
            None
        }
    }
}

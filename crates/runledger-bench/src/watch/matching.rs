//! Finds for each frame the call that caused it. Holds only what is under way.

use std::collections::HashMap;
use std::ops::Range;

use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::time::{Instant, timeout};

use super::STRAGGLERS_WAIT_MAX;
use crate::delays::Delays;
use crate::runs::Written;

/// A run's number and a revision.
type Place = (u64, u64);

/// See the module.
#[derive(Debug)]
pub(super) struct Matching {
    /// The number of watchers that see each change.
    watchers: usize,
    /// The time whose calls are measured. Calls before it are warm-up, and calls after it only end runs.
    measured: Range<Instant>,
    state: Mutex<State>,
    progress: Notify,
}

#[derive(Debug)]
struct State {
    /// Changes that were written, and the number of watchers that have not seen them.
    written: HashMap<Place, (Written, usize)>,
    /// Frames that came before the answer to their call.
    early: HashMap<Place, Vec<Instant>>,
    measured: Measured,
}

/// The measurements so far.
#[derive(Debug)]
pub(super) struct Measured {
    pub(super) commit_to_watcher: Delays,
    pub(super) call_to_watcher: Delays,
    pub(super) call: Delays,
    /// Frames that came before the answer to their call.
    pub(super) before_answer: u64,
}

impl Matching {
    pub(super) fn new(watchers: usize, during: Range<Instant>) -> Self {
        let measured = Measured {
            commit_to_watcher: Delays::new(),
            call_to_watcher: Delays::new(),
            call: Delays::new(),
            before_answer: 0,
        };
        let state = State { written: HashMap::new(), early: HashMap::new(), measured };
        Self { watchers, measured: during, state: Mutex::new(state), progress: Notify::new() }
    }

    /// A call was answered.
    pub(super) fn wrote(&self, run: u64, written: Written) {
        let mut state = self.state.lock();
        let place = (run, written.revision);
        if self.is_measured(&written) {
            state.measured.call.record(written.answered - written.sent);
        }
        let early = state.early.remove(&place).unwrap_or_default();
        for seen in &early {
            self.measure(&mut state.measured, &written, *seen);
        }
        // More than there are watchers stay: some came twice.
        match self.watchers.checked_sub(early.len()) {
            Some(0) => {}
            Some(unseen) => drop(state.written.insert(place, (written, unseen))),
            None => drop(state.early.insert(place, early[self.watchers..].to_vec())),
        }
        drop(state);
        self.progress.notify_one();
    }

    /// A frame came.
    pub(super) fn saw(&self, run: u64, revision: u64, seen: Instant) {
        let mut state = self.state.lock();
        let State { written, early, measured } = &mut *state;
        let place = (run, revision);
        match written.get_mut(&place) {
            Some((written_then, unseen)) => {
                self.measure(measured, written_then, seen);
                *unseen -= 1;
                if *unseen == 0 {
                    written.remove(&place);
                }
            }
            None => early.entry(place).or_default().push(seen),
        }
        drop(state);
        self.progress.notify_one();
    }

    fn measure(&self, measured: &mut Measured, written: &Written, seen: Instant) {
        if self.is_measured(written) {
            measured.before_answer += u64::from(seen < written.answered);
            measured.commit_to_watcher.record(seen.saturating_duration_since(written.answered));
            measured.call_to_watcher.record(seen.saturating_duration_since(written.sent));
        }
    }

    fn is_measured(&self, written: &Written) -> bool {
        self.measured.contains(&written.sent)
    }

    /// Waits until every watcher has seen everything that was written, or too long.
    pub(super) async fn settled(&self) {
        let settled = async {
            while self.left() != (0, 0) {
                self.progress.notified().await;
            }
        };
        let _what_is_left_is_told = timeout(STRAGGLERS_WAIT_MAX, settled).await;
    }

    /// Frames that have not come, and frames that nobody wrote.
    pub(super) fn left(&self) -> (u64, u64) {
        let state = self.state.lock();
        let missing = state.written.values().map(|(_, unseen)| *unseen as u64).sum();
        (missing, state.early.values().map(|seen| seen.len() as u64).sum())
    }

    pub(super) fn with_measured<T>(&self, read: impl FnOnce(&Measured) -> T) -> T {
        read(&self.state.lock().measured)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    const MS: Duration = Duration::from_millis(1);

    #[tokio::test(start_paused = true)]
    async fn a_frame_is_matched_before_and_after_its_answer_and_what_is_left_is_told() {
        let begun = Instant::now();
        let matching = Matching::new(2, begun..begun + 100 * MS);
        let written =
            |revision, sent: u32| Written { revision, sent: begun + sent * MS, answered: begun + (sent + 4) * MS };
        matching.saw(7, 1, begun + 2 * MS);
        matching.wrote(7, written(1, 0));
        assert_eq!(matching.left(), (1, 0));
        matching.saw(7, 1, begun + 10 * MS);
        matching.settled().await;
        let measured = matching.with_measured(|measured| {
            assert_eq!(measured.before_answer, 1);
            [&measured.commit_to_watcher, &measured.call_to_watcher, &measured.call].map(Delays::summary)
        });
        assert_eq!(measured.map(|delays| delays.count), [2, 2, 1]);
        assert!((measured[0].max - 6.0).abs() < 0.01 && measured[0].p50 < 0.01, "early counts as none");
        assert!((measured[1].max - 10.0).abs() < 0.02);
        matching.wrote(7, written(2, 20));
        (0..3).for_each(|_| matching.saw(7, 2, begun + 30 * MS));
        matching.wrote(8, written(1, 20));
        matching.settled().await;
        assert_eq!(matching.left(), (2, 1), "two frames are missing, and one came once too often");
    }

    #[tokio::test(start_paused = true)]
    async fn the_warm_up_is_matched_and_not_measured() {
        let begun = Instant::now();
        let matching = Matching::new(1, begun + MS..begun + 100 * MS);
        matching.wrote(1, Written { revision: 1, sent: begun, answered: begun + 2 * MS });
        matching.saw(1, 1, begun + 3 * MS);
        assert_eq!(matching.left(), (0, 0));
        assert_eq!(matching.with_measured(|measured| measured.call_to_watcher.summary().count), 0);
    }
}

//! Where the tailer leaves changes and sessions find them.

use std::collections::{HashMap, VecDeque};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::{Notify, watch};

use super::Change;
use crate::domain::{RunKey, Time};

/// Bytes of recent changes kept for sessions at most.
const RING_BYTES_MAX: usize = 32 * 1024 * 1024;

/// The meeting place of one tailer and many sessions.
#[derive(Default)]
pub struct Hub {
    topics: Mutex<HashMap<RunKey, Topic>>,
    ring: Mutex<Ring>,
    watched: Notify,
    next_topic: AtomicU64,
    reads: AtomicU64,
    as_of: Mutex<Option<Time>>,
}

/// What the tailer last said of a run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Signal {
    /// The last revision that the tailer has seen.
    pub(super) revision: u64,
    /// How often the tailer has begun anew: what it missed meanwhile is in the history only.
    pub(super) begun: u64,
}

struct Topic {
    id: u64,
    sessions: usize,
    signal: watch::Sender<Signal>,
}

/// A session's place at one run. Dropping it leaves.
pub(super) struct Subscription {
    hub: Arc<Hub>,
    key: RunKey,
    topic: u64,
    pub(super) signal: watch::Receiver<Signal>,
}

impl Hub {
    /// How many runs are watched.
    #[must_use]
    pub fn watched_runs(&self) -> usize {
        lock(&self.topics).len()
    }

    /// How many pages of the log the tailer has read since it started.
    #[must_use]
    pub fn log_reads(&self) -> u64 {
        self.reads.load(Ordering::Relaxed)
    }

    /// The store's clock when the tailer last read the log to its end.
    pub(super) fn as_of(&self) -> Option<Time> {
        *lock(&self.as_of)
    }

    pub(super) fn subscribe(self: &Arc<Self>, key: &RunKey) -> Subscription {
        let mut topics = lock(&self.topics);
        let topic = topics.entry(key.clone()).or_insert_with(|| Topic {
            id: self.next_topic.fetch_add(1, Ordering::Relaxed),
            sessions: 0,
            signal: watch::Sender::new(Signal::default()),
        });
        topic.sessions += 1;
        let subscription =
            Subscription { hub: self.clone(), key: key.clone(), topic: topic.id, signal: topic.signal.subscribe() };
        drop(topics);
        self.watched.notify_one();
        subscription
    }

    /// Waits until a run is watched.
    pub(super) async fn until_watched(&self) {
        while lock(&self.topics).is_empty() {
            self.watched.notified().await;
        }
    }

    pub(super) fn is_watched(&self, key: &RunKey) -> bool {
        lock(&self.topics).contains_key(key)
    }

    /// Makes every session look into the history: the tailer has begun anew and may have missed something.
    pub(super) fn begin(&self) {
        for topic in lock(&self.topics).values() {
            topic.signal.send_modify(|signal| signal.begun += 1);
        }
    }

    /// Tells the sessions of a run that it has changed.
    pub(super) fn publish(&self, change: Arc<Change>) {
        let topics = lock(&self.topics);
        let Some(topic) = topics.get(&change.event.key) else { return };
        let revision = change.event.revision;
        lock(&self.ring).push((topic.id, revision), change);
        topic.signal.send_modify(|signal| signal.revision = signal.revision.max(revision));
    }

    /// Makes the sessions of one run look into its history: the tailer could not read what happened to it.
    pub(super) fn signal(&self, key: &RunKey, revision: u64) {
        if let Some(topic) = lock(&self.topics).get(key) {
            topic.signal.send_modify(|signal| signal.revision = signal.revision.max(revision));
        }
    }

    pub(super) fn read_page(&self) {
        self.reads.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn read_to_end(&self, as_of: Time) {
        *lock(&self.as_of) = Some(as_of);
    }
}

impl Subscription {
    /// The change that made this revision, while the ring has it.
    pub(super) fn recent(&self, revision: u64) -> Option<Arc<Change>> {
        lock(&self.hub.ring).changes.get(&(self.topic, revision)).cloned()
    }
}

impl Drop for Subscription {
    fn drop(&mut self) {
        let mut topics = lock(&self.hub.topics);
        if let Some(topic) = topics.get_mut(&self.key) {
            topic.sessions -= 1;
            if topic.sessions == 0 {
                topics.remove(&self.key);
            }
        }
    }
}

/// Recent changes by topic and revision; the oldest go first.
#[derive(Default)]
struct Ring {
    changes: HashMap<(u64, u64), Arc<Change>>,
    order: VecDeque<((u64, u64), usize)>,
    bytes: usize,
}

impl Ring {
    fn push(&mut self, place: (u64, u64), change: Arc<Change>) {
        let weight = size_of::<Change>() + 2 * change.run.weight();
        self.order.push_back((place, weight));
        self.bytes += weight;
        self.changes.insert(place, change);
        while self.bytes > RING_BYTES_MAX {
            let Some((oldest, weight)) = self.order.pop_front() else { break };
            self.changes.remove(&oldest);
            self.bytes -= weight;
        }
    }
}

/// A poisoned lock guards plain data that is valid after every statement: it is used on.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_sessions_that_leave_at_once_leave_no_topic() {
        let hub = Arc::new(Hub::default());
        let key = RunKey { namespace: "default".into(), run_id: "run-1".into() };
        for _ in 0..2_000 {
            let (one, two) = (hub.subscribe(&key), hub.subscribe(&key));
            std::thread::scope(|scope| {
                scope.spawn(|| drop(one));
                drop(two);
            });
            assert_eq!(hub.watched_runs(), 0);
        }
    }
}

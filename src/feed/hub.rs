//! The hub: the tailer leaves changes in it, and sessions find them there.

use std::collections::{HashMap, HashSet};
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use parking_lot::{Mutex, MutexGuard};
use tokio::sync::{Notify, watch};
use tokio::time::Instant;

use super::Limits;
use super::fold::{self, CACHE_BYTES_MAX, Cache};
use super::looks::Looks;
use super::ring::{Entry, Next, Ring, Stand};
use crate::domain::{Filter, LedgerEpoch, Namespace, Positions, Revision, RunKey, Time};
use crate::store::StoreError;
use crate::telemetry::chain;

/// The meeting place of one tailer and many sessions.
pub struct Hub {
    state: Mutex<State>,
    watched: Notify,
    ids: AtomicU64,
    reads: AtomicU64,
    /// The reads of the log that the tailer has begun, and the last of them that came to the log's end.
    reads_begun: AtomicU64,
    read_to_end: watch::Sender<u64>,
    /// Notified when somebody waits for another read.
    asked: Notify,
    /// The runs that the tailer folds on; none while there are no sessions.
    folded: Mutex<Option<Arc<Cache>>>,
    /// The events that were logged as unreadable.
    logged: Mutex<HashSet<(RunKey, Revision)>>,
    /// The bytes of the runs that waits keep while they look.
    looked_bytes: Arc<AtomicUsize>,
    /// The number of times that what sessions share may have come to hold what a redaction has taken out.
    cleanings: AtomicU64,
}

/// Events that are remembered as logged. Above this number, all are forgotten, and each may be logged once more.
const LOGGED_MAX: usize = 1024;

/// About what the place of a session at a run takes.
const TOPIC_SESSION_BYTES: usize = 128;

struct State {
    topics: HashMap<RunKey, Topic>,
    /// The sessions at all topics, and the bytes of the topics' keys: counted as they come and leave, since a walk of
    /// many topics would hold up every session.
    at_topics: usize,
    topic_keys_bytes: usize,
    ring: Ring,
    /// The last time that the log was read to its end; before, the beginning of the process.
    at_end: Instant,
}

impl State {
    fn is_deserted(&self) -> bool {
        self.topics.is_empty() && !self.ring.has_watchers()
    }
}

/// The tailer's last signal about a run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Signal {
    /// The last revision that the tailer has seen.
    pub(super) revision: Revision,
    /// The number of times that the tailer has begun anew: events that it missed meanwhile are in the history only.
    pub(super) begun: u64,
}

/// A run that is watched.
struct Topic {
    id: u64,
    sessions: usize,
    signal: watch::Sender<Signal>,
    looks: Arc<Looks>,
}

/// A session's place at one run. Dropping it leaves.
pub(super) struct Subscription {
    hub: Arc<Hub>,
    key: RunKey,
    topic: u64,
    pub(super) signal: watch::Receiver<Signal>,
    looks: Arc<Looks>,
}

/// A session's place at many runs. Dropping it leaves.
pub(super) struct Admission {
    hub: Arc<Hub>,
    id: u64,
    /// Notified when an entry may be for the session.
    pub(super) wake: Arc<Notify>,
    /// Notified when the session has taken all that the ring had for it.
    looked: Arc<Notify>,
}

/// The stand of a session that watches many runs, for whoever relies on what it tells.
pub struct SessionStand {
    hub: Arc<Hub>,
    id: u64,
    looked: Arc<Notify>,
}

impl Hub {
    pub(super) fn new(limits: &Limits) -> Self {
        let ring = Ring::new(limits.ring_bytes_max);
        Self {
            state: Mutex::new(State {
                topics: HashMap::new(),
                at_topics: 0,
                topic_keys_bytes: 0,
                ring,
                at_end: Instant::now(),
            }),
            watched: Notify::new(),
            ids: AtomicU64::new(0),
            reads: AtomicU64::new(0),
            reads_begun: AtomicU64::new(0),
            read_to_end: watch::Sender::new(0),
            asked: Notify::new(),
            folded: Mutex::default(),
            logged: Mutex::default(),
            looked_bytes: Arc::default(),
            cleanings: AtomicU64::new(0),
        }
    }

    /// Nothing that sessions share of history goes on from here, and every session looks into the history: something was
    /// taken out of it, or that may have been missed.
    pub(super) fn clean(&self, epoch: LedgerEpoch) {
        self.cleanings.fetch_add(1, Ordering::AcqRel);
        self.begin(epoch);
    }

    /// The number of [cleanings](Self::clean): what was shared before another one is not used any more.
    pub(super) fn cleanings(&self) -> u64 {
        self.cleanings.load(Ordering::Acquire)
    }

    /// Takes note of the runs that the tailer folds on from now on.
    pub(super) fn folds_on(&self, runs: Option<Arc<Cache>>) {
        *self.folded.lock() = runs;
    }

    /// The bytes of the runs that the tailer folds on, and how many there may be.
    pub(super) fn folded_bytes(&self) -> (usize, usize) {
        let folded = self.folded.lock();
        folded.as_ref().map_or((0, CACHE_BYTES_MAX), |runs| fold::bytes(runs))
    }

    /// The number of runs that are watched.
    #[must_use]
    pub fn watched_runs(&self) -> usize {
        self.state().topics.len()
    }

    /// The number of sessions that watch, or wait for, one run each.
    #[must_use]
    pub fn watches_of_one_run(&self) -> usize {
        self.state().at_topics
    }

    /// The number of sessions that watch many runs.
    #[must_use]
    pub fn watches_of_many_runs(&self) -> usize {
        self.state().ring.watchers()
    }

    /// The approximate number of bytes that the places of sessions take.
    #[must_use]
    pub fn sessions_bytes(&self) -> usize {
        let State { topics, at_topics, topic_keys_bytes, ring, at_end: _ } = &*self.state();
        topics.len() * size_of::<(RunKey, Topic, Looks)>()
            + topic_keys_bytes
            + at_topics * TOPIC_SESSION_BYTES
            + self.looked_bytes.load(Ordering::Relaxed)
            + ring.watchers_bytes()
    }

    /// The approximate number of bytes of recent changes that are kept.
    #[must_use]
    pub fn recent_changes_bytes(&self) -> usize {
        self.state().ring.bytes()
    }

    /// The number of pages of the log that the tailer has read since it started.
    #[must_use]
    pub fn log_reads(&self) -> u64 {
        self.reads.load(Ordering::Relaxed)
    }

    /// The time since the log was last read to its end, by this process's own clock.
    #[must_use]
    pub fn behind_for(&self) -> Duration {
        self.state().at_end.elapsed()
    }

    /// The store's clock when the tailer last read the log to its end.
    #[must_use]
    pub fn as_of(&self) -> Option<Time> {
        self.state().ring.as_of()
    }

    /// Takes a place at one run.
    pub(super) fn subscribe(self: &Arc<Self>, key: &RunKey) -> Subscription {
        let mut state = self.state();
        let was_deserted = state.is_deserted();
        let State { topics, at_topics, topic_keys_bytes, .. } = &mut *state;
        let topic = topics.entry(key.clone()).or_insert_with(|| {
            *topic_keys_bytes += key.run_id.len();
            Topic {
                id: self.ids.fetch_add(1, Ordering::Relaxed),
                sessions: 0,
                signal: watch::Sender::new(Signal::default()),
                looks: Arc::new(Looks::new(self.looked_bytes.clone())),
            }
        });
        topic.sessions += 1;
        *at_topics += 1;
        let signal = topic.signal.subscribe();
        let (id, looks) = (topic.id, topic.looks.clone());
        let subscription = Subscription { hub: self.clone(), key: key.clone(), topic: id, signal, looks };
        drop(state);
        if was_deserted {
            self.watched.notify_one();
        }
        subscription
    }

    /// Takes a place at all runs that match, for changes of one epoch of the ledger.
    pub(super) fn admit(self: &Arc<Self>, namespace: Namespace, filter: Arc<Filter>, epoch: LedgerEpoch) -> Admission {
        let id = self.ids.fetch_add(1, Ordering::Relaxed);
        let (wake, looked) = self.state().ring.admit(id, namespace, filter, epoch);
        self.watched.notify_one();
        Admission { hub: self.clone(), id, wake, looked }
    }

    /// Resolves when the tailer has read the log to its end, by a read that began after the call, and has published what
    /// it read.
    async fn read_anew(&self) {
        let wanted = self.reads_begun.load(Ordering::Acquire) + 1;
        let mut read = self.read_to_end.subscribe();
        self.asked.notify_one();
        let _never_closed = read.wait_for(|read| *read >= wanted).await;
    }

    /// Resolves when somebody [waits](Hub::read_anew) for a read.
    pub(super) async fn asked(&self) {
        self.asked.notified().await;
    }

    /// The number of a read of the log that begins now.
    pub(super) fn begin_read(&self) -> u64 {
        self.reads_begun.fetch_add(1, Ordering::AcqRel) + 1
    }

    /// A read has come to the log's end, and everything that it read was published.
    pub(super) fn end_read(&self, number: u64) {
        self.read_to_end.send_replace(number);
    }

    /// Whether there are no sessions.
    pub(super) fn is_deserted(&self) -> bool {
        self.state().is_deserted()
    }

    /// Resolves when the first session, or a session of many runs, has taken a place, also if that was before the call.
    pub(super) async fn visited(&self) {
        self.watched.notified().await;
    }

    /// Makes every session look into the history: the tailer has begun anew, and may have missed events. Changes from
    /// here on are of this epoch of the ledger.
    pub(super) fn begin(&self, epoch: LedgerEpoch) {
        let mut state = self.state();
        state.ring.clear(epoch);
        for topic in state.topics.values() {
            topic.signal.send_modify(|signal| signal.begun += 1);
        }
    }

    /// Whether every event is wanted, and not only those of watched runs. If so, every event after these positions must
    /// be published.
    pub(super) fn wants_all(&self, after: &Positions) -> bool {
        let mut state = self.state();
        let wants_all = state.ring.has_watchers();
        if wants_all {
            state.ring.begin(after);
        }
        wants_all
    }

    pub(super) fn is_watched(&self, key: &RunKey) -> bool {
        self.state().topics.contains_key(key)
    }

    /// Takes a page of the log up to `end`, and tells the sessions; `as_of` when that is the log's end.
    pub(super) fn publish(&self, page: Vec<Entry>, end: &Positions, as_of: Option<Time>) {
        self.reads.fetch_add(1, Ordering::Relaxed);
        let mut state = self.state();
        if as_of.is_some() {
            state.at_end = Instant::now();
        }
        let State { topics, ring, .. } = &mut *state;
        let signals: Vec<(RunKey, Revision)> =
            page.iter().map(|entry| (entry.change.key.clone(), entry.change.revision)).collect();
        let page = page.into_iter().map(|entry| {
            let topic = topics.get(&entry.change.key).map(|topic| topic.id);
            (Arc::new(entry), topic)
        });
        ring.take(page.collect(), end, as_of);
        for (key, revision) in &signals {
            signal(topics, key, *revision);
        }
    }

    /// Makes the sessions that show a run look into the history: the tailer could not read an event of it.
    pub(super) fn interrupt(&self, key: &RunKey, revision: Revision) {
        let mut state = self.state();
        state.ring.interrupt();
        signal(&state.topics, key, revision);
    }

    /// Logs that an event cannot be read or folded: once for all sessions that meet it.
    pub(super) fn log_unreadable(&self, key: &RunKey, revision: Revision, error: &StoreError) {
        let mut logged = self.logged.lock();
        if logged.len() >= LOGGED_MAX {
            logged.clear();
        }
        if logged.insert((key.clone(), revision)) {
            let (namespace, run_id, revision) = (key.namespace.as_str(), key.run_id.as_str(), revision.get());
            let sentence = "an event cannot be read: the watches that it is for end";
            tracing::error!(namespace, run_id, revision, error = chain(error), "{sentence}");
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock()
    }
}

fn signal(topics: &HashMap<RunKey, Topic>, key: &RunKey, revision: Revision) {
    if let Some(topic) = topics.get(key) {
        topic.signal.send_modify(|signal| signal.revision = signal.revision.max(revision));
    }
}

impl Subscription {
    pub(super) fn key(&self) -> &RunKey {
        &self.key
    }

    /// The reads that the sessions at this run share.
    pub(super) fn looks(&self) -> &Looks {
        &self.looks
    }

    /// The change that made this revision, while the ring has it, of this epoch of the ledger.
    pub(super) fn recent(&self, revision: Revision, epoch: LedgerEpoch) -> Option<Arc<Entry>> {
        self.hub.state().ring.of_topic(self.topic, revision, epoch)
    }
}

impl Drop for Subscription {
    fn drop(&mut self) {
        let mut state = self.hub.state();
        let State { topics, at_topics, topic_keys_bytes, .. } = &mut *state;
        if let Some(topic) = topics.get_mut(&self.key) {
            topic.sessions -= 1;
            *at_topics -= 1;
            if topic.sessions == 0 {
                topics.remove(&self.key);
                *topic_keys_bytes -= self.key.run_id.len();
            }
        }
    }
}

impl Admission {
    /// The next entry for the session, which stands at `stand`.
    pub(super) fn next(&self, stand: &mut Stand) -> Next {
        self.hub.state().ring.next(self.id, stand)
    }

    /// The stand of this session.
    pub(super) fn told(&self) -> SessionStand {
        SessionStand { hub: self.hub.clone(), id: self.id, looked: self.looked.clone() }
    }
}

impl SessionStand {
    /// Resolves when the session has told every event that was acknowledged before the call, by any replica. Never
    /// resolves once the session has ended, and late while the log cannot be read.
    pub async fn all(&self) {
        self.hub.read_anew().await;
        loop {
            let mut looked = pin!(self.looked.notified());
            looked.as_mut().enable();
            if self.hub.state().ring.has_told_all(self.id) {
                return;
            }
            looked.await;
        }
    }
}

impl Drop for Admission {
    fn drop(&mut self) {
        self.hub.state().ring.dismiss(self.id);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_sessions_that_leave_at_once_leave_no_topic() {
        let hub = Arc::new(Hub::new(&Limits::default()));
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

    #[test]
    fn what_sessions_take_is_counted_as_they_come_and_leave() {
        let hub = Arc::new(Hub::new(&Limits::default()));
        let key = |number| RunKey { namespace: "default".into(), run_id: format!("run-{number}").into() };
        let mut sessions: Vec<Subscription> = (0..300).map(|number| hub.subscribe(&key(number % 100))).collect();
        assert_eq!((hub.watched_runs(), hub.watches_of_one_run()), (100, 300));
        let bytes = hub.sessions_bytes();
        assert!(bytes > 300 * TOPIC_SESSION_BYTES, "{bytes} bytes");
        sessions.truncate(100);
        assert_eq!(hub.sessions_bytes(), bytes - 200 * TOPIC_SESSION_BYTES);
        sessions.clear();
        assert_eq!((hub.watched_runs(), hub.watches_of_one_run(), hub.sessions_bytes()), (0, 0, 0));
    }
}

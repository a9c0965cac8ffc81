//! The queues of a process: one for each namespace, filter and `max_running` that has claimers, and for a while after
//! the last one has left.

use std::collections::HashMap;
use std::collections::hash_map::Entry as MapEntry;
use std::future::pending;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt as _;
use parking_lot::Mutex;
use tokio::time::{Instant, sleep};
use tokio_util::sync::{CancellationToken, DropGuard};

use super::Limits;
use super::queue::Queue;
use super::queue_key::QueueKey;
use super::room::AllRoom;
use crate::domain::{AtRest, Filter, Status};
use crate::fairness::{CallerKey, Share, Shares};
use crate::feed::watch_runs::{Begin, Frame};
use crate::feed::{Feed, WatchError};

/// The pause before a watch that was cut is taken up again.
const AGAIN_AFTER: Duration = Duration::from_millis(500);

/// About what a queue without runs takes, with the task that follows the log for it: measured on hundreds.
const QUEUE_BYTES: usize = 16 * 1024;

/// See the module.
pub(super) struct Queues {
    limits: Limits,
    /// The places of queues, by the caller that each was made for.
    places: Arc<Shares>,
    room: Arc<AllRoom>,
    entries: Mutex<HashMap<QueueKey, Entry>>,
}

struct Entry {
    queue: Arc<Queue>,
    /// The caller that the queue was made for.
    caller: CallerKey,
    claimers: usize,
    /// The time at which the last claimer left.
    idle_since: Instant,
    /// Counts the queue until it is evicted.
    _place: Share,
    /// Ends the task that follows the log for the queue, when the entry is dropped.
    _follower: DropGuard,
}

impl Queues {
    pub(super) fn new(limits: Limits) -> Self {
        let places = Shares::new(limits.queues_max, limits.queues_granted);
        Self { limits, places, room: AllRoom::new(&limits), entries: Mutex::default() }
    }

    /// A claimer enters its queue, if there is one.
    pub(super) fn enter(self: &Arc<Self>, key: &QueueKey) -> Option<Claimer> {
        self.entries.lock().get_mut(key).map(|entry| self.entered(entry))
    }

    fn entered(self: &Arc<Self>, entry: &mut Entry) -> Claimer {
        entry.claimers += 1;
        Claimer { queues: self.clone(), queue: entry.queue.clone() }
    }

    /// A claimer enters its queue, which is made if there is none. A new queue is handed to `follow`, until the token is
    /// cancelled. Returns none where there are too many queues, each has claimers, and too many of them are this
    /// caller's.
    pub(super) fn enter_new(
        self: &Arc<Self>,
        caller: CallerKey,
        key: QueueKey,
        stop: &CancellationToken,
        follow: impl FnOnce(Arc<Queue>, CancellationToken),
    ) -> Option<Claimer> {
        let mut entries = self.entries.lock();
        let entry = match entries.entry(key) {
            MapEntry::Occupied(entry) => entry.into_mut(),
            MapEntry::Vacant(vacant) => {
                let key = vacant.into_key();
                let place = self.place(&mut entries, caller)?;
                let (queue, token) =
                    (Arc::new(Queue::new(key.clone(), &self.limits, self.room.clone())), stop.child_token());
                follow(queue.clone(), token.clone());
                let entry = Entry {
                    queue,
                    caller,
                    claimers: 0,
                    idle_since: Instant::now(),
                    _place: place,
                    _follower: token.drop_guard(),
                };
                entries.entry(key).or_insert(entry)
            }
        };
        Some(self.entered(entry))
    }

    /// A place for a new queue. A caller that has too many gives up the idle ones of its connection and of its agent, the
    /// one that is idle for the longest first; where all callers together have too many, idle ones of all are given up.
    fn place(&self, entries: &mut HashMap<QueueKey, Entry>, caller: CallerKey) -> Option<Share> {
        let place = loop {
            if let Some(place) = self.places.take(caller, 1) {
                break place;
            }
            let is_full = self.places.all() >= self.places.max_in_all();
            let has_given_up = evict_longest_idle(entries, |entry| entry.caller.shares_party(caller))
                || (is_full && evict_longest_idle(entries, |_| true));
            if !has_given_up {
                return None;
            }
        };
        if entries.len() >= self.limits.queues_max {
            evict_longest_idle(entries, |_| true);
        }
        Some(place)
    }

    /// About the bytes that the queues take.
    pub(super) fn bytes(&self) -> usize {
        self.entries.lock().len() * QUEUE_BYTES + self.room.bytes()
    }

    /// The bytes that the queues may take: what is granted is granted twice, to the runs of a queue and to what it knows
    /// of its claimers.
    pub(super) fn bytes_max(&self) -> usize {
        let queues_max = self.places.max_in_all();
        self.limits.bytes_max + queues_max * (QUEUE_BYTES + 2 * self.limits.bytes_granted)
    }

    /// About the bytes of the runs that are known to count towards limits: as many as there are.
    pub(super) fn counted_bytes(&self) -> usize {
        self.room.counted()
    }

    fn leave(&self, key: &QueueKey) {
        if let Some(entry) = self.entries.lock().get_mut(key) {
            entry.claimers -= 1;
            entry.idle_since = Instant::now();
        }
    }

    fn evict_idle(&self) {
        self.entries.lock().retain(|_, entry| entry.claimers > 0 || entry.idle_since.elapsed() < self.limits.idle_min);
    }
}

/// Evicts the one of these queues that is idle for the longest. False where none is idle.
fn evict_longest_idle(entries: &mut HashMap<QueueKey, Entry>, of: impl Fn(&Entry) -> bool) -> bool {
    let idle = entries.iter().filter(|(_, entry)| entry.claimers == 0 && of(entry));
    let longest = idle.min_by_key(|(_, entry)| entry.idle_since).map(|(key, _)| key.clone());
    longest.and_then(|longest| entries.remove(&longest)).is_some()
}

/// A claimer's place at its queue. Dropping it leaves.
pub(super) struct Claimer {
    queues: Arc<Queues>,
    pub(super) queue: Arc<Queue>,
}

impl Claimer {
    /// Waits until a run may be had. A claimer that is told of a run has nothing else to do: not while it reads, or
    /// claims another run.
    pub(super) async fn wait(&self, news: u64) {
        let mut told = pin!(self.queue.told.notified());
        told.as_mut().enable();
        // A claimer that missed news while it looked, looks again.
        if self.queue.backlog().news().count == news {
            told.await;
        }
    }
}

impl Drop for Claimer {
    fn drop(&mut self) {
        self.queues.leave(&self.queue.key);
        // Perhaps this claimer was told of a run that it did not look at.
        self.queue.told.notify_one();
    }
}

/// Tells a queue of events until it is evicted, and evicts queues that are idle.
pub(super) async fn follow(feed: Feed, queues: Arc<Queues>, queue: Arc<Queue>, evicted: CancellationToken) {
    let tell = async {
        loop {
            if matches!(watch(&feed, &queue).await, WatchError::Draining) {
                // The queue is evicted at the stop, of which the feed may know a moment before.
                pending::<()>().await;
            }
            sleep(AGAIN_AFTER).await;
        }
    };
    let evict = async {
        loop {
            sleep(queues.limits.idle_min).await;
            queues.evict_idle();
        }
    };
    tokio::select! {
        biased;
        () = evicted.cancelled() => {}
        () = tell => {}
        () = evict => {}
    }
}

/// Tells of each run that matches, and where there is a limit of every run that ends, until the watch is cut.
async fn watch(feed: &Feed, queue: &Queue) -> WatchError {
    let QueueKey { namespace, filter, take: _, max_running } = &queue.key;
    // Runs that count towards a limit may match another filter.
    let filter = if max_running.is_some() { waiting_or_ended() } else { filter.clone() };
    let (told, frames) = match feed.watch_runs_told(namespace.clone(), filter, Begin::Now(None)).await {
        Ok(begun) => begun,
        Err(error) => return error,
    };
    let mut frames = pin!(frames);
    queue.backlog().begin_feed();
    let _following = queue.follows(told);
    while let Some(frame) = frames.next().await {
        match frame {
            Ok(Frame::Change { after, .. }) => queue.backlog().tell(&after),
            Ok(Frame::Snapshot { .. } | Frame::CaughtUp { .. } | Frame::Checkpoint { .. }) => {}
            Err(error) => return error,
        }
    }
    WatchError::Draining
}

/// Every run that is new, is at rest, or has ended.
fn waiting_or_ended() -> Filter {
    let statuses = Status::ALL.into_iter().filter(|status| *status != Status::Running);
    Filter { statuses: statuses.collect(), or: Some(AtRest::Any), ..Filter::default() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::Take;

    fn key(number: usize) -> QueueKey {
        QueueKey::new(format!("namespace-{number}").into(), Filter::default(), Take::Pending, None)
    }

    #[tokio::test(start_paused = true)]
    async fn the_queue_that_is_idle_for_the_longest_is_evicted_for_a_new_one() {
        const QUEUES_MAX: usize = 10;
        let limits = Limits { queues_max: QUEUES_MAX, ..Limits::default() };
        let (queues, stop) = (Arc::new(Queues::new(limits)), CancellationToken::new());
        let mut followers = Vec::new();
        let mut enter = |number| {
            queues.enter_new(CallerKey::AUTHORITY, key(number), &stop, |_, token| followers.push((number, token)))
        };
        let mut claimers: Vec<_> = (0..QUEUES_MAX).map(&mut enter).collect();
        assert!(enter(QUEUES_MAX).is_none(), "somebody claims at each");
        assert!(enter(0).is_some(), "who claims by a filter that has a queue enters it");
        for number in [7, 3] {
            claimers[number] = None;
            tokio::time::advance(Duration::from_secs(1)).await;
        }
        let last = [enter(QUEUES_MAX), enter(QUEUES_MAX)];
        assert!(last.iter().all(Option::is_some) && enter(8).is_some());
        let evicted = |followers: &[(usize, CancellationToken)]| -> Vec<usize> {
            followers.iter().filter(|(_, token)| token.is_cancelled()).map(|(number, _)| *number).collect()
        };
        assert_eq!(evicted(&followers), [7]);
        tokio::time::advance(limits.idle_min).await;
        queues.evict_idle();
        assert_eq!(evicted(&followers), [3, 7]);
        assert_eq!(queues.entries.lock().len(), QUEUES_MAX - 1);
    }

    #[tokio::test]
    async fn a_caller_that_claims_at_every_queue_that_it_may_have_keeps_no_other_one_out() {
        const QUEUES_MAX: usize = 32;
        let limits = Limits { queues_max: QUEUES_MAX, ..Limits::default() };
        let (queues, stop) = (Arc::new(Queues::new(limits)), CancellationToken::new());
        let enter = |caller, number| queues.enter_new(CallerKey::new(caller, None), key(number), &stop, |_, _| {});
        let greedy: Vec<Claimer> = (0..2 * QUEUES_MAX).filter_map(|number| enter(1, number)).collect();
        assert_eq!(greedy.len(), QUEUES_MAX, "it was alone");
        let honest: Vec<Claimer> = (1_000..1_004).filter_map(|number| enter(2, number)).collect();
        assert_eq!(honest.len(), 4);
        drop(greedy);
        let again: Vec<Claimer> = (2_000..3_000).filter_map(|number| enter(1, number)).collect();
        assert_eq!(again.len(), QUEUES_MAX / 2, "it is not alone");
    }

    #[tokio::test]
    async fn idle_queues_of_a_connection_or_an_agent_are_given_up_for_any_claim_that_counts_for_it() {
        const QUEUES_MAX: usize = 32;
        let limits = Limits { queues_max: QUEUES_MAX, ..Limits::default() };
        for next in [CallerKey::new(1, Some(b"another")), CallerKey::new(2, Some(b"agent"))] {
            let (queues, stop) = (Arc::new(Queues::new(limits)), CancellationToken::new());
            let enter = |caller, number| queues.enter_new(caller, key(number), &stop, |_, _| {});
            let first = CallerKey::new(1, Some(b"agent"));
            let claimers: Vec<Claimer> = (0..QUEUES_MAX).filter_map(|number| enter(first, number)).collect();
            assert_eq!(claimers.len(), QUEUES_MAX);
            drop(claimers);
            let claimers: Vec<Claimer> = (1_000..1_016).filter_map(|number| enter(next, number)).collect();
            assert_eq!(claimers.len(), 16, "a proxy's next client, or the agent's next connection");
        }
    }
}

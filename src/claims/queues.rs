//! The queues of a process: one for each namespace, filter and `max_running` that has claimers, and for a while after
//! the last one has left.

use std::collections::HashMap;
use std::pin::pin;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures_util::StreamExt as _;
use tokio::time::{Instant, sleep};
use tokio_util::sync::{CancellationToken, DropGuard};

use super::queue::Queue;
use super::{Limits, held};
use crate::domain::{Filter, MaxRunning, Namespace, Status};
use crate::feed::watch_runs::{Begin, Frame};
use crate::feed::{Feed, WatchError};

/// The pause before a watch that was cut is taken up again.
const AGAIN_AFTER: Duration = Duration::from_millis(500);

/// The part of a claim that the claimers of one queue have in common.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct QueueKey {
    pub(super) namespace: Namespace,
    /// The filter of runs that wait for a claim.
    pub(super) filter: Filter,
    pub(super) max_running: Option<MaxRunning>,
}

impl QueueKey {
    pub(super) fn new(namespace: Namespace, filter: Filter, max_running: Option<MaxRunning>) -> Self {
        let filter = Filter { statuses: [Status::Pending].into(), or_ready: true, ..filter };
        Self { namespace, filter, max_running }
    }

    /// The key of the limited label.
    pub(super) fn label(&self) -> Option<&str> {
        self.max_running.as_ref().map(|max| max.label.as_str())
    }
}

/// See the module.
pub(super) struct Queues {
    limits: Limits,
    entries: Mutex<HashMap<QueueKey, Entry>>,
}

struct Entry {
    queue: Arc<Queue>,
    claimers: usize,
    /// The time at which the last claimer left.
    idle_since: Instant,
    /// Ends the task that follows the log for the queue, when the entry is dropped.
    _follower: DropGuard,
}

impl Queues {
    pub(super) fn new(limits: Limits) -> Self {
        Self { limits, entries: Mutex::default() }
    }

    /// A claimer enters its queue. A new queue is handed to `follow`, until the token is cancelled. Returns none where
    /// there are too many queues, and each has claimers.
    pub(super) fn enter(
        self: &Arc<Self>,
        key: QueueKey,
        stop: &CancellationToken,
        follow: impl FnOnce(Arc<Queue>, CancellationToken),
    ) -> Option<Claimer> {
        let mut entries = held(&self.entries);
        if !entries.contains_key(&key) && entries.len() >= self.limits.queues_max {
            let idle = entries.iter().filter(|(_, entry)| entry.claimers == 0);
            let longest = idle.min_by_key(|(_, entry)| entry.idle_since).map(|(key, _)| key.clone())?;
            entries.remove(&longest);
        }
        let entry = entries.entry(key).or_insert_with_key(|key| {
            let (queue, token) = (Arc::new(Queue::new(key.clone(), &self.limits)), stop.child_token());
            follow(queue.clone(), token.clone());
            Entry { queue, claimers: 0, idle_since: Instant::now(), _follower: token.drop_guard() }
        });
        entry.claimers += 1;
        Some(Claimer { queues: self.clone(), queue: entry.queue.clone() })
    }

    fn leave(&self, key: &QueueKey) {
        if let Some(entry) = held(&self.entries).get_mut(key) {
            entry.claimers -= 1;
            entry.idle_since = Instant::now();
        }
    }

    fn evict_idle(&self) {
        held(&self.entries).retain(|_, entry| entry.claimers > 0 || entry.idle_since.elapsed() < self.limits.idle_min);
    }
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
            if !matches!(watch(&feed, &queue).await, WatchError::Draining) {
                sleep(AGAIN_AFTER).await;
            }
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
    let QueueKey { namespace, filter, max_running } = &queue.key;
    // Runs that count towards a limit may match another filter.
    let filter = if max_running.is_some() { waiting_or_ended() } else { filter.clone() };
    let frames = match feed.watch_runs(namespace.clone(), filter, Begin::Now(None)).await {
        Ok(frames) => frames,
        Err(error) => return error,
    };
    let mut frames = pin!(frames);
    queue.backlog().begin_feed();
    while let Some(frame) = frames.next().await {
        match frame {
            Ok(Frame::Change { after, .. }) => queue.backlog().tell(&after),
            Ok(Frame::Snapshot { .. } | Frame::CaughtUp { .. } | Frame::Checkpoint { .. }) => {}
            Err(error) => return error,
        }
    }
    WatchError::Draining
}

/// Every run that is new, is ready, or has ended.
fn waiting_or_ended() -> Filter {
    let statuses = Status::ALL.into_iter().filter(|status| *status != Status::Running);
    Filter { statuses: statuses.collect(), or_ready: true, ..Filter::default() }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(number: usize) -> QueueKey {
        QueueKey::new(format!("namespace-{number}").into(), Filter::default(), None)
    }

    #[tokio::test(start_paused = true)]
    async fn the_queue_that_is_idle_for_the_longest_is_evicted_for_a_new_one() {
        const QUEUES_MAX: usize = 10;
        let limits = Limits { queues_max: QUEUES_MAX, ..Limits::default() };
        let (queues, stop) = (Arc::new(Queues::new(limits)), CancellationToken::new());
        let mut followers = Vec::new();
        let mut enter = |number| queues.enter(key(number), &stop, |_, token| followers.push((number, token)));
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
        assert_eq!(held(&queues.entries).len(), QUEUES_MAX - 1);
    }
}

//! The candidates of one filter: read a page at a time, handed out once each, in the order of creation.

use std::collections::{HashSet, VecDeque};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::sync::futures::Notified;
use tokio::time::{Instant, sleep_until};

use super::held;
use crate::domain::{Filter, Time};
use crate::store::query::{self, Place, RunQuery};
use crate::store::{PAGE_BYTES_MAX, Store, StoreError};

/// Candidates that one read brings at most.
const PAGE_RUNS_MAX: usize = 256;

/// Candidates that are kept at most: of those that only their owner may have, some may stay for long.
const WAITING_MAX: usize = 4_096;

/// A pending run.
#[derive(Clone, Debug)]
struct Pending {
    run_id: String,
    started_at: Time,
    owner: Option<String>,
}

impl Pending {
    /// Whether this agent may have it.
    fn is_for(&self, agent_id: Option<&str>) -> bool {
        match (agent_id, &self.owner) {
            (Some(agent_id), Some(owner)) => agent_id == owner,
            (None, Some(_)) | (_, None) => true,
        }
    }
}

/// See the module.
pub(super) struct Queue {
    namespace: String,
    filter: Filter,
    state: Mutex<State>,
    /// One reads for all.
    reading: tokio::sync::Mutex<()>,
    told: Notify,
    claimers: AtomicUsize,
    idle_since: Mutex<Instant>,
    left: Notify,
}

#[derive(Default)]
struct State {
    waiting: VecDeque<Pending>,
    /// Handed out and not decided: a read finds them still pending.
    out: HashSet<String>,
    /// Where the next page begins; none at the beginning.
    after: Option<Place>,
    /// Everything was read, and nothing was told of since.
    dry: bool,
    /// How often something was told of.
    news: u64,
}

impl Queue {
    pub(super) fn new(namespace: String, filter: Filter) -> Self {
        Self {
            namespace,
            filter,
            state: Mutex::default(),
            reading: tokio::sync::Mutex::default(),
            told: Notify::new(),
            claimers: AtomicUsize::new(0),
            idle_since: Mutex::new(Instant::now()),
            left: Notify::new(),
        }
    }

    /// Resolves when there may be a candidate.
    pub(super) fn told(&self) -> Notified<'_> {
        self.told.notified()
    }

    /// There is a new run.
    pub(super) fn tell(&self) {
        self.doubt();
        self.told.notify_waiters();
    }

    /// There may be a new run: what was read before says nothing of it, and it may stand anywhere, since calls that overlap
    /// have no order.
    pub(super) fn doubt(&self) {
        let mut state = held(&self.state);
        state.news += 1;
        state.dry = false;
        state.after = None;
    }

    /// The oldest candidate that this agent may have; none when there is none. Reads where it must.
    pub(super) async fn take(
        &self,
        store: &dyn Store,
        agent_id: Option<&str>,
    ) -> Result<Option<Candidate<'_>>, StoreError> {
        if let Some(candidate) = self.pop(agent_id) {
            return Ok(Some(candidate));
        }
        let _turn = self.reading.lock().await;
        let mut after = {
            let state = held(&self.state);
            if state.dry { None } else { Some(state.after.clone()) }
        };
        // Somebody may have read while this one waited. Whoever reads goes on to the end, whatever is told meanwhile:
        // that is for the next one.
        loop {
            if let Some(candidate) = self.pop(agent_id) {
                return Ok(Some(candidate));
            }
            let Some(from) = after else { return Ok(None) };
            after = self.read(store, from, agent_id).await?.map(Some);
        }
    }

    fn pop(&self, agent_id: Option<&str>) -> Option<Candidate<'_>> {
        let mut state = held(&self.state);
        let at = state.waiting.iter().position(|pending| pending.is_for(agent_id))?;
        let pending = state.waiting.remove(at)?;
        state.out.insert(pending.run_id.clone());
        Some(Candidate { queue: self, pending: Some(pending) })
    }

    /// Reads a page; where the next one begins, if there may be more.
    async fn read(
        &self,
        store: &dyn Store,
        after: Option<Place>,
        agent_id: Option<&str>,
    ) -> Result<Option<Place>, StoreError> {
        let news = held(&self.state).news;
        let query = RunQuery {
            namespace: self.namespace.clone(),
            filter: self.filter.clone(),
            order: query::Order::OldestFirst,
            after,
            limit: PAGE_RUNS_MAX,
            bytes_max: PAGE_BYTES_MAX,
            metadata: false,
        };
        let page = store.list(&query).await?;
        let mut state = held(&self.state);
        let waiting: HashSet<&str> = state.waiting.iter().map(|pending| pending.run_id.as_str()).collect();
        let found = page.runs.into_iter().filter(|run| !waiting.contains(run.run_id.as_str()));
        let mut found: Vec<Pending> = found
            .filter(|run| !state.out.contains(&run.run_id))
            .map(|run| Pending { run_id: run.run_id, started_at: run.started_at, owner: run.agent_id })
            .collect();
        // Those that only an owner may have who is not here may be very many: the first are kept, the others are read
        // again for whoever finds nothing.
        let (all, room) = (found.len(), state.waiting.len() < WAITING_MAX);
        found.retain(|pending| room || pending.is_for(agent_id));
        let skipped = found.len() < all;
        state.waiting.extend(found);
        // In the order of creation also where a read began anew.
        state
            .waiting
            .make_contiguous()
            .sort_by(|one, other| (one.started_at, &one.run_id).cmp(&(other.started_at, &other.run_id)));
        if state.news == news && !skipped {
            state.dry = page.next.is_none();
            state.after.clone_from(&page.next);
        } else {
            state.dry = false;
            state.after = None;
        }
        Ok(page.next)
    }

    /// A claimer comes; it has gone when this is dropped.
    pub(super) fn enter(self: &Arc<Self>) -> Claimer {
        self.claimers.fetch_add(1, Ordering::SeqCst);
        Claimer { queue: self.clone() }
    }

    pub(super) fn is_idle(&self) -> bool {
        self.claimers.load(Ordering::SeqCst) == 0
    }

    /// Resolves when nobody has claimed for this long.
    pub(super) async fn idle_for(&self, time: Duration) {
        loop {
            let left = self.left.notified();
            if self.is_idle() {
                let until = *held(&self.idle_since) + time;
                if until <= Instant::now() {
                    return;
                }
                sleep_until(until).await;
            } else {
                left.await;
            }
        }
    }
}

/// See [`Queue::enter`].
pub(super) struct Claimer {
    pub(super) queue: Arc<Queue>,
}

impl Drop for Claimer {
    fn drop(&mut self) {
        *held(&self.queue.idle_since) = Instant::now();
        self.queue.claimers.fetch_sub(1, Ordering::SeqCst);
        self.queue.left.notify_one();
    }
}

/// A run that one claimer was given. Dropped undecided, it goes back to where it was.
pub(super) struct Candidate<'a> {
    queue: &'a Queue,
    pending: Option<Pending>,
}

impl Candidate<'_> {
    pub(super) fn run_id(&self) -> &str {
        self.pending.as_ref().map_or("", |pending| pending.run_id.as_str())
    }

    /// It was claimed, by this claimer or by another.
    pub(super) fn settle(mut self) {
        if let Some(pending) = self.pending.take() {
            held(&self.queue.state).out.remove(&pending.run_id);
        }
    }
}

impl Drop for Candidate<'_> {
    fn drop(&mut self) {
        let Some(pending) = self.pending.take() else { return };
        {
            let mut state = held(&self.queue.state);
            state.out.remove(&pending.run_id);
            state.waiting.push_front(pending);
        }
        self.queue.told.notify_waiters();
    }
}

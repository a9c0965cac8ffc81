//! The candidates of one filter: read a page at a time, then told by the feed, handed out once each, in the order of
//! creation.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::sync::futures::Notified;
use tokio::time::{Instant, sleep_until};

use super::candidate::Candidate;
use super::candidates::ReadTo;
use super::held;
use super::state::{State, Wake, Walk, Wanted};
use crate::domain::Run;
use crate::store::query::{self, Place, READY_RUNS_MAX, RunPage, RunQuery};
use crate::store::{PAGE_BYTES_MAX, Store, StoreError};

/// Candidates that one read brings at most.
const PAGE_RUNS_MAX: usize = 256;

/// Values of a label that are asked about at once.
const VALUES_MAX: usize = 256;

/// See the module.
pub(super) struct Queue {
    pub(super) wanted: Wanted,
    state: Mutex<State>,
    /// One reads for all.
    reading: tokio::sync::Mutex<Readings>,
    /// How often everything was begun to be read.
    begun: AtomicUsize,
    told: Notify,
    claimers: AtomicUsize,
    idle_since: Mutex<Instant>,
    left: Notify,
}

/// What those who read know of each other.
#[derive(Default)]
struct Readings {
    /// The last reading of everything that came to the end, by its number.
    whole: usize,
}

impl Queue {
    pub(super) fn new(wanted: Wanted) -> Self {
        Self {
            state: Mutex::new(State::new(wanted.clone())),
            wanted,
            reading: tokio::sync::Mutex::default(),
            begun: AtomicUsize::new(0),
            told: Notify::new(),
            claimers: AtomicUsize::new(0),
            idle_since: Mutex::new(Instant::now()),
            left: Notify::new(),
        }
    }

    pub(super) fn state(&self) -> MutexGuard<'_, State> {
        held(&self.state)
    }

    /// Resolves when there may be a candidate.
    pub(super) fn told(&self) -> Notified<'_> {
        self.told.notified()
    }

    /// The feed begins, perhaps anew.
    pub(super) fn begin(&self) {
        self.state().begin();
        self.wake(Wake::All);
    }

    /// The feed tells of a run: right after an event, it is this.
    pub(super) fn tell(&self, run: &Run) {
        let wake = self.state().tell(run);
        self.wake(wake);
    }

    pub(super) fn wake(&self, wake: Wake) {
        match wake {
            Wake::Nobody => {}
            Wake::One => self.told.notify_one(),
            Wake::All => self.told.notify_waiters(),
        }
    }

    /// The oldest candidate that this agent may have; none when none is known. Reads on where it must.
    pub(super) async fn take(
        &self,
        store: &dyn Store,
        agent_id: Option<&str>,
    ) -> Result<Option<Candidate<'_>>, StoreError> {
        if let Some(candidate) = self.pop(agent_id) {
            return Ok(Some(candidate));
        }
        let unheard = Unheard(&self.told);
        let _turn = self.reading.lock().await;
        let walk = self.state().walk(agent_id, false);
        let found = self.walk(store, agent_id, walk).await?;
        unheard.heard();
        Ok(found)
    }

    /// The same, where every start and every end counts that was acknowledged before the call, perhaps by another replica,
    /// and that the feed has perhaps not told of yet; of a queue longer than what is kept of it, ends of runs whose values are
    /// kept. One reading answers all who came before it began.
    pub(super) async fn take_fresh(
        &self,
        store: &dyn Store,
        agent_id: Option<&str>,
    ) -> Result<Option<Candidate<'_>>, StoreError> {
        let unheard = Unheard(&self.told);
        let before = self.begun.load(Ordering::SeqCst);
        let mut readings = self.reading.lock().await;
        let mut found = self.pop(agent_id);
        let is_answered = readings.whole > before && self.state().is_known(agent_id);
        if found.is_none() && !is_answered {
            let number = self.begun.fetch_add(1, Ordering::SeqCst) + 1;
            let walk = self.state().walk(agent_id, true);
            found = self.walk(store, agent_id, walk).await?;
            if found.is_none() {
                self.look_for_room(store).await?;
                readings.whole = number;
                found = self.pop(agent_id);
            }
        }
        unheard.heard();
        Ok(found)
    }

    /// Reads on from where a walk is until there is a candidate. Somebody may have read while this one waited for its turn.
    async fn walk(
        &self,
        store: &dyn Store,
        agent_id: Option<&str>,
        mut walk: Walk,
    ) -> Result<Option<Candidate<'_>>, StoreError> {
        loop {
            if let Some(candidate) = self.pop(agent_id) {
                return Ok(Some(candidate));
            }
            let after = match walk.at.clone() {
                ReadTo::Start => None,
                ReadTo::Place(place) => Some(place),
                ReadTo::End => break,
            };
            let query = RunQuery {
                namespace: self.wanted.namespace.clone(),
                filter: self.wanted.filter.clone(),
                order: query::Order::OldestFirst,
                after,
                limit: PAGE_RUNS_MAX,
                bytes_max: PAGE_BYTES_MAX,
                metadata: false,
            };
            self.state().begin_page();
            let page = Self::waiting(store, &query).await?;
            let wake = self.state().end_page(page, &mut walk, agent_id);
            self.wake(wake);
        }
        self.state().end_walk(&walk, agent_id);
        Ok(None)
    }

    /// A page of the pending runs, and the ready ones that belong in it.
    async fn waiting(store: &dyn Store, query: &RunQuery) -> Result<RunPage, StoreError> {
        let ready = store.ready(&query.namespace, query.after.as_ref(), READY_RUNS_MAX);
        let (mut page, mut ready) = tokio::try_join!(store.list(query), ready)?;
        if ready.runs.is_empty() {
            return Ok(page);
        }
        let mut found = Vec::new();
        loop {
            found.extend(ready.runs.into_iter().filter(|run| query.filter.matches(run)));
            // Both are known up to where the first of them ends. Those that do not match are read only once.
            let Some(next) = ready.next else { break };
            if page.next.as_ref().is_some_and(|until| *until <= next) {
                break;
            }
            if found.len() >= PAGE_RUNS_MAX {
                page.next = Some(next);
                break;
            }
            ready = store.ready(&query.namespace, Some(&next), READY_RUNS_MAX).await?;
        }
        page.runs.extend(found);
        page.runs.retain(|run| page.next.as_ref().is_none_or(|until| Place::of(run) <= *until));
        page.runs.sort_by_cached_key(Place::of);
        Ok(page)
    }

    /// Asks the store about the values that have no room, as far as is known, and of which runs wait.
    async fn look_for_room(&self, store: &dyn Store) -> Result<(), StoreError> {
        let full = self.state().full();
        for values in full.chunks(VALUES_MAX) {
            let running = store.running(values).await?;
            let wake = self.state().only(values, &running);
            self.wake(wake);
        }
        Ok(())
    }

    fn pop(&self, agent_id: Option<&str>) -> Option<Candidate<'_>> {
        let (place, lane) = self.state().take(agent_id)?;
        Some(Candidate::new(self, place, lane))
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

/// What its claimer was told of passes to another, unless it came to look at it.
struct Unheard<'a>(&'a Notify);

impl Unheard<'_> {
    fn heard(self) {
        std::mem::forget(self);
    }
}

impl Drop for Unheard<'_> {
    fn drop(&mut self) {
        self.0.notify_one();
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

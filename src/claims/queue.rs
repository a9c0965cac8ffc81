//! The candidates of one filter: read a page at a time, then told by the feed, handed out once each, in the order of
//! creation.

use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::sync::futures::Notified;
use tokio::time::{Instant, sleep_until};

use super::candidates::{Candidates, Lane, ReadTo};
use super::held;
use super::running::Running;
use crate::domain::{Filter, LabelValue, MaxRunning, Run};
use crate::store::query::{self, Place, RunQuery};
use crate::store::{PAGE_BYTES_MAX, Store, StoreError};

/// Candidates that one read brings at most.
const PAGE_RUNS_MAX: usize = 256;

/// Values of a label that are asked about at once.
const VALUES_MAX: usize = 256;

/// What the claimers of one queue have in common.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Wanted {
    pub(super) namespace: String,
    /// Of pending runs.
    pub(super) filter: Filter,
    pub(super) max_running: Option<MaxRunning>,
}

/// See the module.
pub(super) struct Queue {
    pub(super) wanted: Wanted,
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
    candidates: Candidates,
    /// Handed out and not decided: a read finds them still pending. With how many ends had been told by then.
    out: HashMap<String, u64>,
    running: Running,
    /// How often all was begun to be read.
    readings: u64,
    /// The last of these that came to the end.
    whole: u64,
}

impl State {
    /// The oldest that this agent may have, and that may run.
    fn take(&mut self, agent_id: Option<&str>) -> Option<(Place, Arc<Lane>)> {
        let Self { candidates, running, .. } = self;
        let has_room = |lane: &Lane| lane.value.as_deref().is_none_or(|value| running.has_room(value));
        let (place, lane) = candidates.take(|lane| lane.is_for(agent_id) && has_room(lane))?;
        self.out.insert(place.run_id.clone(), running.ends());
        if let Some(value) = &lane.value {
            running.count(value, &place.run_id);
        }
        Some((place, lane))
    }

    /// What was handed out is decided.
    fn is_back(&mut self, run_id: &str) {
        self.out.remove(run_id);
        let oldest = self.out.values().min().copied();
        self.running.forget_ends(oldest.unwrap_or(self.running.ends()));
    }
}

impl Queue {
    pub(super) fn new(wanted: Wanted) -> Self {
        let limit = wanted.max_running.as_ref().map_or(0, |max| max.limit);
        let running = Running::new(usize::try_from(limit).unwrap_or(usize::MAX));
        Self {
            wanted,
            state: Mutex::new(State { running, ..State::default() }),
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

    /// The feed begins, perhaps anew: what came or ended before is read, or asked for.
    pub(super) fn begin(&self) {
        {
            let mut state = held(&self.state);
            state.candidates.read_to = ReadTo::Start;
            state.running.doubt();
        }
        self.told.notify_waiters();
    }

    /// The feed tells of a run: right after an event, it is this.
    pub(super) fn tell(&self, run: &Run) {
        let label = self.wanted.max_running.as_ref().map(|max| max.label.as_str());
        let place = Place::of(run);
        let mut state = held(&self.state);
        if self.wanted.filter.matches(run) {
            let lane = Lane::of(run, label);
            let (owned, room) = (lane.owner.is_some(), lane.value.as_deref().is_none_or(|v| state.running.has_room(v)));
            if !state.out.contains_key(&place.run_id) {
                state.candidates.tell(place, lane);
            }
            drop(state);
            match (room, owned) {
                (false, _) => {}
                (true, false) => self.told.notify_one(),
                // Whoever is woken may not be its owner.
                (true, true) => self.told.notify_waiters(),
            }
            return;
        }
        state.candidates.remove(&place);
        if label.is_some() && run.status.is_terminal() {
            let value = state.running.end(&place.run_id);
            if state.out.is_empty() {
                let ends = state.running.ends();
                state.running.forget_ends(ends);
            }
            let may_wait =
                |value: String| state.candidates.has_any_of(&value) || state.candidates.read_to != ReadTo::End;
            if value.is_some_and(may_wait) {
                drop(state);
                self.told.notify_waiters();
            }
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
        let _turn = self.reading.lock().await;
        let from = held(&self.state).candidates.read_to.clone();
        self.read_on(store, agent_id, from).await
    }

    /// The same, where every start and every end counts that was acknowledged before the call, perhaps by another replica,
    /// and that the feed has perhaps not told of yet. One reading answers all who came before it began.
    pub(super) async fn take_fresh(
        &self,
        store: &dyn Store,
        agent_id: Option<&str>,
    ) -> Result<Option<Candidate<'_>>, StoreError> {
        let readings = held(&self.state).readings;
        let _turn = self.reading.lock().await;
        if let Some(candidate) = self.pop(agent_id) {
            return Ok(Some(candidate));
        }
        let reading = {
            let mut state = held(&self.state);
            if state.whole > readings && state.candidates.read_to == ReadTo::End {
                return Ok(None);
            }
            state.readings += 1;
            state.candidates.read_to = ReadTo::Start;
            state.readings
        };
        if let Some(found) = self.read_on(store, agent_id, ReadTo::Start).await? {
            return Ok(Some(found));
        }
        self.look_for_room(store).await?;
        held(&self.state).whole = reading;
        Ok(self.pop(agent_id))
    }

    /// Asks the store about the values that have no room, as far as is known, and of which runs wait.
    async fn look_for_room(&self, store: &dyn Store) -> Result<(), StoreError> {
        let Wanted { namespace, max_running: Some(MaxRunning { label, .. }), .. } = &self.wanted else { return Ok(()) };
        let value =
            |value: &str| LabelValue { namespace: namespace.clone(), label: label.clone(), value: value.to_owned() };
        let full: Vec<LabelValue> = {
            let State { candidates, running, .. } = &*held(&self.state);
            candidates.values().into_iter().filter(|value| !running.has_room(value)).map(value).collect()
        };
        for values in full.chunks(VALUES_MAX) {
            let found = store.running(values).await?;
            let mut state = held(&self.state);
            let State { running, out, .. } = &mut *state;
            for (LabelValue { value, .. }, found) in values.iter().zip(&found) {
                running.only(value, found, |run_id| out.contains_key(run_id));
            }
        }
        if !full.is_empty() {
            self.told.notify_waiters();
        }
        Ok(())
    }

    /// Somebody may have read while this one waited for its turn. Reads pages from there on until there is one.
    async fn read_on(
        &self,
        store: &dyn Store,
        agent_id: Option<&str>,
        mut from: ReadTo,
    ) -> Result<Option<Candidate<'_>>, StoreError> {
        loop {
            if let Some(candidate) = self.pop(agent_id) {
                return Ok(Some(candidate));
            }
            let after = match from {
                ReadTo::Start => None,
                ReadTo::Place(place) => Some(place),
                ReadTo::End => return Ok(None),
            };
            from = self.read(store, after, agent_id).await?;
        }
    }

    fn pop(&self, agent_id: Option<&str>) -> Option<Candidate<'_>> {
        let (place, lane) = held(&self.state).take(agent_id)?;
        Some(Candidate { queue: self, taken: Some((place, lane)) })
    }

    /// Reads a page. Up to where.
    async fn read(
        &self,
        store: &dyn Store,
        after: Option<Place>,
        agent_id: Option<&str>,
    ) -> Result<ReadTo, StoreError> {
        held(&self.state).candidates.begin_page();
        let query = RunQuery {
            namespace: self.wanted.namespace.clone(),
            filter: self.wanted.filter.clone(),
            order: query::Order::OldestFirst,
            after,
            limit: PAGE_RUNS_MAX,
            bytes_max: PAGE_BYTES_MAX,
            metadata: false,
        };
        let page = store.list(&query).await?;
        let read_to = page.next.map_or(ReadTo::End, ReadTo::Place);
        let label = self.wanted.max_running.as_ref().map(|max| max.label.as_str());
        let mut state = held(&self.state);
        let State { candidates, out, running, .. } = &mut *state;
        // Those that nobody who is here may have may be very many: the first are kept, the others are read again for whoever
        // finds nothing.
        let room = candidates.has_room();
        for run in page.runs.iter().filter(|run| !out.contains_key(&run.run_id)) {
            let lane = Lane::of(run, label);
            let may_run = || lane.value.as_deref().is_none_or(|value| running.has_room(value));
            if room || (lane.is_for(agent_id) && may_run()) {
                candidates.insert(Place::of(run), lane);
            }
        }
        if room {
            candidates.end_page(read_to.clone());
        }
        drop(state);
        if page.runs.len() > 1 {
            self.told.notify_waiters();
        }
        Ok(read_to)
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
    taken: Option<(Place, Arc<Lane>)>,
}

impl Candidate<'_> {
    pub(super) fn run_id(&self) -> &str {
        self.taken.as_ref().map_or("", |(place, _)| place.run_id.as_str())
    }

    /// This claimer has it.
    pub(super) fn claimed(mut self) {
        if let Some((place, _)) = self.taken.take() {
            held(&self.queue.state).is_back(&place.run_id);
        }
    }

    /// Somebody else had it before.
    pub(super) fn lost(mut self) {
        let Some((place, _)) = self.taken.take() else { return };
        let counted = {
            let mut state = held(&self.queue.state);
            state.is_back(&place.run_id);
            state.running.discount(&place.run_id)
        };
        if counted.is_some() {
            // Others of its value may run.
            self.queue.told.notify_waiters();
        }
    }

    /// It was refused because these run. Whether it waits for them; else the claim is to be tried again.
    pub(super) fn waits_for(mut self, running: &[String]) -> Option<Self> {
        let (place, lane) = self.taken.take()?;
        let mut state = held(&self.queue.state);
        let since = state.out.get(&place.run_id).copied().unwrap_or(0);
        if let Some(value) = &lane.value
            && state.running.refused(value, running, since)
        {
            state.is_back(&place.run_id);
            state.running.discount(&place.run_id);
            state.candidates.insert(place, Lane::clone(&lane));
            return None;
        }
        let ends = state.running.ends();
        state.out.insert(place.run_id.clone(), ends);
        drop(state);
        self.taken = Some((place, lane));
        Some(self)
    }
}

impl Drop for Candidate<'_> {
    fn drop(&mut self) {
        let Some((place, lane)) = self.taken.take() else { return };
        {
            let mut state = held(&self.queue.state);
            state.is_back(&place.run_id);
            state.running.discount(&place.run_id);
            state.candidates.insert(place, Lane::clone(&lane));
        }
        self.queue.told.notify_waiters();
    }
}

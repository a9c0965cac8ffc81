//! What a queue knows: who waits, who was handed out, and which values of the limited label have no room. Plain data: no
//! store, no waiting.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use super::candidates::{Candidates, Lane, Owners, ReadTo};
use super::running::Running;
use crate::domain::{Filter, LabelValue, MaxRunning, Run};
use crate::store::query::{Place, RunPage};

/// What the claimers of one queue have in common.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Wanted {
    pub(super) namespace: String,
    /// Of pending runs.
    pub(super) filter: Filter,
    pub(super) max_running: Option<MaxRunning>,
}

impl Wanted {
    fn label(&self) -> Option<&str> {
        self.max_running.as_ref().map(|max| max.label.as_str())
    }
}

/// Agents of which is remembered that reading on would bring them nothing.
const AGENTS_MAX: usize = 4_096;

/// See the module.
pub(super) struct State {
    wanted: Wanted,
    candidates: Candidates,
    /// Handed out and not decided: a read finds them still waiting.
    out: HashMap<String, Out>,
    running: Running,
    /// How often the feed began.
    begun: u64,
    /// How often something may have come to be had that is not kept, for want of room.
    changes: u64,
    /// Of what is not kept, nothing was to be had.
    barren: Option<Barren>,
}

/// A candidate that was handed out.
#[derive(Debug)]
struct Out {
    lane: Arc<Lane>,
    /// How many ends had been told by then.
    ends: u64,
    /// It is told that the run is ready: where the claim that is on its way is refused for what was before, the run waits
    /// all the same.
    ready: Option<Lane>,
}

/// What reading to the end came to.
struct Barren {
    /// [`State::changes`] when it began.
    as_of: u64,
    /// It is true of everybody.
    of_everybody: bool,
    /// Else of these agents.
    of: HashSet<String>,
}

/// Who is to be told that there may be a candidate.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Wake {
    Nobody,
    One,
    All,
}

/// A walk over the pending runs, from page to page.
pub(super) struct Walk {
    /// How far it is.
    pub(super) at: ReadTo,
    /// [`State::changes`] when it began.
    as_of: u64,
    /// [`State::begun`] when it began.
    begun: u64,
    /// All that it read is kept, so that what it comes to is known.
    keeps: bool,
    has_read: bool,
    /// It met something that only its owner may have, and that is not kept.
    owned: bool,
}

impl State {
    pub(super) fn new(wanted: Wanted) -> Self {
        let limit = wanted.max_running.as_ref().map_or(0, |max| max.limit);
        let running = Running::new(usize::try_from(limit).unwrap_or(usize::MAX));
        Self {
            wanted,
            candidates: Candidates::default(),
            out: HashMap::new(),
            running,
            begun: 0,
            changes: 0,
            barren: None,
        }
    }

    /// What came or ended before is read, or asked for.
    pub(super) fn begin(&mut self) {
        // What is being read may not show what came before the feed began, and it is not told.
        self.begun += 1;
        self.changes += 1;
        self.candidates = Candidates::default();
        self.running.doubt();
        // Else the next of a value would be handed out beside the one that is being claimed, and might come before it.
        for (run_id, out) in &self.out {
            if let Some(value) = &out.lane.value {
                self.running.count(value, run_id);
            }
        }
    }

    /// A run is this right after an event.
    pub(super) fn tell(&mut self, run: &Run) -> Wake {
        let place = Place::of(run);
        if !self.wanted.filter.matches(run) {
            self.candidates.remove(&place);
            if let Some(out) = self.out.get_mut(&place.run_id) {
                out.ready = None;
            }
            let ends = self.wanted.max_running.is_some() && (run.status.is_terminal() || run.is_ready());
            return if ends { self.end(&place.run_id) } else { Wake::Nobody };
        }
        // Given back, it counts no more: by itself, or where others of its value wait for that.
        let room =
            if run.is_ready() && self.wanted.max_running.is_some() { self.end(&place.run_id) } else { Wake::Nobody };
        let lane = Lane::of(run, self.wanted.label());
        if let Some(out) = self.out.get_mut(&place.run_id) {
            out.ready = run.is_ready().then_some(lane);
            return room;
        }
        let wake = match (self.may_run(&lane), &lane.owner) {
            (false, _) => Wake::Nobody,
            (true, None) => Wake::One,
            // Whoever is woken may not be its owner.
            (true, Some(_)) => Wake::All,
        };
        if !self.candidates.tell(place, lane) && wake != Wake::Nobody {
            self.changes += 1;
        }
        wake.max(room)
    }

    fn end(&mut self, run_id: &str) -> Wake {
        let value = self.running.end(run_id);
        if self.out.is_empty() {
            self.running.forget_ends(self.running.ends());
        }
        value.map_or(Wake::Nobody, |value| self.makes_room(&value))
    }

    fn may_run(&self, lane: &Lane) -> bool {
        lane.value.as_deref().is_none_or(|value| self.running.has_room(value))
    }

    /// One more of a value may run.
    fn makes_room(&mut self, value: &str) -> Wake {
        let owners = self.candidates.owners_of(value);
        let all_kept = self.candidates.read_to == ReadTo::End;
        // Whoever comes finds one that is kept, and no more may run.
        let is_enough = owners == Owners::Anybody && self.running.takes_one();
        if !all_kept && !is_enough {
            self.changes += 1;
        }
        match owners {
            Owners::Nobody if all_kept => Wake::Nobody,
            Owners::Nobody | Owners::Anybody => Wake::One,
            Owners::Named => Wake::All,
        }
    }

    /// The oldest that this agent may have, and that may run.
    pub(super) fn take(&mut self, agent_id: Option<&str>) -> Option<(Place, Arc<Lane>)> {
        let Self { candidates, running, .. } = self;
        let may_run = |lane: &Lane| lane.value.as_deref().is_none_or(|value| running.has_room(value));
        let (place, lane) = candidates.take(|lane| lane.is_for(agent_id) && may_run(lane))?;
        self.out.insert(place.run_id.clone(), Out { lane: lane.clone(), ends: running.ends(), ready: None });
        if let Some(value) = &lane.value {
            running.count(value, &place.run_id);
        }
        Some((place, lane))
    }

    /// What was handed out is decided.
    pub(super) fn decided(&mut self, place: &Place) {
        self.out.remove(&place.run_id);
        let oldest = self.out.values().map(|out| out.ends).min();
        self.running.forget_ends(oldest.unwrap_or(self.running.ends()));
    }

    /// What was handed out was somebody else's before.
    pub(super) fn lost(&mut self, place: &Place) -> Wake {
        let ready = self.out.get_mut(&place.run_id).and_then(|out| out.ready.take());
        self.decided(place);
        let room = self.running.discount(&place.run_id).map_or(Wake::Nobody, |value| self.makes_room(&value));
        match ready {
            Some(lane) => {
                self.candidates.insert(place.clone(), lane);
                Wake::All
            }
            None => room,
        }
    }

    /// What was handed out goes back to where it was.
    pub(super) fn put_back(&mut self, place: Place, lane: &Lane) {
        self.decided(&place);
        self.running.discount(&place.run_id);
        if self.candidates.read_to != ReadTo::End && self.may_run(lane) {
            self.changes += 1;
        }
        self.candidates.insert(place, lane.clone());
    }

    /// What was handed out was refused because these run. Whether one of them has ended meanwhile, as far as was told: then
    /// it is handed out anew.
    pub(super) fn is_refused_in_vain(&mut self, place: &Place, lane: &Arc<Lane>, running: &[String]) -> bool {
        let since = self.out.get(&place.run_id).map_or(0, |out| out.ends);
        let holds = lane.value.as_deref().is_none_or(|value| self.running.refused(value, running, since));
        if !holds {
            let out = Out { lane: lane.clone(), ends: self.running.ends(), ready: None };
            self.out.insert(place.run_id.clone(), out);
        }
        !holds
    }

    /// A walk over what is not known yet; over everything, where something may not have been told yet.
    pub(super) fn walk(&mut self, agent_id: Option<&str>, over_everything: bool) -> Walk {
        let at = if over_everything {
            if self.candidates.has_room() {
                self.candidates.read_to = ReadTo::Start;
            }
            ReadTo::Start
        } else if self.is_barren(agent_id) {
            ReadTo::End
        } else {
            self.candidates.read_to.clone()
        };
        let keeps = !over_everything || self.candidates.has_room();
        Walk { at, as_of: self.changes, begun: self.begun, keeps, has_read: false, owned: false }
    }

    /// Whether all that this agent may have is known.
    pub(super) fn is_known(&self, agent_id: Option<&str>) -> bool {
        self.candidates.read_to == ReadTo::End || self.is_barren(agent_id)
    }

    /// Whether reading on would bring this agent nothing.
    fn is_barren(&self, agent_id: Option<&str>) -> bool {
        let of = |barren: &Barren| barren.of_everybody || agent_id.is_some_and(|agent_id| barren.of.contains(agent_id));
        let barren = self.barren.as_ref().is_some_and(|barren| barren.as_of == self.changes && of(barren));
        barren && !self.candidates.has_room()
    }

    /// A page is about to be read.
    pub(super) fn begin_page(&mut self) {
        self.candidates.begin_page();
    }

    /// Takes a page for a walk of this agent's. Those that nobody who is here may have may be very many: the first are kept,
    /// the others are read again for whoever finds nothing.
    pub(super) fn end_page(&mut self, page: RunPage, walk: &mut Walk, agent_id: Option<&str>) -> Wake {
        if walk.begun != self.begun {
            // What came before the page is not known any more: who went on from here would pass over what is older.
            *walk = self.walk(agent_id, false);
            return Wake::Nobody;
        }
        walk.keeps &= self.candidates.has_room();
        let mut to_be_had = 0;
        let mut is_found = false;
        for run in &page.runs {
            let lane = Lane::of(run, self.wanted.label());
            if let Some(out) = self.out.get_mut(&run.run_id) {
                out.ready = run.is_ready().then_some(lane);
                continue;
            }
            let may_run = self.may_run(&lane);
            to_be_had += usize::from(may_run);
            let is_first = !is_found && may_run && lane.is_for(agent_id);
            is_found |= is_first;
            if walk.keeps || is_first {
                self.candidates.insert(Place::of(run), lane);
            } else {
                walk.owned |= lane.owner.is_some();
            }
        }
        walk.has_read = true;
        walk.at = page.next.map_or(ReadTo::End, ReadTo::Place);
        walk.keeps = walk.keeps && self.candidates.end_page(walk.at.clone());
        // Whoever walks takes one of them.
        if to_be_had > usize::from(is_found) { Wake::All } else { Wake::Nobody }
    }

    /// A walk came to the end, and its agent may have nothing.
    pub(super) fn end_walk(&mut self, walk: &Walk, agent_id: Option<&str>) {
        if !walk.has_read || walk.keeps {
            return;
        }
        let known = self.barren.take().filter(|barren| barren.as_of == walk.as_of && barren.of.len() < AGENTS_MAX);
        let mut barren = known.unwrap_or(Barren { as_of: walk.as_of, of_everybody: false, of: HashSet::new() });
        match agent_id.filter(|_| walk.owned) {
            Some(agent_id) => drop(barren.of.insert(agent_id.to_owned())),
            // Where a caller that names no agent may have nothing, nobody may.
            None => barren.of_everybody = true,
        }
        self.barren = Some(barren);
    }

    /// The values that have no room, as far as is known, and of which runs wait.
    pub(super) fn full(&self) -> Vec<LabelValue> {
        let Wanted { namespace, max_running: Some(MaxRunning { label, .. }), .. } = &self.wanted else {
            return Vec::new();
        };
        let values = self.candidates.values().into_iter().filter(|value| !self.running.has_room(value));
        let value =
            |value: &str| LabelValue { namespace: namespace.clone(), label: label.clone(), value: value.to_owned() };
        values.map(value).collect()
    }

    /// The store says which runs of values count.
    pub(super) fn only(&mut self, values: &[LabelValue], running: &[Vec<String>]) -> Wake {
        for (LabelValue { value, .. }, running) in values.iter().zip(running) {
            self.running.only(value, running, |run_id| self.out.contains_key(run_id));
        }
        if values.iter().any(|LabelValue { value, .. }| self.running.has_room(value)) {
            self.changes += 1;
            Wake::All
        } else {
            Wake::Nobody
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::candidates::WAITING_MAX;
    use super::*;
    use crate::domain::evolve::evolve;
    use crate::domain::{Changes, Event, EventType, LabelsChange, Principal, RunKey, Status, Time};

    fn state() -> State {
        let filter = Filter { statuses: [Status::Pending].into(), ..Filter::default() };
        let max_running = Some(MaxRunning { label: "instance".to_owned(), limit: 1 });
        State::new(Wanted { namespace: "default".to_owned(), filter, max_running })
    }

    /// A pending run, created at this time.
    fn pending(at: usize, instance: &str, owner: Option<&str>) -> Run {
        let labels = [("instance".to_owned(), instance.to_owned())];
        let changes = Changes {
            task_thread_id: Some("thread-1".to_owned()),
            agent_id: owner.map(str::to_owned),
            labels: LabelsChange { set: labels.into(), ..LabelsChange::default() },
            ..Changes::default()
        };
        let event = Event {
            key: RunKey { namespace: "default".to_owned(), run_id: format!("run-{at}") },
            revision: 1,
            at: Time::from_micros(i64::try_from(at).unwrap()),
            request_id: None,
            event_type: EventType::Created,
            from: None,
            to: Status::Pending,
            principal: Principal::anonymous(),
            changes,
        };
        evolve(None, &event)
    }

    fn ended(run: &Run) -> Run {
        Run { status: Status::Aborted, revision: 2, ..run.clone() }
    }

    fn page(runs: Vec<Run>, last: bool) -> RunPage {
        let next = runs.last().filter(|_| !last).map(Place::of);
        RunPage { runs, next }
    }

    /// Reads runs in one page of their own each; the last one is the end.
    fn read(state: &mut State, walk: &mut Walk, agent_id: Option<&str>, runs: Vec<Run>, last: bool) {
        state.begin_page();
        state.end_page(page(runs, last), walk, agent_id);
    }

    /// Full of runs of instance `a`, of which one that is not in it runs.
    fn full() -> State {
        let mut state = state();
        let mut walk = state.walk(None, false);
        let runs = (1..=WAITING_MAX).map(|at| pending(at, "a", None)).collect();
        state.running.count("a", "runs");
        read(&mut state, &mut walk, None, runs, false);
        assert!(walk.keeps && !state.candidates.has_room());
        state
    }

    fn walked(state: &mut State, agent_id: Option<&str>, runs: Vec<Run>) {
        let mut walk = state.walk(agent_id, false);
        read(state, &mut walk, agent_id, runs, true);
        state.end_walk(&walk, agent_id);
    }

    #[test]
    fn what_was_not_kept_for_want_of_room_is_not_taken_for_known_when_there_is_room() {
        let mut state = full();
        let mut walk = state.walk(None, false);
        read(&mut state, &mut walk, None, vec![pending(WAITING_MAX + 1, "a", None)], false);
        state.tell(&ended(&pending(1, "a", None)));
        assert!(state.candidates.has_room());
        read(&mut state, &mut walk, None, vec![pending(WAITING_MAX + 2, "a", None)], true);
        let known = Place::of(&pending(WAITING_MAX, "a", None));
        assert_eq!(state.candidates.read_to, ReadTo::Place(known), "both are read again");
    }

    #[test]
    fn a_page_that_was_read_before_the_feed_began_is_read_again() {
        let mut state = state();
        let mut walk = state.walk(None, false);
        read(&mut state, &mut walk, None, vec![pending(1, "a", None)], false);
        state.begin_page();
        state.begin();
        state.end_page(page(vec![pending(2, "a", None)], true), &mut walk, None);
        assert_eq!((&walk.at, &state.candidates.read_to), (&ReadTo::Start, &ReadTo::Start));
        assert!(state.take(None).is_none(), "it is not handed out before what is older");
        read(&mut state, &mut walk, None, vec![pending(1, "a", None), pending(2, "a", None)], true);
        assert_eq!(state.take(None).map(|(place, _)| place), Some(Place::of(&pending(1, "a", None))));
    }

    #[test]
    fn what_is_being_claimed_when_the_feed_begins_leaves_no_room_for_the_next() {
        let mut state = state();
        let runs = || vec![pending(1, "a", None), pending(2, "a", None), pending(3, "b", None)];
        walked(&mut state, None, runs());
        let (first, _) = state.take(None).unwrap();
        state.begin();
        walked(&mut state, None, runs());
        let mut taken = || state.take(None).map(|(place, _)| place.started_at.micros());
        assert_eq!((taken(), taken()), (Some(3), None));
        state.put_back(first.clone(), &Lane { owner: None, value: Some("a".to_owned()) });
        assert_eq!(state.take(None).map(|(place, _)| place), Some(first));
    }

    #[test]
    fn what_is_not_kept_is_looked_for_again_when_its_value_has_room() {
        let mut state = full();
        state.running.count("b", "runs-too");
        let owned = pending(WAITING_MAX + 1, "b", Some("away"));
        state.candidates.insert(Place::of(&owned), Lane::of(&owned, Some("instance")));
        walked(&mut state, Some("x"), vec![pending(WAITING_MAX + 2, "b", None)]);
        assert!(state.is_barren(Some("x")), "b is full");
        assert_eq!(state.end("runs-too"), Wake::All);
        assert!(!state.is_barren(Some("x")), "what is kept of it is not for x");
    }

    #[test]
    fn each_agent_is_told_once_that_reading_on_brings_it_nothing() {
        let mut state = full();
        let owned = || vec![pending(WAITING_MAX + 1, "b", Some("away"))];
        for agent in ["x", "y"] {
            assert!(!state.is_barren(Some(agent)));
            walked(&mut state, Some(agent), owned());
        }
        assert!(state.is_barren(Some("x")) && state.is_barren(Some("y")) && !state.is_barren(Some("away")));
        walked(&mut state, None, vec![pending(WAITING_MAX + 1, "a", None)]);
        assert!(state.is_barren(Some("away")), "who may have everything found nothing");
        assert_eq!(state.tell(&pending(WAITING_MAX + 9, "c", None)), Wake::One);
        assert!(!state.is_barren(Some("x")));
    }
}

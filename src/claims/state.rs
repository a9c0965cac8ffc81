//! What a queue knows: who waits, who was handed out, and which values of the limited label have no room. Plain data: no
//! store, no waiting.

use std::collections::HashMap;
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

/// See the module.
pub(super) struct State {
    wanted: Wanted,
    candidates: Candidates,
    /// Handed out and not decided: a read finds them still pending. With how many ends had been told by then.
    out: HashMap<String, u64>,
    running: Running,
    /// How often something came that may be had, and is not kept for want of room.
    changes: u64,
    /// Of what is not kept, nothing was to be had.
    barren: Option<Barren>,
}

/// What reading to the end came to.
struct Barren {
    /// [`State::changes`] when it began.
    as_of: u64,
    /// Who it is true of; none: everybody. Where a caller that names no agent may have nothing, nobody may.
    agent_id: Option<String>,
}

/// Who is to be told that there may be a candidate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
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
    has_read: bool,
    /// It met something that only its owner may have, and that is not kept.
    owned: bool,
}

impl State {
    pub(super) fn new(wanted: Wanted) -> Self {
        let limit = wanted.max_running.as_ref().map_or(0, |max| max.limit);
        let running = Running::new(usize::try_from(limit).unwrap_or(usize::MAX));
        Self { wanted, candidates: Candidates::default(), out: HashMap::new(), running, changes: 0, barren: None }
    }

    /// What came or ended before is read, or asked for.
    pub(super) fn begin(&mut self) {
        self.candidates.read_to = ReadTo::Start;
        self.changes += 1;
        self.running.doubt();
    }

    /// A run is this right after an event.
    pub(super) fn tell(&mut self, run: &Run) -> Wake {
        let place = Place::of(run);
        if !self.wanted.filter.matches(run) {
            self.candidates.remove(&place);
            let ends = self.wanted.max_running.is_some() && run.status.is_terminal();
            return if ends { self.end(&place.run_id) } else { Wake::Nobody };
        }
        if self.out.contains_key(&place.run_id) {
            return Wake::Nobody;
        }
        let lane = Lane::of(run, self.wanted.label());
        let wake = match (self.may_run(&lane), &lane.owner) {
            (false, _) => Wake::Nobody,
            (true, None) => Wake::One,
            // Whoever is woken may not be its owner.
            (true, Some(_)) => Wake::All,
        };
        if !self.candidates.tell(place, lane) && wake != Wake::Nobody {
            self.changes += 1;
        }
        wake
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
        match self.candidates.owners_of(value) {
            Owners::Nobody if self.candidates.read_to == ReadTo::End => Wake::Nobody,
            Owners::Nobody => {
                // It may be among those that are not kept.
                self.changes += 1;
                Wake::One
            }
            Owners::Anybody => Wake::One,
            Owners::Some => Wake::All,
        }
    }

    /// The oldest that this agent may have, and that may run.
    pub(super) fn take(&mut self, agent_id: Option<&str>) -> Option<(Place, Arc<Lane>)> {
        let Self { candidates, running, .. } = self;
        let may_run = |lane: &Lane| lane.value.as_deref().is_none_or(|value| running.has_room(value));
        let (place, lane) = candidates.take(|lane| lane.is_for(agent_id) && may_run(lane))?;
        self.out.insert(place.run_id.clone(), running.ends());
        if let Some(value) = &lane.value {
            running.count(value, &place.run_id);
        }
        Some((place, lane))
    }

    /// What was handed out is decided.
    pub(super) fn decided(&mut self, place: &Place) {
        self.out.remove(&place.run_id);
        let oldest = self.out.values().min().copied();
        self.running.forget_ends(oldest.unwrap_or(self.running.ends()));
    }

    /// What was handed out was somebody else's before.
    pub(super) fn lost(&mut self, place: &Place) -> Wake {
        self.decided(place);
        self.running.discount(&place.run_id).map_or(Wake::Nobody, |value| self.makes_room(&value))
    }

    /// What was handed out goes back to where it was.
    pub(super) fn put_back(&mut self, place: Place, lane: &Lane) {
        self.decided(&place);
        self.running.discount(&place.run_id);
        self.candidates.insert(place, lane.clone());
    }

    /// What was handed out was refused because these run. Whether one of them has ended meanwhile, as far as was told: then
    /// it is handed out anew.
    pub(super) fn is_refused_in_vain(&mut self, place: &Place, lane: &Lane, running: &[String]) -> bool {
        let since = self.out.get(&place.run_id).copied().unwrap_or(0);
        let holds = lane.value.as_deref().is_none_or(|value| self.running.refused(value, running, since));
        if !holds {
            self.out.insert(place.run_id.clone(), self.running.ends());
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
        Walk { at, as_of: self.changes, has_read: false, owned: false }
    }

    /// Whether all that this agent may have is known.
    pub(super) fn is_known(&self, agent_id: Option<&str>) -> bool {
        self.candidates.read_to == ReadTo::End || self.is_barren(agent_id)
    }

    /// Whether reading on would bring this agent nothing.
    fn is_barren(&self, agent_id: Option<&str>) -> bool {
        let of = |barren: &Barren| barren.agent_id.as_ref().is_none_or(|known| Some(known.as_str()) == agent_id);
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
        let room = self.candidates.has_room();
        let mut to_be_had = 0;
        let mut is_found = false;
        for run in page.runs.iter().filter(|run| !self.out.contains_key(&run.run_id)) {
            let lane = Lane::of(run, self.wanted.label());
            let may_run = self.may_run(&lane);
            to_be_had += usize::from(may_run);
            let is_first = !is_found && may_run && lane.is_for(agent_id);
            is_found |= is_first;
            if room || is_first {
                self.candidates.insert(Place::of(run), lane);
            } else {
                walk.owned |= lane.owner.is_some();
            }
        }
        walk.has_read = true;
        walk.at = page.next.map_or(ReadTo::End, ReadTo::Place);
        if room {
            self.candidates.end_page(walk.at.clone());
        }
        // Whoever walks takes one of them.
        if to_be_had > usize::from(is_found) { Wake::All } else { Wake::Nobody }
    }

    /// A walk came to the end, and its agent may have nothing.
    pub(super) fn end_walk(&mut self, walk: &Walk, agent_id: Option<&str>) {
        if walk.has_read {
            let agent_id = agent_id.filter(|_| walk.owned).map(str::to_owned);
            self.barren = Some(Barren { as_of: walk.as_of, agent_id });
        }
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
        let has_room = values.iter().any(|LabelValue { value, .. }| self.running.has_room(value));
        if has_room { Wake::All } else { Wake::Nobody }
    }
}

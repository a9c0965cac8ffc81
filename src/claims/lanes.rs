//! The runs of a queue that wait for a claim, and the `max_running` that holds some of them back.
//!
//! Runs with the same owner and the same value of its label are a lane: a claimer that may have one of them may have
//! all, oldest first. An index holds the oldest run of each lane whose value has room, so that neither a take nor an
//! end walks over the lanes. Plain data: this module asks no store and waits for nothing.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use tokio::sync::Notify;

use super::max_running::Counted;
use super::room::Room;
use crate::domain::{Agents, Priority, Revision, Run, RunId};
use crate::store::query::ClaimPlace;

/// The properties of a run that decide which callers may have it, and when.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Lane {
    /// The run's value of the label that `max_running` names.
    pub(super) value: Option<Arc<str>>,
    /// Only this agent may have the run, and callers that name no agent.
    pub(super) owner: Option<Arc<str>>,
    /// All the same, every caller may have the run who may write the runs of others.
    pub(super) for_any_worker: bool,
    /// The run, where it is suspended and keeps its slot: its lane is its own, since it needs no room beside itself.
    pub(super) keeps_slot: Option<RunId>,
}

impl Lane {
    pub(super) fn of(run: &Run, label: Option<&str>) -> Self {
        let value = label.and_then(|label| run.labels.get(label)).map(|value| value.as_str().into());
        let keeps_slot = run.suspension().is_some_and(|suspension| suspension.keep_slot && value.is_some());
        let keeps_slot = keeps_slot.then(|| run.run_id.clone());
        let owner = run.owner_to_claim().map(|owner| owner.as_str().into());
        Self { value, for_any_worker: run.is_for_any_worker() && owner.is_some(), owner, keeps_slot }
    }

    pub(super) fn is_for(&self, taker: Taker<'_>) -> bool {
        let is_own = taker.agent_id.is_none() || self.owner.is_none() || self.owner.as_deref() == taker.agent_id;
        is_own || (self.for_any_worker && self.is_written_by(taker))
    }

    /// Whether the taker may write the runs of the owner.
    fn is_written_by(&self, taker: Taker<'_>) -> bool {
        self.owner.as_deref().is_none_or(|owner| taker.agents.contains(owner))
    }
}

/// A run that waits, as it was at one of its revisions. A page may be older than what the feed has told, and newer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct WaitingRun {
    pub(super) lane: Lane,
    pub(super) revision: Revision,
}

impl WaitingRun {
    pub(super) fn new(run: &Run, label: Option<&str>) -> Self {
        Self { lane: Lane::of(run, label), revision: run.revision }
    }
}

/// A claimer, as far as it decides which runs it may have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Taker<'a> {
    /// The agent that it names.
    pub(super) agent_id: Option<&'a str>,
    /// The agents whose runs it may write.
    pub(super) agents: &'a Agents,
}

/// The callers under which the index holds a run.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Callers {
    /// Callers that name no agent: they may have every run.
    Unnamed,
    /// All callers, for the run has no owner.
    All,
    /// Callers that may write the runs of the owner, whatever agent they name.
    AnyWorker,
    /// Callers that name the owner.
    Owner(Arc<str>),
}

/// The runs of one lane.
#[derive(Default)]
struct Waiting {
    places: BTreeSet<ClaimPlace>,
    /// The place that the index holds; none while the lane's value has no room.
    indexed: Option<ClaimPlace>,
}

/// The signal that wakes claimers that wait.
#[derive(Default)]
pub(super) struct News {
    pub(super) told: Arc<Notify>,
    /// The number of times that a run came to be had. A claimer that looked in vain at this count need not look again.
    pub(super) count: u64,
}

impl News {
    /// A run of this owner's may be had: one claimer is enough, unless only some claimers may have the run.
    pub(super) fn tell(&mut self, owner: Option<&str>) {
        if owner.is_some() {
            return self.tell_all();
        }
        self.count += 1;
        self.told.notify_one();
    }

    pub(super) fn tell_all(&mut self) {
        self.count += 1;
        self.told.notify_waiters();
    }
}

/// See the module.
pub(super) struct Lanes {
    pub(super) counted: Counted,
    pub(super) news: News,
    room: Room,
    runs: BTreeMap<ClaimPlace, WaitingRun>,
    /// The priorities of the runs that have one, by which a run is found that was given another.
    priorities: HashMap<RunId, Priority>,
    waiting: BTreeMap<Lane, Waiting>,
    index: BTreeSet<(Callers, ClaimPlace)>,
}

impl Lanes {
    pub(super) fn new(counted: Counted, news: News, room: Room) -> Self {
        Self {
            counted,
            news,
            room,
            runs: BTreeMap::new(),
            priorities: HashMap::new(),
            waiting: BTreeMap::new(),
            index: BTreeSet::new(),
        }
    }

    /// Whether there is room in memory for another run, be it the first of its lane.
    pub(super) fn has_room_for(&self, place: &ClaimPlace, lane: &Lane) -> bool {
        self.room.fits(weight(place, lane) + LANE_BYTES)
    }

    /// Whether the runs that wait take more room than they may.
    pub(super) fn are_too_much(&self) -> bool {
        !self.room.fits(0)
    }

    /// The runs that wait.
    pub(super) fn runs(&self) -> &BTreeMap<ClaimPlace, WaitingRun> {
        &self.runs
    }

    /// Whether runs of a value wait that every claimer may have.
    pub(super) fn any_for_all_of(&self, value: &Arc<str>) -> bool {
        self.waiting.contains_key(&Lane { value: Some(value.clone()), ..Lane::default() })
    }

    /// The oldest run that this claimer may have, and that may be running.
    pub(super) fn oldest(&self, taker: Taker<'_>) -> Option<&ClaimPlace> {
        let Some(agent_id) = taker.agent_id else { return self.first(Callers::Unnamed) };
        let mut of_others = self.all(Callers::AnyWorker);
        // Each of these entries is a lane's, so a caller with few agents passes over few.
        let of_others = of_others.find(|place| self.runs.get(*place).is_some_and(|run| run.lane.is_written_by(taker)));
        let owned = self.first(Callers::Owner(agent_id.into()));
        owned.into_iter().chain(of_others).chain(self.first(Callers::All)).min()
    }

    fn first(&self, callers: Callers) -> Option<&ClaimPlace> {
        self.all(callers).next()
    }

    fn all(&self, callers: Callers) -> impl Iterator<Item = &ClaimPlace> {
        let from = (callers, ClaimPlace::start());
        let entries = self.index.range(&from..);
        entries.take_while(move |(callers, _)| *callers == from.0).map(|(_, place)| place)
    }

    /// Keeps a run that waits.
    pub(super) fn insert(&mut self, place: ClaimPlace, run: WaitingRun) {
        let lane = &run.lane;
        if let Some(known) = self.runs.get_mut(&place).filter(|known| known.lane == *lane) {
            known.revision = run.revision;
        } else {
            self.remove(&place);
            let waiting = self.waiting.entry(lane.clone()).or_insert_with(|| {
                self.room.add(LANE_BYTES);
                Waiting::default()
            });
            waiting.places.insert(place.clone());
            self.index(lane);
            self.room.add(weight(&place, lane));
            if let Some(priority) = place.priority().filter(|priority| !priority.is_none()) {
                self.priorities.insert(place.within.run_id.clone(), priority);
            }
            self.runs.insert(place, run);
        }
    }

    /// Lets a run go. Returns it, if it waited here.
    pub(super) fn remove(&mut self, place: &ClaimPlace) -> Option<WaitingRun> {
        let run = self.runs.remove(place)?;
        let lane = &run.lane;
        if self.priorities.get(&place.within.run_id).copied() == place.priority() {
            self.priorities.remove(&place.within.run_id);
        }
        self.room.take(weight(place, lane));
        self.waiting.get_mut(lane)?.places.remove(place);
        self.index(lane);
        Some(run)
    }

    /// Lets a run go that waits at another place than this one, since it was given another priority.
    pub(super) fn remove_elsewhere(&mut self, place: &ClaimPlace) {
        for other in self.elsewhere(place) {
            self.remove(&other);
        }
    }

    /// Whether a run waits, here or at another place, by a later revision than this one.
    pub(super) fn knows_later(&self, place: &ClaimPlace, revision: Revision) -> bool {
        let is_later = |place: &ClaimPlace| self.runs.get(place).is_some_and(|known| known.revision > revision);
        is_later(place) || self.elsewhere(place).any(|other| is_later(&other))
    }

    fn elsewhere(&self, place: &ClaimPlace) -> impl Iterator<Item = ClaimPlace> + use<> {
        let known = self.priorities.get(&place.within.run_id).copied();
        let place = place.clone();
        known.into_iter().chain([Priority::NONE]).filter_map(move |priority| {
            let other = place.with(priority);
            (other != place).then_some(other)
        })
    }

    /// Hands a run out: it counts towards its value.
    pub(super) fn take(&mut self, place: &ClaimPlace) -> Option<WaitingRun> {
        let run = self.remove(place)?;
        if let Some(value) = &run.lane.value {
            self.count(value, &place.within.run_id);
        }
        // Only one claimer was told when the first of these runs came.
        if self.first(Callers::All).is_some() {
            self.news.tell(None);
        }
        Some(run)
    }

    /// A run counts towards a value, and towards no other.
    pub(super) fn count(&mut self, value: &Arc<str>, run_id: &RunId) {
        for value in self.counted.count(value, run_id).iter().chain([value]) {
            self.counts_changed(value);
        }
    }

    /// The runs that count towards a value have changed.
    pub(super) fn counts_changed(&mut self, value: &Arc<str>) {
        let from = Lane { value: Some(value.clone()), ..Lane::default() };
        let lanes = self.waiting.range(&from..).map(|(lane, _)| lane).take_while(|lane| lane.value == from.value);
        for lane in lanes.cloned().collect::<Vec<_>>() {
            self.index(&lane);
        }
    }

    /// The values that have no room, and of which runs wait.
    pub(super) fn full(&self) -> Vec<Arc<str>> {
        let mut values: Vec<_> = self.waiting.keys().filter_map(|lane| lane.value.clone()).collect();
        values.dedup();
        values.retain(|value| !self.counted.has_room(Some(value), None));
        values
    }

    /// Brings the index up to date with a lane, and tells claimers where the lane comes to be in it.
    fn index(&mut self, lane: &Lane) {
        let Some(waiting) = self.waiting.get_mut(lane) else { return };
        let has_room = self.counted.has_room(lane.value.as_ref(), lane.keeps_slot.as_ref());
        let oldest = waiting.places.first().filter(|_| has_room).cloned();
        let indexed = std::mem::replace(&mut waiting.indexed, oldest.clone());
        if waiting.places.is_empty() {
            self.waiting.remove(lane);
            self.room.take(LANE_BYTES);
        }
        if oldest == indexed {
            return;
        }
        let owner = lane.owner.clone().map_or(Callers::All, Callers::Owner);
        for callers in [Callers::Unnamed, owner].into_iter().chain(lane.for_any_worker.then_some(Callers::AnyWorker)) {
            if let Some(place) = &indexed {
                self.index.remove(&(callers.clone(), place.clone()));
            }
            self.index.extend(oldest.clone().map(|place| (callers, place)));
        }
        if indexed.is_none() {
            self.news.tell(lane.owner.as_deref());
        }
    }
}

/// About the bytes that a lane takes beside its runs: its entry among the lanes, three in the index at most, and the
/// first node of its places, which has eleven of them however few wait. Trees are two thirds full.
const LANE_BYTES: usize =
    (size_of::<(Lane, Waiting)>() + 3 * size_of::<(Callers, ClaimPlace)>()) * 3 / 2 + 11 * size_of::<ClaimPlace>() + 16;

/// About the bytes that a run which waits takes: it stands among the runs and in its lane, and has texts of its own.
fn weight(place: &ClaimPlace, lane: &Lane) -> usize {
    let text = |text: &Option<Arc<str>>| text.as_deref().map_or(0, |text| TEXT_BYTES + text.len());
    let kept = lane.keeps_slot.as_ref().map_or(0, |run_id| TEXT_BYTES + run_id.len());
    let texts = TEXT_BYTES + place.within.run_id.len() + text(&lane.value) + text(&lane.owner) + kept;
    let has_priority = place.priority().is_some_and(|priority| !priority.is_none());
    let priority = if has_priority { 2 * size_of::<(RunId, Priority)>() + TEXT_BYTES } else { 0 };
    (size_of::<(ClaimPlace, WaitingRun)>() + size_of::<ClaimPlace>()) * 3 / 2 + texts + priority
}

/// About the bytes that a shared text takes beside itself: two counters, and what the allocator rounds up.
const TEXT_BYTES: usize = 2 * size_of::<usize>() + 8;

#[cfg(test)]
mod tests;

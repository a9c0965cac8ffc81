//! The knowledge of a queue: the runs that wait, those that were handed out, and how far the ledger was read. Plain
//! data: this module asks no store and waits for nothing.
//!
//! Invariant: each run that waits, as far as the feed has told and pages have shown, waits in its lane, was handed
//! out, or stands after the place from which on the ledger is still to be read.
//!
//! Invariant: while a run may be had, no claimer that may have it waits, unless another one has been told of the run
//! and has not looked yet.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use super::lanes::{Lane, Lanes, News, Taker, WaitingRun};
use super::max_running::Counted;
use super::queue_key::QueueKey;
use super::room::{AllRoom, CountedRoom, Room};
use crate::domain::{Agents, Revision, Run, RunId, Status};
use crate::store::query::{ClaimPage, ClaimPlace};

/// Agents of which a queue remembers that reading on would bring them nothing.
const AGENTS_MAX: usize = 4_096;

/// A run that was handed out.
struct HandedOut {
    place: ClaimPlace,
    lane: Lane,
    /// The last revision of which the feed or a page has told.
    revision: Revision,
    /// [`Backlog::feed`] when the run was handed out.
    feed: u64,
    /// The lane in which the run waits again, as the feed or a page tells before the claim is decided.
    ready: Option<Lane>,
    /// The feed has told that the run waits no more.
    gone: bool,
}

impl HandedOut {
    /// The feed or a page tells how the run is, or how it was.
    fn told(&mut self, run: &Run, place: ClaimPlace, lane: Lane, waits: bool) {
        if run.revision > self.revision {
            self.ready = (waits && run.is_ready()).then_some(lane);
            (self.place, self.revision, self.gone) = (place, run.revision, !waits);
        }
    }
}

/// The end of a claim of a run that was handed out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Outcome {
    /// The claimer has the run.
    Claimed,
    /// Another caller took the run, or ended it.
    Lost,
    /// The run waits still.
    Waits,
}

/// See the module.
pub(super) struct Backlog {
    key: QueueKey,
    /// See [`Limits::runs_max`](super::Limits::runs_max).
    runs_max: usize,
    lanes: Lanes,
    all_room: Arc<AllRoom>,
    /// The runs that were handed out, by run id. A page shows them still waiting.
    handed_out: HashMap<RunId, HandedOut>,
    /// The number of times that the feed has begun.
    feed: u64,
    /// Runs after this place may wait that are not kept.
    unread_after: ClaimPlace,
    /// Runs after this place may wait that the page which is being read does not show or bring in.
    missed_after: ClaimPlace,
    /// The number of pages that were begun.
    pages: u64,
    in_vain: InVain,
}

/// The agents that have read to the end and found nothing, and whose runs they may write.
struct InVain {
    agents: HashSet<(Option<String>, Agents)>,
    /// The count of news then.
    news: u64,
    room: Room,
}

impl Backlog {
    pub(super) fn new(key: QueueKey, runs_max: usize, all_room: Arc<AllRoom>) -> Self {
        let max = key.max_running.as_ref().map_or(0, |max| max.limit);
        let limit = Counted::new(usize::try_from(max).unwrap_or(usize::MAX), CountedRoom::new(&all_room));
        let in_vain = InVain { agents: HashSet::new(), news: 0, room: Room::new(&all_room) };
        Self {
            key,
            runs_max,
            lanes: Lanes::new(limit, News::default(), Room::new(&all_room)),
            all_room,
            handed_out: HashMap::new(),
            feed: 0,
            unread_after: ClaimPlace::start(),
            missed_after: ClaimPlace::end(),
            pages: 0,
            in_vain,
        }
    }

    pub(super) fn news(&self) -> &News {
        &self.lanes.news
    }

    /// The feed begins, perhaps anew: it does not tell what happened before.
    pub(super) fn begin_feed(&mut self) {
        self.feed += 1;
        let news = std::mem::take(&mut self.lanes.news);
        let counted = Counted::new(self.lanes.counted.max, CountedRoom::new(&self.all_room));
        self.lanes = Lanes::new(counted, news, Room::new(&self.all_room));
        self.unread_after = ClaimPlace::start();
        // Runs that are being claimed count as well. Without them the next run of a value would be handed out too, and
        // might be claimed first.
        for (run_id, HandedOut { lane, revision, .. }) in &mut self.handed_out {
            // A ledger that was restored counts its revisions anew from where it goes on.
            *revision = Revision::NONE;
            if let Some(value) = &lane.value {
                self.lanes.count(value, run_id);
            }
        }
        self.lanes.news.tell_all();
    }

    /// The feed tells how a run is right after an event.
    pub(super) fn tell(&mut self, run: &Run) {
        if !run.counts() && run.status != Status::Pending {
            self.discount(&run.run_id);
        }
        let waits = self.key.filter.matches(run);
        let place = ClaimPlace::new(run);
        if let Some(handed_out) = self.handed_out.get_mut(&run.run_id) {
            handed_out.told(run, place, Lane::of(run, self.key.label()), waits);
            return;
        }
        if self.lanes.knows_later(&place, run.revision) {
            // A page has shown already what the feed will tell.
            return;
        }
        self.lanes.remove_elsewhere(&place);
        if waits {
            self.keep(place, WaitingRun::new(run, self.key.label()));
        } else {
            self.lanes.remove(&place);
        }
    }

    /// Hands out the oldest run that this agent may have and that may be running, up to the place to which the agent,
    /// or another for all, has read.
    pub(super) fn take(&mut self, taker: Taker<'_>, read_to: &ClaimPlace) -> Option<RunId> {
        let place = self.lanes.oldest(taker).filter(|place| *place <= read_to.max(&self.unread_after))?.clone();
        let (WaitingRun { lane, revision }, run_id) = (self.lanes.take(&place)?, place.within.run_id.clone());
        self.handed_out
            .insert(run_id.clone(), HandedOut { place, lane, revision, feed: self.feed, ready: None, gone: false });
        Some(run_id)
    }

    /// Whether another claimer was handed a run that this one may have, and of which nobody has told that it waits no
    /// more.
    pub(super) fn is_in_a_hand(&self, taker: Taker<'_>) -> bool {
        self.handed_out.values().any(|handed_out| !handed_out.gone && handed_out.lane.is_for(taker))
    }

    /// The claim of a run that was handed out is decided.
    pub(super) fn decided(&mut self, run_id: &str, outcome: Outcome) {
        let Some(HandedOut { place, lane, revision, feed, ready, gone }) = self.handed_out.remove(run_id) else {
            return;
        };
        // A feed that has begun anew meanwhile perhaps did not tell of the end of the run that was claimed.
        if outcome != Outcome::Claimed || feed != self.feed {
            self.discount(run_id);
        }
        if let Some(lane) = ready.or((outcome == Outcome::Waits && !gone).then_some(lane)) {
            self.lanes.insert(place, WaitingRun { lane, revision });
        }
    }

    /// The claimer of a run has gone, or the claim failed: perhaps in the middle of a refusal, so that the count of the
    /// run's value is not believed.
    pub(super) fn give_up(&mut self, run_id: &str) {
        if let Some(value) = self.value_of(run_id) {
            self.counts_at_most(&value, &[]);
        }
        self.decided(run_id, Outcome::Waits);
    }

    /// The claim of a run that was handed out was refused because these runs count. Returns the value, of which the
    /// store is to be asked before that is decided: an end that the feed told of before the refusal came is not told
    /// again.
    pub(super) fn refused(&mut self, run_id: &str, running: &[RunId]) -> Option<Arc<str>> {
        let value = self.value_of(run_id)?;
        for run_id in running {
            self.lanes.count(&value, run_id);
        }
        Some(value)
    }

    fn value_of(&self, run_id: &str) -> Option<Arc<str>> {
        self.handed_out.get(run_id)?.lane.value.clone()
    }

    /// The values that have no room, and of which runs wait.
    pub(super) fn full(&self) -> Vec<Arc<str>> {
        self.lanes.full()
    }

    /// The store says which runs of a value count: of the others, only those that are being claimed may.
    pub(super) fn counts_at_most(&mut self, value: &Arc<str>, running: &[RunId]) {
        let Self { lanes, handed_out, .. } = self;
        lanes.counted.retain(value, |run_id| handed_out.contains_key(run_id) || running.iter().any(|it| it == run_id));
        self.room_made(value);
    }

    /// An agent begins to read everything, or what may bring it more than is kept. Returns the place to read from, and
    /// the count of news.
    pub(super) fn begin_walk(&self, taker: Taker<'_>, is_whole: bool) -> (ClaimPlace, u64) {
        let news = self.lanes.news.count;
        if is_whole {
            (ClaimPlace::start(), news)
        } else if self.in_vain.is_of(taker, news) {
            (ClaimPlace::end(), news)
        } else {
            (self.unread_after.clone(), news)
        }
    }

    /// An agent that began at this count of news has read to the end, and found nothing.
    pub(super) fn end_walk(&mut self, taker: Taker<'_>, news: u64) {
        self.in_vain.add(taker, news);
    }

    /// A page is about to be read. Returns [`Backlog::feed`].
    pub(super) fn begin_page(&mut self) -> u64 {
        self.missed_after = ClaimPlace::end();
        self.pages += 1;
        self.feed
    }

    /// The number of pages that were begun: another one than before says that something was read.
    pub(super) fn pages(&self) -> u64 {
        self.pages
    }

    /// A page was read for this agent. Returns a run for the agent, and the place to read on from.
    pub(super) fn end_page(
        &mut self,
        after: &ClaimPlace,
        feed: u64,
        page: ClaimPage,
        taker: Taker<'_>,
    ) -> (Option<RunId>, ClaimPlace) {
        if feed != self.feed {
            // The page may not show what came before the feed began, and the feed does not tell that.
            return (None, self.unread_after.clone());
        }
        let until = page.next.unwrap_or_else(ClaimPlace::end);
        let mut found = false;
        for run in &page.runs {
            let place = ClaimPlace::new(run);
            if let Some(handed_out) = self.handed_out.get_mut(&run.run_id) {
                handed_out.told(run, place, Lane::of(run, self.key.label()), true);
                continue;
            }
            if self.lanes.knows_later(&place, run.revision) {
                // The feed has told more since the page was read.
                continue;
            }
            self.lanes.remove_elsewhere(&place);
            let known = WaitingRun::new(run, self.key.label());
            let lane = &known.lane;
            let is_first = !found
                && lane.is_for(taker)
                && self.lanes.counted.has_room(lane.value.as_ref(), lane.keeps_slot.as_ref());
            if is_first {
                // The agent takes the run at once, so there need not be room for it.
                self.lanes.insert(place, known);
                found = true;
            } else if self.has_room_for(&place, lane) || self.last().is_some_and(|last| place <= *last) {
                self.keep(place, known);
            } else {
                self.missed_after = place.before().min(self.missed_after.clone());
            }
        }
        if *after <= self.unread_after {
            self.unread_after = self.unread_after.clone().max(until.clone()).min(self.missed_after.clone());
        }
        (self.take(taker, &until), until)
    }

    fn has_room_for(&self, place: &ClaimPlace, lane: &Lane) -> bool {
        self.lanes.runs().len() < self.runs_max && self.lanes.has_room_for(place, lane)
    }

    fn last(&self) -> Option<&ClaimPlace> {
        self.lanes.runs().last_key_value().map(|(place, _)| place)
    }

    /// Keeps a run that waits. If there are too many, the last run of all is dropped, and is to be read again.
    fn keep(&mut self, place: ClaimPlace, run: WaitingRun) {
        self.lanes.insert(place, run);
        let too_many = self.lanes.runs().len() > self.runs_max || self.lanes.are_too_much();
        if let Some(last) = self.last().cloned().filter(|_| too_many) {
            self.lanes.remove(&last);
            self.unread_after = last.before().min(self.unread_after.clone());
            self.missed_after = last.before().min(self.missed_after.clone());
        }
    }

    fn discount(&mut self, run_id: &str) {
        if let Some(value) = self.lanes.counted.discount(run_id) {
            self.room_made(&value);
        }
    }

    /// Fewer runs count towards a value. Runs that are not kept may be had now, unless there is room for one run only
    /// and such a run is kept.
    fn room_made(&mut self, value: &Arc<str>) {
        let is_enough = self.lanes.counted.max == 1 && self.lanes.any_for_all_of(value);
        if self.unread_after != ClaimPlace::end() && !is_enough && self.lanes.counted.has_room(Some(value), None) {
            self.lanes.news.tell_all();
        }
        self.lanes.counts_changed(value);
    }
}

impl InVain {
    fn is_of(&self, taker: Taker<'_>, news: u64) -> bool {
        // If a caller that names no agent may have nothing, no agent may.
        let is_of = |Taker { agent_id, agents }: Taker<'_>| {
            self.agents.contains(&(agent_id.map(str::to_owned), agents.clone()))
        };
        self.news == news && (is_of(Taker { agent_id: None, agents: &Agents::All }) || is_of(taker))
    }

    fn add(&mut self, taker: Taker<'_>, news: u64) {
        let bytes = 2 * size_of::<(Option<String>, Agents)>() + taker.agent_id.map_or(0, str::len);
        if self.news != news || self.agents.len() >= AGENTS_MAX {
            self.agents.clear();
            self.room.clear();
            self.news = news;
        }
        if self.room.fits(bytes) && self.agents.insert((taker.agent_id.map(str::to_owned), taker.agents.clone())) {
            self.room.add(bytes);
        }
    }
}

#[cfg(test)]
mod tests;

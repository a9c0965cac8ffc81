//! Who waits to be claimed, by lane, and how far the ledger was read for it. Plain data: no store, no waiting.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use crate::domain::Run;
use crate::store::query::Place;

/// Candidates that are kept at most: of those that only their owner may have, or whose label's value runs already, some
/// may stay for long.
pub(super) const WAITING_MAX: usize = 16_384;

/// What decides who may have a run, and when.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Lane {
    /// Only this agent may have it, and callers that name none.
    pub(super) owner: Option<String>,
    /// Its value of the limited label.
    pub(super) value: Option<String>,
}

impl Lane {
    /// The lane of a run.
    pub(super) fn of(run: &Run, label: Option<&str>) -> Self {
        let value = label.and_then(|label| run.labels.get(label)).cloned();
        Self { owner: run.agent_id.clone(), value }
    }

    /// Whether this agent may have its runs.
    pub(super) fn is_for(&self, agent_id: Option<&str>) -> bool {
        match (agent_id, &self.owner) {
            (Some(agent_id), Some(owner)) => agent_id == owner,
            (None, Some(_)) | (_, None) => true,
        }
    }
}

/// Who may have the runs of some lanes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Owners {
    /// There are none.
    Nobody,
    /// Everybody.
    Anybody,
    /// Of some of them, one agent only.
    Named,
}

/// Up to where every pending run is known.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) enum ReadTo {
    /// Nothing was read, or what was is in doubt.
    #[default]
    Start,
    /// Up to this place.
    Place(Place),
    /// All of them, and of new ones the feed tells.
    End,
}

impl ReadTo {
    fn reaches(&self, place: &Place) -> bool {
        match self {
            Self::Start => false,
            Self::Place(read) => place <= read,
            Self::End => true,
        }
    }
}

/// See the module.
#[derive(Default)]
pub(super) struct Candidates {
    waiting: BTreeMap<Place, Arc<Lane>>,
    lanes: HashMap<Arc<Lane>, BTreeSet<Place>>,
    pub(super) read_to: ReadTo,
    /// What was told since a page was begun to be read, which does not show it.
    late: BTreeMap<Place, Lane>,
    /// More was told than is kept.
    late_lost: bool,
}

impl Candidates {
    /// Whether one more is kept.
    pub(super) fn has_room(&self) -> bool {
        self.waiting.len() < WAITING_MAX
    }

    /// Who may have those of a value that wait.
    pub(super) fn owners_of(&self, value: &str) -> Owners {
        let of_value = self.lanes.keys().filter(|lane| lane.value.as_deref() == Some(value));
        of_value.fold(Owners::Nobody, |owners, lane| match (owners, &lane.owner) {
            (Owners::Nobody | Owners::Anybody, None) => Owners::Anybody,
            (Owners::Named, None) | (_, Some(_)) => Owners::Named,
        })
    }

    /// The values of which any wait.
    pub(super) fn values(&self) -> BTreeSet<&str> {
        self.lanes.keys().filter_map(|lane| lane.value.as_deref()).collect()
    }

    /// The oldest of the lanes that will do.
    pub(super) fn take(&mut self, will_do: impl Fn(&Lane) -> bool) -> Option<(Place, Arc<Lane>)> {
        let lanes = self.lanes.iter().filter(|(lane, _)| will_do(lane));
        let (place, lane) =
            lanes.filter_map(|(lane, places)| Some((places.first()?, lane))).min_by_key(|(place, _)| *place)?;
        let (place, lane) = (place.clone(), lane.clone());
        self.remove(&place);
        Some((place, lane))
    }

    /// Keeps one.
    pub(super) fn insert(&mut self, place: Place, lane: Lane) {
        let lane = match self.lanes.get_key_value(&lane) {
            Some((lane, _)) => lane.clone(),
            None => Arc::new(lane),
        };
        self.lanes.entry(lane.clone()).or_default().insert(place.clone());
        self.waiting.insert(place, lane);
    }

    /// Lets one go.
    pub(super) fn remove(&mut self, place: &Place) {
        self.late.remove(place);
        let Some(lane) = self.waiting.remove(place) else { return };
        if let Some(places) = self.lanes.get_mut(&lane) {
            places.remove(place);
            if places.is_empty() {
                self.lanes.remove(&lane);
            }
        }
    }

    /// There is a new one. Whether it is kept; what is not is read later.
    pub(super) fn tell(&mut self, place: Place, lane: Lane) -> bool {
        if !self.read_to.reaches(&place) {
            if self.late.len() < WAITING_MAX {
                self.late.insert(place, lane);
            } else {
                self.late_lost = true;
            }
            return false;
        }
        match self.waiting.last_key_value() {
            Some((last, _)) if !self.has_room() && place > *last => {
                self.read_to = ReadTo::Place(last.clone());
                false
            }
            Some(_) | None => {
                self.insert(place, lane);
                true
            }
        }
    }

    /// A page is about to be read: what is told from here on, it may not show.
    pub(super) fn begin_page(&mut self) {
        self.late.clear();
        self.late_lost = false;
    }

    /// A page was read up to here, and what of it waits is kept. False where that is not all: it is to be read again.
    pub(super) fn end_page(&mut self, read_to: ReadTo) -> bool {
        if self.late_lost {
            return false;
        }
        for (place, lane) in std::mem::take(&mut self.late) {
            if read_to.reaches(&place) {
                self.insert(place, lane);
            }
        }
        self.read_to = read_to;
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::Time;

    fn place(at: i64) -> Place {
        Place { started_at: Time::from_micros(at), run_id: format!("run-{at}") }
    }

    fn lane(value: Option<&str>) -> Lane {
        Lane { owner: None, value: value.map(str::to_owned) }
    }

    fn all(candidates: &mut Candidates) -> Vec<i64> {
        std::iter::from_fn(|| candidates.take(|_| true)).map(|(place, _)| place.started_at.micros()).collect()
    }

    #[test]
    fn the_oldest_of_the_lanes_that_will_do_is_taken() {
        let mut candidates = Candidates::default();
        for (at, value) in [(3, "a"), (1, "a"), (2, "b"), (4, "c")] {
            candidates.insert(place(at), lane(Some(value)));
        }
        let taken = candidates.take(|lane| lane.value.as_deref() != Some("a")).unwrap();
        assert_eq!(taken.0, place(2));
        candidates.remove(&place(3));
        assert_eq!(all(&mut candidates), [1, 4]);
        assert!(candidates.lanes.is_empty() && candidates.waiting.is_empty());
    }

    #[test]
    fn what_is_told_while_a_page_is_read_that_does_not_show_it_is_kept() {
        let mut candidates = Candidates::default();
        candidates.begin_page();
        candidates.tell(place(2), lane(None));
        candidates.tell(place(9), lane(None));
        candidates.insert(place(1), lane(None));
        assert!(candidates.end_page(ReadTo::Place(place(5))));
        assert_eq!(all(&mut candidates), [1, 2], "the last one is on the next page");
        candidates.begin_page();
        candidates.tell(place(10), lane(None));
        assert!(candidates.end_page(ReadTo::End));
        candidates.tell(place(11), lane(None));
        assert_eq!(all(&mut candidates), [10, 11]);
    }

    #[test]
    fn what_ended_before_its_page_was_read_does_not_come_back() {
        let mut candidates = Candidates::default();
        candidates.begin_page();
        candidates.tell(place(2), lane(None));
        candidates.remove(&place(2));
        assert!(candidates.end_page(ReadTo::End));
        assert_eq!(all(&mut candidates), [0; 0]);
    }

    #[test]
    fn what_there_is_no_room_for_is_read_later() {
        let mut candidates = Candidates { read_to: ReadTo::End, ..Candidates::default() };
        let last = i64::try_from(WAITING_MAX).unwrap();
        (1..=last).for_each(|at| assert!(candidates.tell(place(at), lane(None))));
        assert!(!candidates.tell(place(last + 7), lane(None)));
        assert_eq!(candidates.read_to, ReadTo::Place(place(last)));
        candidates.tell(place(last + 8), lane(None));
        assert_eq!(candidates.waiting.len(), WAITING_MAX);
        candidates.begin_page();
        for n in 0..=last {
            candidates.tell(place(last + 10 + n), lane(None));
        }
        assert!(!candidates.end_page(ReadTo::End));
        assert_eq!(candidates.read_to, ReadTo::Place(place(last)), "more was told than is kept: it is read again");
    }
}

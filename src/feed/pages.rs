//! Pages of the log that watches which fell behind share: a crowd that comes back together reads each page once.
//!
//! A page that goes on from one place serves every session that stands there or later, and not yet at the page's end:
//! in each shard positions are dense, so that the session passes over what it has seen and misses nothing. Only pages
//! that are followed by another one are kept. The log's end is read anew for each session, since it must show every
//! event that was acknowledged before.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use super::Change;
use crate::domain::{LedgerEpoch, Positions, Revision, RunKey, Time};
use crate::store::{LoggedEvent, Page, StoreError, Unreadable};

use super::LogPlace;

/// An event of a page: as it was read, or the reason why it cannot be.
#[derive(Debug)]
#[expect(clippy::large_enum_variant, reason = "nearly all are events")]
pub(super) enum Read {
    Event(LoggedEvent),
    Unreadable { place: LogPlace, key: RunKey, revision: Revision, error: Arc<StoreError> },
}

impl Read {
    fn of(read: Result<LoggedEvent, Unreadable>) -> Self {
        match read {
            Ok(logged) => Self::Event(logged),
            Err(Unreadable { shard, position, key, revision, error, .. }) => {
                Self::Unreadable { place: (shard, position), key, revision, error: Arc::new(error) }
            }
        }
    }

    pub(super) fn place(&self) -> LogPlace {
        match self {
            Self::Event(logged) => (logged.shard, logged.position),
            Self::Unreadable { place, .. } => *place,
        }
    }

    fn weight(&self) -> usize {
        match self {
            Self::Event(logged) => size_of::<Self>() + logged.event.weight(),
            Self::Unreadable { .. } => size_of::<Self>(),
        }
    }
}

/// A page that was read.
#[derive(Debug)]
pub(super) struct Shared {
    /// The place that the page goes on from, and the place at its end.
    after: Positions,
    end: Positions,
    pub(super) events: Vec<Read>,
    /// The changes that sessions have shown already, by their events.
    changes: Vec<OnceLock<Arc<Change>>>,
    /// The bytes of the events, and with the changes.
    weight: usize,
    all: AtomicUsize,
    /// The time up to which the page goes, by the store's clock.
    pub(super) as_of: Option<Time>,
    cut: bool,
}

impl Shared {
    pub(super) fn of(after: Positions, page: Page) -> Self {
        // A page that is cut shows for certain only the log up to its last event.
        let last = page.events.last().map(|read| match read {
            Ok(logged) => logged.event.at,
            Err(unreadable) => unreadable.at,
        });
        let (as_of, cut) = (if page.cut { last } else { Some(page.as_of) }, page.cut);
        let events: Vec<Read> = page.events.into_iter().map(Read::of).collect();
        let mut end = after.clone();
        for (shard, position) in events.iter().map(Read::place) {
            end.set(shard, position.max(end.of(shard)));
        }
        let changes = events.iter().map(|_| OnceLock::new()).collect();
        let weight = events.iter().map(Read::weight).sum();
        Self { after, end, events, changes, weight, all: AtomicUsize::new(weight), as_of, cut }
    }

    /// The bytes of the events.
    pub(super) fn weight(&self) -> usize {
        self.weight
    }

    /// Whether the page has what comes next for a session that stands here.
    fn serves(&self, stand: &Positions) -> bool {
        stand.reaches(&self.after) && !stand.reaches(&self.end)
    }

    /// The change that a session has shown for an event.
    pub(super) fn change(&self, index: usize) -> Option<Arc<Change>> {
        self.changes[index].get().cloned()
    }
}

/// See the module.
#[derive(Debug)]
pub(super) struct Pages {
    bytes_max: usize,
    kept: Mutex<Kept>,
}

#[derive(Debug, Default)]
struct Kept {
    /// The ledger's epoch of all pages.
    epoch: LedgerEpoch,
    /// The pages, the one that was read last at the back.
    pages: VecDeque<Arc<Shared>>,
}

impl Kept {
    fn bytes(&self) -> usize {
        self.pages.iter().map(|page| page.all.load(Ordering::Relaxed)).sum()
    }

    fn fit(&mut self, bytes_max: usize) {
        while self.bytes() > bytes_max && self.pages.pop_front().is_some() {}
    }
}

impl Pages {
    pub(super) fn new(bytes_max: usize) -> Self {
        Self { bytes_max, kept: Mutex::default() }
    }

    /// The bytes of the pages that are kept, about, and how many may be.
    pub(super) fn bytes(&self) -> (usize, usize) {
        (self.kept().bytes(), self.bytes_max)
    }

    /// A page that has what comes next for a session of this epoch that stands here.
    pub(super) fn find(&self, epoch: LedgerEpoch, stand: &Positions) -> Option<Arc<Shared>> {
        let kept = self.kept();
        let of_epoch = kept.pages.iter().filter(|_| kept.epoch == epoch);
        of_epoch.rev().find(|page| page.serves(stand)).cloned()
    }

    /// Keeps a page that was read in this epoch, if another one follows it. Pages of a lost past are dropped.
    pub(super) fn keep(&self, epoch: LedgerEpoch, page: &Arc<Shared>) {
        let mut kept = self.kept();
        if kept.epoch < epoch {
            *kept = Kept { epoch, pages: VecDeque::new() };
        }
        if page.cut && kept.epoch == epoch {
            kept.pages.push_back(page.clone());
            kept.fit(self.bytes_max);
        }
    }

    /// Leaves the change of an event for the other sessions that show it.
    pub(super) fn leave(&self, page: &Shared, index: usize, change: &Arc<Change>) {
        if page.cut && page.changes[index].set(change.clone()).is_ok() {
            page.all.fetch_add(change.weight(), Ordering::Relaxed);
            self.kept().fit(self.bytes_max);
        }
    }

    /// A poisoned lock guards plain data that is valid after every statement: it is used on.
    fn kept(&self) -> MutexGuard<'_, Kept> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::{Changes, Event, EventType, Principal, Shard, Status};

    const EPOCH: LedgerEpoch = LedgerEpoch::FIRST;

    fn positions(of: [u64; 2]) -> Positions {
        of.into_iter().collect()
    }

    fn page(after: [u64; 2], places: &[(u16, u64)], cut: bool) -> Arc<Shared> {
        let event = |(shard, position): &(u16, u64)| {
            let key = RunKey { namespace: "default".into(), run_id: format!("run-{shard}-{position}").into() };
            let event = Event {
                key,
                revision: 1.into(),
                at: Time::from_micros(i64::try_from(*position).unwrap()),
                request_id: None,
                event_type: EventType::Created,
                from: None,
                to: Status::Running,
                principal: Principal::anonymous(),
                changes: Changes::default(),
            };
            Ok(LoggedEvent { shard: Shard(*shard), position: *position, event })
        };
        let page = Page { as_of: Time::from_micros(99), events: places.iter().map(event).collect(), cut };
        Arc::new(Shared::of(positions(after), page))
    }

    #[test]
    fn a_page_serves_whoever_stands_at_its_beginning_or_later_and_not_at_its_end() {
        let pages = Pages::new(1 << 20);
        pages.keep(EPOCH, &page([5, 5], &[(0, 6), (1, 6), (0, 7)], true));
        let serves = |of| pages.find(EPOCH, &positions(of)).is_some();
        assert!(serves([5, 5]) && serves([6, 5]) && serves([5, 6]) && serves([6, 6]) && serves([7, 5]));
        assert!(serves([5, 900]), "it has seen more of the other shard, and needs this one's events");
        assert!(!serves([4, 5]) && !serves([5, 4]), "events before the page would be skipped");
        assert!(!serves([7, 6]) && !serves([8, 9]), "nothing of it is new");
    }

    #[test]
    fn the_logs_end_is_not_kept_and_neither_is_a_lost_past() {
        let pages = Pages::new(1 << 20);
        pages.keep(EPOCH, &page([0, 0], &[(0, 1)], false));
        assert!(pages.find(EPOCH, &positions([0, 0])).is_none());
        pages.keep(EPOCH, &page([0, 0], &[(0, 1)], true));
        assert!(pages.find(EPOCH, &positions([0, 0])).is_some());
        let next = LedgerEpoch::from(EPOCH.get() + 1);
        assert!(pages.find(next, &positions([0, 0])).is_none());
        pages.keep(next, &page([3, 3], &[(0, 4)], true));
        assert!(pages.find(EPOCH, &positions([0, 0])).is_none() && pages.find(next, &positions([3, 3])).is_some());
        pages.keep(EPOCH, &page([0, 0], &[(0, 1)], true));
        assert!(pages.find(EPOCH, &positions([0, 0])).is_none(), "a session of the past leaves nothing");
    }

    #[test]
    fn the_pages_that_were_read_first_go_when_there_are_too_many_bytes() {
        let one = page([0, 0], &[(0, 1)], true).weight();
        let pages = Pages::new(3 * one);
        for number in 0..9 {
            pages.keep(EPOCH, &page([number, 0], &[(0, number + 1)], true));
        }
        let kept: Vec<u64> = (0..9).filter(|number| pages.find(EPOCH, &positions([*number, 0])).is_some()).collect();
        assert_eq!(kept, [6, 7, 8]);
        assert!(pages.bytes().0 <= 3 * one);
    }
}

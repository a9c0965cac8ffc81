//! Pages of the log that watches which fell behind share: a crowd that comes back together reads each page once.
//!
//! A page that goes on from one place serves every session that stands there or later, and not yet at the page's end:
//! in each shard positions are dense, so that the session passes over what it has seen and misses nothing. Only pages
//! that are followed by another one are kept. The log's end is read anew for each session, since it must show every
//! event that was acknowledged before.
//!
//! A change has its whole run, and so may be far larger than its event. The changes of a page are there only while the
//! page is kept, and count with it: a session that sleeps on a page which was dropped holds the events alone.

use std::collections::VecDeque;
use std::sync::{Arc, Weak};

use parking_lot::{Mutex, MutexGuard};

use crate::domain::{Namespace, Positions, Revision, RunKey, Time};
use crate::store::{LoggedEvent, Page, StoreError, Unreadable};

use super::{Change, Generation, Held, LogPlace};

/// An event of a page: as it was read, or the reason why it cannot be.
#[derive(Debug)]
#[expect(clippy::large_enum_variant, reason = "nearly all are events")]
pub(super) enum PageEvent {
    Event(LoggedEvent),
    Unreadable { place: LogPlace, key: RunKey, revision: Revision, error: Arc<StoreError> },
}

impl PageEvent {
    fn new(read: Result<LoggedEvent, Unreadable>) -> Self {
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
pub(super) struct Shared {
    /// The place that the page goes on from, and the place at its end.
    after: Positions,
    end: Positions,
    /// The namespace whose events alone are in the page; none: all events are. Of `default`, pages are of the latter
    /// kind.
    of: Option<Namespace>,
    pub(super) events: Vec<PageEvent>,
    /// The changes that sessions have shown already, by their events. Invariant: the list is empty unless the page is
    /// kept.
    changes: Mutex<Vec<Option<Arc<Change>>>>,
    /// The bytes of the events.
    weight: usize,
    /// The count of the page, while sessions hold it.
    counted: Mutex<Weak<Held>>,
    /// The time up to which the page goes, by the store's clock.
    pub(super) as_of: Option<Time>,
    cut: bool,
    /// Whether events may be missing between the place that the page goes on from and its own.
    pub(super) expired: bool,
}

impl Shared {
    /// A page that was read after a place. `forgotten`: see [`forgotten`](crate::store::RunLog::forgotten), read later.
    pub(super) fn of(after: Positions, of: Option<Namespace>, page: Page, forgotten: &Positions) -> Self {
        let expired = !after.reaches(forgotten);
        // A page that is cut shows for certain only the log up to its last event.
        let last = page.events.last().map(|read| match read {
            Ok(logged) => logged.event.at,
            Err(unreadable) => unreadable.at,
        });
        let (as_of, cut) = (if page.cut { last } else { Some(page.as_of) }, page.cut);
        let ends = page.ends;
        let events: Vec<PageEvent> = page.events.into_iter().map(PageEvent::new).collect();
        let mut end = after.clone();
        if let Some(ends) = &ends {
            end.advance(ends);
        }
        for (shard, position) in events.iter().map(PageEvent::place) {
            end.set(shard, position.max(end.of(shard)));
        }
        let weight = events.iter().map(PageEvent::weight).sum();
        let (changes, counted) = (Mutex::default(), Mutex::default());
        Self { after, end, of, events, changes, weight, counted, as_of, cut, expired }
    }

    /// The bytes of the events.
    pub(super) fn weight(&self) -> usize {
        self.weight
    }

    /// The place to which a session may go on that has taken all of the page's events.
    pub(super) fn end(&self) -> &Positions {
        &self.end
    }

    /// Whether the page has what comes next for a session that stands here.
    fn serves(&self, stand: &Positions) -> bool {
        stand.reaches(&self.after) && !stand.reaches(&self.end)
    }

    /// The change that a session has shown for an event.
    pub(super) fn change(&self, index: usize) -> Option<Arc<Change>> {
        self.changes().get(index).cloned().flatten()
    }

    /// Counts the page for all sessions that hold it at once, until the last of them drops the value.
    pub(super) fn counted(&self, count: impl FnOnce(usize) -> Held) -> Arc<Held> {
        let mut counted = self.counted.lock();
        counted.upgrade().unwrap_or_else(|| {
            let anew = Arc::new(count(self.weight));
            *counted = Arc::downgrade(&anew);
            anew
        })
    }

    fn changes(&self) -> MutexGuard<'_, Vec<Option<Arc<Change>>>> {
        self.changes.lock()
    }
}

/// See the module.
pub(super) struct Pages {
    bytes_max: usize,
    kept: Mutex<CachedPages>,
}

#[derive(Default)]
struct CachedPages {
    /// The generation of all pages.
    generation: Generation,
    /// The pages, the one that was read last at the back.
    pages: VecDeque<Arc<Shared>>,
    /// The bytes of the pages, with their changes.
    bytes: usize,
}

impl CachedPages {
    fn push(&mut self, page: &Arc<Shared>) {
        *page.changes() = vec![None; page.events.len()];
        self.bytes += page.weight;
        self.pages.push_back(page.clone());
    }

    fn fit(&mut self, bytes_max: usize) {
        while self.bytes > bytes_max
            && let Some(page) = self.pages.pop_front()
        {
            let changes = std::mem::take(&mut *page.changes());
            self.bytes -= page.weight + changes.iter().flatten().map(|change| change.weight()).sum::<usize>();
        }
    }
}

impl Pages {
    pub(super) fn new(bytes_max: usize) -> Self {
        Self { bytes_max, kept: Mutex::default() }
    }

    /// The bytes of the pages that are kept, about, and how many may be.
    pub(super) fn bytes(&self) -> (usize, usize) {
        (self.kept.lock().bytes, self.bytes_max)
    }

    /// A page that has what comes next, of a namespace or of all, for a session of this generation that stands here.
    pub(super) fn find(
        &self,
        generation: Generation,
        of: Option<&Namespace>,
        stand: &Positions,
    ) -> Option<Arc<Shared>> {
        let kept = self.kept.lock();
        let own = kept.pages.iter().filter(|page| kept.generation == generation && page.of.as_ref() == of);
        own.rev().find(|page| page.serves(stand)).cloned()
    }

    /// Keeps a page that was read in this generation, if another one follows it. Pages of an older one are dropped.
    pub(super) fn keep(&self, generation: Generation, page: &Arc<Shared>) {
        let mut kept = self.kept.lock();
        if kept.generation < generation {
            kept.fit(0);
            kept.generation = generation;
        }
        if page.cut && kept.generation == generation {
            kept.push(page);
            kept.fit(self.bytes_max);
        }
    }

    /// Leaves the change of an event for the other sessions that show it, if the page is still kept.
    pub(super) fn leave(&self, page: &Shared, index: usize, change: &Arc<Change>) {
        if !page.cut {
            return;
        }
        // While `kept` is locked, the page neither goes nor comes.
        let mut kept = self.kept.lock();
        if let Some(place @ None) = page.changes().get_mut(index) {
            *place = Some(change.clone());
            kept.bytes += change.weight();
        }
        kept.fit(self.bytes_max);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use bytes::Bytes;

    use super::*;
    use crate::domain::evolve::evolve;
    use crate::domain::{Changes, Event, EventType, LedgerEpoch, Principal, Shard, Status};
    use crate::feed::fold::Folded;

    const EPOCH: Generation = (LedgerEpoch::FIRST, 0);

    fn positions(of: [u64; 2]) -> Positions {
        of.into_iter().collect()
    }

    fn event((shard, position): (u16, u64)) -> Event {
        Event {
            key: RunKey { namespace: "default".into(), run_id: format!("run-{shard}-{position}").into() },
            revision: 1.into(),
            at: Time::from_micros(i64::try_from(position).unwrap()),
            steady_ahead_micros: 0,
            request_id: None,
            event_type: EventType::Created,
            from: None,
            to: Status::Running,
            principal: Principal::anonymous(),
            trace: None,
            changes: Changes::default(),
        }
    }

    fn page(after: [u64; 2], places: &[(u16, u64)], cut: bool) -> Arc<Shared> {
        let event = |&(shard, position): &(u16, u64)| {
            Ok(LoggedEvent { shard: Shard(shard), position, event: event((shard, position)) })
        };
        let page = Page { as_of: Time::from_micros(99), events: places.iter().map(event).collect(), cut, ends: None };
        Arc::new(Shared::of(positions(after), None, page, &positions([0, 0])))
    }

    /// A change whose run takes so many bytes.
    fn change(run_bytes: usize) -> Arc<Change> {
        let event = event((0, 1));
        let after = Arc::new(evolve(None, &event));
        Arc::new(Change {
            key: event.key,
            revision: event.revision,
            status: after.status,
            at: Time::from_micros(0),
            held: false,
            waits: false,
            event: Bytes::new(),
            run: vec![0; run_bytes].into(),
            filtered: Folded { before: None, after },
        })
    }

    #[test]
    fn a_page_serves_whoever_stands_at_its_beginning_or_later_and_not_at_its_end() {
        let pages = Pages::new(1 << 20);
        pages.keep(EPOCH, &page([5, 5], &[(0, 6), (1, 6), (0, 7)], true));
        let serves = |of| pages.find(EPOCH, None, &positions(of)).is_some();
        assert!(serves([5, 5]) && serves([6, 5]) && serves([5, 6]) && serves([6, 6]) && serves([7, 5]));
        assert!(serves([5, 900]), "it has seen more of the other shard, and needs this one's events");
        assert!(!serves([4, 5]) && !serves([5, 4]), "events before the page would be skipped");
        assert!(!serves([7, 6]) && !serves([8, 9]), "nothing of it is new");
    }

    #[test]
    fn the_logs_end_is_not_kept_and_neither_is_a_lost_past_nor_what_was_taken_out() {
        let pages = Pages::new(1 << 20);
        pages.keep(EPOCH, &page([0, 0], &[(0, 1)], false));
        assert!(pages.find(EPOCH, None, &positions([0, 0])).is_none());
        pages.keep(EPOCH, &page([0, 0], &[(0, 1)], true));
        assert!(pages.find(EPOCH, None, &positions([0, 0])).is_some());
        for next in [(LedgerEpoch::FIRST, 1), (LedgerEpoch::from(2), 0)] {
            assert!(pages.find(next, None, &positions([0, 0])).is_none());
            pages.keep(next, &page([3, 3], &[(0, 4)], true));
            assert!(
                pages.find(EPOCH, None, &positions([0, 0])).is_none()
                    && pages.find(next, None, &positions([3, 3])).is_some()
            );
        }
        pages.keep(EPOCH, &page([0, 0], &[(0, 1)], true));
        assert!(pages.find(EPOCH, None, &positions([0, 0])).is_none(), "a session of the past leaves nothing");
    }

    #[test]
    fn the_pages_that_were_read_first_go_when_there_are_too_many_bytes() {
        let one = page([0, 0], &[(0, 1)], true).weight();
        let pages = Pages::new(3 * one);
        for number in 0..9 {
            pages.keep(EPOCH, &page([number, 0], &[(0, number + 1)], true));
        }
        let kept: Vec<u64> =
            (0..9).filter(|number| pages.find(EPOCH, None, &positions([*number, 0])).is_some()).collect();
        assert_eq!(kept, [6, 7, 8]);
        assert!(pages.bytes().0 <= 3 * one);
    }

    #[test]
    fn a_page_that_is_dropped_takes_its_changes_with_it_whoever_still_reads_it() {
        const RUN_BYTES: usize = 64 * 1024;
        let pages = Pages::new(1 << 20);
        let sleepers: Vec<Arc<Shared>> = (0..64).map(|number| page([number, 0], &[(0, number + 1)], true)).collect();
        let mut left = Vec::new();
        for sleeper in &sleepers {
            pages.keep(EPOCH, sleeper);
            let change = change(RUN_BYTES);
            pages.leave(sleeper, 0, &change);
            left.push(Arc::downgrade(&change));
            assert!(pages.bytes().0 <= 1 << 20);
        }
        let alive = || left.iter().filter(|change| change.strong_count() > 0).count();
        assert!((1..=(1 << 20) / RUN_BYTES).contains(&alive()), "{} changes", alive());
        assert!(alive() * RUN_BYTES <= pages.bytes().0, "what is there is counted");
        pages.leave(&sleepers[0], 0, &change(RUN_BYTES));
        assert!(sleepers[0].change(0).is_none(), "its page is kept no longer");
        pages.keep((LedgerEpoch::FIRST, 1), &page([0, 0], &[(0, 1)], false));
        assert_eq!((alive(), pages.bytes().0), (0, 0), "pages of a lost past");
    }

    #[test]
    fn a_page_is_counted_once_for_all_sessions_that_hold_it() {
        struct Count(Arc<AtomicUsize>, usize);
        impl Drop for Count {
            fn drop(&mut self) {
                self.0.fetch_sub(self.1, Ordering::Relaxed);
            }
        }
        let all = Arc::new(AtomicUsize::new(0));
        let count = |bytes| {
            all.fetch_add(bytes, Ordering::Relaxed);
            Box::new(Count(all.clone(), bytes)) as Held
        };
        let page = page([0, 0], &[(0, 1)], true);
        let mut sessions: Vec<Arc<Held>> = (0..500).map(|_| page.counted(count)).collect();
        assert_eq!(all.load(Ordering::Relaxed), page.weight());
        sessions.drain(..499);
        assert_eq!(all.load(Ordering::Relaxed), page.weight(), "one of them holds it still");
        sessions.clear();
        assert_eq!(all.load(Ordering::Relaxed), 0);
        let _again = page.counted(count);
        assert_eq!(all.load(Ordering::Relaxed), page.weight());
    }
}

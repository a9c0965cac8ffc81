//! The claimers of one filter, and the candidates that they share: read a page at a time, then told by the feed.

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::{Mutex, MutexGuard};
use tokio::sync::{Notify, watch};
use tokio::time::{Instant, timeout, timeout_at};

use super::backlog::{Backlog, Outcome};
use super::lanes::Taker;
use super::queue_key::QueueKey;
use super::room::AllRoom;
use super::{Failure, Limits};
use crate::domain::{Filter, LabelValue, Namespace, Priority, RunId, Take};
use crate::fairness::Turn;
use crate::feed::hub::SessionStand;
use crate::store::query::{self, ClaimPage, ClaimPlace, Place, READY_RUNS_MAX, Reach, ReadyOf, RunPage, RunQuery};
use crate::store::{PAGE_BYTES_MAX, Runs, StoreError, attached};

/// The time that a claimer waits until the feed has told of everything.
const TOLD_WAIT_MAX: Duration = Duration::from_millis(300);

/// The time that a claimer of a new queue, who does not wait for a run, waits for the feed to begin. It has its turn to
/// read meanwhile.
const BEGUN_WAIT_MAX: Duration = Duration::from_millis(100);

/// Values of a label that the store is asked about at once.
const VALUES_MAX: usize = 256;

/// See the module.
pub(super) struct Queue {
    pub(super) key: QueueKey,
    page_runs_max: usize,
    backlog: Mutex<Backlog>,
    pub(super) told: Arc<Notify>,
    /// The stand of the watch that tells this queue of events; none while there is none.
    feed: watch::Sender<Option<Arc<SessionStand>>>,
    /// Tells that the claim of a run which was handed out is decided.
    decided: Notify,
    /// The right to read: one claimer reads for all. The value is the beginning of the last whole reading that came to
    /// the end.
    reading: tokio::sync::Mutex<Option<Instant>>,
}

impl Queue {
    pub(super) fn new(key: QueueKey, limits: &Limits, room: Arc<AllRoom>) -> Self {
        let backlog = Backlog::new(key.clone(), limits.runs_max, room);
        let (page_runs_max, told) = (limits.page_runs_max, backlog.news().told.clone());
        let (backlog, feed) = (Mutex::new(backlog), watch::Sender::default());
        Self { key, page_runs_max, backlog, told, feed, decided: Notify::new(), reading: tokio::sync::Mutex::default() }
    }

    pub(super) fn backlog(&self) -> MutexGuard<'_, Backlog> {
        self.backlog.lock()
    }

    /// A watch tells the queue of events from now on, until the value is dropped.
    pub(super) fn follows(&self, told: SessionStand) -> impl Drop + use<'_> {
        self.feed.send_replace(Some(Arc::new(told)));
        Following(self)
    }

    /// Whether the feed has told of everything that was acknowledged before the call. False where it does not tell soon.
    async fn is_told_all(&self) -> bool {
        let feed = self.feed.borrow().clone();
        match feed {
            Some(feed) => timeout(TOLD_WAIT_MAX, feed.all()).await.is_ok(),
            None => false,
        }
    }

    /// Waits for a moment until a watch tells the queue of events.
    async fn is_followed(&self) {
        let mut feed = self.feed.subscribe();
        let _late = timeout(BEGUN_WAIT_MAX, feed.wait_for(Option::is_some)).await;
    }

    /// The same as [`take`](Queue::take), for a claimer that is not told that there is no run while there may be one.
    /// `gives_up`: it waits no longer for a run, but until then for what others have in their hands.
    ///
    /// Pages are no snapshot: a run that is given another priority while they are read may stand in none of them. The feed
    /// tells of that where it began before. So it is waited for before the first reading, and once more after each reading
    /// in vain. At last, what others have in their hands is waited for: their claims may end with nothing.
    pub(super) async fn find<F: Future<Output = Result<Turn, Failure>>>(
        &self,
        runs: &dyn Runs,
        (taker, came): (Taker<'_>, Instant),
        gives_up: Option<Instant>,
        brought: Option<Turn>,
        turn: impl Fn(Reach) -> F,
    ) -> Result<Option<Candidate<'_>>, Failure> {
        if brought.is_some() && gives_up.is_some() {
            self.is_followed().await;
        }
        let pages = self.backlog().pages();
        let candidate = self.take(runs, (taker, came), gives_up.is_some(), brought, turn).await?;
        let Some(until) = gives_up.filter(|_| candidate.is_none()) else { return Ok(candidate) };
        let has_read = self.backlog().pages() != pages;
        if has_read {
            self.is_told_all().await;
        }
        Ok(self.out_of_a_hand(taker, until).await)
    }

    /// A candidate that waits, or the first that comes back of those that this claimer may have and others are claiming.
    async fn out_of_a_hand(&self, taker: Taker<'_>, until: Instant) -> Option<Candidate<'_>> {
        loop {
            let mut decided = pin!(self.decided.notified());
            decided.as_mut().enable();
            let candidate = self.known(taker);
            if candidate.is_some() || !self.backlog().is_in_a_hand(taker) {
                return candidate;
            }
            if timeout_at(until, decided).await.is_err() {
                return None;
            }
        }
    }

    /// The oldest candidate that this agent may have; none when there is none. The claimer reads on where needed.
    ///
    /// A claimer that gives up sees every start and every end that was acknowledged before the call, perhaps by another
    /// replica: it waits until the feed has told of them, for one read of the log's end that all such claimers share.
    /// Only where the feed does not tell soon, everything is read anew. Then, of a queue that is longer than its kept
    /// part, the claimer sees the ends of runs whose values are kept, and one whole reading answers all claimers that
    /// came before it began.
    ///
    /// The claimer reads a page in each of its turns, the first one briefly: of those who read whole queues, each page is
    /// counted, and others come in between. It takes the turn before the right to read: who has that right waits for
    /// nobody. Who brings a turn does not wait to be told.
    async fn take<F: Future<Output = Result<Turn, Failure>>>(
        &self,
        runs: &dyn Runs,
        (taker, came): (Taker<'_>, Instant),
        gives_up: bool,
        mut brought: Option<Turn>,
        turn: impl Fn(Reach) -> F,
    ) -> Result<Option<Candidate<'_>>, Failure> {
        if let Some(candidate) = self.known(taker) {
            return Ok(Some(candidate));
        }
        let knows_all = brought.is_none() && gives_up && self.is_told_all().await;
        let mut walk = Walk::default();
        loop {
            let mut turn = match brought.take() {
                Some(turn) => turn,
                None => turn(walk.reach()).await?,
            };
            let reading = self.reading.lock().await;
            turn.begins_now();
            let read = self.read(runs, (taker, came), gives_up && !knows_all, &mut walk, reading);
            if let PageRead::Whole(candidate) = attached::with(Arc::new(turn), read).await.map_err(Failure::Store)? {
                return Ok(candidate);
            }
        }
    }

    /// Reads a page on until there is a candidate, and everything anew where the claimer has to see all that was
    /// acknowledged before it came.
    async fn read(
        &self,
        runs: &dyn Runs,
        (taker, came): (Taker<'_>, Instant),
        sees_all: bool,
        walk: &mut Walk,
        mut whole_since: tokio::sync::MutexGuard<'_, Option<Instant>>,
    ) -> Result<PageRead<'_>, StoreError> {
        loop {
            // Another claimer may have read while this one waited for its turn. The first reading of a queue is a whole one.
            let is_whole = walk.is_whole() || (sees_all && whole_since.is_none() && !walk.goes_on());
            let (mut after, news) = self.backlog().begin_walk(taker, is_whole);
            let news = walk.goes_on_from(&mut after, (news, is_whole));
            let mut candidate = self.known(taker);
            let reads = candidate.is_none() && after != ClaimPlace::end();
            if reads {
                let feed = self.backlog().begin_page();
                let page = waiting(runs, &self.key, (self.page_runs_max, walk.reach()), &after).await?;
                let run_id;
                (run_id, after) = self.backlog().end_page(&after, feed, page, taker);
                candidate = run_id.map(|run_id| Candidate { queue: self, run_id, is_decided: false });
            }
            if candidate.is_some() {
                return Ok(PageRead::Whole(candidate));
            }
            if after != ClaimPlace::end() {
                walk.read_to(after, news);
                return Ok(PageRead::Part);
            }
            self.backlog().end_walk(taker, news);
            if let Some(begun) = walk.whole_since {
                let full = self.backlog().full();
                self.look_for_room(runs, &full).await?;
                *whole_since = Some(begun);
                return Ok(PageRead::Whole(self.known(taker)));
            }
            if !sees_all || *whole_since > Some(came) {
                return Ok(PageRead::Whole(None));
            }
            *walk = Walk { is_to_be_whole: true, ..Walk::default() };
            // Where nothing was left to be read, this turn has read no page yet.
            if reads {
                return Ok(PageRead::Part);
            }
        }
    }

    /// The next candidate of those that this replica has at hand.
    pub(super) fn known(&self, taker: Taker<'_>) -> Option<Candidate<'_>> {
        let run_id = self.backlog().take(taker, &ClaimPlace::start())?;
        Some(Candidate { queue: self, run_id, is_decided: false })
    }

    /// Asks the store which runs of values count.
    async fn look_for_room(&self, runs: &dyn Runs, values: &[Arc<str>]) -> Result<(), StoreError> {
        let Some(max) = &self.key.max_running else { return Ok(()) };
        for values in values.chunks(VALUES_MAX) {
            let of = |value: &Arc<str>| LabelValue {
                namespace: self.key.namespace.clone(),
                label: max.label.clone(),
                value: value.as_ref().to_owned(),
            };
            let running = runs.running(&values.iter().map(of).collect::<Vec<_>>()).await?;
            let mut backlog = self.backlog();
            for (value, running) in values.iter().zip(&running) {
                backlog.counts_at_most(value, running);
            }
        }
        Ok(())
    }
}

/// What a page brought.
enum PageRead<'a> {
    /// A candidate, or the end.
    Whole(Option<Candidate<'a>>),
    /// There is more to be read.
    Part,
}

/// How far a claimer has read, in turns of its own.
#[derive(Default)]
struct Walk {
    /// The place to read on from, and the count of news when it began.
    at: Option<(ClaimPlace, u64)>,
    /// The beginning of a reading of everything.
    whole_since: Option<Instant>,
    is_to_be_whole: bool,
}

impl Walk {
    fn goes_on(&self) -> bool {
        self.at.is_some()
    }

    fn is_whole(&self) -> bool {
        self.is_to_be_whole || self.whole_since.is_some()
    }

    /// A first page is a short read; nobody knows how much comes after it.
    fn reach(&self) -> Reach {
        if self.goes_on() { Reach::Long } else { Reach::Short }
    }

    /// Goes on from where it was, or from where another claimer has read to, and begins here where it has not begun.
    /// Returns the count of news at its beginning.
    fn goes_on_from(&mut self, after: &mut ClaimPlace, (news, is_whole): (u64, bool)) -> u64 {
        let Some((place, news)) = &self.at else {
            self.whole_since = is_whole.then(Instant::now);
            return news;
        };
        // A reading of everything sees all by itself.
        let furthest = if is_whole { place } else { place.max(&*after) };
        *after = furthest.clone();
        *news
    }

    fn read_to(&mut self, place: ClaimPlace, news: u64) {
        self.at = Some((place, news));
    }
}

/// Forgets the stand of the watch that told a queue of events.
struct Following<'a>(&'a Queue);

impl Drop for Following<'_> {
    fn drop(&mut self) {
        self.0.feed.send_replace(None);
    }
}

/// The priority that comes after another one: one that a run has which waits, or that of runs without one.
async fn next_priority(
    runs: &dyn Runs,
    namespace: &Namespace,
    after: Priority,
) -> Result<Option<Priority>, StoreError> {
    let found = runs.next_priority(namespace, after.get()).await?;
    Ok(found.max(Some(Priority::NONE).filter(|none| *none < after)))
}

/// A page of the runs that wait for a claim, of one priority: the pending ones, and the ready ones that belong in it.
async fn waiting(
    runs: &dyn Runs,
    key: &QueueKey,
    (limit, reach): (usize, Reach),
    after: &ClaimPlace,
) -> Result<ClaimPage, StoreError> {
    let namespace = &key.namespace;
    let within = Some(&after.within).filter(|within| **within != Place::end());
    let read = async |priority: Priority, wanted: Option<Priority>, within: Option<&Place>| {
        let query = RunQuery {
            namespace: namespace.clone(),
            filter: Filter { priority: wanted, ..key.filter.clone() },
            order: query::Order::OldestFirst,
            after: within.cloned(),
            limit,
            bytes_max: PAGE_BYTES_MAX,
            metadata: false,
            reach,
        };
        of_one_priority(runs, key.take, &query, priority).await
    };
    let (priority, page, lower) = match after.priority() {
        // Where no run has a priority, a queue is read as if there were none: beside the question whether one has.
        None => {
            let highest = runs.next_priority(namespace, Priority::MAX + 1);
            let (highest, page) = tokio::try_join!(highest, read(Priority::NONE, None, None))?;
            match highest {
                None => (Priority::NONE, page, Some(None)),
                Some(found) => {
                    let priority = found.max(Priority::NONE);
                    (priority, read(priority, Some(priority), None).await?, None)
                }
            }
        }
        Some(priority) if within.is_some() => (priority, read(priority, Some(priority), within).await?, None),
        Some(done) => {
            let Some(priority) = next_priority(runs, namespace, done).await? else { return Ok(ClaimPage::default()) };
            (priority, read(priority, Some(priority), None).await?, None)
        }
    };
    let next = match (page.next, lower) {
        (Some(place), _) => Some(ClaimPlace::at(priority, place)),
        (None, Some(lower)) => lower,
        (None, None) => {
            let lower = next_priority(runs, namespace, priority).await?;
            lower.map(|_| ClaimPlace::at(priority, Place::end()))
        }
    };
    Ok(ClaimPage { runs: page.runs, next })
}

async fn of_one_priority(
    runs: &dyn Runs,
    take: Take,
    query: &RunQuery,
    priority: Priority,
) -> Result<RunPage, StoreError> {
    let pending = async {
        match take {
            // A pending run waits for nothing else.
            Take::Pending | Take::Both if query.filter.suspension_kind.is_none() => runs.list(query).await,
            Take::Pending | Take::Both | Take::Ready => Ok(RunPage::default()),
        }
    };
    let of = |not_begun| ReadyOf { not_begun, priority };
    let first = |not_begun| runs.ready(&query.namespace, of(not_begun), query.after.as_ref(), READY_RUNS_MAX);
    let resumed = async {
        match take {
            Take::Ready | Take::Both => first(false).await,
            Take::Pending => Ok(RunPage::default()),
        }
    };
    let (mut page, not_begun, resumed) = tokio::try_join!(pending, first(true), resumed)?;
    add_ready(runs, query, of(true), not_begun, &mut page).await?;
    add_ready(runs, query, of(false), resumed, &mut page).await?;
    Ok(page)
}

/// Adds the ready runs that belong in a page, of which the first were read.
async fn add_ready(
    runs: &dyn Runs,
    query: &RunQuery,
    of: ReadyOf,
    mut ready: RunPage,
    page: &mut RunPage,
) -> Result<(), StoreError> {
    if ready.runs.is_empty() {
        return Ok(());
    }
    let mut found = Vec::new();
    loop {
        found.extend(ready.runs.into_iter().filter(|run| query.filter.matches(run)));
        // Both pages are known up to the earlier of their ends. Ready runs that do not match are read only once.
        let Some(next) = ready.next else { break };
        if page.next.as_ref().is_some_and(|until| *until <= next) {
            break;
        }
        if found.len() >= query.limit {
            page.next = Some(next);
            break;
        }
        ready = runs.ready(&query.namespace, of, Some(&next), READY_RUNS_MAX).await?;
    }
    page.runs.extend(found);
    page.runs.retain(|run| page.next.as_ref().is_none_or(|until| Place::of(run) <= *until));
    page.runs.sort_by_cached_key(Place::of);
    Ok(())
}

/// A run that one claimer was handed. Dropped undecided, the run waits for the next claimer.
pub(super) struct Candidate<'a> {
    queue: &'a Queue,
    pub(super) run_id: RunId,
    is_decided: bool,
}

impl Candidate<'_> {
    pub(super) fn decided(mut self, outcome: Outcome) {
        self.is_decided = true;
        self.queue.backlog().decided(&self.run_id, outcome);
        self.queue.decided.notify_waiters();
    }

    /// The claim was refused because these runs count. The store is asked whether they still do, since the feed has
    /// perhaps told of an end before the refusal came; then the run waits for an end, or for the next claimer.
    pub(super) async fn refused(self, runs: &dyn Runs, running: &[RunId]) -> Result<(), StoreError> {
        let value = self.queue.backlog().refused(&self.run_id, running);
        self.queue.look_for_room(runs, value.as_slice()).await?;
        self.decided(Outcome::Waits);
        Ok(())
    }
}

impl Drop for Candidate<'_> {
    fn drop(&mut self) {
        if !self.is_decided {
            self.queue.backlog().give_up(&self.run_id);
            self.queue.decided.notify_waiters();
        }
    }
}

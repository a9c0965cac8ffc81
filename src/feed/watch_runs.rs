//! One watch of many runs: a first view of them, then history, then live; back to history whenever the ring has moved
//! on.
//!
//! The first view shows runs as they were at the positions where the watch begins, whatever has happened since. So
//! every later event is due, and a cursor need only say how far the view has come. Runs are found as they are now, so a
//! run that has stopped matching is not shown. The event that made it stop is later than the view, and is shown. A run
//! that was purged before it could be shown is not found, and has no later event: where there may be one, the watch ends.

use std::sync::Arc;

use async_stream::try_stream;
use bytes::Bytes;
use futures_util::Stream;
use tokio::time::timeout_at;

use super::checkpoints::{Passing, Quiet};
use super::cursor::{Cursor, View, ViewOf};
use super::history::History;
use super::hub::SessionStand;
use super::ring::{Next, Stand};
use super::watch::Watch;
use super::{Change, Feed, Held, WatchError};
use crate::domain::{Filter, LedgerEpoch, Namespace, Positions, Revision, Run, RunKey, Time};
use crate::store::StoreError;
use crate::store::query::{Order, Place, Reach, RunQuery};
use crate::store::retention::Walked;

/// One frame of a watch of many runs, with the cursor that resumes after it.
#[derive(Clone, Debug)]
pub enum Frame {
    /// A run as it was when the watch began.
    Snapshot {
        run: Bytes,
        /// The cursor that resumes after this frame.
        cursor: Bytes,
    },
    /// One event and the run right after it.
    Change {
        event: Bytes,
        run: Bytes,
        /// Whether the run still matches.
        matches: bool,
        /// The run right after the event, for this process; large metadata is left out.
        after: Arc<Run>,
        /// The cursor that resumes after this frame.
        cursor: Bytes,
    },
    /// All events up to the moment when the watch began were delivered.
    CaughtUp {
        /// The cursor that resumes after this frame.
        cursor: Bytes,
    },
    /// No event came for a while; all events up to the cursor were delivered.
    Checkpoint {
        /// The cursor that resumes after this frame.
        cursor: Bytes,
        /// The store's clock when the log was last read up to the cursor; none in the first view.
        at: Option<Time>,
    },
}

/// The beginning of a watch of many runs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Begin {
    /// Now: with a view of runs, or with none.
    Now(Option<ViewOf>),
    /// After the last frame of another watch.
    After(Cursor),
}

impl Feed {
    /// Watches all runs of a namespace that match a filter.
    ///
    /// # Errors
    ///
    /// See [`WatchError`]; the stream ends with one when it is cut, and never without one.
    pub async fn watch_runs(
        &self,
        namespace: Namespace,
        filter: Filter,
        begin: Begin,
    ) -> Result<impl Stream<Item = Result<Frame, WatchError>> + Send + use<>, WatchError> {
        self.watch_runs_told(namespace, filter, begin).await.map(|(_, frames)| frames)
    }

    /// The same, with the stand of the watch, for whoever relies on what it tells.
    ///
    /// # Errors
    ///
    /// See [`watch_runs`](Feed::watch_runs).
    #[expect(clippy::too_many_lines, reason = "one generator yields the frames of a watch in their order")]
    pub async fn watch_runs_told(
        &self,
        namespace: Namespace,
        filter: Filter,
        begin: Begin,
    ) -> Result<(SessionStand, impl Stream<Item = Result<Frame, WatchError>> + Send + use<>), WatchError> {
        let epoch = self.epoch();
        self.goes_on(epoch)?;
        let filter = Arc::new(filter);
        // Admitted before the first read: the ring keeps events from here on.
        let admission = self.hub.admit(namespace.clone(), filter.clone(), epoch);
        let ends = self.look(self.log.ends()).await?;
        let Cursor { positions, view, .. } = self.beginning(&namespace, begin, epoch, &ends).await?;
        self.is_still(epoch)?;
        let (feed, told) = (self.clone(), admission.told());
        let frames = try_stream! {
            let mut watch = feed.shared_watch(epoch, namespace, filter);
            let Self { hub, stop, .. } = &feed;
            let mut passing = Passing::begin();
            if let Some(mut view) = view {
                loop {
                    feed.goes_on(epoch)?;
                    let page = feed.unless_stopped(watch.view(&view, &positions)).await?;
                    feed.is_still(epoch)?;
                    let (Viewed { runs, next, walked }, _held) = page?;
                    view.walked = view.went_on(walked)?;
                    for (place, run) in runs {
                        let cursor = watch.cursor(&positions, Some(View { shown: Some(place), ..view.clone() }));
                        yield Frame::Snapshot { run, cursor };
                        passing = Passing::begin();
                        feed.goes_on(epoch)?;
                    }
                    view.shown = next;
                    if view.shown.is_none() {
                        break;
                    }
                    if passing.is_long() {
                        yield watch.checkpoint(&positions, Some(view.clone()), None);
                    }
                }
            }
            let mut stand = Stand::at(positions);
            let mut history = History::default();
            let mut caught_up = false;
            let mut quiet = Quiet::since(None);
            loop {
                feed.goes_on(epoch)?;
                if !caught_up && history.is_empty() && stand.positions.reaches(&ends) {
                    caught_up = true;
                    yield Frame::CaughtUp { cursor: watch.cursor(&stand.positions, None) };
                    quiet = Quiet::since(hub.as_of());
                }
                let next = if caught_up && history.is_empty() { admission.next(&mut stand) } else { Next::Behind };
                match next {
                    Next::Change(entry, matches) => {
                        let shared = *stand.positions == *entry.positions;
                        let cursor = if shared { entry.cursor.clone() } else { watch.cursor(&stand.positions, None) };
                        let Change { event, run, filtered, .. } = entry.change.shown();
                        let (event, run, after) = (event.clone(), run.clone(), filtered.after.clone());
                        drop(entry);
                        feed.is_still(epoch)?;
                        yield Frame::Change { event, run, matches, after, cursor };
                        quiet = Quiet::since(hub.as_of());
                    }
                    Next::More => tokio::task::yield_now().await,
                    Next::Nothing(as_of) => {
                        let checkpoint = quiet.over(as_of);
                        if checkpoint.is_some() {
                            feed.is_still(epoch)?;
                            yield watch.checkpoint(&stand.positions, None, checkpoint);
                        }
                        tokio::select! {
                            biased;
                            () = stop.cancelled() => {}
                            _woken = timeout_at(quiet.until, admission.wake.notified()) => {}
                        }
                    }
                    Next::Behind => {
                        let change = feed.unless_stopped(history.next(&mut watch, &mut stand)).await?;
                        feed.is_still(epoch)?;
                        if let Some((change, matches)) = change? {
                            let cursor = watch.cursor(&stand.positions, None);
                            let (event, run) = (change.event.clone(), change.run.clone());
                            let after = change.filtered.after.clone();
                            yield Frame::Change { event, run, matches, after, cursor };
                            quiet = Quiet::since(hub.as_of());
                            passing = Passing::begin();
                        } else if !caught_up && passing.is_long() {
                            yield watch.checkpoint(&stand.positions, None, history.as_of);
                        } else if history.at_end {
                            // The session waits until the ring reaches its stand; until then it has nothing to show.
                            tokio::select! {
                                biased;
                                () = stop.cancelled() => {}
                                () = admission.wake.notified() => {}
                            }
                        } else if caught_up {
                            let checkpoint = quiet.over(history.as_of);
                            if checkpoint.is_some() {
                                yield watch.checkpoint(&stand.positions, None, checkpoint);
                            }
                        }
                    }
                }
            }
        };
        Ok((told, frames))
    }

    /// A watch that shares with others what it reads.
    fn shared_watch(&self, epoch: LedgerEpoch, namespace: Namespace, filter: Arc<Filter>) -> Watch<'_> {
        let generation = self.generation(epoch);
        Watch { feed: self, generation, folded: self.folded(generation), epoch, namespace, filter }
    }

    /// The cursor at which a watch begins; `ends` are the log's ends.
    async fn beginning(
        &self,
        namespace: &Namespace,
        begin: Begin,
        epoch: LedgerEpoch,
        ends: &Positions,
    ) -> Result<Cursor, WatchError> {
        match begin {
            Begin::Now(of) => {
                let view = of.map(|of| View { of, shown: None, walked: Walked::default() });
                Ok(Cursor { epoch, positions: ends.clone(), view })
            }
            Begin::After(cursor) if cursor.epoch != epoch => Err(WatchError::CursorInvalid),
            Begin::After(cursor) => {
                self.keeps(namespace, &cursor, ends).await?;
                Ok(cursor)
            }
        }
    }

    /// Refuses a cursor after which the ledger does not have every event.
    async fn keeps(&self, namespace: &Namespace, cursor: &Cursor, ends: &Positions) -> Result<(), WatchError> {
        if cursor.positions.len() != ends.len() || !ends.reaches(&cursor.positions) {
            return Err(WatchError::CursorInvalid);
        }
        let forgotten = self.look(self.log.forgotten(namespace)).await?;
        if cursor.positions.reaches(&forgotten) { Ok(()) } else { Err(WatchError::CursorExpired) }
    }
}

/// A page of the first view.
struct Viewed {
    runs: Vec<(Place, Bytes)>,
    /// The place to go on from; none after the last page.
    next: Option<Place>,
    /// How far purges had come after the page was read, and the store's clock; none where no run that was purged could be
    /// missing.
    walked: Option<(Walked, Time)>,
}

impl View {
    /// How far purges have come by a page that was read from the view's place on.
    ///
    /// The view does not end without a word of runs that it should have shown: one that was purged since the view's
    /// place was read is missing in the page, unless it was shown before. The runs that were purged ended before a known
    /// time, so they began before it as well, and a view that has come by this time has shown them all. What was purged
    /// before the first page was read was gone when the view began.
    fn went_on(&self, walked: Option<(Walked, Time)>) -> Result<Walked, WatchError> {
        let Some((walked, now)) = walked else { return Ok(self.walked.clone()) };
        if let Some(shown) = &self.shown
            && self.walked.purged_before(&walked, now).is_some_and(|before| shown.started_at <= before)
        {
            return Err(WatchError::CursorExpired);
        }
        Ok(walked)
    }
}

impl Watch<'_> {
    fn checkpoint(&self, positions: &Positions, view: Option<View>, at: Option<Time>) -> Frame {
        Frame::Checkpoint { cursor: self.cursor(positions, view), at }
    }

    /// A page of the first view, and the count of its bytes.
    async fn view(&self, view: &View, positions: &Positions) -> Result<(Viewed, Option<Held>), StoreError> {
        let View { of, shown, .. } = view.clone();
        let filter = match of {
            ViewOf::All => Some(Filter::clone(&self.filter)),
            ViewOf::Active => self.filter.active(),
        };
        let Some(filter) = filter else {
            return Ok((Viewed { runs: Vec::new(), next: None, walked: None }, None));
        };
        // Only runs that had ended when the watch began may be missing without a word: the end of any other is a later
        // event, and its purge is noted behind it.
        let may_lack = of == ViewOf::All
            && (filter.statuses.is_empty() || filter.statuses.iter().any(|status| status.is_terminal()));
        let query = RunQuery {
            namespace: self.namespace.clone(),
            filter,
            order: Order::OldestFirst,
            after: shown,
            limit: self.feed.limits.view_page_runs_max,
            bytes_max: self.feed.limits.page_bytes_max,
            metadata: true,
            reach: Reach::Long,
        };
        let positions = positions.clone();
        // One turn for all reads: with two turns, sessions would keep decoded runs between them.
        let read = move |Feed { log, runs: store, encode, .. }: Feed| async move {
            let page = store.list(&query).await?;
            let keys: Vec<RunKey> = page.runs.iter().map(Run::key).collect();
            let revisions = log.revisions_as_of(&keys, &positions).await?;
            let changed = page.runs.iter().zip(&revisions).filter(|(run, revision)| run.revision != **revision);
            let changed: Vec<(RunKey, Revision)> = changed.map(|(run, revision)| (run.key(), *revision)).collect();
            // `Revision::NONE` stands for no run.
            let mut as_they_were = store.runs_at(&changed).await?.into_iter();
            let runs = page.runs.into_iter().zip(revisions).filter_map(|(run, revision)| {
                let place = Place { started_at: run.started_at, run_id: run.run_id.clone() };
                let run = if run.revision == revision { Some(run) } else { as_they_were.next().flatten() };
                let run = run.filter(|run| query.filter.matches(run))?;
                Some((place, encode.run(&run)))
            });
            let runs = runs.collect();
            // Read last: it covers all that was purged while the page was read.
            let walked = if may_lack { Some(store.walked_all(&query.namespace).await?) } else { None };
            Ok(Viewed { runs, next: page.next, walked })
        };
        let weight = |viewed: &Viewed| viewed.runs.iter().map(|(_, run)| run.len()).sum();
        self.feed.page(self.feed.reads.clone(), weight, read).await
    }
}

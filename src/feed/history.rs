//! The history of a watch of many runs: pages of the log, folded and filtered for the watch.

use std::sync::Arc;

use tokio::task::yield_now;

use super::fold::Folder;
use super::pages::{PageEvent, Shared};
use super::ring::Stand;
use super::watch::Watch;
use super::{Change, Feed, Held, Reader, WatchError};
use crate::domain::ids::DEFAULT_NAMESPACE;
use crate::domain::{Changes, Filter, Positions, Revision, Run, RunKey, Status, Time};
use crate::store::{LoggedEvent, StoreError, run_at};

/// Pages of a run's later events that are read at most, to tell whether an unreadable event may be for a watch.
const LATER_PAGES_MAX: usize = 16;

/// Events after which a session yields to other tasks. Any other call waits for one such step of each session that fell
/// behind.
const YIELD_EVENTS: usize = 8;

/// Reads the log after a session's stand. Holds one page of events.
#[derive(Default)]
pub(super) struct History {
    /// The page, and its next event.
    page: Option<(Arc<Shared>, usize)>,
    /// Counts the page.
    held: Option<Held>,
    /// The last page was the log's end, and all of its events were taken.
    pub(super) at_end: bool,
    /// The time up to which the page goes, by the store's clock.
    pub(super) as_of: Option<Time>,
}

impl History {
    pub(super) fn is_empty(&self) -> bool {
        self.page.is_none()
    }

    /// The next change that the watch shows; none after a page's last one. An event that cannot be read, or folded, is
    /// passed over unless it may be for the watch.
    pub(super) async fn next(
        &mut self,
        watch: &mut Watch<'_>,
        stand: &mut Stand,
    ) -> Result<Option<(Arc<Change>, bool)>, WatchError> {
        let feed = watch.feed;
        if watch.is_behind_a_cleaning() {
            // The page may show what was taken out since.
            self.page = None;
        }
        let watch = &*watch;
        if self.page.is_none() {
            self.held = None;
            let (page, held) = watch.page(stand.positions.clone()).await?;
            if page.expired {
                return Err(WatchError::CursorExpired);
            }
            self.held = held;
            // A page of one namespace without an event leads over those of others, and another step may follow.
            self.at_end = page.events.is_empty() && stand.positions.reaches(page.end());
            self.as_of = page.as_of;
            self.page = Some((page, 0));
        }
        let runs = Folder { runs: &feed.runs, cache: &watch.folded, turns: Some((&feed.reads, feed.caller)) };
        while let Some((page, next)) = &mut self.page {
            let Some(read) = page.events.get(*next) else {
                // A page of one namespace leaves out events of others: the session need not see them.
                stand.positions.advance(page.end());
                break;
            };
            let (index, place) = (*next, read.place());
            *next += 1;
            if next.is_multiple_of(YIELD_EVENTS) {
                yield_now().await;
            }
            // A page that others share may begin before the session's stand.
            if place.1 <= stand.positions.of(place.0) {
                continue;
            }
            let (key, revision) = match read {
                PageEvent::Event(LoggedEvent { event, .. }) => (&event.key, event.revision),
                PageEvent::Unreadable { key, revision, .. } => (key, *revision),
            };
            if key.namespace != watch.namespace {
                stand.pass(place);
                continue;
            }
            if let Some(change) = page.change(index) {
                stand.pass(place);
                match change.shown_to(&watch.namespace, &watch.filter) {
                    Some(matches) => return Ok(Some((change, matches))),
                    None => continue,
                }
            }
            let folded = match read {
                PageEvent::Event(LoggedEvent { event, .. }) => {
                    let following = page.events[*next..].iter().filter_map(|read| match read {
                        PageEvent::Event(logged) => Some(&logged.event),
                        PageEvent::Unreadable { .. } => None,
                    });
                    let following = following.filter(|event| event.key.namespace == watch.namespace);
                    match runs.fold(event, following).await {
                        Ok(folded) => Ok((event, folded)),
                        Err(error) if error.may_be_of_one_run() => Err(error),
                        Err(error) => return Err(error.into()),
                    }
                }
                PageEvent::Unreadable { error, .. } => Err(StoreError::shared(error)),
            };
            match folded {
                Ok((event, folded)) => {
                    stand.pass(place);
                    if let Some(matches) = folded.shown_to(&watch.filter) {
                        let change = Arc::new(Change::new(event, &folded, &*feed.encode));
                        feed.pages.leave(page, index, &change);
                        return Ok(Some((change, matches)));
                    }
                }
                Err(error) => {
                    // The events that the run is folded from may have been purged since the page was read.
                    let namespace = watch.namespace.clone();
                    let forgotten = feed.read(move |feed| async move { feed.log.forgotten(&namespace).await }).await?;
                    if !stand.positions.reaches(&forgotten) {
                        return Err(WatchError::CursorExpired);
                    }
                    feed.hub.log_unreadable(key, revision, &error);
                    if watch.may_be_for(key, revision).await? {
                        return Err(WatchError::Unreadable(error));
                    }
                    stand.pass(place);
                }
            }
        }
        self.page = None;
        self.held = None;
        Ok(None)
    }
}

impl Watch<'_> {
    /// Whether something was taken out of the log since the watch last looked. From here on, it shares with those who
    /// have seen this.
    fn is_behind_a_cleaning(&mut self) -> bool {
        let generation = self.feed.generation(self.epoch);
        let is_behind = self.generation != generation;
        if is_behind {
            (self.generation, self.folded) = (generation, self.feed.folded(generation));
        }
        is_behind
    }

    /// The page after a stand, and the count of its bytes for the client: one that another session has read, or the
    /// store's.
    async fn page(&self, stand: Positions) -> Result<(Arc<Shared>, Option<Held>), StoreError> {
        let (epoch, generation) = (self.epoch, self.generation);
        let namespace = self.namespace.clone();
        let of = (namespace != DEFAULT_NAMESPACE).then(|| namespace.clone());
        let read = move |feed: Feed| async move {
            // The session that had the turn before may have read the page.
            if let Some(page) = feed.pages.find(generation, of.as_ref(), &stand) {
                return Ok(page);
            }
            let Feed { log, limits, pages, .. } = &feed;
            let (events_max, bytes_max) = (limits.log_page_events_max, limits.page_bytes_max);
            let read = match &of {
                Some(namespace) => log.changes_of(namespace, &stand, events_max, bytes_max).await?,
                None => log.changes(&stand, events_max, bytes_max).await?,
            };
            let forgotten = log.forgotten(&namespace).await?;
            let page = Arc::new(Shared::of(stand, of, read, &forgotten));
            // A page that was read while the ledger turned out to have lost its past may be of either.
            if feed.epoch() == epoch && !page.expired {
                pages.keep(generation, &page);
            }
            Ok(page)
        };
        let hold = |page: &Arc<Shared>, reader: Arc<dyn Reader>| {
            let in_all = page.counted(|bytes| reader.hold_in_all(bytes));
            Box::new((reader.hold(page.weight()), in_all)) as Held
        };
        self.feed.page_held(self.feed.reads.clone(), hold, read).await
    }

    /// Whether an event that cannot be read may be for this watch: its run matched before it, or may have matched after
    /// it by all that is known.
    async fn may_be_for(&self, key: &RunKey, revision: Revision) -> Result<bool, StoreError> {
        let known = |read: Result<Option<Run>, StoreError>| match read {
            Ok(run) => Ok(run),
            Err(error) if error.may_be_of_one_run() => Ok(None),
            Err(error) => Err(error),
        };
        let earlier = revision.before();
        let before = match earlier {
            None => None,
            Some(before) => {
                if let Some(run) = self.folded.peek(&(key.clone(), before)) {
                    Some(Run::clone(&run))
                } else {
                    let key = key.clone();
                    known(self.feed.read(move |feed| async move { run_at(&*feed.runs, &key, before).await }).await)?
                }
            }
        };
        if before.as_ref().is_some_and(|run| self.filter.matches(run)) {
            return Ok(true);
        }
        let asked = key.clone();
        let now = known(self.feed.read(move |feed| async move { feed.runs.run(&asked).await }).await)?;
        let for_good = of_what_never_changes(&self.filter);
        let Some(now) = now else { return Ok(before.is_none_or(|before| for_good.matches(&before))) };
        if !for_good.matches(&now) {
            return Ok(false);
        }
        // The run's state after the event, and before it where that state could not be read, is taken to be the present
        // one. Fields that were changed since exclude nothing.
        let mut filter = Filter::clone(&self.filter);
        let mut statuses = Vec::new();
        let mut read = earlier.filter(|_| before.is_none()).unwrap_or(revision);
        for _ in 0..LATER_PAGES_MAX {
            if read >= now.revision {
                break;
            }
            let asked = key.clone();
            let page = move |Feed { log, limits, .. }: Feed| async move {
                log.run_events(&asked, read, limits.log_page_events_max, limits.page_bytes_max).await
            };
            let page = match self.feed.read(page).await {
                Ok(page) => page,
                Err(error) if error.may_be_of_one_run() => break,
                Err(error) => return Err(error),
            };
            let Some(last) = page.last() else { break };
            read = last.revision;
            for event in page {
                if event.revision <= revision.next() {
                    statuses.extend(event.from);
                }
                forget_changed(&mut filter, &event.changes);
            }
        }
        if read < now.revision {
            return Ok(true);
        }
        let was = |status: Status| {
            let mut filter = filter.clone();
            // The log does not tell whether the run was at rest.
            if filter.or.take().is_some() && !status.is_terminal() {
                filter.statuses.clear();
            }
            (filter.suspended, filter.ready, filter.suspension_kind) = (None, None, None);
            let mut run = now.without_metadata();
            run.status = status;
            filter.matches(&run)
        };
        Ok((now.revision == revision && filter.matches(&now)) || statuses.into_iter().any(was))
    }
}

/// The filter's conditions on fields of a run that never change.
fn of_what_never_changes(filter: &Filter) -> Filter {
    let Filter { task_thread_id, started_from, started_before, parent_run_id, continues_run_id, lifecycle, .. } =
        filter;
    Filter {
        lifecycle: lifecycle.clone(),
        task_thread_id: task_thread_id.clone(),
        started_from: *started_from,
        started_before: *started_before,
        parent_run_id: parent_run_id.clone(),
        continues_run_id: continues_run_id.clone(),
        ..Filter::default()
    }
}

/// Drops a filter's conditions on fields that an event set. The status has its own place in an event.
fn forget_changed(filter: &mut Filter, changes: &Changes) {
    let Filter { agent_id, workflow_id, audit_session_id, route, labels, phase, .. } = filter;
    phase.take_if(|_| changes.refinements.as_ref().is_some_and(|change| change.position.phase.is_some()));
    agent_id.take_if(|_| changes.agent_id.is_some());
    workflow_id.take_if(|_| changes.bindings.workflow_id.is_some());
    audit_session_id.take_if(|_| changes.bindings.audit_session_id.is_some());
    route.take_if(|_| changes.bindings.route.is_some());
    labels.retain(|key, _| !changes.labels.set.contains_key(key) && !changes.labels.remove.contains(key));
}

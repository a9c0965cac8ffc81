//! The history of a watch of many runs: pages of the log, folded and filtered for the watch.

use std::collections::VecDeque;

use super::fold::Folder;
use super::ring::Stand;
use super::watch_runs::Watch;
use super::{Change, Feed, Held, WatchError};
use crate::domain::{Changes, Filter, Revision, Run, RunKey, Status, Time};
use crate::store::{LoggedEvent, Page, StoreError, Unreadable};

/// Pages of a run's later events that are read at most, to tell whether an unreadable event may be for a watch.
const LATER_PAGES_MAX: usize = 16;

/// Reads the log after a session's stand. Holds one page of events.
#[derive(Default)]
pub(super) struct History {
    events: VecDeque<Result<LoggedEvent, Unreadable>>,
    /// Counts the page.
    held: Option<Held>,
    /// The last page was the log's end, and all of its events were taken.
    pub(super) at_end: bool,
    /// The time up to which the page goes, by the store's clock.
    pub(super) as_of: Option<Time>,
}

impl History {
    pub(super) fn is_empty(&self) -> bool {
        self.events.is_empty()
    }

    /// The next change that the watch shows; none after a page's last one. An event that cannot be read, or folded, is
    /// passed over unless it may be for the watch.
    pub(super) async fn next(
        &mut self,
        watch: &Watch<'_>,
        stand: &mut Stand,
    ) -> Result<Option<(Change, bool)>, WatchError> {
        let feed = watch.feed;
        if self.events.is_empty() {
            self.held = None;
            let after = stand.positions.clone();
            let read = |Feed { log, limits, .. }: Feed| async move {
                log.changes(&after, limits.log_page_events_max, limits.page_bytes_max).await
            };
            let weight = |page: &Page| page.events.iter().flatten().map(|logged| logged.event.weight()).sum();
            let (page, held) = feed.page(feed.reads.clone(), weight, read).await?;
            self.held = held;
            self.at_end = page.events.is_empty();
            // A page that is cut shows for certain only the log up to its last event.
            let last = page.events.last().map(|read| match read {
                Ok(logged) => logged.event.at,
                Err(unreadable) => unreadable.at,
            });
            self.as_of = if page.cut { last } else { Some(page.as_of) };
            self.events = page.events.into();
        }
        let runs = Folder { runs: &feed.runs, cache: &watch.folded, turns: Some(&feed.reads) };
        while let Some(read) = self.events.pop_front() {
            let (place, event) = match read {
                Ok(LoggedEvent { shard, position, event }) => ((shard, position), Ok(event)),
                Err(Unreadable { shard, position, key, revision, error, .. }) => {
                    ((shard, position), Err((key, revision, error)))
                }
            };
            let namespace = event.as_ref().map_or_else(|(key, ..)| &key.namespace, |event| &event.key.namespace);
            if *namespace != watch.namespace {
                stand.pass(place);
                continue;
            }
            let folded = match event {
                Ok(event) => {
                    let following = self.events.iter().flatten().map(|logged| &logged.event);
                    let following = following.filter(|event| event.key.namespace == watch.namespace);
                    match runs.fold(&event, following).await {
                        Ok(folded) => Ok((event, folded)),
                        Err(error) if error.may_be_of_one_run() => Err((event.key, event.revision, error)),
                        Err(error) => return Err(error.into()),
                    }
                }
                Err(unreadable) => Err(unreadable),
            };
            match folded {
                Ok((event, folded)) => {
                    stand.pass(place);
                    if let Some(matches) = folded.shown_to(&watch.filter) {
                        return Ok(Some((Change::new(&event, &folded, &*feed.encode), matches)));
                    }
                }
                Err((key, revision, error)) => {
                    feed.hub.log_unreadable(&key, revision, &error);
                    if watch.may_be_for(&key, revision).await? {
                        return Err(WatchError::Unreadable(error));
                    }
                    stand.pass(place);
                }
            }
        }
        self.held = None;
        Ok(None)
    }
}

impl Watch<'_> {
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
                    known(self.feed.read(move |feed| async move { feed.runs.run_at(&key, before).await }).await)?
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
            // The log does not tell whether the run was ready.
            if filter.or_ready && !status.is_terminal() {
                filter.statuses.clear();
            }
            filter.or_ready = false;
            let mut run = now.without_metadata();
            run.status = status;
            filter.matches(&run)
        };
        Ok((now.revision == revision && filter.matches(&now)) || statuses.into_iter().any(was))
    }
}

/// The filter's conditions on fields of a run that never change.
fn of_what_never_changes(filter: &Filter) -> Filter {
    let Filter { task_thread_id, started_from, started_before, .. } = filter;
    Filter {
        task_thread_id: task_thread_id.clone(),
        started_from: *started_from,
        started_before: *started_before,
        ..Filter::default()
    }
}

/// Drops a filter's conditions on fields that an event set. The status has its own place in an event.
fn forget_changed(filter: &mut Filter, changes: &Changes) {
    let Filter { agent_id, workflow_id, audit_session_id, route, labels, .. } = filter;
    agent_id.take_if(|_| changes.agent_id.is_some());
    workflow_id.take_if(|_| changes.links.workflow_id.is_some());
    audit_session_id.take_if(|_| changes.links.audit_session_id.is_some());
    route.take_if(|_| changes.links.route.is_some());
    labels.retain(|key, _| !changes.labels.set.contains_key(key) && !changes.labels.remove.contains(key));
}

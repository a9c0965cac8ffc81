//! One run, folded from its events and held against its row.

use std::collections::BTreeMap;

use super::difference::{Difference, Row};
use crate::domain::evolve::evolve;
use crate::domain::ids::request_key;
use crate::domain::parts::redaction::REDACTED;
use crate::domain::sides::contents::ContentsOf;
use crate::domain::{
    ContentDigest, ContentTable, Event, EventOf, Hash, Link, Revision, Route, Run, RunId, RunKey, Status, Time,
};
use crate::store::inspect::{ActiveRow, EventRow, RunRow};
use crate::store::json::{self, EventColumns, RunColumns};

/// Takes a run's events in the order of their revisions.
pub(super) struct Replay<'a> {
    row: &'a RunRow,
    key: String,
    /// The revision that comes next.
    next: i64,
    /// The run so far; none before its first event, and from a gap to the next event that carries the whole run.
    run: Option<Run>,
    /// Whether an event is missing in `run`.
    gap: bool,
    /// What must stand beside the run.
    beside: BTreeMap<Place, Expected>,
    /// Whether an event was missing at any time, so that this is not known.
    is_unsure: bool,
}

/// The place of a row beside its run: its table, its revision and its number.
pub(super) type Place = (ContentTable, i64, i64);

/// What a row beside its run must be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Expected {
    pub(super) content: ContentDigest,
    /// The key of a link, and whether it may have none, as one that was taken out.
    pub(super) link_key: Option<(Hash, bool)>,
}

impl Expected {
    fn content(content: ContentDigest) -> Self {
        Self { content, link_key: None }
    }

    fn link(link: &Link) -> Self {
        let content = ContentDigest::new(&link.text());
        Self { content, link_key: Some((link.key(), link.target == REDACTED)) }
    }
}

/// What must stand beside a run as it was read.
pub(super) struct Wanted {
    pub(super) revision: i64,
    pub(super) is_purged: bool,
    /// None where it is not known.
    pub(super) rows: Option<BTreeMap<Place, Expected>>,
}

impl<'a> Replay<'a> {
    pub(super) fn new(row: &'a RunRow) -> Self {
        Self {
            row,
            key: format!("{}/{}", row.columns.key.namespace, row.columns.key.run_id),
            next: Revision::FIRST.get().cast_signed(),
            run: None,
            gap: false,
            beside: BTreeMap::new(),
            is_unsure: false,
        }
    }

    /// The revision of the run's row.
    pub(super) fn revision(&self) -> i64 {
        self.row.columns.revision
    }

    pub(super) fn key(&self) -> &'a RunKey {
        &self.row.columns.key
    }

    /// The next event. Events above the row's revision were committed after the row was read.
    pub(super) fn take(&mut self, event: EventRow, differences: &mut Vec<Difference>) {
        if event.revision > self.row.columns.revision {
            return;
        }
        let mut said = Row { table: "run_events", key: &self.key, differences };
        if event.revision != self.next {
            said.differs("revision", self.next, event.revision);
            self.gap = true;
            self.is_unsure = true;
            self.run = None;
        }
        self.next = event.revision.saturating_add(1);
        if self.row.columns.purged_at.is_some() {
            return said.differs("row", "none: the run was purged", format!("revision {}", event.revision));
        }
        let key = format!("{} revision {}", self.key, event.revision);
        let mut said = Row { table: "run_events", key: &key, differences };
        request(&event, &mut said);
        let keyframe = event.keyframe;
        let columns = EventColumns {
            key: event.key,
            revision: u64::try_from(event.revision).map_or(Revision::NONE, Revision::from),
            at: event.at,
            event: event.event,
            request_id: event.request_id,
        };
        match json::read_event(columns) {
            Ok(event) => self.fold(&event, &mut said),
            Err(error) => {
                said.unreadable(&error);
                self.gap = true;
                self.is_unsure = true;
                self.run = None;
            }
        }
        self.keyframe(event.revision, keyframe.as_deref(), &mut said);
    }

    fn fold(&mut self, event: &Event, said: &mut Row<'_>) {
        if self.gap {
            return;
        }
        let before = self.run.as_ref().map(|run| run.status);
        said.same("event.from", &before, &event.from);
        let (run, stays) = (self.run.as_ref(), event.from == Some(event.to));
        let is_archived = run.is_some_and(|run| run.archived_at.is_some());
        let allowed = match event.event_type.facts().of {
            EventOf::Step => Status::allows(event.from, event.to),
            EventOf::Active => stays && !event.to.is_terminal(),
            EventOf::Running => stays && event.to == Status::Running,
            EventOf::Ended => stays && event.to.is_terminal() && !is_archived,
            EventOf::Archived => stays && is_archived,
            EventOf::Presumed => stays && run.is_some_and(|run| run.supervision.presumed),
            EventOf::Any => stays,
        };
        // Times never fall within a run; a run after another one may bear an earlier time, where the clock was set back.
        if let Some(at) = self.run.as_ref().map(|run| run.updated_at).filter(|at| event.at < *at) {
            said.differs("at", format!("{at} or later"), event.at);
        }
        if !allowed {
            let from = event.from.map_or("nothing", Status::name);
            said.differs("event.to", format!("what may follow {from}"), event.to);
        }
        let run = evolve(self.run.take(), event);
        let ContentsOf { input, result, links: (first, links) } = ContentsOf::event(event, &run);
        let revision = i64::try_from(event.revision.get()).unwrap_or(i64::MAX);
        let input = input.map(|digest| ((ContentTable::Input, revision, 0), Expected::content(digest)));
        let result = result.map(|digest| ((ContentTable::Result, revision, 0), Expected::content(digest)));
        let links = (first..).zip(links);
        let links =
            links.map(|(number, link)| ((ContentTable::Link, revision, i64::from(number)), Expected::link(link)));
        self.beside.extend(input.into_iter().chain(result).chain(links));
        self.run = Some(run);
    }

    /// What must stand beside the run: nothing, of one that was purged.
    pub(super) fn wanted(&mut self) -> Wanted {
        let is_purged = self.row.columns.purged_at.is_some();
        let beside = std::mem::take(&mut self.beside);
        let rows =
            if is_purged { Some(BTreeMap::new()) } else { (!self.is_unsure && !self.is_cut()).then_some(beside) };
        Wanted { revision: self.row.columns.revision, is_purged, rows }
    }

    /// Every 32nd event carries the whole run, and no other does.
    fn keyframe(&mut self, revision: i64, keyframe: Option<&str>, said: &mut Row<'_>) {
        let due = u64::try_from(revision).is_ok_and(|revision| Revision::from(revision).has_keyframe());
        match keyframe {
            None if due => said.differs("keyframe", "the whole run", "nothing"),
            Some(_) if !due => said.differs("keyframe", "nothing", "a run"),
            None => {}
            Some(keyframe) => match (json::read_keyframe(self.key(), keyframe), &self.run) {
                (Ok(there), Some(run)) => same_run("keyframe", run, &there, said),
                (Ok(there), None) => {
                    self.run = Some(there);
                    self.gap = false;
                }
                (Err(error), _) => said.unreadable(&error),
            },
        }
    }

    /// Whether events are missing at the end, as of a run that was purged since its row was read.
    pub(super) fn is_cut(&self) -> bool {
        self.row.columns.purged_at.is_none() && self.next <= self.row.columns.revision
    }

    /// After the last event: the row must be the fold.
    pub(super) fn end(self, differences: &mut Vec<Difference>) {
        let row = self.row;
        let revision = row.columns.revision;
        let last = self.next.saturating_sub(1);
        let is_purged = row.columns.purged_at.is_some();
        if last < revision && !is_purged {
            let mut said = Row { table: "run_events", key: &self.key, differences };
            said.differs("revision", format!("events up to revision {revision}"), format!("none after {last}"));
        }
        let mut said = Row { table: "runs", key: &self.key, differences };
        let run = match self.run.filter(|_| last == revision && !is_purged) {
            Some(folded) => {
                match json::with_documents(folded.clone(), &row.columns) {
                    Ok(stored) => same_run("record", &folded, &stored, &mut said),
                    Err(error) => said.unreadable(&error),
                }
                columns(&row.columns, &folded, &mut said);
                origin(row, &folded, &mut said);
                folded
            }
            // With a gap in the events, there is nothing to hold the row against.
            None => match json::read_run(row.columns.clone()) {
                Ok(stored) => stored,
                Err(error) => return said.unreadable(&error),
            },
        };
        let mut said = Row { table: "active", key: &self.key, differences };
        active(row, &run, &mut said);
        let mut said = Row { table: "leases", key: &self.key, differences };
        lease(row, &run, &mut said);
        let mut said = Row { table: "suspended", key: &self.key, differences };
        rest(row, &run, &mut said);
    }
}

fn same_run(what: &str, expected: &Run, found: &Run, said: &mut Row<'_>) {
    if expected == found {
        return;
    }
    let value = |run: &Run| serde_json::to_value(run).expect("strings, finite numbers and string keys serialize");
    said.same_fields(what, &value(expected), &value(found));
    if expected.metadata != found.metadata {
        let value = |run: &Run| serde_json::to_string(&run.metadata).expect("finite numbers and string keys serialize");
        said.differs(if what == "record" { "metadata" } else { "keyframe.metadata" }, value(expected), value(found));
    }
}

fn request(event: &EventRow, said: &mut Row<'_>) {
    let key = event.request_id.as_ref().map(|id| request_key(&event.key, id));
    said.same("request_key", &key, &event.request_key);
    let digest = event.request_digest.as_ref().map(|digest| format!("{} bytes", digest.len()));
    said.same("request_digest", &event.request_id.as_ref().map(|_| "32 bytes".to_owned()), &digest);
}

fn columns(row: &RunColumns<String>, run: &Run, said: &mut Row<'_>) {
    said.same("revision", &i64::try_from(run.revision.get()).unwrap_or(i64::MAX), &row.revision);
    said.same("status", &run.status.code(), &row.status);
    if run.started_at != row.started_at {
        said.differs("started_at", run.started_at, row.started_at);
    }
    said.same("task_thread_id", &run.task_thread_id, &row.task_thread_id);
    said.same("agent_id", &run.agent_id, &row.agent_id);
    said.same("workflow_id", &run.bindings.workflow_id, &row.workflow_id);
    said.same("audit_session_id", &run.bindings.audit_session_id, &row.audit_session_id);
    said.same("route", &run.bindings.route.map(|route| Route::name(route).to_owned()), &row.route);
    let labels: Result<BTreeMap<String, String>, _> =
        row.labels.as_deref().map_or(Ok(BTreeMap::new()), serde_json::from_str);
    match labels {
        Ok(labels) => said.same("labels", &run.labels, &labels),
        Err(error) => said.differs("labels", "something readable", error),
    }
}

fn origin(row: &RunRow, run: &Run, said: &mut Row<'_>) {
    let refinements = run.refinements.as_deref();
    let of = |id: Option<&RunId>| id.map(ToString::to_string);
    let parent = of(refinements.and_then(|refinements| refinements.origin.parent_run_id.as_ref()));
    let continued = of(refinements.and_then(|refinements| refinements.origin.continues_run_id.as_ref()));
    said.same("parent_run_id", &parent, &row.origin[0]);
    said.same("continues_run_id", &continued, &row.origin[1]);
}

/// A row in `active` exactly while the run is not terminal.
fn active(row: &RunRow, run: &Run, said: &mut Row<'_>) {
    match row.active {
        None if run.status.is_terminal() => {}
        None => said.differs("row", format!("one: the run is {}", run.status), "none"),
        Some(_) if run.status.is_terminal() => said.differs("row", format!("none: the run is {}", run.status), "one"),
        Some(ActiveRow { status, started_at, due_at, priority }) => {
            said.same("priority", &run.queued_priority().map(crate::domain::Priority::get), &priority);
            said.same("status", &run.status.code(), &status);
            if run.started_at != started_at {
                said.differs("started_at", run.started_at, started_at);
            }
            let shown = |at: Option<Time>| at.map(|at| at.to_string());
            // Of a run that was written while the clock was ahead, before the ledger had a steady clock, the time that is left
            // was counted from then on: it is due earlier than its events say.
            let is_sooner = run.supervision.steady_ahead_micros == 0
                && run.due_at().zip(due_at).is_some_and(|(expected, found)| found < expected && found < run.updated_at);
            if !is_sooner {
                said.same("due_at", &shown(run.due_at()), &shown(due_at));
            }
        }
    }
}

/// A row in `suspended` exactly while the run is at rest.
fn rest(row: &RunRow, run: &Run, said: &mut Row<'_>) {
    match (run.rest(), &row.rest) {
        (None, None) => {}
        (None, Some(_)) => said.differs("row", "none: the run is not at rest", "one"),
        (Some(_), None) => said.differs("row", "one: the run is at rest", "none"),
        (Some(expected), Some(found)) => {
            if expected.started_at != found.started_at {
                said.differs("started_at", expected.started_at, found.started_at);
            }
            said.same("kind", &expected.kind, &found.kind);
            said.same("ready", &expected.ready, &found.ready);
            said.same("keep_slot", &expected.keep_slot, &found.keep_slot);
            said.same("priority", &expected.priority.get(), &found.priority.get());
        }
    }
}

/// A row in `leases` exactly while the run has a lease and is neither terminal nor at rest. The lease's expiry and
/// progress are in no event.
fn lease(row: &RunRow, run: &Run, said: &mut Row<'_>) {
    let expected = run.supervision.lease.filter(|_| !run.status.is_terminal() && !run.is_at_rest());
    match (expected, row.lease) {
        (None, None) => {}
        (None, Some((epoch, _))) => said.differs("row", "none: nobody holds the run", format!("one of epoch {epoch}")),
        (Some(lease), None) => said.differs("row", format!("one of epoch {}", lease.epoch), "none"),
        (Some(lease), Some((epoch, ttl_ms))) => {
            said.same("epoch", &i64::try_from(lease.epoch.get()).unwrap_or(i64::MAX), &epoch);
            said.same("ttl_ms", &i64::try_from(lease.ttl_ms).unwrap_or(i64::MAX), &ttl_ms);
        }
    }
}

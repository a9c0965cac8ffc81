//! The runs of a commit, with what a suspension says (`record`); and the rows in `active` of those that are not
//! terminal, with the time at which a run is due, also by its suspension (`active.due_at`).

use tokio_postgres::types::Json;

use crate::domain::{Changes, NewEvent, Priority, Run, RunWrite, Status, Time};
use crate::store::json::Record;
use crate::store::postgres::parts::columns::Columns;
use crate::store::postgres::parts::{Parts, key};
use crate::store::postgres::rows::{At, bigint};

/// The last status of a run that is not terminal.
const ALIVE_MAX: Status = Status::Running;

impl<'a> Parts<'a> {
    pub(super) fn insert_runs(&mut self, shard: &str, at: &str, writes: &[&'a RunWrite], refined: bool) {
        let mut columns = Columns::of_runs(writes);
        columns.add("task_thread_id", "text", runs(writes).map(|run| run.task_thread_id.as_str()));
        columns.changeable(writes);
        columns.add(
            "metadata",
            "jsonb",
            runs(writes).map(|run| (!run.metadata.is_empty()).then_some(Json(&run.metadata))),
        );
        let due = runs(writes).any(|run| run.due_at().is_some());
        if due {
            columns.add("due_at", "timestamptz", runs(writes).map(|run| run.due_at().map(At)));
        }
        let prioritised = runs(writes).any(|run| run.queued_priority().is_some());
        if prioritised {
            columns.add("priority", "smallint", runs(writes).map(|run| run.queued_priority().map(Priority::get)));
        }
        // A run that was created in this commit may have been archived in it.
        let archived = runs(writes).any(|run| run.archived_at.is_some());
        let (archived, value) = if archived {
            columns.archived(writes);
            (", archived_at", ", v.archived_at")
        } else {
            ("", "")
        };
        let (origin, of_origin) = if refined {
            columns.origin(writes);
            (", parent_run_id, continues_run_id", ", v.parent_run_id, v.continues_run_id")
        } else {
            ("", "")
        };
        self.table("new", columns);
        self.writes.push(format!(
            "created as (
    insert into runs (shard, namespace, run_id, revision, status, started_at, task_thread_id,
                      agent_id, workflow_id, audit_session_id, route, labels, record, metadata{archived}{origin})
    select {shard}, v.namespace, v.run_id, v.revision, v.status, {at}, v.task_thread_id,
           v.agent_id, v.workflow_id, v.audit_session_id, v.route, v.labels, v.record, v.metadata{value}{of_origin}
    from place, new v)"
        ));
        if runs(writes).any(|run| !run.status.is_terminal()) {
            let (column, value) = if due { (", due_at", ", v.due_at") } else { ("", "") };
            let (rank, of_rank) = if prioritised { (", priority", ", v.priority") } else { ("", "") };
            self.writes.push(format!(
                "born as (
    insert into active (shard, namespace, run_id, started_at, status{column}{rank})
    select {shard}, v.namespace, v.run_id, {at}, v.status{value}{of_rank}
    from place, new v
    where v.status <= {ALIVE_MAX})",
                ALIVE_MAX = ALIVE_MAX.code(),
            ));
        }
    }

    /// Leaves metadata that does not change alone: when it is not written, it costs nothing, whatever its size.
    pub(super) fn update_runs(&mut self, shard: &str, writes: &[&'a RunWrite], events: &[NewEvent]) {
        let before = |write: &&RunWrite| write.before.as_ref().map_or(0, |before| bigint(before.revision));
        let mut columns = Columns::of_runs(writes);
        columns.add("before", "bigint", writes.iter().map(before));
        let mut set = "revision = v.revision, status = v.status, record = v.record".to_owned();
        if events.iter().any(|new| sets_columns(&new.event.changes)) {
            columns.changeable(writes);
            set += ", agent_id = v.agent_id, workflow_id = v.workflow_id, audit_session_id = v.audit_session_id,
        route = v.route, labels = v.labels";
        } else {
            columns.add("record", "jsonb", runs(writes).map(|run| Json(Record::of(run))));
        }
        if events.iter().any(|new| new.event.event_type.is_of_the_archive()) {
            columns.archived(writes);
            set += ", archived_at = v.archived_at";
        }
        if writes.iter().any(|write| write.metadata_changed) {
            let metadata = |write: &&'a RunWrite| {
                let run = &*write.run;
                (write.metadata_changed && !run.metadata.is_empty()).then_some(Json(&run.metadata))
            };
            columns.add("rewritten", "bool", writes.iter().map(|write| write.metadata_changed));
            columns.add("metadata", "jsonb", writes.iter().map(metadata));
            set += ", metadata = case when v.rewritten then v.metadata else r.metadata end";
        }
        let moves = Moves::new(writes);
        moves.add_to(&mut columns, writes);
        let rows = self.table("asked", columns);
        self.tables.push(format!(
            "old as materialized (
    select *, (select r.ctid from runs r where {} and r.revision = v.before and r.purged_at is null) as place_in_runs from asked v)",
            key("r", shard),
        ));
        self.writes.push(format!(
            "changed as (
    update runs r set {set} from place, old v where r.ctid = v.place_in_runs returning 1)"
        ));
        self.count("changed", &rows);
        self.update_active(shard, &moves);
    }

    fn update_active(&mut self, shard: &str, moves: &Moves) {
        let alive = ALIVE_MAX.code();
        let place_in_active = format!("(select a.ctid from active a where {})", key("a", shard));
        if moves.ended > 0 {
            self.writes.push(format!(
                "ended as (
    delete from active a
    using place, (select {place_in_active} as at from old v where v.was <= {alive} and v.status > {alive} offset 0) as e
    where a.ctid = e.at
    returning 1)"
            ));
            let rows = self.add("bigint", moves.ended);
            self.count("ended", &rows);
        }
        if moves.moved > 0 {
            let (mut columns, mut set) = ("v.status".to_owned(), "status = m.status".to_owned());
            if moves.due {
                columns += ", v.due_at";
                set += ", due_at = m.due_at";
            }
            // It has an index of its own, so it is written only where it changes.
            if moves.prioritised {
                columns += ", v.priority";
                set += ", priority = m.priority";
            }
            let which = if moves.due || moves.prioritised { "v.moves" } else { "v.was <> v.status" };
            self.writes.push(format!(
                "moved as (
    update active a set {set}
    from place, (select {columns}, {place_in_active} as at from old v
                 where {which} and v.status <= {alive} offset 0) as m
    where a.ctid = m.at
    returning 1)"
            ));
            let rows = self.add("bigint", moves.moved);
            self.count("moved", &rows);
        }
    }
}

/// The numbers of runs that were not terminal before: of those that have ended, and of those with another status or
/// due time.
struct Moves {
    ended: i64,
    moved: i64,
    /// Whether due times are written, in a form of its own: most runs are never due.
    due: bool,
    /// Whether priorities are written: most runs have none.
    prioritised: bool,
}

impl Moves {
    fn new(writes: &[&RunWrite]) -> Self {
        let mut moves = Self { ended: 0, moved: 0, due: false, prioritised: false };
        for write in writes.iter().filter(|write| differs(write)) {
            if write.run.status.is_terminal() {
                moves.ended += 1;
            } else {
                moves.moved += 1;
                moves.due |= was_due(write).is_some() || write.run.due_at().is_some();
                moves.prioritised |= had_priority(write) != write.run.queued_priority();
            }
        }
        moves
    }

    fn add_to<'a>(&self, columns: &mut Columns<'a>, writes: &[&'a RunWrite]) {
        if self.ended + self.moved > 0 {
            columns.add("was", "smallint", writes.iter().map(|write| was(write).code()));
        }
        if self.due || self.prioritised {
            columns.add("moves", "bool", writes.iter().map(|write| differs(write)));
        }
        if self.prioritised {
            columns.add("priority", "smallint", runs(writes).map(|run| run.queued_priority().map(Priority::get)));
        }
        if self.due {
            columns.add("due_at", "timestamptz", runs(writes).map(|run| run.due_at().map(At)));
        }
    }
}

fn was(write: &RunWrite) -> Status {
    write.before.as_ref().map_or(Status::Pending, |before| before.status)
}

fn was_due(write: &RunWrite) -> Option<Time> {
    write.before.as_ref().and_then(|before| before.due_at)
}

fn had_priority(write: &RunWrite) -> Option<Priority> {
    write.before.as_ref().and_then(|before| before.priority)
}

/// Whether the row in `active` is deleted or changed.
fn differs(write: &RunWrite) -> bool {
    !was(write).is_terminal()
        && (was(write) != write.run.status
            || was_due(write) != write.run.due_at()
            || had_priority(write) != write.run.queued_priority())
}

/// Whether an event sets a column of its own, besides revision, status, record and metadata.
fn sets_columns(changes: &Changes) -> bool {
    changes.agent_id.is_some()
        || changes.bindings.workflow_id.is_some()
        || changes.bindings.audit_session_id.is_some()
        || changes.bindings.route.is_some()
        || !changes.labels.is_empty()
}

pub(super) fn runs<'a>(writes: &[&'a RunWrite]) -> impl Iterator<Item = &'a Run> {
    writes.iter().map(|write| &*write.run)
}

impl<'a> Columns<'a> {
    /// The columns that every part that writes runs needs.
    fn of_runs(writes: &[&'a RunWrite]) -> Self {
        let mut columns = Self::of(writes.len());
        columns.add("namespace", "text", runs(writes).map(|run| run.namespace.as_str()));
        columns.add("run_id", "text", runs(writes).map(|run| run.run_id.as_str()));
        columns.add("revision", "bigint", runs(writes).map(|run| bigint(run.revision)));
        columns.add("status", "smallint", runs(writes).map(|run| run.status.code()));
        columns
    }

    /// The runs that the runs come from: the record has them too, and these columns are for lists.
    fn origin(&mut self, writes: &[&'a RunWrite]) {
        let of = |run: &'a Run| run.refinements.as_deref();
        let parents = runs(writes).map(move |run| of(run)?.origin.parent_run_id.as_deref());
        self.add("parent_run_id", "text", parents);
        let continued = runs(writes).map(move |run| of(run)?.origin.continues_run_id.as_deref());
        self.add("continues_run_id", "text", continued);
    }

    fn archived(&mut self, writes: &[&'a RunWrite]) {
        self.add("archived_at", "timestamptz", runs(writes).map(|run| run.archived_at.map(At)));
    }

    /// The columns that an insert sets, and an update where owner, links, route or labels change.
    fn changeable(&mut self, writes: &[&'a RunWrite]) {
        self.add("agent_id", "text", runs(writes).map(|run| run.agent_id.as_deref()));
        self.add("workflow_id", "text", runs(writes).map(|run| run.bindings.workflow_id.as_deref()));
        self.add("audit_session_id", "text", runs(writes).map(|run| run.bindings.audit_session_id.as_deref()));
        self.add("route", "text", runs(writes).map(|run| run.bindings.route.map(crate::domain::Route::name)));
        self.add("labels", "jsonb", runs(writes).map(|run| (!run.labels.is_empty()).then_some(Json(&run.labels))));
        self.add("record", "jsonb", runs(writes).map(|run| Json(Record::of(run))));
    }
}

//! What was decided, as one statement and its arguments.
//!
//! The parts of a commit that write nothing are left out, columns that change for none of its rows too: a session
//! prepares the few forms that its load needs. The statement answers one row, and raises "division by zero" (22012)
//! unless what changes or ends was exactly the rows that it was given: a wrong count then ends the transaction before
//! it commits instead of being noticed after it. What is new is there, or its insert fails.

mod claimed;
mod columns;
mod leases;
mod max_running;
mod ready;

use tokio_postgres::types::{Json, ToSql};
use uuid::Uuid;

use self::columns::Columns;
use super::super::ends;
use super::super::rows::{At, bigint};
use super::statements::{LOAD_REQUEST_IDS, LOAD_RUNS, LOCK_HEAD};
use crate::domain::ids::request_key;
use crate::domain::{Changes, Decided, NewEvent, Position, Run, RunWrite, Status, Time};
use crate::store::json::{Keyframe, Record};

type Argument<'a> = Box<dyn ToSql + Send + Sync + 'a>;

/// A statement with its arguments.
pub(in crate::store::postgres) struct Write<'a> {
    pub(in crate::store::postgres) sql: String,
    arguments: Vec<Argument<'a>>,
}

impl Write<'_> {
    /// The arguments as the driver takes them.
    pub(in crate::store::postgres) fn arguments(&self) -> Vec<&(dyn ToSql + Sync)> {
        self.arguments.iter().map(|argument| &**argument as &(dyn ToSql + Sync)).collect()
    }
}

/// Where the events are to stand.
#[derive(Clone, Copy, Debug)]
pub(in crate::store::postgres) enum Place<'a> {
    /// After this position, which was read under the head that this transaction holds.
    After(Position),
    /// At the end, if everything is still as it was when this was decided; see [`optimistic`](super::optimistic).
    AtTheEnd {
        /// How many shards there are.
        shard_count: u16,
        /// The release that the schema asks for.
        min_release: &'a str,
    },
}

/// How long before its execution a commit in one flush may have been decided. What is older writes nothing, so that
/// after this time one that was sent and lost cannot come to life.
pub(in crate::store::postgres) const DECIDED_BEFORE_MAX_MS: u32 = 1_000;

/// How far what this process takes for the store's clock may be ahead of it.
const AHEAD_MAX_MS: u32 = 5;

/// The whole commit: runs, the rows of those that are not terminal, events. Answers the position that the first event
/// comes after, and the store's clock.
pub(in crate::store::postgres) fn write<'a>(
    home: i16,
    commit_id: Uuid,
    at: Time,
    decided: &'a Decided,
    place: Place<'a>,
) -> Write<'a> {
    let (new, old): (Vec<&RunWrite>, Vec<&RunWrite>) = decided.runs.iter().partition(|write| write.before.is_none());
    let mut parts = Parts::default();
    let shard = parts.add("smallint", home);
    let at = parts.add("timestamptz", At(at));
    let commit_id = parts.add("uuid", commit_id);
    let with_links = decided.events.iter().any(|new| sets_columns(&new.event.changes));
    if !new.is_empty() {
        parts.insert_runs(&shard, &at, &new);
    }
    if !old.is_empty() {
        parts.update_runs(&shard, &old, with_links);
    }
    parts.write_leases(&shard, &decided.sides.leases);
    parts.write_ready(&shard, &decided.sides.ready);
    parts.write_counted(home, &decided.sides.limits);
    parts.write_claimed(&decided.sides.claims, matches!(place, Place::After(_)));
    parts.insert_events(&shard, &commit_id, &decided.events);
    let (name, place) = match place {
        Place::After(position) => {
            let last = parts.add("bigint", bigint(position));
            ("write", format!("place as materialized (select {last} as last, {at} as at, clock_timestamp() as now)"))
        }
        Place::AtTheEnd { shard_count, min_release } => {
            let guard = parts.guard(&shard, &at, min_release, !new.is_empty(), !old.is_empty(), &decided.events);
            let place = format!(
                "head as materialized (select ctid as version from shards where shard = {shard} for update),
clock as materialized (select clock_timestamp() as now, version from head),
ends as materialized ({ends}),
place as materialized (
    select coalesce((select position from ends where shard = {shard}), 0) as last, now
    from clock
    where {guard})",
                ends = ends::newest_events(shard_count),
            );
            ("at_once", place)
        }
    };
    let Parts { mut tables, writes, counted, arguments } = parts;
    tables.push(place);
    tables.extend(writes);
    let sql = format!(
        "-- commit.{name}
with {}
select place.last, place.now, 1 / ({})::int as complete from place",
        tables.join(",\n"),
        if counted.is_empty() { "true".to_owned() } else { counted.join(" and ") },
    );
    Write { sql, arguments }
}

/// Whether it sets a column of its own, besides revision, status, record and metadata.
fn sets_columns(changes: &Changes) -> bool {
    changes.agent_id.is_some()
        || changes.links.workflow_id.is_some()
        || changes.links.audit_session_id.is_some()
        || changes.links.route.is_some()
        || !changes.labels.is_empty()
}

/// The parts of a statement, as they come together.
#[derive(Default)]
struct Parts<'a> {
    /// What is read: the arrays as tables.
    tables: Vec<String>,
    /// What is written.
    writes: Vec<String>,
    /// What must be true of how many rows were written.
    counted: Vec<String>,
    arguments: Vec<Argument<'a>>,
}

impl<'a> Parts<'a> {
    /// An argument; gives the expression that stands for it.
    fn add(&mut self, sql_type: &str, value: impl ToSql + Send + Sync + 'a) -> String {
        self.arguments.push(Box::new(value));
        format!("${}::{sql_type}", self.arguments.len())
    }

    /// Rows as a table, in their order: one row as it is, since an array costs a store of its own; more as arrays. Gives
    /// the expression of how many rows there are.
    fn table(&mut self, name: &str, columns: Columns<'a>) -> String {
        let Columns { rows, columns } = columns;
        let names: Vec<&str> = columns.iter().map(|column| column.name).collect();
        let values: Vec<String> = columns
            .into_iter()
            .map(|column| {
                self.arguments.push(column.values);
                let array = if rows == 1 { "" } else { "[]" };
                format!("${}::{}{array}", self.arguments.len(), column.sql_type)
            })
            .collect();
        if rows == 1 {
            let values = values.iter().zip(names).map(|(value, name)| format!("{value} as {name}"));
            let values = values.collect::<Vec<_>>().join(", ");
            self.tables.push(format!("{name} as materialized (\n    select {values}, 1 as n)"));
            return "1".to_owned();
        }
        self.tables.push(format!(
            "{name} as materialized (
    select * from unnest({}) with ordinality as v ({}, n))",
            values.join(", "),
            names.join(", "),
        ));
        format!("cardinality({})", values[0])
    }

    /// So many rows must be written by a part; gives how its count is asked for.
    fn count(&mut self, part: &str, rows: &str) {
        self.counted.push(format!("(select count(*) from {part}) = {rows}"));
    }

    fn insert_runs(&mut self, shard: &str, at: &str, writes: &[&'a RunWrite]) {
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
        self.table("new", columns);
        self.writes.push(format!(
            "created as (
    insert into runs (shard, namespace, run_id, revision, status, started_at, task_thread_id,
                      agent_id, workflow_id, audit_session_id, route, labels, record, metadata)
    select {shard}, v.namespace, v.run_id, v.revision, v.status, {at}, v.task_thread_id,
           v.agent_id, v.workflow_id, v.audit_session_id, v.route, v.labels, v.record, v.metadata
    from place, new v)"
        ));
        if runs(writes).any(|run| !run.status.is_terminal()) {
            let (column, value) = if due { (", due_at", ", v.due_at") } else { ("", "") };
            self.writes.push(format!(
                "born as (
    insert into active (shard, namespace, run_id, started_at, status{column})
    select {shard}, v.namespace, v.run_id, {at}, v.status{value}
    from place, new v
    where v.status <= {ALIVE_MAX})",
                ALIVE_MAX = Status::Running.code(),
            ));
        }
    }

    /// Leaves metadata alone that does not change: not written, it costs nothing, whatever its size.
    fn update_runs(&mut self, shard: &str, writes: &[&'a RunWrite], with_links: bool) {
        let before = |write: &&RunWrite| write.before.map_or(0, |before| bigint(before.revision));
        let mut columns = Columns::of_runs(writes);
        columns.add("before", "bigint", writes.iter().map(before));
        let mut set = "revision = v.revision, status = v.status, record = v.record".to_owned();
        if with_links {
            columns.changeable(writes);
            set += ", agent_id = v.agent_id, workflow_id = v.workflow_id, audit_session_id = v.audit_session_id,
        route = v.route, labels = v.labels";
        } else {
            columns.add("record", "jsonb", runs(writes).map(|run| Json(Record::of(run))));
        }
        if writes.iter().any(|write| write.metadata_changed) {
            let changed = |write: &&&'a RunWrite| write.metadata_changed;
            let metadata = |write: &&'a RunWrite| {
                let run = &*write.run;
                (changed(&write) && !run.metadata.is_empty()).then_some(Json(&run.metadata))
            };
            columns.add("rewritten", "bool", writes.iter().map(|write| write.metadata_changed));
            columns.add("metadata", "jsonb", writes.iter().map(metadata));
            set += ", metadata = case when v.rewritten then v.metadata else r.metadata end";
        }
        let was = |write: &RunWrite| write.before.map_or(Status::Pending, |before| before.status);
        let was_due = |write: &RunWrite| write.before.and_then(|before| before.due_at);
        let differs = |write: &RunWrite| {
            !was(write).is_terminal() && (was(write) != write.run.status || was_due(write) != write.run.due_at())
        };
        let moved = writes.iter().filter(|write| differs(write));
        let (ended, moved): (Vec<&&RunWrite>, Vec<&&RunWrite>) =
            moved.partition(|write| write.run.status.is_terminal());
        if !ended.is_empty() || !moved.is_empty() {
            columns.add("was", "smallint", writes.iter().map(|write| was(write).code()));
        }
        // A form of its own: most runs are never due.
        let due = moved.iter().any(|write| was_due(write).is_some() || write.run.due_at().is_some());
        if due {
            columns.add("moves", "bool", writes.iter().map(|write| differs(write)));
            columns.add("due_at", "timestamptz", runs(writes).map(|run| run.due_at().map(At)));
        }
        let rows = self.table("asked", columns);
        self.tables.push(format!(
            "old as materialized (
    select *, (select r.ctid from runs r where {} and r.revision = v.before) as place_in_runs from asked v)",
            key("r", shard),
        ));
        self.writes.push(format!(
            "changed as (
    update runs r set {set} from place, old v where r.ctid = v.place_in_runs returning 1)"
        ));
        self.count("changed", &rows);
        let alive = Status::Running.code();
        let place_in_active = format!("(select a.ctid from active a where {})", key("a", shard));
        if !ended.is_empty() {
            self.writes.push(format!(
                "ended as (
    delete from active a
    using place, (select {place_in_active} as at from old v where v.was <= {alive} and v.status > {alive} offset 0) as e
    where a.ctid = e.at
    returning 1)"
            ));
            let ended = self.add("bigint", rows_of(ended.len()));
            self.count("ended", &ended);
        }
        if !moved.is_empty() {
            let (columns, set, which) = if due {
                ("v.status, v.due_at", "status = m.status, due_at = m.due_at", "v.moves")
            } else {
                ("v.status", "status = m.status", "v.was <> v.status")
            };
            self.writes.push(format!(
                "moved as (
    update active a set {set}
    from place, (select {columns}, {place_in_active} as at from old v
                 where {which} and v.status <= {alive} offset 0) as m
    where a.ctid = m.at
    returning 1)"
            ));
            let moved = self.add("bigint", rows_of(moved.len()));
            self.count("moved", &moved);
        }
    }

    fn insert_events(&mut self, shard: &str, commit_id: &str, events: &'a [NewEvent]) {
        let mut columns = Columns::of(events.len());
        columns.add("namespace", "text", events.iter().map(|new| new.event.key.namespace.as_str()));
        columns.add("run_id", "text", events.iter().map(|new| new.event.key.run_id.as_str()));
        columns.add("revision", "bigint", events.iter().map(|new| bigint(new.event.revision)));
        columns.add("at", "timestamptz", events.iter().map(|new| At(new.event.at)));
        columns.add("event", "jsonb", events.iter().map(|new| Json(&new.event)));
        let mut more = String::new();
        if events.iter().any(|new| new.request.is_some()) {
            let requests = || events.iter().map(|new| new.request.as_ref());
            columns.add("request_id", "text", requests().map(|request| request.map(|request| request.id.as_str())));
            columns.add(
                "request_digest",
                "bytea",
                requests().map(|request| request.map(|request| request.digest.as_slice())),
            );
            columns.add("request_key", "bigint", events.iter().map(key_of));
            more += ", request_id, request_digest, request_key";
        }
        if events.iter().any(|new| new.keyframe.is_some()) {
            let keyframe = |new: &'a NewEvent| new.keyframe.as_deref().map(|run| Json(Keyframe::of(run)));
            columns.add("keyframe", "jsonb", events.iter().map(keyframe));
            more += ", keyframe";
        }
        self.table("happened", columns);
        let more_of_v = more.replace(", ", ", v.");
        self.writes.push(format!(
            "logged as (
    insert into run_events (shard, commit_id, position, namespace, run_id, revision, at, event{more})
    select {shard}, {commit_id}, place.last + v.n, v.namespace, v.run_id, v.revision, v.at, v.event{more_of_v}
    from place, happened v)"
        ));
    }

    /// What must still be so for a commit that was decided before its head was taken.
    fn guard(
        &mut self,
        shard: &str,
        at: &str,
        min_release: &'a str,
        new: bool,
        old: bool,
        events: &[NewEvent],
    ) -> String {
        let min_release = self.add("text", min_release);
        let mut guard = format!(
            "version = (select ctid from shards where shard = {shard})
      and {at} > now - interval '{DECIDED_BEFORE_MAX_MS} ms' and {at} <= now + interval '{AHEAD_MAX_MS} ms'
      and (select min_release from ledger where singleton) = {min_release}
      and not exists (select from ends where at > {at} or (at = {at} and shard <> {shard}))"
        );
        if new {
            let there = format!(
                "\n      and not exists (select from new v where (select r.revision from runs r where {}) is not null)",
                key("r", shard),
            );
            guard.push_str(&there);
        }
        if old {
            guard += "\n      and not exists (select from old where place_in_runs is null)";
        }
        let keys: Vec<i64> = events.iter().filter_map(key_of).collect();
        if !keys.is_empty() {
            let keys = self.add("bigint[]", keys);
            let applied = format!(
                "\n      and not exists (
        select from unnest({keys}) as v (request_key)
        where exists (select from run_events e
                      where e.shard = {shard} and e.request_key = v.request_key offset 0))"
            );
            guard.push_str(&applied);
        }
        guard
    }
}

/// A row by its whole key. As a subquery, it is looked for by index one by one, whatever the planner thinks of the sizes
/// of tables when it makes a plan that lasts.
fn key(table: &str, shard: &str) -> String {
    format!("{table}.shard = {shard} and {table}.namespace = v.namespace and {table}.run_id = v.run_id")
}

fn runs<'a>(writes: &[&'a RunWrite]) -> impl Iterator<Item = &'a Run> {
    writes.iter().map(|write| &*write.run)
}

fn key_of(new: &NewEvent) -> Option<i64> {
    new.request.as_ref().map(|request| request_key(&new.event.key, &request.id))
}

fn rows_of(rows: usize) -> i64 {
    i64::try_from(rows).expect("rows that are in memory")
}

/// Every statement of a commit that decided this, in one flush and in two, for a look at their plans.
#[must_use]
pub fn of_a_commit(shard_count: u16, decided: &Decided) -> Vec<String> {
    let written = |place| write(0, Uuid::nil(), Time::from_micros(0), decided, place).sql;
    vec![
        LOCK_HEAD.to_owned(),
        ends::statement(shard_count),
        LOAD_RUNS.to_owned(),
        LOAD_REQUEST_IDS.to_owned(),
        written(Place::After(0)),
        written(Place::AtTheEnd { shard_count, min_release: "0.0.0" }),
    ]
}

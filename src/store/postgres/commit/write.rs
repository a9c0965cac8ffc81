//! The decided changes, as one statement and its arguments.
//!
//! The parts of a commit that write nothing are left out, columns that change for none of its rows too: a session
//! prepares the few forms that its load needs. The statement answers one row, and raises "division by zero" (22012)
//! unless exactly the given rows of `runs`, `active`, `suspended`, counted values and held requests were changed: a
//! wrong count then ends the transaction before it commits instead of being noticed after it. An insert of a row that
//! is there already fails, but of a lease, which is granted anew, and of a run at rest, which rests otherwise. Rows of
//! leases and of claims given back may be missing: their deletes are not counted.

mod events;
mod guard;
mod runs;

use tokio_postgres::types::ToSql;
use uuid::Uuid;

pub(in crate::store::postgres) use self::guard::DECIDED_BEFORE_MAX_MS;
use super::super::ends;
use super::super::parts::Parts;
use super::super::parts::columns::Argument;
use super::super::rows::{At, bigint};
use super::super::sides::{self, Writing};
use super::statements::{LOAD_REQUEST_IDS, LOAD_RUNS, LOCK_HEAD};
use crate::domain::{
    Decided, LifecycleId, LifecycleKey, LifecycleName, LifecyclePin, Namespace, NamespaceRow, Position, RunWrite,
    Sides, Time,
};

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

/// The place where the events are to stand.
#[derive(Clone, Copy, Debug)]
pub(in crate::store::postgres) enum EventsPlace<'a> {
    /// After this position, which was read under the head that this transaction holds.
    After(Position),
    /// At the end, if every hint of the decision still holds; see [`optimistic`](super::optimistic).
    AtTheEnd {
        /// The number of shards.
        shard_count: u16,
        /// The release that the schema asks for.
        min_release: &'a str,
        /// The rows of the sides that were remembered: they must still be so.
        remembered: &'a Sides,
        /// The names of lifecycles by which runs are started, and what these must still stand for.
        named: &'a [(LifecycleKey, LifecyclePin)],
    },
}

/// The whole commit: runs, the rows of those that are not terminal, sides, events. Answers the position that the
/// first event comes after, and the store's clock. `at`: the time of runs that are created; and the steady clock.
pub(in crate::store::postgres) fn write<'a>(
    home: i16,
    commit_id: Uuid,
    (at, steady): (Time, Time),
    decided: &'a Decided,
    place: EventsPlace<'a>,
) -> Write<'a> {
    let (new, old): (Vec<&RunWrite>, Vec<&RunWrite>) = decided.runs.iter().partition(|write| write.before.is_none());
    let mut parts = Parts::default();
    let shard = parts.add("smallint", home);
    let at = parts.add("timestamptz", At(at));
    let commit_id = parts.add("uuid", commit_id);
    if !new.is_empty() {
        parts.insert_runs(&shard, &at, &new, decided.is_refined());
    }
    if !old.is_empty() {
        parts.update_runs(&shard, &old, &decided.events);
    }
    let to = Writing { home, shard: &shard, steady, is_held: matches!(place, EventsPlace::After(_)) };
    sides::write(&mut parts, &to, &decided.sides);
    parts.insert_events(&shard, &commit_id, &decided.events);
    let (name, place) = match place {
        EventsPlace::After(position) => {
            let last = parts.add("bigint", bigint(position));
            ("write", format!("place as materialized (select {last} as last, {at} as at, clock_timestamp() as now)"))
        }
        EventsPlace::AtTheEnd { shard_count, min_release, remembered, named } => {
            let mut guard = parts.guard(&shard, &at, min_release, !new.is_empty(), !old.is_empty(), &decided.events);
            sides::guard(&mut parts, remembered, &mut guard);
            if !named.is_empty() {
                guard += &parts.guard_lifecycles(named);
            }
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
    let Parts { mut tables, writes, counted, arguments, steady } = parts;
    tables.push(place);
    tables.extend(steady);
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

/// Every statement of a commit with these decisions, in one flush and in two, for a look at their plans.
#[must_use]
pub fn of_a_commit(shard_count: u16, decided: &Decided) -> Vec<String> {
    let namespace = Namespace::from("team-a");
    let name = LifecycleName { name: "task".to_owned(), version: None };
    let pin = LifecyclePin { id: LifecycleId { name: name.name.clone(), version: 1 }, digest: 0 };
    let named = [(LifecycleKey::Named(namespace.clone(), name), pin)];
    let namespaces = vec![NamespaceRow::without_quotas(namespace)];
    let remembered = Sides { namespaces, ..Sides::default() };
    let times = (Time::from_micros(0), Time::from_micros(0));
    let written = |place| write(0, Uuid::nil(), times, decided, place).sql;
    vec![
        LOCK_HEAD.to_owned(),
        ends::statement(shard_count),
        LOAD_RUNS.to_owned(),
        LOAD_REQUEST_IDS.to_owned(),
        written(EventsPlace::After(0)),
        written(EventsPlace::AtTheEnd { shard_count, min_release: "0.0.0", remembered: &remembered, named: &named }),
    ]
}

//! Rows as they stand, and the statements on them that both databases take.
//!
//! Another table's row is looked up by a subquery that has one value: both databases then use that table's key for
//! each row of the page, and neither reads all of the other table for it. `limit 1`: with a damaged index there may be
//! two, and the tools are there to find damage.

use super::{ActiveRow, BesideRow, EventRow, OfRuns, OldRun, PlaceRow, RunRow, Tombstones};
use crate::domain::{ContentTable, Priority, Rest, RunKey, Shard, Time};
use crate::store::StoreError;
use crate::store::rows::runs::COLUMNS;
use crate::store::rows::{Columns, Reader, key, runs};
use crate::store::scalars::shown;

/// `$1` shard, `$2` the position before the first, `$3` how many.
pub(in crate::store) const PLACES: &str = "-- inspect.places
select e.namespace, e.run_id, e.position, e.at, e.revision,
       (select r.revision from runs as r
         where r.shard = e.shard and r.namespace = e.namespace and r.run_id = e.run_id limit 1) as run_revision
from run_events as e
where e.shard = $1 and e.position > $2
order by e.position
limit $3";

pub(in crate::store) const OLDEST: &str = "-- inspect.oldest
select a.namespace, a.run_id, a.status, a.started_at,
       (select r.agent_id from runs as r
         where r.shard = a.shard and r.namespace = a.namespace and r.run_id = a.run_id limit 1) as agent_id,
       (select s.kind from suspended as s
         where s.shard = a.shard and s.namespace = a.namespace and s.run_id = a.run_id limit 1) as suspension_kind,
       (select s.ready from suspended as s
         where s.shard = a.shard and s.namespace = a.namespace and s.run_id = a.run_id limit 1) as ready
from (select * from active order by started_at, run_id limit 10) as a
order by a.started_at, a.run_id";

pub(in crate::store) const COUNT_ACTIVE: &str = "-- inspect.count_active
select status, count(*) as runs from active group by status order by status";

pub(in crate::store) const TIME_OF: &str = "-- inspect.time_of
select at from run_events where shard = $1 and position >= $2 order by position limit 1";

/// `$1` shard, `$2` and `$3` the key before the first, `$4` how many.
pub(in crate::store) fn keys_of(table: OfRuns) -> String {
    let table = table.name();
    format!(
        "-- inspect.{table}
select a.namespace, a.run_id,
       (select r.revision from runs as r
         where r.shard = a.shard and r.namespace = a.namespace and r.run_id = a.run_id limit 1) is not null as known
from {table} as a
where a.shard = $1 and (a.namespace, a.run_id) > ($2, $3)
order by a.namespace, a.run_id
limit $4"
    )
}

/// The rows of a run, from the columns of `runs` and those of the tables beside it.
pub(in crate::store) fn run<R: Columns>(row: &R) -> Result<RunRow, StoreError> {
    let columns = runs::columns(row)?;
    let here = || shown(&columns.key);
    let active = Reader { table: "active", row, key: &here };
    let (status, started_at): (Option<i16>, Option<Time>) =
        (active.get((COLUMNS, "active_status"))?, active.get((COLUMNS + 1, "active_started_at"))?);
    let due_at = active.get((COLUMNS + 2, "due_at"))?;
    let priority = active.get((COLUMNS + 3, "priority"))?;
    let active = status.zip(started_at).map(|(status, started_at)| ActiveRow { status, started_at, due_at, priority });
    let lease = Reader { table: "leases", row, key: &here };
    let (epoch, ttl_ms): (Option<i64>, Option<i64>) =
        (lease.get((COLUMNS + 4, "epoch"))?, lease.get((COLUMNS + 5, "ttl_ms"))?);
    let rest = Reader { table: "suspended", row, key: &here };
    let started_at: Option<Time> = rest.get((COLUMNS + 6, "rests_started_at"))?;
    let rest = started_at.map(|started_at| {
        let (kind, ready) = (rest.get((COLUMNS + 7, "kind"))?, rest.get((COLUMNS + 8, "ready"))?);
        let keep_slot = rest.get((COLUMNS + 9, "keep_slot"))?;
        let priority: i16 = rest.get((COLUMNS + 10, "rests_priority"))?;
        let priority = Priority::of(priority.into()).unwrap_or_default();
        Ok::<_, StoreError>(Rest { started_at, kind, ready, keep_slot, priority })
    });
    let rest = rest.transpose()?;
    let of_run = Reader { table: "runs", row, key: &here };
    let origin = [of_run.get((COLUMNS + 11, "parent_run_id"))?, of_run.get((COLUMNS + 12, "continues_run_id"))?];
    Ok(RunRow { columns: columns.into_owned(), active, lease: epoch.zip(ttl_ms), rest, origin })
}

/// A row of `run_events`.
pub(in crate::store) fn event<R: Columns>(row: &R) -> Result<EventRow, StoreError> {
    let key = key(row, "run_events", 0)?;
    let event = Reader { table: "run_events", row, key: &|| shown(&key) };
    Ok(EventRow {
        revision: event.get((2, "revision"))?,
        position: event.get((3, "position"))?,
        at: event.get((4, "at"))?,
        event: event.get((5, "event"))?,
        request_id: event.get((6, "request_id"))?,
        request_digest: event.get((7, "request_digest"))?,
        request_key: event.get((8, "request_key"))?,
        keyframe: event.get((9, "keyframe"))?,
        key,
    })
}

/// A row of a page of a table beside `runs`.
pub(in crate::store) fn beside<R: Columns>(row: &R, table: ContentTable) -> Result<BesideRow, StoreError> {
    let key = key(row, table.name(), 0)?;
    let beside = Reader { table: table.name(), row, key: &|| shown(&key) };
    Ok(BesideRow {
        table,
        revision: beside.get((2, "revision"))?,
        number: beside.get((3, "number"))?,
        content: beside.get((4, "content"))?,
        link_key: beside.get((5, "link_key"))?,
        key,
    })
}

/// A row of [`PLACES`].
pub(in crate::store) fn place<R: Columns>(row: &R) -> Result<PlaceRow, StoreError> {
    let key = key(row, "run_events", 0)?;
    let place = Reader { table: "run_events", row, key: &|| shown(&key) };
    Ok(PlaceRow {
        position: place.get((2, "position"))?,
        at: place.get((3, "at"))?,
        revision: place.get((4, "revision"))?,
        run_revision: place.get((5, "run_revision"))?,
        key,
    })
}

/// A row of [`keys_of`] a table.
pub(in crate::store) fn known<R: Columns>(row: &R, table: OfRuns) -> Result<(RunKey, bool), StoreError> {
    let key = key(row, table.name(), 0)?;
    let known = Reader { table: table.name(), row, key: &|| shown(&key) }.get((2, "known"))?;
    Ok((key, known))
}

/// A row of [`OLDEST`].
pub(in crate::store) fn old<R: Columns>(row: &R) -> Result<OldRun, StoreError> {
    let key = key(row, "active", 0)?;
    let active = Reader { table: "active", row, key: &|| shown(&key) };
    let (status, started_at) = (active.get((2, "status"))?, active.get((3, "started_at"))?);
    let agent_id = active.get((4, "agent_id"))?;
    let rest = Reader { table: "suspended", row, key: &|| shown(&key) };
    let (suspension_kind, ready): (_, Option<bool>) = (rest.get((5, "suspension_kind"))?, rest.get((6, "ready"))?);
    let ready = ready.unwrap_or(false);
    Ok(OldRun { key, status, started_at, agent_id, suspension_kind, ready })
}

/// A row of [`COUNT_ACTIVE`].
pub(in crate::store) fn active<R: Columns>(row: &R) -> Result<(i16, u64), StoreError> {
    let active = Reader { table: "active", row, key: &String::new };
    Ok((active.get((0, "status"))?, active.get((1, "runs"))?))
}

/// A row of [`TIME_OF`].
pub(in crate::store) fn time<R: Columns>(row: &R, shard: Shard, position: i64) -> Result<Time, StoreError> {
    Reader { table: "run_events", row, key: &|| format!("shard {} position {position}", shard.0) }.get((0, "at"))
}

/// What is left of a shard's purged runs.
pub(in crate::store) const TOMBSTONES: &str = "-- inspect.tombstones
select count(*) as runs, cast(coalesce(sum(revision), 0) as bigint) as events,
       (select max(position) from purged where shard = $1) as upto
from runs where shard = $1 and purged_at is not null";

/// The sums of [`TOMBSTONES`].
pub(in crate::store) fn tombstones<R: Columns>(row: &R) -> Result<Tombstones, StoreError> {
    let row = Reader { table: "runs", row, key: &|| "the tombstones of a shard".to_owned() };
    Ok(Tombstones {
        runs: row.get((0, "runs"))?,
        events: row.get((1, "events"))?,
        upto: row.get::<Option<i64>>((2, "upto"))?.unwrap_or(0),
    })
}

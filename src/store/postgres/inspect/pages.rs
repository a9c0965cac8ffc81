//! Pages of rows as they stand, by the tables' own keys.
//!
//! What is looked up for each row has `limit 1` in a `lateral`: the planner then goes by its key, and never reads all of
//! another table for a page.

use std::fmt::Write as _;

use tokio_postgres::Row;
use tokio_postgres::types::ToSql;

use super::{rows, text_bytes};
use crate::domain::{RunKey, Shard};
use crate::store::inspect::{ActiveRow, EventRow, OfRuns, PlaceRow, ROWS_MAX, RunRow, SHARDED, ShardRows};
use crate::store::postgres::rows::{At, Reader, run_bytes, run_columns, run_columns_of, run_size, shown, smallint};
use crate::store::postgres::sessions::Sessions;
use crate::store::{PAGE_BYTES_MAX, StoreError};

/// Bounded by stored bytes as well, without reading out what it then leaves.
const RUNS: &str = concat!(
    "-- inspect.runs
select ",
    run_columns!(),
    ",
       a.status as active_status, a.started_at as active_started_at, a.due_at, l.epoch, l.ttl_ms,
       s.ready
from (
    select *, sum(size) over (order by namespace, run_id rows unbounded preceding) as stored
    from (
        select *, ",
    run_size!(),
    " as size
        from runs
        where shard = $1 and (namespace, run_id) > ($2, $3)
        order by namespace, run_id
        limit $4) as page) as r
left join lateral (
    select status, started_at, due_at
    from active a
    where a.shard = $1 and a.namespace = r.namespace and a.run_id = r.run_id
    limit 1) as a on true
left join lateral (
    select epoch, ttl_ms
    from leases l
    where l.shard = $1 and l.namespace = r.namespace and l.run_id = r.run_id
    limit 1) as l on true
left join lateral (
    select ready
    from suspended s
    where s.shard = $1 and s.namespace = r.namespace and s.run_id = r.run_id
    limit 1) as s on true
where r.stored - r.size < $5
order by r.namespace, r.run_id"
);

const EVENTS: &str = "-- inspect.events
select namespace, run_id, revision, position, at, event::text as event, request_id, request_digest, request_key,
       keyframe::text as keyframe
from (
    select *, sum(pg_column_size(event) + coalesce(pg_column_size(keyframe), 0))
              over (order by namespace, run_id, revision rows unbounded preceding) as stored
    from (
        select *
        from run_events
        where shard = $1 and (namespace, run_id, revision) > ($2, $3, $4) and (namespace, run_id) <= ($5, $6)
        order by namespace, run_id, revision
        limit $7) as page) as counted
where stored - pg_column_size(event) - coalesce(pg_column_size(keyframe), 0) < $8
order by namespace, run_id, revision";

const PLACES: &str = "-- inspect.places
select e.namespace, e.run_id, e.position, e.at, e.revision, r.revision as run_revision
from (
    select namespace, run_id, position, at, revision
    from run_events
    where shard = $1 and position > $2
    order by position
    limit $3) as e
left join lateral (
    select revision
    from runs r
    where r.shard = $1 and r.namespace = e.namespace and r.run_id = e.run_id
    limit 1) as r on true
order by e.position";

fn keys_of(table: OfRuns) -> String {
    let table = table.name();
    format!(
        "-- inspect.{table}
select a.namespace, a.run_id, r.found is not null as known
from (
    select namespace, run_id
    from {table}
    where shard = $1 and (namespace, run_id) > ($2, $3)
    order by namespace, run_id
    limit $4) as a
left join lateral (
    select true as found
    from runs r
    where r.shard = $1 and r.namespace = a.namespace and r.run_id = a.run_id
    limit 1) as r on true
order by a.namespace, a.run_id"
    )
}

fn bytes_max() -> i64 {
    i64::try_from(PAGE_BYTES_MAX).expect("a page is far smaller")
}

pub(super) async fn runs(sessions: &Sessions, shard: Shard, after: &RunKey) -> Result<Vec<RunRow>, StoreError> {
    let (shard, bytes_max) = (smallint(shard), bytes_max());
    let arguments: [&(dyn ToSql + Sync); 5] = [&shard, &after.namespace, &after.run_id, &ROWS_MAX, &bytes_max];
    let rows = rows(sessions, RUNS, &arguments, run_bytes).await?;
    rows.iter().map(run).collect()
}

fn run(row: &Row) -> Result<RunRow, StoreError> {
    let columns = run_columns_of(row)?;
    let run = Reader { table: "runs", row };
    let shown = || shown(&columns.key);
    let active: (Option<i16>, Option<At>) = (run.get("active_status", shown)?, run.get("active_started_at", shown)?);
    let due_at: Option<At> = run.get("due_at", shown)?;
    let active = active.0.zip(active.1).map(|(status, At(started_at))| {
        let due_at = due_at.map(|At(at)| at);
        ActiveRow { status, started_at, due_at }
    });
    let lease: (Option<i64>, Option<i64>) = (run.get("epoch", shown)?, run.get("ttl_ms", shown)?);
    let ready = run.get("ready", shown)?;
    Ok(RunRow { columns: columns.into_owned(), active, lease: lease.0.zip(lease.1), ready })
}

pub(super) async fn events(
    sessions: &Sessions,
    shard: Shard,
    (after, revision): (&RunKey, i64),
    last: &RunKey,
) -> Result<Vec<EventRow>, StoreError> {
    let (shard, bytes_max) = (smallint(shard), bytes_max());
    let arguments: [&(dyn ToSql + Sync); 8] =
        [&shard, &after.namespace, &after.run_id, &revision, &last.namespace, &last.run_id, &ROWS_MAX, &bytes_max];
    let weight = |row: &Row| text_bytes(row, "event") + text_bytes(row, "keyframe");
    let rows = rows(sessions, EVENTS, &arguments, weight).await?;
    rows.iter().map(event).collect()
}

fn event(row: &Row) -> Result<EventRow, StoreError> {
    let event = Reader { table: "run_events", row };
    let key = event.key()?;
    let shown = || shown(&key);
    let At(at) = event.get("at", shown)?;
    Ok(EventRow {
        revision: event.get("revision", shown)?,
        position: event.get("position", shown)?,
        at,
        event: event.get("event", shown)?,
        request_id: event.get("request_id", shown)?,
        request_digest: event.get("request_digest", shown)?,
        request_key: event.get("request_key", shown)?,
        keyframe: event.get("keyframe", shown)?,
        key,
    })
}

pub(super) async fn places(sessions: &Sessions, shard: Shard, after: i64) -> Result<Vec<PlaceRow>, StoreError> {
    let shard = smallint(shard);
    let arguments: [&(dyn ToSql + Sync); 3] = [&shard, &after, &ROWS_MAX];
    let rows = rows(sessions, PLACES, &arguments, |_| 0).await?;
    let place = |row| {
        let place = Reader { table: "run_events", row };
        let key = place.key()?;
        let shown = || shown(&key);
        let At(at) = place.get("at", shown)?;
        Ok(PlaceRow {
            position: place.get("position", shown)?,
            at,
            revision: place.get("revision", shown)?,
            run_revision: place.get("run_revision", shown)?,
            key,
        })
    };
    rows.iter().map(place).collect()
}

pub(super) async fn keys(
    sessions: &Sessions,
    table: OfRuns,
    shard: Shard,
    after: &RunKey,
) -> Result<Vec<(RunKey, bool)>, StoreError> {
    let shard = smallint(shard);
    let arguments: [&(dyn ToSql + Sync); 4] = [&shard, &after.namespace, &after.run_id, &ROWS_MAX];
    let rows = rows(sessions, &keys_of(table), &arguments, |_| 0).await?;
    let known = |row| {
        let row = Reader { table: table.name(), row };
        let key = row.key()?;
        let known = row.get("known", || shown(&key))?;
        Ok((key, known))
    };
    rows.iter().map(known).collect()
}

/// In one statement. Two ranges a table, so that an index answers each.
pub(super) async fn shards(sessions: &Sessions, shard_count: u16) -> Result<ShardRows, StoreError> {
    let mut statement = "-- inspect.shards\nselect 'shards' as place, shard::bigint as shard from shards".to_owned();
    for table in SHARDED {
        for outside in ["shard < 0".to_owned(), format!("shard >= {shard_count}::smallint")] {
            write!(
                statement,
                "\nunion all (select '{table}', shard::bigint from {table} where {outside} order by shard limit 1)"
            )
            .expect("a string takes all");
        }
    }
    let rows = rows(sessions, &statement, &[], |_| 0).await?;
    let mut found = ShardRows::default();
    for row in &rows {
        let reader = Reader { table: "shards", row };
        let place: &str = reader.get("place", String::new)?;
        let shard: i64 = reader.get("shard", String::new)?;
        match SHARDED.into_iter().find(|table| *table == place) {
            Some(table) => found.strays.push((table, shard)),
            None => found.shards.push(shard),
        }
    }
    found.shards.sort_unstable();
    Ok(found)
}

//! Pages of rows as they stand, by the tables' own keys.
//!
//! A lookup for each row has `limit 1` in a `lateral`: the planner then uses the other table's key, and never reads
//! all of that table for a page.

use std::fmt::Write as _;

use tokio_postgres::Row;
use tokio_postgres::types::ToSql;

use crate::domain::{ContentTable, RunKey, Shard};
use crate::store::contents;
use crate::store::dialect::run_columns;
use crate::store::inspect::rows::{self, PLACES, TOMBSTONES, keys_of};
use crate::store::inspect::{BesideRow, EventRow, OfRuns, PlaceRow, ROWS_MAX, RunRow, SHARDED, ShardRows, Tombstones};
use crate::store::postgres::read::{self, rows_until};
use crate::store::postgres::rows::{Reader, run_size, smallint};
use crate::store::postgres::sessions::Sessions;
use crate::store::{PAGE_BYTES_MAX, StoreError};

/// Bounded by stored bytes as well, without reading out the rows that it then leaves.
const RUNS: &str = concat!(
    "-- inspect.runs
select ",
    run_columns!(postgres),
    ",
       a.status as active_status, a.started_at as active_started_at, a.due_at, a.priority, l.epoch, l.ttl_ms,
       s.started_at as rests_started_at, s.kind, s.ready, s.keep_slot, s.priority as rests_priority, r.parent_run_id, r.continues_run_id
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
    select status, started_at, due_at, priority
    from active a
    where a.shard = $1 and a.namespace = r.namespace and a.run_id = r.run_id
    limit 1) as a on true
left join lateral (
    select epoch, ttl_ms
    from leases l
    where l.shard = $1 and l.namespace = r.namespace and l.run_id = r.run_id
    limit 1) as l on true
left join lateral (
    select started_at, kind, ready, keep_slot, priority
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

fn bytes_max() -> i64 {
    i64::try_from(PAGE_BYTES_MAX).expect("a page is far smaller")
}

pub(super) async fn runs(sessions: &Sessions, shard: Shard, after: &RunKey) -> Result<Vec<RunRow>, StoreError> {
    let (shard, bytes_max) = (smallint(shard), bytes_max());
    let arguments: [&(dyn ToSql + Sync); 5] =
        [&shard, &after.namespace.as_str(), &after.run_id.as_str(), &ROWS_MAX, &bytes_max];
    let rows = rows_until(sessions, RUNS, &arguments, Row::raw_size_bytes, PAGE_BYTES_MAX).await?;
    rows.iter().map(rows::run).collect()
}

pub(super) async fn events(
    sessions: &Sessions,
    shard: Shard,
    (after, revision): (&RunKey, i64),
    last: &RunKey,
) -> Result<Vec<EventRow>, StoreError> {
    let (shard, bytes_max) = (smallint(shard), bytes_max());
    let arguments: [&(dyn ToSql + Sync); 8] = [
        &shard,
        &after.namespace.as_str(),
        &after.run_id.as_str(),
        &revision,
        &last.namespace.as_str(),
        &last.run_id.as_str(),
        &ROWS_MAX,
        &bytes_max,
    ];
    let rows = rows_until(sessions, EVENTS, &arguments, Row::raw_size_bytes, PAGE_BYTES_MAX).await?;
    rows.iter().map(rows::event).collect()
}

pub(super) async fn contents(
    sessions: &Sessions,
    table: ContentTable,
    shard: Shard,
    (after, place): (&RunKey, i64),
    last: &RunKey,
) -> Result<Vec<BesideRow>, StoreError> {
    let columns = if table == ContentTable::Link { ", link_key" } else { ", null::bytea as link_key" };
    let statement = format!(
        "-- inspect.{name}
select * from (
    select *, sum(octet_length(content)) over (order by namespace, run_id, {place} rows unbounded preceding) as stored
    from ({page}) as page) as counted
where stored - octet_length(content) < $8
order by namespace, run_id, {place}",
        name = table.name(),
        place = contents::place_of(table),
        page = contents::page_of(table, columns),
    );
    let (shard, bytes_max) = (smallint(shard), bytes_max());
    let arguments: [&(dyn ToSql + Sync); 8] = [
        &shard,
        &after.namespace.as_str(),
        &after.run_id.as_str(),
        &place,
        &last.namespace.as_str(),
        &last.run_id.as_str(),
        &ROWS_MAX,
        &bytes_max,
    ];
    let rows = rows_until(sessions, &statement, &arguments, Row::raw_size_bytes, PAGE_BYTES_MAX).await?;
    rows.iter().map(|row| rows::beside(row, table)).collect()
}

pub(super) async fn places(sessions: &Sessions, shard: Shard, after: i64) -> Result<Vec<PlaceRow>, StoreError> {
    let rows = read::rows(sessions, PLACES, &[&smallint(shard), &after, &ROWS_MAX]).await?;
    rows.iter().map(rows::place).collect()
}

pub(super) async fn tombstones(sessions: &Sessions, shard: Shard) -> Result<Tombstones, StoreError> {
    let rows = read::rows(sessions, TOMBSTONES, &[&smallint(shard)]).await?;
    rows.first().map_or_else(|| Ok(Tombstones::default()), rows::tombstones)
}

pub(super) async fn keys(
    sessions: &Sessions,
    table: OfRuns,
    shard: Shard,
    after: &RunKey,
) -> Result<Vec<(RunKey, bool)>, StoreError> {
    let (statement, shard) = (keys_of(table), smallint(shard));
    let rows =
        read::rows(sessions, &statement, &[&shard, &after.namespace.as_str(), &after.run_id.as_str(), &ROWS_MAX])
            .await?;
    rows.iter().map(|row| rows::known(row, table)).collect()
}

/// Reads in one statement. Two ranges a table, so that an index answers each.
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
    let rows = read::rows(sessions, &statement, &[]).await?;
    let mut found = ShardRows::default();
    for row in &rows {
        let reader = Reader { table: "shards", row, key: &String::new };
        let (place, shard): (&str, i64) = (reader.get("place")?, reader.get("shard")?);
        match SHARDED.into_iter().find(|table| *table == place) {
            Some(table) => found.strays.push((table, shard)),
            None => found.shards.push(shard),
        }
    }
    found.shards.sort_unstable();
    Ok(found)
}

//! Pages of rows as they stand, by the tables' own keys.

use rusqlite::{Connection, Row};

use super::page;
use crate::domain::{ContentTable, RunKey, Shard};
use crate::store::StoreError;
use crate::store::contents;
use crate::store::dialect::run_columns;
use crate::store::inspect::rows::{self, PLACES, TOMBSTONES, keys_of};
use crate::store::inspect::{BesideRow, EventRow, OfRuns, PlaceRow, ROWS_MAX, RunRow, SHARDED, ShardRows, Tombstones};
use crate::store::sqlite::errors;
use crate::store::sqlite::rows::{Reader, all, first};

const RUNS: &str = concat!(
    "-- inspect.runs
select ",
    run_columns!(sqlite),
    ", a.status, a.started_at, a.due_at, a.priority, l.epoch, l.ttl_ms, s.started_at, s.kind, s.ready, s.keep_slot, s.priority,
       r.parent_run_id, r.continues_run_id
  from runs as r left join active as a on a.shard = r.shard and a.namespace = r.namespace and a.run_id = r.run_id
       left join leases as l on l.shard = r.shard and l.namespace = r.namespace and l.run_id = r.run_id
       left join suspended as s on s.shard = r.shard and s.namespace = r.namespace and s.run_id = r.run_id
 where r.shard = ?1 and (r.namespace, r.run_id) > (?2, ?3)
 order by r.namespace, r.run_id limit ?4"
);

const EVENTS: &str = "-- inspect.events
select namespace, run_id, revision, position, at, event, request_id, request_digest, request_key, keyframe
  from run_events
 where shard = ?1 and (namespace, run_id, revision) > (?2, ?3, ?4) and (namespace, run_id) <= (?5, ?6)
 order by namespace, run_id, revision limit ?7";

pub(super) fn runs(connection: &Connection, shard: Shard, after: &RunKey) -> Result<Vec<RunRow>, StoreError> {
    let weight = |row: &RunRow| row.columns.text_bytes();
    page(
        connection,
        RUNS,
        (shard.0, &after.namespace.as_str(), &after.run_id.as_str(), ROWS_MAX),
        |row| rows::run(row),
        weight,
    )
}

pub(super) fn events(
    connection: &Connection,
    shard: Shard,
    after: &(RunKey, i64),
    last: &RunKey,
) -> Result<Vec<EventRow>, StoreError> {
    let weight = |row: &EventRow| row.event.len() + row.keyframe.as_ref().map_or(0, String::len);
    let (first, revision) = after;
    let values = (
        shard.0,
        first.namespace.as_str(),
        first.run_id.as_str(),
        revision,
        last.namespace.as_str(),
        last.run_id.as_str(),
        ROWS_MAX,
    );
    page(connection, EVENTS, values, |row| rows::event(row), weight)
}

pub(super) fn contents(
    connection: &Connection,
    table: ContentTable,
    shard: Shard,
    after: &(RunKey, i64),
    last: &RunKey,
) -> Result<Vec<BesideRow>, StoreError> {
    let (first, place) = after;
    let values = (
        shard.0,
        first.namespace.as_str(),
        first.run_id.as_str(),
        place,
        last.namespace.as_str(),
        last.run_id.as_str(),
        ROWS_MAX,
    );
    let weight = |row: &BesideRow| row.content.len();
    page(connection, &contents_of(table), values, |row| rows::beside(row, table), weight)
}

fn contents_of(table: ContentTable) -> String {
    let columns = if table == ContentTable::Link { ", link_key" } else { ", null as link_key" };
    format!("-- inspect.contents\n{}", contents::page_of(table, columns))
}

pub(super) fn places(connection: &Connection, shard: Shard, after: i64) -> Result<Vec<PlaceRow>, StoreError> {
    all(connection, PLACES, (shard.0, after, ROWS_MAX), |row| rows::place(row))
}

pub(super) fn tombstones(connection: &Connection, shard: Shard) -> Result<Tombstones, StoreError> {
    Ok(first(connection, TOMBSTONES, [shard.0], |row| rows::tombstones(row))?.unwrap_or_default())
}

pub(super) fn keys(
    connection: &Connection,
    table: OfRuns,
    shard: Shard,
    after: &RunKey,
) -> Result<Vec<(RunKey, bool)>, StoreError> {
    let values = (shard.0, after.namespace.as_str(), after.run_id.as_str(), ROWS_MAX);
    all(connection, &keys_of(table), values, |row| rows::known(row, table))
}

pub(super) fn shards(connection: &mut Connection, shard_count: u16) -> Result<ShardRows, StoreError> {
    let snapshot = connection.transaction().map_err(errors::statement)?;
    let number = |row: &Row<'_>| Reader { table: "shards", row, key: &String::new }.get((0, "shard"));
    let shards = all(&snapshot, "-- inspect.shards\nselect shard from shards order by shard", [], number)?;
    let mut strays = Vec::new();
    for table in SHARDED {
        let below = format!("-- inspect.strays\nselect shard from {table} where shard < 0 limit 1");
        strays.extend(all(&snapshot, &below, [], number)?.into_iter().map(|shard| (table, shard)));
        let above = format!("-- inspect.strays\nselect shard from {table} where shard >= ?1 limit 1");
        strays.extend(all(&snapshot, &above, [shard_count], number)?.into_iter().map(|shard| (table, shard)));
    }
    Ok(ShardRows { shards, strays })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::migrations::SQLITE;
    use crate::store::sqlite::inspect::links::LINKS;
    use crate::store::sqlite::read::REVISION_AS_OF;

    #[test]
    fn no_page_and_no_look_walks_a_table_or_sorts() {
        let connection = Connection::open_in_memory().unwrap();
        for migration in SQLITE {
            connection.execute_batch(migration.sql).unwrap();
        }
        let keys = OfRuns::ALL.map(keys_of);
        let contents = ContentTable::ALL.map(contents_of);
        let statements = [RUNS, EVENTS, PLACES].into_iter().chain(keys.iter().chain(&contents).map(String::as_str));
        for statement in statements.chain([LINKS, REVISION_AS_OF]) {
            let mut explained = connection.prepare(&format!("explain query plan {statement}")).unwrap();
            let nothing = vec![None::<i64>; explained.parameter_count()];
            let steps =
                explained.query_map(rusqlite::params_from_iter(nothing), |row| row.get::<_, String>(3)).unwrap();
            let steps: Vec<String> = steps.collect::<Result<_, _>>().unwrap();
            let slow = steps.iter().any(|step| step.contains("SCAN") || step.contains("TEMP B-TREE"));
            assert!(!slow, "{statement}\n{steps:?}");
            let by_run = statement.contains("run_id = ?3") && steps.iter().any(|step| step.contains("position<"));
            assert!(!by_run, "{statement}\n{steps:?}");
        }
    }
}

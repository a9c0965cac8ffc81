//! Pages of rows as they stand, by the tables' own keys.

use rusqlite::Connection;

use super::{key, page};
use crate::domain::{RunKey, Shard, Time};
use crate::store::StoreError;
use crate::store::inspect::{ActiveRow, EventRow, OfRuns, PlaceRow, ROWS_MAX, RunRow, SHARDED, ShardRows};
use crate::store::sqlite::errors;
use crate::store::sqlite::rows::{Cell, run_columns, run_columns_of, shown};

const RUNS: &str = concat!(
    "-- inspect.runs
select ",
    run_columns!(),
    ", a.status, a.started_at, a.due_at, l.epoch, l.ttl_ms, s.ready
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

const PLACES: &str = "-- inspect.places
select e.namespace, e.run_id, e.position, e.at, e.revision,
       (select r.revision from runs as r
         where r.shard = e.shard and r.namespace = e.namespace and r.run_id = e.run_id)
  from run_events as e where e.shard = ?1 and e.position > ?2 order by e.position limit ?3";

fn keys_of(table: OfRuns) -> String {
    let table = table.name();
    format!(
        "-- inspect.{table}
select a.namespace, a.run_id,
       exists (select 1 from runs as r where r.shard = a.shard and r.namespace = a.namespace and r.run_id = a.run_id)
  from {table} as a where a.shard = ?1 and (a.namespace, a.run_id) > (?2, ?3)
 order by a.namespace, a.run_id limit ?4"
    )
}

pub(super) fn runs(connection: &Connection, shard: Shard, after: &RunKey) -> Result<Vec<RunRow>, StoreError> {
    let read = |row: &rusqlite::Row<'_>| {
        let columns = run_columns_of(row)?;
        let cell = Cell { table: "active", key: &|| shown(&columns.key) };
        let active: (Option<i16>, Option<i64>) = (cell.get(row, 13, "status")?, cell.get(row, 14, "started_at")?);
        let due_at = cell.get::<Option<i64>>(row, 15, "due_at")?.map(Time::from_micros);
        let active = active.0.zip(active.1.map(Time::from_micros));
        let active = active.map(|(status, started_at)| ActiveRow { status, started_at, due_at });
        let cell = Cell { table: "leases", key: &|| shown(&columns.key) };
        let lease: (Option<i64>, Option<i64>) = (cell.get(row, 16, "epoch")?, cell.get(row, 17, "ttl_ms")?);
        let cell = Cell { table: "suspended", key: &|| shown(&columns.key) };
        let ready = cell.get(row, 18, "ready")?;
        Ok(RunRow { columns, active, lease: lease.0.zip(lease.1), ready })
    };
    let weight = |row: &RunRow| row.columns.text_bytes();
    page(connection, RUNS, (shard.0, &after.namespace, &after.run_id, ROWS_MAX), read, weight)
}

pub(super) fn events(
    connection: &Connection,
    shard: Shard,
    after: &(RunKey, i64),
    last: &RunKey,
) -> Result<Vec<EventRow>, StoreError> {
    let read = |row: &rusqlite::Row<'_>| {
        let key = key(row, "run_events", 0)?;
        let cell = Cell { table: "run_events", key: &|| shown(&key) };
        Ok(EventRow {
            revision: cell.get(row, 2, "revision")?,
            position: cell.get(row, 3, "position")?,
            at: Time::from_micros(cell.get(row, 4, "at")?),
            event: cell.get(row, 5, "event")?,
            request_id: cell.get(row, 6, "request_id")?,
            request_digest: cell.get(row, 7, "request_digest")?,
            request_key: cell.get(row, 8, "request_key")?,
            keyframe: cell.get(row, 9, "keyframe")?,
            key,
        })
    };
    let weight = |row: &EventRow| row.event.len() + row.keyframe.as_ref().map_or(0, String::len);
    let (first, revision) = after;
    let values = (shard.0, &first.namespace, &first.run_id, revision, &last.namespace, &last.run_id, ROWS_MAX);
    page(connection, EVENTS, values, read, weight)
}

pub(super) fn places(connection: &Connection, shard: Shard, after: i64) -> Result<Vec<PlaceRow>, StoreError> {
    let read = |row: &rusqlite::Row<'_>| {
        let key = key(row, "run_events", 0)?;
        let cell = Cell { table: "run_events", key: &|| shown(&key) };
        Ok(PlaceRow {
            position: cell.get(row, 2, "position")?,
            at: Time::from_micros(cell.get(row, 3, "at")?),
            revision: cell.get(row, 4, "revision")?,
            run_revision: cell.get(row, 5, "revision")?,
            key,
        })
    };
    page(connection, PLACES, (shard.0, after, ROWS_MAX), read, |_| 0)
}

pub(super) fn keys(
    connection: &Connection,
    table: OfRuns,
    shard: Shard,
    after: &RunKey,
) -> Result<Vec<(RunKey, bool)>, StoreError> {
    let read = |row: &rusqlite::Row<'_>| {
        let key = key(row, table.name(), 0)?;
        let known = Cell { table: table.name(), key: &|| shown(&key) }.get(row, 2, "run_id")?;
        Ok((key, known))
    };
    page(connection, &keys_of(table), (shard.0, &after.namespace, &after.run_id, ROWS_MAX), read, |_| 0)
}

pub(super) fn shards(connection: &mut Connection, shard_count: u16) -> Result<ShardRows, StoreError> {
    let snapshot = connection.transaction().map_err(errors::statement)?;
    let number = |row: &rusqlite::Row<'_>| row.get::<_, i64>(0).map_err(errors::statement);
    let shards = page(&snapshot, "-- inspect.shards\nselect shard from shards order by shard", [], number, |_| 0)?;
    let mut strays = Vec::new();
    for table in SHARDED {
        let below = format!("-- inspect.strays\nselect shard from {table} where shard < 0 limit 1");
        strays.extend(page(&snapshot, &below, [], number, |_| 0)?.into_iter().map(|shard| (table, shard)));
        let above = format!("-- inspect.strays\nselect shard from {table} where shard >= ?1 limit 1");
        strays.extend(page(&snapshot, &above, [shard_count], number, |_| 0)?.into_iter().map(|shard| (table, shard)));
    }
    Ok(ShardRows { shards, strays })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::migrations::SQLITE;
    use crate::store::sqlite::inspect::links;

    #[test]
    fn no_page_and_no_look_walks_a_table_or_sorts() {
        let connection = Connection::open_in_memory().unwrap();
        for migration in SQLITE {
            connection.execute_batch(migration.sql).unwrap();
        }
        let keys = OfRuns::ALL.map(keys_of);
        let statements = [RUNS, EVENTS, PLACES].into_iter().chain(keys.iter().map(String::as_str));
        for statement in statements.chain(links::STATEMENTS) {
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

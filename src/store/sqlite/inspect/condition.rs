//! How a file is.

use rusqlite::Connection;

use super::{key, links, page};
use crate::domain::{Shard, Time};
use crate::store::StoreError;
use crate::store::inspect::{Condition, File, Head, OldRun};
use crate::store::sqlite::rows::{Cell, shown};
use crate::store::sqlite::{ends, errors};

const OLDEST: &str = "-- inspect.oldest
select a.namespace, a.run_id, a.status, a.started_at,
       (select r.agent_id from runs as r where r.shard = a.shard and r.namespace = a.namespace and r.run_id = a.run_id)
  from (select * from active order by started_at, run_id limit 10) as a order by a.started_at, a.run_id";

pub(super) fn condition(
    connection: &mut Connection,
    shard_count: u16,
    now: Time,
    wal_bytes: u64,
) -> Result<Condition, StoreError> {
    let snapshot = connection.transaction().map_err(errors::statement)?;
    let positions = ends::heads(&snapshot, shard_count)?;
    let heads = (0..).zip(positions).map(|(shard, position)| {
        Ok(Head { shard, position, at: links::time_of(&snapshot, Shard(shard), position)?, ..Head::default() })
    });
    let heads = heads.collect::<Result<Vec<_>, StoreError>>()?;
    let (schema_release, min_release, created_at, migration): (String, String, i64, u32) = snapshot
        .query_row(
            "-- inspect.ledger
             select schema_release, min_release, created_at, (select max(number) from ledger_migrations) from ledger",
            [],
            |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?, row.get(3)?)),
        )
        .map_err(errors::statement)?;
    let counted = |row: &rusqlite::Row<'_>| {
        let cell = Cell { table: "active", key: &|| "its rows".to_owned() };
        Ok((cell.get(row, 0, "status")?, cell.count(row, 1, "status")?))
    };
    let count = "-- inspect.count_active\nselect status, count(*) from active group by status order by status";
    let active: Vec<(i16, u64)> = page(&snapshot, count, [], counted, |_| 0)?;
    let old = |row: &rusqlite::Row<'_>| {
        let key = key(row, "active", 0)?;
        let cell = Cell { table: "active", key: &|| shown(&key) };
        Ok(OldRun {
            status: cell.get(row, 2, "status")?,
            started_at: Time::from_micros(cell.get(row, 3, "started_at")?),
            agent_id: cell.get(row, 4, "agent_id")?,
            key,
        })
    };
    let oldest = page(&snapshot, OLDEST, [], old, |_| 0)?;
    let pragma = |name: &str| {
        let number = snapshot.query_row(&format!("pragma {name}"), [], |row| row.get::<_, u32>(0));
        number.map(u64::from).map_err(errors::statement)
    };
    let page_bytes = pragma("page_size")?;
    let file = File {
        bytes: pragma("page_count")? * page_bytes,
        wal_bytes,
        free_bytes: pragma("freelist_count")? * page_bytes,
    };
    Ok(Condition {
        now,
        server_version: None,
        schema_release,
        min_release,
        migration: u64::from(migration),
        created_at: Time::from_micros(created_at),
        heads,
        active,
        oldest,
        sessions: None,
        replication: None,
        tables: Vec::new(),
        file: Some(file),
    })
}

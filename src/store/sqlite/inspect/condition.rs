//! The condition of a file.

use rusqlite::Connection;

use super::links;
use crate::domain::{Shard, Time};
use crate::store::StoreError;
use crate::store::inspect::rows::{self, COUNT_ACTIVE, OLDEST};
use crate::store::inspect::{Condition, File, Head};
use crate::store::sqlite::rows::all;
use crate::store::sqlite::{ends, errors};

pub(super) fn condition(
    connection: &mut Connection,
    shard_count: u16,
    now: Time,
    (wal_bytes, space): (u64, Option<(u64, u64)>),
) -> Result<Condition, StoreError> {
    let snapshot = connection.transaction().map_err(errors::statement)?;
    let positions = ends::ends(&snapshot, shard_count)?;
    let heads = (0..).zip(positions.iter().copied()).map(|(shard, position)| {
        Ok(Head { shard, position, at: links::time_of(&snapshot, Shard(shard), position)?, ..Head::default() })
    });
    let heads = heads.collect::<Result<Vec<_>, StoreError>>()?;
    let steady_ahead_micros = links::steady_ahead(&snapshot)?;
    let (schema_release, min_release, created_at, migration): (String, String, i64, u32) = snapshot
        .query_row(
            "-- inspect.ledger
             select schema_release, min_release, created_at, (select max(number) from ledger_migrations) from ledger",
            [],
            |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?, row.get(3)?)),
        )
        .map_err(errors::statement)?;
    let active = all(&snapshot, COUNT_ACTIVE, [], |row| rows::active(row))?;
    let oldest = all(&snapshot, OLDEST, [], |row| rows::old(row))?;
    let pragma = |name: &str| {
        let number = snapshot.query_row(&format!("pragma {name}"), [], |row| row.get::<_, u32>(0));
        number.map(u64::from).map_err(errors::statement)
    };
    let page_bytes = pragma("page_size")?;
    let file = File {
        bytes: pragma("page_count")? * page_bytes,
        wal_bytes,
        free_bytes: pragma("freelist_count")? * page_bytes,
        available_bytes: space.map(|(available, _)| available),
        volume_bytes: space.map(|(_, volume)| volume),
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
        steady_ahead_micros,
        sessions: None,
        replication: None,
        tables: Vec::new(),
        file: Some(file),
    })
}

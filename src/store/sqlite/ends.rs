//! Where the shards end: read here, and nowhere else.
//!
//! A shard's end is its newest event, to which the log's primary key leads: no commit writes it a second time. Invariant:
//! nothing ever deletes a shard's newest event. Without it, its position would be given out again, for another event.

use rusqlite::{Connection, Row};

use super::errors;
use super::rows::Cell;
use crate::domain::{Position, Shard, Time};
use crate::store::StoreError;

/// A shard's newest event, if it has one.
macro_rules! newest {
    ($columns:literal, $shard:literal) => {
        concat!("select ", $columns, " from run_events where shard = ", $shard, " order by position desc limit 1")
    };
}

/// Where a writer's shard ends, and when.
pub(super) fn last(connection: &Connection, shard: Shard) -> Result<Option<(Position, Time)>, StoreError> {
    newest(connection, shard, concat!("-- commit.last\n", newest!("position, at", "?1")), |cell, row| {
        Ok((cell.count(row, 0, "position")?, Time::from_micros(cell.get(row, 1, "at")?)))
    })
}

/// The latest time in the other shards.
pub(super) fn elsewhere(connection: &Connection, shard: Shard) -> Result<Option<Time>, StoreError> {
    let mut statement = connection
        .prepare_cached(concat!(
            "-- commit.elsewhere\nselect max((",
            newest!("at", "s.shard"),
            ")) from shards as s where s.shard <> ?1",
        ))
        .map_err(errors::statement)?;
    let at: Option<i64> = statement.query_row([shard.0], |row| row.get(0)).map_err(errors::statement)?;
    Ok(at.map(Time::from_micros))
}

/// Each shard's last position in a snapshot; 0 where it has no event.
pub(super) fn heads(snapshot: &Connection, shard_count: u16) -> Result<Vec<Position>, StoreError> {
    let head = |shard| {
        let head = concat!("-- read.head\n", newest!("position", "?1"));
        newest(snapshot, Shard(shard), head, |cell, row| cell.count(row, 0, "position"))
    };
    (0..shard_count).map(|shard| Ok(head(shard)?.unwrap_or(0))).collect()
}

fn newest<T>(
    connection: &Connection,
    shard: Shard,
    statement: &str,
    read: impl FnOnce(Cell<'_>, &Row<'_>) -> Result<T, StoreError>,
) -> Result<Option<T>, StoreError> {
    let mut statement = connection.prepare_cached(statement).map_err(errors::statement)?;
    let mut rows = statement.query([shard.0]).map_err(errors::statement)?;
    let cell = Cell { table: "run_events", key: &|| format!("shard {}", shard.0) };
    rows.next().map_err(errors::statement)?.map(|row| read(cell, row)).transpose()
}

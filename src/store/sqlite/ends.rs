//! The ends of the shards: read here, and nowhere else.
//!
//! A shard's end is its newest event, to which the log's primary key leads: no commit writes it a second time.
//! Invariant: nothing ever deletes a shard's newest event. Without it, its position would be given out again, for
//! another event.

use rusqlite::Connection;

use super::rows::{Reader, first};
use crate::domain::{Position, Positions, Shard, Time};
use crate::store::StoreError;

/// A shard's newest event, if it has one.
macro_rules! newest {
    ($columns:literal, $shard:literal) => {
        concat!("select ", $columns, " from run_events where shard = ", $shard, " order by position desc limit 1")
    };
}

/// The position and time of the last event of a writer's shard.
pub(super) fn last(connection: &Connection, shard: Shard) -> Result<Option<(Position, Time)>, StoreError> {
    first(connection, concat!("-- commit.last\n", newest!("position, at", "?1")), [shard.0], |row| {
        let event = Reader { table: "run_events", row, key: &|| format!("the last of shard {}", shard.0) };
        Ok((event.get((0, "position"))?, event.get((1, "at"))?))
    })
}

/// The latest time in the other shards, of those that are not after a time.
pub(super) fn elsewhere(connection: &Connection, shard: Shard, until: Time) -> Result<Option<Time>, StoreError> {
    let statement = concat!(
        "-- commit.elsewhere\nselect max(at) from (select (",
        newest!("at", "s.shard"),
        ") as at from shards as s where s.shard <> ?1) where at <= ?2",
    );
    let at = first(connection, statement, (shard.0, until.micros()), |row| {
        Reader { table: "run_events", row, key: &|| "the last of a shard".to_owned() }.get((0, "at"))
    });
    Ok(at?.flatten())
}

/// Each shard's last position in a snapshot; 0 where it has no event.
pub(super) fn ends(snapshot: &Connection, shard_count: u16) -> Result<Positions, StoreError> {
    let end = |shard| {
        let end = first(snapshot, concat!("-- read.end\n", newest!("position", "?1")), [shard], |row| {
            Reader { table: "run_events", row, key: &|| format!("the last of shard {shard}") }.get((0, "position"))
        });
        Ok(end?.unwrap_or(0))
    };
    (0..shard_count).map(end).collect()
}

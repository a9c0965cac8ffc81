//! Reads of one run, of the shards' ends, and of nothing much.

use rusqlite::Connection;

use super::rows::{self, Cell, bigint, event_columns};
use super::{ends, errors};
use crate::domain::{Event, Position, Run, RunKey, Shard};
use crate::store::columns::first_of;
use crate::store::{StoreError, json};

/// Runs right after one of their events each, in one snapshot.
pub(super) fn runs_at(
    connection: &mut Connection,
    wanted: &[(Shard, RunKey, u64)],
) -> Result<Vec<Option<Run>>, StoreError> {
    let snapshot = connection.transaction().map_err(errors::statement)?;
    wanted.iter().map(|(shard, key, revision)| run_at(&snapshot, *shard, key, *revision)).collect()
}

/// The run right after one of its events: the keyframe at or before it, and the events between.
fn run_at(snapshot: &Connection, shard: Shard, key: &RunKey, revision: u64) -> Result<Option<Run>, StoreError> {
    let first = first_of(revision);
    let keyframe = keyframe(snapshot, shard, key, first)?;
    let mut statement = snapshot
        .prepare_cached(concat!(
            "-- read.run_at\nselect ",
            event_columns!(),
            " from run_events where shard = ?1 and namespace = ?2 and run_id = ?3 and revision >= ?4 and revision <= ?5
              order by revision",
        ))
        .map_err(errors::statement)?;
    let mut rows = statement
        .query((shard.0, &key.namespace, &key.run_id, bigint(first), bigint(revision)))
        .map_err(errors::statement)?;
    let mut events = Vec::new();
    while let Some(row) = rows.next().map_err(errors::statement)? {
        let (_position, columns) = rows::event(row, shard)?;
        events.push(json::read_event(columns)?);
    }
    Ok(json::fold(keyframe, &events)?.filter(|run| run.revision == revision))
}

/// The revision of each run when its shard ended at a position. The plus keeps SQLite from walking the shard's log.
pub(super) fn revisions_as_of(
    connection: &mut Connection,
    wanted: &[(Shard, RunKey, Position)],
) -> Result<Vec<u64>, StoreError> {
    let snapshot = connection.transaction().map_err(errors::statement)?;
    let mut statement = snapshot
        .prepare_cached(
            "-- read.revision_as_of
             select revision from run_events
              where shard = ?1 and namespace = ?2 and run_id = ?3 and +position <= ?4
              order by revision desc limit 1",
        )
        .map_err(errors::statement)?;
    let revisions = wanted.iter().map(|(shard, key, head)| {
        let mut rows =
            statement.query((shard.0, &key.namespace, &key.run_id, bigint(*head))).map_err(errors::statement)?;
        let cell = Cell { table: "run_events", key: &|| rows::shown(key) };
        rows.next().map_err(errors::statement)?.map_or(Ok(0), |row| cell.count(row, 0, "revision"))
    });
    revisions.collect()
}

fn keyframe(connection: &Connection, shard: Shard, key: &RunKey, revision: u64) -> Result<Option<Run>, StoreError> {
    let mut statement = connection
        .prepare_cached(
            "-- read.keyframe
             select keyframe from run_events
              where shard = ?1 and namespace = ?2 and run_id = ?3 and revision = ?4 and keyframe is not null",
        )
        .map_err(errors::statement)?;
    let mut rows =
        statement.query((shard.0, &key.namespace, &key.run_id, bigint(revision))).map_err(errors::statement)?;
    let Some(row) = rows.next().map_err(errors::statement)? else { return Ok(None) };
    let cell = Cell { table: "run_events", key: &|| rows::shown(key) };
    let keyframe: String = cell.get(row, 0, "keyframe")?;
    json::read_keyframe(key, &keyframe).map(Some)
}

/// A page of a run's events.
pub(super) fn run_events(
    connection: &Connection,
    shard: Shard,
    key: &RunKey,
    after: u64,
    limit: usize,
    bytes_max: usize,
) -> Result<Vec<Event>, StoreError> {
    let mut statement = connection
        .prepare_cached(concat!(
            "-- read.run_events\nselect ",
            event_columns!(),
            " from run_events where shard = ?1 and namespace = ?2 and run_id = ?3 and revision > ?4
              order by revision limit ?5",
        ))
        .map_err(errors::statement)?;
    let limit = i64::try_from(limit).unwrap_or(i64::MAX);
    let mut rows =
        statement.query((shard.0, &key.namespace, &key.run_id, bigint(after), limit)).map_err(errors::statement)?;
    let mut events = Vec::new();
    let mut bytes = 0;
    while let Some(row) = rows.next().map_err(errors::statement)? {
        let (_position, columns) = rows::event(row, shard)?;
        bytes += columns.event.len();
        if bytes > bytes_max && !events.is_empty() {
            break;
        }
        events.push(json::read_event(columns)?);
    }
    Ok(events)
}

/// Each shard's last position, in one snapshot.
pub(super) fn heads(connection: &mut Connection, shard_count: u16) -> Result<Vec<Position>, StoreError> {
    let snapshot = connection.transaction().map_err(errors::statement)?;
    ends::heads(&snapshot, shard_count)
}

/// Reads the ledger's row.
pub(super) fn ping(connection: &Connection) -> Result<(), StoreError> {
    rows::ledger(connection).map(|_ledger| ())
}

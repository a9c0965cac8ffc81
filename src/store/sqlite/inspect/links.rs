//! What an export shows of a run besides its events.

use rusqlite::{Connection, OptionalExtension as _};

use crate::domain::ids::DEFAULT_NAMESPACE;
use crate::domain::{Position, RunKey, Shard, Time};
use crate::store::StoreError;
use crate::store::columns::first_of;
use crate::store::inspect::{Extent, Link, Links};
use crate::store::sqlite::rows::{Cell, bigint};
use crate::store::sqlite::{ends, errors};

/// An event's own changes, or all of the run where the event carries it.
const LINKS: &str = "-- inspect.links
select case when keyframe is null then json_extract(event, '$.changes.taskThreadId')
            else json_extract(keyframe, '$.run.taskThreadId') end,
       case when keyframe is null then json_extract(event, '$.changes.auditSessionId')
            else coalesce(json_extract(keyframe, '$.run.auditSessionId'), '') end
  from run_events
 where shard = ?1 and namespace = ?2 and run_id = ?3 and revision between ?4 and ?5 order by revision";

/// The plus sign keeps SQLite from walking all events of the shard up to the position instead of the run's.
const REVISION: &str = "-- inspect.revision
select revision from run_events
 where shard = ?1 and namespace = ?2 and run_id = ?3 and +position <= ?4 order by revision desc limit 1";

pub(super) fn time_of(connection: &Connection, shard: Shard, position: Position) -> Result<Option<Time>, StoreError> {
    let mut statement = connection
        .prepare_cached("-- inspect.time_of\nselect at from run_events where shard = ?1 and position = ?2")
        .map_err(errors::statement)?;
    let at: Option<i64> =
        statement.query_row((shard.0, bigint(position)), |row| row.get(0)).optional().map_err(errors::statement)?;
    Ok(at.map(Time::from_micros))
}

pub(super) fn extent(connection: &mut Connection, shard_count: u16, link: &Link) -> Result<Extent, StoreError> {
    let snapshot = connection.transaction().map_err(errors::statement)?;
    let heads = ends::heads(&snapshot, shard_count)?;
    let (column, id) = match link {
        Link::AuditSession(id) => ("audit_session_id", id),
        Link::TaskThread(id) => ("task_thread_id", id),
    };
    // All times have the same form, so that their texts stand in their order.
    let sql = format!(
        "-- inspect.extent
         select min(started_at), max(json_extract(record, '$.updatedAt')) from runs where namespace = ?1 and {column} = ?2"
    );
    let found: (Option<i64>, Option<String>) = snapshot
        .query_row(&sql, (DEFAULT_NAMESPACE, id), |row| Ok((row.get(0)?, row.get(1)?)))
        .map_err(errors::statement)?;
    let last = found.1.map(|text| serde_json::from_value(text.into())).transpose();
    let cell = Cell { table: "runs", key: &|| format!("{column} {id}") };
    let last: Option<Time> = last.map_err(|error| cell.corrupt("record", error))?;
    Ok(Extent { heads, times: found.0.map(Time::from_micros).zip(last) })
}

pub(super) fn links(connection: &Connection, asked: &(Shard, RunKey, u64)) -> Result<Links, StoreError> {
    let (shard, key, revision) = asked;
    let mut statement = connection.prepare_cached(LINKS).map_err(errors::statement)?;
    let values = (shard.0, &key.namespace, &key.run_id, bigint(first_of(*revision)), bigint(*revision));
    let mut rows = statement.query(values).map_err(errors::statement)?;
    let mut links = Links::default();
    while let Some(row) = rows.next().map_err(errors::statement)? {
        let (task_thread_id, audit_session_id): (Option<String>, Option<String>) =
            row.get(0).and_then(|first| Ok((first, row.get(1)?))).map_err(errors::statement)?;
        links.change(task_thread_id.as_deref(), audit_session_id.as_deref());
    }
    Ok(links)
}

pub(super) fn revision(connection: &Connection, asked: &(Shard, RunKey, Position)) -> Result<u64, StoreError> {
    let (shard, key, head) = asked;
    let mut statement = connection.prepare_cached(REVISION).map_err(errors::statement)?;
    let found: Option<i64> = statement
        .query_row((shard.0, &key.namespace, &key.run_id, bigint(*head)), |row| row.get(0))
        .optional()
        .map_err(errors::statement)?;
    Ok(found.map_or(0, |revision| u64::try_from(revision).unwrap_or(0)))
}

#[cfg(test)]
pub(super) const STATEMENTS: [&str; 2] = [LINKS, REVISION];

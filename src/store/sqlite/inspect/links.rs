//! The facts of a run that an export shows besides its events.

use std::ops::ControlFlow;

use rusqlite::Connection;

use crate::domain::{Namespace, Position, Revision, RunKey, Shard, Time};
use crate::store::StoreError;
use crate::store::inspect::rows::{self, TIME_OF};
use crate::store::inspect::{Extent, Link, Links};
use crate::store::sqlite::rows::{Reader, bigint, each, first, shown};
use crate::store::sqlite::{ends, errors};

/// An event's own changes, or all of the run where the event carries it.
pub(super) const LINKS: &str = "-- inspect.links
select case when keyframe is null then json_extract(event, '$.changes.taskThreadId')
            else json_extract(keyframe, '$.run.taskThreadId') end,
       case when keyframe is null then json_extract(event, '$.changes.auditSessionId')
            else coalesce(json_extract(keyframe, '$.run.auditSessionId'), '') end
  from run_events
 where shard = ?1 and namespace = ?2 and run_id = ?3 and revision between ?4 and ?5 order by revision";

pub(super) fn time_of(connection: &Connection, shard: Shard, position: Position) -> Result<Option<Time>, StoreError> {
    let position = bigint(position);
    first(connection, TIME_OF, (shard.0, position), |row| rows::time(row, shard, position))
}

pub(super) fn has_namespace(connection: &Connection, namespace: &Namespace) -> Result<bool, StoreError> {
    let statement = "-- inspect.has_namespace\nselect 1 from namespaces where name = ?1";
    Ok(first(connection, statement, [namespace.as_str()], |_| Ok(()))?.is_some())
}

pub(super) fn steady_ahead(connection: &Connection) -> Result<i64, StoreError> {
    let ahead = first(connection, "-- inspect.steady_ahead\nselect steady_ahead from uptime", [], |row| {
        let uptime = Reader { table: "uptime", row, key: &|| "the only row".to_owned() };
        uptime.get((0, "steady_ahead"))
    })?;
    Ok(ahead.unwrap_or_default())
}

pub(super) fn extent(connection: &mut Connection, shard_count: u16, link: &Link) -> Result<Extent, StoreError> {
    let snapshot = connection.transaction().map_err(errors::statement)?;
    let ends = ends::ends(&snapshot, shard_count)?;
    let (column, id) = link.column();
    // All times have the same form, so that their texts sort in their order.
    let statement = format!(
        "-- inspect.extent
         select min(r.started_at), max(json_extract(r.record, '$.updatedAt'))
           from namespaces as n cross join runs as r on r.namespace = n.name where r.{column} = ?1"
    );
    let times = first(&snapshot, &statement, [id], |row| {
        let runs = Reader { table: "runs", row, key: &|| format!("{column} {id}") };
        let last: Option<String> = runs.get((1, "record"))?;
        let last = last.map(|text| serde_json::from_value(text.into())).transpose();
        Ok((runs.get((0, "started_at"))?, last.map_err(|error| runs.corrupt("record", error))?))
    });
    let (first, last): (Option<Time>, Option<Time>) = times?.unwrap_or_default();
    Ok(Extent { ends, times: first.zip(last) })
}

pub(super) fn links(connection: &Connection, asked: &(Shard, RunKey, Revision)) -> Result<Links, StoreError> {
    let (shard, key, revision) = asked;
    let values =
        (shard.0, key.namespace.as_str(), key.run_id.as_str(), bigint(revision.first_to_fold()), bigint(*revision));
    let mut links = Links::default();
    each(connection, LINKS, values, |row| {
        let event = Reader { table: "run_events", row, key: &|| shown(key) };
        links.change(event.get((0, "task_thread_id"))?, event.get((1, "audit_session_id"))?);
        Ok(ControlFlow::Continue(()))
    })?;
    Ok(links)
}

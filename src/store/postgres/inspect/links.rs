//! What an export shows of a run besides its events.

use tokio_postgres::types::ToSql;

use super::{ByShard, rows};
use crate::domain::ids::DEFAULT_NAMESPACE;
use crate::domain::{Position, Shard, Time};
use crate::store::StoreError;
use crate::store::columns::first_of;
use crate::store::inspect::{Extent, Link, Links};
use crate::store::postgres::changes::OverShards;
use crate::store::postgres::rows::{At, Reader, bigint, smallint};
use crate::store::postgres::sessions::Sessions;

const TIME_OF: &str = "-- inspect.time_of
select at from run_events where shard = $1 and position = $2";

/// An event's own changes, or all of the run where the event carries it.
const LINKS: &str = "-- inspect.links
select v.n, e.task_thread_id, e.audit_session_id
from unnest($2::text[], $3::text[], $4::bigint[], $5::bigint[]) with ordinality as v (namespace, run_id, first, last, n)
cross join lateral (
    select revision,
           case when keyframe is null then event->'changes'->>'taskThreadId'
                else keyframe->'run'->>'taskThreadId' end as task_thread_id,
           case when keyframe is null then event->'changes'->>'auditSessionId'
                else coalesce(keyframe->'run'->>'auditSessionId', '') end as audit_session_id
    from run_events
    where shard = $1 and namespace = v.namespace and run_id = v.run_id and revision between v.first and v.last
    order by revision
    limit 32) as e
order by v.n, e.revision";

/// The sum keeps the planner from walking all events of the shard up to the position instead of the run's.
const REVISIONS: &str = "-- inspect.revisions
select v.n, e.revision
from unnest($2::text[], $3::text[]) with ordinality as v (namespace, run_id, n)
cross join lateral (
    select revision
    from run_events
    where shard = $1 and namespace = v.namespace and run_id = v.run_id and position + 0 <= $4::bigint
    order by revision desc
    limit 1) as e";

pub(super) async fn time_of(sessions: &Sessions, shard: Shard, position: Position) -> Result<Option<Time>, StoreError> {
    let arguments: [&(dyn ToSql + Sync); 2] = [&smallint(shard), &bigint(position)];
    let rows = rows(sessions, TIME_OF, &arguments, |_| 0).await?;
    let at = |row| Reader { table: "run_events", row }.get("at", || format!("shard {} position {position}", shard.0));
    rows.first().map(at).transpose().map(|at| at.map(|At(at)| at))
}

/// In one statement: what was committed by then is within both.
pub(super) async fn extent(sessions: &Sessions, over_shards: &OverShards, link: &Link) -> Result<Extent, StoreError> {
    let (column, id) = match link {
        Link::AuditSession(id) => ("audit_session_id", id),
        Link::TaskThread(id) => ("task_thread_id", id),
    };
    // All times have the same form, so that their texts stand in their order; none has a zone to be looked up.
    let statement = format!(
        "-- inspect.extent
select h.shard, h.position, t.first, t.last
from ({}) as h
cross join (
    select min(started_at) as first, max((record->>'updatedAt') collate \"C\")::timestamptz as last
    from runs
    where namespace = $1 and {column} = $2) as t",
        over_shards.heads_statement()
    );
    let rows = rows(sessions, &statement, &[&DEFAULT_NAMESPACE, id], |_| 0).await?;
    let heads = over_shards.heads_of(&rows)?;
    let key = || format!("{column} {id}");
    let times = rows.first().map(|row| {
        let runs = Reader { table: "runs", row };
        let (first, last): (Option<At>, Option<At>) = (runs.get("first", key)?, runs.get("last", key)?);
        Ok::<_, StoreError>(first.zip(last).map(|(At(first), At(last))| (first, last)))
    });
    Ok(Extent { heads, times: times.transpose()?.flatten() })
}

pub(super) async fn links(sessions: &Sessions, asked: &ByShard, found: &mut [Links]) -> Result<(), StoreError> {
    let shard = smallint(asked.shard);
    let first: Vec<i64> = asked.numbers.iter().map(|revision| bigint(first_of(*revision))).collect();
    let last: Vec<i64> = asked.numbers.iter().map(|revision| bigint(*revision)).collect();
    let arguments: [&(dyn ToSql + Sync); 5] = [&shard, &asked.namespaces, &asked.run_ids, &first, &last];
    for row in &rows(sessions, LINKS, &arguments, |_| 0).await? {
        let event = Reader { table: "run_events", row };
        let key = || format!("an event of shard {shard}");
        let place = place(event, asked)?;
        found[place].change(event.get("task_thread_id", key)?, event.get("audit_session_id", key)?);
    }
    Ok(())
}

pub(super) async fn revisions(
    sessions: &Sessions,
    asked: &ByShard,
    head: Position,
    found: &mut [u64],
) -> Result<(), StoreError> {
    let (shard, head) = (smallint(asked.shard), bigint(head));
    let arguments: [&(dyn ToSql + Sync); 4] = [&shard, &asked.namespaces, &asked.run_ids, &head];
    for row in &rows(sessions, REVISIONS, &arguments, |_| 0).await? {
        let event = Reader { table: "run_events", row };
        found[place(event, asked)?] = event.unsigned("revision", || format!("an event of shard {shard}"))?;
    }
    Ok(())
}

/// Where the row's run stood in the list.
fn place(row: Reader<'_>, asked: &ByShard) -> Result<usize, StoreError> {
    let key = || format!("an event of shard {}", asked.shard.0);
    let number = usize::try_from(row.unsigned("n", key)?).ok().and_then(|number| number.checked_sub(1));
    let index = number.and_then(|number| asked.indexes.get(number)).copied();
    index.ok_or_else(|| row.corrupt("n", key(), "there is no such row".into()))
}

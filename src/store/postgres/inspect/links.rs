//! The facts of a run that an export shows besides its events.

use tokio_postgres::types::ToSql;

use crate::domain::{Namespace, Position, Revision, RunKey, Shard, Time};
use crate::store::StoreError;
use crate::store::inspect::rows::{self, TIME_OF};
use crate::store::inspect::{Extent, Link, Links};
use crate::store::postgres::changes::OverShards;
use crate::store::postgres::read;
use crate::store::postgres::rows::{Reader, bigint, shown, smallint};
use crate::store::postgres::sessions::Sessions;

/// An event's own changes, or all of the run where the event carries it.
const LINKS: &str = "-- inspect.links
select v.number, e.task_thread_id, e.audit_session_id
from unnest($2::bigint[], $3::text[], $4::text[], $5::bigint[], $6::bigint[])
     as v (number, namespace, run_id, first, last)
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
order by v.number, e.revision";

pub(super) async fn time_of(sessions: &Sessions, shard: Shard, position: Position) -> Result<Option<Time>, StoreError> {
    let position = bigint(position);
    let rows = read::rows(sessions, TIME_OF, &[&smallint(shard), &position]).await?;
    rows.first().map(|row| rows::time(row, shard, position)).transpose()
}

pub(super) async fn has_namespace(sessions: &Sessions, namespace: &Namespace) -> Result<bool, StoreError> {
    let statement = "-- inspect.has_namespace\nselect 1 as there from namespaces where name = $1";
    Ok(!read::rows(sessions, statement, &[&namespace.as_str()]).await?.is_empty())
}

pub(super) async fn steady_ahead(sessions: &Sessions) -> Result<i64, StoreError> {
    let statement = "-- inspect.steady_ahead
select (extract(epoch from steady_ahead) * 1000000)::bigint as steady_ahead from uptime where singleton";
    let rows = read::rows(sessions, statement, &[]).await?;
    let uptime = |row| Reader { table: "uptime", row, key: &|| "the only row".to_owned() }.get("steady_ahead");
    rows.first().map_or(Ok(0), uptime)
}

/// Reads in one statement: all commits before it are within both.
pub(super) async fn extent(sessions: &Sessions, over_shards: &OverShards, link: &Link) -> Result<Extent, StoreError> {
    let (column, id) = link.column();
    // All times have the same form, so that their texts sort in their order; none has a zone to be looked up.
    let statement = format!(
        "-- inspect.extent
select h.shard, h.position, t.first, t.last
from ({}) as h
cross join (
    select min(r.started_at) as first, max((r.record->>'updatedAt') collate \"C\")::timestamptz as last
    from namespaces n join runs r on r.namespace = n.name
    where r.{column} = $1) as t",
        over_shards.ends_statement()
    );
    let rows = read::rows(sessions, &statement, &[&id]).await?;
    let ends = over_shards.ends_of(&rows)?;
    let (mut first, mut last): (Option<Time>, Option<Time>) = (None, None);
    if let Some(row) = rows.first() {
        let runs = Reader { table: "runs", row, key: &|| format!("{column} {id}") };
        (first, last) = (runs.get("first")?, runs.get("last")?);
    }
    Ok(Extent { ends, times: first.zip(last) })
}

/// Reads with one statement for each shard that has some of the runs.
pub(super) async fn links(
    sessions: &Sessions,
    asked: &[(RunKey, Revision)],
    shard_of: impl Fn(&RunKey) -> Shard,
) -> Result<Vec<Links>, StoreError> {
    let mut found = vec![Links::default(); asked.len()];
    for (shard, numbers) in read::by_shard(asked.iter().map(|(key, _)| shard_of(key))) {
        let of = |number: &i64| &asked[read::index(*number)];
        let (namespaces, run_ids) = read::columns(numbers.iter().map(|number| &of(number).0));
        let first: Vec<i64> = numbers.iter().map(|number| bigint(of(number).1.first_to_fold())).collect();
        let last: Vec<i64> = numbers.iter().map(|number| bigint(of(number).1)).collect();
        let arguments: [&(dyn ToSql + Sync); 6] = [&smallint(shard), &numbers, &namespaces, &run_ids, &first, &last];
        for row in &read::rows(sessions, LINKS, &arguments).await? {
            let Some(number) = read::number_of(row) else { continue };
            let event = Reader { table: "run_events", row, key: &|| shown(&of(&number).0) };
            found[read::index(number)].change(event.get("task_thread_id")?, event.get("audit_session_id")?);
        }
    }
    Ok(found)
}

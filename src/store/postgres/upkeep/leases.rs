//! Renewals of leases, their reads, and the search for leases that are over.

use std::collections::HashMap;

use tokio_postgres::types::ToSql;
use tokio_postgres::{Error, Row};

use crate::domain::{Renewal, RunKey, Shard};
use crate::store::dialect::run_columns;
use crate::store::leases::{KeptLease, Overdue, OverduePlace, Renewed};
use crate::store::postgres::autocommit_writes::writing;
use crate::store::postgres::read;
use crate::store::postgres::rows::{At, Reader, bigint, shown, smallint};
use crate::store::postgres::sessions::{Session, Sessions};
use crate::store::postgres::sides;
use crate::store::postgres::uptime::ReplicaUptime;
use crate::store::postgres::uptime::statements::{ACTS_FROM, EXPIRY, parameters, read_in_uptime, up};
use crate::store::{StoreError, rows};

/// A lease that can be renewed is found by the row's own condition, on its newest version: no read comes before it.
/// By arrays and by the join: the planner uses the whole key once a shard has more than a few leases.
fn renewing() -> String {
    format!(
        "-- leases.renew
with {up},
asked as materialized (
    select * from unnest($2::text[], $3::text[], $4::bigint[], $5::text[], $6::bigint[], $7::bigint[], $8::text[],
            $9::text[])
        with ordinality as v (namespace, run_id, epoch, agent_id, done, total, message, unowned, number)),
renewed as (
    update leases l
    set expires_at = up.now + l.ttl_ms * interval '1 ms', renewed = true,
        progress_done = coalesce(v.done, l.progress_done),
        progress_total = coalesce(v.total, l.progress_total),
        progress_message = coalesce(v.message, l.progress_message),
        progress_at = case when v.done is null then l.progress_at else up.now end
    from asked v, up
    where l.shard = $1 and l.namespace = any($2) and l.run_id = any($3)
      and l.namespace = v.namespace and l.run_id = v.run_id and l.epoch = v.epoch
      and not l.released and {EXPIRY} > up.now
      and (v.agent_id is null
           or (select coalesce(r.agent_id, v.unowned) from runs r
               where r.shard = $1 and r.namespace = v.namespace and r.run_id = v.run_id) = v.agent_id)
    returning v.number, v.namespace, v.run_id, l.expires_at - up.ahead as expires_at, up.now - up.ahead as now)
select v.number, v.expires_at, v.now, {columns}
from renewed v
cross join lateral (
    select * from runs where shard = $1 and namespace = v.namespace and run_id = v.run_id offset 0) as r",
        up = up(10),
        columns = run_columns!(postgres basic),
    )
}

/// Renews with one statement, which is its own transaction.
pub(in crate::store::postgres) async fn renew(
    sessions: &Sessions,
    uptime: &ReplicaUptime,
    shard: Shard,
    renewals: &[(RunKey, Renewal)],
) -> Result<Vec<Option<Renewed>>, StoreError> {
    // The rows go in the order of their keys: two statements in different orders would wait for each other.
    let mut order: Vec<usize> = (0..renewals.len()).collect();
    order.sort_by_key(|index| &renewals[*index].0);
    let ordered = || order.iter().map(|index| &renewals[*index]);
    let progress = || ordered().map(|(_, renewal)| renewal.progress.as_ref());
    let namespaces: Vec<&str> = ordered().map(|(key, _)| key.namespace.as_str()).collect();
    let run_ids: Vec<&str> = ordered().map(|(key, _)| key.run_id.as_str()).collect();
    let epochs: Vec<i64> = ordered().map(|(_, renewal)| bigint(renewal.epoch)).collect();
    let agents: Vec<Option<&str>> = ordered().map(|(_, renewal)| renewal.agent_id.as_deref()).collect();
    let done: Vec<Option<i64>> = progress().map(|progress| progress.map(|progress| bigint(progress.done))).collect();
    let total: Vec<Option<i64>> = progress().map(|progress| progress.map(|progress| bigint(progress.total))).collect();
    let messages: Vec<Option<&str>> =
        progress().map(|progress| progress.map(|progress| progress.message.as_str())).collect();
    // The owner that a run without one is taken to have: for a caller that is confined to its agents, nobody.
    let unowned: Vec<Option<&str>> =
        ordered().map(|(_, renewal)| renewal.agent_id.as_deref().filter(|_| !renewal.is_confined)).collect();
    let (shard, sent) = (smallint(shard), uptime.sent());
    let [expected, begun, below, ends] = parameters(&sent);
    let arguments: [&(dyn ToSql + Sync); 13] = [
        &shard,
        &namespaces,
        &run_ids,
        &epochs,
        &agents,
        &done,
        &total,
        &messages,
        &unowned,
        expected,
        begun,
        below,
        ends,
    ];
    let rows = uptime.making(writing(sessions, &renewing(), &arguments), |_rows| None).await?;
    let mut renewed = vec![None; renewals.len()];
    for row in &rows {
        let lease = Reader { table: "leases", row, key: &|| "a renewal".to_owned() };
        let number: u64 = lease.get("number")?;
        let index = number.checked_sub(1).and_then(|index| order.get(usize::try_from(index).ok()?));
        let Some(index) = index else { continue };
        let (expires_at, now) = (lease.get("expires_at")?, lease.get("now")?);
        renewed[*index] = Some(Renewed { expires_at, now, run: rows::runs::run(row)? });
    }
    Ok(renewed)
}

/// The statements that look for leases by their runs, for a look at their plans.
#[must_use]
pub fn of_leases() -> Vec<String> {
    vec![sides::leases::load(false), sides::leases::load(true), renewing(), reading()]
}

/// The leases as they are kept.
fn reading() -> String {
    format!(
        "-- leases.leases
with {up}
select l.namespace, l.run_id, l.epoch, {EXPIRY} - up.ahead as expires_at, l.progress_done, l.progress_total,
       l.progress_message, l.progress_at - up.ahead as progress_at
from up, unnest($1::smallint[], $2::text[], $3::text[]) as v (shard, namespace, run_id)
cross join lateral (
    select * from leases where shard = v.shard and namespace = v.namespace and run_id = v.run_id offset 0) as l",
        up = up(4)
    )
}

pub(in crate::store::postgres) async fn leases(
    sessions: &Sessions,
    uptime: &ReplicaUptime,
    keys: &[RunKey],
    shard_of: impl Fn(&RunKey) -> Shard,
) -> Result<Vec<Option<KeptLease>>, StoreError> {
    let rows = read::reading(sessions, |session| async move {
        let rows = read_rows(&session, uptime, keys.iter().map(|key| (shard_of(key), key))).await;
        (session, rows)
    });
    let kept = by_key(&rows.await?)?;
    Ok(keys.iter().map(|key| kept.get(key).cloned()).collect())
}

/// The rows of leases, read on a session.
pub(in crate::store::postgres) async fn read_rows<'a>(
    session: &Session,
    uptime: &ReplicaUptime,
    keys: impl Iterator<Item = (Shard, &'a RunKey)>,
) -> Result<Vec<Row>, Error> {
    let (shards, keys): (Vec<i16>, Vec<&RunKey>) = keys.map(|(shard, key)| (smallint(shard), key)).unzip();
    let (namespaces, run_ids) = read::columns(keys.into_iter());
    let statement = session.prepare_cached(&reading()).await?;
    let sent = uptime.sent();
    let [expected, begun, below, ends] = parameters(&sent);
    session.query(&statement, &[&shards, &namespaces, &run_ids, expected, begun, below, ends]).await
}

/// The leases in their rows.
pub(in crate::store::postgres) fn by_key(rows: &[Row]) -> Result<HashMap<RunKey, KeptLease>, StoreError> {
    let lease = |row| {
        let key = rows::key(row, "leases", 0)?;
        let lease = rows::sides::lease(row, &key)?;
        Ok((key, lease))
    };
    rows.iter().map(lease).collect()
}

/// The statement of a search for runs whose time is over: the leases that are over, by their table's key, and the runs
/// that are due, by their index; of each only those after a place. A row whose own expiry is to come is passed over before
/// anything else is looked at. Deadlines of suspensions are left alone for a while after an outage. The runs of one commit may share their `due_at`: these few are sorted by their keys.
#[must_use]
pub fn of_overdue() -> String {
    format!(
        "-- leases.overdue
with {up}
select l.namespace, l.run_id, null::timestamptz as due_at
from up
cross join lateral (
    select namespace, run_id from leases l
    where l.shard = $1 and (l.namespace, l.run_id) > ($2, $3) and l.expires_at <= up.now and {EXPIRY} <= up.now
    order by l.namespace, l.run_id limit $4) as l
union all
(select a.namespace, a.run_id, a.due_at from active a
 where a.shard = $1 and a.due_at <= (select now from up) and a.due_at >= $5
   and (a.due_at, a.namespace, a.run_id) > ($5, $6, $7)
   and ((select {ACTS_FROM} <= up.now from up)
        or not exists (select from suspended s
                       where s.shard = a.shard and s.namespace = a.namespace and s.run_id = a.run_id
                         and s.kind is not null offset 0))
 order by a.due_at, a.namespace, a.run_id limit $8)",
        up = up(9)
    )
}

pub(in crate::store::postgres) async fn overdue(
    sessions: &Sessions,
    uptime: &ReplicaUptime,
    shard: Shard,
    after: &OverduePlace,
    limit: usize,
) -> Result<Overdue, StoreError> {
    let (lease, over_max) = after.leases_after(limit);
    let ((due_at, due), due_max) = after.due_after(limit);
    let limit = |rows_max| i64::try_from(rows_max).unwrap_or(i64::MAX);
    let arguments: [&(dyn ToSql + Sync); 8] = [
        &smallint(shard),
        &lease.namespace.as_str(),
        &lease.run_id.as_str(),
        &limit(over_max),
        &At(due_at),
        &due.namespace.as_str(),
        &due.run_id.as_str(),
        &limit(due_max),
    ];
    let rows = read_in_uptime(sessions, uptime, &of_overdue(), &arguments).await?;
    let (mut over, mut due) = (Vec::new(), Vec::new());
    for row in &rows {
        let key = rows::key(row, "leases", 0)?;
        match (Reader { table: "active", row, key: &|| shown(&key) }).get("due_at")? {
            Some(due_at) => due.push((due_at, key)),
            None => over.push(key),
        }
    }
    Ok(Overdue::new(over, due, (over_max, due_max)))
}

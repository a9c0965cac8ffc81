//! Leases: renewals, their rows, and the search for leases that are over. The clock is the database's.
//!
//! The row of `uptime` is the time in which servers were alive without a gap, from `up_since` to `alive_at`. Each
//! server knows its own such time, from `begun` to now, and the interruptions in it. Where the two overlap, so that
//! another server was there when this one began, the authority has been up since `up_since`, and else since `begun`.

use tokio_postgres::Row;
use tokio_postgres::types::ToSql;

use super::super::read;
use super::super::rows::{At, Reader, bigint, shown, smallint};
use super::super::sessions::Sessions;
use super::super::uptime::{ReplicaUptime, Sent};
use super::super::writing::writing;
use crate::domain::{HeldLease, Renewal, RunKey, Shard, Time};
use crate::store::StoreError;
use crate::store::dialect::run_columns;
use crate::store::leases::{KeptLease, Renewed};
use crate::store::rows::{key, runs, sides};

/// The time that a server which finds no other's stamp waits for one before it says that there was a gap.
const GAP_WAIT_MS: u32 = 2_000;

/// Whether the row of `uptime` overlaps with a time that began at this parameter. A row from the future is of a clock
/// that was set back.
fn overlaps(begun: usize, now: &str) -> String {
    format!("(${begun} <= u.alive_at and u.alive_at <= {now} + interval '1 s')")
}

/// The clock, and since when the authority has been up, as a server knows whose [`Sent`] is in the parameters from
/// this number on. A database that was restarted was away, even where no server noticed. `held_up_ms` is four times
/// as long as the statement was on its way, or as the clock is off: for leases with no longer ttl, that is an
/// interruption that goes on.
fn up(first: usize) -> String {
    format!(
        "up as materialized (
    select u.now,
           greatest(case when {overlaps} then u.up_since else ${begun} end,
                    case when pg_postmaster_start_time() <= u.now then pg_postmaster_start_time() end) as since,
           4000 * abs(extract(epoch from u.now - ${first}::timestamptz)) as held_up_ms,
           ${below}::bigint[] as below, ${ends}::timestamptz[] as ends
    from (select clock_timestamp() as now, alive_at, up_since from uptime where singleton offset 0) as u)",
        overlaps = overlaps(first + 1, "u.now"),
        begun = first + 1,
        below = first + 2,
        ends = first + 3,
    )
}

/// The parameters of [`up`], in their order.
pub(in crate::store::postgres) fn parameters(sent: &Sent) -> [&(dyn ToSql + Sync); 4] {
    [&sent.expected, &sent.begun, &sent.below, &sent.ends]
}

/// The time at which a lease is over: see [`leases`](crate::store::leases). Of the interruptions that count for it,
/// the shortest ended last.
const EXPIRY: &str = "greatest(l.expires_at, l.ttl_ms * interval '1 ms'
        + case when l.ttl_ms <= up.held_up_ms then up.now
               else least(up.now, greatest(up.since, up.ends[width_bucket(l.ttl_ms, up.below) + 1])) end)";

/// The leases for a decision, read under the head. The rows are locked, so that a renewal which got in first is waited
/// for and seen, and a later one finds the decision of this commit. In the order of their keys, as renewals are.
pub(in crate::store::postgres) fn load() -> String {
    format!(
        "-- commit.load_leases
with {up}
select l.namespace, l.run_id, l.epoch, l.renewed, {EXPIRY} as expires_at
from up, (select * from unnest($2::text[], $3::text[]) as k (namespace, run_id)
          order by k.namespace collate \"C\", k.run_id collate \"C\") as v
join leases l on l.shard = $1 and l.namespace = any($2) and l.run_id = any($3)
  and l.namespace = v.namespace and l.run_id = v.run_id
for no key update of l",
        up = up(4)
    )
}

/// The lease of a row of [`load`].
pub(in crate::store::postgres) fn held(row: &Row) -> Result<(RunKey, HeldLease), StoreError> {
    let key = key(row, "leases", 0)?;
    let lease = Reader { table: "leases", row, key: &|| shown(&key) };
    let (epoch, expires_at, renewed) = (lease.get("epoch")?, lease.get("expires_at")?, lease.get("renewed")?);
    Ok((key, HeldLease { epoch, expires_at, renewed }))
}

/// A lease that can be renewed is found by the row's own condition, on its newest version: no read comes before it.
/// By arrays and by the join: the planner uses the whole key once a shard has more than a few leases.
fn renewing() -> String {
    format!(
        "-- leases.renew
with {up},
asked as materialized (
    select * from unnest($2::text[], $3::text[], $4::bigint[], $5::text[], $6::bigint[], $7::bigint[], $8::text[])
        with ordinality as v (namespace, run_id, epoch, agent_id, done, total, message, number)),
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
           or (select coalesce(r.agent_id, v.agent_id) from runs r
               where r.shard = $1 and r.namespace = v.namespace and r.run_id = v.run_id) = v.agent_id)
    returning v.number, v.namespace, v.run_id, l.expires_at, up.now)
select v.number, v.expires_at, v.now, {columns}
from renewed v
cross join lateral (
    select * from runs where shard = $1 and namespace = v.namespace and run_id = v.run_id offset 0) as r",
        up = up(9),
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
    let (shard, sent) = (smallint(shard), uptime.sent());
    let [expected, begun, below, ends] = parameters(&sent);
    let arguments: [&(dyn ToSql + Sync); 12] =
        [&shard, &namespaces, &run_ids, &epochs, &agents, &done, &total, &messages, expected, begun, below, ends];
    let told = |rows: &Vec<Row>| rows.first().and_then(told);
    let rows = uptime.making(writing(sessions, &renewing(), &arguments), told).await?;
    let mut renewed = vec![None; renewals.len()];
    for row in &rows {
        let lease = Reader { table: "leases", row, key: &|| "a renewal".to_owned() };
        let number: u64 = lease.get("number")?;
        let index = usize::try_from(number - 1).ok().and_then(|number| order.get(number));
        let Some(index) = index else { continue };
        let (expires_at, now) = (lease.get("expires_at")?, lease.get("now")?);
        renewed[*index] = Some(Renewed { expires_at, now, run: runs::run(row)? });
    }
    Ok(renewed)
}

/// The statements that look for leases by their runs, for a look at their plans.
#[must_use]
pub fn of_leases() -> Vec<String> {
    vec![load(), renewing(), reading()]
}

/// The leases as they are kept.
fn reading() -> String {
    format!(
        "-- leases.leases
with {up}
select l.namespace, l.run_id, l.epoch, {EXPIRY} as expires_at, l.progress_done, l.progress_total, l.progress_message,
       l.progress_at
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
    let shards: Vec<i16> = keys.iter().map(|key| smallint(shard_of(key))).collect();
    let namespaces: Vec<&str> = keys.iter().map(|key| key.namespace.as_str()).collect();
    let run_ids: Vec<&str> = keys.iter().map(|key| key.run_id.as_str()).collect();
    let rows = read_in_uptime(sessions, uptime, &reading(), &[&shards, &namespaces, &run_ids]).await?;
    let mut found = std::collections::HashMap::new();
    for row in &rows {
        let key = key(row, "leases", 0)?;
        let lease = sides::lease(row, &key)?;
        found.insert(key, lease);
    }
    Ok(keys.iter().map(|key| found.get(key).cloned()).collect())
}

/// At most one replica's stamp within half a second: a stamp that another wrote a moment ago is as good. The row is
/// tested as it is when it is locked: another's stamp that came first may be what this server overlaps with. A stamp
/// that was held up on its way is not written: its server may have stood still meanwhile.
fn stamp() -> String {
    format!(
        "-- leases.stamp
with clock as materialized (select clock_timestamp() as now),
stamped as (
    update uptime u
    set alive_at = clock.now, up_since = case when {overlaps} then u.up_since else $1 end
    from clock
    where u.singleton and abs(extract(epoch from clock.now - $2::timestamptz)) * 1000 < {GAP_WAIT_MS}
      and (u.alive_at < clock.now - interval '500 ms' or u.alive_at > clock.now or not {overlaps})
      and ({overlaps} or u.alive_at > clock.now or $1 <= clock.now - interval '{GAP_WAIT_MS} ms'))
select now from clock",
        overlaps = overlaps(1, "clock.now")
    )
}

/// Notes that this server is alive, and learns the database's clock.
pub(in crate::store::postgres) async fn stay_alive(
    sessions: &Sessions,
    uptime: &ReplicaUptime,
) -> Result<(), StoreError> {
    let sent = uptime.sent();
    let statement = stamp();
    let arguments: [&(dyn ToSql + Sync); 2] = [&sent.begun, &sent.expected];
    let stamp = writing(sessions, &statement, &arguments);
    uptime.making(stamp, |rows| rows.first().and_then(told)).await.map(drop)
}

/// The clock in a row.
fn told(row: &Row) -> Option<Time> {
    row.try_get("now").ok().map(|At(now)| now)
}

/// The clock, for a server that starts.
pub(in crate::store::postgres) async fn clock(sessions: &Sessions) -> Result<Time, StoreError> {
    let rows = writing(sessions, "-- leases.clock\nselect clock_timestamp() as now", &[]).await?;
    rows.first().and_then(told).ok_or_else(|| {
        let source = "it was not told".into();
        StoreError::Corrupt { table: "clock_timestamp()", column: "now", key: String::new(), source }
    })
}

/// The leases that are over. A row whose own expiry is to come is passed over before anything else is looked at.
fn over() -> String {
    format!(
        "-- leases.over
with {up}
(select l.namespace, l.run_id from leases l, up
 where l.shard = $1 and l.expires_at <= up.now and {EXPIRY} <= up.now limit $2)
union all
(select a.namespace, a.run_id from active a
 where a.shard = $1 and a.due_at <= (select now from up) order by a.due_at limit $2)",
        up = up(3)
    )
}

pub(in crate::store::postgres) async fn overdue(
    sessions: &Sessions,
    uptime: &ReplicaUptime,
    shard: Shard,
    limit: usize,
) -> Result<Vec<RunKey>, StoreError> {
    let limit = i64::try_from(limit).unwrap_or(i64::MAX);
    let rows = read_in_uptime(sessions, uptime, &over(), &[&smallint(shard), &limit]).await?;
    rows.iter().map(|row| key(row, "leases", 0)).collect()
}

/// A statement's rows, which rest on [`up`]: its parameters come last, and are as of the moment in which it is sent.
async fn read_in_uptime(
    sessions: &Sessions,
    uptime: &ReplicaUptime,
    statement: &str,
    arguments: &[&(dyn ToSql + Sync)],
) -> Result<Vec<Row>, StoreError> {
    read::reading(sessions, |session| async move {
        let rows = async {
            let statement = session.prepare_cached(statement).await?;
            let sent = uptime.sent();
            let arguments: Vec<_> = arguments.iter().copied().chain(parameters(&sent)).collect();
            session.query(&statement, &arguments).await
        };
        let rows = rows.await;
        (session, rows)
    })
    .await
}

//! Leases: their rows, renewals, and the search for leases that are over.

use std::ops::ControlFlow;

use rusqlite::{Connection, Transaction, params};

use crate::clock::Clock as _;
use crate::domain::{HeldLease, Lease, Renewal, RunKey, Shard, Time};
use crate::store::StoreError;
use crate::store::dialect::run_columns;
use crate::store::leases::{KeptLease, Renewed};
use crate::store::rows::{key, runs, sides};
use crate::store::sqlite::commit::begin;
use crate::store::sqlite::commit::write::Writer;
use crate::store::sqlite::errors;
use crate::store::sqlite::rows::{Reader, all, bigint, each, execute, first, shown};
use crate::store::sqlite::uptime::UptimeClock;
use crate::store::uptime::Seen;

const LEASE: &str = "-- leases.lease
select epoch, expires_at, progress_done, progress_total, progress_message, progress_at, ttl_ms, renewed, released
  from leases where shard = ?1 and namespace = ?2 and run_id = ?3";

/// The run without its metadata.
const RUN: &str = concat!(
    "-- leases.run\nselect ",
    run_columns!(sqlite basic),
    " from runs as r where r.shard = ?1 and r.namespace = ?2 and r.run_id = ?3"
);

/// A lease, and the columns of its row that only the authority looks at.
struct LeaseRow {
    lease: KeptLease,
    ttl_ms: u64,
    renewed: bool,
    released: bool,
}

/// The time at which a lease is over: see [`leases`](crate::store::leases).
fn expiry(expires_at: Time, ttl_ms: u64, seen: &Seen) -> Time {
    seen.since(ttl_ms).map_or(expires_at, |since| expires_at.max(since.plus_ms(ttl_ms)))
}

/// The lease as it is kept, with the expiry that counts.
fn kept(connection: &Connection, shard: Shard, key: &RunKey, seen: &Seen) -> Result<Option<LeaseRow>, StoreError> {
    first(connection, LEASE, (shard.0, &key.namespace, &key.run_id), |row| {
        let mut lease = sides::lease(row, key)?;
        let row = Reader { table: "leases", row, key: &|| shown(key) };
        let ttl_ms = row.get((6, "ttl_ms"))?;
        lease.expires_at = expiry(lease.expires_at, ttl_ms, seen);
        Ok(LeaseRow { lease, ttl_ms, renewed: row.get((7, "renewed"))?, released: row.get((8, "released"))? })
    })
}

/// The lease for a decision, under the head.
pub(in crate::store::sqlite) fn held(
    transaction: &Transaction<'_>,
    shard: Shard,
    key: &RunKey,
    clock: &UptimeClock,
) -> Result<Option<HeldLease>, StoreError> {
    let kept = kept(transaction, shard, key, &clock.seen())?;
    let held =
        |LeaseRow { lease: KeptLease { epoch, expires_at, .. }, renewed, .. }| HeldLease { epoch, expires_at, renewed };
    Ok(kept.map(held))
}

/// Keeps one row for each run that has a lease and is not terminal. A lease that is granted anew keeps the progress;
/// a lease that is missing does not keep its run from ending.
pub(super) fn write(writer: &Writer<'_>, key: &RunKey, lease: Option<Lease>, now: Time) -> Result<(), StoreError> {
    let (shard, namespace, run_id) = (writer.shard.0, &key.namespace, &key.run_id);
    match lease {
        Some(Lease { epoch, ttl_ms, released }) => writer.one_row(
            "leases",
            key,
            "-- commit.grant_lease
             insert into leases (shard, namespace, run_id, epoch, ttl_ms, expires_at, released)
             values (?1, ?2, ?3, ?4, ?5, ?6, ?7)
             on conflict (shard, namespace, run_id)
             do update set epoch = excluded.epoch, ttl_ms = excluded.ttl_ms, expires_at = excluded.expires_at,
                           released = excluded.released, renewed = 0",
            params![shard, namespace, run_id, bigint(epoch), bigint(ttl_ms), now.plus_ms(ttl_ms).micros(), released],
        ),
        None => execute(
            writer.transaction,
            "-- commit.end_lease
             delete from leases where shard = ?1 and namespace = ?2 and run_id = ?3",
            params![shard, namespace, run_id],
        )
        .map(drop),
    }
}

/// The leases as they are kept, in one snapshot.
pub(in crate::store::sqlite) fn leases(
    connection: &mut Connection,
    keys: &[(Shard, RunKey)],
    clock: &UptimeClock,
) -> Result<Vec<Option<KeptLease>>, StoreError> {
    let snapshot = connection.transaction().map_err(errors::statement)?;
    let seen = clock.seen();
    keys.iter().map(|(shard, key)| Ok(kept(&snapshot, *shard, key, &seen)?.map(|row| row.lease))).collect()
}

/// Renews all in one transaction.
pub(in crate::store::sqlite) fn renew(
    connection: &mut Connection,
    shard: Shard,
    renewals: &[(RunKey, Renewal)],
    clock: &UptimeClock,
) -> Result<Vec<Option<Renewed>>, StoreError> {
    let transaction = begin(connection)?;
    let seen = clock.seen();
    let renewed = renewals.iter().map(|(key, renewal)| renew_one(&transaction, shard, key, renewal, &seen));
    let renewed = renewed.collect::<Result<Vec<_>, _>>()?;
    transaction.commit().map_err(errors::statement)?;
    Ok(renewed)
}

fn renew_one(
    transaction: &Transaction<'_>,
    shard: Shard,
    key: &RunKey,
    renewal: &Renewal,
    seen: &Seen,
) -> Result<Option<Renewed>, StoreError> {
    let now = seen.now;
    let Some(LeaseRow { lease, ttl_ms, released, .. }) = kept(transaction, shard, key, seen)? else { return Ok(None) };
    if lease.epoch != renewal.epoch || lease.expires_at <= now || released {
        return Ok(None);
    }
    let run = first(transaction, RUN, (shard.0, &key.namespace, &key.run_id), |row| runs::run(row))?;
    let Some(run) = run else { return Ok(None) };
    if matches!((&renewal.agent_id, &run.agent_id), (Some(agent), Some(owner)) if agent != owner) {
        return Ok(None);
    }
    let expires_at = now.plus_ms(ttl_ms);
    let progress = renewal.progress.as_ref();
    execute(
        transaction,
        "-- leases.renew
         update leases set expires_at = ?4, renewed = 1, progress_done = coalesce(?5, progress_done),
                progress_total = coalesce(?6, progress_total), progress_message = coalesce(?7, progress_message),
                progress_at = coalesce(?8, progress_at)
          where shard = ?1 and namespace = ?2 and run_id = ?3",
        (
            shard.0,
            &key.namespace,
            &key.run_id,
            expires_at.micros(),
            progress.map(|progress| bigint(progress.done)),
            progress.map(|progress| bigint(progress.total)),
            progress.map(|progress| progress.message.as_str()),
            progress.map(|_| now.micros()),
        ),
    )?;
    Ok(Some(Renewed { expires_at, now, run }))
}

/// Makes a write without meaning.
pub(in crate::store::sqlite) fn try_to_write(
    connection: &mut Connection,
    clock: &UptimeClock,
) -> Result<(), StoreError> {
    let transaction = begin(connection)?;
    execute(&transaction, "-- leases.try_to_write\nupdate uptime set alive_at = ?1", [clock.now().micros()])?;
    transaction.commit().map_err(errors::statement)
}

/// Finds runs whose lease is over or that are due, in one snapshot.
pub(in crate::store::sqlite) fn overdue(
    connection: &mut Connection,
    shard: Shard,
    limit: usize,
    clock: &UptimeClock,
) -> Result<Vec<RunKey>, StoreError> {
    let snapshot = connection.transaction().map_err(errors::statement)?;
    let seen = clock.seen();
    let mut over = over(&snapshot, shard, limit, &seen)?;
    let due = "-- leases.due
         select namespace, run_id from active where shard = ?1 and due_at <= ?2 order by due_at limit ?3";
    let limit = i64::try_from(limit).unwrap_or(i64::MAX);
    over.extend(all(&snapshot, due, (shard.0, seen.now.micros(), limit), |row| key(row, "active", 0))?);
    Ok(over)
}

fn over(connection: &Connection, shard: Shard, limit: usize, seen: &Seen) -> Result<Vec<RunKey>, StoreError> {
    let statement = "-- leases.over
         select namespace, run_id, expires_at, ttl_ms from leases where shard = ?1 and expires_at <= ?2";
    let mut over = Vec::new();
    each(connection, statement, (shard.0, seen.now.micros()), |row| {
        if over.len() >= limit {
            return Ok(ControlFlow::Break(()));
        }
        let key = key(row, "leases", 0)?;
        let lease = Reader { table: "leases", row, key: &|| shown(&key) };
        if expiry(lease.get((2, "expires_at"))?, lease.get((3, "ttl_ms"))?, seen) <= seen.now {
            over.push(key);
        }
        Ok(ControlFlow::Continue(()))
    })?;
    Ok(over)
}

//! Renewals of leases, their reads, and the search for leases that are over.

use std::ops::ControlFlow;

use rusqlite::{Connection, Transaction};

use crate::domain::{Renewal, RunKey, Shard, Time};
use crate::store::StoreError;
use crate::store::dialect::run_columns;
use crate::store::leases::{KeptLease, Overdue, OverduePlace, Renewed};
use crate::store::rows::{key, runs};
use crate::store::sqlite::errors;
use crate::store::sqlite::rows::{Reader, all, bigint, each, execute, first, shown};
use crate::store::sqlite::sides::leases::{acts_from, expiry, kept};
use crate::store::sqlite::uptime::UptimeClock;
use crate::store::sqlite::writer::begin;
use crate::store::uptime::Seen;

/// The run without its metadata.
const RUN: &str = concat!(
    "-- leases.run\nselect ",
    run_columns!(sqlite basic),
    " from runs as r where r.shard = ?1 and r.namespace = ?2 and r.run_id = ?3"
);

/// The leases whose own expiry has passed, by the table's key.
const OVER: &str = "-- leases.overdue
select namespace, run_id, expires_at, ttl_ms from leases
 where shard = ?1 and (namespace, run_id) > (?3, ?4) and expires_at <= ?2 order by namespace, run_id";

/// The runs that are due. Their index ends with the table's key. Deadlines of suspensions are left alone for a while after
/// an outage.
const DUE: &str = "-- leases.due
select namespace, run_id, due_at from active
 where shard = ?1 and due_at <= ?2 and (due_at, namespace, run_id) > (?3, ?4, ?5)
   and (?7 or not exists (select 1 from suspended as s
                           where s.shard = active.shard and s.namespace = active.namespace and s.run_id = active.run_id
                             and s.kind is not null))
 order by due_at, namespace, run_id limit ?6";

/// The leases as they are kept, in one snapshot.
pub(in crate::store::sqlite) fn leases(
    connection: &mut Connection,
    keys: &[(Shard, RunKey)],
    clock: &UptimeClock,
) -> Result<Vec<Option<KeptLease>>, StoreError> {
    let snapshot = connection.transaction().map_err(errors::statement)?;
    let seen = clock.seen();
    let lease = |(shard, key): &(Shard, RunKey)| kept(&snapshot, *shard, key, &seen);
    keys.iter().map(|key| Ok(lease(key)?.map(|row| row.lease.told(|time| clock.shown(time))))).collect()
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
    Ok(renewed.into_iter().map(|renewed| renewed.map(|it| it.told(|time| clock.shown(time)))).collect())
}

fn renew_one(
    transaction: &Transaction<'_>,
    shard: Shard,
    key: &RunKey,
    renewal: &Renewal,
    seen: &Seen,
) -> Result<Option<Renewed>, StoreError> {
    let now = seen.now;
    let Some(row) = kept(transaction, shard, key, seen)? else { return Ok(None) };
    // The run is read only for a caller that may hold the lease: a run that cannot be read fails the whole batch.
    if row.lease.epoch != renewal.epoch || row.lease.expires_at <= now {
        return Ok(None);
    }
    let Some(run) =
        first(transaction, RUN, (shard.0, &key.namespace.as_str(), &key.run_id.as_str()), |row| runs::run(row))?
    else {
        return Ok(None);
    };
    if !renewal.renews(&row.held(), &run, now) {
        return Ok(None);
    }
    let expires_at = now.plus_ms(row.ttl_ms);
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
            &key.namespace.as_str(),
            &key.run_id.as_str(),
            expires_at.micros(),
            progress.map(|progress| bigint(progress.done)),
            progress.map(|progress| bigint(progress.total)),
            progress.map(|progress| progress.message.as_str()),
            progress.map(|_| now.micros()),
        ),
    )?;
    Ok(Some(Renewed { expires_at, now, run }))
}

/// Whether any lease or deadline is to come.
pub(in crate::store::sqlite) fn has_any_to_come(connection: &Connection) -> Result<bool, StoreError> {
    let any = "-- uptime.has_any_to_come
select exists (select 1 from leases)
    or exists (select 1 from shards as s
                where exists (select 1 from active as a where a.shard = s.shard and a.due_at is not null))";
    let any = first(connection, any, [], |row| Reader { table: "active", row, key: &String::new }.get((0, "due_at")))?;
    Ok(any.unwrap_or(false))
}

/// Keeps the steady clock for a restart.
pub(in crate::store::sqlite) fn stamp(connection: &mut Connection, clock: &UptimeClock) -> Result<(), StoreError> {
    let transaction = begin(connection)?;
    let stamp = clock.stamp(&transaction)?;
    transaction.commit().map_err(errors::statement)?;
    clock.kept(stamp);
    Ok(())
}

/// Finds runs whose lease is over or that are due, in one snapshot.
pub(in crate::store::sqlite) fn overdue(
    connection: &mut Connection,
    shard: Shard,
    after: &OverduePlace,
    limit: usize,
    clock: &UptimeClock,
) -> Result<Overdue, StoreError> {
    let snapshot = connection.transaction().map_err(errors::statement)?;
    let seen = clock.seen();
    let (over_after, over_max) = after.leases_after(limit);
    let (due_after, due_max) = after.due_after(limit);
    let over = over(&snapshot, shard, &over_after, over_max, &seen)?;
    let due = due(&snapshot, shard, &due_after, due_max, &seen)?;
    Ok(Overdue::new(over, due, (over_max, due_max)))
}

fn over(
    connection: &Connection,
    shard: Shard,
    after: &RunKey,
    limit: usize,
    seen: &Seen,
) -> Result<Vec<RunKey>, StoreError> {
    let mut over = Vec::new();
    if limit == 0 {
        return Ok(over);
    }
    each(connection, OVER, (shard.0, seen.now.micros(), &after.namespace.as_str(), &after.run_id.as_str()), |row| {
        let key = key(row, "leases", 0)?;
        let lease = Reader { table: "leases", row, key: &|| shown(&key) };
        if expiry(lease.get((2, "expires_at"))?, lease.get((3, "ttl_ms"))?, seen) <= seen.now {
            over.push(key);
        }
        Ok(if over.len() >= limit { ControlFlow::Break(()) } else { ControlFlow::Continue(()) })
    })?;
    Ok(over)
}

fn due(
    connection: &Connection,
    shard: Shard,
    (due_at, after): &(Time, RunKey),
    limit: usize,
    seen: &Seen,
) -> Result<Vec<(Time, RunKey)>, StoreError> {
    let limit = i64::try_from(limit).unwrap_or(i64::MAX);
    let values = (
        shard.0,
        seen.now.micros(),
        due_at.micros(),
        after.namespace.as_str(),
        after.run_id.as_str(),
        limit,
        acts_from(seen) <= seen.now,
    );
    all(connection, DUE, values, |row| {
        let key = key(row, "active", 0)?;
        let due_at = Reader { table: "active", row, key: &|| shown(&key) }.get((2, "due_at"))?;
        Ok((due_at, key))
    })
}

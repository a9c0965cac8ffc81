//! Leases: their rows, renewals, and whose time is over.

use rusqlite::{Connection, Row, Transaction, params};

use crate::clock::Clock as _;
use crate::domain::{HeldLease, Lease, Progress, Renewal, RunKey, Shard, Time};
use crate::store::leases::{KeptLease, Renewed};
use crate::store::sqlite::commit::write::Writer;
use crate::store::sqlite::errors;
use crate::store::sqlite::rows::{self, Cell, bigint, run_columns};
use crate::store::sqlite::uptime::UptimeClock;
use crate::store::uptime::Seen;
use crate::store::{StoreError, json};

const COLUMNS: &str =
    "epoch, ttl_ms, expires_at, progress_done, progress_total, progress_message, progress_at, renewed";

/// A lease, and what of its row only the authority looks at.
struct LeaseRow {
    lease: KeptLease,
    ttl_ms: u64,
    renewed: bool,
}

/// A run's lease.
fn lease(connection: &Connection, shard: Shard, key: &RunKey) -> Result<Option<LeaseRow>, StoreError> {
    let mut statement = connection
        .prepare_cached(&format!(
            "-- leases.lease\nselect {COLUMNS} from leases where shard = ?1 and namespace = ?2 and run_id = ?3"
        ))
        .map_err(errors::statement)?;
    let mut rows = statement.query((shard.0, &key.namespace, &key.run_id)).map_err(errors::statement)?;
    rows.next().map_err(errors::statement)?.map(|row| read(row, key)).transpose()
}

fn read(row: &Row<'_>, key: &RunKey) -> Result<LeaseRow, StoreError> {
    let cell = Cell { table: "leases", key: &|| rows::shown(key) };
    let at: Option<i64> = cell.get(row, 6, "progress_at")?;
    let progress = at.map(|at| {
        let (done, total) = (cell.count(row, 3, "progress_done")?, cell.count(row, 4, "progress_total")?);
        let progress = Progress { done, total, message: cell.get(row, 5, "progress_message")? };
        Ok::<_, StoreError>((progress, Time::from_micros(at)))
    });
    let lease = KeptLease {
        epoch: cell.count(row, 0, "epoch")?,
        expires_at: Time::from_micros(cell.get(row, 2, "expires_at")?),
        progress: progress.transpose()?,
    };
    Ok(LeaseRow { lease, ttl_ms: cell.count(row, 1, "ttl_ms")?, renewed: cell.get(row, 7, "renewed")? })
}

/// When a lease is over: see [`leases`](crate::store::leases).
fn expiry(expires_at: Time, ttl_ms: u64, seen: &Seen) -> Time {
    seen.since(ttl_ms).map_or(expires_at, |since| expires_at.max(since.plus_ms(ttl_ms)))
}

/// The lease as it is kept, with the expiry that counts.
fn kept(connection: &Connection, shard: Shard, key: &RunKey, seen: &Seen) -> Result<Option<LeaseRow>, StoreError> {
    let Some(row) = lease(connection, shard, key)? else { return Ok(None) };
    let expires_at = expiry(row.lease.expires_at, row.ttl_ms, seen);
    Ok(Some(LeaseRow { lease: KeptLease { expires_at, ..row.lease }, ..row }))
}

/// For a decision, under the head.
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

/// One row for each run that has a lease and is not terminal. A lease that begins anew keeps what was said of the work; one
/// that is missing keeps no run from its end.
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
        None => writer
            .transaction
            .prepare_cached(
                "-- commit.end_lease
                 delete from leases where shard = ?1 and namespace = ?2 and run_id = ?3",
            )
            .and_then(|mut statement| statement.execute(params![shard, namespace, run_id]))
            .map(drop)
            .map_err(errors::statement),
    }
}

/// Each as it is kept, in one snapshot.
pub(in crate::store::sqlite) fn leases(
    connection: &mut Connection,
    keys: &[(Shard, RunKey)],
    clock: &UptimeClock,
) -> Result<Vec<Option<KeptLease>>, StoreError> {
    let snapshot = connection.transaction().map_err(errors::statement)?;
    let seen = clock.seen();
    keys.iter().map(|(shard, key)| Ok(kept(&snapshot, *shard, key, &seen)?.map(|row| row.lease))).collect()
}

/// All in one transaction.
pub(in crate::store::sqlite) fn renew(
    connection: &mut Connection,
    shard: Shard,
    renewals: &[(RunKey, Renewal)],
    clock: &UptimeClock,
) -> Result<Vec<Option<Renewed>>, StoreError> {
    let transaction = crate::store::sqlite::commit::begin(connection)?;
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
    let Some(LeaseRow { lease, ttl_ms, .. }) = kept(transaction, shard, key, seen)? else { return Ok(None) };
    if lease.epoch != renewal.epoch || lease.expires_at <= now || is_released(transaction, shard, key)? {
        return Ok(None);
    }
    let Some(run) = run(transaction, shard, key)? else { return Ok(None) };
    if matches!((&renewal.agent_id, &run.agent_id), (Some(agent), Some(owner)) if agent != owner) {
        return Ok(None);
    }
    let expires_at = now.plus_ms(ttl_ms);
    let progress = renewal.progress.as_ref();
    transaction
        .prepare_cached(
            "-- leases.renew
             update leases set expires_at = ?4, renewed = 1, progress_done = coalesce(?5, progress_done),
                    progress_total = coalesce(?6, progress_total), progress_message = coalesce(?7, progress_message),
                    progress_at = coalesce(?8, progress_at)
              where shard = ?1 and namespace = ?2 and run_id = ?3",
        )
        .and_then(|mut statement| {
            statement.execute((
                shard.0,
                &key.namespace,
                &key.run_id,
                expires_at.micros(),
                progress.map(|progress| bigint(progress.done)),
                progress.map(|progress| bigint(progress.total)),
                progress.map(|progress| progress.message.as_str()),
                progress.map(|_| now.micros()),
            ))
        })
        .map_err(errors::statement)?;
    Ok(Some(Renewed { expires_at, now, run }))
}

fn is_released(transaction: &Transaction<'_>, shard: Shard, key: &RunKey) -> Result<bool, StoreError> {
    transaction
        .prepare_cached(
            "-- leases.is_released\nselect released from leases where shard = ?1 and namespace = ?2 and run_id = ?3",
        )
        .and_then(|mut statement| statement.query_row((shard.0, &key.namespace, &key.run_id), |row| row.get(0)))
        .map_err(errors::statement)
}

/// The run without its metadata.
fn run(transaction: &Transaction<'_>, shard: Shard, key: &RunKey) -> Result<Option<crate::domain::Run>, StoreError> {
    let statement = concat!(
        "-- leases.run\nselect ",
        run_columns!(),
        " from (select shard, namespace, run_id, revision, status, started_at, task_thread_id, agent_id, workflow_id,
                       audit_session_id, route, labels, record, null as metadata from runs) as r
          where r.shard = ?1 and r.namespace = ?2 and r.run_id = ?3"
    );
    let mut statement = transaction.prepare_cached(statement).map_err(errors::statement)?;
    let mut rows = statement.query((shard.0, &key.namespace, &key.run_id)).map_err(errors::statement)?;
    let Some(row) = rows.next().map_err(errors::statement)? else { return Ok(None) };
    json::read_run(rows::run_columns_of(row)?).map(Some)
}

/// Writes what means nothing.
pub(in crate::store::sqlite) fn try_to_write(
    connection: &mut Connection,
    clock: &UptimeClock,
) -> Result<(), StoreError> {
    let transaction = crate::store::sqlite::commit::begin(connection)?;
    transaction
        .prepare_cached("-- leases.try_to_write\nupdate uptime set alive_at = ?1")
        .and_then(|mut statement| statement.execute([clock.now().micros()]))
        .map_err(errors::statement)?;
    transaction.commit().map_err(errors::statement)
}

/// Finds whose time is over, in one snapshot.
pub(in crate::store::sqlite) fn overdue(
    connection: &mut Connection,
    shard: Shard,
    limit: usize,
    clock: &UptimeClock,
) -> Result<Vec<RunKey>, StoreError> {
    let snapshot = connection.transaction().map_err(errors::statement)?;
    let seen = clock.seen();
    let mut over = over(&snapshot, shard, limit, &seen)?;
    let mut statement = snapshot
        .prepare_cached(
            "-- leases.due
             select namespace, run_id from active where shard = ?1 and due_at <= ?2 order by due_at limit ?3",
        )
        .map_err(errors::statement)?;
    let limit = i64::try_from(limit).unwrap_or(i64::MAX);
    let due = statement.query_map((shard.0, seen.now.micros(), limit), |row| {
        Ok(RunKey { namespace: row.get(0)?, run_id: row.get(1)? })
    });
    let due: Vec<RunKey> = due.and_then(Iterator::collect).map_err(errors::statement)?;
    over.extend(due);
    Ok(over)
}

fn over(connection: &Connection, shard: Shard, limit: usize, seen: &Seen) -> Result<Vec<RunKey>, StoreError> {
    let mut statement = connection
        .prepare_cached(
            "-- leases.over
             select namespace, run_id, expires_at, ttl_ms from leases where shard = ?1 and expires_at <= ?2",
        )
        .map_err(errors::statement)?;
    let mut rows = statement.query((shard.0, seen.now.micros())).map_err(errors::statement)?;
    let mut over = Vec::new();
    while let Some(row) = rows.next().map_err(errors::statement)? {
        if over.len() >= limit {
            break;
        }
        let key = RunKey {
            namespace: row.get(0).map_err(errors::statement)?,
            run_id: row.get(1).map_err(errors::statement)?,
        };
        let cell = Cell { table: "leases", key: &|| rows::shown(&key) };
        let expires_at = Time::from_micros(cell.get(row, 2, "expires_at")?);
        let ttl_ms = cell.count(row, 3, "ttl_ms")?;
        if expiry(expires_at, ttl_ms, seen) <= seen.now {
            over.push(key);
        }
    }
    Ok(over)
}

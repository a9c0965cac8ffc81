//! The claims of claimers' own requests: see [`Claimed`]. The one writer is their mutex.

use rusqlite::{Connection, OptionalExtension as _, Transaction, params};

use crate::clock::Clock;
use crate::domain::{ClaimKey, Claimed, RunKey, Time};
use crate::store::StoreError;
use crate::store::sqlite::errors;
use crate::store::sqlite::rows::bigint;

/// How long a request is remembered, in milliseconds.
const KEEP_MS: i64 = 3_600_000;

/// Rows that are forgotten at once at most.
const FORGET_ROWS_MAX: usize = 1_000;

/// What is remembered of a request.
pub(in crate::store::sqlite) fn claimed(
    connection: &Connection,
    key: &ClaimKey,
) -> Result<Option<Claimed>, StoreError> {
    let (namespace, request_id) = key;
    connection
        .prepare_cached(
            "-- claims.read
             select run_id, epoch, request_digest, replays from claims where namespace = ?1 and request_id = ?2",
        )
        .and_then(|mut statement| {
            statement
                .query_row((namespace, request_id), |row| {
                    let (epoch, replays): (i64, i64) = (row.get(1)?, row.get(3)?);
                    Ok(Claimed {
                        key: RunKey { namespace: namespace.clone(), run_id: row.get(0)? },
                        epoch: epoch.unsigned_abs(),
                        digest: row.get(2)?,
                        replays: replays.unsigned_abs(),
                    })
                })
                .optional()
        })
        .map_err(errors::statement)
}

/// Remembers a request, or forgets it.
pub(in crate::store::sqlite) fn keep(
    transaction: &Transaction<'_>,
    key: &ClaimKey,
    claimed: Option<&Claimed>,
    now: Time,
) -> Result<(), StoreError> {
    let (namespace, request_id) = key;
    let kept = match claimed {
        Some(Claimed { key, epoch, digest, replays }) => transaction
            .prepare_cached(
                "-- commit.keep_claim
                 insert or replace into claims (namespace, request_id, run_id, epoch, request_digest, replays, claimed_at)
                 values (?1, ?2, ?3, ?4, ?5, ?6, ?7)",
            )
            .and_then(|mut statement| {
                let claimed_at = now.micros();
                statement.execute(params![
                    namespace,
                    request_id,
                    key.run_id,
                    bigint(*epoch),
                    digest,
                    bigint(*replays),
                    claimed_at
                ])
            }),
        None => transaction
            .prepare_cached("-- commit.forget_claim\ndelete from claims where namespace = ?1 and request_id = ?2")
            .and_then(|mut statement| statement.execute((namespace, request_id))),
    };
    kept.map(drop).map_err(errors::statement)
}

/// Notes that the claimer of a request that is remembered is answered once more.
pub(in crate::store::sqlite) fn replay(
    connection: &mut Connection,
    key: &ClaimKey,
) -> Result<Option<Claimed>, StoreError> {
    let transaction = crate::store::sqlite::commit::begin(connection)?;
    transaction
        .prepare_cached(
            "-- claims.replay\nupdate claims set replays = replays + 1 where namespace = ?1 and request_id = ?2",
        )
        .and_then(|mut statement| statement.execute((&key.0, &key.1)))
        .map_err(errors::statement)?;
    let claimed = claimed(&transaction, key)?;
    transaction.commit().map_err(errors::statement)?;
    Ok(claimed)
}

/// Forgets what is too old. Says whether there may be more.
pub(in crate::store::sqlite) fn forget(connection: &mut Connection, clock: &dyn Clock) -> Result<bool, StoreError> {
    let until = clock.now().micros() - KEEP_MS * 1_000;
    connection
        .prepare_cached(
            "-- claims.forget
             delete from claims where (namespace, request_id) in (
                    select namespace, request_id from claims where claimed_at < ?1 order by claimed_at limit ?2)",
        )
        .and_then(|mut statement| statement.execute((until, i64::try_from(FORGET_ROWS_MAX).unwrap_or(i64::MAX))))
        .map(|forgotten| forgotten >= FORGET_ROWS_MAX)
        .map_err(errors::statement)
}

//! The claims of claimers' own requests: see [`Claimed`]. The one writer is their mutex.

use rusqlite::{Connection, Transaction, params};

use crate::clock::Clock;
use crate::domain::{ClaimKey, Claimed, Time};
use crate::store::StoreError;
use crate::store::rows::sides::{READ_CLAIM, REPLAY_CLAIM, claim};
use crate::store::sqlite::commit::begin;
use crate::store::sqlite::errors;
use crate::store::sqlite::rows::{all, bigint, execute, first};

/// The time for which a request is remembered, in milliseconds.
const KEEP_MS: i64 = 3_600_000;

/// Rows that are forgotten at once at most.
const FORGET_ROWS_MAX: usize = 1_000;

/// The claim that a request was answered with.
pub(in crate::store::sqlite) fn claimed(
    connection: &Connection,
    (namespace, request_id): &ClaimKey,
) -> Result<Option<Claimed>, StoreError> {
    Ok(first(connection, READ_CLAIM, (namespace, request_id), |row| claim(row))?.map(|(_, claimed)| claimed))
}

/// Remembers a request, or forgets it.
pub(super) fn write(
    transaction: &Transaction<'_>,
    (namespace, request_id): &ClaimKey,
    claimed: Option<&Claimed>,
    now: Time,
) -> Result<(), StoreError> {
    match claimed {
        Some(Claimed { key, epoch, digest, replays }) => execute(
            transaction,
            "-- commit.keep_claim
             insert or replace into claims (namespace, request_id, run_id, epoch, request_digest, replays, claimed_at)
             values (?1, ?2, ?3, ?4, ?5, ?6, ?7)",
            params![namespace, request_id, key.run_id, bigint(*epoch), digest, bigint(*replays), now.micros()],
        ),
        None => execute(
            transaction,
            "-- commit.forget_claim\ndelete from claims where namespace = ?1 and request_id = ?2",
            (namespace, request_id),
        ),
    }
    .map(drop)
}

/// Notes that the claimer of a request that is remembered is answered once more.
pub(in crate::store::sqlite) fn replay(
    connection: &mut Connection,
    (namespace, request_id): &ClaimKey,
) -> Result<Option<Claimed>, StoreError> {
    let transaction = begin(connection)?;
    let claimed = all(&transaction, REPLAY_CLAIM, (namespace, request_id), |row| claim(row))?.pop();
    transaction.commit().map_err(errors::statement)?;
    Ok(claimed.map(|(_, claimed)| claimed))
}

/// Forgets requests that are too old. Answers whether there may be more.
pub(in crate::store::sqlite) fn forget(connection: &mut Connection, clock: &dyn Clock) -> Result<bool, StoreError> {
    let until = clock.now().micros() - KEEP_MS * 1_000;
    let forgotten = execute(
        connection,
        "-- claims.forget
         delete from claims where (namespace, request_id) in (
                select namespace, request_id from claims where claimed_at < ?1 order by claimed_at limit ?2)",
        (until, i64::try_from(FORGET_ROWS_MAX).unwrap_or(i64::MAX)),
    );
    Ok(forgotten? >= FORGET_ROWS_MAX)
}

//! The claims of claimers' own requests beside commits: answered once more, forgotten.

use rusqlite::Connection;

use crate::domain::{ClaimKey, Claimed, Time};
use crate::store::StoreError;
use crate::store::rows::sides::{REPLAY_CLAIM, claim};
use crate::store::sqlite::errors;
use crate::store::sqlite::rows::{all, execute};
use crate::store::sqlite::writer::begin;

/// The time for which a request is remembered, in milliseconds.
const KEEP_MS: i64 = 3_600_000;

/// Rows that are forgotten at once at most.
const FORGET_ROWS_MAX: usize = 1_000;

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
pub(in crate::store::sqlite) fn forget(connection: &mut Connection, now: Time) -> Result<bool, StoreError> {
    let until = now.micros() - KEEP_MS * 1_000;
    let forgotten = execute(
        connection,
        "-- claims.forget
         delete from claims where (namespace, request_id) in (
                select namespace, request_id from claims where claimed_at < ?1 order by claimed_at limit ?2)",
        (until, i64::try_from(FORGET_ROWS_MAX).unwrap_or(i64::MAX)),
    );
    Ok(forgotten? >= FORGET_ROWS_MAX)
}

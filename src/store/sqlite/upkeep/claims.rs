//! The claims of claimers' own requests beside commits: answered once more, forgotten.

use rusqlite::Connection;

use crate::domain::{ClaimKey, Claimed, Namespace, Time};
use crate::store::StoreError;
use crate::store::rows::sides::claim;
use crate::store::sqlite::rows::{all, execute};
use crate::store::sqlite::writer::begin;
use crate::store::sqlite::{errors, sides};

/// The time for which a request is remembered, in milliseconds.
const KEEP_MS: i64 = 3_600_000;

/// Rows that are forgotten at once at most.
const FORGET_ROWS_MAX: usize = 1_000;

/// Notes that the claimer of a request that is remembered is answered once more.
const REPLAY: &str = "-- claims.replay
update claims
set replays = replays + 1
where namespace = ?1 and request_id = ?2 and run_id is not null
returning namespace, request_id, request_digest, run_id, epoch, replays";

pub(in crate::store::sqlite) fn keys(namespace: &Namespace, request_ids: &[String]) -> Vec<ClaimKey> {
    request_ids.iter().map(|id| (namespace.clone(), id.clone())).collect()
}

/// The claims that requests were answered with.
pub(in crate::store::sqlite) fn claimed(
    connection: &Connection,
    keys: &[ClaimKey],
) -> Result<Vec<Option<Claimed>>, StoreError> {
    keys.iter().map(|key| sides::claims::claimed(connection, key)).collect()
}

/// The same, and notes that their claimer is answered once more.
pub(in crate::store::sqlite) fn replay(
    connection: &mut Connection,
    keys: &[ClaimKey],
) -> Result<Vec<Option<Claimed>>, StoreError> {
    let transaction = begin(connection)?;
    let replayed = |(namespace, request_id): &ClaimKey| {
        let rows = all(&transaction, REPLAY, (namespace.as_str(), request_id), |row| claim(row))?;
        Ok(rows.into_iter().next().map(|(_, claimed)| claimed))
    };
    let claimed = keys.iter().map(replayed).collect::<Result<_, StoreError>>()?;
    transaction.commit().map_err(errors::statement)?;
    Ok(claimed)
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

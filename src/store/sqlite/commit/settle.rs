//! Whether a commit of unknown outcome was applied.

use rusqlite::Connection;
use uuid::Uuid;

use super::begin;
use crate::domain::{Decided, Shard};
use crate::store::sqlite::rows::{Reader, bigint, first};
use crate::store::sqlite::{errors, probe};
use crate::store::{CommitError, StoreError, Unsettled};

const COMMITTED: &str = "-- settle.commit_id
select commit_id from run_events where shard = ?1 and position = ?2";

/// The error of a commit during which its file ceased to be the ledger's: it may have been the last one before that.
pub(in crate::store::sqlite) fn into_a_lost_file(
    shard: Shard,
    commit_id: Uuid,
    decided: Decided,
    lost: StoreError,
) -> CommitError {
    match decided.events.first().map(|event| event.position) {
        None => CommitError::NotApplied(lost),
        Some(first_position) => {
            let unsettled = Box::new(Unsettled { shard, commit_id, first_position, decided });
            CommitError::Unknown { unsettled, source: lost.into() }
        }
    }
}

/// Looks for the commit in the log. When it is not there, a small commit of the store's own is written over the place
/// where its last frames may be: after that, no crash can bring it back.
pub(in crate::store::sqlite) fn settle(
    connection: &mut Connection,
    shard: Shard,
    position: u64,
    commit_id: Uuid,
) -> Result<bool, StoreError> {
    let transaction = begin(connection)?;
    let committed: Option<String> = first(&transaction, COMMITTED, (shard.0, bigint(position)), |row| {
        let key = || format!("shard {} position {position}", shard.0);
        Reader { table: "run_events", row, key: &key }.get((0, "commit_id"))
    })?;
    if committed.is_some_and(|found| found == commit_id.to_string()) {
        return Ok(true);
    }
    probe::overwrite(&transaction).and_then(|()| transaction.commit()).map_err(errors::statement)?;
    Ok(false)
}

//! One batch in one transaction: read, decide, write, and know what became of it.

pub(super) mod load;
pub(super) mod write;

use std::sync::Arc;

use rusqlite::{Connection, Transaction, TransactionBehavior};
use uuid::Uuid;

use super::errors;
use super::rows::{Cell, bigint};
use super::uptime::UptimeClock;
use crate::clock::Clock as _;
use crate::domain::{Command, Decide, Decided, Position, Shard};
use crate::store::{CommitError, StoreError, Unsettled};

/// Commits a batch. Dropping the transaction on the way out, by an error or a panic, rolls back.
pub(super) fn commit(
    connection: &mut Connection,
    shard: Shard,
    commit_id: Uuid,
    commands: &[Arc<Command>],
    rules: &dyn Decide,
    clock: &UptimeClock,
) -> Result<Decided, CommitError> {
    let transaction = begin(connection)?;
    let loaded = load::load(&transaction, shard, commands, &rules.wanted(commands), clock)?;
    let decided = rules.decide(commands, loaded);
    let Some(first_position) = decided.events.first().map(|event| event.position) else {
        return Ok(decided);
    };
    write::write(&transaction, shard, commit_id, &decided, clock.now())?;
    match transaction.execute_batch("COMMIT") {
        Ok(()) => Ok(decided),
        Err(error) if !transaction.is_autocommit() || errors::is_disk_full(&error) => {
            Err(CommitError::NotApplied(errors::statement(error)))
        }
        // SQLite has rolled back for itself, but the log's last frame may have been written before it failed, and a
        // crash now would bring it to life.
        Err(error) => {
            let unsettled = Box::new(Unsettled { shard, commit_id, first_position, decided });
            Err(CommitError::Unknown { unsettled, source: error.into() })
        }
    }
}

/// What becomes of a commit that was made while its file ceased to be the ledger's: it may have been the last one before.
pub(super) fn into_a_lost_file(shard: Shard, commit_id: Uuid, decided: Decided, lost: StoreError) -> CommitError {
    match decided.events.first().map(|event| event.position) {
        None => CommitError::NotApplied(lost),
        Some(first_position) => {
            let unsettled = Box::new(Unsettled { shard, commit_id, first_position, decided });
            CommitError::Unknown { unsettled, source: lost.into() }
        }
    }
}

/// Whether a commit of unknown outcome is in the log. When it is not, a small commit of our own is written over the
/// place where its last frames may be: after that, no crash can bring it back.
pub(super) fn settle(
    connection: &mut Connection,
    shard: Shard,
    first_position: Position,
    commit_id: Uuid,
) -> Result<bool, StoreError> {
    let transaction = begin(connection)?;
    if committed_by(&transaction, shard, first_position)?.is_some_and(|found| found == commit_id.to_string()) {
        return Ok(true);
    }
    overwrite(&transaction).and_then(|()| transaction.commit()).map_err(errors::statement)?;
    Ok(false)
}

/// Commits of a page each that a probe makes: together they need as much room in the log as a commit of a few runs.
const PROBE_COMMITS: usize = 16;

/// Writes what means nothing. One commit would not do: in what is left of a full disk a page may fit again and again.
pub(super) fn probe(connection: &mut Connection) -> Result<(), StoreError> {
    for _ in 0..PROBE_COMMITS {
        let transaction = begin(connection)?;
        overwrite(&transaction).and_then(|()| transaction.commit()).map_err(errors::statement)?;
    }
    Ok(())
}

/// Changes the file's first page and nothing that means anything: a number for applications, which nobody reads. A row
/// that is written as it was would change no page.
fn overwrite(transaction: &Transaction<'_>) -> rusqlite::Result<()> {
    let number: i32 = transaction.pragma_query_value(None, "user_version", |row| row.get(0))?;
    transaction.pragma_update(None, "user_version", number.wrapping_add(1))
}

/// Alone from here on: this is every shard's head lock.
pub(super) fn begin(connection: &mut Connection) -> Result<Transaction<'_>, StoreError> {
    connection.transaction_with_behavior(TransactionBehavior::Immediate).map_err(errors::statement)
}

fn committed_by(transaction: &Transaction<'_>, shard: Shard, position: Position) -> Result<Option<String>, StoreError> {
    let mut statement = transaction
        .prepare_cached("-- settle.commit_id\nselect commit_id from run_events where shard = ?1 and position = ?2")
        .map_err(errors::statement)?;
    let mut rows = statement.query((shard.0, bigint(position))).map_err(errors::statement)?;
    let cell = Cell { table: "run_events", key: &|| format!("shard {} position {position}", shard.0) };
    rows.next().map_err(errors::statement)?.map(|row| cell.get(row, 0, "commit_id")).transpose()
}

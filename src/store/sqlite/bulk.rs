//! Loads runs into the file: the writes of a commit, thousands of runs to a transaction.

use std::path::PathBuf;
use std::sync::Arc;

use async_trait::async_trait;
use rusqlite::Connection;
use uuid::Uuid;

use super::connections::Connections;
use super::rows::{Reader, first};
use super::writer::begin;
use super::{commit, errors, open};
use crate::clock::Clock;
use crate::domain::Shard;
use crate::store::bulk::{self, Bulk, LAST_RUN_ID, Load, LoadError, NAMESPACE, Room};
use crate::store::{Description, Ledger, OpenError, OpenOptions, StoreError};

/// The size as measured with `runledger bench fill`.
const BYTES_PER_RUN: u64 = 2_300;

/// The largest size of the log, which is emptied into the file again and again: as much as a few transactions.
const LOG_BYTES_MAX: u64 = 256 * 1024 * 1024;

/// A file that is loaded, under the lock that keeps servers from it.
pub struct SqliteBulk {
    connections: Arc<Connections>,
    clock: Arc<dyn Clock>,
    ledger: Ledger,
    path: PathBuf,
}

impl SqliteBulk {
    /// Opens a file, makes it if it is missing, locks it for this process and migrates it.
    ///
    /// # Errors
    ///
    /// [`OpenError::Locked`] while a server has it, and the others that are named there.
    pub async fn open(path: PathBuf, options: &OpenOptions, clock: Arc<dyn Clock>) -> Result<Self, OpenError> {
        let path = open::absolute(&path)?;
        let location = path.display().to_string();
        let (options, its_clock, file) = (*options, clock.clone(), path.clone());
        let opened = errors::opening(&location, move || open::file(&file, &options, its_clock.as_ref(), 1)).await?;
        Ok(Self { connections: opened.connections, clock, ledger: opened.ledger, path })
    }
}

#[async_trait]
impl Bulk for SqliteBulk {
    fn ledger(&self) -> Ledger {
        self.ledger
    }

    fn describe(&self) -> Description {
        let location = format!("sqlite:{}", self.path.display());
        Description { kind: "sqlite", location, connection: None, not_durable: None }
    }

    /// The store has one writer.
    fn loads_max(&self) -> usize {
        1
    }

    async fn room(&self) -> Result<Room, StoreError> {
        let free = bulk::free_at(self.path.clone());
        let (bytes_per_run, log_bytes_per_run, log_bytes_max) = (BYTES_PER_RUN, BYTES_PER_RUN, LOG_BYTES_MAX);
        Ok(Room { bytes_per_run, log_bytes_per_run, log_bytes_max, free })
    }

    async fn last_run_id(&self, shard: Shard, prefix: &str) -> Result<Option<String>, StoreError> {
        let prefix = prefix.to_owned();
        self.connections.read(move |connection| last_run_id(connection, shard, &prefix)).await?
    }

    async fn load(&self, shard: Shard, commit_id: Uuid, load: Load) -> Result<u64, LoadError> {
        let clock = self.clock.clone();
        self.connections.write(move |connection| write(connection, shard, commit_id, load, clock.as_ref())).await?
    }

    /// SQLite cleans up by itself, and plans without statistics, as it does for a server.
    async fn vacuum(&self) -> Result<(), StoreError> {
        Ok(())
    }

    async fn close(&self) {
        self.connections.close().await;
    }
}

fn write(
    connection: &mut Connection,
    shard: Shard,
    commit_id: Uuid,
    load: Load,
    clock: &dyn Clock,
) -> Result<u64, LoadError> {
    let transaction = begin(connection)?;
    if last_run_id(&transaction, shard, &load.prefix)? != load.after {
        return Err(LoadError::Taken { prefix: load.prefix });
    }
    let decided = bulk::decided(load.histories, &commit::load::end(&transaction, shard, clock.now())?)?;
    commit::write::write(&transaction, shard, commit_id, &decided, clock.now())?;
    transaction.commit().map_err(errors::statement)?;
    u64::try_from(decided.events.len()).map_err(|error| bulk::broken(error).into())
}

fn last_run_id(connection: &Connection, shard: Shard, prefix: &str) -> Result<Option<String>, StoreError> {
    first(connection, LAST_RUN_ID, (shard.0, NAMESPACE, prefix, bulk::past(prefix)), |row| {
        Reader { table: "runs", row, key: &|| prefix.to_owned() }.get((0, "run_id"))
    })
}

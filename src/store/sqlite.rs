//! The SQLite store: the embedded default, and with `memory` the throwaway one.
//!
//! SQLite has one writer, so one writing connection stands for every shard's head lock: a transaction that has begun
//! immediately is alone. Readers have connections of their own and see snapshots of the write-ahead log. Each call is
//! one job on a blocking thread. When its caller goes away, a write ends on its own, and a read is interrupted.

mod access;
mod changes;
mod commit;
mod connections;
mod diagnosis;
mod ends;
mod errors;
mod fitness;
mod generation;
mod identity;
mod inspect;
mod lifecycles;
mod lock;
mod lockers;
mod log;
mod log_index;
mod migrate;
mod namespaces;
mod open;
mod probe;
mod purges;
mod query;
mod read;
mod rights;
mod rows;
mod secure_delete;
mod sides;
mod store;
#[cfg(test)]
mod tests;
mod upkeep;
mod uptime;
mod whole;
mod writer;

use std::future::pending;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use self::upkeep::{claims, leases, max_running, retention, stored_bytes};
use super::OpenOptions;
use super::contents::Beside;
use super::leases::{KeptLease, Overdue, OverduePlace, Renewed};
use super::lifecycles::Versions;
use super::migrations::{Migrated, SQLITE};
use super::plan::Plan;
use super::query::{CountBy, Place, Reach, ReadyOf, RunCounts, RunPage, RunQuery};
use super::retention::Walked;
use super::{
    Clocks, CommitError, Commits, Description, FoundRun, Ledger, OfLedger, OpenError, Page, PoolUse, RunLog, Runs,
    Statistics, Store, StoreError, Unsettled, Upkeep,
};
use crate::clock::Clock;
use crate::domain::ids::{DEFAULT_NAMESPACE, shard_of};
use crate::domain::{
    Claimed, Command, ContentRow, Decide, Decided, Event, Filter, LabelValue, Namespace, Positions, Priority, Renewal,
    Revision, Run, RunId, RunKey, Shard, Time,
};
use crate::memory::MemoryUse;
pub use inspect::SqliteInspect;
pub use store::SqliteStore;
use uptime::UptimeClock;

impl SqliteStore {
    /// Opens a file, makes it if it is missing, locks it for this process and migrates it.
    ///
    /// # Errors
    ///
    /// [`OpenError::Locked`], [`OpenError::Forbidden`], [`OpenError::NeedsNewerRelease`] and the others that are named
    /// there.
    pub async fn open(path: PathBuf, options: &OpenOptions, clock: Arc<dyn Clock>) -> Result<Self, OpenError> {
        let path = open::absolute(&path)?;
        let location = path.display().to_string();
        let description =
            Description { kind: "sqlite", location: format!("sqlite:{location}"), connection: None, not_durable: None };
        let (options, its_clock) = (*options, clock.clone());
        let opened =
            errors::opening(&location, move || open::file(&path, &options, its_clock.as_ref(), open::READERS)).await?;
        Ok(Self {
            connections: opened.connections,
            clock: Arc::new(UptimeClock::new(clock, opened.kept)),
            ledger: opened.ledger,
            description,
            cleaning: Arc::default(),
            versions: Arc::new(Versions::new(options.lifecycle_bytes)),
        })
    }

    /// Makes a store that ends with the process.
    ///
    /// # Errors
    ///
    /// [`OpenError::Failed`], for want of memory.
    pub async fn in_memory(options: &OpenOptions, clock: Arc<dyn Clock>) -> Result<Self, OpenError> {
        let description = Description {
            kind: "memory",
            location: "memory".to_owned(),
            connection: None,
            not_durable: Some("the store is in memory: runs are gone when the process ends".to_owned()),
        };
        let (options, its_clock) = (*options, clock.clone());
        let opened = errors::opening("memory", move || open::memory(&options, its_clock.as_ref())).await?;
        Ok(Self {
            connections: opened.connections,
            clock: Arc::new(UptimeClock::new(clock, opened.kept)),
            ledger: opened.ledger,
            description,
            cleaning: Arc::default(),
            versions: Arc::new(Versions::new(options.lifecycle_bytes)),
        })
    }

    /// Brings a file to this release's schema and closes it.
    ///
    /// # Errors
    ///
    /// See [`SqliteStore::open`].
    pub async fn migrate(path: PathBuf, options: &OpenOptions, clock: Arc<dyn Clock>) -> Result<Migrated, OpenError> {
        let path = open::absolute(&path)?;
        let location = path.display().to_string();
        let options = *options;
        let opened = errors::opening(&location, move || open::file(&path, &options, clock.as_ref(), 0)).await?;
        opened.connections.close().await;
        Ok(opened.migrated)
    }

    /// What [`migrate`](Self::migrate) would do; no file is made, written or locked.
    ///
    /// # Errors
    ///
    /// See [`OpenError`].
    pub async fn plan(path: PathBuf, options: &OpenOptions) -> Result<Plan, OpenError> {
        let path = inspect::answering(&path, inspect::ANSWER_MAX).await?;
        let location = path.display().to_string();
        let options = *options;
        errors::opening(&location, move || {
            whole::look(&path)?;
            if !path.try_exists().map_err(|error| errors::read_system(&path, error))? {
                return Ok(Plan::of_nothing(SQLITE));
            }
            migrate::plan(&inspect::alone(&path)?, &path, &options)
        })
        .await
    }

    fn shard_of(&self, key: &RunKey) -> Shard {
        shard_of(self.ledger.id, self.ledger.shard_count, key)
    }

    /// Takes away, until the stop, what old pages of the file and the log still show of what was redacted or purged.
    pub fn keep_clean(&self, stop: CancellationToken) -> impl Future<Output = ()> + use<> {
        secure_delete::run(self.connections.clone(), self.cleaning.clone(), stop)
    }
}

impl OfLedger for SqliteStore {
    fn ledger(&self) -> Ledger {
        self.ledger
    }
}

#[async_trait]
impl Commits for SqliteStore {
    /// The store has one writer.
    fn commits_max(&self) -> usize {
        1
    }

    async fn commit(
        &self,
        shard: Shard,
        commit_id: Uuid,
        commands: Arc<[Arc<Command>]>,
        rules: &Arc<dyn Decide>,
    ) -> Result<Decided, CommitError> {
        let (clock, rules, versions) = (self.clock.clone(), rules.clone(), self.versions.clone());
        let (committed, looked) = self
            .connections
            .write_and_look(move |connection| {
                let known = (&*clock, &*versions);
                commit::commit(connection, shard, commit_id, &commands, &*rules, known)
            })
            .await?;
        if committed.as_ref().is_ok_and(|decided| commit::redact::is_among(&decided.events)) {
            self.cleaning.redacted();
        }
        match (committed, looked) {
            (Ok(decided), Err(lost)) => Err(commit::settle::into_a_lost_file(shard, commit_id, decided, lost)),
            (committed, Ok(()) | Err(_)) => committed,
        }
    }

    async fn settle(&self, unsettled: &Unsettled) -> Result<bool, StoreError> {
        let (shard, position, commit_id) = (unsettled.shard, unsettled.first_position, unsettled.commit_id);
        self.connections.write(move |connection| commit::settle::settle(connection, shard, position, commit_id)).await?
    }

    fn announce_commit(&self) {}

    /// There is one writer for all shards.
    async fn probe_write(&self, _shard: Shard) -> Result<(), StoreError> {
        self.connections.write(probe::write).await?
    }
}

/// The file is locked for this process: there are no commits of others to tell of.
#[async_trait]
impl RunLog for SqliteStore {
    async fn ends(&self) -> Result<Positions, StoreError> {
        let shard_count = self.ledger.shard_count;
        self.connections.read(move |connection| read::ends(connection, shard_count)).await?
    }

    async fn changes(&self, after: &Positions, limit: usize, bytes_max: usize) -> Result<Page, StoreError> {
        let (after, clock, shard_count) = (after.clone(), self.clock.clone(), self.ledger.shard_count);
        let page = move |connection: &mut rusqlite::Connection| {
            changes::page(connection, shard_count, &after, limit, bytes_max, clock.clock())
        };
        self.connections.read(page).await?
    }

    async fn changes_of(
        &self,
        namespace: &Namespace,
        after: &Positions,
        limit: usize,
        bytes_max: usize,
    ) -> Result<Page, StoreError> {
        if *namespace == DEFAULT_NAMESPACE {
            return self.changes(after, limit, bytes_max).await;
        }
        let (namespace, after, clock) = (namespace.clone(), after.clone(), self.clock.clone());
        let shard_count = self.ledger.shard_count;
        let page = move |connection: &mut rusqlite::Connection| {
            changes::page_of(connection, shard_count, &namespace, &after, limit, bytes_max, clock.clock())
        };
        self.connections.read(page).await?
    }

    async fn run_events(
        &self,
        key: &RunKey,
        after: Revision,
        limit: usize,
        bytes_max: usize,
    ) -> Result<Vec<Event>, StoreError> {
        let (shard, key) = (self.shard_of(key), key.clone());
        self.connections
            .read(move |connection| read::run_events(connection, shard, &key, after, limit, bytes_max))
            .await?
    }

    async fn forgotten(&self, namespace: &Namespace) -> Result<Positions, StoreError> {
        let (namespace, shard_count) = (namespace.clone(), self.ledger.shard_count);
        self.connections.read(move |connection| retention::forgotten(connection, &namespace, shard_count)).await?
    }

    async fn revisions_as_of(&self, keys: &[RunKey], ends: &Positions) -> Result<Vec<Revision>, StoreError> {
        let wanted = read::as_of(keys, ends, |key| self.shard_of(key));
        self.connections.read(move |connection| read::revisions_as_of(connection, &wanted)).await?
    }

    async fn foreign_commit(&self) {
        pending::<()>().await;
    }
}

#[async_trait]
impl Runs for SqliteStore {
    async fn run(&self, key: &RunKey) -> Result<Option<Run>, StoreError> {
        let (shard, key) = (self.shard_of(key), key.clone());
        self.connections.read(move |connection| read::run(connection, shard, &key)).await?
    }

    async fn runs(&self, keys: &[RunKey], bytes_max: usize) -> Result<Vec<FoundRun>, StoreError> {
        let keys: Vec<_> = keys.iter().map(|key| (self.shard_of(key), key.clone())).collect();
        let clock = self.clock.clone();
        self.connections.read(move |connection| read::runs(connection, &keys, bytes_max, &clock)).await?
    }

    async fn runs_at(&self, wanted: &[(RunKey, Revision)]) -> Result<Vec<Option<Run>>, StoreError> {
        let wanted: Vec<_> =
            wanted.iter().map(|(key, revision)| (self.shard_of(key), key.clone(), *revision)).collect();
        self.connections.read(move |connection| read::runs_at(connection, &wanted)).await?
    }

    async fn list(&self, query: &RunQuery) -> Result<RunPage, StoreError> {
        let query = query.clone();
        self.connections.read(move |connection| query::list(connection, &query)).await?
    }

    async fn count(
        &self,
        namespace: &Namespace,
        filter: &Filter,
        before: Option<&Place>,
        by: CountBy,
        reach: Reach,
    ) -> Result<RunCounts, StoreError> {
        let (namespace, filter, before) = (namespace.clone(), filter.clone(), before.cloned());
        self.connections
            .read(move |connection| query::count(connection, &namespace, &filter, before, (by, reach)))
            .await?
    }

    async fn beside(&self, key: &RunKey, asked: &Beside) -> Result<Vec<ContentRow>, StoreError> {
        let (shard, key, asked) = (self.shard_of(key), key.clone(), *asked);
        self.connections.read(move |connection| read::beside(connection, shard, &key, &asked)).await?
    }

    async fn next_priority(&self, namespace: &Namespace, below: i16) -> Result<Option<Priority>, StoreError> {
        let namespace = namespace.clone();
        self.connections.read(move |connection| query::next_priority(connection, &namespace, below)).await?
    }

    async fn ready(
        &self,
        namespace: &Namespace,
        of: ReadyOf,
        after: Option<&Place>,
        limit: usize,
    ) -> Result<RunPage, StoreError> {
        let (namespace, after) = (namespace.clone(), after.cloned());
        self.connections.read(move |connection| query::ready(connection, &namespace, of, after, limit)).await?
    }

    async fn running(&self, values: &[LabelValue]) -> Result<Vec<Vec<RunId>>, StoreError> {
        let values = values.to_vec();
        let read = move |connection: &mut rusqlite::Connection| {
            values.iter().map(|value| sides::max_running::running(connection, value)).collect()
        };
        self.connections.read(read).await?
    }

    async fn walked_all(&self, namespace: &Namespace) -> Result<(Walked, Time), StoreError> {
        let (namespace, clock) = (namespace.clone(), self.clock.clone());
        // Purges go by the steady clock, and views by times of runs: the later of both misses no purge.
        let now = clock.steady().now.max(clock.clock());
        self.connections.read(move |connection| retention::walked_all(connection, &namespace, now)).await?
    }
}

#[async_trait]
impl Upkeep for SqliteStore {
    async fn renew(&self, shard: Shard, renewals: &[(RunKey, Renewal)]) -> Result<Vec<Option<Renewed>>, StoreError> {
        let (renewals, clock) = (renewals.to_vec(), self.clock.clone());
        let renewal = async {
            self.connections.write(move |connection| leases::renew(connection, shard, &renewals, &clock)).await?
        };
        self.clock.making(renewal).await
    }

    fn renewals_waited(&self, queued: Duration) {
        self.clock.waited(queued);
    }

    async fn leases(&self, keys: &[RunKey]) -> Result<Vec<Option<KeptLease>>, StoreError> {
        let keys: Vec<_> = keys.iter().map(|key| (self.shard_of(key), key.clone())).collect();
        let clock = self.clock.clone();
        self.connections.read(move |connection| leases::leases(connection, &keys, &clock)).await?
    }

    async fn overdue(&self, shard: Shard, after: &OverduePlace, limit: usize) -> Result<Overdue, StoreError> {
        let (clock, after) = (self.clock.clone(), after.clone());
        self.connections.read(move |connection| leases::overdue(connection, shard, &after, limit, &clock)).await?
    }

    async fn claimed(&self, namespace: &Namespace, request_ids: &[String]) -> Result<Vec<Option<Claimed>>, StoreError> {
        let keys = claims::keys(namespace, request_ids);
        self.connections.read(move |connection| claims::claimed(connection, &keys)).await?
    }

    async fn replay_claims(
        &self,
        namespace: &Namespace,
        request_ids: &[String],
    ) -> Result<Vec<Option<Claimed>>, StoreError> {
        let keys = claims::keys(namespace, request_ids);
        self.connections.write(move |connection| claims::replay(connection, &keys)).await?
    }

    /// No other process asks for a stamp. But a restart asks how much time has passed, where any lease or deadline is to
    /// come; and where renewals failed, their workers may be gone, and no other call would find that the store writes again.
    async fn stay_alive(&self) -> Result<(), StoreError> {
        let is_wanted = self.clock.is_failing() || self.clock.is_unkept();
        if !is_wanted && !self.connections.read(|connection| leases::has_any_to_come(connection)).await?? {
            return Ok(());
        }
        let clock = self.clock.clone();
        let stamp = async { self.connections.write(move |connection| leases::stamp(connection, &clock)).await? };
        self.clock.making(stamp).await
    }

    fn clocks(&self) -> Clocks {
        self.clock.clocks()
    }

    fn tick(&self) {
        self.clock.tick();
    }

    async fn measure(&self) -> Result<bool, StoreError> {
        let (measured, more) = self.connections.read(|connection| stored_bytes::measure(connection)).await??;
        if !measured.is_empty() {
            self.connections.write(move |connection| stored_bytes::keep(connection, &measured)).await??;
        }
        Ok(more)
    }

    async fn tidy(&self) -> Result<bool, StoreError> {
        let mut after = None;
        loop {
            let clock = self.clock.clone();
            let read = move |connection: &mut rusqlite::Connection| {
                max_running::page(connection, after.as_ref(), clock.steady().now)
            };
            let max_running::Page { over, next } = self.connections.read(read).await??;
            if !over.is_empty() {
                let clock = self.clock.clone();
                self.connections.write(move |it| max_running::forget(it, &over, clock.steady().now)).await??;
            }
            if next.is_none() {
                break;
            }
            after = next;
        }
        loop {
            let clock = self.clock.clone();
            if !self.connections.write(move |connection| claims::forget(connection, clock.steady().now)).await?? {
                return Ok(false);
            }
        }
    }
}

#[async_trait]
impl Store for SqliteStore {
    fn describe(&self) -> Description {
        self.description.clone()
    }

    fn memory(&self) -> Vec<MemoryUse> {
        let (bytes, bytes_max) = self.versions.bytes();
        vec![MemoryUse { name: "lifecycles", bytes, bytes_max: Some(bytes_max) }]
    }

    fn pools(&self) -> Vec<PoolUse> {
        self.connections.pools()
    }

    async fn statistics(&self) -> Result<Statistics, StoreError> {
        let bytes = self.connections.read(|connection| read::bytes(connection)).await??;
        Ok(Statistics { bytes, ..Statistics::default() })
    }

    /// A file has one past.
    async fn look_at_past(&self) -> Result<(), StoreError> {
        Ok(())
    }

    async fn lost(&self) -> String {
        self.connections.lost().await
    }

    async fn ping(&self) -> Result<(), StoreError> {
        self.connections.read(|connection| read::ping(connection)).await?
    }

    async fn close(&self) {
        let clock = self.clock.clone();
        let stamped = self.connections.write(move |connection| leases::stamp(connection, &clock)).await;
        if let Err(error) = stamped.and_then(|stamped| stamped) {
            tracing::debug!(%error, "the time of the end was not kept");
        }
        self.connections.close().await;
    }
}

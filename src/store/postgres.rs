//! The Postgres store: for production, for many replicas on one database.
//!
//! A commit takes its shard's head first and writes in the same transaction, so that positions are dense and in commit
//! order and no two commits deadlock. Nothing here decides, and nothing needs sequences, triggers or notifications to
//! be right.

mod admin_connection;
mod announce;
mod autocommit_writes;
mod blocked;
mod changes;
mod commit;
mod defaults;
pub(in crate::store) mod diagnosis;
pub mod dsn;
mod elsewhere;
mod ends;
mod errors;
mod fitness;
mod grants;
mod inspect;
mod leased_run_hints;
mod lifecycles;
mod lineage;
mod migrate;
mod min_release;
mod namespaces;
mod open;
mod parts;
mod pooler;
mod probe;
mod query;
mod read;
mod rows;
mod safety;
mod sessions;
mod sides;
mod statistics;
mod store;
mod transactions;
mod trial;
mod upkeep;
mod uptime;

use std::future::pending;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use tokio::time::timeout;
use uuid::Uuid;

pub use self::changes::of_a_namespace;
use self::commit::CommitPath;
pub use self::commit::write::of_a_commit;
use self::errors::TimedOut;
pub use self::fitness::{MADE as SCHEMA_MADE, SCHEMA as SCHEMA_FOUND};
pub use self::inspect::PostgresInspect;
pub use self::namespaces::of_namespaces;
pub use self::query::{count as of_a_count, list as of_a_list, of_queues};
pub use self::read::of_held_runs;
use self::sessions::CREATE_MAX;
pub use self::sessions::{COMMIT_SETTINGS, READ_SETTINGS};
pub use self::sides::contents::of_links;
pub use self::sides::lifecycles::of_lifecycles;
pub use self::sides::max_running::of_max_running;
pub use self::store::PostgresStore;
pub use self::upkeep::claims::of_claims;
pub use self::upkeep::leases::{of_leases, of_overdue};
pub use self::upkeep::retention::of_purge;
use self::upkeep::{claims, leases, max_running, retention, stored_bytes};
use super::contents::Beside;
use super::leases::{KeptLease, Overdue, OverduePlace, Renewed};
use super::query::{CountBy, Place, Reach, ReadyOf, RunCounts, RunPage, RunQuery};
use super::retention::Walked;
use super::{
    Clocks, CommitError, Commits, Description, FoundRun, Ledger, OfLedger, Page, PoolUse, RunLog, Runs, Statistics,
    Store, StoreError, Unsettled, Upkeep,
};
use crate::domain::ids::{DEFAULT_NAMESPACE, shard_of};
use crate::domain::{
    Claimed, Command, ContentRow, Decide, Decided, Event, Filter, LabelValue, Namespace, Positions, Priority, Renewal,
    Revision, Run, RunId, RunKey, Shard, Time,
};
use crate::memory::MemoryUse;

impl PostgresStore {
    fn shard_of(&self, key: &RunKey) -> Shard {
        shard_of(self.ledger.id, self.ledger.shard_count, key)
    }

    /// Whether the server is still the one with all acknowledged calls: a pooler may move a session to another unseen.
    async fn check(&self) -> Result<(), StoreError> {
        let session = self.commits.sessions.commit().await?;
        match timeout(CREATE_MAX, self.commits.lineage.check(&session)).await {
            Ok(Ok(())) => {
                session.put_back();
                Ok(())
            }
            Ok(Err(error)) => {
                session.close();
                Err(error)
            }
            Err(_elapsed) => Err(TimedOut.into()),
        }
    }
}

impl OfLedger for PostgresStore {
    fn ledger(&self) -> Ledger {
        Ledger { epoch: self.commits.lineage.epoch(), ..self.ledger }
    }
}

#[async_trait]
impl Commits for PostgresStore {
    fn commits_max(&self) -> usize {
        self.commits.sessions.commits_max()
    }

    async fn commit(
        &self,
        shard: Shard,
        commit_id: Uuid,
        commands: Arc<[Arc<Command>]>,
        rules: &Arc<dyn Decide>,
    ) -> Result<Decided, CommitError> {
        commit::commit(&self.commits, shard, commit_id, &commands, &**rules).await
    }

    async fn settle(&self, unsettled: &Unsettled) -> Result<bool, StoreError> {
        commit::settle::settle(&self.commits.sessions, &self.commits.hints, unsettled).await
    }

    fn announce_commit(&self) {
        self.announcer.announce();
    }

    async fn probe_write(&self, shard: Shard) -> Result<(), StoreError> {
        probe::write(&self.commits.sessions, shard).await
    }
}

#[async_trait]
impl RunLog for PostgresStore {
    async fn ends(&self) -> Result<Positions, StoreError> {
        let epoch = self.commits.lineage.epoch();
        let ends = self.over_shards.ends(&self.commits.sessions).await?;
        self.commits.lineage.saw(epoch, (0..).map(Shard).zip(ends.iter().copied()));
        Ok(ends)
    }

    async fn changes(&self, after: &Positions, limit: usize, bytes_max: usize) -> Result<Page, StoreError> {
        let epoch = self.commits.lineage.epoch();
        let page = self.over_shards.page(&self.commits.sessions, after, limit, bytes_max).await?;
        self.commits.lineage.saw(epoch, page.places());
        Ok(page)
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
        let epoch = self.commits.lineage.epoch();
        let page = self.over_shards.page_of(&self.commits.sessions, namespace, after, limit, bytes_max).await?;
        self.commits.lineage.saw(epoch, page.places());
        Ok(page)
    }

    async fn run_events(
        &self,
        key: &RunKey,
        after: Revision,
        limit: usize,
        bytes_max: usize,
    ) -> Result<Vec<Event>, StoreError> {
        read::run_events(&self.commits.sessions, self.shard_of(key), key, after, limit, bytes_max).await
    }

    async fn revisions_as_of(&self, keys: &[RunKey], ends: &Positions) -> Result<Vec<Revision>, StoreError> {
        read::revisions_as_of(&self.commits.sessions, keys, ends, |key| self.shard_of(key)).await
    }

    async fn forgotten(&self, namespace: &Namespace) -> Result<Positions, StoreError> {
        let shard_count = self.ledger().shard_count;
        retention::forgotten(&self.commits.sessions, namespace, shard_count).await
    }

    async fn foreign_commit(&self) {
        self.announcer.heard().await;
    }
}

#[async_trait]
impl Runs for PostgresStore {
    async fn run(&self, key: &RunKey) -> Result<Option<Run>, StoreError> {
        read::run(&self.commits.sessions, self.shard_of(key), key).await
    }

    async fn runs(&self, keys: &[RunKey], bytes_max: usize) -> Result<Vec<FoundRun>, StoreError> {
        let CommitPath { sessions, uptime, hints, .. } = &self.commits;
        read::runs(sessions, uptime, hints.held(), keys, bytes_max, |key| self.shard_of(key)).await
    }

    async fn runs_at(&self, wanted: &[(RunKey, Revision)]) -> Result<Vec<Option<Run>>, StoreError> {
        read::runs_at(&self.commits.sessions, wanted, |key| self.shard_of(key)).await
    }

    async fn list(&self, query: &RunQuery) -> Result<RunPage, StoreError> {
        query::list_runs(&self.commits.sessions, query).await
    }

    async fn count(
        &self,
        namespace: &Namespace,
        filter: &Filter,
        before: Option<&Place>,
        by: CountBy,
        reach: Reach,
    ) -> Result<RunCounts, StoreError> {
        query::count_runs(&self.commits.sessions, namespace, filter, before, (by, reach)).await
    }

    async fn beside(&self, key: &RunKey, asked: &Beside) -> Result<Vec<ContentRow>, StoreError> {
        read::beside(&self.commits.sessions, self.shard_of(key), key, asked).await
    }

    async fn next_priority(&self, namespace: &Namespace, below: i16) -> Result<Option<Priority>, StoreError> {
        query::next_priority(&self.commits.sessions, namespace, below).await
    }

    async fn ready(
        &self,
        namespace: &Namespace,
        of: ReadyOf,
        after: Option<&Place>,
        limit: usize,
    ) -> Result<RunPage, StoreError> {
        query::ready_runs(&self.commits.sessions, namespace, of, after, limit).await
    }

    async fn running(&self, values: &[LabelValue]) -> Result<Vec<Vec<RunId>>, StoreError> {
        sides::max_running::running(&self.commits.sessions, values).await
    }

    async fn walked_all(&self, namespace: &Namespace) -> Result<(Walked, Time), StoreError> {
        let (walked, now) = retention::walked_all(&self.commits.sessions, namespace).await?;
        // Purges go by the steady clock, and views by times of runs: the later of both misses no purge.
        Ok((walked, now.max(self.commits.uptime.steady().now)))
    }
}

#[async_trait]
impl Upkeep for PostgresStore {
    async fn renew(&self, shard: Shard, renewals: &[(RunKey, Renewal)]) -> Result<Vec<Option<Renewed>>, StoreError> {
        leases::renew(&self.commits.sessions, &self.commits.uptime, shard, renewals).await
    }

    fn renewals_waited(&self, queued: Duration) {
        self.commits.uptime.waited(queued);
    }

    async fn leases(&self, keys: &[RunKey]) -> Result<Vec<Option<KeptLease>>, StoreError> {
        leases::leases(&self.commits.sessions, &self.commits.uptime, keys, |key| self.shard_of(key)).await
    }

    async fn overdue(&self, shard: Shard, after: &OverduePlace, limit: usize) -> Result<Overdue, StoreError> {
        leases::overdue(&self.commits.sessions, &self.commits.uptime, shard, after, limit).await
    }

    async fn claimed(&self, namespace: &Namespace, request_ids: &[String]) -> Result<Vec<Option<Claimed>>, StoreError> {
        claims::claimed(&self.commits.sessions, namespace, request_ids).await
    }

    async fn replay_claims(
        &self,
        namespace: &Namespace,
        request_ids: &[String],
    ) -> Result<Vec<Option<Claimed>>, StoreError> {
        claims::replay(&self.commits.sessions, namespace, request_ids).await
    }

    async fn stay_alive(&self) -> Result<(), StoreError> {
        // Side by side: the stamp is not to wait for the look.
        let stamp = uptime::statements::stay_alive(&self.commits.sessions, &self.commits.uptime);
        let (stamped, looked) = tokio::join!(stamp, self.check());
        stamped.and(looked)
    }

    fn tick(&self) {
        self.commits.uptime.tick();
    }

    fn clocks(&self) -> Clocks {
        self.commits.uptime.clocks()
    }

    async fn measure(&self) -> Result<bool, StoreError> {
        stored_bytes::measure(&self.commits.sessions).await
    }

    async fn tidy(&self) -> Result<bool, StoreError> {
        let now = self.commits.uptime.steady().now;
        let counted = max_running::tidy(&self.commits.sessions, now).await?;
        Ok(claims::forget(&self.commits.sessions, now).await? || counted)
    }
}

#[async_trait]
impl Store for PostgresStore {
    fn describe(&self) -> Description {
        self.description.clone()
    }

    fn memory(&self) -> Vec<MemoryUse> {
        let (bytes, bytes_max) = self.commits.hints.bytes();
        let (declared, declared_max) = self.commits.hints.lifecycles().bytes();
        vec![
            MemoryUse { name: "hints", bytes, bytes_max: Some(bytes_max) },
            MemoryUse { name: "lifecycles", bytes: declared, bytes_max: Some(declared_max) },
        ]
    }

    fn pools(&self) -> Vec<PoolUse> {
        self.commits.sessions.pools()
    }

    async fn statistics(&self) -> Result<Statistics, StoreError> {
        statistics::read(&self.commits.sessions).await
    }

    async fn look_at_past(&self) -> Result<(), StoreError> {
        self.commits.lineage.once(self.check()).await
    }

    /// A database that is not there may come back.
    async fn lost(&self) -> String {
        pending().await
    }

    async fn ping(&self) -> Result<(), StoreError> {
        read::ping(&self.commits.sessions).await
    }

    async fn close(&self) {
        self.announcer.stop();
        self.commits.sessions.close();
    }
}

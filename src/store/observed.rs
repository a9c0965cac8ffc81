//! A store whose calls are counted: each of its paths is wrapped, so that the counting stands beside the stores and
//! not in them.

mod calls;
#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use uuid::Uuid;

pub use self::calls::{Call, Calls};
use super::contents::Beside;
use super::leases::{KeptLease, Overdue, OverduePlace, Renewed};
use super::query::{CountBy, Place, Reach, ReadyOf, RunCounts, RunPage, RunQuery};
use super::retention::{Due, Purged, Retained, Walk, Walked};
use super::{
    ChangeError, Clocks, CommitError, Commits, Description, Found, Ledger, Lifecycles, Namespaces, OfLedger, Page,
    PoolUse, Purges, RunLog, Runs, Statistics, Store, StoreError, Unsettled, Upkeep,
};
use crate::domain::{
    Claimed, Command, ContentRow, Decide, Decided, Declared, Event, Filter, LabelValue, LifecycleKey, LifecycleName,
    LifecycleRecord, Namespace, NamespaceCommand, NamespaceDecision, NamespaceRecord, Position, Positions, Priority,
    PutLifecycle, PutOutcome, PutRefusal, Renewal, Revision, Run, RunId, RunKey, Shard, Time,
};
use crate::memory::Part;

/// A store, or one of its paths, and the number of calls of each method.
pub struct Observed<S: ?Sized> {
    calls: Calls,
    inner: Arc<S>,
}

impl<S: ?Sized> Observed<S> {
    /// Observes a store, from now on.
    #[must_use]
    pub fn around(inner: Arc<S>) -> Self {
        Self { calls: Calls::default(), inner }
    }

    /// The number of calls of each method.
    #[must_use]
    pub fn calls(&self) -> &Calls {
        &self.calls
    }
}

impl<S: OfLedger + ?Sized> OfLedger for Observed<S> {
    fn ledger(&self) -> Ledger {
        self.inner.ledger()
    }
}

#[async_trait]
impl<S: Commits + ?Sized> Commits for Observed<S> {
    fn commits_max(&self) -> usize {
        self.inner.commits_max()
    }

    async fn commit(
        &self,
        shard: Shard,
        commit_id: Uuid,
        commands: Arc<[Arc<Command>]>,
        rules: &Arc<dyn Decide>,
    ) -> Result<Decided, CommitError> {
        self.calls.count(Call::Commit);
        self.inner.commit(shard, commit_id, commands, rules).await
    }

    async fn settle(&self, unsettled: &Unsettled) -> Result<bool, StoreError> {
        self.calls.count(Call::Settle);
        self.inner.settle(unsettled).await
    }

    fn announce_commit(&self) {
        self.inner.announce_commit();
    }

    async fn probe_write(&self, shard: Shard) -> Result<(), StoreError> {
        self.calls.count(Call::ProbeWrite);
        self.inner.probe_write(shard).await
    }
}

#[async_trait]
impl<S: RunLog + ?Sized> RunLog for Observed<S> {
    async fn ends(&self) -> Result<Positions, StoreError> {
        self.calls.count(Call::Ends);
        self.inner.ends().await
    }

    async fn changes(&self, after: &Positions, limit: usize, bytes_max: usize) -> Result<Page, StoreError> {
        self.calls.count(Call::Changes);
        self.inner.changes(after, limit, bytes_max).await
    }

    async fn changes_of(
        &self,
        namespace: &Namespace,
        after: &Positions,
        limit: usize,
        bytes_max: usize,
    ) -> Result<Page, StoreError> {
        self.calls.count(Call::ChangesOf);
        self.inner.changes_of(namespace, after, limit, bytes_max).await
    }

    async fn run_events(
        &self,
        key: &RunKey,
        after: Revision,
        limit: usize,
        bytes_max: usize,
    ) -> Result<Vec<Event>, StoreError> {
        self.calls.count(Call::RunEvents);
        self.inner.run_events(key, after, limit, bytes_max).await
    }

    async fn revisions_as_of(&self, keys: &[RunKey], ends: &Positions) -> Result<Vec<Revision>, StoreError> {
        self.calls.count(Call::RevisionsAsOf);
        self.inner.revisions_as_of(keys, ends).await
    }

    async fn forgotten(&self, namespace: &Namespace) -> Result<Positions, StoreError> {
        self.calls.count(Call::Forgotten);
        self.inner.forgotten(namespace).await
    }

    async fn foreign_commit(&self) {
        self.inner.foreign_commit().await;
    }
}

#[async_trait]
impl<S: Runs + ?Sized> Runs for Observed<S> {
    async fn run(&self, key: &RunKey) -> Result<Option<Run>, StoreError> {
        self.calls.count(Call::Run);
        self.inner.run(key).await
    }

    async fn runs(&self, keys: &[RunKey], bytes_max: usize) -> Result<Vec<Found>, StoreError> {
        self.calls.count(Call::Runs);
        self.inner.runs(keys, bytes_max).await
    }

    async fn runs_at(&self, wanted: &[(RunKey, Revision)]) -> Result<Vec<Option<Run>>, StoreError> {
        self.calls.count(Call::RunsAt);
        self.inner.runs_at(wanted).await
    }

    async fn list(&self, query: &RunQuery) -> Result<RunPage, StoreError> {
        self.calls.count(Call::List);
        self.inner.list(query).await
    }

    async fn count(
        &self,
        namespace: &Namespace,
        filter: &Filter,
        before: Option<&Place>,
        by: CountBy,
        reach: Reach,
    ) -> Result<RunCounts, StoreError> {
        self.calls.count(Call::Count);
        self.inner.count(namespace, filter, before, by, reach).await
    }

    async fn beside(&self, key: &RunKey, asked: &Beside) -> Result<Vec<ContentRow>, StoreError> {
        self.calls.count(Call::Beside);
        self.inner.beside(key, asked).await
    }

    async fn next_priority(&self, namespace: &Namespace, below: i16) -> Result<Option<Priority>, StoreError> {
        self.calls.count(Call::NextPriority);
        self.inner.next_priority(namespace, below).await
    }

    async fn ready(
        &self,
        namespace: &Namespace,
        of: ReadyOf,
        after: Option<&Place>,
        limit: usize,
    ) -> Result<RunPage, StoreError> {
        self.calls.count(Call::Ready);
        self.inner.ready(namespace, of, after, limit).await
    }

    async fn running(&self, values: &[LabelValue]) -> Result<Vec<Vec<RunId>>, StoreError> {
        self.calls.count(Call::Running);
        self.inner.running(values).await
    }

    async fn walked_all(&self, namespace: &Namespace) -> Result<(Walked, Time), StoreError> {
        self.calls.count(Call::WalkedAll);
        self.inner.walked_all(namespace).await
    }
}

#[async_trait]
impl<S: Upkeep + ?Sized> Upkeep for Observed<S> {
    async fn renew(&self, shard: Shard, renewals: &[(RunKey, Renewal)]) -> Result<Vec<Option<Renewed>>, StoreError> {
        self.calls.count(Call::Renew);
        self.inner.renew(shard, renewals).await
    }

    fn renewals_waited(&self, queued: Duration) {
        self.inner.renewals_waited(queued);
    }

    async fn leases(&self, keys: &[RunKey]) -> Result<Vec<Option<KeptLease>>, StoreError> {
        self.calls.count(Call::Leases);
        self.inner.leases(keys).await
    }

    async fn overdue(&self, shard: Shard, after: &OverduePlace, limit: usize) -> Result<Overdue, StoreError> {
        self.calls.count(Call::Overdue);
        self.inner.overdue(shard, after, limit).await
    }

    async fn claimed(&self, namespace: &Namespace, request_id: &str) -> Result<Option<Claimed>, StoreError> {
        self.calls.count(Call::Claimed);
        self.inner.claimed(namespace, request_id).await
    }

    async fn replay_claim(&self, namespace: &Namespace, request_id: &str) -> Result<Option<Claimed>, StoreError> {
        self.calls.count(Call::ReplayClaim);
        self.inner.replay_claim(namespace, request_id).await
    }

    async fn stay_alive(&self) -> Result<(), StoreError> {
        self.calls.count(Call::StayAlive);
        self.inner.stay_alive().await
    }

    fn tick(&self) {
        self.inner.tick();
    }

    fn clocks(&self) -> Clocks {
        self.inner.clocks()
    }

    async fn measure(&self) -> Result<bool, StoreError> {
        self.calls.count(Call::Measure);
        self.inner.measure().await
    }

    async fn tidy(&self) -> Result<bool, StoreError> {
        self.calls.count(Call::Tidy);
        self.inner.tidy().await
    }
}

#[async_trait]
impl<S: Namespaces + ?Sized> Namespaces for Observed<S> {
    async fn namespaces(&self, names: &[Namespace]) -> Result<Vec<NamespaceRecord>, StoreError> {
        self.calls.count(Call::Namespaces);
        self.inner.namespaces(names).await
    }

    async fn list_namespaces(
        &self,
        prefix: &str,
        after: &str,
        limit: usize,
    ) -> Result<Vec<NamespaceRecord>, StoreError> {
        self.calls.count(Call::ListNamespaces);
        self.inner.list_namespaces(prefix, after, limit).await
    }

    async fn note_exported(&self, name: &Namespace, upto: &Positions) -> Result<(), StoreError> {
        self.calls.count(Call::NoteExported);
        self.inner.note_exported(name, upto).await
    }

    async fn change_namespace(&self, command: &NamespaceCommand) -> Result<NamespaceDecision, ChangeError> {
        self.calls.count(Call::ChangeNamespace);
        self.inner.change_namespace(command).await
    }
}

#[async_trait]
impl<S: Lifecycles + ?Sized> Lifecycles for Observed<S> {
    async fn put_lifecycle(&self, put: &PutLifecycle) -> Result<PutOutcome, ChangeError<PutRefusal>> {
        self.calls.count(Call::PutLifecycle);
        self.inner.put_lifecycle(put).await
    }

    async fn lifecycle(
        &self,
        namespace: &Namespace,
        name: &LifecycleName,
    ) -> Result<Option<LifecycleRecord>, StoreError> {
        self.calls.count(Call::Lifecycle);
        self.inner.lifecycle(namespace, name).await
    }

    async fn declared(&self, key: &LifecycleKey) -> Result<Option<Arc<Declared>>, StoreError> {
        self.calls.count(Call::Declared);
        self.inner.declared(key).await
    }

    async fn list_lifecycles(
        &self,
        namespace: &Namespace,
        after: &str,
        limit: usize,
    ) -> Result<Vec<LifecycleRecord>, StoreError> {
        self.calls.count(Call::ListLifecycles);
        self.inner.list_lifecycles(namespace, after, limit).await
    }

    async fn lifecycle_versions(
        &self,
        namespace: &Namespace,
        name: &str,
        below: u32,
        limit: usize,
    ) -> Result<Vec<LifecycleRecord>, StoreError> {
        self.calls.count(Call::LifecycleVersions);
        self.inner.lifecycle_versions(namespace, name, below, limit).await
    }
}

#[async_trait]
impl<S: Purges + ?Sized> Purges for Observed<S> {
    fn unattended(&self) -> Duration {
        self.inner.unattended()
    }

    async fn retentions(&self) -> Result<Vec<Retained>, StoreError> {
        self.calls.count(Call::Retentions);
        self.inner.retentions().await
    }

    async fn exported(&self, namespace: &Namespace) -> Result<Positions, StoreError> {
        self.calls.count(Call::Exported);
        self.inner.exported(namespace).await
    }

    async fn walked(&self, shard: Shard, walk: &Walk) -> Result<Position, StoreError> {
        self.calls.count(Call::Walked);
        self.inner.walked(shard, walk).await
    }

    async fn due(&self, shard: Shard, walk: &Walk, after: Position, upto: Position) -> Result<Due, StoreError> {
        self.calls.count(Call::Due);
        self.inner.due(shard, walk, after, upto).await
    }

    async fn purge(&self, shard: Shard, walk: &Walk, due: &Due) -> Result<Option<Purged>, StoreError> {
        self.calls.count(Call::Purge);
        self.inner.purge(shard, walk, due).await
    }
}

#[async_trait]
impl<S: Store + ?Sized> Store for Observed<S> {
    fn describe(&self) -> Description {
        self.inner.describe()
    }

    fn memory(&self) -> Vec<Part> {
        self.inner.memory()
    }

    fn pools(&self) -> Vec<PoolUse> {
        self.inner.pools()
    }

    async fn statistics(&self) -> Result<Statistics, StoreError> {
        self.calls.count(Call::Statistics);
        self.inner.statistics().await
    }

    async fn look_at_past(&self) -> Result<(), StoreError> {
        self.calls.count(Call::LookAtPast);
        self.inner.look_at_past().await
    }

    async fn lost(&self) -> String {
        self.inner.lost().await
    }

    async fn ping(&self) -> Result<(), StoreError> {
        self.calls.count(Call::Ping);
        self.inner.ping().await
    }

    async fn close(&self) {
        self.inner.close().await;
    }
}

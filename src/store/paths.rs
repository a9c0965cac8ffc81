//! The methods of all paths, listed once, for whoever stands around a store and passes its calls on.
//!
//! No trait of a path has a default method. So a method that is not listed here is an error of the compiler wherever the
//! list is used, and none is answered past whoever stands around the store.

/// Hands the methods of each path to a macro: first those that answer at once, then those that ask the database, as the
/// [`Call`](crate::store::observed::Call) under which they are counted, or wait.
#[doc(hidden)]
#[macro_export]
macro_rules! store_paths {
    ($taker:ident) => {
        $taker! {
            OfLedger {
                fn ledger() -> Ledger;
            }
            Commits {
                fn commits_max() -> usize;
                fn announce_commit();
                async fn commit(shard: Shard, commit_id: Uuid, commands: Arc<[Arc<Command>]>, rules: &Arc<dyn Decide>) -> Result<Decided, CommitError> as Commit;
                async fn settle(unsettled: &Unsettled) -> Result<bool, StoreError> as Settle;
                async fn probe_write(shard: Shard) -> Result<(), StoreError> as ProbeWrite;
            }
            RunLog {
                async fn ends() -> Result<Positions, StoreError> as Ends;
                async fn changes(after: &Positions, limit: usize, bytes_max: usize) -> Result<Page, StoreError> as Changes;
                async fn changes_of(namespace: &Namespace, after: &Positions, limit: usize, bytes_max: usize) -> Result<Page, StoreError> as ChangesOf;
                async fn run_events(key: &RunKey, after: Revision, limit: usize, bytes_max: usize) -> Result<Vec<Event>, StoreError> as RunEvents;
                async fn revisions_as_of(keys: &[RunKey], ends: &Positions) -> Result<Vec<Revision>, StoreError> as RevisionsAsOf;
                async fn forgotten(namespace: &Namespace) -> Result<Positions, StoreError> as Forgotten;
                async fn foreign_commit();
            }
            Runs {
                async fn run(key: &RunKey) -> Result<Option<Run>, StoreError> as Run;
                async fn runs(keys: &[RunKey], bytes_max: usize) -> Result<Vec<FoundRun>, StoreError> as Runs;
                async fn runs_at(wanted: &[(RunKey, Revision)]) -> Result<Vec<Option<Run>>, StoreError> as RunsAt;
                async fn beside(key: &RunKey, asked: &Beside) -> Result<Vec<ContentRow>, StoreError> as Beside;
                async fn list(query: &RunQuery) -> Result<RunPage, StoreError> as List;
                async fn count(namespace: &Namespace, filter: &Filter, before: Option<&Place>, by: CountBy, reach: Reach) -> Result<RunCounts, StoreError> as Count;
                async fn ready(namespace: &Namespace, of: ReadyOf, after: Option<&Place>, limit: usize) -> Result<RunPage, StoreError> as Ready;
                async fn next_priority(namespace: &Namespace, below: i16) -> Result<Option<Priority>, StoreError> as NextPriority;
                async fn running(values: &[LabelValue]) -> Result<Vec<Vec<RunId>>, StoreError> as Running;
                async fn walked_all(namespace: &Namespace) -> Result<(Walked, Time), StoreError> as WalkedAll;
            }
            Upkeep {
                fn renewals_waited(queued: Duration);
                fn tick();
                fn clocks() -> Clocks;
                async fn renew(shard: Shard, renewals: &[(RunKey, Renewal)]) -> Result<Vec<Option<Renewed>>, StoreError> as Renew;
                async fn leases(keys: &[RunKey]) -> Result<Vec<Option<KeptLease>>, StoreError> as Leases;
                async fn overdue(shard: Shard, after: &OverduePlace, limit: usize) -> Result<Overdue, StoreError> as Overdue;
                async fn claimed(namespace: &Namespace, request_ids: &[String]) -> Result<Vec<Option<Claimed>>, StoreError> as Claimed;
                async fn replay_claims(namespace: &Namespace, request_ids: &[String]) -> Result<Vec<Option<Claimed>>, StoreError> as ReplayClaims;
                async fn stay_alive() -> Result<(), StoreError> as StayAlive;
                async fn measure() -> Result<bool, StoreError> as Measure;
                async fn tidy() -> Result<bool, StoreError> as Tidy;
            }
            Namespaces {
                async fn namespaces(names: &[Namespace]) -> Result<Vec<NamespaceRecord>, StoreError> as Namespaces;
                async fn list_namespaces(prefix: &str, after: &str, limit: usize) -> Result<Vec<NamespaceRecord>, StoreError> as ListNamespaces;
                async fn note_exported(name: &Namespace, upto: &Positions) -> Result<(), StoreError> as NoteExported;
                async fn change_namespace(command: &NamespaceCommand) -> Result<NamespaceDecision, ChangeError> as ChangeNamespace;
            }
            Lifecycles {
                async fn put_lifecycle(put: &PutLifecycle) -> Result<PutOutcome, ChangeError<PutRefusal>> as PutLifecycle;
                async fn lifecycle(namespace: &Namespace, name: &LifecycleName) -> Result<Option<LifecycleRecord>, StoreError> as Lifecycle;
                async fn declared(key: &LifecycleKey) -> Result<Option<Arc<Declared>>, StoreError> as Declared;
                async fn list_lifecycles(namespace: &Namespace, after: &str, limit: usize) -> Result<Vec<LifecycleRecord>, StoreError> as ListLifecycles;
                async fn lifecycle_versions(namespace: &Namespace, name: &str, below: u32, limit: usize) -> Result<Vec<LifecycleRecord>, StoreError> as LifecycleVersions;
            }
            Purges {
                fn unattended() -> Duration;
                async fn retentions() -> Result<Vec<Retained>, StoreError> as Retentions;
                async fn exported(namespace: &Namespace) -> Result<Positions, StoreError> as Exported;
                async fn walked(shard: Shard, walk: &Walk) -> Result<Position, StoreError> as Walked;
                async fn due(shard: Shard, walk: &Walk, after: Position, upto: Position) -> Result<Due, StoreError> as Due;
                async fn purge(shard: Shard, walk: &Walk, due: &Due) -> Result<Option<Purged>, StoreError> as Purge;
            }
            Store {
                fn describe() -> Description;
                fn memory() -> Vec<MemoryUse>;
                fn pools() -> Vec<PoolUse>;
                async fn statistics() -> Result<Statistics, StoreError> as Statistics;
                async fn look_at_past() -> Result<(), StoreError> as LookAtPast;
                async fn lost() -> String;
                async fn ping() -> Result<(), StoreError> as Ping;
                async fn close();
            }
        }
    };
}

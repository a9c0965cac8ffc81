//! A real store whose calls a test can count, hold and lose.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use runledger::domain::{
    Claimed, Command, ContentRow, Decide, Decided, Declared, Event, Filter, LabelValue, LifecycleKey, LifecycleName,
    LifecycleRecord, Namespace, NamespaceCommand, NamespaceDecision, NamespaceRecord, Position, Positions, Priority,
    PutLifecycle, PutOutcome, PutRefusal, Renewal, Revision, Run, RunId, RunKey, Shard, Time,
};
use runledger::store::contents::Beside;
use runledger::store::leases::{KeptLease, Overdue, OverduePlace, Renewed};
use runledger::store::query::{CountBy, Place, Reach, ReadyOf, RunCounts, RunPage, RunQuery};
use runledger::store::retention::{Due, Purged, Retained, Walk, Walked};
use runledger::store::{
    ChangeError, Clocks, CommitError, Commits, Description, Found, Ledger, Lifecycles, LoggedEvent, Namespaces,
    OfLedger, Page, Purges, RunLog, Runs, Statistics, Store, StoreError, Unreadable, Unsettled, Upkeep,
};
use tokio::sync::Semaphore;
use tokio::time::sleep;
use uuid::Uuid;

/// The fate of a commit.
pub(crate) enum Fate {
    /// The commit is made, and its confirmation is lost.
    ConfirmationLost,
    /// The commit is lost on its way.
    Lost,
    /// The store does not answer, and certainly nothing was applied.
    Unavailable,
}

/// A store that passes for durable, and the faults that the test injects.
pub(crate) struct Wrapped {
    store: Arc<dyn Store>,
    /// The log's end cannot be read, and a ping is not answered.
    pub(crate) blind: AtomicBool,
    /// The next page of the log cannot be read.
    pub(crate) spoilt: AtomicBool,
    /// Outcomes cannot be settled, and no run's past can be read.
    pub(crate) deaf: AtomicBool,
    /// Writes fail.
    pub(crate) unwritable: AtomicBool,
    /// The number of probing writes, which mean nothing.
    pub(crate) probes: AtomicU64,
    /// An event, by its position in the first shard, that cannot be read in the log.
    pub(crate) damaged: AtomicU64,
    /// The positions up to which the log passes for forgotten; none: as the store says.
    pub(crate) forgotten: Mutex<Option<Positions>>,
    /// The shard in which no walk of retention can be read.
    pub(crate) unwalkable: Mutex<Option<Shard>>,
    /// The number of reads of a run.
    pub(crate) runs: AtomicU64,
    /// A read of one run passes while there is a permit.
    pub(crate) run_gate: Semaphore,
    /// A read of several runs takes a permit.
    pub(crate) runs_gate: Semaphore,
    /// The runs that each read of several has found, and their bytes.
    pub(crate) shared: Mutex<Vec<(usize, usize)>>,
    /// The number of pages of overdue runs that were read.
    pub(crate) sweeps: AtomicU64,
    /// The number of pages of lists that were read.
    pub(crate) lists: AtomicU64,
    /// Reads of runs' pasts that are in flight, and their largest number; one takes a permit.
    pub(crate) pasts: AtomicU64,
    pub(crate) pasts_most: AtomicU64,
    pub(crate) pasts_gate: Semaphore,
    /// The number of pages of the log that were read.
    pub(crate) pages: AtomicU64,
    /// The time that a page of the log, or of a list, takes.
    pub(crate) slow_ms: AtomicU64,
    /// The number of reads of a run's history.
    pub(crate) histories: AtomicU64,
    /// The number of look-ups of namespaces; each passes the gate of runs.
    pub(crate) look_ups: AtomicU64,
    /// The number of commands in each commit, in order.
    pub(crate) batches: Mutex<Vec<usize>>,
    /// The fates of the next commits; the others are made.
    pub(crate) fates: Mutex<VecDeque<Fate>>,
    /// A commit takes one permit; a test that takes them all away holds the commits.
    pub(crate) gate: Semaphore,
}

impl Wrapped {
    pub(crate) fn around(store: Arc<dyn Store>) -> Self {
        Self {
            store,
            blind: AtomicBool::new(false),
            spoilt: AtomicBool::new(false),
            deaf: AtomicBool::new(false),
            unwritable: AtomicBool::new(false),
            probes: AtomicU64::new(0),
            damaged: AtomicU64::new(0),
            forgotten: Mutex::default(),
            unwalkable: Mutex::default(),
            runs: AtomicU64::new(0),
            run_gate: Semaphore::new(Semaphore::MAX_PERMITS),
            runs_gate: Semaphore::new(Semaphore::MAX_PERMITS),
            shared: Mutex::default(),
            sweeps: AtomicU64::new(0),
            lists: AtomicU64::new(0),
            pasts: AtomicU64::new(0),
            pasts_most: AtomicU64::new(0),
            pasts_gate: Semaphore::new(Semaphore::MAX_PERMITS),
            pages: AtomicU64::new(0),
            slow_ms: AtomicU64::new(0),
            histories: AtomicU64::new(0),
            look_ups: AtomicU64::new(0),
            batches: Mutex::default(),
            fates: Mutex::default(),
            gate: Semaphore::new(Semaphore::MAX_PERMITS),
        }
    }

    fn written(&self) -> Result<(), StoreError> {
        if self.unwritable.load(Ordering::Relaxed) { Err(unavailable()) } else { Ok(()) }
    }

    async fn take_time(&self) {
        let slow = Duration::from_millis(self.slow_ms.load(Ordering::Relaxed));
        if !slow.is_zero() {
            sleep(slow).await;
        }
    }

    fn heard(&self) -> Result<(), StoreError> {
        if self.deaf.load(Ordering::Relaxed) { Err(unavailable()) } else { Ok(()) }
    }
}

fn unavailable() -> StoreError {
    StoreError::Unavailable("made so by the test".into())
}

fn corrupt() -> StoreError {
    let source = "made so by the test".into();
    StoreError::Corrupt { table: "run_events", column: "event", key: String::new(), source }
}

impl OfLedger for Wrapped {
    fn ledger(&self) -> Ledger {
        self.store.ledger()
    }
}

#[async_trait]
impl Commits for Wrapped {
    fn commits_max(&self) -> usize {
        self.store.commits_max()
    }

    async fn commit(
        &self,
        shard: Shard,
        commit_id: Uuid,
        commands: Arc<[Arc<Command>]>,
        rules: &Arc<dyn Decide>,
    ) -> Result<Decided, CommitError> {
        self.batches.lock().unwrap().push(commands.len());
        self.gate.acquire().await.expect("never closed").forget();
        self.written()?;
        let fate = self.fates.lock().unwrap().pop_front();
        let (first_position, decided) = match fate {
            None => return self.store.commit(shard, commit_id, commands, rules).await,
            Some(Fate::Unavailable) => return Err(unavailable().into()),
            Some(Fate::Lost) => (u64::from(u32::MAX), Decided::default()),
            Some(Fate::ConfirmationLost) => {
                let decided = self.store.commit(shard, commit_id, commands, rules).await?;
                (decided.events[0].position, decided)
            }
        };
        let unsettled = Box::new(Unsettled { shard, commit_id, first_position, decided });
        Err(CommitError::Unknown { unsettled, source: "made so by the test".into() })
    }

    async fn settle(&self, unsettled: &Unsettled) -> Result<bool, StoreError> {
        self.heard()?;
        self.store.settle(unsettled).await
    }

    fn announce_commit(&self) {
        self.store.announce_commit();
    }

    async fn probe_write(&self, shard: Shard) -> Result<(), StoreError> {
        self.probes.fetch_add(1, Ordering::Relaxed);
        self.written()?;
        self.store.probe_write(shard).await
    }
}

#[async_trait]
impl RunLog for Wrapped {
    async fn ends(&self) -> Result<Positions, StoreError> {
        self.store.ends().await
    }

    async fn changes(&self, after: &Positions, limit: usize, bytes_max: usize) -> Result<Page, StoreError> {
        if self.blind.load(Ordering::Relaxed) {
            return Err(unavailable());
        }
        self.pages.fetch_add(1, Ordering::Relaxed);
        self.take_time().await;
        let mut page = self.store.changes(after, limit, bytes_max).await?;
        if !page.events.is_empty() && self.spoilt.swap(false, Ordering::Relaxed) {
            return Err(corrupt());
        }
        let damaged = self.damaged.load(Ordering::Relaxed);
        for event in &mut page.events {
            let Ok(logged) = event else { continue };
            if logged.shard == Shard(0) && logged.position == damaged {
                let LoggedEvent { shard, position, event: Event { key, revision, at, .. } } = logged.clone();
                *event = Err(Unreadable { shard, position, at, key, revision, error: corrupt() });
            }
        }
        Ok(page)
    }

    async fn run_events(
        &self,
        key: &RunKey,
        after: Revision,
        limit: usize,
        bytes_max: usize,
    ) -> Result<Vec<Event>, StoreError> {
        self.histories.fetch_add(1, Ordering::Relaxed);
        self.store.run_events(key, after, limit, bytes_max).await
    }

    async fn revisions_as_of(&self, keys: &[RunKey], heads: &Positions) -> Result<Vec<Revision>, StoreError> {
        self.store.revisions_as_of(keys, heads).await
    }

    async fn forgotten(&self, namespace: &Namespace) -> Result<Positions, StoreError> {
        let forgotten = self.forgotten.lock().unwrap().clone();
        match forgotten {
            Some(forgotten) => Ok(forgotten),
            None => self.store.forgotten(namespace).await,
        }
    }

    async fn foreign_commit(&self) {
        self.store.foreign_commit().await;
    }
}

#[async_trait]
impl Runs for Wrapped {
    async fn run(&self, key: &RunKey) -> Result<Option<Run>, StoreError> {
        self.runs.fetch_add(1, Ordering::Relaxed);
        let _permit = self.run_gate.acquire().await.expect("never closed");
        self.store.run(key).await
    }

    async fn runs(&self, keys: &[RunKey], bytes_max: usize) -> Result<Vec<Found>, StoreError> {
        self.runs.fetch_add(keys.len() as u64, Ordering::Relaxed);
        self.runs_gate.acquire().await.expect("never closed").forget();
        let found = self.store.runs(keys, bytes_max).await?;
        let weights = found.iter().filter_map(|found| match found {
            Found::Run(read) => Some(read.run.weight()),
            Found::Nothing | Found::Left => None,
        });
        self.shared.lock().unwrap().push((weights.clone().count(), weights.sum()));
        Ok(found)
    }

    async fn runs_at(&self, wanted: &[(RunKey, Revision)]) -> Result<Vec<Option<Run>>, StoreError> {
        self.heard()?;
        self.pasts_most.fetch_max(self.pasts.fetch_add(1, Ordering::Relaxed) + 1, Ordering::Relaxed);
        self.pasts_gate.acquire().await.expect("never closed").forget();
        let runs = self.store.runs_at(wanted).await;
        self.pasts.fetch_sub(1, Ordering::Relaxed);
        runs
    }

    async fn list(&self, query: &RunQuery) -> Result<RunPage, StoreError> {
        self.lists.fetch_add(1, Ordering::Relaxed);
        self.take_time().await;
        self.store.list(query).await
    }

    async fn count(
        &self,
        namespace: &Namespace,
        filter: &Filter,
        before: Option<&Place>,
        by: CountBy,
        reach: Reach,
    ) -> Result<RunCounts, StoreError> {
        self.store.count(namespace, filter, before, by, reach).await
    }

    async fn beside(&self, key: &RunKey, asked: &Beside) -> Result<Vec<ContentRow>, StoreError> {
        self.store.beside(key, asked).await
    }

    async fn next_priority(&self, namespace: &Namespace, below: i16) -> Result<Option<Priority>, StoreError> {
        self.store.next_priority(namespace, below).await
    }

    async fn ready(
        &self,
        namespace: &Namespace,
        of: ReadyOf,
        after: Option<&Place>,
        limit: usize,
    ) -> Result<RunPage, StoreError> {
        self.store.ready(namespace, of, after, limit).await
    }

    async fn running(&self, values: &[LabelValue]) -> Result<Vec<Vec<RunId>>, StoreError> {
        self.store.running(values).await
    }

    async fn walked_all(&self, namespace: &Namespace) -> Result<(Walked, Time), StoreError> {
        self.store.walked_all(namespace).await
    }
}

#[async_trait]
impl Upkeep for Wrapped {
    async fn renew(&self, shard: Shard, renewals: &[(RunKey, Renewal)]) -> Result<Vec<Option<Renewed>>, StoreError> {
        self.store.renew(shard, renewals).await
    }

    async fn leases(&self, keys: &[RunKey]) -> Result<Vec<Option<KeptLease>>, StoreError> {
        self.store.leases(keys).await
    }

    async fn overdue(&self, shard: Shard, after: &OverduePlace, limit: usize) -> Result<Overdue, StoreError> {
        self.sweeps.fetch_add(1, Ordering::Relaxed);
        self.store.overdue(shard, after, limit).await
    }

    async fn claimed(&self, namespace: &Namespace, request_id: &str) -> Result<Option<Claimed>, StoreError> {
        self.store.claimed(namespace, request_id).await
    }

    async fn replay_claim(&self, namespace: &Namespace, request_id: &str) -> Result<Option<Claimed>, StoreError> {
        self.store.replay_claim(namespace, request_id).await
    }

    async fn stay_alive(&self) -> Result<(), StoreError> {
        self.store.stay_alive().await
    }

    fn tick(&self) {
        self.store.tick();
    }

    fn clocks(&self) -> Clocks {
        self.store.clocks()
    }

    async fn measure(&self) -> Result<bool, StoreError> {
        self.store.measure().await
    }

    async fn tidy(&self) -> Result<bool, StoreError> {
        self.store.tidy().await
    }
}

#[async_trait]
impl Namespaces for Wrapped {
    async fn namespaces(&self, names: &[Namespace]) -> Result<Vec<NamespaceRecord>, StoreError> {
        if self.blind.load(Ordering::Relaxed) {
            return Err(unavailable());
        }
        self.look_ups.fetch_add(1, Ordering::Relaxed);
        let _permit = self.run_gate.acquire().await.expect("never closed");
        self.store.namespaces(names).await
    }

    async fn list_namespaces(
        &self,
        prefix: &str,
        after: &str,
        limit: usize,
    ) -> Result<Vec<NamespaceRecord>, StoreError> {
        self.store.list_namespaces(prefix, after, limit).await
    }

    async fn note_exported(&self, name: &Namespace, upto: &Positions) -> Result<(), StoreError> {
        self.store.note_exported(name, upto).await
    }

    async fn change_namespace(&self, command: &NamespaceCommand) -> Result<NamespaceDecision, ChangeError> {
        self.store.change_namespace(command).await
    }
}

#[async_trait]
impl Lifecycles for Wrapped {
    async fn put_lifecycle(&self, put: &PutLifecycle) -> Result<PutOutcome, ChangeError<PutRefusal>> {
        self.store.put_lifecycle(put).await
    }

    async fn lifecycle(&self, of: &Namespace, name: &LifecycleName) -> Result<Option<LifecycleRecord>, StoreError> {
        self.store.lifecycle(of, name).await
    }

    async fn declared(&self, key: &LifecycleKey) -> Result<Option<Arc<Declared>>, StoreError> {
        self.store.declared(key).await
    }

    async fn list_lifecycles(
        &self,
        of: &Namespace,
        after: &str,
        limit: usize,
    ) -> Result<Vec<LifecycleRecord>, StoreError> {
        self.store.list_lifecycles(of, after, limit).await
    }

    async fn lifecycle_versions(
        &self,
        of: &Namespace,
        name: &str,
        below: u32,
        limit: usize,
    ) -> Result<Vec<LifecycleRecord>, StoreError> {
        self.store.lifecycle_versions(of, name, below, limit).await
    }
}

#[async_trait]
impl Purges for Wrapped {
    fn unattended(&self) -> Duration {
        self.store.unattended()
    }

    async fn retentions(&self) -> Result<Vec<Retained>, StoreError> {
        self.store.retentions().await
    }

    async fn exported(&self, namespace: &Namespace) -> Result<Positions, StoreError> {
        self.store.exported(namespace).await
    }

    async fn walked(&self, shard: Shard, walk: &Walk) -> Result<Position, StoreError> {
        self.store.walked(shard, walk).await
    }

    async fn due(&self, shard: Shard, walk: &Walk, after: Position, upto: Position) -> Result<Due, StoreError> {
        if *self.unwalkable.lock().unwrap() == Some(shard) {
            let (table, column, key) = ("run_events", "status", "an event of a walk".to_owned());
            return Err(StoreError::Corrupt { table, column, key, source: "spoilt by the test".into() });
        }
        self.store.due(shard, walk, after, upto).await
    }

    async fn purge(&self, shard: Shard, walk: &Walk, due: &Due) -> Result<Option<Purged>, StoreError> {
        self.store.purge(shard, walk, due).await
    }
}

#[async_trait]
impl Store for Wrapped {
    fn describe(&self) -> Description {
        Description { not_durable: None, ..self.store.describe() }
    }

    async fn statistics(&self) -> Result<Statistics, StoreError> {
        self.store.statistics().await
    }

    async fn lost(&self) -> String {
        self.store.lost().await
    }

    async fn ping(&self) -> Result<(), StoreError> {
        if self.blind.load(Ordering::Relaxed) {
            return Err(unavailable());
        }
        self.store.ping().await
    }

    async fn close(&self) {
        self.store.close().await;
    }
}

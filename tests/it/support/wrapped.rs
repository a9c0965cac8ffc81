//! A real store whose calls a test can count, hold and lose.

use std::collections::{HashMap, VecDeque};
use std::ops::Deref;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use runledger::domain::{
    Claimed, Command, ContentRow, Decide, Decided, Declared, Event, Filter, LabelValue, LifecycleKey, LifecycleName,
    LifecycleRecord, Namespace, NamespaceCommand, NamespaceDecision, NamespaceRecord, Position, Positions, Priority,
    PutLifecycle, PutOutcome, PutRefusal, Renewal, Revision, Run, RunId, RunKey, Shard, Time,
};
use runledger::memory::MemoryUse;
use runledger::store::contents::Beside;
use runledger::store::leases::{KeptLease, Overdue, OverduePlace, Renewed};
use runledger::store::query::{CountBy, Place, Reach, ReadyOf, RunCounts, RunPage, RunQuery};
use runledger::store::retention::{Due, Purged, Retained, Walk, Walked};
use runledger::store::{
    ChangeError, Clocks, CommitError, Commits, Description, FoundRun, Ledger, Lifecycles, LoggedEvent, Namespaces,
    OfLedger, Page, PoolUse, Purges, RunLog, Runs, Statistics, Store, StoreError, Unreadable, Unsettled, Upkeep,
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
    /// The number of the first commit that had a command on a run, from 1.
    pub(crate) first: Mutex<HashMap<String, usize>>,
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
            first: Mutex::default(),
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

/// What the store does in a test: what a fault needs is done here, and all else by the store itself, which is behind it.
struct Faulty<'a>(&'a Wrapped);

impl Deref for Faulty<'_> {
    type Target = dyn Store;

    fn deref(&self) -> &Self::Target {
        &*self.0.store
    }
}

/// Passes every call on to a method of [`Faulty`]; where it has none of that name, to the store's.
macro_rules! wrapped {
    ($($path:ident {
        $(fn $told:ident($($tells:ident: $Told:ty),*) $(-> $Answer:ty)?;)*
        $(async fn $asked:ident($($asks:ident: $Asked:ty),*) $(-> $Given:ty)? $(as $call:ident)?;)*
    })*) => {
        $(#[async_trait]
        impl $path for Wrapped {
            $(fn $told(&self, $($tells: $Told),*) $(-> $Answer)? {
                Faulty(self).$told($($tells),*)
            })*

            $(async fn $asked(&self, $($asks: $Asked),*) $(-> $Given)? {
                Faulty(self).$asked($($asks),*).await
            })*
        })*
    };
}

runledger::store_paths!(wrapped);

impl Faulty<'_> {
    async fn commit(
        &self,
        shard: Shard,
        commit_id: Uuid,
        commands: Arc<[Arc<Command>]>,
        rules: &Arc<dyn Decide>,
    ) -> Result<Decided, CommitError> {
        let number = {
            let mut batches = self.0.batches.lock().unwrap();
            batches.push(commands.len());
            batches.len()
        };
        for command in commands.iter() {
            self.0.first.lock().unwrap().entry(command.key.run_id.to_string()).or_insert(number);
        }
        self.0.gate.acquire().await.expect("never closed").forget();
        self.0.written()?;
        let fate = self.0.fates.lock().unwrap().pop_front();
        let (first_position, decided) = match fate {
            None => return self.0.store.commit(shard, commit_id, commands, rules).await,
            Some(Fate::Unavailable) => return Err(unavailable().into()),
            Some(Fate::Lost) => (u64::from(u32::MAX), Decided::default()),
            Some(Fate::ConfirmationLost) => {
                let decided = self.0.store.commit(shard, commit_id, commands, rules).await?;
                (decided.events[0].position, decided)
            }
        };
        let unsettled = Box::new(Unsettled { shard, commit_id, first_position, decided });
        Err(CommitError::Unknown { unsettled, source: "made so by the test".into() })
    }

    async fn settle(&self, unsettled: &Unsettled) -> Result<bool, StoreError> {
        self.0.heard()?;
        self.0.store.settle(unsettled).await
    }

    async fn probe_write(&self, shard: Shard) -> Result<(), StoreError> {
        self.0.probes.fetch_add(1, Ordering::Relaxed);
        self.0.written()?;
        self.0.store.probe_write(shard).await
    }

    async fn changes(&self, after: &Positions, limit: usize, bytes_max: usize) -> Result<Page, StoreError> {
        if self.0.blind.load(Ordering::Relaxed) {
            return Err(unavailable());
        }
        self.0.pages.fetch_add(1, Ordering::Relaxed);
        self.0.take_time().await;
        let mut page = self.0.store.changes(after, limit, bytes_max).await?;
        if !page.events.is_empty() && self.0.spoilt.swap(false, Ordering::Relaxed) {
            return Err(corrupt());
        }
        let damaged = self.0.damaged.load(Ordering::Relaxed);
        for event in &mut page.events {
            let Ok(logged) = event else { continue };
            if logged.shard == Shard(0) && logged.position == damaged {
                let LoggedEvent { shard, position, event: Event { key, revision, at, .. } } = logged.clone();
                *event = Err(Unreadable { shard, position, at, key, revision, error: corrupt() });
            }
        }
        Ok(page)
    }

    /// Of all namespaces, with the same faults.
    async fn changes_of(
        &self,
        _namespace: &Namespace,
        after: &Positions,
        limit: usize,
        bytes_max: usize,
    ) -> Result<Page, StoreError> {
        self.changes(after, limit, bytes_max).await
    }

    async fn run_events(
        &self,
        key: &RunKey,
        after: Revision,
        limit: usize,
        bytes_max: usize,
    ) -> Result<Vec<Event>, StoreError> {
        self.0.histories.fetch_add(1, Ordering::Relaxed);
        self.0.store.run_events(key, after, limit, bytes_max).await
    }

    async fn forgotten(&self, namespace: &Namespace) -> Result<Positions, StoreError> {
        let forgotten = self.0.forgotten.lock().unwrap().clone();
        match forgotten {
            Some(forgotten) => Ok(forgotten),
            None => self.0.store.forgotten(namespace).await,
        }
    }

    async fn run(&self, key: &RunKey) -> Result<Option<Run>, StoreError> {
        self.0.runs.fetch_add(1, Ordering::Relaxed);
        let _permit = self.0.run_gate.acquire().await.expect("never closed");
        self.0.store.run(key).await
    }

    async fn runs(&self, keys: &[RunKey], bytes_max: usize) -> Result<Vec<FoundRun>, StoreError> {
        self.0.runs.fetch_add(keys.len() as u64, Ordering::Relaxed);
        self.0.runs_gate.acquire().await.expect("never closed").forget();
        let found = self.0.store.runs(keys, bytes_max).await?;
        let weights = found.iter().filter_map(|found| match found {
            FoundRun::Run(read) => Some(read.run.weight()),
            FoundRun::Nothing | FoundRun::Left => None,
        });
        self.0.shared.lock().unwrap().push((weights.clone().count(), weights.sum()));
        Ok(found)
    }

    async fn runs_at(&self, wanted: &[(RunKey, Revision)]) -> Result<Vec<Option<Run>>, StoreError> {
        self.0.heard()?;
        self.0.pasts_most.fetch_max(self.0.pasts.fetch_add(1, Ordering::Relaxed) + 1, Ordering::Relaxed);
        self.0.pasts_gate.acquire().await.expect("never closed").forget();
        let runs = self.0.store.runs_at(wanted).await;
        self.0.pasts.fetch_sub(1, Ordering::Relaxed);
        runs
    }

    async fn list(&self, query: &RunQuery) -> Result<RunPage, StoreError> {
        self.0.lists.fetch_add(1, Ordering::Relaxed);
        self.0.take_time().await;
        self.0.store.list(query).await
    }

    async fn overdue(&self, shard: Shard, after: &OverduePlace, limit: usize) -> Result<Overdue, StoreError> {
        self.0.sweeps.fetch_add(1, Ordering::Relaxed);
        self.0.store.overdue(shard, after, limit).await
    }

    async fn namespaces(&self, names: &[Namespace]) -> Result<Vec<NamespaceRecord>, StoreError> {
        if self.0.blind.load(Ordering::Relaxed) {
            return Err(unavailable());
        }
        self.0.look_ups.fetch_add(1, Ordering::Relaxed);
        let _permit = self.0.run_gate.acquire().await.expect("never closed");
        self.0.store.namespaces(names).await
    }

    async fn due(&self, shard: Shard, walk: &Walk, after: Position, upto: Position) -> Result<Due, StoreError> {
        if *self.0.unwalkable.lock().unwrap() == Some(shard) {
            let (table, column, key) = ("run_events", "status", "an event of a walk".to_owned());
            return Err(StoreError::Corrupt { table, column, key, source: "spoilt by the test".into() });
        }
        self.0.store.due(shard, walk, after, upto).await
    }

    fn describe(&self) -> Description {
        Description { not_durable: None, ..self.0.store.describe() }
    }

    async fn ping(&self) -> Result<(), StoreError> {
        if self.0.blind.load(Ordering::Relaxed) {
            return Err(unavailable());
        }
        self.0.store.ping().await
    }
}

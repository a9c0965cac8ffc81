//! The watch path: history, then live, from one tailer a process.
//!
//! The log is the truth; commits, notifications and polls only wake the `tailer`. The tailer reads the new events of
//! all shards in one statement, folds them once, encodes them once, and puts the changes into a `ring` bounded in
//! bytes. A session holds no runs: it remembers the positions that it has shown, takes the next change from the ring,
//! and goes back to history when the ring no longer has it. So a slow reader costs a page and a number, never a queue.
//!
//! Invariants:
//!
//! - One tailer a process reads the log's end. This process's commits, `NOTIFY` and a poll wake it: wake-ups may be
//!   lost, events may not. While there are no sessions, it reads nothing.
//! - A session takes its place first, then reads history up to ends that it read itself, then the ring. By shard and
//!   position, which are dense, it knows the events that it has seen. History of another namespace than `default` is
//!   read by an index of its own, which leads over the events of other namespaces.
//! - A cursor is a position for each shard, and in the first view also the last run that was shown. The first view
//!   shows runs as they were at these positions, whatever has happened since: so every event after them is due. No
//!   event tells of a run that ended before these positions and was purged before it was shown. So the cursor of a view
//!   of all runs says how far purges had come, and the view ends where it may lack such a run.
//! - The tailer, the ring and each session belong to one epoch of the ledger. They end or begin anew when the epoch is
//!   raised.
//! - An event that cannot be read ends the sessions that it is for; other sessions pass over it.
//! - A watcher of many runs is woken only when an event is for it. The tailer tests the filters, equal ones once, and
//!   only those that may match by the values of the run's fields. A caller that waits for a run's end waits for the
//!   same signal, and sends no queries while the ring can answer.
//! - Progress is no event. The progress of watched runs is read from the rows of leases once a second, for all watchers
//!   of this process together (`upkeep::progress`).
//! - The feed never names the engine.

mod checkpoints;
pub mod cursor;
mod fold;
mod history;
pub mod hub;
mod limits;
mod looks;
mod pages;
mod ring;
mod tailer;
mod wait_run;
mod watch;
pub mod watch_run;
pub mod watch_runs;
mod watchers;

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::future::BoxFuture;
use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use crate::clock::{Clock as _, SystemClock};
use crate::domain::{Event, Filter, LedgerEpoch, Position, Revision, Run, RunKey, Shard, Status, Time};
use crate::fairness::{self, CallerKey, Turns};
use crate::memory::MemoryUse;
use crate::store::{RunLog, Runs, StoreError};
use crate::tasks::Supervisor;
use crate::telemetry::record;
use cursor::Cursor;
use fold::{Cache, Folded};
use hub::Hub;
pub use limits::Limits;
pub use looks::{WaitUntil, Waited};
use pages::Pages;

/// The time without a frame after which a checkpoint is sent.
pub const CHECKPOINT_INTERVAL: Duration = Duration::from_secs(15);

/// The time without a frame after which a checkpoint is sent, at most, while a watch of many runs catches up. So a
/// watch that is cut again and again makes progress.
pub const CATCHING_UP_INTERVAL: Duration = Duration::from_secs(1);

/// Reads that all sessions together have in flight at the store: more reads would only queue for its connections, and
/// take them from other calls. Two of them may be one caller's.
const READS_MAX: usize = 3;
/// Reads of one run or of the shards' ends that are in flight, two of them for one caller: they take no time and must
/// not queue behind pages of history.
const LOOKS_MAX: usize = 3;
/// A session waits for its turn however long that takes. After this time it asks anew.
const TURN_WAIT_MAX: Duration = Duration::from_hours(1);

/// The encoding of runs, events and cursors for the wire. Each is encoded once for all sessions that show it.
pub trait Encode: Send + Sync + 'static {
    fn run(&self, run: &Run) -> Bytes;

    fn event(&self, event: &Event) -> Bytes;

    /// A place in the log, for watches of one namespace.
    fn cursor(&self, namespace: &str, cursor: &Cursor) -> Bytes;
}

/// The client that a session reads for. Pages that were read and not shown yet are kept for as long as the client
/// sleeps, and so count as the client's.
pub trait Reader: Send + Sync + 'static {
    /// Waits for the client's turn to read. The turn lasts until the value is dropped.
    fn turn(&self) -> BoxFuture<'_, Turn<'_>>;

    /// Counts bytes that were read as the client's, until the value is dropped.
    fn hold(self: Arc<Self>, bytes: usize) -> Held;

    /// Counts bytes that were read among those of all clients, until the value is dropped. Bytes that several clients
    /// hold are counted here once.
    fn hold_in_all(&self, bytes: usize) -> Held;
}

/// See [`Reader::turn`].
pub type Turn<'a> = Box<dyn Send + 'a>;

/// See [`Reader::hold`].
pub type Held = Box<dyn Send + Sync>;

/// One event and the run right after it, encoded.
#[derive(Debug)]
pub struct Change {
    /// The run.
    pub key: RunKey,
    /// The event's revision.
    pub revision: Revision,
    /// The run's status after the event.
    pub status: Status,
    /// Whether a worker may hold a lease on the run after the event.
    pub held: bool,
    /// Whether the run is suspended and not ready after the event.
    pub waits: bool,
    /// The event's time.
    pub at: Time,
    /// The encoded event.
    pub event: Bytes,
    /// The encoded run right after the event.
    pub run: Bytes,
    /// The run before and after the event, for filters.
    filtered: Folded,
}

impl Change {
    fn new(event: &Event, folded: &Folded, encode: &dyn Encode) -> Self {
        Self {
            key: event.key.clone(),
            revision: event.revision,
            status: folded.after.status,
            held: folded.after.is_held(),
            waits: folded.after.suspension().is_some() && !folded.after.is_ready(),
            at: event.at,
            event: encode.event(event),
            run: encode.run(&folded.after),
            filtered: folded.without_big_metadata(),
        }
    }

    /// Whether a watch with this filter shows the change, and if so whether the run still matches.
    fn shown_to(&self, namespace: &str, filter: &Filter) -> Option<bool> {
        if self.key.namespace == namespace { self.filtered.shown_to(filter) } else { None }
    }

    /// The change, of which is told how long after its event it is shown, to a watch that has caught up. The event's time is the
    /// store's, and the time of now this process's own: the difference may be below zero.
    fn shown(&self) -> &Self {
        if record::is_on() {
            let lag = SystemClock.now().micros().saturating_sub(self.at.micros());
            record::watch_lag(Duration::from_micros(u64::try_from(lag).unwrap_or(0)));
        }
        self
    }

    /// The approximate number of bytes that the change takes in memory.
    fn weight(&self) -> usize {
        size_of::<Self>() + self.event.len() + self.run.len() + self.filtered.weight()
    }
}

/// A place in the log: a shard and a position in it.
type LogPlace = (Shard, Position);

/// The reason for which a watch cannot begin, or was cut.
#[derive(Debug, thiserror::Error)]
pub enum WatchError {
    /// The run does not exist.
    #[error("there is no such run")]
    RunNotFound,
    /// The run was purged.
    #[error("the run was purged")]
    RunExpired(Box<Run>),
    /// The watch is to begin after a revision that the run has not reached.
    #[error("the run is at revision {revision}")]
    RevisionAhead {
        /// The run's revision.
        revision: Revision,
    },
    /// The cursor is ahead of the ledger.
    #[error("the cursor is ahead of the ledger")]
    CursorInvalid,
    /// The ledger no longer has all events after the cursor.
    #[error("the cursor is from before what the ledger keeps")]
    CursorExpired,
    /// The process stops: resume elsewhere.
    #[error("the server stops")]
    Draining,
    /// The ledger turned out to have lost acknowledged commits, after a failover or from a copy: events that were shown
    /// may not exist any more.
    #[error("the ledger was restored or failed over")]
    LedgerRestored,
    /// An event that the watch would show cannot be read. The event was logged.
    #[error("an event cannot be read")]
    Unreadable(#[source] StoreError),
    /// The store cannot be read.
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// The source that sessions read from. Cheap to clone.
#[derive(Clone)]
pub struct Feed {
    log: Arc<dyn RunLog>,
    runs: Arc<dyn Runs>,
    hub: Arc<Hub>,
    encode: Arc<dyn Encode>,
    /// The runs that histories were folded to: sessions that read the same history fold on the runs that others have
    /// left. All runs are of this generation.
    folded: Arc<Mutex<(Generation, Arc<Cache>)>>,
    /// The pages of history that sessions share.
    pages: Arc<Pages>,
    reads: Arc<Turns>,
    looks: Arc<Turns>,
    /// The caller whose turns sessions take.
    caller: CallerKey,
    /// The client that sessions read for; none: this process.
    reader: Option<Arc<dyn Reader>>,
    limits: Limits,
    stop: CancellationToken,
}

/// What sessions share of history is of one epoch of the ledger, and of the time between two
/// [cleanings](Hub::clean).
type Generation = (LedgerEpoch, u64);

impl Feed {
    /// Starts the tailer. `committed` is notified when this process has committed events.
    #[must_use]
    pub fn start(
        log: Arc<dyn RunLog>,
        runs: Arc<dyn Runs>,
        supervisor: &Supervisor,
        committed: Arc<Notify>,
        encode: Arc<dyn Encode>,
        limits: Limits,
    ) -> Self {
        let hub = Arc::new(Hub::new(&limits));
        let stop = supervisor.stop();
        let tailer = tailer::run(log.clone(), runs.clone(), hub.clone(), encode.clone(), committed, stop.clone());
        supervisor.vital("tailer", tailer);
        let [reads, looks] = [READS_MAX, LOOKS_MAX].map(Turns::new);
        let folded = Arc::new(Mutex::new(((log.ledger().epoch, 0), Arc::new(fold::cache()))));
        let pages = Arc::new(Pages::new(limits.shared_pages_bytes_max));
        let caller = CallerKey::AUTHORITY;
        Self { log, runs, hub, encode, folded, pages, reads, looks, caller, reader: None, limits, stop }
    }

    /// The same feed for sessions that take the turns of a caller.
    #[must_use]
    pub fn of_caller(&self, caller: CallerKey) -> Self {
        Self { caller, ..self.clone() }
    }

    /// The same feed for sessions of a client.
    #[must_use]
    pub fn of_reader(&self, reader: Arc<dyn Reader>) -> Self {
        Self { reader: Some(reader), ..self.clone() }
    }

    /// Forgets what this process remembers of history: something was taken out of it.
    pub fn forget(&self) {
        self.hub.clean(self.epoch());
    }

    /// The hub of the tailer and its sessions, for tests and metrics.
    #[must_use]
    pub fn hub(&self) -> &Hub {
        &self.hub
    }

    /// What the parts of the feed take, and may take.
    #[must_use]
    pub fn memory(&self) -> Vec<MemoryUse> {
        let bounded = |name, (bytes, bytes_max)| MemoryUse { name, bytes, bytes_max: Some(bytes_max) };
        let folded = self.folded.lock().1.clone();
        let ((sessions, sessions_max), (tailer, tailer_max)) = (fold::bytes(&folded), self.hub.folded_bytes());
        vec![
            bounded("recent_changes", (self.hub.recent_changes_bytes(), self.limits.ring_bytes_max)),
            bounded("history_pages", self.pages.bytes()),
            bounded("folded_runs", (sessions + tailer, sessions_max + tailer_max)),
            MemoryUse { name: "watches", bytes: self.hub.sessions_bytes(), bytes_max: None },
        ]
    }

    /// The ledger's epoch, for a session that begins.
    fn epoch(&self) -> LedgerEpoch {
        self.log.ledger().epoch
    }

    /// Refuses where a session's reads since its beginning are not of one past. Called between each read and the frame
    /// that shows it.
    fn is_still(&self, epoch: LedgerEpoch) -> Result<(), WatchError> {
        if self.epoch() == epoch { Ok(()) } else { Err(WatchError::LedgerRestored) }
    }

    /// Refuses where a session must end: the server stops, or the ledger is of another past.
    fn goes_on(&self, epoch: LedgerEpoch) -> Result<(), WatchError> {
        if self.stop.is_cancelled() { Err(WatchError::Draining) } else { self.is_still(epoch) }
    }

    /// Does a session's work that shows nothing yet, unless the server stops. Many sessions may wait for their turns to read,
    /// and the stop waits for none of them: each tells its client first.
    async fn unless_stopped<T>(&self, work: impl Future<Output = T>) -> Result<T, WatchError> {
        tokio::select! {
            biased;
            () = self.stop.cancelled() => Err(WatchError::Draining),
            done = work => Ok(done),
        }
    }

    /// What sessions of an epoch may share from now on.
    fn generation(&self, epoch: LedgerEpoch) -> Generation {
        (epoch, self.hub.cleanings())
    }

    /// The cache on which sessions of a generation fold. Runs of an older one are dropped.
    fn folded(&self, generation: Generation) -> Arc<Cache> {
        let mut folded = self.folded.lock();
        if folded.0 < generation {
            *folded = (generation, Arc::new(fold::cache()));
        }
        // A session of an older generation is about to end or to see the next one, and gets a cache of its own.
        if folded.0 == generation { folded.1.clone() } else { Arc::new(fold::cache()) }
    }

    /// Reads a page from the store that the session then keeps, once it has a turn of `turns` and one of its client.
    /// `weight` is the page's approximate number of bytes. The second value counts them.
    async fn page<T, F>(
        &self,
        turns: Arc<Turns>,
        weight: impl FnOnce(&T) -> usize + Send + 'static,
        read: impl FnOnce(Self) -> F + Send + 'static,
    ) -> Result<(T, Option<Held>), StoreError>
    where
        F: Future<Output = Result<T, StoreError>> + Send,
        T: Send + 'static,
    {
        let count = |page: &T, reader: Arc<dyn Reader>| {
            let weight = weight(page);
            let in_all = reader.hold_in_all(weight);
            Box::new((reader.hold(weight), in_all)) as Held
        };
        self.page_held(turns, count, read).await
    }

    /// The same, where `count` counts the page for the client.
    async fn page_held<T, F>(
        &self,
        turns: Arc<Turns>,
        count: impl FnOnce(&T, Arc<dyn Reader>) -> Held + Send + 'static,
        read: impl FnOnce(Self) -> F + Send + 'static,
    ) -> Result<(T, Option<Held>), StoreError>
    where
        F: Future<Output = Result<T, StoreError>> + Send,
        T: Send + 'static,
    {
        let feed = self.clone();
        in_a_task(async move {
            let _own = match &feed.reader {
                Some(reader) => Some(reader.turn().await),
                None => None,
            };
            let _turn = turn(&turns, feed.caller).await;
            let page = read(feed.clone()).await?;
            let held = feed.reader.clone().map(|reader| count(&page, reader));
            Ok((page, held))
        })
        .await
    }

    /// Reads from the store without keeping the result, and so without a turn of the client: a session that keeps a
    /// page may need the read to go on, while the client's turns wait until less is kept.
    async fn read<T, F>(&self, read: impl FnOnce(Self) -> F + Send + 'static) -> Result<T, StoreError>
    where
        F: Future<Output = Result<T, StoreError>> + Send,
        T: Send + 'static,
    {
        let feed = self.clone();
        in_a_task(async move {
            let _turn = turn(&feed.reads, feed.caller).await;
            read(feed.clone()).await
        })
        .await
    }

    /// Reads one run, or the shards' ends. Must not be called from within a stream: see [`in_a_task`].
    async fn look<T>(&self, read: impl Future<Output = Result<T, StoreError>>) -> Result<T, StoreError> {
        let _turn = turn(&self.looks, self.caller).await;
        read.await
    }
}

/// Waits for a caller's turn.
async fn turn(turns: &Arc<Turns>, caller: CallerKey) -> fairness::Turn {
    loop {
        if let Ok(turn) = turns.turn(caller, TURN_WAIT_MAX).await {
            return turn;
        }
    }
}

/// Does work that takes a turn in a task of its own, since others wait for the turn. A session is a stream, which is
/// polled only while its client takes the frames: in the stream, the turn would be held for as long as the client
/// sleeps.
async fn in_a_task<T: Send + 'static>(work: impl Future<Output = T> + Send + 'static) -> T {
    // The set ends its task when it is dropped.
    let mut task = JoinSet::new();
    task.spawn(work);
    match task.join_next().await.expect("one was spawned") {
        Ok(done) => done,
        Err(error) => match error.try_into_panic() {
            Ok(panic) => std::panic::resume_unwind(panic),
            // The process ends.
            Err(_cancelled) => std::future::pending().await,
        },
    }
}

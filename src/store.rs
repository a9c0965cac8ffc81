//! Where runs and events are kept.
//!
//! [`Store`] is what engine, feed and service need and no more; its comments are the contract that both stores keep
//! and that one list of behaviours tests. A store holds no rules: it reads under the shard's head lock, lets
//! [`decide_batch`](crate::domain::batch::decide_batch) decide, and writes what was decided.

pub mod bulk;
mod columns;
pub mod error;
pub mod inspect;
pub mod json;
pub mod leases;
mod merge;
pub mod migrations;
pub mod open;
pub mod postgres;
pub mod query;
pub mod sqlite;
mod uptime;

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use uuid::Uuid;

use crate::domain::{
    Claimed, Command, Decide, Decided, Event, Filter, LabelValue, Position, Renewal, Run, RunKey, Shard, Time,
};
pub use error::{CommitError, OpenError, StoreError};
use leases::{KeptLease, Renewed};
use query::{Place, RunCounts, RunPage, RunQuery};

/// The database's own identity, fixed when it was created.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ledger {
    /// Its id: keys the shard hash, binds tokens and derived run ids.
    pub id: Uuid,
    /// 0, until it is seen to have lost what was acknowledged: restored from a copy, or failed over. Then above what it
    /// was, and the minutes since [`EPOCH_ZERO`] if these are more: so no two pasts have the same.
    pub epoch: u64,
    /// How many shards it has.
    pub shard_count: u16,
}

/// From when on epochs count minutes: the beginning of 2026, in seconds since 1970.
pub const EPOCH_ZERO: u32 = 1_767_225_600;

impl Ledger {
    /// In which minute its epoch began, for people, where that is not 0.
    #[must_use]
    pub fn epoch_began(self) -> String {
        let minutes = self.epoch.saturating_add(u64::from(EPOCH_ZERO) / 60);
        let began =
            Time::from_micros(i64::try_from(minutes.saturating_mul(60_000_000)).unwrap_or(i64::MAX)).to_string();
        began.split_at_checked(16).map_or(began.clone(), |(minute, _)| format!("{minute}Z"))
    }
}

/// Durable runs and their log.
///
/// Every method may be called from many tasks at once. A method whose future is dropped leaves the store sound; a
/// dropped [`commit`](Store::commit) may or may not be applied.
#[async_trait]
pub trait Store: Send + Sync + 'static {
    /// The database's identity. Its epoch rises while a server runs when the database turns out to have lost what was
    /// acknowledged, after a failover or from a copy: before any read of this store answers from the new past. So whoever
    /// compares the epoch after a read with the one before it, and finds them alike, has read one past.
    fn ledger(&self) -> Ledger;

    /// What kind of store it is and how durable, for banner, log and health.
    fn describe(&self) -> Description;

    /// How many commits it can have in flight at once.
    fn commits_max(&self) -> usize;

    /// Commits one batch to one shard, in one transaction that takes the shard's head first.
    ///
    /// All commands are for runs of `shard`. The rules decide them in order, each on the state that the one before it left.
    /// When this returns `Ok`, what was decided is durable; a batch that made no event writes nothing. Positions are
    /// dense in commit order from 1; `at` never falls within a shard and is later than that of every event of another shard
    /// whose commit had been acknowledged before this call; every event carries `commit_id`, its request and,
    /// where decided, its keyframe. The body may run twice, when the database asks for a retry.
    ///
    /// # Errors
    ///
    /// [`CommitError::NotApplied`] surely changed nothing; [`CommitError::Unknown`] may have been applied: settle it.
    async fn commit(
        &self,
        shard: Shard,
        commit_id: Uuid,
        commands: Arc<[Arc<Command>]>,
        rules: &Arc<dyn Decide>,
    ) -> Result<Decided, CommitError>;

    /// Whether a commit of unknown outcome was applied. Takes the shard's head on another connection before it looks,
    /// and so waits until the old transaction has ended.
    ///
    /// # Errors
    ///
    /// The outcome is still unknown; ask again.
    async fn settle(&self, unsettled: &Unsettled) -> Result<bool, StoreError>;

    /// Looks now whether the database still has what was acknowledged: after this, [`ledger`](Store::ledger) has the epoch
    /// that the database has.
    ///
    /// # Errors
    ///
    /// The store cannot be read.
    async fn look_at_past(&self) -> Result<(), StoreError> {
        Ok(())
    }

    /// Renews leases of runs of one shard: each whose epoch is the row's and that is not [over](leases), for another ttl
    /// from now, with the progress that its holder tells. Waits for no head and makes no event. What was renewed is
    /// durable when this returns, and no commit that comes later finds the lease over before its new time. None for a lease
    /// that was not renewed, for whatever reason. No run may come twice.
    ///
    /// # Errors
    ///
    /// Nothing may have been renewed, or all of it: renewing again does no harm.
    async fn renew(&self, shard: Shard, renewals: &[(RunKey, Renewal)]) -> Result<Vec<Option<Renewed>>, StoreError>;

    /// The leases of runs as they are kept, in the order of their keys.
    ///
    /// # Errors
    ///
    /// The store cannot be read.
    async fn leases(&self, keys: &[RunKey]) -> Result<Vec<Option<KeptLease>>, StoreError>;

    /// Says that a server is alive, where others want to know, or where renewals failed and none was made since; and looks
    /// whether the database still has what was acknowledged. Called once a second, by every server.
    ///
    /// # Errors
    ///
    /// The store cannot be written.
    async fn stay_alive(&self) -> Result<(), StoreError>;

    /// This process runs. Called every [`TICK_EVERY`](leases::TICK_EVERY), by every server: a call that is late tells of
    /// an interruption, and a store that is not told finds no lease over.
    fn tick(&self);

    /// Renewals waited so long for their turn before they were handed over: time in which nobody was renewed.
    fn renewals_waited(&self, _queued: Duration) {}

    /// At most `limit` runs of a shard whose lease is [over](leases), and as many that are [due](Run::due_at), those that
    /// are due for the longest first. What is told here may be otherwise a moment later: a
    /// [sweep](crate::domain::Ask::Sweep) decides.
    ///
    /// # Errors
    ///
    /// The store cannot be read.
    async fn overdue(&self, shard: Shard, limit: usize) -> Result<Vec<RunKey>, StoreError>;

    /// The runs that count towards what claims allow of values of labels, in the order of the values, those of each by id:
    /// claimed under a [`MaxRunning`](crate::domain::MaxRunning), and neither terminal nor ready.
    ///
    /// # Errors
    ///
    /// The store cannot be read.
    async fn running(&self, values: &[LabelValue]) -> Result<Vec<Vec<String>>, StoreError>;

    /// The claim that a claimer's own request of this id was answered with, if it was.
    ///
    /// # Errors
    ///
    /// The store cannot be read.
    async fn claimed(&self, namespace: &str, request_id: &str) -> Result<Option<Claimed>, StoreError>;

    /// The same, and notes that the claimer is answered once more: the claim is not given back any more as one that nobody
    /// received before that. Waits for a claim that is being given back.
    ///
    /// # Errors
    ///
    /// The store cannot be read or written; it may have been noted all the same.
    async fn replay_claim(&self, namespace: &str, request_id: &str) -> Result<Option<Claimed>, StoreError>;

    /// The runs of a namespace that are [ready](Run::is_ready), without their metadata, by (`started_at`, `run_id`) after a
    /// place, at most `limit`: as [`list`](Store::list) reads them.
    ///
    /// # Errors
    ///
    /// The store cannot be read.
    async fn ready(&self, namespace: &str, after: Option<&Place>, limit: usize) -> Result<RunPage, StoreError>;

    /// Forgets values of labels of which nothing counts any more, and claimers' requests after an hour, at most so many at
    /// once, and says whether there may be more. Called once a minute, by every server.
    ///
    /// # Errors
    ///
    /// The store cannot be written.
    async fn tidy(&self) -> Result<bool, StoreError>;

    /// The run as it is: sees every commit that was acknowledged before the call.
    ///
    /// # Errors
    ///
    /// The store cannot be read.
    async fn run(&self, key: &RunKey) -> Result<Option<Run>, StoreError>;

    /// Several runs as they are, in the order of their keys, each as [`run`](Store::run) would have read it at one moment
    /// during the call.
    ///
    /// # Errors
    ///
    /// The store cannot be read, or one of the runs.
    async fn runs(&self, keys: &[RunKey]) -> Result<Vec<Option<Run>>, StoreError> {
        let mut runs = Vec::with_capacity(keys.len());
        for key in keys {
            runs.push(self.run(key).await?);
        }
        Ok(runs)
    }

    /// Runs as they were right after one of their events each; none for a run that has no such event. At most 31 events
    /// are folded for each, from the last keyframe before it.
    ///
    /// # Errors
    ///
    /// The store cannot be read.
    async fn runs_at(&self, wanted: &[(RunKey, u64)]) -> Result<Vec<Option<Run>>, StoreError>;

    /// One run as it was right after its event `revision`. See [`Store::runs_at`].
    ///
    /// # Errors
    ///
    /// The store cannot be read.
    async fn run_at(&self, key: &RunKey, revision: u64) -> Result<Option<Run>, StoreError> {
        Ok(self.runs_at(&[(key.clone(), revision)]).await?.pop().flatten())
    }

    /// Which revision each run had when its shard's last position was that of `heads`; 0 when it did not exist.
    ///
    /// # Errors
    ///
    /// The store cannot be read.
    async fn revisions_as_of(&self, keys: &[RunKey], heads: &[Position]) -> Result<Vec<u64>, StoreError>;

    /// A run's events above `after`, by revision, at most `limit` and about `bytes_max` as stored, at least one if there
    /// is one.
    ///
    /// # Errors
    ///
    /// The store cannot be read.
    async fn run_events(
        &self,
        key: &RunKey,
        after: u64,
        limit: usize,
        bytes_max: usize,
    ) -> Result<Vec<Event>, StoreError>;

    /// A page of the runs that match a filter, in one snapshot that shows every commit that was acknowledged before the
    /// call. At most [`LIST_RUNS_MAX`](query::LIST_RUNS_MAX) runs are looked at: where few of them match, the page ends
    /// early, and may be empty although more follow. A run's place never changes, so pages that follow one another by
    /// [`next`](query::RunPage::next) neither skip nor repeat a run that was there all the time, whatever is committed
    /// between them; each run is shown, and tested, as it is when its page is read.
    ///
    /// # Errors
    ///
    /// The store cannot be read.
    async fn list(&self, query: &RunQuery) -> Result<RunPage, StoreError>;

    /// How many runs match a filter, in one snapshot as of [`list`](Store::list), of the newest
    /// [`COUNT_RUNS_MAX`](query::COUNT_RUNS_MAX) that [the filter's index](query::By) leads to.
    ///
    /// # Errors
    ///
    /// The store cannot be read.
    /// `before`: only runs that were created before this place.
    async fn count(&self, namespace: &str, filter: &Filter, before: Option<&Place>) -> Result<RunCounts, StoreError>;

    /// Each shard's last position (0 when empty), in one snapshot.
    ///
    /// # Errors
    ///
    /// The store cannot be read.
    async fn heads(&self) -> Result<Vec<Position>, StoreError>;

    /// The events of all shards above `after` (a position for each shard), in one snapshot, merged by (`at`, shard,
    /// position), at most about `limit` for each shard and about `bytes_max` in all as stored, at least one if there is
    /// one. A merged page ends where the first cut shard ends, so that no event comes before one that belongs in front of
    /// it. An event that cannot be decoded stands in its place as [`Unreadable`], and costs no other event.
    ///
    /// # Errors
    ///
    /// The store cannot be read.
    async fn changes(&self, after: &[Position], limit: usize, bytes_max: usize) -> Result<Page, StoreError>;

    /// Each shard's last position whose event may be gone. Events are kept for ever: 0, until there is retention.
    ///
    /// # Errors
    ///
    /// The store cannot be read.
    async fn forgotten(&self) -> Result<Vec<Position>, StoreError> {
        Ok(vec![0; self.ledger().shard_count.into()])
    }

    /// Resolves, with a sentence for people that says what happened and what to do, when this is not the ledger any more:
    /// a file that was deleted, renamed or replaced. From then on every call fails with [`StoreError::Lost`], and nothing
    /// is acknowledged; the service must stop. Looks for itself only while it is waited for.
    async fn lost(&self) -> String {
        std::future::pending().await
    }

    /// Resolves when another process may have committed something; may resolve without cause, and may miss a commit.
    /// Never resolves where no other process can write, or where nothing tells of it.
    async fn foreign_commit(&self);

    /// Tells other processes that this one committed something. Best effort, coalesced, never waits for the database.
    fn announce_commit(&self);

    /// Reads something small: whether the store answers.
    ///
    /// # Errors
    ///
    /// The store cannot be read.
    async fn ping(&self) -> Result<(), StoreError>;

    /// Writes something durable that means nothing and that nobody sees, as a commit to this shard would: whether commits
    /// would succeed. Called every second or so while they fail, and never while they do not.
    ///
    /// # Errors
    ///
    /// Commits would fail.
    async fn probe_write(&self, shard: Shard) -> Result<(), StoreError>;

    /// Lets go of connections, files and locks. Nothing is called after it.
    async fn close(&self);
}

/// About how many bytes of events one page of history may hold as stored: a page is held in memory whole.
pub const PAGE_BYTES_MAX: usize = 1024 * 1024;

/// A page of the log.
#[derive(Debug)]
pub struct Page {
    /// The store's clock when the page was read.
    pub as_of: Time,
    /// The events, merged, each as it was read or why it cannot be.
    pub events: Vec<Result<LoggedEvent, Unreadable>>,
    /// Whether there may be more right away.
    pub cut: bool,
}

impl Page {
    /// The events, when all of them could be read.
    ///
    /// # Errors
    ///
    /// The first that could not.
    pub fn whole(self) -> Result<Vec<LoggedEvent>, StoreError> {
        self.events.into_iter().map(|event| event.map_err(|unreadable| unreadable.error)).collect()
    }

    /// How far it goes: the shard and the position of each of its events.
    pub fn places(&self) -> impl Iterator<Item = (Shard, Position)> {
        self.events.iter().map(|event| match event {
            Ok(logged) => (logged.shard, logged.position),
            Err(unreadable) => (unreadable.shard, unreadable.position),
        })
    }
}

/// An event that cannot be decoded, and where it stands.
#[derive(Debug)]
pub struct Unreadable {
    /// Its shard.
    pub shard: Shard,
    /// Its place in the shard.
    pub position: Position,
    /// When it happened.
    pub at: Time,
    /// The run that it happened to.
    pub key: RunKey,
    /// Its revision.
    pub revision: u64,
    /// Why it cannot be read.
    pub error: StoreError,
}

/// An event and its place in the log.
#[derive(Clone, Debug, PartialEq)]
pub struct LoggedEvent {
    /// Its shard.
    pub shard: Shard,
    /// Its place in the shard.
    pub position: Position,
    /// The event.
    pub event: Event,
}

/// A commit whose outcome is not known.
#[derive(Debug)]
pub struct Unsettled {
    /// The shard that it wrote to.
    pub shard: Shard,
    /// The id that its events carry.
    pub commit_id: Uuid,
    /// Where its first event stands if it was applied.
    pub first_position: Position,
    /// What was decided; holds if it was applied.
    pub decided: Decided,
}

/// What kind of store it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Description {
    /// `sqlite`, `memory` or `postgres`.
    pub kind: &'static str,
    /// Where the data is, without any password.
    pub location: String,
    /// Why an acknowledged call may be lost by a crash; none when it may not.
    pub not_durable: Option<String>,
}

/// How to open a store.
#[derive(Clone, Copy, Debug)]
pub struct OpenOptions {
    /// How many shards a database gets when it is created: 1 on SQLite and 2 on Postgres unless said.
    pub shards: Option<u16>,
    /// How many connections to Postgres this process may hold, at least 3.
    pub connections: usize,
    /// Tell other processes of commits, and hear of theirs, by `NOTIFY`; without, they look for themselves.
    pub notify: bool,
    /// Migrate a Postgres that has data. SQLite and an empty Postgres are always migrated.
    pub migrate: bool,
    /// Serve on a Postgres that may lose acknowledged calls in a crash.
    pub allow_unsafe: bool,
}

impl OpenOptions {
    /// Whether a ledger that has so many shards is what was asked for. Asked before anything is done to it.
    ///
    /// # Errors
    ///
    /// [`OpenError::OtherShards`].
    pub(crate) fn admit(&self, found: u16, location: &str) -> Result<(), OpenError> {
        match self.shards {
            Some(asked) if asked != found => {
                Err(OpenError::OtherShards { location: location.to_owned(), found, asked })
            }
            Some(_) | None => Ok(()),
        }
    }
}

impl Default for OpenOptions {
    fn default() -> Self {
        Self { shards: None, connections: 8, notify: true, migrate: false, allow_unsafe: false }
    }
}

//! Looking at a ledger from outside, while servers work on it: for `verify`, `export` and `doctor`.
//!
//! Nothing here writes, creates, migrates or takes a lock that a writer waits for. Rows come as they stand in the
//! tables, unjudged: what is damaged must be read to be named.

mod condition;
pub(super) mod rows;

use async_trait::async_trait;

pub use self::condition::{
    Condition, File, Head, OldRun, Replication, SPACE_BYTES_MIN, Session, Sessions, Standby, Table,
};
use super::contents::Beside;
use super::json::RunColumns;
use super::{Description, RunLog, StoreError};
use crate::domain::{
    ContentRow, ContentTable, LedgerEpoch, Namespace, Position, Positions, Rest, Revision, RunKey, Shard, Time,
};

/// A ledger that is only read: its [log](RunLog), and the reads that only tools need. Every method is short
/// statements or pages of a bounded number of bytes.
#[async_trait]
pub trait Inspect: RunLog {
    /// The kind of store, where it is, and how durable.
    fn describe(&self) -> Description;

    /// The past that this database is of: another one after a failover, or when the database is put back from a copy.
    ///
    /// # Errors
    ///
    /// The store cannot be read; so with every method.
    async fn past(&self) -> Result<Past, StoreError>;

    /// Whether there is this namespace.
    async fn has_namespace(&self, namespace: &Namespace) -> Result<bool, StoreError>;

    /// The time of the event at a position, or of the next one where that was purged; none where there is none.
    async fn time_of(&self, shard: Shard, position: Position) -> Result<Option<Time>, StoreError>;

    /// The ends, and between which times all events of the runs that are linked so now happened, in one snapshot.
    async fn extent(&self, link: &Link) -> Result<Extent, StoreError>;

    /// The links of runs right after one of their events each, in the order that was asked for.
    async fn links(&self, asked: &[(RunKey, Revision)]) -> Result<Vec<Links>, StoreError>;

    /// The rows of `runs` after a key, by key, each with its rows of the tables beside it, in one snapshot. At least
    /// one if there is one.
    async fn run_rows(&self, shard: Shard, after: &RunKey) -> Result<Vec<RunRow>, StoreError>;

    /// The rows of `run_events` by (run, revision): after one, of runs up to another. At least one if there is one.
    async fn event_rows(&self, shard: Shard, after: (&RunKey, i64), last: &RunKey)
    -> Result<Vec<EventRow>, StoreError>;

    /// The rows of a table beside `runs`, in the order of their runs and of their places there: after one, of runs up to
    /// another. At least one if there is one.
    async fn content_rows(
        &self,
        table: ContentTable,
        shard: Shard,
        after: (&RunKey, i64),
        last: &RunKey,
    ) -> Result<Vec<BesideRow>, StoreError>;

    /// What stands beside a run, as [`Runs::beside`](super::Runs::beside) reads it.
    async fn beside(&self, key: &RunKey, asked: &Beside) -> Result<Vec<ContentRow>, StoreError>;

    /// The places of events after a position, each with what `runs` says of the run, in one snapshot.
    async fn place_rows(&self, shard: Shard, after: i64) -> Result<Vec<PlaceRow>, StoreError>;

    /// What is left of a shard's purged runs, in one snapshot.
    async fn tombstones(&self, shard: Shard) -> Result<Tombstones, StoreError>;

    /// The keys of a table after one, each with whether `runs` has it, in one snapshot.
    async fn keys_of(&self, table: OfRuns, shard: Shard, after: &RunKey) -> Result<Vec<(RunKey, bool)>, StoreError>;

    /// The shards that `shards` has, and rows of the other tables in shards that the ledger does not have.
    async fn shard_rows(&self) -> Result<ShardRows, StoreError>;

    /// What the database itself finds in the file that it keeps the ledger in, in one long read: pages, indexes and
    /// constraints. A hundred faults at most, and none from a server of databases, which looks after its files.
    async fn faults(&self) -> Result<Vec<String>, StoreError> {
        Ok(Vec::new())
    }

    /// By how much the steady clock is ahead of the store's, in microseconds, as a server noticed last. It is 0 where no step of
    /// the store's clock was ever noticed: then in no shard do the times of events fall. See [`domain::steady`](crate::domain::steady).
    async fn steady_ahead(&self) -> Result<i64, StoreError>;

    /// The ledger's condition, for an operator.
    async fn condition(&self) -> Result<Condition, StoreError>;
}

/// Rows that one page may have, whatever their size.
pub(super) const ROWS_MAX: i64 = 2000;

/// A table beside `runs`, with a row for some of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OfRuns {
    Active,
    Leases,
    Suspended,
    /// What stands beside runs.
    Contents(ContentTable),
}

impl OfRuns {
    /// All of the tables.
    pub const ALL: [Self; 6] = [
        Self::Active,
        Self::Leases,
        Self::Suspended,
        Self::Contents(ContentTable::Input),
        Self::Contents(ContentTable::Result),
        Self::Contents(ContentTable::Link),
    ];

    /// The table's name.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Active => "active",
            Self::Leases => "leases",
            Self::Suspended => "suspended",
            Self::Contents(table) => table.name(),
        }
    }
}

/// A link that some runs have in common.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Link {
    /// [`Bindings::audit_session_id`](crate::domain::Bindings::audit_session_id) is this.
    AuditSession(String),
    /// [`Run::task_thread_id`](crate::domain::Run::task_thread_id) is this.
    TaskThread(String),
}

impl Link {
    /// The column that has the link, and its value there.
    pub(super) fn column(&self) -> (&'static str, &str) {
        match self {
            Self::AuditSession(id) => ("audit_session_id", id),
            Self::TaskThread(id) => ("task_thread_id", id),
        }
    }
}

/// See [`Inspect::past`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Past {
    /// The ledger's epoch.
    pub epoch: LedgerEpoch,
    /// The database server's timeline; none where it is not told.
    pub timeline: Option<i64>,
}

impl Past {
    /// Whether the two differ in a fact that is known of both.
    #[must_use]
    pub fn is_another(&self, other: &Self) -> bool {
        let timeline = matches!((self.timeline, other.timeline), (Some(one), Some(other)) if one != other);
        self.epoch != other.epoch || timeline
    }
}

/// See [`Inspect::extent`].
#[derive(Debug)]
pub struct Extent {
    /// Each shard's last position.
    pub ends: Positions,
    /// The first event's time and the last one's; none when no run is linked so.
    pub times: Option<(Time, Time)>,
}

/// The links of a run that an export shows.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Links {
    /// See [`Run::task_thread_id`](crate::domain::Run::task_thread_id).
    pub task_thread_id: String,
    /// See [`Bindings::audit_session_id`](crate::domain::Bindings::audit_session_id).
    pub audit_session_id: Option<String>,
}

impl Links {
    /// Takes over the links that an event sets: absent stays, empty clears.
    pub fn change(&mut self, task_thread_id: Option<&str>, audit_session_id: Option<&str>) {
        if let Some(id) = task_thread_id {
            id.clone_into(&mut self.task_thread_id);
        }
        if let Some(id) = audit_session_id {
            self.audit_session_id = Some(id.to_owned()).filter(|id| !id.is_empty());
        }
    }

    /// Whether the run is linked so.
    #[must_use]
    pub fn has(&self, link: &Link) -> bool {
        match link {
            Link::AuditSession(id) => self.audit_session_id.as_ref() == Some(id),
            Link::TaskThread(id) => self.task_thread_id == *id,
        }
    }
}

/// A row of `runs`, and those of `active`, `leases` and `suspended`.
#[derive(Clone, Debug)]
pub struct RunRow {
    /// The row of `runs`.
    pub columns: RunColumns<String>,
    /// The run's row in `active`.
    pub active: Option<ActiveRow>,
    /// `epoch` and `ttl_ms` of the run's row in `leases`.
    pub lease: Option<(i64, i64)>,
    /// The run's row in `suspended`.
    pub rest: Option<Rest>,
    /// `parent_run_id` and `continues_run_id`.
    pub origin: [Option<String>; 2],
}

/// The tables that have a shard's rows, besides `shards`.
pub(super) const SHARDED: [&str; 8] =
    ["runs", "run_events", "active", "leases", "suspended", "run_input", "run_results", "run_links"];

/// A row of `active`, besides its key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ActiveRow {
    pub status: i16,
    pub started_at: Time,
    pub due_at: Option<Time>,
    pub priority: Option<i16>,
}

/// A row of `run_events`.
#[derive(Clone, Debug)]
pub struct EventRow {
    /// `namespace` and `run_id`.
    pub key: RunKey,
    pub revision: i64,
    pub position: i64,
    pub at: Time,
    pub event: String,
    pub request_id: Option<String>,
    pub request_digest: Option<Vec<u8>>,
    pub request_key: Option<i64>,
    pub keyframe: Option<String>,
}

/// A row of a table beside `runs`.
#[derive(Clone, Debug)]
pub struct BesideRow {
    pub table: ContentTable,
    /// `namespace` and `run_id`.
    pub key: RunKey,
    pub revision: i64,
    /// `number`; 0 in the tables that have none.
    pub number: i64,
    /// `link_key`; none in the tables that have none.
    pub link_key: Option<Vec<u8>>,
    pub content: String,
}

impl BesideRow {
    /// The place of the row among those of its run, for the next page.
    #[must_use]
    pub fn place(&self) -> i64 {
        match self.table {
            ContentTable::Input | ContentTable::Result => self.revision,
            ContentTable::Link => self.number,
        }
    }
}

/// The place of an event.
#[derive(Clone, Debug)]
pub struct PlaceRow {
    pub position: i64,
    pub at: Time,
    /// `namespace` and `run_id`.
    pub key: RunKey,
    pub revision: i64,
    /// The revision that `runs` has for the run, if it has the run.
    pub run_revision: Option<i64>,
}

/// See [`Inspect::tombstones`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tombstones {
    /// Their number.
    pub runs: i64,
    /// The events that the runs had, which are missing in the log.
    pub events: i64,
    /// The last position of the shard of which an event may be missing, as it was noted.
    pub upto: i64,
}

/// See [`Inspect::shard_rows`].
#[derive(Clone, Debug, Default)]
pub struct ShardRows {
    /// The rows of `shards`, in order.
    pub shards: Vec<i64>,
    /// A table, and a shard that has rows in it although the ledger does not have the shard.
    pub strays: Vec<(&'static str, i64)>,
}

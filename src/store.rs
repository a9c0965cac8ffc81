//! Where runs and events are kept.
//!
//! A store has seven paths, so that a part of the service takes only the paths that it uses: [`Commits`] for the
//! engine, [`RunLog`] for the feed and the tools, [`Runs`] for reads and lists, [`Upkeep`] for leases, sweeps and
//! tidying, [`Namespaces`] for the walls between them, [`Lifecycles`] for what users declare, [`Purges`] for runs
//! that were kept long enough. [`Store`] is all of them, for the authority. Their comments are the contract that every
//! store keeps and that one list of behaviours tests. A commit holds no rules: the store reads under the shard's head
//! lock, lets the [rules](crate::domain::Decide) decide, and writes what was decided.

pub mod attached;
mod commits;
pub mod contents;
mod dialect;
pub mod error;
pub mod finding;
mod fitness;
pub mod inspect;
pub mod json;
pub mod leases;
mod ledger;
pub mod lifecycles;
mod log;
mod merge;
mod metrics;
pub mod migrations;
mod namespaces;
pub mod observed;
pub mod open;
mod paths;
pub mod plan;
pub mod postgres;
pub mod query;
mod redaction;
pub mod retention;
mod rows;
mod runs;
mod scalars;
pub mod sqlite;
mod steady;
mod upkeep;
mod uptime;

use std::time::Duration;

use async_trait::async_trait;

pub use commits::{Commits, Unsettled};
pub use error::{CommitError, OpenError, StoreError};
pub use ledger::{EPOCH_SECONDS, EPOCH_ZERO, Ledger, OfLedger, SealKey};
pub use lifecycles::Lifecycles;
pub use log::{LoggedEvent, PAGE_BYTES_MAX, Page, RunLog, Unreadable};
pub use namespaces::{ChangeError, Namespaces};
pub use retention::Purges;
pub use runs::{FoundRun, RunAsKept, Runs, run_at};
pub use steady::{ClockStep, Clocks};
pub use upkeep::Upkeep;

use crate::clock::{Clock as _, SystemClock};
use crate::domain::Status;
use crate::memory::MemoryUse;

/// Durable runs and their log.
///
/// Every method of this and of the paths may be called from many tasks at once. A method whose future is dropped
/// leaves the store sound; a dropped [`commit`](Commits::commit) may or may not be applied.
#[async_trait]
pub trait Store: Commits + RunLog + Runs + Upkeep + Namespaces + Lifecycles + Purges {
    /// What kind of store it is and how durable, for banner, log and health.
    fn describe(&self) -> Description;

    /// What the parts of the store take in this process, and may take.
    fn memory(&self) -> Vec<MemoryUse>;

    /// The connections to the database, by what they are for.
    fn pools(&self) -> Vec<PoolUse>;

    /// What the database tells of itself at no great cost: no rows are counted.
    async fn statistics(&self) -> Result<Statistics, StoreError>;

    /// Looks now whether the database still has what was acknowledged: after this, [`ledger`](OfLedger::ledger) has the
    /// epoch that the database has.
    async fn look_at_past(&self) -> Result<(), StoreError>;

    /// Resolves, with a sentence for people that says what happened and what to do, when this is not the ledger any
    /// more: a file that was deleted, renamed or replaced. From then on every call fails with [`StoreError::Lost`],
    /// and nothing is acknowledged; the service must stop. Looks for itself only while it is waited for.
    async fn lost(&self) -> String;

    /// Reads something small: whether the store answers.
    async fn ping(&self) -> Result<(), StoreError>;

    /// Lets go of connections, files and locks. Nothing is called after it.
    async fn close(&self);
}

/// Connections to the database that are for one thing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PoolUse {
    /// What they are for, for operators.
    pub name: &'static str,
    /// Those in use.
    pub in_use: usize,
    /// Those that there may be.
    pub max: usize,
}

/// What the database tells of itself.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Statistics {
    /// The bytes that it takes.
    pub bytes: u64,
    /// About how many runs there are of each status, as it was when the database last analyzed its tables; empty where
    /// it keeps no such statistics.
    pub runs: Vec<(Status, f64)>,
    /// About how many leases are held, likewise.
    pub leases: Option<f64>,
}

/// What kind of store it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Description {
    /// `sqlite`, `memory` or `postgres`.
    pub kind: &'static str,
    /// Where the data is, without any password.
    pub location: String,
    /// How the connections to a server are protected, and whether a pooler is between; none without a server.
    pub connection: Option<String>,
    /// Why an acknowledged call may be lost by a crash; none when it may not.
    pub not_durable: Option<String>,
}

/// The time that has passed for a process since some moment.
#[derive(Clone, Copy)]
pub struct Elapsed(pub &'static (dyn Fn() -> Duration + Send + Sync));

impl std::fmt::Debug for Elapsed {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:?}", (self.0)())
    }
}

/// How to open a store.
#[derive(Clone, Copy, Debug)]
#[expect(clippy::struct_excessive_bools, reason = "each is a setting of its own")]
pub struct OpenOptions {
    /// How many shards a database gets when it is created: 1 on SQLite and 2 on Postgres unless said.
    pub shards: Option<u16>,
    /// How many connections to Postgres this process may hold, at least 3.
    pub connections: usize,
    /// Tell other processes of commits, and hear of theirs, by `NOTIFY`; without, they look for themselves.
    pub notify: bool,
    /// Migrate a Postgres that has data. SQLite and an empty Postgres are always migrated.
    pub migrate: bool,
    /// Make a ledger in a Postgres that has one in another schema.
    pub new_ledger: bool,
    /// Serve on a Postgres that may lose acknowledged calls in a crash.
    pub allow_unsafe: bool,
    /// The time that has passed for this process since some moment, by which a store on Postgres tells the steady clock.
    /// Tests that give the database a slow clock slow this one down as much.
    pub elapsed: Elapsed,
    /// The bytes of lifecycles that the store remembers.
    pub lifecycle_bytes: u64,
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
        Self {
            shards: None,
            connections: 8,
            notify: true,
            migrate: false,
            new_ledger: false,
            allow_unsafe: false,
            elapsed: Elapsed(&|| SystemClock.elapsed()),
            lifecycle_bytes: lifecycles::CACHE_BYTES,
        }
    }
}

//! The database, read beside the servers that work on it.
//!
//! Read sessions only: each statement is a transaction of its own, bounded in rows, bytes and time, and waits for no
//! lock that a commit takes. Plain statements with the shard as a constant, as in a commit.

mod condition;
mod links;
mod pages;
mod sessions;

use std::future::pending;
use std::time::Duration;

use async_trait::async_trait;
use tokio::time::timeout;

pub(super) use self::sessions::session;
use super::admin_connection::Alone;
use super::blocked::{self, Purpose};
use super::changes::OverShards;
use super::errors::TimedOut;
use super::read::{self, reading};
use super::sessions::Sessions;
use super::upkeep::retention;
use super::{dsn, lineage, migrate, safety};
use crate::domain::ids::shard_of;
use crate::domain::{ContentRow, ContentTable, Event, Namespace, Position, Positions, Revision, RunKey, Shard, Time};
use crate::store::contents::Beside;
use crate::store::inspect::{
    BesideRow, Condition, EventRow, Extent, Inspect, Link, Links, OfRuns, Past, PlaceRow, RunRow, ShardRows, Tombstones,
};
use crate::store::{Description, Ledger, OfLedger, OpenError, OpenOptions, Page, RunLog, StoreError};
use crate::tasks::Supervisor;

/// A database that is only read.
pub struct PostgresInspect {
    ledger: Ledger,
    description: Description,
    sessions: Sessions,
    over_shards: OverShards,
    /// The last migration that was applied.
    migration: u32,
}

impl PostgresInspect {
    /// Opens a database that has a ledger, for reading. A standby will do.
    ///
    /// # Errors
    ///
    /// [`OpenError::NeedsMigration`] also for an empty one, [`OpenError::NeedsNewerRelease`],
    /// [`OpenError::Unreachable`].
    pub async fn open(dsn: &str, options: &OpenOptions) -> Result<Self, OpenError> {
        let connector = dsn::connector(dsn)?;
        let location = dsn::redacted(dsn);
        let alone = Alone::connect(&connector, &location).await?;
        let found = async {
            let allow_unsafe = OpenOptions { allow_unsafe: true, ..*options };
            let not_durable = safety::not_durable(&alone.client, &location, &allow_unsafe).await?;
            Ok((not_durable, migrate::reads(&alone.client, &location).await?))
        };
        let found =
            timeout(OPEN_MAX, blocked::watched((&connector, &location), Purpose::Reading, alone.pid, Box::pin(found)));
        let (not_durable, (ledger, migration)) = found
            .await
            .unwrap_or_else(|_| Err(OpenError::Unreachable { location: location.clone(), source: TimedOut.into() }))?;
        let description = alone.describe(dsn, not_durable);
        drop(alone);
        Ok(Self {
            ledger,
            description,
            sessions: Sessions::new(&connector, options.connections, &Supervisor::new(), None, || {}),
            over_shards: OverShards::new(ledger.shard_count),
            migration,
        })
    }

    /// A read, whose error names whoever keeps it waiting.
    async fn named<T>(&self, read: impl Future<Output = Result<T, StoreError>>) -> Result<T, StoreError> {
        match read.await {
            Err(StoreError::Unavailable(source)) => {
                let held = async {
                    let session = self.sessions.read().await.ok()?;
                    let found = blocked::holders(&session, Purpose::Reading, &[]).await.ok();
                    session.put_back();
                    found?.into_iter().next()
                };
                let held = timeout(LOOK_MAX, held).await.unwrap_or_default();
                Err(StoreError::Unavailable(match held {
                    Some(holder) => format!("{} ({source})", holder.told().0).into(),
                    None => source,
                }))
            }
            done => done,
        }
    }

    fn shard_of(&self, key: &RunKey) -> Shard {
        shard_of(self.ledger.id, self.ledger.shard_count, key)
    }
}

/// The time that the first look may take: behind a migration it would wait for its end.
const OPEN_MAX: Duration = Duration::from_secs(5);

/// The time that a look at who holds a table may take.
const LOOK_MAX: Duration = Duration::from_secs(2);

impl OfLedger for PostgresInspect {
    fn ledger(&self) -> Ledger {
        self.ledger
    }
}

#[async_trait]
impl RunLog for PostgresInspect {
    async fn ends(&self) -> Result<Positions, StoreError> {
        self.named(self.over_shards.ends(&self.sessions)).await
    }

    async fn changes(&self, after: &Positions, limit: usize, bytes_max: usize) -> Result<Page, StoreError> {
        self.named(self.over_shards.page(&self.sessions, after, limit, bytes_max)).await
    }

    /// The tools read the events of a namespace among all.
    async fn changes_of(
        &self,
        _: &Namespace,
        after: &Positions,
        limit: usize,
        bytes_max: usize,
    ) -> Result<Page, StoreError> {
        self.changes(after, limit, bytes_max).await
    }

    async fn foreign_commit(&self) {
        pending::<()>().await;
    }

    async fn forgotten(&self, namespace: &Namespace) -> Result<Positions, StoreError> {
        self.named(retention::forgotten(&self.sessions, namespace, self.ledger.shard_count)).await
    }

    async fn run_events(
        &self,
        key: &RunKey,
        after: Revision,
        limit: usize,
        bytes_max: usize,
    ) -> Result<Vec<Event>, StoreError> {
        self.named(read::run_events(&self.sessions, self.shard_of(key), key, after, limit, bytes_max)).await
    }

    async fn revisions_as_of(&self, keys: &[RunKey], ends: &Positions) -> Result<Vec<Revision>, StoreError> {
        self.named(read::revisions_as_of(&self.sessions, keys, ends, |key| self.shard_of(key))).await
    }
}

#[async_trait]
impl Inspect for PostgresInspect {
    fn describe(&self) -> Description {
        self.description.clone()
    }

    async fn past(&self) -> Result<Past, StoreError> {
        let past = reading(&self.sessions, |session| async move {
            let past = lineage::past(&session).await;
            (session, past)
        });
        self.named(async { past.await? }).await
    }

    async fn time_of(&self, shard: Shard, position: Position) -> Result<Option<Time>, StoreError> {
        self.named(links::time_of(&self.sessions, shard, position)).await
    }

    async fn has_namespace(&self, namespace: &Namespace) -> Result<bool, StoreError> {
        self.named(links::has_namespace(&self.sessions, namespace)).await
    }

    async fn steady_ahead(&self) -> Result<i64, StoreError> {
        self.named(links::steady_ahead(&self.sessions)).await
    }

    async fn extent(&self, link: &Link) -> Result<Extent, StoreError> {
        self.named(links::extent(&self.sessions, &self.over_shards, link)).await
    }

    async fn links(&self, asked: &[(RunKey, Revision)]) -> Result<Vec<Links>, StoreError> {
        self.named(links::links(&self.sessions, asked, |key| self.shard_of(key))).await
    }

    async fn run_rows(&self, shard: Shard, after: &RunKey) -> Result<Vec<RunRow>, StoreError> {
        self.named(pages::runs(&self.sessions, shard, after)).await
    }

    async fn event_rows(
        &self,
        shard: Shard,
        after: (&RunKey, i64),
        last: &RunKey,
    ) -> Result<Vec<EventRow>, StoreError> {
        self.named(pages::events(&self.sessions, shard, after, last)).await
    }

    async fn place_rows(&self, shard: Shard, after: i64) -> Result<Vec<PlaceRow>, StoreError> {
        self.named(pages::places(&self.sessions, shard, after)).await
    }

    async fn content_rows(
        &self,
        table: ContentTable,
        shard: Shard,
        after: (&RunKey, i64),
        last: &RunKey,
    ) -> Result<Vec<BesideRow>, StoreError> {
        self.named(pages::contents(&self.sessions, table, shard, after, last)).await
    }

    async fn beside(&self, key: &RunKey, asked: &Beside) -> Result<Vec<ContentRow>, StoreError> {
        self.named(read::beside(&self.sessions, self.shard_of(key), key, asked)).await
    }

    async fn keys_of(&self, table: OfRuns, shard: Shard, after: &RunKey) -> Result<Vec<(RunKey, bool)>, StoreError> {
        self.named(pages::keys(&self.sessions, table, shard, after)).await
    }

    async fn tombstones(&self, shard: Shard) -> Result<Tombstones, StoreError> {
        self.named(pages::tombstones(&self.sessions, shard)).await
    }

    async fn shard_rows(&self) -> Result<ShardRows, StoreError> {
        self.named(pages::shards(&self.sessions, self.ledger.shard_count)).await
    }

    async fn condition(&self) -> Result<Condition, StoreError> {
        self.named(condition::condition(&self.sessions, &self.over_shards, self.migration)).await
    }
}

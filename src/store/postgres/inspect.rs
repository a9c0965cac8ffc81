//! The database, read beside the servers that work on it.
//!
//! Read sessions only: each statement is a transaction of its own, bounded in rows, bytes and time, and waits for no lock
//! that a commit takes. Plain statements with the shard as a constant, as in a commit.

mod condition;
mod links;
mod pages;
mod sessions;

use std::future::Future;
use std::pin::pin;
use std::time::Duration;

use async_trait::async_trait;
use futures_util::TryStreamExt as _;
use tokio::time::timeout;
use tokio_postgres::Row;
use tokio_postgres::types::ToSql;

use super::changes::OverShards;
use super::errors::TimedOut;
use super::read::{self, reading};
use super::sessions::Sessions;
use super::{Alone, dsn, lineage, migrate, safety};
use crate::domain::ids::shard_of;
use crate::domain::{Event, Namespace, Position, RunId, RunKey, Shard, Time};
use crate::store::inspect::{
    Condition, EventRow, Extent, Inspect, Link, Links, OfRuns, Past, PlaceRow, RunRow, ShardRows,
};
use crate::store::{Description, Ledger, OfLedger, OpenError, OpenOptions, PAGE_BYTES_MAX, Page, RunLog, StoreError};

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
        let config = dsn::config(dsn)?;
        let location = dsn::redacted(dsn);
        let alone = Alone::connect(&config, &location).await?;
        let found = async {
            let allow_unsafe = OpenOptions { allow_unsafe: true, ..*options };
            let not_durable = safety::not_durable(&alone.client, &location, &allow_unsafe).await?;
            Ok((not_durable, migrate::reads(&alone.client, &location).await?))
        };
        let found = timeout(OPEN_MAX, found);
        let (not_durable, (ledger, migration)) = found
            .await
            .unwrap_or_else(|_| Err(OpenError::Unreachable { location: location.clone(), source: TimedOut.into() }))?;
        drop(alone);
        Ok(Self {
            ledger,
            description: Description { kind: "postgres", location, not_durable },
            sessions: Sessions::new(&config, options.connections, None, || {}),
            over_shards: OverShards::new(ledger.shard_count),
            migration,
        })
    }

    fn shard_of(&self, key: &RunKey) -> Shard {
        shard_of(self.ledger.id, self.ledger.shard_count, key)
    }

    /// Runs, asked for with a number each, by shard; with where each stood in the list.
    fn by_shard(&self, asked: impl Iterator<Item = (RunKey, u64)>) -> Vec<ByShard> {
        let mut shards: Vec<ByShard> = Vec::new();
        for (index, (key, number)) in asked.enumerate() {
            let shard = self.shard_of(&key);
            let place = shards.iter().position(|asked| asked.shard == shard).unwrap_or_else(|| {
                shards.push(ByShard { shard, ..ByShard::default() });
                shards.len() - 1
            });
            let asked = &mut shards[place];
            asked.indexes.push(index);
            asked.namespaces.push(key.namespace);
            asked.run_ids.push(key.run_id);
            asked.numbers.push(number);
        }
        shards
    }
}

/// How long the first look may take: behind a migration it would wait for its end.
const OPEN_MAX: Duration = Duration::from_secs(5);

struct ByShard {
    shard: Shard,
    indexes: Vec<usize>,
    namespaces: Vec<Namespace>,
    run_ids: Vec<RunId>,
    numbers: Vec<u64>,
}

impl Default for ByShard {
    fn default() -> Self {
        Self { shard: Shard(0), indexes: Vec::new(), namespaces: Vec::new(), run_ids: Vec::new(), numbers: Vec::new() }
    }
}

impl OfLedger for PostgresInspect {
    fn ledger(&self) -> Ledger {
        self.ledger
    }
}

#[async_trait]
impl RunLog for PostgresInspect {
    async fn heads(&self) -> Result<Vec<Position>, StoreError> {
        self.over_shards.heads(&self.sessions).await
    }

    async fn changes(&self, after: &[Position], limit: usize, bytes_max: usize) -> Result<Page, StoreError> {
        self.over_shards.page(&self.sessions, after, limit, bytes_max).await
    }

    async fn run_events(
        &self,
        key: &RunKey,
        after: u64,
        limit: usize,
        bytes_max: usize,
    ) -> Result<Vec<Event>, StoreError> {
        read::run_events(&self.sessions, self.shard_of(key), key, after, limit, bytes_max).await
    }

    async fn revisions_as_of(&self, keys: &[RunKey], heads: &[Position]) -> Result<Vec<u64>, StoreError> {
        let mut found = vec![0; keys.len()];
        for asked in self.by_shard(keys.iter().map(|key| (key.clone(), 0))) {
            let head = heads.get(usize::from(asked.shard.0)).copied().unwrap_or(0);
            links::revisions(&self.sessions, &asked, head, &mut found).await?;
        }
        Ok(found)
    }
}

#[async_trait]
impl Inspect for PostgresInspect {
    fn describe(&self) -> Description {
        self.description.clone()
    }

    async fn past(&self) -> Result<Past, StoreError> {
        reading(&self.sessions, |session| async move {
            let past = lineage::past(&session).await;
            (session, past)
        })
        .await?
    }

    async fn time_of(&self, shard: Shard, position: Position) -> Result<Option<Time>, StoreError> {
        links::time_of(&self.sessions, shard, position).await
    }

    async fn extent(&self, link: &Link) -> Result<Extent, StoreError> {
        links::extent(&self.sessions, &self.over_shards, link).await
    }

    async fn links(&self, asked: &[(RunKey, u64)]) -> Result<Vec<Links>, StoreError> {
        let mut found = vec![Links::default(); asked.len()];
        for asked in self.by_shard(asked.iter().cloned()) {
            links::links(&self.sessions, &asked, &mut found).await?;
        }
        Ok(found)
    }

    async fn run_rows(&self, shard: Shard, after: &RunKey) -> Result<Vec<RunRow>, StoreError> {
        pages::runs(&self.sessions, shard, after).await
    }

    async fn event_rows(
        &self,
        shard: Shard,
        after: (&RunKey, i64),
        last: &RunKey,
    ) -> Result<Vec<EventRow>, StoreError> {
        pages::events(&self.sessions, shard, after, last).await
    }

    async fn place_rows(&self, shard: Shard, after: i64) -> Result<Vec<PlaceRow>, StoreError> {
        pages::places(&self.sessions, shard, after).await
    }

    async fn keys_of(&self, table: OfRuns, shard: Shard, after: &RunKey) -> Result<Vec<(RunKey, bool)>, StoreError> {
        pages::keys(&self.sessions, table, shard, after).await
    }

    async fn shard_rows(&self) -> Result<ShardRows, StoreError> {
        pages::shards(&self.sessions, self.ledger.shard_count).await
    }

    async fn condition(&self) -> Result<Condition, StoreError> {
        condition::condition(&self.sessions, &self.over_shards, self.migration).await
    }
}

/// A statement's rows, until they weigh what a page may hold: what is stored compressed is longer than the statement can
/// count.
fn rows<'a>(
    sessions: &'a Sessions,
    statement: &'a str,
    arguments: &'a [&'a (dyn ToSql + Sync)],
    weight: fn(&Row) -> usize,
) -> impl Future<Output = Result<Vec<Row>, StoreError>> + Send + 'a {
    reading(sessions, move |session| async move {
        let rows = async {
            let statement = session.prepare_cached(statement).await?;
            let mut stream = pin!(session.query_raw(&statement, arguments.iter().copied()).await?);
            let (mut rows, mut bytes) = (Vec::new(), 0);
            while let Some(row) = stream.try_next().await? {
                bytes += weight(&row);
                rows.push(row);
                if bytes >= PAGE_BYTES_MAX {
                    break;
                }
            }
            Ok(rows)
        };
        let rows = rows.await;
        (session, rows)
    })
}

/// A column's bytes, if it has any.
fn text_bytes(row: &Row, column: &str) -> usize {
    row.try_get::<_, Option<&str>>(column).ok().flatten().map_or(0, str::len)
}

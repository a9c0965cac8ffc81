//! Opens the database: whether a ledger works in it, its schema, the sessions, and a trial of what will be sent, in this
//! order. Whoever keeps that waiting is named.

use tokio::sync::Mutex;

use super::admin_connection::Alone;
use super::announce::Announcer;
use super::blocked::{self, Purpose};
use super::changes::OverShards;
use super::commit::CommitPath;
use super::store::PostgresStore;
use super::{dsn, errors, fitness, grants, migrate, safety, trial};
use crate::store::fitness::refuse;
use crate::store::migrations::Migrated;
use crate::store::plan::Plan;
use crate::store::{Ledger, OpenError, OpenOptions};
use crate::tasks::Supervisor;

impl PostgresStore {
    /// Opens the database that the connection string names, and creates the ledger in an empty one. The tasks that
    /// the store always needs are vital to `supervisor`'s service.
    ///
    /// # Errors
    ///
    /// See [`OpenError`].
    pub async fn open(dsn: &str, options: &OpenOptions, supervisor: &Supervisor) -> Result<Self, OpenError> {
        let connector = dsn::connector(dsn)?;
        let location = dsn::redacted(dsn);
        let mut alone = Alone::connect(&connector, &location).await?;
        let own = alone.pid;
        let steps = async {
            safety::writable(&alone.client, &location).await?;
            blocked::free(&alone.client, &location, Purpose::Writing, own).await?;
            let not_durable = safety::not_durable(&alone.client, &location, options).await?;
            let (ledger, _) = Self::prepare(&mut alone, &location, options).await?;
            let commits = CommitPath::open(&connector, &location, options, &ledger, supervisor).await?;
            trial::each(&alone.client, &location, ledger.shard_count).await?;
            Ok((ledger, alone.describe(dsn, not_durable), commits))
        };
        let (ledger, description, commits) =
            blocked::watched((&connector, &location), Purpose::Writing, own, Box::pin(steps)).await?;
        Ok(Self {
            ledger,
            description,
            commits,
            over_shards: OverShards::new(ledger.shard_count),
            puts: Mutex::new(()),
            announcer: if options.notify { Announcer::start(connector, supervisor) } else { Announcer::silent() },
        })
    }

    /// Brings the database's schema to this release's, whatever `options.migrate` says.
    ///
    /// # Errors
    ///
    /// See [`OpenError`].
    pub async fn migrate(dsn: &str, options: &OpenOptions) -> Result<Migrated, OpenError> {
        let connector = dsn::connector(dsn)?;
        let location = dsn::redacted(dsn);
        let mut alone = Alone::connect(&connector, &location).await?;
        let own = alone.pid;
        let options = OpenOptions { migrate: true, ..*options };
        let steps = async {
            safety::writable(&alone.client, &location).await?;
            Self::prepare(&mut alone, &location, &options).await
        };
        let (_, migrated) = blocked::watched((&connector, &location), Purpose::Writing, own, Box::pin(steps)).await?;
        Ok(migrated)
    }

    /// Brings the schema as far as `options` permit, in a database in which a ledger works.
    async fn prepare(
        alone: &mut Alone,
        location: &str,
        options: &OpenOptions,
    ) -> Result<(Ledger, Migrated), OpenError> {
        let reading = |error| errors::opening_with(location, error);
        refuse(location, fitness::of_database(&alone.client).await.map_err(reading)?)?;
        grants::check(&alone.client, location, grants::SERVING).await?;
        refuse(location, fitness::of_schema(&alone.client).await.map_err(reading)?)?;
        let (ledger, migrated) = migrate::prepare(&mut alone.client, location, options).await?;
        if !migrated.applied.is_empty() {
            refuse(location, fitness::of_schema(&alone.client).await.map_err(reading)?)?;
        }
        Ok((ledger, migrated))
    }

    /// What [`migrate`](Self::migrate) would do; nothing is written or locked. A standby will do.
    ///
    /// # Errors
    ///
    /// See [`OpenError`].
    pub async fn plan(dsn: &str, options: &OpenOptions) -> Result<Plan, OpenError> {
        let connector = dsn::connector(dsn)?;
        let location = dsn::redacted(dsn);
        let alone = Alone::connect(&connector, &location).await?;
        migrate::plan(&alone.client, &location, options).await
    }
}

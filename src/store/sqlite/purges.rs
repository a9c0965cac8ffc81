//! The path on which runs are purged: its calls, as the store's connections make them.

use std::time::Duration;

use async_trait::async_trait;

use super::store::SqliteStore;
use super::upkeep::retention;
use crate::domain::{Namespace, Position, Positions, Shard};
use crate::store::retention::{Due, Purged, Retained, Walk};
use crate::store::{Purges, StoreError};

#[async_trait]
impl Purges for SqliteStore {
    fn unattended(&self) -> Duration {
        self.clock.unattended()
    }

    async fn retentions(&self) -> Result<Vec<Retained>, StoreError> {
        let clock = self.clock.clone();
        self.connections.read(move |connection| retention::retentions(connection, clock.clock())).await?
    }

    async fn exported(&self, namespace: &Namespace) -> Result<Positions, StoreError> {
        let (namespace, shard_count) = (namespace.clone(), self.ledger.shard_count);
        self.connections.read(move |connection| retention::exported(connection, &namespace, shard_count)).await?
    }

    async fn walked(&self, shard: Shard, walk: &Walk) -> Result<Position, StoreError> {
        let walk = walk.clone();
        self.connections.read(move |connection| retention::walked(connection, shard, &walk)).await?
    }

    async fn due(&self, shard: Shard, walk: &Walk, after: Position, upto: Position) -> Result<Due, StoreError> {
        let (walk, clock) = (walk.clone(), self.clock.clone());
        self.connections.read(move |it| retention::due(it, shard, &walk, (after, upto), clock.steady())).await?
    }

    async fn purge(&self, shard: Shard, walk: &Walk, due: &Due) -> Result<Option<Purged>, StoreError> {
        let (walk, due, clock) = (walk.clone(), due.clone(), self.clock.clone());
        let purge = move |it: &mut rusqlite::Connection| retention::purge(it, shard, &walk, &due, clock.clock());
        let purged = self.connections.write(purge).await??;
        if purged.is_some_and(|purged| purged.runs > 0) {
            self.cleaning.purged();
        }
        Ok(purged)
    }
}

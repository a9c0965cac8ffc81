//! What all commits share, and how long their steps may take.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use runledger_postgres::Connector;
use tokio::time::{Instant, timeout_at};

use super::hints::Hints;
use crate::store::postgres::errors::{self, TimedOut};
use crate::store::postgres::lineage::Lineage;
use crate::store::postgres::sessions::Sessions;
use crate::store::postgres::uptime::ReplicaUptime;
use crate::store::postgres::uptime::statements::opening;
use crate::store::postgres::{ends, safety};
use crate::store::{Ledger, OpenError, OpenOptions, StoreError};
use crate::tasks::Supervisor;

/// The time for all steps before COMMIT may have been sent: past it, surely nothing was applied.
pub(super) const READ_MAX: Duration = Duration::from_secs(8);
/// The time for the flush that ends with COMMIT: past it, the outcome is unknown.
pub(in crate::store::postgres) const WRITE_MAX: Duration = Duration::from_secs(5);

/// The parts that all commits share.
pub(in crate::store::postgres) struct CommitPath {
    pub(in crate::store::postgres) sessions: Sessions,
    pub(in crate::store::postgres) hints: Arc<Hints>,
    pub(in crate::store::postgres) lineage: Arc<Lineage>,
    /// The statement that reads each shard's end.
    pub(super) ends: String,
    pub(in crate::store::postgres) shard_count: u16,
    pub(in crate::store::postgres) uptime: ReplicaUptime,
}

impl CommitPath {
    /// The uptime begins here.
    pub(in crate::store::postgres) async fn open(
        connector: &Connector,
        location: &str,
        options: &OpenOptions,
        ledger: &Ledger,
        supervisor: &Supervisor,
    ) -> Result<Self, OpenError> {
        let shard_count = ledger.shard_count;
        let hints = Arc::new(Hints::new(shard_count, options.lifecycle_bytes));
        let lineage = Arc::new(Lineage::new(ledger, hints.clone()));
        let forget = hints.clone();
        let sessions =
            Sessions::new(connector, options.connections, supervisor, Some(&lineage), move || forget.forget());
        safety::isolated(&sessions, location).await?;
        let told = opening(&sessions).await.map_err(|error| errors::opening_with(location, error))?;
        let (ends, uptime) = (ends::statement(shard_count), ReplicaUptime::new(&told, options.elapsed));
        Ok(Self { sessions, hints, lineage, ends, shard_count, uptime })
    }
}

pub(in crate::store::postgres) async fn before<T>(
    deadline: Instant,
    work: impl Future<Output = T>,
) -> Result<T, StoreError> {
    timeout_at(deadline, work).await.map_err(|_| TimedOut.into())
}

//! The connections: some commit, some read, one listens. Every wait for one is bounded, and a session that failed or
//! may be in a transaction is closed and never lent again. A new one is used only when its server was
//! [looked at](super::lineage).

mod connection;
mod lent;

use std::sync::Arc;
use std::time::Duration;

use deadpool::managed::{Hook, HookError, Metrics, Pool, QueueMode};
use deadpool::{Runtime, Status};
use runledger_postgres::Connector;
use tokio::time::timeout;
use tokio_postgres::Error;

pub(super) use self::connection::Connection;
use self::connection::Connections;
pub(super) use self::lent::Session;
use super::defaults::put_right;
use super::lineage::Lineage;
use crate::store::metrics::{POOL_COMMIT, POOL_READ};
use crate::store::{PoolUse, StoreError};
use crate::tasks::Supervisor;
use crate::telemetry::{chain, record};

/// The time that a caller waits for a session in the queue, and for a new connection: from the first packet to the
/// last setting.
const QUEUE_MAX: Duration = Duration::from_secs(3);
pub(super) const CREATE_MAX: Duration = Duration::from_secs(6);

/// After this long, a session's plans may be for tables that have grown since.
const PLANS_AGE_MAX: Duration = Duration::from_secs(30);

/// The settings that every session gets first.
macro_rules! settings {
    ($name:literal, read_only: $read_only:literal $(, $more:literal)?) => {
        concat!(
            "-- ",
            $name,
            put_right!(),
            ";
set idle_in_transaction_session_timeout = '2s';
set lock_timeout = '2s';
set statement_timeout = '10s';
set tcp_user_timeout = '5s';
set default_transaction_isolation = 'read committed';
set default_transaction_read_only = ",
            $read_only,
            ";
set enable_seqscan = off;
set enable_indexscan = on;
set enable_indexonlyscan = on;
set enable_nestloop = on;
set jit = off;
set plan_cache_mode = force_generic_plan",
            $($more)?
        )
    };
}

/// Frees the shard of a frozen process in seconds: the first time-out ends a session that is idle in a transaction, the
/// last one a session that reads no more while the server is still sending to it. The server plans once for all runs of
/// a statement, by index even while the tables are empty, and by no means that pays only for a large part of a shard.
pub const COMMIT_SETTINGS: &str = settings!(
    "session.commit",
    read_only: "off",
    ";
set enable_bitmapscan = off;
set enable_hashjoin = off;
set enable_mergejoin = off"
);

/// Reads go by index in its order, row by row: a plan that sorts or hashes reads a whole range before it shows its
/// first row.
pub const READ_SETTINGS: &str = settings!(
    "session.read",
    read_only: "on",
    ";
set enable_bitmapscan = off;
set enable_hashjoin = off;
set enable_mergejoin = off;
set enable_sort = off"
);

/// The sessions that commit and those that read.
pub(super) struct Sessions {
    commit: Pool<Connections>,
    read: Pool<Connections>,
    /// Runs the tasks that wait for abandoned reads.
    supervisor: Arc<Supervisor>,
}

impl Sessions {
    /// Shares out `connections`, of which one is the listener's. `created` is called for each new session that may
    /// write, before the session is used; `lineage` looks at the server of each new session.
    pub(super) fn new(
        connector: &Connector,
        connections: usize,
        supervisor: &Supervisor,
        lineage: Option<&Arc<Lineage>>,
        created: impl Fn() + Send + Sync + 'static,
    ) -> Self {
        let commit = (connections / 2).clamp(1, 4);
        let read = connections.saturating_sub(1 + commit).max(1);
        Self {
            commit: pool(connector, commit, COMMIT_SETTINGS, lineage, created),
            read: pool(connector, read, READ_SETTINGS, lineage, || {}),
            supervisor: Arc::new(supervisor.clone()),
        }
    }

    /// The number of commits that may be in flight.
    pub(super) fn commits_max(&self) -> usize {
        self.commit.status().max_size
    }

    /// A session that may write. If it is abandoned, it is closed: a transaction may be open.
    pub(super) async fn commit(&self) -> Result<Session, StoreError> {
        Session::lend(&self.commit, None).await
    }

    /// A session that only reads, for statements that are transactions of their own. If a caller that goes away
    /// abandons it, it is [lent on](lent) when it is idle. It is closed when that takes long, or its statements
    /// [litter](Connection::is_littered) the server.
    pub(super) async fn read(&self) -> Result<Session, StoreError> {
        Session::lend(&self.read, Some(&self.supervisor)).await
    }

    /// The sessions in use, and how many there may be.
    pub(super) fn pools(&self) -> Vec<PoolUse> {
        let used = |(_, name): record::Value, pool: &Pool<Connections>| {
            let Status { max_size, size, available, .. } = pool.status();
            PoolUse { name, in_use: size.saturating_sub(available), max: max_size }
        };
        vec![used(POOL_COMMIT, &self.commit), used(POOL_READ, &self.read)]
    }

    /// Closes all sessions that are idle now, and the others as they come back.
    pub(super) fn close(&self) {
        self.commit.close();
        self.read.close();
    }
}

fn pool(
    connector: &Connector,
    size: usize,
    settings: &'static str,
    lineage: Option<&Arc<Lineage>>,
    created: impl Fn() + Send + Sync + 'static,
) -> Pool<Connections> {
    let (looks, changed) = (lineage.cloned(), lineage.cloned());
    Pool::builder(Connections::by(connector.clone()))
        .max_size(size)
        // The session that was used last has its plans and its memory at hand; the others are for when one is not
        // enough.
        .queue_mode(QueueMode::Lifo)
        .runtime(Runtime::Tokio1)
        .wait_timeout(Some(QUEUE_MAX))
        .create_timeout(Some(CREATE_MAX))
        .recycle_timeout(Some(QUEUE_MAX))
        .post_create(Hook::async_fn(move |client: &mut Connection, _| {
            created();
            let lineage = looks.clone();
            let set = async move {
                client.batch_execute(settings).await.map_err(HookError::Backend)?;
                match lineage {
                    Some(lineage) => lineage.check(client).await.map_err(|error| HookError::message(cause(&error))),
                    None => Ok(()),
                }
            };
            Box::pin(async move {
                let late = || Err(HookError::message("Postgres did not answer in time"));
                timeout(CREATE_MAX, set).await.unwrap_or_else(|_elapsed| late())
            })
        }))
        .pre_recycle(Hook::async_fn(move |client: &mut Connection, metrics: &Metrics| {
            let changed_at = changed.as_ref().and_then(|lineage| lineage.changed_at());
            let left = changed_at.is_some_and(|changed_at| metrics.created <= changed_at.into_std());
            let due = (metrics.recycle_count + 1).is_power_of_two() || are_old(metrics);
            Box::pin(async move {
                match (left, due) {
                    (true, _) => Err(HookError::message("it may be to a server that was left")),
                    (false, true) => plan_anew(client).await,
                    (false, false) => Ok(()),
                }
            })
        }))
        .build()
        .expect("a runtime is given")
}

/// The cause of an error, without the words that the store is unavailable: the caller adds these.
fn cause(error: &StoreError) -> String {
    chain(std::error::Error::source(error).unwrap_or(error))
}

/// Whether the session's age has passed a multiple of [`PLANS_AGE_MAX`] since it was last lent.
fn are_old(metrics: &Metrics) -> bool {
    let age_at = |when: std::time::Instant| (when - metrics.created).as_nanos() / PLANS_AGE_MAX.as_nanos();
    age_at(metrics.created + metrics.age()) > metrics.recycled.map_or(0, age_at)
}

/// A generic plan made while a table has less than a few hundred rows scans a whole shard, or the wrong index, for
/// ever: one row then costs as much as all. Statistics come with autoanalyze, minutes later, and planning each time
/// costs more than the statements. Planning anew at every doubling of a session's uses, and in every half minute,
/// leaves such a plan behind soon.
async fn plan_anew(client: &Connection) -> Result<(), HookError<Error>> {
    client.batch_execute("-- session.plan_anew\ndiscard plans").await.map_err(HookError::Backend)
}

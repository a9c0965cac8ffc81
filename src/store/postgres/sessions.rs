//! The connections: some commit, some read, one listens. Every wait for one is bounded, and a session of unknown state
//! is closed and never lent again.

use std::ops::Deref;
use std::time::Duration;

use deadpool_postgres::{
    ClientWrapper, Hook, HookError, Manager, ManagerConfig, Metrics, Object, Pool, RecyclingMethod, Runtime,
};
use tokio_postgres::{Config, NoTls};

use super::errors;
use crate::store::StoreError;

/// What a session waits for in the queue, and for a new connection.
const QUEUE_MAX: Duration = Duration::from_secs(3);
const CREATE_MAX: Duration = Duration::from_secs(6);

/// After this long unused, a session's plans may be for tables that have grown since.
const PLANS_IDLE_MAX: Duration = Duration::from_mins(1);

/// Frees the shard of a frozen process in seconds, and plans once for all runs of a statement: by index even while the
/// tables are empty.
const COMMIT_SETTINGS: &str = "-- session.commit
set idle_in_transaction_session_timeout = '2s';
set lock_timeout = '2s';
set statement_timeout = '10s';
set default_transaction_isolation = 'read committed';
set default_transaction_read_only = off;
set enable_seqscan = off;
set plan_cache_mode = force_generic_plan";

const READ_SETTINGS: &str = "-- session.read
set idle_in_transaction_session_timeout = '2s';
set lock_timeout = '2s';
set statement_timeout = '10s';
set default_transaction_isolation = 'read committed';
set default_transaction_read_only = on;
set enable_seqscan = off;
set plan_cache_mode = force_generic_plan";

/// The sessions that commit and those that read.
pub(super) struct Sessions {
    commit: Pool,
    read: Pool,
}

impl Sessions {
    /// Shares out `connections`, of which one is the listener's.
    pub(super) fn new(config: &Config, connections: usize) -> Self {
        let commit = (connections / 2).clamp(1, 4);
        let read = connections.saturating_sub(1 + commit).max(1);
        Self { commit: pool(config, commit, COMMIT_SETTINGS), read: pool(config, read, READ_SETTINGS) }
    }

    /// How many commits may be in flight.
    pub(super) fn commits_max(&self) -> usize {
        self.commit.status().max_size
    }

    /// A session that may write.
    pub(super) async fn commit(&self) -> Result<Session, StoreError> {
        Session::lend(&self.commit).await
    }

    /// A session that only reads.
    pub(super) async fn read(&self) -> Result<Session, StoreError> {
        Session::lend(&self.read).await
    }

    /// Closes all that are idle now and the others as they come back.
    pub(super) fn close(&self) {
        self.commit.close();
        self.read.close();
    }
}

fn pool(config: &Config, size: usize, settings: &'static str) -> Pool {
    let recycling = ManagerConfig { recycling_method: RecyclingMethod::Fast };
    Pool::builder(Manager::from_config(config.clone(), NoTls, recycling))
        .max_size(size)
        .runtime(Runtime::Tokio1)
        .wait_timeout(Some(QUEUE_MAX))
        .create_timeout(Some(CREATE_MAX))
        .recycle_timeout(Some(QUEUE_MAX))
        .post_create(Hook::async_fn(move |client: &mut ClientWrapper, _| {
            Box::pin(async move { client.batch_execute(settings).await.map_err(HookError::Backend) })
        }))
        .pre_recycle(Hook::async_fn(|client: &mut ClientWrapper, metrics: &Metrics| {
            let due = (metrics.recycle_count + 1).is_power_of_two() || metrics.last_used() > PLANS_IDLE_MAX;
            Box::pin(async move { if due { plan_anew(client).await } else { Ok(()) } })
        }))
        .build()
        .expect("a runtime is given")
}

/// A generic plan made while a table was nearly empty may scan a whole shard for ever: one row then costs as much as
/// all. Statistics come with autoanalyze, minutes later, and planning each time costs more than the statements.
/// Planning anew at every doubling of a session's uses keeps a plan near the size that it was made for.
async fn plan_anew(client: &ClientWrapper) -> Result<(), HookError> {
    client.batch_execute("-- session.plan_anew\ndiscard plans").await.map_err(HookError::Backend)
}

/// A lent session. Dropped, it is closed: nobody knows what it was in the middle of. Only [`Session::give_back`]
/// lends it on.
pub(super) struct Session {
    object: Option<Object>,
}

impl Session {
    async fn lend(pool: &Pool) -> Result<Self, StoreError> {
        let object = pool.get().await.map_err(errors::session)?;
        Ok(Self { object: Some(object) })
    }

    /// Returns it: no transaction is open and every answer was read.
    pub(super) fn give_back(mut self) {
        drop(self.object.take());
    }
}

impl Deref for Session {
    type Target = ClientWrapper;

    fn deref(&self) -> &ClientWrapper {
        self.object.as_ref().expect("there until given back")
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        if let Some(object) = self.object.take() {
            drop(Object::take(object));
        }
    }
}

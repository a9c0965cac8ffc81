//! The gRPC service: authenticate, convert, validate, submit, answer. Holds no SQL and no rules.

mod frames;
pub mod health;
mod leases;
mod lists;
mod replica;
mod routes;
mod runs;
pub mod server;
pub mod transport;
mod watch;

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use tonic::Status;

use crate::claims::Claims;
use crate::domain::RunKey;
use crate::engine::Engine;
use crate::feed::Feed;
use crate::leases::progress::ProgressBoard;
use crate::leases::renewals::Renewals;
use crate::reads::Reads;
use crate::store::{Store, StoreError};
use crate::telemetry::chain;
use crate::wire::status;

pub use frames::WireFrames;
pub use lists::Turns;

/// What the service works with, once the store is open.
pub struct Backend {
    /// The store.
    pub store: Arc<dyn Store>,
    /// The read path.
    pub reads: Reads,
    /// The command path.
    pub engine: Arc<Engine>,
    /// The heartbeats' path.
    pub renewals: Renewals,
    /// How far watched runs have come.
    pub progress: Arc<ProgressBoard>,
    /// The path of who looks for work.
    pub claims: Claims,
    /// The watch path.
    pub feed: Feed,
    /// How long a wait for a run's end lasts at most.
    pub wait_max: Duration,
    /// Whose turn it is to list or to count.
    pub turns: Turns,
}

/// The backend's place: empty until the store is open.
#[derive(Clone, Default)]
pub struct BackendSlot(Arc<OnceLock<Backend>>);

impl BackendSlot {
    /// Puts the backend in place; the first one stays.
    pub fn install(&self, backend: Backend) {
        let _already = self.0.set(backend);
    }

    /// The backend, once the store is open.
    #[must_use]
    pub fn get(&self) -> Option<&Backend> {
        self.0.get()
    }

    fn ready(&self) -> Result<&Backend, Status> {
        self.get().ok_or_else(status::store_unavailable)
    }
}

/// A failed read of one run.
fn unreadable(rpc: &'static str, key: &RunKey, error: &StoreError) -> Status {
    failed(rpc, &key.namespace, Some(&key.run_id), error)
}

/// A failed read of many runs.
fn unlisted(rpc: &'static str, namespace: &str, error: &StoreError) -> Status {
    failed(rpc, namespace, None, error)
}

/// The causes are for the log. While the store is away every call fails, and the health monitor has said so once.
fn failed(rpc: &'static str, namespace: &str, run_id: Option<&str>, error: &StoreError) -> Status {
    match error {
        StoreError::Unavailable(_) | StoreError::Lost(_) => {
            tracing::debug!(rpc, namespace, run_id, error = chain(error), "a read failed");
        }
        StoreError::Refused(_) | StoreError::Corrupt { .. } => {
            tracing::error!(rpc, namespace, run_id, error = chain(error), "a read failed");
        }
    }
    status::store(error)
}

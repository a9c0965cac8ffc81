//! The authority's calls, without a transport: a caller's request in, an answer or a [`Problem`] out, deadlines and turns
//! included. Every face stands on it: gRPC is one.

mod history;
mod leases;
mod lists;
mod mutations;
mod reads;
mod watch;

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use tokio::time::Instant;

pub use self::lists::Turns;
pub use self::watch::{OneFrame, over};
use crate::auth::Caller;
use crate::claims::Claims;
use crate::domain::{Refusal, RunKey};
use crate::engine::Engine;
use crate::feed::Feed;
use crate::leases::progress::ProgressBoard;
use crate::leases::renewals::Renewals;
use crate::reads::Reads;
use crate::store::{Store, StoreError};
use crate::telemetry::chain;
use crate::wire::problem::{self, Problem};
use crate::wire::query::WAIT_MAX;

/// Bytes of one answer at most: clients refuse 4 MiB, and a page that ends early loses nothing.
const ANSWER_BYTES_MAX: usize = 3 * 1024 * 1024;

/// What a wait leaves of the call's time for its answer at most.
const ANSWER_MARGIN_MAX: Duration = Duration::from_secs(1);

/// What the calls work with, once the store is open.
pub struct Authority {
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
    /// The path of callers that look for work.
    pub claims: Claims,
    /// The watch path.
    pub feed: Feed,
    /// How long a wait for a run's end lasts at most.
    pub wait_max: Duration,
    /// Whose turn it is to list or to count.
    pub turns: Turns,
}

/// The authority's place: empty until the store is open.
#[derive(Clone, Default)]
pub struct AuthoritySlot(Arc<OnceLock<Authority>>);

impl AuthoritySlot {
    /// Puts the authority in place; the first one stays.
    pub fn install(&self, authority: Authority) {
        let _already = self.0.set(authority);
    }

    /// The authority, once the store is open.
    #[must_use]
    pub fn get(&self) -> Option<&Authority> {
        self.0.get()
    }

    /// The authority, for a call.
    ///
    /// # Errors
    ///
    /// The store is not open yet.
    pub fn ready(&self) -> Result<&Authority, Problem> {
        self.get().ok_or_else(problem::store_unavailable)
    }
}

/// What a call says.
#[derive(Debug)]
pub struct Call<M> {
    /// Who calls, and in which namespace.
    pub caller: Caller,
    /// When it is over.
    pub until: Until,
    /// The request.
    pub message: M,
}

/// When a call is over.
#[derive(Clone, Copy, Debug)]
pub struct Until {
    /// Its caller waits no longer.
    pub deadline: Option<Instant>,
    /// Its connection is closed.
    pub connection: Option<Instant>,
}

impl Authority {
    /// How long a call that was asked to wait does: answered before it is over, it says more than that time is over.
    fn wait_max(&self, asked: Duration, until: Until) -> Duration {
        let end = until.deadline.into_iter().chain(until.connection).min();
        let left = end.map_or(WAIT_MAX, |end| {
            let left = end.saturating_duration_since(Instant::now());
            left.saturating_sub((left / 10).min(ANSWER_MARGIN_MAX))
        });
        asked.min(self.wait_max).min(left)
    }

    /// Another replica may have seen sooner that the ledger lost a part of its past.
    async fn knows(&self, epoch: Option<u64>) -> Result<(), StoreError> {
        if epoch.is_some_and(|epoch| epoch > self.store.ledger().epoch) {
            self.store.look_at_past().await?;
        }
        Ok(())
    }
}

fn run_not_found(key: RunKey) -> Problem {
    problem::refusal(&Refusal::RunNotFound { key })
}

/// A failed read of one run.
fn unreadable(rpc: &'static str, key: &RunKey, error: &StoreError) -> Problem {
    failed(rpc, &key.namespace, Some(&key.run_id), error)
}

/// A failed read of many runs.
fn unlisted(rpc: &'static str, namespace: &str, error: &StoreError) -> Problem {
    failed(rpc, namespace, None, error)
}

/// The causes are for the log. While the store is away every call fails, and the health monitor has said so once.
fn failed(rpc: &'static str, namespace: &str, run_id: Option<&str>, error: &StoreError) -> Problem {
    match error {
        StoreError::Unavailable(_) | StoreError::Lost(_) => {
            tracing::debug!(rpc, namespace, run_id, error = chain(error), "a read failed");
        }
        StoreError::Refused(_) | StoreError::Corrupt { .. } => {
            tracing::error!(rpc, namespace, run_id, error = chain(error), "a read failed");
        }
    }
    problem::store(error)
}

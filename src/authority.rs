//! The authority's calls, without a transport: a caller's request in, an answer or a [`Problem`] out, deadlines and
//! turns included. Every face stands on it: gRPC is one.

mod apply_commands;
mod before;
mod claim_next;
mod complete_run;
mod heartbeat;
mod history;
mod lifecycles;
mod lists;
mod memory;
mod mutations;
mod namespaces;
mod reads;
mod until;
mod watch;

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use tokio::time::Instant;

pub use self::before::Looks;
pub use self::lists::Turns;
pub use self::memory::is_shed;
pub use self::until::Until;
pub use self::watch::{OneFrame, over};
use crate::auth::Caller;
use crate::claims::Claims;
use crate::domain::{LedgerEpoch, Refusal, Run, RunKey, TraceContext};
use crate::engine::Engine;
use crate::fairness::CallerKey;
use crate::feed::Feed;
use crate::memory::Memory;
use crate::namespaces::Registry;
use crate::reads::Reads;
use crate::store::{Store, StoreError};
use crate::telemetry::{chain, traces};
use crate::upkeep::progress::ProgressBoard;
use crate::upkeep::renewals::Renewals;
use crate::wire::problem::{self, Problem};
use crate::wire::query::WAIT_MAX;
use crate::wire::seal::Seals;

/// Bytes of one answer at most: clients refuse 4 MiB, and a page that ends early loses nothing.
const ANSWER_BYTES_MAX: usize = 3 * 1024 * 1024;

/// The largest part of a call's time that a wait leaves for the answer.
const ANSWER_MARGIN_MAX: Duration = Duration::from_secs(1);

/// The parts that the calls use, once the store is open.
pub struct Authority {
    pub store: Arc<dyn Store>,
    /// The read path.
    pub reads: Reads,
    /// The command path.
    pub engine: Arc<Engine>,
    /// The heartbeats' path.
    pub renewals: Renewals,
    /// The progress of watched runs.
    pub progress: Arc<ProgressBoard>,
    /// The path of callers that look for work.
    pub claims: Claims,
    /// The watch path.
    pub feed: Feed,
    /// Time that a wait for a run's end lasts at most.
    pub wait_max: WaitMax,
    /// The turns of large reads.
    pub turns: Turns,
    /// What was found by looks through the histories of runs that are redacted.
    pub looks: Looks,
    /// The seals of cursors and page tokens.
    pub seals: Arc<Seals>,
    /// The namespaces that are there.
    pub namespaces: Registry,
    pub process_memory: Arc<Memory>,
}

/// A time that may change while the service runs. A clone is the same one.
#[derive(Clone, Debug)]
pub struct WaitMax(Arc<AtomicU64>);

impl WaitMax {
    /// This time, to the millisecond.
    #[must_use]
    pub fn new(time: Duration) -> Self {
        let wait_max = Self(Arc::new(AtomicU64::new(0)));
        wait_max.set(time);
        wait_max
    }

    /// Sets the time.
    pub fn set(&self, time: Duration) {
        self.0.store(u64::try_from(time.as_millis()).unwrap_or(u64::MAX), Ordering::Relaxed);
    }

    fn get(&self) -> Duration {
        Duration::from_millis(self.0.load(Ordering::Relaxed))
    }
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

/// A call, as a face hands it over.
#[derive(Debug)]
pub struct Call<M> {
    /// The caller, and its namespace.
    pub caller: Caller,
    /// The key by which limits count the call.
    pub key: CallerKey,
    /// The end of the call.
    pub until: Until,
    /// The call's place in a trace.
    pub trace: Option<TraceContext>,
    /// The request.
    pub message: M,
}

impl Authority {
    /// Time that a call waits where it was asked to. The wait ends before the call does, because an answer tells more
    /// than the passing of a deadline.
    fn wait_max(&self, asked: Duration, until: &Until) -> Duration {
        let left = until.end().map_or(WAIT_MAX, |end| {
            let left = end.saturating_duration_since(Instant::now());
            left.saturating_sub((left / 10).min(ANSWER_MARGIN_MAX))
        });
        asked.min(self.wait_max.get()).min(left)
    }

    /// Looks at the ledger's past where a caller names a later epoch: another replica may have seen sooner that the
    /// ledger lost a part of its past.
    async fn knows(&self, epoch: Option<LedgerEpoch>) -> Result<(), StoreError> {
        if epoch.is_some_and(|epoch| epoch > self.store.ledger().epoch) {
            self.store.look_at_past().await?;
        }
        Ok(())
    }
}

fn run_not_found(key: RunKey) -> Problem {
    problem::refusal(&Refusal::RunNotFound { key })
}

/// Refuses to show a run of which only the tombstone is left.
fn kept(run: &Run) -> Result<(), Problem> {
    Refusal::expired(run).map_or(Ok(()), |expired| Err(problem::refusal(&expired)))
}

/// A failed read of one run.
fn unreadable(rpc: &'static str, key: &RunKey, error: &StoreError) -> Problem {
    failed(rpc, &key.namespace, Some(&key.run_id), error)
}

/// A failed read of many runs.
fn unlisted(rpc: &'static str, namespace: &str, error: &StoreError) -> Problem {
    failed(rpc, namespace, None, error)
}

/// Logs why a read failed, and gives the problem for the caller. While the store is away every call fails, and the
/// health monitor has logged it once.
fn failed(rpc: &'static str, namespace: &str, run_id: Option<&str>, error: &StoreError) -> Problem {
    let trace_id = traces::current_id();
    match error {
        StoreError::Unavailable(_) | StoreError::Lost(_) => {
            tracing::debug!(rpc, namespace, run_id, trace_id, error = chain(error), "a read failed");
        }
        StoreError::Refused(_) | StoreError::Corrupt { .. } => {
            tracing::error!(rpc, namespace, run_id, trace_id, error = chain(error), "a read failed");
        }
    }
    problem::store(error)
}

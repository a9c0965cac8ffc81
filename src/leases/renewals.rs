//! Renewals: those of one shard that meet share a write.

use std::collections::{HashSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::mpsc::error::TrySendError;
use tokio::sync::{mpsc, oneshot};
use tokio::time::{Instant, sleep_until, timeout_at};
use tokio_util::sync::CancellationToken;

use crate::domain::ids::{self, Shard};
use crate::domain::{Refusal, Renewal, RunKey, heartbeat};
use crate::store::leases::Renewed;
use crate::store::{Ledger, Store, StoreError};
use crate::supervise::Supervisor;

/// Renewals in one write at most: each is compared with each row.
const RENEWALS_MAX: usize = 128;

/// Renewals that one shard queues at most. Each is a few hundred bytes.
const QUEUE_MAX: usize = 8_192;

/// From one write to the next at least. Nobody waits for a heartbeat's answer, and each write costs a flush: one that
/// comes alone goes at once, and of two thousand a second fifty share one.
const PACE: Duration = Duration::from_millis(25);

/// How long a heartbeat waits for its answer when its caller sets no deadline.
const ANSWER_WAIT_MAX: Duration = Duration::from_secs(15);

/// Why a heartbeat renewed nothing, or perhaps did.
#[derive(Debug)]
pub enum Failure {
    /// The lease is not the caller's, or over.
    Refused(Box<Refusal>),
    /// The queue is full.
    Overloaded,
    /// The process stops.
    Draining,
    /// The caller's deadline passed.
    Deadline,
    /// The store does not answer.
    Store(StoreError),
}

struct Ask {
    key: RunKey,
    renewal: Renewal,
    reply: oneshot::Sender<Result<Option<Renewed>, Arc<StoreError>>>,
}

/// The way in.
pub struct Renewals {
    store: Arc<dyn Store>,
    ledger: Ledger,
    inlets: Vec<mpsc::Sender<Ask>>,
}

impl Renewals {
    /// Starts a writer for each shard.
    #[must_use]
    pub fn start(store: Arc<dyn Store>, supervisor: &Supervisor) -> Self {
        let ledger = store.ledger();
        let inlets = (0..ledger.shard_count).map(|shard| {
            let (inlet, asks) = mpsc::channel(QUEUE_MAX);
            supervisor.vital("renewals", write(store.clone(), Shard(shard), asks, supervisor.stop()));
            inlet
        });
        Self { inlets: inlets.collect(), store, ledger }
    }

    /// Renews a lease and answers when that is durable.
    ///
    /// # Errors
    ///
    /// See [`Failure`]. Where the lease may have been renewed all the same, renewing again does no harm.
    pub async fn renew(&self, key: RunKey, renewal: Renewal, deadline: Option<Instant>) -> Result<Renewed, Failure> {
        let shard = ids::shard_of(self.ledger.id, self.ledger.shard_count, &key);
        let by = Instant::now() + ANSWER_WAIT_MAX;
        let by = deadline.map_or(by, |deadline| deadline.min(by));
        let (reply, answer) = oneshot::channel();
        let ask = Ask { key: key.clone(), renewal: renewal.clone(), reply };
        self.inlets[usize::from(shard.0)].try_send(ask).map_err(|error| match error {
            TrySendError::Full(_) => Failure::Overloaded,
            TrySendError::Closed(_) => Failure::Draining,
        })?;
        match timeout_at(by, answer).await {
            Err(_elapsed) => Err(Failure::Deadline),
            Ok(Err(_dropped)) => Err(Failure::Draining),
            Ok(Ok(Err(error))) => Err(Failure::Store(StoreError::shared(&error))),
            Ok(Ok(Ok(Some(renewed)))) => Ok(renewed),
            Ok(Ok(Ok(None))) => {
                // Read after the write: it shows what was in the way.
                let run = self.store.run(&key).await.map_err(Failure::Store)?;
                Err(Failure::Refused(Box::new(heartbeat::refusal(&key, run.as_ref(), &renewal))))
            }
        }
    }
}

/// Writes what queued while the last write ran, until the stop; what is queued then is still written.
async fn write(store: Arc<dyn Store>, shard: Shard, mut asks: mpsc::Receiver<Ask>, stop: CancellationToken) {
    let mut waiting = VecDeque::new();
    let mut next = Instant::now();
    loop {
        if waiting.is_empty() {
            let ask = tokio::select! {
                biased;
                ask = asks.recv() => ask,
                () = stop.cancelled() => {
                    asks.close();
                    asks.recv().await
                }
            };
            let Some(ask) = ask else { return };
            waiting.push_back(ask);
        }
        if !stop.is_cancelled() {
            sleep_until(next).await;
        }
        next = Instant::now() + PACE;
        while waiting.len() < RENEWALS_MAX {
            let Ok(ask) = asks.try_recv() else { break };
            waiting.push_back(ask);
        }
        let (batch, rest) = distinct(waiting);
        waiting = rest;
        let (renewals, replies): (Vec<_>, Vec<_>) =
            batch.into_iter().map(|ask| ((ask.key, ask.renewal), ask.reply)).unzip();
        match store.renew(shard, &renewals).await {
            Ok(renewed) => {
                for (reply, renewed) in replies.into_iter().zip(renewed) {
                    let _gone = reply.send(Ok(renewed));
                }
            }
            Err(error) => {
                let error = Arc::new(error);
                for reply in replies {
                    let _gone = reply.send(Err(error.clone()));
                }
            }
        }
    }
}

/// The renewals of the next write, which has no run twice, and what waits for the one after. Who went away is left out.
fn distinct(waiting: VecDeque<Ask>) -> (Vec<Ask>, VecDeque<Ask>) {
    let mut seen = HashSet::new();
    let waiting = waiting.into_iter().filter(|ask| !ask.reply.is_closed());
    let (batch, rest): (Vec<Ask>, Vec<Ask>) = waiting.partition(|ask| seen.insert(ask.key.clone()));
    (batch, rest.into())
}

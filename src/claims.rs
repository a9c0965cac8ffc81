//! Claiming work: the oldest pending run that matches, for exactly one of those who ask.
//!
//! Claimers with the same filter share a queue of candidates, which hands each of them another one, in
//! the order of creation. A candidate is only a hint: the claim itself is a command like any other, so what somebody else
//! took first is refused under the shard's head, and the claimer takes the next. Who finds nothing waits for the feed to
//! tell of a new pending run; the database is asked again only then.

mod queue;

use std::collections::HashMap;
use std::pin::pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures_util::StreamExt as _;
use tokio::time::{Instant, sleep};
use tokio_util::sync::CancellationToken;

use self::queue::{Candidate, Claimer, Queue};
use crate::domain::{Changes, Command, Filter, Operation, Principal, Refusal, Run, RunKey, Status, Terms};
use crate::engine::{self, Engine};
use crate::feed::watch_runs::{Begin, Frame};
use crate::feed::{Feed, WatchError};
use crate::store::{Store, StoreError};
use crate::supervise::Supervisor;

/// Queues at once at most: each follows the log for as long as somebody waits at it.
const QUEUES_MAX: usize = 1_024;

/// How long a queue outlives its last claimer, who usually comes back.
const IDLE_MAX: Duration = Duration::from_secs(30);

/// The pause before a watch that was cut is taken up again.
const AGAIN_AFTER: Duration = Duration::from_millis(500);

/// A pending run has one event: whatever else happens to it ends that.
const PENDING_REVISION: u64 = 1;

/// What a claimer asks for.
#[derive(Clone, Debug)]
pub struct Claim {
    /// The namespace that it looks in.
    pub namespace: String,
    /// Which runs; only pending ones are taken, whatever it says of the status.
    pub filter: Filter,
    /// How long the lease lasts.
    pub lease_ttl_ms: u64,
    /// Who claims.
    pub principal: Principal,
    /// Until when it waits for a run, where there is none.
    pub wait_until: Instant,
    /// When its caller stops waiting for the answer.
    pub deadline: Option<Instant>,
}

/// Why a claim has no answer.
#[derive(Debug)]
pub enum Failure {
    /// A claim could not be decided.
    Engine(engine::Failure),
    /// The pending runs cannot be read.
    Store(StoreError),
    /// There are too many different filters at once.
    Overloaded,
    /// The process stops.
    Draining,
}

/// The way in.
pub struct Claims {
    store: Arc<dyn Store>,
    engine: Arc<Engine>,
    feed: Feed,
    queues: Arc<Mutex<HashMap<Wanted, Arc<Queue>>>>,
    supervisor: Supervisor,
    stop: CancellationToken,
}

/// What claimers of one queue have in common.
type Wanted = (String, Filter);

impl Claims {
    /// Nothing is read before the first claim.
    #[must_use]
    pub fn new(store: Arc<dyn Store>, engine: Arc<Engine>, feed: Feed, supervisor: &Supervisor) -> Self {
        let stop = supervisor.stop();
        Self { store, engine, feed, queues: Arc::default(), supervisor: supervisor.clone(), stop }
    }

    /// Takes the oldest pending run that matches and that the claimer may have, and starts it under a lease; none when
    /// there was none for as long as it waits.
    ///
    /// # Errors
    ///
    /// See [`Failure`].
    pub async fn next(&self, claim: &Claim) -> Result<Option<Arc<Run>>, Failure> {
        let filter = Filter { statuses: [Status::Pending].into(), ..claim.filter.clone() };
        let claimer = self.enter(&claim.namespace, filter)?;
        let queue = &*claimer.queue;
        loop {
            let mut told = pin!(queue.told());
            // From here on a new run is told, also while the queue is being read.
            told.as_mut().enable();
            while let Some(candidate) = self.take(queue, claim).await? {
                if let Some(run) = self.claim(claim, candidate).await? {
                    return Ok(Some(run));
                }
            }
            tokio::select! {
                biased;
                () = self.stop.cancelled() => return Err(Failure::Draining),
                () = told => {}
                () = tokio::time::sleep_until(claim.wait_until) => {}
            }
            if claim.wait_until <= Instant::now() {
                // What was acknowledged a moment ago, perhaps by another replica, was perhaps not told yet.
                queue.doubt();
                while let Some(candidate) = self.take(queue, claim).await? {
                    if let Some(run) = self.claim(claim, candidate).await? {
                        return Ok(Some(run));
                    }
                }
                return Ok(None);
            }
        }
    }

    async fn take<'a>(&self, queue: &'a Queue, claim: &Claim) -> Result<Option<Candidate<'a>>, Failure> {
        queue.take(&*self.store, claim.principal.agent_id.as_deref()).await.map_err(Failure::Store)
    }

    /// Claims a candidate; none when it is not to be had any more.
    async fn claim(&self, claim: &Claim, candidate: Candidate<'_>) -> Result<Option<Arc<Run>>, Failure> {
        let command = Command {
            key: RunKey { namespace: claim.namespace.clone(), run_id: candidate.run_id().to_owned() },
            operation: Operation::Claim,
            changes: Changes::default(),
            terms: Terms { lease_ttl_ms: Some(claim.lease_ttl_ms), ..Terms::default() },
            expected_revision: Some(PENDING_REVISION),
            request: None,
            principal: claim.principal.clone(),
        };
        match self.engine.submit(command, claim.deadline).await {
            Ok(answer) => {
                candidate.settle();
                Ok(Some(answer.run))
            }
            Err(engine::Failure::Refused(refusal)) if is_lost_race(&refusal) => {
                candidate.settle();
                Ok(None)
            }
            // Dropped, the candidate goes back to the head of its queue.
            Err(failure) => Err(Failure::Engine(failure)),
        }
    }

    /// Under the lock: a queue that somebody enters is not taken away as idle in the same moment.
    fn enter(&self, namespace: &str, filter: Filter) -> Result<Claimer, Failure> {
        let mut queues = held(&self.queues);
        let wanted = (namespace.to_owned(), filter);
        if let Some(queue) = queues.get(&wanted) {
            return Ok(queue.enter());
        }
        if queues.len() >= QUEUES_MAX {
            return Err(Failure::Overloaded);
        }
        let queue = Arc::new(Queue::new(wanted.0.clone(), wanted.1.clone()));
        queues.insert(wanted.clone(), queue.clone());
        let follower = Follower {
            feed: self.feed.clone(),
            queues: self.queues.clone(),
            queue: queue.clone(),
            wanted,
            stop: self.stop.clone(),
        };
        let claimer = queue.enter();
        self.supervisor.spawn(follower.run());
        Ok(claimer)
    }
}

/// Somebody took or ended it first.
fn is_lost_race(refusal: &Refusal) -> bool {
    match refusal {
        Refusal::RevisionMismatch { .. }
        | Refusal::InvalidTransition { .. }
        | Refusal::LeaseHeld { .. }
        | Refusal::LeaseLost { .. }
        | Refusal::NotOwner { .. }
        | Refusal::RunNotFound { .. }
        | Refusal::RunNotRunning { .. } => true,
        Refusal::RequestIdReused { .. } | Refusal::RunIdConflict { .. } | Refusal::InvalidFields(_) => false,
    }
}

/// Follows the log for one queue, for as long as it has claimers.
struct Follower {
    feed: Feed,
    queues: Arc<Mutex<HashMap<Wanted, Arc<Queue>>>>,
    queue: Arc<Queue>,
    wanted: Wanted,
    stop: CancellationToken,
}

impl Follower {
    async fn run(self) {
        loop {
            tokio::select! {
                biased;
                () = self.stop.cancelled() => return,
                () = self.queue.idle_for(IDLE_MAX) => {
                    let mut queues = held(&self.queues);
                    // Under the lock nobody comes to it: who came before is seen.
                    if self.queue.is_idle() {
                        queues.remove(&self.wanted);
                        return;
                    }
                }
                error = self.follow() => {
                    if !matches!(error, WatchError::Draining) {
                        sleep(AGAIN_AFTER).await;
                    }
                }
            }
        }
    }

    /// Tells of each new run that matches, until the watch is cut.
    async fn follow(&self) -> WatchError {
        let (namespace, filter) = self.wanted.clone();
        let frames = match self.feed.watch_runs(namespace, filter, Begin::Now(None)).await {
            Ok(frames) => frames,
            Err(error) => return error,
        };
        let mut frames = pin!(frames);
        // What came before the watch began, or while there was none, is read.
        self.queue.tell();
        while let Some(frame) = frames.next().await {
            match frame {
                Ok(Frame::Change { matches: true, .. }) => self.queue.tell(),
                Ok(
                    Frame::Change { .. } | Frame::Snapshot { .. } | Frame::CaughtUp { .. } | Frame::Checkpoint { .. },
                ) => {}
                Err(error) => return error,
            }
        }
        WatchError::Draining
    }
}

/// Nothing is left half done under these mutexes, so a poisoned one is as good as any.
fn held<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

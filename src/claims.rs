//! Claiming work: the oldest run that is pending or ready and matches, for exactly one of those who ask.
//!
//! Claimers with the same filter share a queue of candidates, which hands each of them another one, in the order of
//! creation. A candidate is only a hint: the claim itself is a command like any other, so what somebody else took first
//! is refused under the shard's head, and the claimer takes the next. Who finds nothing waits for the feed to tell of a
//! run that is new or ready, or of the end of one that had to end first; meanwhile the database is not asked again,
//! unless more wait than a queue keeps.

mod candidate;
mod candidates;
mod give_back;
mod queue;
mod running;
mod state;

use std::collections::HashMap;
use std::pin::pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures_util::StreamExt as _;
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep, sleep_until, timeout_at};
use tokio_util::sync::CancellationToken;

use self::candidate::Candidate;
use self::queue::{Claimer, Queue};
use self::state::Wanted;
use crate::domain::sides::claims;
use crate::domain::{self, Ask, Command, Filter, Lease, MaxRunning, Principal, Refusal, Request, Run, RunKey, Status};
use crate::engine::{self, Engine, Unreceived};
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

/// How often, at most, a claimer that waits looks whether another attempt of its request has claimed.
const LOOK_AGAIN_MIN: Duration = Duration::from_secs(1);

/// What a claimer asks for.
#[derive(Clone, Debug)]
pub struct Claim {
    /// The namespace that it looks in.
    pub namespace: String,
    /// Which runs; only those that wait for a claim are taken, whatever it says of the status.
    pub filter: Filter,
    /// How many runs with the same value of a label may be running.
    pub max_running: Option<MaxRunning>,
    /// How long the lease lasts.
    pub lease_ttl_ms: u64,
    /// Who claims.
    pub principal: Principal,
    /// The claimer's own request, by which it may ask again for the run that it was granted.
    pub request: Option<Request>,
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
    /// The runs that wait cannot be read.
    Store(StoreError),
    /// The claimer's own request was answered before, and that cannot be repeated.
    Refused(Box<Refusal>),
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

impl Claims {
    /// Nothing is read before the first claim.
    #[must_use]
    pub fn new(store: Arc<dyn Store>, engine: Arc<Engine>, feed: Feed, supervisor: &Supervisor) -> Self {
        let stop = supervisor.stop();
        if let Some(unreceived) = engine.unreceived() {
            supervisor.vital("claims", give_back::run(engine.clone(), unreceived, stop.clone()));
        }
        Self { store, engine, feed, queues: Arc::default(), supervisor: supervisor.clone(), stop }
    }

    /// Takes the oldest run that waits for a claim, matches and may be the claimer's, and starts it under a lease; none when
    /// there was none for as long as it waits. A request that was answered before is answered with the same run.
    ///
    /// # Errors
    ///
    /// See [`Failure`].
    pub async fn next(&self, claim: &Claim) -> Result<Option<Granted>, Failure> {
        let claimer = self.enter(Wanted {
            namespace: claim.namespace.clone(),
            filter: Filter { statuses: [Status::Pending].into(), or_ready: true, ..claim.filter.clone() },
            max_running: claim.max_running.clone(),
        })?;
        let queue = &*claimer.queue;
        let agent_id = claim.principal.agent_id.as_deref();
        let is_over = || claim.wait_until <= Instant::now();
        loop {
            let found = queue.take(&*self.store, agent_id).await.map_err(Failure::Store)?;
            let found = match found {
                Some(candidate) => Some(candidate),
                None if is_over() => match queue.take_fresh(&*self.store, agent_id).await.map_err(Failure::Store)? {
                    Some(candidate) => Some(candidate),
                    None => return self.replay(claim).await,
                },
                None => {
                    // What waits here is found by its claim; what another attempt of the same request took is not.
                    if let Some(granted) = self.replay(claim).await? {
                        return Ok(Some(granted));
                    }
                    let look_again = Instant::now() + Duration::from_millis(claim.lease_ttl_ms / 3).max(LOOK_AGAIN_MIN);
                    let until =
                        if claim.request.is_some() { claim.wait_until.min(look_again) } else { claim.wait_until };
                    // Who is told of a run has nothing else to do: not while it reads, or claims another.
                    let mut told = pin!(queue.told());
                    told.as_mut().enable();
                    let found = queue.take(&*self.store, agent_id).await.map_err(Failure::Store)?;
                    if found.is_none() {
                        tokio::select! {
                            biased;
                            () = self.stop.cancelled() => return Err(Failure::Draining),
                            () = told => {}
                            () = sleep_until(until) => {}
                        }
                    }
                    found
                }
            };
            if let Some(candidate) = found
                && let Some(granted) = self.claim(claim, candidate).await?
            {
                return Ok(Some(granted));
            }
        }
    }

    /// What the claimer's own request was answered with, if it was.
    async fn replay(&self, claim: &Claim) -> Result<Option<Granted>, Failure> {
        let Some(request) = &claim.request else { return Ok(None) };
        let found = self.store.claimed(&claim.namespace, &request.id).await.map_err(Failure::Store)?;
        let Some(found) = found else { return Ok(None) };
        if found.digest != request.digest {
            let (key, request_id) = (found.key, request.id.clone());
            return Err(Failure::Refused(Box::new(Refusal::RequestIdReused { key, request_id })));
        }
        let lease = Lease { epoch: found.epoch, ttl_ms: claim.lease_ttl_ms, released: false };
        // Whoever goes from here on has perhaps been noted as one that is answered.
        let (key, replays) = (found.key, found.replays + 1);
        let answer = Unreceived { key, lease, request: Some(request.clone()), replays, revision: None };
        let mut undelivered = Undelivered { to: self.engine.tell_unreceived(), answer: Some(answer) };
        let noted = async {
            let Some(claimed) = self.store.replay_claim(&claim.namespace, &request.id).await? else { return Ok(None) };
            if let Some(answer) = &mut undelivered.answer {
                answer.replays = claimed.replays;
            }
            let run = self.store.run(&claimed.key).await?;
            Ok::<_, StoreError>(Some((claimed, run)))
        };
        let noted = match claim.deadline {
            Some(deadline) => timeout_at(deadline, noted).await.ok(),
            None => Some(noted.await),
        };
        // It was claimed: "nothing was written" would be false.
        let Some(Ok(noted)) = noted else { return Err(Failure::Engine(engine::Failure::OutcomeUnknown)) };
        undelivered.answer = None;
        // Given back in between, it is claimed anew.
        let Some((claimed, run)) = noted else { return Ok(None) };
        claims::still_held(&claimed, run.as_ref()).map_err(|refusal| Failure::Refused(Box::new(refusal)))?;
        Ok(run.map(|run| Granted { run: Arc::new(run), replayed: true }))
    }

    /// Claims a candidate; none when it is not to be had any more.
    async fn claim(&self, claim: &Claim, mut candidate: Candidate<'_>) -> Result<Option<Granted>, Failure> {
        let ask = Ask::Claim(domain::Claim {
            expected_epoch: None,
            lease_ttl_ms: claim.lease_ttl_ms,
            max_running: claim.max_running.clone(),
            only_waiting: true,
            request: claim.request.clone(),
        });
        let command = Command {
            key: RunKey { namespace: claim.namespace.clone(), run_id: candidate.run_id().to_owned() },
            ask,
            expected_revision: None,
            request: None,
            principal: claim.principal.clone(),
        };
        loop {
            match self.engine.submit(command.clone(), claim.deadline).await {
                Ok(answer) => {
                    candidate.claimed();
                    return Ok(Some(Granted { run: answer.run, replayed: false }));
                }
                Err(engine::Failure::Refused(refusal)) if is_lost_race(&refusal) => {
                    candidate.lost();
                    return Ok(None);
                }
                // Another attempt of the same request was quicker, perhaps on another replica.
                Err(engine::Failure::Refused(refusal)) if matches!(*refusal, Refusal::ClaimedBefore { .. }) => {
                    drop(candidate);
                    return self.replay(claim).await;
                }
                Err(engine::Failure::Refused(refusal)) => {
                    let Refusal::MaxRunning { running, .. } = &*refusal else {
                        return Err(Failure::Engine(engine::Failure::Refused(refusal)));
                    };
                    // Where one of them has ended meanwhile, that is not told again.
                    if candidate.waits_for(running) {
                        return Ok(None);
                    }
                }
                // Dropped, the candidate goes back to the head of its queue.
                Err(failure) => return Err(Failure::Engine(failure)),
            }
        }
    }

    /// Under the lock: a queue that somebody enters is not taken away as idle in the same moment.
    fn enter(&self, wanted: Wanted) -> Result<Claimer, Failure> {
        let mut queues = held(&self.queues);
        if let Some(queue) = queues.get(&wanted) {
            return Ok(queue.enter());
        }
        if queues.len() >= QUEUES_MAX {
            return Err(Failure::Overloaded);
        }
        let queue = Arc::new(Queue::new(wanted.clone()));
        queues.insert(wanted, queue.clone());
        let follower = Follower {
            feed: self.feed.clone(),
            queues: self.queues.clone(),
            queue: queue.clone(),
            stop: self.stop.clone(),
        };
        let claimer = queue.enter();
        self.supervisor.spawn(follower.run());
        Ok(claimer)
    }
}

/// An answer on its way to a claimer who asked again. Dropped with it, the claimer has gone.
struct Undelivered {
    to: Option<mpsc::Sender<Unreceived>>,
    answer: Option<Unreceived>,
}

impl Drop for Undelivered {
    fn drop(&mut self) {
        if let (Some(to), Some(answer)) = (&self.to, self.answer.take()) {
            // Where there is no room, the lease ends by its ttl.
            let _full = to.try_send(answer);
        }
    }
}

/// What a claimer was granted.
#[derive(Clone, Debug, PartialEq)]
pub struct Granted {
    /// The run, under the claimer's lease.
    pub run: Arc<Run>,
    /// Its request was answered with it before.
    pub replayed: bool,
}

/// Every run that is new, is ready, or has ended.
fn came_or_ended() -> Filter {
    let statuses = Status::ALL.into_iter().filter(|status| *status != Status::Running);
    Filter { statuses: statuses.collect(), or_ready: true, ..Filter::default() }
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
        Refusal::RequestIdReused { .. }
        | Refusal::RunBegun { .. }
        | Refusal::ClaimedBefore { .. }
        | Refusal::RunIdConflict { .. }
        | Refusal::MaxRunning { .. }
        | Refusal::InvalidFields(_) => false,
    }
}

/// Follows the log for one queue, for as long as it has claimers.
struct Follower {
    feed: Feed,
    queues: Arc<Mutex<HashMap<Wanted, Arc<Queue>>>>,
    queue: Arc<Queue>,
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
                        queues.remove(&self.queue.wanted);
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

    /// Tells of each run that matches, and where there is a limit of every run that ends, until the watch is cut.
    async fn follow(&self) -> WatchError {
        let Wanted { namespace, filter, max_running } = &self.queue.wanted;
        // What counts towards a limit may match another filter.
        let filter = if max_running.is_some() { came_or_ended() } else { filter.clone() };
        let frames = match self.feed.watch_runs(namespace.clone(), filter, Begin::Now(None)).await {
            Ok(frames) => frames,
            Err(error) => return error,
        };
        let mut frames = pin!(frames);
        self.queue.begin();
        while let Some(frame) = frames.next().await {
            match frame {
                Ok(Frame::Change { after, .. }) => self.queue.tell(&after),
                Ok(Frame::Snapshot { .. } | Frame::CaughtUp { .. } | Frame::Checkpoint { .. }) => {}
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

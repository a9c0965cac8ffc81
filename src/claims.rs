//! Claiming work: the first run by priority, and then by age, that is pending or ready and matches, for exactly one
//! claimer.
//!
//! Claimers with one namespace, filter, `take` and `max_running` share a queue of candidates. The queue reads them a
//! page at a time, and from the end of what is there on is told of them by the feed; it hands each claimer another one.
//! A candidate may be taken already: the claim itself is a command like any other, so the claim of a run that another
//! caller took first is refused under the shard's head, and the claimer takes the next candidate. A claimer that finds
//! none waits for the feed to tell of a run that is new or ready, or of the end of a run that had to end first;
//! meanwhile the queue does not ask the database again.
//!
//! `queues` finds the queue of a claimer, `queue` reads pages for it, `backlog` decides which claimer is handed which
//! run, `lanes` keeps the runs that wait, `max_running` those that are running, and `room` bounds the memory of all
//! queues. `more` claims what a claimer takes beside its first run, `replay` answers requests that were answered
//! before, `grant` is what a claimer gets, and `give_back` makes runs ready whose claimers have gone.
//!
//! Invariants:
//!
//! - A claimer that gives up has waited until the feed told of every event that was acknowledged before, by a read of
//!   the log's end that began after the claimer came.
//! - Where there are too many queues, a new filter evicts the one that is idle for the longest: where
//!   its caller has too many, one of the caller's own.
//! - A queue remembers the runs that filled a value of a label when a claim was refused for `max_running`. It asks the
//!   store once whether they still count, and passes over their value until the feed tells of an end.

mod backlog;
mod failure;
mod give_back;
mod grant;
mod lanes;
mod limits;
mod max_running;
mod more;
mod queue;
mod queue_key;
mod queues;
mod replay;
mod room;

use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use futures_util::FutureExt as _;
use tokio::time::{Instant, sleep_until};
use tokio_util::sync::CancellationToken;

use self::backlog::Outcome;
pub use self::failure::Failure;
use self::grant::ToGiveBack;
pub use self::grant::{Grant, Granted};
use self::lanes::Taker;
pub use self::limits::Limits;
use self::queue::Candidate;
use self::queue_key::QueueKey;
use self::queues::{Claimer, Queues};
use crate::domain::{
    self, Agents, Ask, Cause, Command, Filter, MaxRunning, Namespace, Principal, Refusal, Request, RunId, RunKey, Take,
    TraceContext,
};
use crate::engine::{self, Engine};
use crate::fairness::{CallerKey, Turn, Turns, spread};
use crate::feed::Feed;
use crate::store::query::Reach;
use crate::store::{Runs, Upkeep};
use crate::tasks::Supervisor;

/// The pause, at least, between two looks of a claimer that waits, whether another attempt of its request has claimed.
const LOOK_AGAIN_MIN: Duration = Duration::from_secs(1);

/// Claimers that read at once: one of each caller, so that the many filters of one keep no other one from its runs.
const READERS: usize = 2;

/// The time that a claimer waits for its turn to read, also where it does not wait for a run.
const TURN_WAIT_MAX: Duration = Duration::from_secs(2);

/// The time that a claimer who gives up waits for the claims of runs that others have in their hands; half of what is left
/// until its deadline at most.
const IN_HAND_WAIT_MAX: Duration = Duration::from_secs(2);

/// The wait before a claimer is asked to come back to a process whose queues all have claimers.
const QUEUE_RETRY: Duration = Duration::from_secs(1);

/// A claimer's question for work.
#[derive(Clone, Debug)]
pub struct Claim {
    /// The namespace that the claimer looks in.
    pub namespace: Namespace,
    /// The runs that the claimer takes; only those that wait for a claim, whatever the filter says of the status.
    pub filter: Filter,
    /// Which of the runs that wait for a claim the claimer takes.
    pub take: Take,
    /// The limit of runs with the same value of a label that may be running.
    pub max_running: Option<MaxRunning>,
    /// The length of the lease.
    pub lease_ttl_ms: u64,
    /// The caller.
    pub principal: Principal,
    /// The agents whose runs the caller may write.
    pub agents: Agents,
    /// The key by which limits count the caller.
    pub caller: CallerKey,
    /// The number of runs that the claimer takes at most.
    pub max_runs: usize,
    /// The bytes of runs that the answer has room for.
    pub bytes_max: usize,
    /// The claimer's own request, by which the claimer may ask again for what was granted.
    pub request: Option<Request>,
    /// The end of the wait for a run, where there is none.
    pub wait_until: Instant,
    /// The time at which the caller stops waiting for the answer.
    pub deadline: Option<Instant>,
    /// The call's place in a trace.
    pub trace: Option<TraceContext>,
}

/// The entry of claims.
pub struct Claims {
    runs: Arc<dyn Runs>,
    upkeep: Arc<dyn Upkeep>,
    engine: Arc<Engine>,
    feed: Feed,
    queues: Arc<Queues>,
    turns: Arc<Turns>,
    /// The number of claims that were refused as too much.
    refused: AtomicU64,
    supervisor: Supervisor,
    stop: CancellationToken,
    began: Instant,
}

impl Claims {
    /// Prepares the queues. No run is read before the first claim.
    #[must_use]
    pub fn new(
        runs: Arc<dyn Runs>,
        upkeep: Arc<dyn Upkeep>,
        engine: Arc<Engine>,
        feed: Feed,
        supervisor: &Supervisor,
        limits: Limits,
    ) -> Self {
        let stop = supervisor.stop();
        if let Some(unreceived) = engine.unreceived() {
            supervisor.vital("claims", give_back::run(engine.clone(), unreceived, stop.clone()));
        }
        let (queues, turns, refused) = (Arc::new(Queues::new(limits)), Turns::new(READERS), AtomicU64::new(0));
        let (supervisor, began) = (supervisor.clone(), Instant::now());
        Self { runs, upkeep, engine, feed, queues, turns, refused, supervisor, stop, began }
    }

    /// Takes the oldest run that waits for a claim, matches and may be the claimer's, and starts it under a lease;
    /// none when there was none for as long as the claimer waits. A request that was answered before is answered with
    /// the same run. Once `cut` ends, nothing more is claimed; a claim that is being committed is still answered.
    ///
    /// # Errors
    ///
    /// See [`Failure`].
    pub async fn next(&self, claim: &Claim, cut: impl Future<Output = ()>) -> Result<Option<Granted>, Failure> {
        let mut cut = pin!(cut);
        // What few claims come to is boxed, here and below: the future of each claim would need room for it.
        if claim.request.is_some()
            && let Some(granted) = Box::pin(unless_cut(cut.as_mut(), self.replay_older(claim))).await?
        {
            return Ok(Some(granted));
        }
        let mut came = Instant::now();
        let (claimer, mut turn) = unless_cut(cut.as_mut(), self.enter(claim)).await?;
        let queue = claimer.queue.clone();
        let agent_id = claim.principal.agent_id.as_deref();
        let (runs, taker) = (&*self.runs, Taker { agent_id, agents: &claim.agents });
        let mut look_again = Instant::now();
        let mut looked = None;
        loop {
            let news = queue.backlog().news().count;
            let is_over = claim.wait_until <= Instant::now();
            // Without news, a claimer that looked in vain would look in vain again.
            if (is_over || looked.replace(news) != Some(news))
                && let Some(candidate) = {
                    // A run at hand needs neither a turn nor a wait. The time until here may have been long.
                    if cut.as_mut().now_or_never().is_some() {
                        return Err(Failure::Cut);
                    }
                    let at_hand = if turn.is_none() { queue.known(taker) } else { None };
                    if at_hand.is_some() {
                        at_hand
                    } else {
                        let gives_up = is_over.then(|| in_hand_until(claim));
                        let taking =
                            queue.find(runs, (taker, came), gives_up, turn.take(), |reach| self.turn(claim, reach));
                        Box::pin(unless_cut(cut.as_mut(), taking)).await?
                    }
                }
            {
                let to_give_back = ToGiveBack::new(&self.engine);
                if let Some(mut granted) = self.claim(claim, candidate, &to_give_back).await? {
                    if !granted.replayed && claim.max_runs > 1 {
                        let claiming = (claim, &to_give_back);
                        let more = self.more(claiming, (&queue, taker), granted.first.run(), cut.as_mut());
                        granted.more = Box::pin(more).await;
                    }
                    return Ok(Some(granted));
                }
                (looked, came) = (None, Instant::now());
                continue;
            }
            if is_over {
                return Box::pin(unless_cut(cut.as_mut(), self.replay(claim))).await;
            }
            // The claim of a run that waits finds an earlier attempt of the same request; a claimer that waits has to
            // look.
            if claim.request.is_some() && look_again <= Instant::now() {
                if let Some(granted) = Box::pin(unless_cut(cut.as_mut(), self.replay_if_begun(claim))).await? {
                    return Ok(Some(granted));
                }
                look_again = Instant::now() + Duration::from_millis(claim.lease_ttl_ms / 3).max(LOOK_AGAIN_MIN);
            }
            let until = if claim.request.is_some() { claim.wait_until.min(look_again) } else { claim.wait_until };
            tokio::select! {
                biased;
                () = self.stop.cancelled() => return Err(Failure::Draining),
                () = cut.as_mut() => return Err(Failure::Cut),
                () = claimer.wait(news) => {}
                () = sleep_until(until) => {}
            }
            came = Instant::now();
        }
    }

    /// About the bytes of the runs that are known to count towards limits.
    #[must_use]
    pub fn counted_bytes(&self) -> usize {
        self.queues.counted_bytes()
    }

    /// About the bytes that the queues take, and how many they may.
    #[must_use]
    pub fn bytes(&self) -> (usize, usize) {
        (self.queues.bytes(), self.queues.bytes_max())
    }

    /// The claimer's place at its queue. A queue that is new has to be read: it is made in the claimer's turn to read it,
    /// which is the second value. So whoever asks for many queues at once has them made one after the other.
    async fn enter(&self, claim: &Claim) -> Result<(Claimer, Option<Turn>), Failure> {
        let key = QueueKey::new(claim.namespace.clone(), claim.filter.clone(), claim.take, claim.max_running.clone());
        if let Some(claimer) = self.queues.enter(&key) {
            return Ok((claimer, None));
        }
        let turn = self.turn(claim, Reach::Short).await?;
        // Another claimer may have made the queue meanwhile, and reads it.
        if let Some(claimer) = self.queues.enter(&key) {
            return Ok((claimer, None));
        }
        let entered = self.queues.enter_new(claim.caller, key, &self.stop, |queue, evicted| {
            self.supervisor.spawn(queues::follow(
                self.feed.of_caller(claim.caller),
                self.queues.clone(),
                queue,
                evicted,
            ));
        });
        Ok((entered.ok_or_else(|| self.overloaded(QUEUE_RETRY))?, Some(turn)))
    }

    /// The claimer's turn to read a page of runs that wait. A claimer that waits for a run waits for its turn as long.
    async fn turn(&self, claim: &Claim, reach: Reach) -> Result<Turn, Failure> {
        let wait = claim.wait_until.saturating_duration_since(Instant::now()).max(TURN_WAIT_MAX);
        let turn = match reach {
            Reach::Short => self.turns.turn(claim.caller, wait).await,
            Reach::Long => self.turns.long_turn(claim.caller, wait).await,
        };
        turn.map_err(|waited| self.overloaded(waited.min(TURN_WAIT_MAX)))
    }

    fn overloaded(&self, wait: Duration) -> Failure {
        Failure::Overloaded { wait: spread(wait, self.refused.fetch_add(1, Ordering::Relaxed)) }
    }

    /// Claims a candidate; none when the run is not to be had any more.
    async fn claim(
        &self,
        claim: &Claim,
        candidate: Candidate<'_>,
        to_give_back: &ToGiveBack,
    ) -> Result<Option<Granted>, Failure> {
        let command = command(claim, claim.request.clone(), &candidate.run_id);
        match self.engine.submit_for(claim.caller, command, claim.deadline).await {
            Ok(answer) => {
                candidate.decided(Outcome::Claimed);
                let first = to_give_back.granted(answer.run, claim.request.clone());
                Ok(Some(Granted { first, more: Vec::new(), replayed: false }))
            }
            Err(engine::Failure::Refused(refusal)) => self.refused(claim, candidate, refusal).await,
            // Dropped, the candidate waits for the next claimer.
            Err(failure) => Err(Failure::Engine(failure)),
        }
    }

    async fn refused(
        &self,
        claim: &Claim,
        candidate: Candidate<'_>,
        refusal: Box<Refusal>,
    ) -> Result<Option<Granted>, Failure> {
        if let Refusal::MaxRunning { running, .. } = &*refusal {
            candidate.refused(&*self.runs, running).await.map_err(Failure::Store)?;
            return Ok(None);
        }
        if let Refusal::ClaimedBefore { .. } = &*refusal {
            // Another attempt of the same request was quicker, perhaps on another replica.
            candidate.decided(Outcome::Waits);
            return Box::pin(self.replay(claim)).await;
        }
        match refusal.cause() {
            // Another caller took or ended the run first.
            Cause::Run => {
                candidate.decided(Outcome::Lost);
                Ok(None)
            }
            Cause::Lifecycle | Cause::Call => Err(Failure::Engine(engine::Failure::Refused(refusal))),
        }
    }
}

/// The end of the wait for runs that others have in their hands.
fn in_hand_until(claim: &Claim) -> Instant {
    let now = Instant::now();
    let left = claim.deadline.map_or(IN_HAND_WAIT_MAX, |deadline| deadline.saturating_duration_since(now) / 2);
    now + left.min(IN_HAND_WAIT_MAX)
}

/// Does a part of a claimer's work that commits nothing, unless the claimer's connection ends.
async fn unless_cut<T>(
    cut: impl Future<Output = ()>,
    work: impl Future<Output = Result<T, Failure>>,
) -> Result<T, Failure> {
    tokio::select! {
        biased;
        () = cut => Err(Failure::Cut),
        done = work => done,
    }
}

/// The claim of a candidate.
fn command(claim: &Claim, request: Option<Request>, run_id: &RunId) -> Command {
    Command {
        key: RunKey { namespace: claim.namespace.clone(), run_id: run_id.clone() },
        ask: Ask::Claim(domain::Claim {
            expected_epoch: None,
            lease_ttl_ms: claim.lease_ttl_ms,
            max_running: claim.max_running.clone(),
            only: Some(claim.take),
            request,
        }),
        expected_revision: None,
        request: None,
        principal: claim.principal.clone(),
        agents: claim.agents.clone(),
        oversize: Vec::new(),
        prepared: crate::domain::Prepared::default(),
        trace: claim.trace,
    }
}

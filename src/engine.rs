//! The command path: a bounded queue and one committer per shard.
//!
//! Callers [`submit`](Engine::submit) a command and wait. A shard's committer takes the commands that queued while its
//! last commit ran, so that load sets the size of a batch and no timer does. The engine holds no rules and keeps no
//! state of runs, and never names the feed. By a channel it tells `claims` of a claim that nobody received.
//!
//! Invariants:
//!
//! - Answers go out after the commit, refusals too: a refusal may rest on a neighbour in the batch.
//! - A commit of unknown outcome is settled before its callers are answered. A caller is told that the outcome is
//!   unknown only when the caller's time is over, or the store is lost.

mod batch;
mod commit_health;
mod committer;
mod inlet;
mod limits;
mod metrics;
mod recovery;
mod slots;
mod unreceived;

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use tokio::sync::{Notify, mpsc};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::domain::{Command, Disposition, Refusal, Revision, Run, RunKey, Verdict, ids};
use crate::fairness::{CallerKey, Shares, Turns};
use crate::store::{Commits, Ledger, Runs, StoreError, attached, run_at};
use crate::tasks::Supervisor;
use crate::telemetry::{chain, traces};
use batch::Queue;
pub use commit_health::{CommitHealth, CommitOutage};
use committer::Committer;
use inlet::{InHand, Inlet, Pending, Ticket};
pub use limits::Limits;
use slots::Slots;
use unreceived::{Awaited, IfUnreceived, Reply, ToUnreceived};
pub use unreceived::{Unclaimer, Unreceived};

/// The time that a command waits for its answer when its caller sets no deadline.
pub const ANSWER_WAIT_MAX: Duration = Duration::from_secs(15);

/// Runs that are read at once as replayed calls had left them.
const REPLAYS_AT_ONCE: usize = 2;

/// The reason for which a command has no answer.
#[derive(Clone, Debug, PartialEq)]
pub enum Failure {
    /// The rules refuse the command, which wrote nothing.
    Refused(Box<Refusal>),
    /// The caller's share of the queue is full, or the command waited in it for too long. The command wrote nothing.
    Overloaded {
        /// The time that a command which is queued now would wait, about.
        wait: Duration,
    },
    /// The process stops. The command wrote nothing.
    Draining,
    /// The store does not answer. The command wrote nothing.
    StoreUnavailable,
    /// The store refuses this command, for certain. The command wrote nothing; the service's log says why.
    StoreRefused,
    /// The store's rows of this run cannot be read. The command wrote nothing; the service's log says which rows.
    StoreCorrupt,
    /// The caller's deadline passed while the command was queued. The command wrote nothing.
    Deadline,
    /// The command may have been applied.
    OutcomeUnknown,
}

/// The durable effect of a command.
#[derive(Clone, Debug, PartialEq)]
pub struct Answer {
    /// The run after the call; when replayed, as right after the call that was applied.
    pub run: Arc<Run>,
    /// The call's disposition.
    pub disposition: Disposition,
    /// The run's revision now.
    pub current_revision: Revision,
    /// The number of values that a redaction took out; none: it is none, or made no event now.
    pub values_redacted: Option<u64>,
}

/// The commands of one shard that have no answer yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Unanswered {
    /// The number of commands: queued, or in the commit that is under way.
    pub commands: usize,
    /// The time that the oldest of them has waited.
    pub oldest: Option<Duration>,
}

/// A caller's wait for the answer to one command.
struct Wait {
    key: RunKey,
    reply: Awaited,
    ticket: Ticket,
}

/// A caller's waits for the answers to a list. The last one is given up first, also where all are: a committer that takes
/// commands meanwhile takes none whose predecessor was given up.
struct Waits {
    waits: VecDeque<Wait>,
    /// Claims that were answered, until the whole list is.
    claims: Vec<(Box<IfUnreceived>, Verdict)>,
}

impl Waits {
    /// The next command that is answered; none after the last one, and once the time is over.
    async fn next(&mut self, by: Instant) -> Option<(RunKey, Option<Reply>)> {
        let wait = self.waits.front_mut()?;
        let (reply, if_unreceived) = tokio::time::timeout_at(by, wait.reply.kept_answer()).await.ok()?;
        if let (Some(Ok(verdict)), Some(if_unreceived)) = (&reply, if_unreceived) {
            self.claims.push((if_unreceived, verdict.clone()));
        }
        self.waits.pop_front().map(|wait| (wait.key, reply))
    }

    /// Gives up all commands that are not answered, and says what is known of each.
    fn give_up(&mut self, until: AnswerBy) -> Vec<Result<Answer, Failure>> {
        let mut late: Vec<_> = self.waits.iter_mut().rev().map(|wait| until.passed(wait)).collect();
        late.reverse();
        late
    }
}

impl Drop for Waits {
    fn drop(&mut self) {
        while let Some(last) = self.waits.pop_back() {
            drop(last);
        }
        for (claim, verdict) in self.claims.drain(..) {
            claim.lost(&verdict);
        }
    }
}

/// The time by which a command is answered.
#[derive(Clone, Copy, Debug)]
struct AnswerBy {
    by: Instant,
    /// Whether it is the caller's deadline.
    is_deadline: bool,
}

impl AnswerBy {
    /// # Errors
    ///
    /// The deadline has passed.
    fn new(deadline: Option<Instant>) -> Result<Self, Failure> {
        let (now, latest) = (Instant::now(), Instant::now() + ANSWER_WAIT_MAX);
        match deadline {
            Some(deadline) if deadline <= now => Err(Failure::Deadline),
            Some(deadline) if deadline <= latest => Ok(Self { by: deadline, is_deadline: true }),
            Some(_) | None => Ok(Self { by: latest, is_deadline: false }),
        }
    }

    /// Gives a command up whose time has passed. It may have been answered just then.
    fn passed(&self, wait: &mut Wait) -> Result<Answer, Failure> {
        match (wait.ticket.withdraw(), self.is_deadline) {
            (false, _) => match wait.reply.answer_now() {
                Some(Ok(Verdict::Done(disposition, run))) => {
                    Ok(Answer { current_revision: run.revision, run, disposition, values_redacted: None })
                }
                Some(Ok(Verdict::Redacted { .. } | Verdict::Replayed { .. })) | None => Err(Failure::OutcomeUnknown),
                Some(Err(failure)) => Err(failure),
            },
            (true, true) => Err(Failure::Deadline),
            (true, false) => Err(Failure::StoreUnavailable),
        }
    }
}

/// A command that was queued for a caller. Dropped before the answer, the command is withdrawn if it is still queued.
#[must_use = "dropped, the command is withdrawn"]
pub struct Submitted {
    caller: CallerKey,
    wait: Wait,
    until: AnswerBy,
}

/// The way in. Dropping a submitted call's future withdraws it only while it is queued.
pub struct Engine {
    runs: Arc<dyn Runs>,
    ledger: Ledger,
    inlets: Vec<Inlet>,
    bytes: Arc<Shares>,
    /// The turns in which runs are read as replayed calls had left them: each is folded from some events.
    replays: Arc<Turns>,
    health: Arc<CommitHealth>,
    closed: AtomicBool,
    ending: CancellationToken,
    unreceived: ToUnreceived,
}

impl Engine {
    /// Starts a committer for each shard. `runs` gives the run that a replayed call had made; `committed` is notified
    /// after each commit that made events.
    #[must_use]
    pub fn start(
        commits: &Arc<dyn Commits>,
        runs: Arc<dyn Runs>,
        supervisor: &Supervisor,
        committed: &Arc<Notify>,
        limits: Limits,
    ) -> Self {
        let ledger = commits.ledger();
        let ending = CancellationToken::new();
        let slots = Slots::new(commits.commits_max());
        let bytes = inlet::byte_budget(&limits);
        let health = Arc::new(CommitHealth::new());
        let inlets = (0..ledger.shard_count)
            .map(|shard| {
                let (inlet, queue, in_hand) = inlet::inlet(bytes.clone(), &limits);
                let (slots, health) = (slots.clone(), health.clone());
                let task = Committer::new(commits.clone(), ids::Shard(shard), slots, committed.clone(), health);
                supervisor.vital("committer", task.run(Queue::new(queue, in_hand, limits), ending.clone()));
                inlet
            })
            .collect();
        let closed = AtomicBool::new(false);
        let (replays, unreceived) = (Turns::new(REPLAYS_AT_ONCE), ToUnreceived::new());
        Self { runs, ledger, inlets, bytes, replays, health, closed, ending, unreceived }
    }

    /// Commits a caller's command and answers, at the latest at `deadline` or after [`ANSWER_WAIT_MAX`].
    ///
    /// # Errors
    ///
    /// See [`Failure`]: only [`Failure::OutcomeUnknown`] may have been applied.
    pub async fn submit_for(
        &self,
        caller: CallerKey,
        command: Command,
        deadline: Option<Instant>,
    ) -> Result<Answer, Failure> {
        self.answer(self.queue_for(caller, command, deadline)?).await
    }

    /// Queues a caller's command, for [`answer`](Engine::answer): no future needs room for the command from then on. A future
    /// is moved into the one that awaits it, so a command inside of the deepest one is copied once for each around it.
    ///
    /// # Errors
    ///
    /// The command was not queued: it wrote nothing.
    pub fn queue_for(
        &self,
        caller: CallerKey,
        command: Command,
        deadline: Option<Instant>,
    ) -> Result<Submitted, Failure> {
        if self.closed.load(Ordering::Relaxed) {
            return Err(Failure::Draining);
        }
        self.queue(caller, command, deadline)
    }

    /// Commits a command of the authority's own. See [`submit_for`](Engine::submit_for).
    ///
    /// # Errors
    ///
    /// See [`Failure`]: only [`Failure::OutcomeUnknown`] may have been applied.
    pub async fn submit(&self, command: Command, deadline: Option<Instant>) -> Result<Answer, Failure> {
        self.submit_for(CallerKey::AUTHORITY, command, deadline).await
    }

    /// Like [`submit`](Engine::submit), but also between [`close`](Engine::close) and [`end`](Engine::end): for
    /// commands that follow from calls accepted before.
    ///
    /// # Errors
    ///
    /// See [`submit`](Engine::submit).
    pub async fn submit_at_last(&self, command: Command, deadline: Option<Instant>) -> Result<Answer, Failure> {
        self.answer(self.queue(CallerKey::AUTHORITY, command, deadline)?).await
    }

    /// Commits a caller's commands, each by itself, and tells the answers in their order, each once those before it are
    /// told. Those of one run are decided in their order. All are queued, or none.
    ///
    /// # Errors
    ///
    /// None of the commands was queued: they wrote nothing.
    pub async fn submit_all_for(
        &self,
        caller: CallerKey,
        commands: Vec<Command>,
        deadline: Option<Instant>,
        mut tell: impl FnMut(Result<Answer, Failure>) + Send,
    ) -> Result<(), Failure> {
        if self.closed.load(Ordering::Relaxed) {
            return Err(Failure::Draining);
        }
        let until = AnswerBy::new(deadline)?;
        let mut by_shard: Vec<Vec<Pending>> = self.inlets.iter().map(|_| Vec::new()).collect();
        let lists: Vec<Arc<OnceLock<Failure>>> = self.inlets.iter().map(|_| Arc::default()).collect();
        let mut waits = Waits { waits: VecDeque::with_capacity(commands.len()), claims: Vec::new() };
        let since = Instant::now();
        for command in commands {
            let shard = usize::from(self.shard_of(&command).0);
            let (pending, wait) = self.pending(command);
            by_shard[shard].push(pending.in_list(since, &lists[shard]));
            waits.waits.push_back(wait);
        }
        // What was taken is given back where a later shard has no room.
        for (inlet, pending) in self.inlets.iter().zip(&mut by_shard).filter(|(_, pending)| !pending.is_empty()) {
            inlet.reserve(caller, pending)?;
        }
        for (inlet, pending) in self.inlets.iter().zip(by_shard) {
            for pending in pending {
                inlet.queue(pending);
            }
        }
        while let Some((key, reply)) = waits.next(until.by).await {
            tell(self.answered(caller, &key, reply, until.by).await);
        }
        for late in waits.give_up(until) {
            tell(late);
        }
        waits.claims.clear();
        Ok(())
    }

    fn queue(&self, caller: CallerKey, command: Command, deadline: Option<Instant>) -> Result<Submitted, Failure> {
        let until = AnswerBy::new(deadline)?;
        let inlet = &self.inlets[usize::from(self.shard_of(&command).0)];
        let (mut pending, wait) = self.pending(command);
        inlet.reserve(caller, std::slice::from_mut(&mut pending))?;
        inlet.queue(pending);
        Ok(Submitted { caller, wait, until })
    }

    /// Waits for the answer to a queued command.
    ///
    /// # Errors
    ///
    /// See [`Failure`]: only [`Failure::OutcomeUnknown`] may have been applied.
    pub async fn answer(&self, Submitted { caller, mut wait, until }: Submitted) -> Result<Answer, Failure> {
        match tokio::time::timeout_at(until.by, wait.reply.answer()).await {
            Ok(reply) => self.answered(caller, &wait.key, reply, until.by).await,
            Err(_elapsed) => until.passed(&mut wait),
        }
    }

    fn shard_of(&self, command: &Command) -> ids::Shard {
        ids::shard_of(self.ledger.id, self.ledger.shard_count, &command.key)
    }

    fn pending(&self, command: Command) -> (Pending, Wait) {
        let key = command.key.clone();
        let if_unreceived = IfUnreceived::of(&command, &self.unreceived);
        let (pending, reply, ticket) = Pending::new(command, if_unreceived.clone());
        (pending, Wait { key, reply: Awaited::new(reply, if_unreceived), ticket })
    }

    /// The answer to a command of which the committer has told, or never will.
    async fn answered(
        &self,
        caller: CallerKey,
        key: &RunKey,
        reply: Option<Reply>,
        by: Instant,
    ) -> Result<Answer, Failure> {
        let Some(verdict) = reply else { return Err(Failure::OutcomeUnknown) };
        let (run, disposition, values_redacted) = match verdict? {
            Verdict::Done(disposition, run) => (run, disposition, None),
            Verdict::Redacted { run, values } => (run, Disposition::Applied, Some(values)),
            Verdict::Replayed { revision, current_revision } => {
                // Boxed: few calls are replayed, and the future of every call would have room for it.
                let run = Arc::new(Box::pin(self.replayed(caller, key, revision, by)).await?);
                return Ok(Answer { run, disposition: Disposition::Replayed, current_revision, values_redacted: None });
            }
        };
        Ok(Answer { current_revision: run.revision, run, disposition, values_redacted })
    }

    /// The run as the first call left it. The first call was applied, so an answer that says "nothing was written"
    /// would be false after any error here.
    async fn replayed(&self, caller: CallerKey, key: &RunKey, revision: Revision, by: Instant) -> Result<Run, Failure> {
        let read = async {
            let Ok(turn) = self.replays.turn(caller, ANSWER_WAIT_MAX).await else { std::future::pending().await };
            attached::with(Arc::new(turn), run_at(&*self.runs, key, revision)).await
        };
        let reason = match tokio::time::timeout_at(by, read).await {
            Ok(Ok(Some(run))) => return Ok(run),
            Ok(Ok(None)) => format!("revision {revision} is not in the log"),
            Ok(Err(error @ (StoreError::Refused(_) | StoreError::Corrupt { .. }))) => chain(&error),
            // The store is away, or too many ask: others log that, and not once for each call.
            Ok(Err(StoreError::Unavailable(_) | StoreError::Lost(_))) | Err(_) => return Err(Failure::OutcomeUnknown),
        };
        let (namespace, run_id, revision) = (key.namespace.as_str(), key.run_id.as_str(), revision.get());
        let trace_id = traces::current_id();
        tracing::error!(namespace, run_id, revision, trace_id, error = reason, "a replayed call's run cannot be read");
        Err(Failure::OutcomeUnknown)
    }

    /// Claims that were made for callers who had gone when the answer was due: once, for the task that gives them back.
    #[must_use]
    pub fn unreceived(&self) -> Option<mpsc::Receiver<Unreceived>> {
        self.unreceived.take()
    }

    /// The channel for claims whose repeated answer was due to a caller who had gone; none while the engine closes.
    #[must_use]
    pub fn tell_unreceived(&self) -> Option<Unclaimer> {
        self.unreceived.open()
    }

    /// Each shard's commands that have no answer yet.
    #[must_use]
    pub fn unanswered(&self) -> Vec<Unanswered> {
        let of = |inlet: &Inlet| {
            let InHand { commands, since } = inlet.unanswered();
            Unanswered { commands, oldest: since.map(|since| since.elapsed()) }
        };
        self.inlets.iter().map(of).collect()
    }

    /// The bytes of commands that have no answer yet, and how many there may be.
    #[must_use]
    pub fn bytes(&self) -> (usize, usize) {
        (self.bytes.all(), self.bytes.max_in_all())
    }

    /// Whether commits succeed.
    #[must_use]
    pub fn commit_health(&self) -> &CommitHealth {
        &self.health
    }

    /// Takes no more commands; queued commands are still committed and answered. The channel
    /// [`unreceived`](Engine::unreceived) ends when no claim is under way any more, and its receiver then
    /// [ends](Engine::end) the engine.
    pub fn close(&self) {
        self.closed.store(true, Ordering::Relaxed);
        if !self.unreceived.close() {
            self.end();
        }
    }

    /// Ends the committers once their queues are empty.
    pub fn end(&self) {
        self.closed.store(true, Ordering::Relaxed);
        self.ending.cancel();
    }
}

/// The failure that a caller is told for a store's error with certainly nothing applied. The caller of the store logs
/// the error with its causes.
fn failure(error: &StoreError) -> Failure {
    match error {
        StoreError::Unavailable(_) | StoreError::Lost(_) => Failure::StoreUnavailable,
        StoreError::Refused(_) => Failure::StoreRefused,
        StoreError::Corrupt { .. } => Failure::StoreCorrupt,
    }
}

//! The bounded queue in front of a shard's committer, and a queued command's right to be withdrawn.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use tokio::sync::mpsc::error::TrySendError;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc, oneshot};
use tokio::time::Instant;

use super::unreceived::IfUnreceived;
use super::{Failure, Limits};
use crate::domain::{Command, Verdict};

/// The bytes that one permit of the byte budget stands for.
const BYTES_PER_PERMIT: usize = 1024;

/// A queued command, and the channel to its caller.
#[derive(Debug)]
pub(super) struct Pending {
    pub(super) command: Arc<Command>,
    pub(super) weight: usize,
    /// The time at which the command was queued.
    pub(super) since: Instant,
    reply: oneshot::Sender<Result<Verdict, Failure>>,
    if_unreceived: Option<Box<IfUnreceived>>,
    taken: Arc<AtomicBool>,
    budget: Option<OwnedSemaphorePermit>,
}

/// The caller's hold on its command.
pub(super) struct Ticket(Arc<AtomicBool>);

impl Ticket {
    /// Takes the command back, if no committer has taken it. Invariant: after true, the command is never committed.
    pub(super) fn withdraw(&self) -> bool {
        !self.0.swap(true, Ordering::AcqRel)
    }
}

impl Pending {
    pub(super) fn new(
        command: Command,
        if_unreceived: Option<Box<IfUnreceived>>,
    ) -> (Self, oneshot::Receiver<Result<Verdict, Failure>>, Ticket) {
        let (reply, receiver) = oneshot::channel();
        let taken = Arc::new(AtomicBool::new(false));
        let ticket = Ticket(taken.clone());
        let weight = command.weight();
        let (command, since) = (Arc::new(command), Instant::now());
        (Self { command, weight, since, reply, if_unreceived, taken, budget: None }, receiver, ticket)
    }

    /// Takes the command for a commit. False when its caller withdrew the command or has gone: then the command must
    /// not be committed.
    pub(super) fn take(&self) -> bool {
        !self.reply.is_closed() && !self.taken.swap(true, Ordering::AcqRel)
    }

    /// Whether a caller still waits for the answer.
    pub(super) fn is_awaited(&self) -> bool {
        !self.reply.is_closed()
    }

    /// Whether the outcome is wanted also when no caller waits for it.
    pub(super) fn is_told_of(&self) -> bool {
        self.if_unreceived.is_some()
    }

    pub(super) fn answer(self, verdict: Result<Verdict, Failure>) {
        if let (Err(Ok(verdict)), Some(if_unreceived)) = (self.reply.send(verdict), self.if_unreceived) {
            if_unreceived.lost(&verdict);
        }
    }
}

/// The reason for which a command was not queued.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Rejected {
    Full,
    Closed,
}

/// The sending side of a shard's queue.
pub(super) struct Inlet {
    queue: mpsc::Sender<Pending>,
    bytes: Arc<Semaphore>,
    in_hand: Arc<Mutex<InHand>>,
}

/// The commands that the committer has taken from the queue and not answered yet.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct InHand {
    pub(super) commands: usize,
    /// The time since which the oldest command has waited.
    pub(super) since: Option<Instant>,
}

impl Inlet {
    /// Queues a command, or rejects it at once.
    pub(super) fn offer(&self, mut pending: Pending) -> Result<(), Rejected> {
        let permits = u32::try_from(pending.weight.div_ceil(BYTES_PER_PERMIT)).unwrap_or(u32::MAX);
        let budget = self.bytes.clone().try_acquire_many_owned(permits).map_err(|_full| Rejected::Full)?;
        pending.budget = Some(budget);
        self.queue.try_send(pending).map_err(|error| match error {
            TrySendError::Full(_) => Rejected::Full,
            TrySendError::Closed(_) => Rejected::Closed,
        })
    }

    /// The number of commands without an answer, and the time since which the oldest of those in hand has waited.
    pub(super) fn unanswered(&self) -> InHand {
        let InHand { commands, since } = *self.in_hand.lock().unwrap_or_else(PoisonError::into_inner);
        InHand { commands: commands + self.queue.max_capacity() - self.queue.capacity(), since }
    }
}

/// The budget of bytes that all shards share.
pub(super) fn byte_budget(limits: &Limits) -> Arc<Semaphore> {
    Arc::new(Semaphore::new(limits.queue_bytes_max / BYTES_PER_PERMIT))
}

/// A shard's queue.
pub(super) fn inlet(bytes: Arc<Semaphore>, limits: &Limits) -> (Inlet, mpsc::Receiver<Pending>, Arc<Mutex<InHand>>) {
    let (sender, receiver) = mpsc::channel(limits.queue_commands_max);
    let in_hand = Arc::new(Mutex::default());
    (Inlet { queue: sender, bytes, in_hand: in_hand.clone() }, receiver, in_hand)
}

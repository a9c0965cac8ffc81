//! The bounded queue in front of a shard's committer, and a queued command's right to be withdrawn.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::mpsc::error::TrySendError;
use tokio::sync::{mpsc, oneshot};
use tokio::time::Instant;

use super::unreceived::IfUnreceived;
use super::{Failure, Limits};
use crate::domain::{Command, Verdict};
use crate::fairness::{CallerKey, Party, Share, Shares};
use crate::telemetry::traces::{self, Span};

/// Commands that each caller may have in a shard's queue, however many callers there are.
const GRANTED_COMMANDS: usize = 8;

/// Bytes of commands that each caller may have, however many callers there are: one command of any size.
const GRANTED_BYTES: usize = 256 * 1024;

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
    /// Who takes its place, as far as queues tell callers apart.
    pub(super) holder: Option<Party>,
    /// The place in the queue, until the command is taken.
    place: Option<Share>,
    /// The bytes, until the command is answered.
    bytes: Option<Share>,
    /// Of a list: why a command of it wrote nothing here that would do later. Those behind it go with it, since one of them
    /// may be on its run.
    list: Option<Arc<OnceLock<Failure>>>,
    /// The span of the command's call, where it is recorded.
    pub(super) span: Option<Span>,
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
        let list = None;
        let span = command.trace.filter(|trace| trace.sampled).and_then(|_| traces::current()?.span);
        let pending = Self {
            command,
            weight,
            since,
            reply,
            if_unreceived,
            taken,
            holder: None,
            place: None,
            bytes: None,
            list,
            span,
        };
        (pending, receiver, ticket)
    }

    /// Makes it a command of a list, which has come as a whole.
    pub(super) fn in_list(self, since: Instant, list: &Arc<OnceLock<Failure>>) -> Self {
        Self { since, list: Some(list.clone()), ..self }
    }

    pub(super) fn is_in_list(&self) -> bool {
        self.list.is_some()
    }

    /// Why one before it on its list wrote nothing that would do later: it goes with that one, so that none of a run goes
    /// before another.
    pub(super) fn failed_before(&self) -> Option<&Failure> {
        self.list.as_ref()?.get()
    }

    /// Takes the command for a commit. False when its caller withdrew the command or has gone: then the command must
    /// not be committed.
    pub(super) fn take(&mut self) -> bool {
        self.place = None;
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
        if let (Err(failure @ (Failure::Overloaded { .. } | Failure::StoreUnavailable)), Some(list)) =
            (&verdict, &self.list)
        {
            let _others = list.set(failure.clone());
        }
        if let (Err(Ok(verdict)), Some(if_unreceived)) = (self.reply.send(verdict), self.if_unreceived) {
            if_unreceived.lost(&verdict);
        }
    }
}

/// The sending side of a shard's queue.
pub(super) struct Inlet {
    queue: mpsc::Sender<Pending>,
    places: Arc<Shares>,
    bytes: Arc<Shares>,
    in_hand: Arc<Mutex<InHand>>,
}

/// The commands that the committer has taken from the queue and not answered yet.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct InHand {
    pub(super) commands: usize,
    /// The time since which the oldest command has waited.
    pub(super) since: Option<Instant>,
}

impl InHand {
    /// The time that a command which is queued now would wait: as long as the oldest one has.
    fn wait(self) -> Duration {
        self.since.map_or(Duration::ZERO, |since| since.elapsed())
    }
}

impl Inlet {
    /// Takes places and bytes for a caller's commands, for all or for none.
    ///
    /// # Errors
    ///
    /// The caller's share has no room for them.
    pub(super) fn reserve(&self, caller: CallerKey, commands: &mut [Pending]) -> Result<(), Failure> {
        let full = || Failure::Overloaded { wait: self.in_hand().wait() };
        let weight = commands.iter().map(|pending| pending.weight).sum();
        let mut bytes = self.bytes.take(caller, weight).ok_or_else(full)?;
        let mut places = self.places.take(caller, commands.len()).ok_or_else(full)?;
        for pending in commands {
            pending.holder = caller.parties().next();
            pending.bytes = Some(bytes.split(pending.weight));
            pending.place = Some(places.split(1));
        }
        Ok(())
    }

    /// Queues a command that has its place.
    pub(super) fn queue(&self, pending: Pending) {
        match self.queue.try_send(pending) {
            Ok(()) => {}
            // There is as much room as there are places.
            Err(TrySendError::Full(pending)) => {
                pending.answer(Err(Failure::Overloaded { wait: self.in_hand().wait() }));
            }
            Err(TrySendError::Closed(pending)) => pending.answer(Err(Failure::Draining)),
        }
    }

    /// The number of commands without an answer, and the time since which the oldest of those in hand has waited.
    pub(super) fn unanswered(&self) -> InHand {
        let InHand { commands, since } = self.in_hand();
        InHand { commands: commands + self.places.all(), since }
    }

    fn in_hand(&self) -> InHand {
        *self.in_hand.lock()
    }
}

/// The bytes of commands that all shards share.
pub(super) fn byte_budget(limits: &Limits) -> Arc<Shares> {
    Shares::new(limits.queue_bytes_max, GRANTED_BYTES.min(limits.queue_bytes_max))
}

/// A shard's queue. The bound is that of the places.
pub(super) fn inlet(bytes: Arc<Shares>, limits: &Limits) -> (Inlet, mpsc::Receiver<Pending>, Arc<Mutex<InHand>>) {
    let places = Shares::new(limits.queue_commands_max, GRANTED_COMMANDS);
    let (sender, receiver) = mpsc::channel(places.max_in_all());
    let in_hand = Arc::new(Mutex::default());
    (Inlet { queue: sender, places, bytes, in_hand: in_hand.clone() }, receiver, in_hand)
}

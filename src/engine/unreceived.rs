//! Claims that were made for callers who had gone when the answer was due.

use std::sync::{Mutex, PoisonError};

use tokio::sync::{mpsc, oneshot};

use super::Failure;
use crate::domain::{Ask, Command, Lease, Request, RunKey, Verdict};

/// Claims that wait here at most: as many as all shards of a process may have in flight. What is above ends by its ttl.
pub(super) const UNRECEIVED_MAX: usize = 16_384;

/// A claim that nobody received.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unreceived {
    /// The run that was claimed.
    pub key: RunKey,
    /// The lease that was granted.
    pub lease: Lease,
    /// The claimer's own request, by which it may ask for the claim again.
    pub request: Option<Request>,
    /// How often it had asked again.
    pub replays: u64,
    /// The revision of the claim's event; none where the claimer asked again.
    pub revision: Option<u64>,
}

/// Where the claim of a command goes that nobody receives.
#[derive(Clone, Debug)]
pub(super) struct IfUnreceived {
    key: RunKey,
    request: Option<Request>,
    to: mpsc::Sender<Unreceived>,
}

impl IfUnreceived {
    /// None for a command that is no claim, or whose caller can ask the run itself for its answer again.
    pub(super) fn of(command: &Command, to: &ToUnreceived) -> Option<Box<Self>> {
        if !matches!(command.ask, Ask::Claim(_)) || command.request.is_some() {
            return None;
        }
        let to = to.open()?;
        Some(Box::new(Self { key: command.key.clone(), request: command.claim_request().cloned(), to }))
    }

    /// Nobody receives this.
    pub(super) fn lost(self, verdict: &Verdict) {
        let Verdict::Applied(run) = verdict else { return };
        let Some(lease) = run.supervision.lease else { return };
        // Where there is no room, the lease ends by its ttl.
        let claim =
            Unreceived { key: self.key, lease, request: self.request, replays: 0, revision: Some(run.revision) };
        let _full = self.to.try_send(claim);
    }
}

type Reply = Result<Verdict, Failure>;

/// A caller's wait for its answer. Dropped with an answer in it, or before there is one, the answer was not received: the
/// committer then finds nobody, or this tells.
pub(super) struct Awaited {
    reply: oneshot::Receiver<Reply>,
    if_unreceived: Option<Box<IfUnreceived>>,
}

impl Awaited {
    pub(super) fn new(reply: oneshot::Receiver<Reply>, if_unreceived: Option<Box<IfUnreceived>>) -> Self {
        Self { reply, if_unreceived }
    }

    /// The answer. May be dropped and asked again.
    pub(super) async fn answer(&mut self) -> Result<Reply, oneshot::error::RecvError> {
        let answer = (&mut self.reply).await;
        self.if_unreceived = None;
        answer
    }
}

impl Drop for Awaited {
    fn drop(&mut self) {
        let Some(if_unreceived) = self.if_unreceived.take() else { return };
        self.reply.close();
        if let Ok(Ok(verdict)) = self.reply.try_recv() {
            if_unreceived.lost(&verdict);
        }
    }
}

/// The engine's ends of the channel.
pub(super) struct ToUnreceived {
    to: Mutex<Option<mpsc::Sender<Unreceived>>>,
    /// Until somebody takes it.
    from: Mutex<Option<mpsc::Receiver<Unreceived>>>,
}

impl ToUnreceived {
    pub(super) fn new() -> Self {
        let (to, from) = mpsc::channel(UNRECEIVED_MAX);
        Self { to: Mutex::new(Some(to)), from: Mutex::new(Some(from)) }
    }

    /// Where claims go, until it is closed.
    pub(super) fn open(&self) -> Option<mpsc::Sender<Unreceived>> {
        self.to.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Where they come out, once.
    pub(super) fn take(&self) -> Option<mpsc::Receiver<Unreceived>> {
        self.from.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    /// No more claims are made: the other end hears of the last one that is under way, and then that there is none. Whether
    /// there is such an end.
    pub(super) fn close(&self) -> bool {
        drop(self.to.lock().unwrap_or_else(PoisonError::into_inner).take());
        self.take().is_none()
    }
}

//! Claims that were made for callers who had gone when the answer was due.

use std::sync::Arc;

use parking_lot::Mutex;
use tokio::sync::mpsc::error::TrySendError;
use tokio::sync::{mpsc, oneshot};

use super::Failure;
use crate::domain::{Ask, Command, Disposition, Lease, Request, Revision, RunKey, Verdict};
use crate::telemetry::LogThrottle;

/// Claims that wait here at most: as many as all shards of a process may have in flight. A claim above this number, as where
/// many claimers of several runs go at once, ends by its ttl.
pub(super) const UNRECEIVED_MAX: usize = 16_384;

/// An unreceived claim.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unreceived {
    /// The run that was claimed.
    pub key: RunKey,
    /// The lease that was granted.
    pub lease: Lease,
    /// The claimer's own request, by which it may ask for the claim again.
    pub request: Option<Request>,
    /// The number of times that the claimer had asked again.
    pub replays: u64,
    /// The revision of the claim's event; none where the claimer asked again.
    pub revision: Option<Revision>,
}

/// The channel for a command's claim, if no caller receives it.
#[derive(Clone, Debug)]
pub(super) struct IfUnreceived {
    key: RunKey,
    request: Option<Request>,
    to: Unclaimer,
}

impl IfUnreceived {
    /// Returns none for a command that is no claim, or whose `request_id` lets its caller get the answer again.
    pub(super) fn of(command: &Command, to: &ToUnreceived) -> Option<Box<Self>> {
        if !matches!(command.ask, Ask::Claim(_)) || command.request.is_some() {
            return None;
        }
        let to = to.open()?;
        Some(Box::new(Self { key: command.key.clone(), request: command.ask.brought().claim_request.cloned(), to }))
    }

    /// Sends the claim of this verdict, which no caller receives.
    pub(super) fn lost(self, verdict: &Verdict) {
        let Verdict::Done(Disposition::Applied, run) = verdict else { return };
        let Some(lease) = run.supervision.lease else { return };
        let claim =
            Unreceived { key: self.key, lease, request: self.request, replays: 0, revision: Some(run.revision) };
        self.to.tell(claim);
    }
}

/// The way to the task that gives claims back.
#[derive(Clone, Debug)]
pub struct Unclaimer {
    to: mpsc::Sender<Unreceived>,
    said: Arc<LogThrottle>,
}

impl Unclaimer {
    /// Hands a claim over. Where there is no room for it, the lease ends by its ttl. Half of the room is for claims that
    /// nobody was ever answered with: a claimer may ask again and again, and go each time.
    pub fn tell(&self, claim: Unreceived) {
        let is_crowded = claim.revision.is_none() && self.to.capacity() < UNRECEIVED_MAX / 2;
        let told = if is_crowded { Err(claim) } else { self.to.try_send(claim).map_err(TrySendError::into_inner) };
        if let Err(Unreceived { key, lease, .. }) = told
            && let Some(unsaid) = self.said.is_due()
        {
            let (namespace, run_id, epoch) = (key.namespace.as_str(), key.run_id.as_str(), lease.epoch.get());
            tracing::warn!(
                namespace,
                run_id,
                epoch,
                unsaid,
                "there was no room to give back a claim that nobody received"
            );
        }
    }
}

pub(super) type Reply = Result<Verdict, Failure>;

/// A caller's wait for its answer. If it is dropped before the answer was taken, the answer is not received: either the
/// committer finds the caller gone, or the drop sends the claim to the channel.
pub(super) struct Awaited {
    reply: oneshot::Receiver<Reply>,
    if_unreceived: Option<Box<IfUnreceived>>,
}

impl Awaited {
    pub(super) fn new(reply: oneshot::Receiver<Reply>, if_unreceived: Option<Box<IfUnreceived>>) -> Self {
        Self { reply, if_unreceived }
    }

    /// The answer; none where there will be none. May be dropped and asked again.
    pub(super) async fn answer(&mut self) -> Option<Reply> {
        self.kept_answer().await.0
    }

    /// The same, for a caller that has not received it yet: with the channel for its claim.
    pub(super) async fn kept_answer(&mut self) -> (Option<Reply>, Option<Box<IfUnreceived>>) {
        let answer = (&mut self.reply).await;
        (answer.ok(), self.if_unreceived.take())
    }

    /// The answer, if it is there by now.
    pub(super) fn answer_now(&mut self) -> Option<Reply> {
        let answer = self.reply.try_recv().ok()?;
        self.if_unreceived = None;
        Some(answer)
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
    to: Mutex<Option<Unclaimer>>,
    /// The receiver, until it is taken.
    from: Mutex<Option<mpsc::Receiver<Unreceived>>>,
}

impl ToUnreceived {
    pub(super) fn new() -> Self {
        let (to, from) = mpsc::channel(UNRECEIVED_MAX);
        let to = Unclaimer { to, said: Arc::default() };
        Self { to: Mutex::new(Some(to)), from: Mutex::new(Some(from)) }
    }

    /// The way for unreceived claims, until the channel is closed.
    pub(super) fn open(&self) -> Option<Unclaimer> {
        self.to.lock().clone()
    }

    /// The receiver of unreceived claims, once.
    pub(super) fn take(&self) -> Option<mpsc::Receiver<Unreceived>> {
        self.from.lock().take()
    }

    /// Closes the channel: the receiver gets the last claims that are under way, and then the end. Returns whether the
    /// receiver had been taken.
    pub(super) fn close(&self) -> bool {
        drop(self.to.lock().take());
        self.take().is_none()
    }
}

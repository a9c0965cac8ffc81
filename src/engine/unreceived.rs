//! Claims that were made for callers who had gone when the answer was due.

use tokio::sync::{mpsc, oneshot};

use super::Failure;
use crate::domain::{Command, Lease, Operation, Request, RunKey, Verdict};

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
    pub(super) fn of(command: &Command, to: &mpsc::Sender<Unreceived>) -> Option<Box<Self>> {
        let may_be_lost = command.operation == Operation::Claim && command.request.is_none();
        may_be_lost.then(|| {
            let request = command.terms.claim_request.clone();
            Box::new(Self { key: command.key.clone(), request, to: to.clone() })
        })
    }

    /// Nobody receives this.
    pub(super) fn lost(self, verdict: &Verdict) {
        let Verdict::Applied(run) = verdict else { return };
        let Some(lease) = run.supervision.lease else { return };
        // Where there is no room, the lease ends by its ttl.
        let _full = self.to.try_send(Unreceived { key: self.key, lease, request: self.request, replays: 0 });
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

/// The engine's end of the channel, until somebody takes it.
pub(super) type Taken = std::sync::Mutex<Option<mpsc::Receiver<Unreceived>>>;

/// A channel for claims that nobody received.
pub(super) fn channel() -> (mpsc::Sender<Unreceived>, Taken) {
    let (to, from) = mpsc::channel(UNRECEIVED_MAX);
    (to, Taken::new(Some(from)))
}

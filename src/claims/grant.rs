//! What a claimer is granted. Each run is given back unless the claimer receives it: whoever drops a grant before, on
//! whatever way, leaves no run that nobody was told of.

use std::sync::Arc;

use crate::domain::{Claimed, Lease, Request, Run};
use crate::engine::{Engine, Unclaimer, Unreceived};

/// The answer to a claimer.
#[derive(Debug)]
pub struct Granted {
    /// The run that comes first in its queue.
    pub first: Grant,
    /// The other runs that were claimed with it.
    pub more: Vec<Grant>,
    /// The claimer's request was answered with these runs before.
    pub replayed: bool,
}

/// A run under its claimer's lease. Dropped, it is given back.
#[derive(Debug)]
pub struct Grant {
    run: Arc<Run>,
    if_unreceived: IfUnreceived,
}

impl Grant {
    pub(super) fn new(run: Arc<Run>, if_unreceived: IfUnreceived) -> Self {
        Self { run, if_unreceived }
    }

    #[must_use]
    pub fn run(&self) -> &Run {
        &self.run
    }

    /// The claimer gets the run.
    pub fn receive(self) {
        self.if_unreceived.receive();
    }
}

/// The way to the task that gives claims back. A claimer takes it before it claims, so that it is open for as long as
/// the claimer has anything to give back; while the engine closes, it is not there.
pub(super) struct ToGiveBack(Option<Unclaimer>);

impl ToGiveBack {
    pub(super) fn new(engine: &Engine) -> Self {
        Self(engine.tell_unreceived())
    }

    /// Whether the task takes no more claims: what is dropped then is not given back.
    pub(super) fn is_closed(&self) -> bool {
        self.0.is_none()
    }

    /// A run that was claimed just now.
    pub(super) fn granted(&self, run: Arc<Run>, request: Option<Request>) -> Grant {
        let claim = run.supervision.lease.map(|lease| Unreceived {
            key: run.key(),
            lease,
            request,
            replays: 0,
            revision: Some(run.revision),
        });
        Grant::new(run, IfUnreceived { to: self.0.clone(), claim })
    }

    /// A claim whose claimer has asked for it again, and is answered so many times by now.
    pub(super) fn replayed(&self, claimed: &Claimed, request: &Request, ttl_ms: u64) -> IfUnreceived {
        let lease = Lease { epoch: claimed.epoch, ttl_ms, released: false, resting: false };
        let (key, request) = (claimed.key.clone(), Some(request.clone()));
        let claim = Unreceived { key, lease, request, replays: claimed.replays, revision: None };
        IfUnreceived { to: self.0.clone(), claim: Some(claim) }
    }
}

/// A claim on its way to its claimer. If it is dropped before, the claimer has gone, and the claim is given back.
#[derive(Debug)]
pub(super) struct IfUnreceived {
    to: Option<Unclaimer>,
    claim: Option<Unreceived>,
}

impl IfUnreceived {
    pub(super) fn receive(mut self) {
        self.claim = None;
    }
}

impl Drop for IfUnreceived {
    fn drop(&mut self) {
        if let (Some(to), Some(claim)) = (&self.to, self.claim.take()) {
            to.tell(claim);
        }
    }
}

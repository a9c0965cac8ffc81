//! The runs that a claimer takes beside its first one: those that are there when it was granted, in one list of claims.
//!
//! The first run is claimed alone, so that it alone decides whether the claimer's request was answered before. Each
//! further one has a row of its own in `claims`, under an id that is made from the request's and its number.

use std::iter;
use std::sync::Arc;

use tokio::sync::mpsc;
use tokio::time::{Instant, timeout_at};

use super::backlog::Outcome;
use super::lanes::Taker;
use super::queue::{Candidate, Queue};
use super::{Claim, Claims, command, in_hand_until};
use crate::domain::sides::claims::numbered_id;
use crate::domain::{Cause, Refusal, Request, Run};
use crate::engine::{Failure, Unreceived};

/// A run that was claimed beside the first one. Dropped, it is given back.
#[derive(Debug)]
pub struct Further {
    run: Arc<Run>,
    if_unreceived: IfUnreceived,
}

impl Further {
    /// The run, under the claimer's lease.
    #[must_use]
    pub fn run(&self) -> &Run {
        &self.run
    }

    /// The claimer gets the run.
    pub fn receive(self) {
        self.if_unreceived.receive();
    }
}

/// A claim on its way to its claimer. If it is dropped before, the claimer has gone, and the claim is given back.
#[derive(Debug)]
pub(super) struct IfUnreceived {
    to: Option<mpsc::Sender<Unreceived>>,
    pub(super) claim: Option<Unreceived>,
}

impl IfUnreceived {
    pub(super) fn receive(mut self) {
        self.claim = None;
    }
}

impl Drop for IfUnreceived {
    fn drop(&mut self) {
        if let (Some(to), Some(claim)) = (&self.to, self.claim.take()) {
            // Without room for it, the lease ends by its ttl.
            let _full = to.try_send(claim);
        }
    }
}

/// The claimer's request, as it is kept for the run of this number.
pub(super) fn numbered(request: Option<&Request>, number: usize) -> Option<Request> {
    request.map(|request| Request { id: numbered_id(&request.id, number), digest: request.digest })
}

impl Claims {
    /// Claims what is there, as many as the claimer takes beside `first`. What cannot be had is left out.
    pub(super) async fn more(&self, claim: &Claim, queue: &Queue, taker: Taker<'_>, first: &Run) -> Vec<Further> {
        let first = self.if_unreceived(first, claim.request.clone());
        let until = in_hand_until(claim);
        // Reads on where the queue has nothing at hand, and a new one anew: its feed began meanwhile.
        let reads = queue.find(&*self.runs, (taker, Instant::now()), None, None, |reach| self.turn(claim, reach));
        let Ok(Ok(Some(next))) = timeout_at(until, reads).await else {
            first.receive();
            return Vec::new();
        };
        let candidates = iter::once(next).chain(iter::from_fn(|| queue.known(taker)));
        let candidates: Vec<Candidate<'_>> = candidates.take(claim.max_runs - 1).collect();
        let requests = (1..=candidates.len()).map(|number| numbered(claim.request.as_ref(), number));
        let requests: Vec<Option<Request>> = requests.collect();
        let commands = candidates.iter().zip(&requests);
        let commands =
            commands.map(|(candidate, request)| command(claim, request.clone(), &candidate.run_id)).collect();
        let mut answers = Vec::with_capacity(candidates.len());
        let tell = |answer| answers.push(answer);
        let told = self.engine.submit_all_for(claim.caller, commands, Some(until), tell).await;
        // Dropped, the candidates wait for the next claimer.
        if told.is_err() {
            first.receive();
            return Vec::new();
        }
        let (mut more, mut refused) = (Vec::with_capacity(answers.len()), Vec::new());
        for ((answer, candidate), request) in answers.into_iter().zip(candidates).zip(requests) {
            match answer {
                Ok(answer) => {
                    candidate.decided(Outcome::Claimed);
                    let if_unreceived = self.if_unreceived(&answer.run, request);
                    more.push(Further { run: answer.run, if_unreceived });
                }
                Err(Failure::Refused(refusal)) => refused.push((candidate, refusal)),
                Err(_) => {}
            }
        }
        for (candidate, refusal) in refused {
            self.not_had(candidate, &refusal).await;
        }
        first.receive();
        more
    }

    async fn not_had(&self, candidate: Candidate<'_>, refusal: &Refusal) {
        match (refusal, refusal.cause()) {
            (Refusal::MaxRunning { running, .. }, _) => {
                // The next claimer asks the store again, and is told why it does not answer.
                let _unanswered = candidate.refused(&*self.runs, running).await;
            }
            (Refusal::ClaimedBefore { .. }, _) => candidate.decided(Outcome::Waits),
            (_, Cause::Run) => candidate.decided(Outcome::Lost),
            (_, Cause::Lifecycle | Cause::Call) => {}
        }
    }

    /// Gives a claim back that was granted just now, unless it is received.
    fn if_unreceived(&self, run: &Run, request: Option<Request>) -> IfUnreceived {
        let claim = run.supervision.lease.map(|lease| Unreceived {
            key: run.key(),
            lease,
            request,
            replays: 0,
            revision: Some(run.revision),
        });
        self.gives_back(claim)
    }

    pub(super) fn gives_back(&self, claim: Option<Unreceived>) -> IfUnreceived {
        IfUnreceived { to: self.engine.tell_unreceived(), claim }
    }

    /// A run that the claimer was granted before, and is answered with again.
    pub(super) fn granted_before(&self, run: Arc<Run>) -> Further {
        Further { run, if_unreceived: self.gives_back(None) }
    }
}

//! The runs that a claimer takes beside its first one: those that are there when it was granted, in one list of claims.
//!
//! The first run is claimed alone, so that it alone decides whether the claimer's request was answered before. Each
//! further one has a row of its own in `claims`, under an id that is made from the request's and its number.

use std::iter;
use std::pin::Pin;

use tokio::time::{Instant, timeout_at};

use super::backlog::Outcome;
use super::grant::{Grant, ToGiveBack};
use super::lanes::Taker;
use super::queue::{Candidate, Queue};
use super::{Claim, Claims, command, in_hand_until};
use crate::domain::sides::claims::numbered_id;
use crate::domain::{Cause, Refusal, Request, Run};
use crate::engine::Failure;

/// The claimer's request, as it is kept for the run of this number.
pub(super) fn numbered(request: &Request, number: usize) -> Request {
    Request { id: numbered_id(&request.id, number), digest: request.digest }
}

impl Claims {
    /// Claims what is there, as many as the claimer takes beside `first`. What cannot be had is left out. Once `cut` ends,
    /// no claim is begun.
    pub(super) async fn more(
        &self,
        (claim, to_give_back): (&Claim, &ToGiveBack),
        (queue, taker): (&Queue, Taker<'_>),
        first: &Run,
        cut: Pin<&mut impl Future<Output = ()>>,
    ) -> Vec<Grant> {
        let until = in_hand_until(claim);
        let (mut candidates, wanted) = (Vec::new(), beside(claim, first));
        let reads = async {
            // Reads on where the queue has nothing at hand, and a new one anew: its feed began meanwhile.
            let asked = (taker, Instant::now());
            while candidates.len() < wanted
                && let Ok(Some(next)) =
                    queue.find(&*self.runs, asked, None, None, |reach| self.turn(claim, reach)).await
            {
                let known = iter::once(next).chain(iter::from_fn(|| queue.known(taker)));
                candidates.extend(known.take(wanted - candidates.len()));
            }
        };
        tokio::select! {
            biased;
            () = cut => return Vec::new(),
            _late = timeout_at(until, reads) => {}
        }
        if candidates.is_empty() {
            return Vec::new();
        }
        let request_of = |number| claim.request.as_ref().map(|request| numbered(request, number));
        let requests: Vec<Option<Request>> = (1..=candidates.len()).map(request_of).collect();
        let commands = candidates.iter().zip(&requests);
        let commands =
            commands.map(|(candidate, request)| command(claim, request.clone(), &candidate.run_id)).collect();
        let mut answers = Vec::with_capacity(candidates.len());
        let tell = |answer| answers.push(answer);
        let told = self.engine.submit_all_for(claim.caller, commands, Some(until), tell).await;
        // Dropped, the candidates wait for the next claimer.
        if told.is_err() {
            return Vec::new();
        }
        let (mut more, mut before) = (Vec::with_capacity(answers.len()), Vec::new());
        for ((answer, candidate), request) in answers.into_iter().zip(candidates).zip(requests) {
            match answer {
                Ok(answer) => {
                    candidate.decided(Outcome::Claimed);
                    more.push(to_give_back.granted(answer.run, request));
                }
                Err(Failure::Refused(refusal)) => {
                    if let Refusal::ClaimedBefore { .. } = &*refusal {
                        before.extend(request);
                    }
                    not_had(candidate, &refusal);
                }
                Err(_) => {}
            }
        }
        // What an earlier attempt was granted of which its caller was not told: the first run was given back alone.
        if !before.is_empty()
            && let Ok(Ok(held)) = timeout_at(until, self.held(claim, &before)).await
        {
            more.extend(held);
        }
        more
    }
}

/// How many runs are claimed beside the first: no more than its answer has room for, if all are as large.
fn beside(claim: &Claim, first: &Run) -> usize {
    (claim.bytes_max / first.weight().max(1)).clamp(1, claim.max_runs - 1)
}

fn not_had(candidate: Candidate<'_>, refusal: &Refusal) {
    match (refusal, refusal.cause()) {
        // The next claimer of the run, alone, finds out whether those that count still do.
        (Refusal::MaxRunning { .. }, _) => drop(candidate),
        (Refusal::ClaimedBefore { .. }, _) => candidate.decided(Outcome::Waits),
        (_, Cause::Run) => candidate.decided(Outcome::Lost),
        (_, Cause::Lifecycle | Cause::Call) => drop(candidate),
    }
}

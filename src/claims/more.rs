//! The runs that a claimer takes beside its first one: those that are there when it was granted, in one list of claims.
//!
//! The first run is claimed alone, so that it alone decides whether the claimer's request was answered before. Each
//! further one has a row of its own in `claims`, under an id that is made from the request's and its number.

use std::collections::BTreeSet;
use std::iter;
use std::pin::Pin;
use std::time::Duration;

use futures_util::FutureExt as _;
use tokio::time::{Instant, timeout_at};

use super::backlog::Outcome;
use super::grant::{Grant, ToGiveBack};
use super::lanes::Taker;
use super::queue::{Candidate, Queue};
use super::{Claim, Claims, command};
use crate::domain::sides::claims::numbered_id;
use crate::domain::{Cause, Refusal, Request, Run};
use crate::engine::Failure;

/// The time that a claimer who has its first run waits for further ones, at most: for all reads and commits. Their commits
/// may take as long as that of the first one; meanwhile, these runs are in the claimer's hand.
const BESIDE_WAIT_MAX: Duration = Duration::from_secs(10);

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
        let (end, wanted) = (beside_until(claim), beside(claim, first));
        // What an earlier attempt was granted is looked for last, in a quarter of the time.
        let until = Instant::now() + end.saturating_duration_since(Instant::now()) * 3 / 4;
        let known = || iter::from_fn(|| queue.known(taker));
        let mut candidates: Vec<Candidate<'_>> = known().take(wanted).collect();
        if candidates.is_empty() {
            // Reads on, and a new queue anew: its feed began meanwhile. The list has the other half of the time. Whoever reads
            // on has no run in its hand, which others would wait for.
            let asked = (taker, Instant::now());
            let reads = queue.find(&*self.runs, asked, None, None, |reach| self.turn(claim, reach));
            let found = tokio::select! {
                biased;
                () = cut => return Vec::new(),
                found = timeout_at(half_way(until), reads) => found,
            };
            candidates.extend(found.ok().and_then(Result::ok).flatten());
            candidates.extend(known().take(wanted - candidates.len()));
        } else if cut.now_or_never().is_some() {
            return Vec::new();
        }
        let request_of = |number| claim.request.as_ref().map(|request| numbered(request, number));
        let requests: Vec<Option<Request>> = (1..=candidates.len()).map(request_of).collect();
        let commands = candidates.iter().zip(&requests);
        let commands =
            commands.map(|(candidate, request)| command(claim, request.clone(), &candidate.run_id)).collect();
        let mut answers = Vec::with_capacity(candidates.len());
        let tell = |answer| answers.push(answer);
        // Of what is not queued, no answer is told: dropped, the candidates wait for the next claimer.
        let _queued = self.engine.submit_all_for(claim.caller, commands, Some(until), tell).await;
        let mut more = Vec::with_capacity(answers.len());
        let mut told = BTreeSet::new();
        for ((number, answer), (candidate, request)) in (1..).zip(answers).zip(candidates.into_iter().zip(requests)) {
            match answer {
                Ok(answer) => {
                    candidate.decided(Outcome::Claimed);
                    told.insert(number);
                    more.push(to_give_back.granted(answer.run, request));
                }
                Err(Failure::Refused(refusal)) => not_had(candidate, &refusal),
                Err(_) => {}
            }
        }
        self.held_beside((claim, end), &told, &mut more).await;
        more
    }

    /// Adds what an earlier attempt of the request was granted, of which its caller was not told, and whose first run was
    /// given back alone: the runs of the numbers that were not claimed now.
    async fn held_beside(&self, (claim, end): (&Claim, Instant), told: &BTreeSet<usize>, more: &mut Vec<Grant>) {
        let Some(request) = &claim.request else { return };
        let numbers = (1..claim.max_runs).filter(|number| !told.contains(number));
        let requests: Vec<Request> = numbers.map(|number| numbered(request, number)).collect();
        if requests.is_empty() {
            return;
        }
        if let Ok(Ok(held)) = timeout_at(end, self.held(claim, &requests)).await {
            more.extend(held);
        }
    }
}

/// The end of the wait for further runs. The lease of the first one runs meanwhile: a quarter of it, and half of the time that
/// the caller still waits, may pass.
fn beside_until(claim: &Claim) -> Instant {
    let now = Instant::now();
    let left = claim.deadline.map(|deadline| deadline.saturating_duration_since(now) / 2);
    let of_lease = Duration::from_millis(claim.lease_ttl_ms / 4);
    now + left.unwrap_or(BESIDE_WAIT_MAX).min(of_lease).min(BESIDE_WAIT_MAX)
}

/// The middle of the time until then.
fn half_way(until: Instant) -> Instant {
    let now = Instant::now();
    now + until.saturating_duration_since(now) / 2
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

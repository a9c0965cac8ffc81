//! The claims of a worker: the next run, and the return of one that the worker cannot begin any more.

use std::time::Duration;

use runledger_proto::{duration, v1};
use tokio::time::{Instant, sleep, timeout};
use tokio_util::sync::CancellationToken;

use super::{AGAIN_AFTER, CALL_WAIT_MAX, Held, Notice, Worker, request_id};
use crate::client::Client;
use crate::failure::{Failure, Repetition};

/// Time that a worker that stops takes to give back the run that it claimed and has not begun.
const GIVE_BACK_WAIT_MAX: Duration = Duration::from_secs(5);

/// Time that one call of a claim waits. A connection that died in silence is noticed at its end, at the latest.
const CLAIM_WAIT: Duration = Duration::from_secs(50);

/// The runs that a worker claims, and the time that it waits for one.
#[derive(Clone, Debug, Default)]
pub struct Claiming {
    /// The filter that runs must match; its statuses are not used.
    pub filter: v1::RunFilter,
    /// The limit of runs with the same value of a label that may be running. Every worker that claims such runs is to
    /// give the same limit.
    pub max_running: Option<v1::MaxRunning>,
    /// Whether runs are taken that are pending, ready to go on after a suspension, or both; unspecified: pending.
    pub take: v1::ClaimTake,
    /// Time that the worker waits where there is no run to claim; none: for ever.
    pub idle: Option<Duration>,
}

/// What is known of a worker's next run when the report of the one before was answered.
pub(super) struct Next {
    /// The client that was answered: where a server had gone, it calls another one from now on.
    pub(super) client: Option<Client>,
    /// The run that was claimed with the report.
    held: Option<Held>,
    /// The `request_id` of the claim.
    asked: String,
    /// The claim may have been granted, and its answer was lost.
    is_in_doubt: bool,
    /// The time that the server asks a claim to wait.
    pause: Duration,
}

impl Next {
    /// Nothing was claimed yet.
    pub(super) fn new() -> Self {
        Self { client: None, held: None, asked: request_id(), is_in_doubt: false, pause: Duration::ZERO }
    }

    /// The answer to the claim that went with the report of a run's completion.
    pub(super) fn answered(asked: String, answer: &mut v1::CompleteRunResponse) -> Self {
        let (is_in_doubt, pause) = match (&answer.claimed, &answer.claim_error) {
            (Some(_), _) => (false, Duration::ZERO),
            // A server of a release before knows no claim here; one that knew it may have been asked first.
            (None, None) => (answer.disposition() == v1::Disposition::Replayed, Duration::ZERO),
            (None, Some(error)) => match Repetition::from(&**error) {
                Repetition::After(pause) => (false, pause),
                Repetition::Open => (true, Duration::ZERO),
                // The next claim is refused for the same reason, and says it.
                Repetition::Useless => (false, Duration::ZERO),
            },
        };
        let held = answer.claimed.take().and_then(|claimed| claimed.run).map(Held::from);
        Self { client: None, held, asked, is_in_doubt, pause }
    }
}

impl Worker {
    /// The run that was claimed already, or the next one; none as [`claim`](Self::claim) says. What was claimed already and
    /// is not begun is given back.
    pub(super) async fn take(
        &mut self,
        next: Next,
        what: &Claiming,
        stop: &CancellationToken,
    ) -> Result<Option<Held>, Failure> {
        if let Some(client) = next.client {
            self.client = client;
        }
        match (next.held, stop.is_cancelled()) {
            (Some(held), false) => Ok(Some(held)),
            (Some(held), true) => {
                self.give_back_held(&held, Instant::now() + GIVE_BACK_WAIT_MAX).await;
                Ok(None)
            }
            (None, true) if !next.is_in_doubt => Ok(None),
            (None, _) => {
                let pause = next.pause.min(what.idle.unwrap_or(next.pause));
                let _stopped = timeout(pause, stop.cancelled()).await;
                if stop.is_cancelled() && !next.is_in_doubt {
                    return Ok(None);
                }
                self.claim_as(next.asked, what, stop).await
            }
        }
    }

    /// The next run; none when there was none for as long as this worker waits. The call is made under one `request_id`
    /// until it is answered, so that no run is taken for an answer that gets lost.
    pub(super) async fn next_run(&mut self, what: &Claiming, asked: &mut String) -> Result<Option<Held>, Failure> {
        let until = what.idle.and_then(|idle| Instant::now().checked_add(idle));
        let mut lost = false;
        loop {
            let left = until.map_or(CLAIM_WAIT, |until| until.saturating_duration_since(Instant::now()));
            let wait = left.min(CLAIM_WAIT);
            let request = self.claim_request(what, asked.clone(), Some(wait));
            match self.client.attempt(&request, Instant::now() + wait + CALL_WAIT_MAX).await {
                Ok(v1::ClaimNextRunResponse { run: Some(run), .. }) => return Ok(Some(Held::from(run))),
                Ok(v1::ClaimNextRunResponse { run: None, .. }) => lost = false,
                // The lease that was granted was lost while this worker could not be told of it.
                Err(failure) if failure.reason.as_deref() == Some("LEASE_LOST") => *asked = request_id(),
                Err(failure) if self.client.is_refused_for_good(&failure) => return Err(failure),
                Err(failure) => {
                    if !std::mem::replace(&mut lost, true) {
                        self.notice(Notice::Retrying(failure));
                    }
                    sleep(AGAIN_AFTER).await;
                }
            }
            // A lost answer may have granted a run, which nobody would begin: the worker asks for it once more.
            let until = until.map(|until| if lost { until + GIVE_BACK_WAIT_MAX } else { until });
            if until.is_some_and(|until| Instant::now() >= until) {
                return Ok(None);
            }
        }
    }

    /// Gives back the run that was claimed by a call that this worker did not wait for. The server gives back a run
    /// whose answer it could not send; the worker asks again for an answer that was on its way.
    pub(super) async fn give_back(&mut self, what: &Claiming, asked: String) {
        let until = Instant::now() + GIVE_BACK_WAIT_MAX;
        let again = self.claim_request(what, asked, None);
        let claimed = loop {
            match self.client.attempt(&again, until).await {
                Ok(v1::ClaimNextRunResponse { run: Some(run), .. }) => break Held::from(run),
                Ok(v1::ClaimNextRunResponse { run: None, .. }) => return,
                // The run is this worker's no more.
                Err(failure) if failure.reason.as_deref() == Some("LEASE_LOST") => return,
                Err(failure) if self.client.is_refused_for_good(&failure) => {
                    return self.notice(Notice::NotGivenBack(None, failure));
                }
                Err(failure) if Instant::now() + AGAIN_AFTER >= until => {
                    return self.notice(Notice::NotGivenBack(None, failure));
                }
                Err(_again) => sleep(AGAIN_AFTER).await,
            }
        };
        self.give_back_held(&claimed, until).await;
    }

    async fn give_back_held(&mut self, claimed: &Held, until: Instant) {
        let run_id = claimed.run.run_id.clone();
        match self.client.ask(&claimed.not_begun(), until).await {
            Ok(_) => self.notice(Notice::GivenBack(run_id)),
            Err(failure) => self.notice(Notice::NotGivenBack(Some(run_id), failure)),
        }
    }

    pub(super) fn claim_request(
        &self,
        what: &Claiming,
        request_id: String,
        wait: Option<Duration>,
    ) -> v1::ClaimNextRunRequest {
        v1::ClaimNextRunRequest {
            filter: Some(what.filter.clone()),
            lease_ttl: Some(duration(self.options.lease_ttl)),
            wait: wait.map(duration),
            max_running: what.max_running.clone(),
            request_id,
            take: what.take.into(),
            max_runs: 1,
        }
    }
}

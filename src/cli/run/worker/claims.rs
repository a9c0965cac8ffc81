//! The claims of a worker: the next run, and what becomes of one that it cannot begin any more.

use std::time::Duration;

use tokio::time::{Instant, sleep};

use super::held::Held;
use super::{AGAIN_AFTER, WorkerArgs, request_id};
use crate::cli::connect::CALL_WAIT_MAX;
use crate::cli::ending::{Stop, say};
use crate::cli::fields::{Label, MaxRunning};
use runledger_client::{Client, Kind};
use runledger_proto::v1;

/// How long a worker that stops takes to give back what it claimed and has not begun.
const GIVE_BACK_WAIT_MAX: Duration = Duration::from_secs(5);

/// How long one call of a claim waits: a connection that is dead in silence is noticed then, at the latest.
const CLAIM_WAIT: Duration = Duration::from_secs(50);

/// What is asked for under a `request_id`.
fn next(args: &WorkerArgs, request_id: String, wait: Duration) -> v1::ClaimNextRunRequest {
    let filter = v1::RunFilter {
        task_thread_id: args.task_thread_id.clone().unwrap_or_default(),
        workflow_id: args.workflow_id.clone().unwrap_or_default(),
        labels: args.labels.iter().cloned().map(|Label(key, value)| (key, value)).collect(),
        ..v1::RunFilter::default()
    };
    v1::ClaimNextRunRequest {
        filter: Some(filter),
        lease_ttl: Some(runledger_proto::duration(args.lease_ttl)),
        wait: Some(runledger_proto::duration(wait)),
        max_running: args.max_running.as_ref().map(MaxRunning::message),
        request_id,
    }
}

/// The next run; none when there was none for as long as this worker waits. A server that is away is waited for. Asked
/// under one id until it is answered, so that no run is taken for an answer that gets lost.
pub(super) async fn claim(args: &WorkerArgs, client: &mut Client, asked: &mut String) -> Result<Option<Held>, Stop> {
    let until = args.idle.and_then(|idle| Instant::now().checked_add(idle));
    let mut lost = false;
    loop {
        let left = until.map_or(CLAIM_WAIT, |until| until.saturating_duration_since(Instant::now()));
        let wait = left.min(CLAIM_WAIT);
        let request = next(args, asked.clone(), wait);
        match client.ask(&request, Instant::now() + wait + CALL_WAIT_MAX).await {
            Ok(v1::ClaimNextRunResponse { run: Some(run), .. }) => return Ok(Some(Held::of(&run))),
            Ok(v1::ClaimNextRunResponse { run: None, .. }) => lost = false,
            // What it was granted it has lost while it could not be told.
            Err(failure) if failure.reason.as_deref() == Some("LEASE_LOST") => *asked = request_id(),
            Err(failure) if failure.kind == Kind::Refused => return Err(failure.into()),
            Err(failure) => {
                if !std::mem::replace(&mut lost, true) {
                    say(&format!("{failure} (trying again)"));
                }
                sleep(AGAIN_AFTER).await;
            }
        }
        // What a lost answer granted is asked for once more, lest nobody begins it.
        let until = until.map(|until| if lost { until + GIVE_BACK_WAIT_MAX } else { until });
        if until.is_some_and(|until| Instant::now() >= until) {
            return Ok(None);
        }
    }
}

/// Gives back what was claimed for a call that this worker did not wait for. The server gives back what it could not
/// answer; an answer that was on its way is asked for again.
pub(super) async fn give_back(args: &WorkerArgs, client: &mut Client, asked: String) {
    let until = Instant::now() + GIVE_BACK_WAIT_MAX;
    let again = next(args, asked, Duration::ZERO);
    let claimed = loop {
        match client.ask(&again, until).await {
            Ok(v1::ClaimNextRunResponse { run: Some(run), .. }) => break Held::of(&run),
            Ok(v1::ClaimNextRunResponse { run: None, .. }) => return,
            // It is this worker's no more.
            Err(failure) if failure.kind == Kind::Refused => return,
            Err(failure) if Instant::now() + AGAIN_AFTER >= until => {
                return say(&format!("{failure} If a run was claimed meanwhile, it ends when its lease is over."));
            }
            Err(_again) => sleep(AGAIN_AFTER).await,
        }
    };
    match client.ask(&claimed.not_begun(), until).await {
        Ok(_) => say(&format!("run {} was claimed and is given back: it was not begun", claimed.run_id)),
        Err(failure) => say(&format!("run {} was claimed and could not be given back: {failure}", claimed.run_id)),
    }
}

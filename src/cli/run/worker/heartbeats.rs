//! The heartbeats of a run: beside its program, so that neither waits for the other.

use std::time::Duration;

use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep_until};

use super::held::Held;
use crate::cli::connect::CALL_WAIT_MAX;
use crate::cli::ending::say;
use crate::cli::time::time;
use crate::domain::Time;
use runledger_client::{Client, Kind};
use runledger_proto::v1;

/// How soon after the last heartbeat the next one may follow because the program said how far it is.
const PROGRESS_EVERY: Duration = Duration::from_secs(1);

/// The longest pause after one that nobody served. With short ttls it is a twelfth: an interruption that is too short for
/// the authority to make up for leaves time for several more.
const AGAIN_AFTER: Duration = Duration::from_millis(500);

/// What heartbeats hear.
#[derive(Debug)]
pub(super) enum Heard {
    /// Somebody asks for the run to be aborted.
    Abort {
        /// Why.
        reason: String,
        /// How long until the authority ends it by itself.
        left: Option<Duration>,
    },
    /// The run is somebody else's, or has ended.
    Lost(String),
}

/// They stop when this is dropped.
pub(super) struct Heartbeats {
    pub(super) heard: mpsc::Receiver<Heard>,
    _beating: JoinSet<()>,
}

/// Sends one every third of the ttl, and one when the program says how far it is.
pub(super) fn start(
    client: Client,
    run: Held,
    ttl: Duration,
    progress: watch::Receiver<Option<v1::Progress>>,
) -> Heartbeats {
    let (tell, heard) = mpsc::channel(4);
    let mut beating = JoinSet::new();
    beating.spawn(beat(client, run, ttl / 3, progress, tell));
    Heartbeats { heard, _beating: beating }
}

async fn beat(
    mut client: Client,
    run: Held,
    every: Duration,
    mut progress: watch::Receiver<Option<v1::Progress>>,
    tell: mpsc::Sender<Heard>,
) {
    // A call that hangs is not to outlive the lease.
    let (wait_max, again_after) = (CALL_WAIT_MAX.min(every), AGAIN_AFTER.min(every / 4));
    let mut sent = Instant::now();
    let mut next = sent + every;
    // What the authority has heard of the work: said again, it would look as if the program had just said it.
    let mut heard = None;
    let (mut asked_to_abort, mut silent, mut says_more) = (false, false, true);
    loop {
        tokio::select! {
            () = sleep_until(next) => {}
            more = progress.changed(), if says_more => {
                says_more = more.is_ok();
                if says_more {
                    next = next.min(sent + PROGRESS_EVERY);
                }
                sleep_until(next).await;
            }
        }
        let said = progress.borrow_and_update().clone();
        let unsaid = said.filter(|said| Some(said) != heard.as_ref());
        let request =
            v1::HeartbeatRunRequest { run_id: run.run_id.clone(), lease_epoch: run.epoch, progress: unsaid.clone() };
        let failure = match client.ask(&request, Instant::now() + wait_max).await {
            Ok(answer) => {
                silent = false;
                heard = unsaid.or(heard);
                sent = Instant::now();
                next = sent + every;
                if let Some(abort) = answer.abort_request.filter(|_| !std::mem::replace(&mut asked_to_abort, true)) {
                    let left = left(&abort, time(answer.now.as_ref()));
                    let reason = if abort.reason.is_empty() { "no reason was given".to_owned() } else { abort.reason };
                    let _ended = tell.send(Heard::Abort { reason, left }).await;
                }
                continue;
            }
            Err(failure) => failure,
        };
        next = Instant::now() + again_after;
        let standing = if failure.kind == Kind::Refused { standing(&mut client, &run, wait_max).await } else { None };
        match standing {
            Some(Standing::Lost) => {
                let _ended = tell.send(Heard::Lost(failure.to_string())).await;
                return;
            }
            Some(Standing::Aborted(reason)) => {
                let _ended = tell.send(Heard::Abort { reason, left: None }).await;
                return;
            }
            Some(Standing::Presumed) => {
                say(&format!("{failure} Its program goes on, and how it ends is reported late."));
                return;
            }
            // Somebody may still follow, or the sweep may come.
            Some(Standing::Over) | None => {
                if !std::mem::replace(&mut silent, true) {
                    say(&format!("{failure} (trying again)"));
                }
            }
        }
    }
}

/// How long until the grace is over, by the store's clock.
fn left(abort: &v1::AbortRequest, now: Option<Time>) -> Option<Duration> {
    let left = time(abort.deadline.as_ref())?.micros() - now?.micros();
    Some(Duration::from_micros(u64::try_from(left).unwrap_or(0)))
}

/// What a refused heartbeat means.
enum Standing {
    /// The run is somebody else's, or has truly ended.
    Lost,
    /// The authority concluded that this worker had gone: what it reports is kept.
    Presumed,
    /// The authority ended the run because its time, or that of a request to abort it, was over.
    Aborted(String),
    /// The lease is over, and nothing has come of it yet.
    Over,
}

/// None when nobody says.
async fn standing(client: &mut Client, run: &Held, wait_max: Duration) -> Option<Standing> {
    let request = v1::GetRunRequest { run_id: run.run_id.clone(), ..v1::GetRunRequest::default() };
    let found = client.ask(&request, Instant::now() + wait_max).await.ok()?.run?;
    let ours = found.lease.as_ref().is_some_and(|lease| lease.epoch == run.epoch);
    Some(match (ours, found.presumed, found.status()) {
        (true, true, v1::RunStatus::Aborted) => {
            let asked = found.abort_request.map(|abort| abort.reason).filter(|reason| !reason.is_empty());
            Standing::Aborted(asked.unwrap_or(found.reason_code))
        }
        (true, true, _) => Standing::Presumed,
        (true, false, v1::RunStatus::Running) => Standing::Over,
        (_, _, _) => Standing::Lost,
    })
}

//! The heartbeats of a run: beside its program, so that neither waits for the other.

use std::time::Duration;

use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep_until};

use super::held::Held;
use crate::cli::connect::CALL_WAIT_MAX;
use crate::cli::ending::say;
use crate::client::{Client, Kind, time};
use crate::domain::Time;
use crate::proto::v1;

/// How soon after the last heartbeat the next one may follow because the program said how far it is.
const PROGRESS_EVERY: Duration = Duration::from_secs(1);

/// The pause after one that nobody served.
const AGAIN_AFTER: Duration = Duration::from_secs(1);

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
    let mut sent = Instant::now();
    let mut next = sent + every;
    let (mut asked_to_abort, mut lost, mut says_more) = (false, false, true);
    loop {
        tokio::select! {
            () = sleep_until(next) => {}
            more = progress.changed(), if says_more => {
                says_more = more.is_ok();
                next = if says_more { next.min(sent + PROGRESS_EVERY) } else { next };
                sleep_until(next).await;
            }
        }
        let said = progress.borrow_and_update().clone();
        let request = v1::HeartbeatRunRequest { run_id: run.run_id.clone(), lease_epoch: run.epoch, progress: said };
        match client.ask(&request, Instant::now() + CALL_WAIT_MAX).await {
            Ok(answer) => {
                lost = false;
                sent = Instant::now();
                next = sent + every;
                if let Some(abort) = answer.abort_request.filter(|_| !std::mem::replace(&mut asked_to_abort, true)) {
                    let left = left(&abort, time(answer.expires_at.as_ref()), every * 3);
                    let reason = if abort.reason.is_empty() { "no reason was given".to_owned() } else { abort.reason };
                    let _ended = tell.send(Heard::Abort { reason, left }).await;
                }
            }
            Err(failure) if failure.kind == Kind::Refused => {
                if is_late(&mut client, &run).await {
                    say(&format!("{failure}; its program goes on, and how it ends is reported late"));
                } else {
                    let _ended = tell.send(Heard::Lost(failure.to_string())).await;
                }
                return;
            }
            Err(failure) => {
                if !std::mem::replace(&mut lost, true) {
                    say(&format!("{failure} (trying again)"));
                }
                next = Instant::now() + AGAIN_AFTER;
            }
        }
    }
}

/// How long until the grace is over, by the store's clock: the lease was renewed for one ttl just now.
fn left(abort: &v1::AbortRequest, expires_at: Option<Time>, ttl: Duration) -> Option<Duration> {
    let deadline = time(abort.deadline.as_ref())?;
    let now = expires_at?.micros() - i64::try_from(ttl.as_micros()).unwrap_or(i64::MAX);
    Some(Duration::from_micros(u64::try_from(deadline.micros() - now).unwrap_or(0)))
}

/// Whether the run is still this worker's to report, only too late: nobody followed it, and at most the authority
/// concluded that it had gone.
async fn is_late(client: &mut Client, run: &Held) -> bool {
    let request = v1::GetRunRequest { run_id: run.run_id.clone() };
    let Ok(answer) = client.ask(&request, Instant::now() + CALL_WAIT_MAX).await else { return true };
    let Some(found) = answer.run else { return false };
    let ours = found.lease.as_ref().is_some_and(|lease| lease.epoch == run.epoch);
    ours && (found.presumed || found.status() == v1::RunStatus::Running)
}

//! The heartbeats of a run: sent beside its work, so that neither waits for the other.

use std::time::Duration;

use runledger_proto::{Timestamp, v1};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep_until};

use super::{CALL_WAIT_MAX, Held, Notice, Worker};
use crate::failure::{Failure, Kind};

/// The shortest time after a heartbeat in which the work's progress may cause the next one.
const PROGRESS_EVERY: Duration = Duration::from_secs(1);

/// The longest pause after a heartbeat that nobody served. With short ttls the pause is a twelfth of the ttl: an
/// interruption that is too short for the authority to make up for leaves time for several more heartbeats.
const AGAIN_AFTER: Duration = Duration::from_millis(500);

/// The reason why work is to end before it is done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Cancellation {
    /// A caller asks for the run to be aborted.
    AbortRequested {
        /// The reason that was given.
        reason: String,
        /// Time until the authority ends the run by itself; none: the authority does not, or has.
        left: Option<Duration>,
    },
    /// The run is somebody else's, or has ended: how, in the authority's words.
    LeaseLost(String),
    /// Somebody suspended the run: stop working. What is finished may still be reported; else the next claim goes on.
    Suspended {
        /// What the run waits for.
        kind: String,
        /// The reason that was given.
        reason: String,
    },
}

impl Cancellation {
    /// Time until the authority ends the run by itself, where it will.
    #[must_use]
    pub fn left(&self) -> Option<Duration> {
        match self {
            Self::AbortRequested { left, .. } => *left,
            Self::LeaseLost(_) | Self::Suspended { .. } => None,
        }
    }
}

/// A run's heartbeats, until the value is dropped.
#[derive(Debug)]
pub(super) struct Heartbeats {
    pub(super) cancelled: watch::Receiver<Option<Cancellation>>,
    _beating: JoinSet<()>,
}

/// Sends a heartbeat every third of the ttl, and one when the work reports progress.
pub(super) fn start(worker: Worker, held: Held, progress: watch::Receiver<Option<v1::Progress>>) -> Heartbeats {
    let (cancel, cancelled) = watch::channel(None);
    let mut beating = JoinSet::new();
    beating.spawn(beat(worker, held, progress, cancel));
    Heartbeats { cancelled, _beating: beating }
}

async fn beat(
    mut worker: Worker,
    held: Held,
    mut progress: watch::Receiver<Option<v1::Progress>>,
    cancel: watch::Sender<Option<Cancellation>>,
) {
    let every = worker.options.lease_ttl / 3;
    // A call that hangs is not to outlive the lease.
    let (wait_max, again_after) = (CALL_WAIT_MAX.min(every), AGAIN_AFTER.min(every / 4));
    let mut sent = Instant::now();
    let mut next = sent + every;
    // The progress that the authority has heard. Sent again, it would look as if the work had just reported it.
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
        let request = v1::HeartbeatRunRequest {
            run_id: held.run.run_id.clone(),
            lease_epoch: held.epoch,
            progress: unsaid.clone(),
        };
        let failure = match worker.client.ask(&request, Instant::now() + wait_max).await {
            Ok(answer) => {
                silent = false;
                heard = unsaid.or(heard);
                sent = Instant::now();
                next = sent + every;
                if let Some(abort) = answer.abort_request.filter(|_| !std::mem::replace(&mut asked_to_abort, true)) {
                    cancel.send_replace(Some(asked_to(abort, answer.now.as_ref())));
                }
                continue;
            }
            Err(failure) => failure,
        };
        next = Instant::now() + again_after;
        let refused = failure.kind == Kind::Refused;
        let standing = if refused { standing(&mut worker, &held, wait_max).await } else { None };
        match standing {
            Some(Standing::Lost) => {
                cancel.send_replace(Some(Cancellation::LeaseLost(failure.to_string())));
                return;
            }
            Some(Standing::Aborted(reason)) => {
                cancel.send_replace(Some(Cancellation::AbortRequested { reason, left: None }));
                return;
            }
            Some(Standing::Suspended { kind, reason }) => {
                cancel.send_replace(Some(Cancellation::Suspended { kind, reason }));
                return;
            }
            Some(Standing::Presumed) => {
                worker.notice(Notice::PresumedGone(failure));
                return;
            }
            // Another worker may still claim the run, or the sweep may end it.
            Some(Standing::Over) | None => {
                if !std::mem::replace(&mut silent, true) {
                    worker.notice(Notice::Retrying(failure));
                }
            }
        }
    }
}

/// The cancellation that an abort request makes.
fn asked_to(abort: v1::AbortRequest, now: Option<&Timestamp>) -> Cancellation {
    let left = left(&abort, now);
    let reason = if abort.reason.is_empty() { "no reason was given".to_owned() } else { abort.reason };
    Cancellation::AbortRequested { reason, left }
}

/// Time until the grace is over, by the store's clock.
fn left(abort: &v1::AbortRequest, now: Option<&Timestamp>) -> Option<Duration> {
    let nanos = |at: &Timestamp| i128::from(at.seconds) * 1_000_000_000 + i128::from(at.nanos);
    let left = nanos(abort.deadline.as_ref()?) - nanos(now?);
    Some(Duration::from_nanos(u64::try_from(left).unwrap_or(0)))
}

/// The reason for which the authority takes an attempt for failed that took too long.
const ATTEMPT_TIMEOUT: &str = "ATTEMPT_TIMEOUT";

/// The state of a run whose heartbeat was refused.
enum Standing {
    /// The run is somebody else's, or has truly ended.
    Lost,
    /// The authority concluded that this worker had gone: the worker's report is kept.
    Presumed,
    /// The authority ended the run because its time, or that of a request to abort it, was over.
    Aborted(String),
    /// The lease is over, and nothing has come of it yet.
    Over,
    /// Somebody suspended the run, and nobody has taken it since.
    Suspended { kind: String, reason: String },
}

/// Asks for the state of the run; none when no server answers.
async fn standing(worker: &mut Worker, held: &Held, wait_max: Duration) -> Option<Standing> {
    let request = v1::GetRunRequest { run_id: held.run.run_id.clone(), ..v1::GetRunRequest::default() };
    let found: Result<_, Failure> = worker.client.ask(&request, Instant::now() + wait_max).await;
    let found = found.ok()?.run?;
    let ours = found.lease.as_ref().is_some_and(|lease| lease.epoch == held.epoch);
    if let (true, v1::RunStatus::Running, Some(suspension)) = (ours, found.status(), &found.suspension) {
        let (kind, reason) = (suspension.kind.clone(), suspension.reason.clone());
        return Some(Standing::Suspended { kind, reason });
    }
    // The time of the attempt was over: nobody waits for what comes of it.
    let failure = found.last_failure.as_ref().filter(|failure| failure.lease_epoch == held.epoch);
    let code = if found.presumed { Some(&found.reason_code) } else { failure.map(|failure| &failure.reason_code) };
    if ours && code.is_some_and(|code| code == ATTEMPT_TIMEOUT) {
        return Some(Standing::Lost);
    }
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

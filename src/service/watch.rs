//! Frames of a watch, as the wire has them, and what ends it.

use std::future;
use std::sync::Arc;

use async_stream::stream;
use futures_util::{Stream, StreamExt as _};
use tokio::pin;
use tokio::time::sleep_until;
use tonic::Status;

use super::runs::Until;
use super::unreadable;
use crate::domain::{Progress, Refusal, RunKey, Time};
use crate::feed::{WatchError, watch_run, watch_runs};
use crate::leases::progress::{ProgressBoard, ProgressWatch};
use crate::wire::cursor::CursorInvalid;
use crate::wire::{answer, served, status};

fn of_one(frame: watch_run::Frame, ledger_epoch: u64) -> served::WatchRunResponse {
    use served::watch_run_response::{CaughtUp, Change, Checkpoint, End, Frame, Snapshot};
    use watch_run::Frame as Told;
    let frame = match frame {
        Told::Snapshot { run, .. } => Frame::Snapshot(Snapshot { run }),
        Told::Change { event, run, .. } => Frame::Change(Change { event, run }),
        Told::CaughtUp { revision } => Frame::CaughtUp(CaughtUp { revision }),
        Told::Checkpoint { revision, at } => {
            Frame::Checkpoint(Checkpoint { revision, at: Some(answer::timestamp(at)) })
        }
        Told::End(run) => Frame::End(End { run }),
    };
    served::WatchRunResponse { frame: Some(frame), ledger_epoch }
}

pub(super) fn of_many(frame: watch_runs::Frame) -> served::WatchRunsResponse {
    use served::watch_runs_response::{CaughtUp, Change, Checkpoint, Frame, Snapshot};
    use watch_runs::Frame as Told;
    let frame = match frame {
        Told::Snapshot { run, cursor } => Frame::Snapshot(Snapshot { run, cursor }),
        Told::Change { event, run, matches, cursor, after: _ } => Frame::Change(Change { event, run, matches, cursor }),
        Told::CaughtUp { cursor } => Frame::CaughtUp(CaughtUp { cursor }),
        Told::Checkpoint { cursor, at } => Frame::Checkpoint(Checkpoint { cursor, at: at.map(answer::timestamp) }),
    };
    served::WatchRunsResponse { frame: Some(frame) }
}

/// The frames of one run's watch, and between them how far its work comes, once the watch has caught up.
pub(super) fn with_progress(
    board: Arc<ProgressBoard>,
    key: RunKey,
    ledger_epoch: u64,
    frames: impl Stream<Item = Result<watch_run::Frame, WatchError>>,
) -> impl Stream<Item = Result<served::WatchRunResponse, WatchError>> {
    let mut frames = Box::pin(frames);
    stream! {
        let (mut held, mut caught_up) = (false, false);
        let mut watching: Option<ProgressWatch> = None;
        loop {
            let progressed = async {
                match &mut watching {
                    Some(watching) => watching.next().await,
                    None => future::pending().await,
                }
            };
            tokio::select! {
                biased;
                frame = frames.next() => {
                    let Some(frame) = frame else { return };
                    match &frame {
                        Ok(watch_run::Frame::Snapshot { held: now, .. } | watch_run::Frame::Change { held: now, .. }) => {
                            held = *now;
                        }
                        Ok(watch_run::Frame::CaughtUp { .. }) => caught_up = true,
                        Ok(watch_run::Frame::Checkpoint { .. } | watch_run::Frame::End(_)) | Err(_) => {}
                    }
                    if held && caught_up {
                        watching.get_or_insert_with(|| board.watch(&key));
                    } else {
                        watching = None;
                    }
                    yield frame.map(|frame| of_one(frame, ledger_epoch));
                }
                said = progressed => yield Ok(progressed_frame(&said, ledger_epoch)),
            }
        }
    }
}

fn progressed_frame(said: &(Progress, Time), ledger_epoch: u64) -> served::WatchRunResponse {
    use served::watch_run_response::{Frame, Progressed};
    let frame = Frame::Progressed(Progressed { progress: Some(answer::progress(said)) });
    served::WatchRunResponse { frame: Some(frame), ledger_epoch }
}

/// The frames until the call is over. Nobody else ends them then: the transport's timer is for the first answer.
pub(super) fn until<F>(
    until: Until,
    frames: impl Stream<Item = Result<F, Status>>,
) -> impl Stream<Item = Result<F, Status>> {
    // In a place of its own: moved into the stream below, it would take its room there twice.
    let mut frames = Box::pin(frames);
    stream! {
        let deadline_is_first = until.deadline.is_some_and(|deadline| until.connection.is_none_or(|end| deadline < end));
        let over = async {
            match until.deadline.into_iter().chain(until.connection).min() {
                Some(end) => sleep_until(end).await,
                None => future::pending().await,
            }
        };
        pin!(over);
        loop {
            tokio::select! {
                biased;
                () = &mut over => {
                    yield Err(if deadline_is_first { status::deadline() } else { status::connection_ends() });
                    return;
                }
                frame = frames.next() => match frame {
                    Some(frame) => yield frame,
                    None => return,
                },
            }
        }
    }
}

/// Why a watch of many runs ended.
pub(super) fn cut_many(namespace: &str, error: &WatchError) -> Status {
    let key = RunKey { namespace: namespace.to_owned(), run_id: String::new() };
    if matches!(error, WatchError::LedgerRestored) {
        // A cursor says where to go on, and none leads on from there.
        return status::cursor_invalid(CursorInvalid);
    }
    cut("WatchRuns", error, &key, None)
}

/// Why a watch or a wait ended.
pub(super) fn cut(rpc: &'static str, error: &WatchError, key: &RunKey, after_revision: Option<u64>) -> Status {
    match error {
        WatchError::RunNotFound => status::refusal(&Refusal::RunNotFound { key: key.clone() }),
        WatchError::RevisionAhead { revision } => {
            status::revision_ahead(key, after_revision.unwrap_or_default(), *revision)
        }
        WatchError::CursorInvalid => status::cursor_invalid(CursorInvalid),
        WatchError::CursorExpired => status::cursor_expired(),
        WatchError::LedgerRestored => status::ledger_restored(),
        WatchError::Draining => status::draining(),
        // Whoever met the event has logged it.
        WatchError::Unreadable(error) => status::store(error),
        WatchError::Store(error) => unreadable(rpc, key, error),
    }
}

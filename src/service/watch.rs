//! Frames of a watch, as the wire has them, and what ends it.

use std::future;

use async_stream::stream;
use bytes::Bytes;
use futures_util::{Stream, StreamExt as _};
use prost::Message as _;
use tokio::pin;
use tokio::time::{Instant, sleep_until};
use tonic::Status;

use super::unreadable;
use crate::domain::{Refusal, Run, RunKey};
use crate::feed::session::{Frame, WatchError};
use crate::proto::served::WatchRunResponse;
use crate::proto::served::watch_run_response::{CaughtUp, Change, Checkpoint, End, Frame as WireFrame, Snapshot};
use crate::proto::{answer, status, v1};

pub(super) fn response(frame: &Frame) -> WatchRunResponse {
    let encoded = |run: &Run| Bytes::from(v1::Run::from(run).encode_to_vec());
    let frame = match frame {
        Frame::Snapshot(run) => WireFrame::Snapshot(Snapshot { run: encoded(run) }),
        Frame::Change(change) => {
            let event: v1::RunEvent = (&change.event).into();
            WireFrame::Change(Change { event: event.encode_to_vec().into(), run: encoded(&change.run) })
        }
        Frame::CaughtUp { revision } => WireFrame::CaughtUp(CaughtUp { revision: *revision }),
        Frame::Checkpoint { revision, at } => {
            WireFrame::Checkpoint(Checkpoint { revision: *revision, at: Some(answer::timestamp(*at)) })
        }
        Frame::End(run) => WireFrame::End(End { run: encoded(run) }),
    };
    WatchRunResponse { frame: Some(frame) }
}

/// The frames up to the caller's deadline. Nobody else ends them then: the transport's timer is for the first answer.
pub(super) fn until<F>(
    deadline: Option<Instant>,
    frames: impl Stream<Item = Result<F, Status>>,
) -> impl Stream<Item = Result<F, Status>> {
    stream! {
        let over = async {
            match deadline {
                Some(deadline) => sleep_until(deadline).await,
                None => future::pending().await,
            }
        };
        pin!(over, frames);
        loop {
            tokio::select! {
                biased;
                () = &mut over => {
                    yield Err(status::deadline());
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

pub(super) fn cut(error: &WatchError, key: &RunKey, after_revision: Option<u64>) -> Status {
    match error {
        WatchError::RunNotFound => status::refusal(&Refusal::RunNotFound { key: key.clone() }),
        WatchError::RevisionAhead { revision } => {
            status::revision_ahead(key, after_revision.unwrap_or_default(), *revision)
        }
        WatchError::Draining => status::draining(),
        WatchError::Store(error) => unreadable("WatchRun", key, error),
    }
}

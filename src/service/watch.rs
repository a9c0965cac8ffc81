//! Frames of a watch, as the wire has them.

use tonic::Status;

use crate::domain::{Refusal, RunKey};
use crate::feed::session::{Frame, WatchError};
use crate::proto::v1::WatchRunResponse;
use crate::proto::v1::watch_run_response::{CaughtUp, Change, Checkpoint, End, Frame as WireFrame, Snapshot};
use crate::proto::{answer, status};
use crate::telemetry::chain;

pub(super) fn response(frame: &Frame) -> WatchRunResponse {
    let frame = match frame {
        Frame::Snapshot(run) => WireFrame::Snapshot(Snapshot { run: Some(run.as_ref().into()) }),
        Frame::Change(change) => {
            WireFrame::Change(Change { event: Some((&change.event).into()), run: Some(change.run.as_ref().into()) })
        }
        Frame::CaughtUp { revision } => WireFrame::CaughtUp(CaughtUp { revision: *revision }),
        Frame::Checkpoint { revision, at } => {
            WireFrame::Checkpoint(Checkpoint { revision: *revision, at: Some(answer::timestamp(*at)) })
        }
        Frame::End(run) => WireFrame::End(End { run: Some(run.as_ref().into()) }),
    };
    WatchRunResponse { frame: Some(frame) }
}

pub(super) fn cut(error: &WatchError, key: &RunKey, after_revision: Option<u64>) -> Status {
    match error {
        WatchError::RunNotFound => status::refusal(&Refusal::RunNotFound { key: key.clone() }),
        WatchError::RevisionAhead { revision } => {
            status::revision_ahead(key, after_revision.unwrap_or_default(), *revision)
        }
        WatchError::Draining => status::draining(),
        WatchError::Store(error) => {
            tracing::error!(error = chain(error), "a watch was cut");
            status::store(error)
        }
    }
}

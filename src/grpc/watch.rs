//! Frames of a watch, as gRPC has them. Each is counted.

use crate::authority::OneFrame;
use crate::domain::LedgerEpoch;
use crate::feed::{watch_run, watch_runs};
use crate::telemetry::record::{self, Value};
use crate::wire::parts::lease::progress;
use crate::wire::scalars::timestamp;
use crate::wire::served;

const SNAPSHOT: Value = (0, "snapshot");
const CHANGE: Value = (1, "change");
const CAUGHT_UP: Value = (2, "caught_up");
const CHECKPOINT: Value = (3, "checkpoint");
const END: Value = (4, "end");
const PROGRESSED: Value = (5, "progressed");

pub(super) fn of_one(frame: OneFrame, ledger_epoch: LedgerEpoch) -> served::WatchRunResponse {
    use served::watch_run_response::{CaughtUp, Change, Checkpoint, End, Frame, Progressed, Snapshot};
    use watch_run::Frame as Told;
    record::frame(match &frame {
        OneFrame::Run(Told::Snapshot { .. }) => SNAPSHOT,
        OneFrame::Run(Told::Change { .. }) => CHANGE,
        OneFrame::Run(Told::CaughtUp { .. }) => CAUGHT_UP,
        OneFrame::Run(Told::Checkpoint { .. }) => CHECKPOINT,
        OneFrame::Run(Told::End(_)) => END,
        OneFrame::Progressed(..) => PROGRESSED,
    });
    let frame = match frame {
        OneFrame::Run(Told::Snapshot { run, .. }) => Frame::Snapshot(Snapshot { run }),
        OneFrame::Run(Told::Change { event, run, .. }) => Frame::Change(Change { event, run }),
        OneFrame::Run(Told::CaughtUp { revision }) => Frame::CaughtUp(CaughtUp { revision: revision.into() }),
        OneFrame::Run(Told::Checkpoint { revision, at }) => {
            Frame::Checkpoint(Checkpoint { revision: revision.into(), at: Some(timestamp(at)) })
        }
        OneFrame::Run(Told::End(run)) => Frame::End(End { run }),
        OneFrame::Progressed(said, at) => Frame::Progressed(Progressed { progress: Some(progress(&(said, at))) }),
    };
    served::WatchRunResponse { frame: Some(frame), ledger_epoch: ledger_epoch.into() }
}

pub(super) fn of_many(frame: watch_runs::Frame) -> served::WatchRunsResponse {
    use served::watch_runs_response::{CaughtUp, Change, Checkpoint, Frame, Snapshot};
    use watch_runs::Frame as Told;
    record::frame(match &frame {
        Told::Snapshot { .. } => SNAPSHOT,
        Told::Change { .. } => CHANGE,
        Told::CaughtUp { .. } => CAUGHT_UP,
        Told::Checkpoint { .. } => CHECKPOINT,
    });
    let frame = match frame {
        Told::Snapshot { run, cursor } => Frame::Snapshot(Snapshot { run, cursor }),
        Told::Change { event, run, matches, cursor, after: _ } => Frame::Change(Change { event, run, matches, cursor }),
        Told::CaughtUp { cursor } => Frame::CaughtUp(CaughtUp { cursor }),
        Told::Checkpoint { cursor, at } => Frame::Checkpoint(Checkpoint { cursor, at: at.map(timestamp) }),
    };
    served::WatchRunsResponse { frame: Some(frame) }
}

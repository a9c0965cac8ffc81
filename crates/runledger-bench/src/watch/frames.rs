//! A watch, as a measurement sees it.

use tonic::Streaming;

use crate::BenchError;
use crate::servers::Client;
use runledger_proto::v1::watch_run_response::Frame as OneFrame;
use runledger_proto::v1::watch_runs_request::Initial;
use runledger_proto::v1::watch_runs_response::Frame as ManyFrame;
use runledger_proto::v1::{
    RunEvent, RunFilter, WatchRunRequest, WatchRunResponse, WatchRunsRequest, WatchRunsResponse,
};

/// An open watch of either kind.
#[derive(Debug)]
pub(super) enum Watch {
    One(Streaming<WatchRunResponse>),
    Many(Streaming<WatchRunsResponse>),
}

/// The content of a frame.
#[derive(Debug)]
pub(super) enum Told {
    /// An event.
    Change { run_id: String, revision: u64 },
    /// The end of history, with the cursor to resume from, if the watch has cursors.
    CaughtUp(Option<String>),
    /// A checkpoint: no event has come.
    Checkpoint,
    /// The run has ended, and the watch with it.
    End,
    /// Another frame.
    Other,
}

impl Watch {
    pub(super) async fn run(mut client: Client, run_id: String) -> Result<Self, BenchError> {
        let request = WatchRunRequest { run_id, ..WatchRunRequest::default() };
        let frames = client.watch_run(request).await.map_err(BenchError::call("WatchRun"))?;
        Ok(Self::One(frames.into_inner()))
    }

    /// A watch of all runs that match, from now on.
    pub(super) async fn runs(client: Client, filter: RunFilter) -> Result<Self, BenchError> {
        Self::many(client, filter, String::new()).await
    }

    /// A watch of all runs that match, after a cursor.
    pub(super) async fn runs_after(client: Client, filter: RunFilter, cursor: String) -> Result<Self, BenchError> {
        Self::many(client, filter, cursor).await
    }

    async fn many(mut client: Client, filter: RunFilter, cursor: String) -> Result<Self, BenchError> {
        let request = WatchRunsRequest { filter: Some(filter), initial: Initial::None.into(), cursor };
        let frames = client.watch_runs(request).await.map_err(BenchError::call("WatchRuns"))?;
        Ok(Self::Many(frames.into_inner()))
    }

    /// The next frame. A stream may end only after the end of its run.
    pub(super) async fn next(&mut self) -> Result<Told, BenchError> {
        match self {
            Self::One(frames) => {
                let frame = frames.message().await.map_err(BenchError::call("WatchRun"))?;
                let frame = frame.ok_or(BenchError::Ended { rpc: "WatchRun" })?.frame;
                Ok(match frame {
                    Some(OneFrame::Change(change)) => changed("WatchRun", change.event)?,
                    Some(OneFrame::CaughtUp(_)) => Told::CaughtUp(None),
                    Some(OneFrame::Checkpoint(_)) => Told::Checkpoint,
                    Some(OneFrame::End(_)) => Told::End,
                    Some(OneFrame::Snapshot(_) | OneFrame::Progressed(_)) | None => Told::Other,
                })
            }
            Self::Many(frames) => {
                let frame = frames.message().await.map_err(BenchError::call("WatchRuns"))?;
                let frame = frame.ok_or(BenchError::Ended { rpc: "WatchRuns" })?.frame;
                Ok(match frame {
                    Some(ManyFrame::Change(change)) => changed("WatchRuns", change.event)?,
                    Some(ManyFrame::CaughtUp(caught_up)) => Told::CaughtUp(Some(caught_up.cursor)),
                    Some(ManyFrame::Checkpoint(_)) => Told::Checkpoint,
                    Some(ManyFrame::Snapshot(_)) | None => Told::Other,
                })
            }
        }
    }

    /// Waits until it is live. Gives how many changes came before, and the cursor, if it has one.
    pub(super) async fn caught_up(&mut self) -> Result<(u64, Option<String>), BenchError> {
        let mut changes = 0;
        loop {
            match self.next().await? {
                Told::CaughtUp(cursor) => return Ok((changes, cursor)),
                Told::Change { .. } => changes += 1,
                Told::Checkpoint | Told::Other => {}
                Told::End => return Err(BenchError::Ended { rpc: "WatchRun" }),
            }
        }
    }
}

fn changed(rpc: &'static str, event: Option<RunEvent>) -> Result<Told, BenchError> {
    let RunEvent { run_id, revision, .. } = event.ok_or(BenchError::Answer { rpc, field: "an event" })?;
    Ok(Told::Change { run_id, revision })
}

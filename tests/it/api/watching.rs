//! A watch as a client has it.

use std::time::Duration;

use runledger_proto::v1::watch_run_response::{Change, Frame};
use runledger_proto::v1::{Run, WatchRunResponse};
use tokio::time::timeout;
use tonic::{Status, Streaming};

/// The time that a frame may take: far more than it needs on a busy machine.
const FRAME_WAIT_MAX: Duration = Duration::from_secs(30);

#[derive(Debug)]
pub(crate) struct Watch {
    frames: Streaming<WatchRunResponse>,
}

impl Watch {
    pub(crate) fn of(frames: Streaming<WatchRunResponse>) -> Self {
        Self { frames }
    }

    /// The next frame; none at the end of a stream that closed with OK.
    pub(crate) async fn try_next(&mut self) -> Result<Option<Frame>, Status> {
        let next = timeout(FRAME_WAIT_MAX, self.frames.message()).await.expect("a frame in time")?;
        Ok(next.map(|frame| frame.frame.expect("a frame says something")))
    }

    /// The next frame that is not a checkpoint: how long a busy machine is quiet is not what a test is about.
    pub(crate) async fn next(&mut self) -> Option<Frame> {
        loop {
            match self.try_next().await.unwrap() {
                Some(Frame::Checkpoint(_)) => {}
                frame => return frame,
            }
        }
    }

    pub(crate) async fn snapshot(&mut self) -> Run {
        match self.next().await {
            Some(Frame::Snapshot(snapshot)) => snapshot.run.unwrap(),
            other => panic!("not a snapshot: {other:?}"),
        }
    }

    pub(crate) async fn change(&mut self) -> Change {
        match self.next().await {
            Some(Frame::Change(change)) => change,
            other => panic!("not a change: {other:?}"),
        }
    }

    /// The words of the next changes, as many as are asked for.
    pub(crate) async fn words(&mut self, count: usize) -> Vec<String> {
        let mut words = Vec::new();
        while words.len() < count {
            words.push(self.change().await.run.unwrap().word);
        }
        words
    }

    /// The run as it was, and as each change up to its end left it.
    pub(crate) async fn until_the_end(&mut self) -> (Run, Vec<Run>) {
        let (begun, mut runs) = (self.snapshot().await, Vec::new());
        for frame in self.rest().await {
            match frame {
                Frame::Change(change) => runs.push(change.run.unwrap()),
                Frame::CaughtUp(_) | Frame::End(_) => {}
                Frame::Snapshot(_) | Frame::Checkpoint(_) | Frame::Progressed(_) => panic!("no change"),
            }
        }
        (begun, runs)
    }

    pub(crate) async fn caught_up(&mut self) -> u64 {
        match self.next().await {
            Some(Frame::CaughtUp(caught_up)) => caught_up.revision,
            other => panic!("not caught up: {other:?}"),
        }
    }

    /// The end, and after it the close with OK.
    pub(crate) async fn end(&mut self) -> Run {
        match self.next().await {
            Some(Frame::End(end)) => {
                assert_eq!(self.try_next().await.unwrap(), None, "nothing comes after the end");
                end.run.unwrap()
            }
            other => panic!("not the end: {other:?}"),
        }
    }

    /// Every frame up to the end of the stream.
    pub(crate) async fn rest(&mut self) -> Vec<Frame> {
        let mut frames = Vec::new();
        while let Some(frame) = self.next().await {
            frames.push(frame);
        }
        frames
    }
}

//! A watcher that resumes where it was cut, and what it saw.

use std::net::SocketAddr;

use runledger_proto::v1::WatchRunRequest;
use runledger_proto::v1::watch_run_response::{Change, Frame};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::{Duration, Instant, sleep, timeout};
use tonic::{Code, Status};

use super::calls::{Answer, meaning, reason};
use super::load::Targets;
use super::server::{SOON, client};

/// The frames that a watch showed until its end.
#[derive(Debug)]
pub(crate) struct Seen {
    pub(crate) changes: Vec<Change>,
    /// The reasons of the cuts.
    pub(crate) cuts: Vec<String>,
}

/// Watches a run at work.
#[derive(Debug)]
pub(crate) struct Watcher {
    task: JoinSet<Seen>,
    revision: watch::Receiver<u64>,
}

impl Watcher {
    /// Watches from the run's first event to its end, through every cut.
    pub(crate) fn start(run_id: &'static str, targets: &Targets) -> Self {
        let (sender, revision) = watch::channel(0);
        let targets = targets.clone();
        let mut task = JoinSet::new();
        task.spawn(async move { to_the_end(run_id, &targets, &sender).await });
        Self { task, revision }
    }

    /// Waits until it has seen so many more events.
    pub(crate) async fn progresses(&mut self, by: u64) {
        let goal = *self.revision.borrow() + by;
        let reached = timeout(SOON, self.revision.wait_for(|revision| *revision >= goal)).await;
        assert!(reached.is_ok(), "revision {goal} was not seen");
    }

    /// Waits for the end of the run.
    pub(crate) async fn seen(mut self) -> Seen {
        match timeout(SOON * 2, self.task.join_next()).await.expect("the watch never ended").unwrap() {
            Ok(seen) => seen,
            Err(error) => std::panic::resume_unwind(error.into_panic()),
        }
    }
}

/// The changes that a watch from the first event shows, in one go.
pub(crate) async fn uncut(run_id: &str, address: SocketAddr) -> Vec<Change> {
    let mut seen = Seen { changes: Vec::new(), cuts: Vec::new() };
    let (revision, _) = watch::channel(0);
    stream(run_id, address, &mut seen, &revision).await.unwrap();
    seen.changes
}

async fn to_the_end(run_id: &str, targets: &Targets, revision: &watch::Sender<u64>) -> Seen {
    let mut seen = Seen { changes: Vec::new(), cuts: Vec::new() };
    let (mut progressed, mut before) = (Instant::now(), 0);
    loop {
        let address = {
            let targets = targets.borrow();
            targets[seen.cuts.len() % targets.len()]
        };
        match stream(run_id, address, &mut seen, revision).await {
            Ok(()) => return seen,
            // The run is not started yet.
            Err(status) if status.code() == Code::NotFound => {}
            Err(status) => match meaning(&status) {
                Answer::NothingWritten(_) | Answer::Cut(_) => seen.cuts.push(reason(&status)),
                other @ (Answer::Applied(_) | Answer::Replayed(_) | Answer::Unknown(_)) => panic!("a watch: {other:?}"),
            },
        }
        if seen.changes.len() > before {
            (progressed, before) = (Instant::now(), seen.changes.len());
        }
        assert!(progressed.elapsed() < SOON * 3, "cut for too long: {:?}", seen.cuts);
        sleep(Duration::from_millis(20)).await;
    }
}

/// One stream, resumed after what was seen. Ok when it ended as the run did.
async fn stream(
    run_id: &str,
    address: SocketAddr,
    seen: &mut Seen,
    revision: &watch::Sender<u64>,
) -> Result<(), Status> {
    let resume = seen.changes.last().map_or(0, |change| change.run.as_ref().unwrap().revision);
    let request = WatchRunRequest { run_id: run_id.to_owned(), after_revision: Some(resume), ledger_epoch: None };
    let mut frames = client(address).watch_run(request).await?.into_inner();
    let mut caught_up = 0;
    while let Some(frame) = frames.message().await? {
        match frame.frame.unwrap() {
            Frame::Snapshot(_) => panic!("a resumed watch has no snapshot"),
            Frame::Change(change) => {
                let next = change.event.as_ref().unwrap().revision;
                assert_eq!(change.run.as_ref().unwrap().revision, next, "the run is as right after the event");
                let last = seen.changes.last().map_or(0, |change| change.run.as_ref().unwrap().revision);
                assert_eq!(next, last + 1, "no event is missing and none comes twice");
                seen.changes.push(change);
                revision.send_replace(next);
            }
            Frame::CaughtUp(_) => caught_up += 1,
            Frame::Checkpoint(_) | Frame::Progressed(_) => {}
            Frame::End(end) => {
                assert_eq!(end.run, seen.changes.last().unwrap().run, "the end is the last state");
                assert!(frames.message().await?.is_none(), "nothing follows the end");
                return Ok(());
            }
        }
        assert!(caught_up <= 1, "caught_up comes once");
    }
    Err(Status::from_error("the stream closed without an end".into()))
}

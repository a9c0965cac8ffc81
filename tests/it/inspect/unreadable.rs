//! One event that cannot be decoded: it ends the watches that it is for, and no other.

use runledger_proto::v1::watch_run_response::Frame as RunFrame;
use runledger_proto::v1::watch_runs_request::Initial;
use runledger_proto::v1::watch_runs_response::Frame;
use runledger_proto::v1::{
    RunFilter, RunStatus, StartRunRequest, WatchRunRequest, WatchRunsRequest, WatchRunsResponse,
};
use tokio::time::timeout;
use tonic::{Code, Status, Streaming};

use super::ledger::Ledger;
use super::on_both_stores;
use crate::process::calls::reason;
use crate::process::server::{Client, SOON, Server};
use crate::support::commands::{Asking, complete, start, update};
use crate::support::lifecycles::Standing as _;

on_both_stores! {
    an_event_that_cannot_be_read_ends_only_the_watches_that_it_is_for
    what_a_run_was_only_behind_an_event_that_cannot_be_read_is_not_passed_over
}

async fn next<F>(frames: &mut Streaming<F>) -> Result<F, Status> {
    timeout(SOON, frames.message()).await.expect("a frame in time").map(|frame| frame.expect("no end"))
}

async fn watch(client: &mut Client, filter: RunFilter, cursor: &str) -> Streaming<WatchRunsResponse> {
    let asked = WatchRunsRequest { filter: Some(filter), initial: Initial::None.into(), cursor: cursor.to_owned() };
    client.watch_runs(asked).await.unwrap().into_inner()
}

/// The runs and revisions that a watch shows until it has caught up, or ends: why.
async fn shown(frames: &mut Streaming<WatchRunsResponse>) -> (Vec<(String, u64)>, Option<Status>) {
    let mut shown = Vec::new();
    loop {
        match next(frames).await.map(|frame| frame.frame.unwrap()) {
            Ok(Frame::Change(change)) => {
                let event = change.event.unwrap();
                shown.push((event.run_id, event.revision));
            }
            Ok(Frame::CaughtUp(_)) => return (shown, None),
            Ok(Frame::Checkpoint(_)) => {}
            Ok(Frame::Snapshot(snapshot)) => panic!("a first view: {snapshot:?}"),
            Err(status) => return (shown, Some(status)),
        }
    }
}

/// A cursor from before all that the ledger is to have.
async fn begin(ledger: &Ledger) -> String {
    ledger.commit(vec![]).await;
    let mut server = Server::start(&ledger.store()).await;
    server.is_ready().await;
    let mut begun = watch(&mut server.client(), RunFilter::default(), "").await;
    let Some(Frame::CaughtUp(caught_up)) = next(&mut begun).await.unwrap().frame else { panic!("not caught up") };
    server.process.kill();
    caught_up.cursor
}

fn is_corrupt(status: &Status) -> bool {
    (status.code(), reason(status).as_str()) == (Code::Internal, "STORE_CORRUPT")
}

async fn an_event_that_cannot_be_read_ends_only_the_watches_that_it_is_for(ledger: Ledger) {
    let of_thread = |id: &str| RunFilter { task_thread_id: id.to_owned(), ..RunFilter::default() };
    let of_workflow = |id: &str| RunFilter { workflow_id: id.to_owned(), ..RunFilter::default() };
    let everything = RunFilter::default;
    let cursor = begin(&ledger).await;
    ledger.fill().await;
    ledger.data.sql("update run_events set event = '[]' where run_id = 'long' and revision = 40").await;
    let server = Server::start(&ledger.store()).await;
    server.is_ready().await;
    let mut client = server.client();

    // A watch whose filter the run has never matched passes over the event and over events that cannot be folded
    // without it.
    let mut others = Vec::new();
    for (filter, wanted) in [(of_thread("thread-2"), 3), (of_workflow("workflow-1"), 1), (of_workflow("none"), 0)] {
        let mut frames = watch(&mut client, filter, &cursor).await;
        let (shown, ended) = shown(&mut frames).await;
        assert!(ended.is_none(), "{ended:?}");
        assert_eq!(shown.len(), wanted, "{shown:?}");
        others.push(frames);
    }
    // A watch that would have to show the event ends there, and is told why, each time.
    for filter in [everything(), of_thread("thread-1"), everything()] {
        let (shown, ended) = shown(&mut watch(&mut client, filter, &cursor).await).await;
        assert!(is_corrupt(&ended.expect("it ends")), "{shown:?}");
        let long: Vec<u64> = shown.iter().filter(|(run, _)| run == "long").map(|(_, revision)| *revision).collect();
        assert!(long.iter().copied().eq(1..40), "{long:?}");
    }
    // The watch of the run ends there too, after the events that can be read.
    let asked = WatchRunRequest { run_id: "long".to_owned(), after_revision: Some(0), ledger_epoch: None };
    let mut frames = client.watch_run(asked).await.unwrap().into_inner();
    let mut revisions = Vec::new();
    let ended = loop {
        match next(&mut frames).await.map(|frame| frame.frame.unwrap()) {
            Ok(RunFrame::Change(change)) => revisions.push(change.event.unwrap().revision),
            Ok(other) => panic!("not a change: {other:?}"),
            Err(status) => break status,
        }
    };
    assert!(is_corrupt(&ended), "{ended:?}");
    assert!(revisions.iter().copied().eq(1..40), "{revisions:?}");
    // The others are live.
    let request = StartRunRequest {
        task_thread_id: "thread-2".to_owned(),
        run_id: "new".to_owned(),
        ..StartRunRequest::default()
    };
    client.start_run(request).await.unwrap();
    let frame = next(&mut others[0]).await.unwrap().frame;
    assert!(matches!(&frame, Some(Frame::Change(change)) if change.run.as_ref().unwrap().run_id == "new"), "{frame:?}");
    let said = server.process.said();
    let logged = said.lines().filter(|line| line.contains("cannot be read") && line.contains("revision=40"));
    assert_eq!(logged.count(), 1, "once, however many met it:\n{said}");
    assert!(!said.contains("a read failed"), "{said}");
}

/// The run is blue after the third event, which is damaged, then green, and ends. Only the damaged event says how the
/// run was in between, and the events after it cannot be folded.
async fn what_a_run_was_only_behind_an_event_that_cannot_be_read_is_not_passed_over(ledger: Ledger) {
    let cursor = begin(&ledger).await;
    ledger
        .commit(vec![
            start("run").phase("begun"),
            update("run").label("shape", "round"),
            update("run").label("color", "blue").phase("between"),
            update("run").label("color", "green").phase("after"),
            complete("run"),
        ])
        .await;
    ledger.data.sql("update run_events set event = '[]' where run_id = 'run' and revision = 3").await;
    let server = Server::start(&ledger.store()).await;
    server.is_ready().await;
    let mut client = server.client();
    let label = |key: &str, value: &str| RunFilter {
        labels: [(key.to_owned(), value.to_owned())].into(),
        ..RunFilter::default()
    };
    let status = |status: RunStatus| RunFilter { statuses: vec![status.into()], ..RunFilter::default() };
    let phase = |phase: &str| RunFilter { phase: phase.to_owned(), ..RunFilter::default() };
    let ends = [
        (phase("begun"), 1..3),
        (phase("between"), 0..0),
        (phase("after"), 0..0),
        (label("color", "blue"), 0..0),
        (label("color", "green"), 0..0),
        (label("shape", "round"), 2..3),
        (status(RunStatus::Running), 1..3),
        (status(RunStatus::Completed), 0..0),
    ];
    for (filter, revisions) in ends {
        let (shown, ended) = shown(&mut watch(&mut client, filter.clone(), &cursor).await).await;
        assert!(ended.as_ref().is_some_and(is_corrupt), "{filter:?}: {ended:?} after {shown:?}");
        assert!(shown.iter().map(|(_, revision)| *revision).eq(revisions), "{filter:?}: {shown:?}");
    }
    let of_lifecycle = RunFilter { lifecycle: "none".to_owned(), ..RunFilter::default() };
    for filter in [of_lifecycle, label("shape", "square"), status(RunStatus::Failed), status(RunStatus::Pending)] {
        let (shown, ended) = shown(&mut watch(&mut client, filter.clone(), &cursor).await).await;
        assert!(ended.is_none() && shown.is_empty(), "{filter:?}: {ended:?} after {shown:?}");
    }
}

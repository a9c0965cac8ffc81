//! `WatchRuns`: what it refuses, what filters show, and where cursors lead.

use std::time::Duration;

use runledger_proto::v1::watch_runs_request::Initial;
use runledger_proto::v1::watch_runs_response::{Change, Frame};
use runledger_proto::v1::{Route, WatchRunsResponse};
use runledger_proto::v1::{Run, RunFilter, RunStatus, StartRunRequest, UpdateRunRequest, WatchRunsRequest};
use tokio::time::timeout;
use tonic::{Code, Status, Streaming};

use super::caller::{Caller, complete, deferred, fresh, start, update};
use super::place::{Own, Place};
use super::refused::Refused;

/// The time that a frame may take: far more than it needs on a busy machine.
const FRAME_WAIT_MAX: Duration = Duration::from_secs(30);

pub(super) struct Watch(Streaming<WatchRunsResponse>);

impl Watch {
    pub(super) async fn begin(caller: &Caller, asked: WatchRunsRequest) -> Result<Self, Status> {
        Ok(Self(caller.grpc.clone().watch_runs(caller.request(asked)).await?.into_inner()))
    }

    pub(super) async fn of(caller: &Caller, filter: RunFilter, initial: Initial) -> Self {
        let asked = WatchRunsRequest { filter: Some(filter), initial: initial.into(), cursor: String::new() };
        Self::begin(caller, asked).await.unwrap()
    }

    pub(super) async fn after(caller: &Caller, filter: RunFilter, cursor: &str) -> Self {
        let asked = WatchRunsRequest { filter: Some(filter), initial: 0, cursor: cursor.to_owned() };
        Self::begin(caller, asked).await.unwrap()
    }

    pub(super) async fn next(&mut self) -> Frame {
        loop {
            let frame = timeout(FRAME_WAIT_MAX, self.0.message()).await.expect("a frame in time").unwrap();
            match frame.expect("it never ends").frame.unwrap() {
                Frame::Checkpoint(_) => {}
                frame @ (Frame::Snapshot(_) | Frame::Change(_) | Frame::CaughtUp(_)) => return frame,
            }
        }
    }

    pub(super) async fn snapshot(&mut self) -> (Run, String) {
        match self.next().await {
            Frame::Snapshot(snapshot) => (snapshot.run.unwrap(), snapshot.cursor),
            other @ (Frame::Change(_) | Frame::CaughtUp(_) | Frame::Checkpoint(_)) => {
                panic!("not a snapshot: {other:?}")
            }
        }
    }

    pub(super) async fn change(&mut self) -> Change {
        match self.next().await {
            Frame::Change(change) => change,
            other @ (Frame::Snapshot(_) | Frame::CaughtUp(_) | Frame::Checkpoint(_)) => {
                panic!("not a change: {other:?}")
            }
        }
    }

    /// The next change is this one, and says whether it matches.
    pub(super) async fn shows(&mut self, run: &Run, matches: bool) -> String {
        let change = self.change().await;
        assert_eq!((change.run.as_ref(), change.matches), (Some(run), matches));
        change.cursor
    }

    pub(super) async fn caught_up(&mut self) -> String {
        match self.next().await {
            Frame::CaughtUp(caught_up) => caught_up.cursor,
            other @ (Frame::Snapshot(_) | Frame::Change(_) | Frame::Checkpoint(_)) => {
                panic!("not caught up: {other:?}")
            }
        }
    }
}

/// The runs of one test.
fn of_thread(thread: &str) -> RunFilter {
    RunFilter { task_thread_id: thread.to_owned(), ..RunFilter::default() }
}

fn started(thread: &str) -> StartRunRequest {
    StartRunRequest { task_thread_id: thread.to_owned(), ..start(&fresh("many")) }
}

pub(crate) async fn a_watch_of_all_runs_is_validated_whole(place: Place) {
    let caller = place.caller().await;
    let time = |seconds| Some(prost_types::Timestamp { seconds, nanos: 0 });
    let filter = RunFilter {
        task_thread_id: "x".repeat(257),
        statuses: vec![2, 99, 0],
        agent_id: "\0".into(),
        workflow_id: "x".repeat(257),
        audit_session_id: "\0".into(),
        route: 9,
        labels: [(String::new(), "value".to_owned())].into(),
        started_from: time(i64::MAX),
        started_before: time(i64::MIN),
        archived: -1,
        parent_run_id: "/".into(),
        continues_run_id: "x".repeat(129),
        phase: " ".into(),
        lifecycle: "x".repeat(65),
        suspended: None,
        ready: None,
        suspension_kind: "X".repeat(65),
    };
    let asked = WatchRunsRequest { filter: Some(filter), initial: 7, cursor: "noise".into() };
    let mut fields = Refused::from(Watch::begin(&caller, asked).await.map(|_| ()).unwrap_err()).fields();
    fields.sort_unstable();
    let named = |field: &str| fields.iter().any(|found| found.contains(field));
    for field in [
        "task_thread_id",
        "statuses[1]",
        "statuses[2]",
        "agent_id",
        "workflow_id",
        "audit_session_id",
        "route",
        "archived",
    ] {
        assert!(named(&format!("filter.{field}")), "{field} is not among {fields:?}");
    }
    assert!(named("filter.labels") && named("filter.started_from") && named("filter.started_before"), "{fields:?}");
    assert!(named("initial"), "{fields:?}");
    let filter = RunFilter { started_from: time(5), started_before: time(5), ..RunFilter::default() };
    let asked = WatchRunsRequest { filter: Some(filter), ..WatchRunsRequest::default() };
    let refused = Refused::from(Watch::begin(&caller, asked).await.map(|_| ()).unwrap_err());
    assert_eq!(refused.fields(), ["filter.started_before"]);
}

/// Noise, a cursor with one byte changed, and another ledger's get one answer.
pub(crate) async fn a_cursor_that_was_not_given_out_here_is_invalid(place: Place) {
    let caller = place.caller().await;
    let cursor = Watch::of(&caller, of_thread(&fresh("thread")), Initial::None).await.caught_up().await;
    let elsewhere = Own::start(place.kind).await;
    let foreign = Watch::of(&elsewhere.caller().await, RunFilter::default(), Initial::None).await.caught_up().await;
    let mut cursors = vec!["noise".to_owned(), "A".to_owned(), "ä".to_owned(), "x".repeat(10_000), foreign];
    for index in 0..cursor.len() {
        let other = if cursor.as_bytes()[index] == b'A' { "B" } else { "A" };
        cursors.push(format!("{}{other}{}", &cursor[..index], &cursor[index + 1..]));
    }
    cursors.extend((1..cursor.len()).map(|length| cursor[..length].to_owned()));
    for cursor in cursors {
        let asked = WatchRunsRequest { cursor: cursor.clone(), ..WatchRunsRequest::default() };
        let Err(refused) = Watch::begin(&caller, asked).await else { panic!("{cursor} was taken") };
        Refused::from(refused).is(Code::InvalidArgument, "CURSOR_INVALID");
    }
}

pub(crate) async fn a_first_view_shows_what_was_asked_for(place: Place) {
    let (caller, other) = (place.caller().await, place.other().await);
    let thread = fresh("thread");
    let running = caller.apply(started(&thread)).await;
    let completed = caller.apply(complete(&caller.apply(started(&thread)).await.run_id)).await;
    let pending = caller.apply(StartRunRequest { deferred: true, ..started(&thread) }).await;
    for (initial, wanted) in [
        (Initial::Unspecified, vec![&running, &pending]),
        (Initial::Active, vec![&running, &pending]),
        (Initial::All, vec![&running, &completed, &pending]),
        (Initial::None, vec![]),
    ] {
        for caller in [&caller, &other] {
            let mut watch = Watch::of(caller, of_thread(&thread), initial).await;
            for run in &wanted {
                assert_eq!(watch.snapshot().await.0, **run);
            }
            watch.caught_up().await;
        }
    }
}

/// For every field of a filter: a run comes in, leaves, and is not heard of any more.
pub(crate) async fn a_run_that_leaves_a_filter_is_shown_once_more(place: Place) {
    let (caller, other) = (place.caller().await, place.other().await);
    let thread = fresh("thread");
    let thread = thread.as_str();
    let run = caller.apply(started(thread)).await;
    let of = |change: fn(&mut RunFilter)| {
        let mut filter = of_thread(thread);
        change(&mut filter);
        filter
    };
    let mut all = Watch::of(&other, of_thread(thread), Initial::None).await;
    let mut workflow = Watch::of(&other, of(|filter| filter.workflow_id = "w-1".into()), Initial::None).await;
    let mut audit = Watch::of(&other, of(|filter| filter.audit_session_id = "a-1".into()), Initial::None).await;
    let mut route = Watch::of(&other, of(|filter| filter.route = Route::Cli.into()), Initial::None).await;
    let label = of(|filter| filter.labels = [("team".to_owned(), "red".to_owned())].into());
    let mut label = Watch::of(&other, label, Initial::None).await;
    let running = of(|filter| filter.statuses = vec![RunStatus::Running.into()]);
    let mut running = Watch::of(&other, running, Initial::Active).await;
    running.snapshot().await;
    for watch in [&mut all, &mut workflow, &mut audit, &mut route, &mut label, &mut running] {
        watch.caught_up().await;
    }
    let into = UpdateRunRequest {
        workflow_id: Some("w-1".into()),
        audit_session_id: Some("a-1".into()),
        route: Route::Cli.into(),
        labels: [("team".to_owned(), "red".to_owned())].into(),
        ..update(&run.run_id)
    };
    let inside = caller.apply(into).await;
    let out_of = UpdateRunRequest {
        workflow_id: Some("w-2".into()),
        audit_session_id: Some(String::new()),
        route: Route::Mcp.into(),
        remove_labels: vec!["team".into()],
        ..update(&run.run_id)
    };
    let outside = caller.apply(out_of).await;
    let ended = caller.apply(complete(&run.run_id)).await;
    let next = caller.apply(UpdateRunRequest {
        workflow_id: Some("w-1".into()),
        ..update(&caller.apply(started(thread)).await.run_id)
    });
    let next = next.await;
    for watch in [&mut workflow, &mut audit, &mut route, &mut label] {
        watch.shows(&inside, true).await;
        watch.shows(&outside, false).await;
    }
    workflow.shows(&next, true).await;
    for (run, matches) in [(&inside, true), (&outside, true), (&ended, false)] {
        running.shows(run, matches).await;
    }
    for run in [&inside, &outside, &ended] {
        all.shows(run, true).await;
    }
}

pub(crate) async fn a_cursor_goes_on_with_another_filter_and_at_another_server(place: Place) {
    let (caller, other) = (place.caller().await, place.other().await);
    let thread = fresh("thread");
    let mut watch = Watch::of(&caller, of_thread(&thread), Initial::None).await;
    let begun = watch.caught_up().await;
    let first = caller.apply(started(&thread)).await;
    let ended = caller.apply(complete(&first.run_id)).await;
    let second = caller.apply(StartRunRequest { deferred: true, ..started(&thread) }).await;
    let after_first = watch.shows(&first, true).await;
    let completed = RunFilter { statuses: vec![RunStatus::Completed.into()], ..of_thread(&thread) };
    for cursor in [&begun, &after_first] {
        let mut watch = Watch::after(&other, completed.clone(), cursor).await;
        watch.shows(&ended, true).await;
        watch.caught_up().await;
    }
    let mut watch = Watch::after(&other, of_thread(&thread), &after_first).await;
    watch.shows(&ended, true).await;
    watch.shows(&second, true).await;
    watch.caught_up().await;
}

/// Resumed after each of its frames, the first view goes on where it was, as it was.
pub(crate) async fn a_first_view_that_is_cut_goes_on_as_it_was(place: Place) {
    let (caller, other) = (place.caller().await, place.other().await);
    let thread = fresh("thread");
    let mut runs = Vec::new();
    for _ in 0..4 {
        runs.push(caller.apply(StartRunRequest { deferred: true, ..started(&thread) }).await);
    }
    let mut watch = Watch::of(&caller, of_thread(&thread), Initial::Active).await;
    let (first, cursor) = watch.snapshot().await;
    assert_eq!(first, runs[0]);
    let request = StartRunRequest { task_thread_id: thread.clone(), ..deferred(&runs[1].run_id) };
    let running = caller.apply(StartRunRequest { deferred: false, ..request }).await;
    let ended = caller.apply(super::caller::abort(&runs[2].run_id)).await;
    let later = caller.apply(started(&thread)).await;
    let mut watch = Watch::after(&other, of_thread(&thread), &cursor).await;
    // The one that has ended since is not active any more: its end tells.
    assert_eq!(watch.snapshot().await.0, runs[1], "as it was when the watch began");
    assert_eq!(watch.snapshot().await.0, runs[3]);
    watch.shows(&running, true).await;
    watch.shows(&ended, true).await;
    watch.shows(&later, true).await;
    watch.caught_up().await;
}

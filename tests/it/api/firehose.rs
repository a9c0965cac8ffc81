//! Watches of all runs, and waits, in this process: on a store in memory that the test can count, damage and hold.

use std::ops::ControlFlow;
use std::pin::Pin;
use std::sync::atomic::Ordering;
use std::time::Duration;

use futures_util::{Stream, StreamExt as _};
use runledger::domain::ids::DEFAULT_NAMESPACE;
use runledger::domain::{Filter, LedgerEpoch, NamespaceAsk, NamespaceCommand, Retention, Status, Time};
use runledger::fairness::CallerKey;
use runledger::feed::cursor::{Cursor, View, ViewOf};
use runledger::feed::watch_run;
use runledger::feed::watch_runs::{Begin, Frame};
use runledger::feed::{CHECKPOINT_INTERVAL, Limits, WaitUntil, WatchError};
use runledger::retention::{Mode, Quiets, walk};
use runledger::store::query::Place;
use runledger::store::retention::Walked;
use runledger::store::{Namespaces as _, OfLedger as _, RunLog as _, Runs as _, StoreError};
use runledger::wire::cursor;
use runledger::wire::seal::Seals;
use serde_json::json;
use tokio::task::{JoinSet, yield_now};
use tokio::time::{Instant, sleep, timeout};

use super::checkpoints::{LATE_MAX, Process};
use crate::support::commands::{Asking as _, complete, key, start, update};

const SOON: Duration = Duration::from_secs(30);

type Frames = Pin<Box<dyn Stream<Item = Result<Frame, WatchError>> + Send>>;

async fn watch(process: &Process, filter: Filter, begin: Begin) -> Result<Frames, WatchError> {
    Ok(Box::pin(process.feed.watch_runs(DEFAULT_NAMESPACE.into(), filter, begin).await?))
}

/// From now on, past its caught-up.
async fn live(process: &Process, filter: Filter) -> Frames {
    let mut frames = watch(process, filter, Begin::Now(None)).await.unwrap();
    assert!(matches!(frames.next().await, Some(Ok(Frame::CaughtUp { .. }))));
    frames
}

fn never() -> Filter {
    Filter { workflow_id: Some("never".to_owned()), ..Filter::default() }
}

fn opened(process: &Process, cursor: &[u8]) -> Cursor {
    let (text, ledger) = (std::str::from_utf8(cursor).unwrap(), process.store.ledger());
    cursor::decode(text, &Seals::new(ledger), ledger, DEFAULT_NAMESPACE).unwrap()
}

/// After the last event that there is.
async fn now(process: &Process) -> Cursor {
    Cursor { epoch: LedgerEpoch::FIRST, positions: process.store.ends().await.unwrap(), view: None }
}

/// The next frame is a checkpoint: where, and how late.
async fn checkpoint(process: &Process, frames: &mut Frames) -> (Cursor, Duration) {
    let begun = Instant::now();
    match frames.next().await {
        Some(Ok(Frame::Checkpoint { cursor, .. })) => {
            let late = begun.elapsed().checked_sub(CHECKPOINT_INTERVAL).expect("never before the interval is over");
            (opened(process, &cursor), late)
        }
        other => panic!("not a checkpoint: {other:?}"),
    }
}

#[tokio::test(start_paused = true)]
async fn an_idle_watch_of_all_runs_shows_a_checkpoint_every_15_seconds() {
    let process = Process::start().await;
    process.apply(start("run-1")).await;
    let mut frames = live(&process, Filter::default()).await;
    for _ in 0..3 {
        let (cursor, late) = checkpoint(&process, &mut frames).await;
        assert!(late < LATE_MAX, "{late:?}");
        assert_eq!(cursor, now(&process).await);
    }
}

/// The part that the watch need not read again when it resumes grows while others write.
#[tokio::test(start_paused = true)]
async fn the_checkpoints_of_a_watch_that_nothing_matches_advance_while_others_write() {
    let process = Process::start().await;
    process.apply(start("busy")).await;
    let mut frames = live(&process, never()).await;
    let mut before = now(&process).await;
    let busy = async {
        for n in 0.. {
            process.apply(update("busy").metadata(&json!({ "n": n }))).await;
            sleep(Duration::from_millis(200)).await;
        }
    };
    let checkpoints = async {
        for _ in 0..3 {
            let (cursor, late) = checkpoint(&process, &mut frames).await;
            assert!(late < LATE_MAX, "{late:?}");
            assert!(cursor.positions[0] >= before.positions[0] + 50, "{cursor:?} after {before:?}");
            assert!(cursor.positions[0] + 10 >= now(&process).await.positions[0], "it is not far behind");
            before = cursor;
        }
    };
    tokio::select! {
        () = busy => {}
        () = checkpoints => {}
    }
}

#[tokio::test(start_paused = true)]
async fn no_checkpoint_of_a_watch_of_all_runs_comes_while_the_log_cannot_be_read() {
    let process = Process::start().await;
    process.apply(start("blind")).await;
    let mut frames = live(&process, Filter::default()).await;
    checkpoint(&process, &mut frames).await;
    process.store.blind.store(true, Ordering::Relaxed);
    let claimed = timeout(Duration::from_mins(2), frames.next()).await;
    assert!(claimed.is_err(), "nobody has looked, and it says {claimed:?}");
    process.apply(update("blind").metadata(&json!({"n": 1}))).await;
    process.store.blind.store(false, Ordering::Relaxed);
    match timeout(Duration::from_secs(5), frames.next()).await.expect("once the log can be read again") {
        Some(Ok(Frame::Change { cursor, .. })) => assert_eq!(opened(&process, &cursor), now(&process).await),
        other => panic!("a checkpoint that hides a change, or nothing: {other:?}"),
    }
}

#[tokio::test]
async fn a_cursor_from_before_what_is_kept_is_expired() {
    let process = Process::start().await;
    process.apply(start("run-1")).await;
    for n in 0..5 {
        process.apply(update("run-1").metadata(&json!({ "n": n }))).await;
    }
    *process.store.forgotten.lock().unwrap() = Some(vec![3].into());
    for position in 0..=7 {
        let begun = watch(
            &process,
            Filter::default(),
            Begin::After(Cursor { epoch: LedgerEpoch::FIRST, positions: vec![position].into(), view: None }),
        );
        match (position, begun.await) {
            (0..3, Err(WatchError::CursorExpired)) | (7.., Err(WatchError::CursorInvalid)) => {}
            (3..=6, Ok(mut frames)) => {
                for position in position + 1..=6 {
                    let Some(Ok(Frame::Change { cursor, .. })) = frames.next().await else { panic!("no change") };
                    assert_eq!(opened(&process, &cursor).positions, [position]);
                }
                assert!(matches!(frames.next().await, Some(Ok(Frame::CaughtUp { .. }))));
            }
            (_, other) => panic!("after {position}: {:?}", other.map(|_| "a watch")),
        }
    }
}

/// The tailer meets it once, and goes on behind it; who watches all runs reads the history over it.
#[tokio::test]
async fn a_page_that_could_not_be_read_once_is_missing_in_no_watch() {
    let process = Process::start().await;
    process.apply(start("run-1")).await;
    let mut frames = live(&process, Filter::default()).await;
    process.store.spoilt.store(true, Ordering::Relaxed);
    for n in 0..20 {
        process.apply(update("run-1").metadata(&json!({ "n": n }))).await;
    }
    let mut position = 1;
    while position < 21 {
        match timeout(SOON, frames.next()).await.expect("a frame in time") {
            Some(Ok(Frame::Change { cursor, .. })) => {
                position += 1;
                assert_eq!(opened(&process, &cursor).positions, [position], "none is missing");
            }
            // The session met the page itself: a watch that resumes misses no event.
            Some(Err(WatchError::Store(StoreError::Corrupt { .. }))) => {
                let after =
                    Begin::After(Cursor { epoch: LedgerEpoch::FIRST, positions: vec![position].into(), view: None });
                frames = watch(&process, Filter::default(), after).await.unwrap();
            }
            Some(Ok(Frame::CaughtUp { .. })) => {}
            other => panic!("not a change: {other:?}"),
        }
    }
    assert!(!process.store.spoilt.load(Ordering::Relaxed), "the damaged page was met");
}

/// Watches of other runs and new watches of all runs go on behind it; those that would have to show it end, and say
/// why.
#[tokio::test]
async fn an_event_that_can_never_be_read_ends_the_watches_that_would_show_it() {
    let process = Process::start().await;
    process.apply(start("run-1")).await;
    let mut other = process.live("run-1").await;
    let mut frames = live(&process, Filter::default()).await;
    let of_workflow = Filter { workflow_id: Some("w".to_owned()), ..Filter::default() };
    let mut elsewhere = live(&process, of_workflow).await;
    process.store.damaged.store(3, Ordering::Relaxed);
    process.apply(update("run-1").metadata(&json!({"n": 1}))).await;
    let Some(Ok(Frame::Change { cursor, .. })) = timeout(SOON, frames.next()).await.unwrap() else {
        panic!("no change")
    };
    assert_eq!(opened(&process, &cursor).positions, [2]);
    process.apply(start("damaged")).await;
    match timeout(SOON, frames.next()).await.expect("it says so in time") {
        Some(Err(WatchError::Unreadable(StoreError::Corrupt { .. }))) => {}
        other => panic!("not an error: {other:?}"),
    }
    let mut after = live(&process, Filter::default()).await;
    process.apply(complete("run-1")).await;
    let Some(Ok(Frame::Change { cursor, .. })) = timeout(SOON, after.next()).await.unwrap() else {
        panic!("no change")
    };
    assert_eq!(opened(&process, &cursor).positions, [4]);
    process.apply(start("seen").workflow("w")).await;
    match timeout(SOON, elsewhere.next()).await.expect("a frame in time") {
        Some(Ok(Frame::Change { cursor, .. })) => assert_eq!(opened(&process, &cursor).positions, [5]),
        other => panic!("a watch that it is not for goes on: {other:?}"),
    }
    for wanted in [2, 3] {
        match timeout(SOON, other.next()).await.expect("a frame in time") {
            Some(Ok(watch_run::Frame::Change { revision, .. })) => assert_eq!(revision, wanted),
            other => panic!("not the change to {wanted}: {other:?}"),
        }
    }
}

/// A watch from a cursor up to its first frame. Then it is cut.
async fn first(process: &Process, filter: Filter, cursor: Cursor) -> Frame {
    let mut frames = watch(process, filter, Begin::After(cursor)).await.unwrap();
    timeout(SOON, frames.next()).await.expect("a frame in time").unwrap().unwrap()
}

/// Each try reads a few pages of a long history where nothing matches, and the next one goes on behind them.
#[tokio::test(start_paused = true)]
async fn a_watch_that_is_cut_again_and_again_before_it_has_caught_up_arrives() {
    let process = Process::start_with(Limits { log_page_events_max: 2, ..Limits::default() }).await;
    process.apply(start("busy")).await;
    for n in 0..40 {
        process.apply(update("busy").metadata(&json!({ "n": n }))).await;
    }
    process.store.slow_ms.store(400, Ordering::Relaxed);
    let mut cursor = Cursor { epoch: LedgerEpoch::FIRST, positions: vec![0].into(), view: None };
    let mut cuts = 0;
    loop {
        match first(&process, never(), cursor.clone()).await {
            Frame::Checkpoint { cursor: came_to, at } => {
                let before = std::mem::replace(&mut cursor, opened(&process, &came_to));
                assert!(*cursor.positions > *before.positions, "it gets on: {cursor:?} after {before:?}");
                assert!(at.is_some(), "it says until when it has looked");
            }
            Frame::CaughtUp { .. } => break,
            other @ (Frame::Snapshot { .. } | Frame::Change { .. }) => panic!("nothing matches: {other:?}"),
        }
        cuts += 1;
    }
    assert!(cuts > 3, "it was cut {cuts} times");
}

/// The same among the snapshots: what there was when the watch began is far behind what there is.
#[tokio::test(start_paused = true)]
async fn a_first_view_that_is_cut_again_and_again_gets_on() {
    let process = Process::start_with(Limits { view_page_runs_max: 2, ..Limits::default() }).await;
    for run in 0..20 {
        process.apply(start(&format!("run-{run}"))).await;
    }
    process.store.slow_ms.store(400, Ordering::Relaxed);
    let mut cursor = Cursor {
        epoch: LedgerEpoch::FIRST,
        positions: vec![0].into(),
        view: Some(View { of: ViewOf::All, shown: None, walked: Walked::default() }),
    };
    let mut cuts = 0;
    loop {
        match first(&process, Filter::default(), cursor.clone()).await {
            Frame::Checkpoint { cursor: came_to, at } => {
                let before = std::mem::replace(&mut cursor, opened(&process, &came_to));
                let place = |cursor: &Cursor| cursor.view.clone().and_then(|view| view.shown);
                assert!(place(&cursor) > place(&before), "it gets on: {cursor:?} after {before:?}");
                assert_eq!((&*cursor.positions, at), ([0].as_slice(), None));
            }
            // The view is over, and nothing was in it.
            Frame::Change { cursor, .. } => {
                assert_eq!(
                    opened(&process, &cursor),
                    Cursor { epoch: LedgerEpoch::FIRST, positions: vec![1].into(), view: None }
                );
                break;
            }
            other @ (Frame::Snapshot { .. } | Frame::CaughtUp { .. }) => panic!("nothing was there: {other:?}"),
        }
        cuts += 1;
    }
    assert!(cuts > 1, "it was cut {cuts} times");
}

/// A run that was purged before the view came to it is in no event that follows: nothing else would tell of it.
#[tokio::test]
async fn a_first_view_that_may_lack_what_was_purged_meanwhile_ends_and_says_so() {
    const RUNS: usize = 60;
    let process = Process::start_with(Limits { view_page_runs_max: 10, ..Limits::default() }).await;
    for run in 0..RUNS {
        process.apply(start(&format!("run-{run}"))).await;
        process.apply(complete(&format!("run-{run}"))).await;
    }
    let mut frames = watch(&process, Filter::default(), Begin::Now(Some(ViewOf::All))).await.unwrap();
    let mut cursors = Vec::new();
    for _ in 0..10 {
        let Some(Ok(Frame::Snapshot { cursor, .. })) = frames.next().await else { panic!("no snapshot") };
        cursors.push(opened(&process, &cursor));
    }
    process.apply(start("newest")).await;
    let retention = Some(Retention { completed_ms: Some(1), ..Retention::default() });
    let ask = NamespaceAsk::Update { description: None, max_active_runs: None, max_stored_bytes: None, retention };
    let keep = NamespaceCommand { name: DEFAULT_NAMESPACE.into(), ask, expected_revision: None };
    process.store.change_namespace(&keep).await.unwrap();
    let mut purged = 0;
    while purged < RUNS as u64 {
        let mut quiets = Quiets::default();
        let each = walk(&*process.store, None, Mode::Purge, &mut quiets, |_| ControlFlow::Continue(()));
        purged += each.await.unwrap().runs;
        yield_now().await;
    }
    assert!(matches!(frames.next().await, Some(Err(WatchError::CursorExpired))), "50 runs are missing");
    let resumed = |cursor: &Cursor| first_frame(&process, cursor.clone());
    for cursor in [&cursors[0], &cursors[9]] {
        assert!(matches!(resumed(cursor).await, Some(Err(WatchError::CursorExpired))), "{cursor:?}");
    }
    // A view that had shown all runs that began before the purged ones ended goes on.
    let mut beyond = cursors[9].clone();
    let view = beyond.view.as_mut().unwrap();
    view.shown = Some(Place { started_at: Time::from_micros(i64::MAX), run_id: "z".into() });
    assert!(matches!(resumed(&beyond).await, Some(Ok(Frame::Change { .. }))), "the newest run's start");
    let mut anew = watch(&process, Filter::default(), Begin::Now(Some(ViewOf::All))).await.unwrap();
    assert!(matches!(anew.next().await, Some(Ok(Frame::Snapshot { .. }))));
    assert!(matches!(anew.next().await, Some(Ok(Frame::CaughtUp { .. }))));
}

async fn first_frame(process: &Process, cursor: Cursor) -> Option<Result<Frame, WatchError>> {
    watch(process, Filter::default(), Begin::After(cursor)).await.unwrap().next().await
}

/// However many sessions fold history at once, few of them are at the store.
#[tokio::test(start_paused = true)]
async fn sessions_that_read_history_do_not_crowd_the_store() {
    const SESSIONS: u64 = 40;
    let process = Process::start().await;
    for run in 0..SESSIONS {
        process.apply(start(&format!("run-{run}"))).await;
    }
    let begun = process.store.ends().await.unwrap();
    for run in 0..SESSIONS {
        process.apply(update(&format!("run-{run}")).metadata(&json!({"n": 1}))).await;
    }
    let permits = process.store.pasts_gate.available_permits();
    process.store.pasts_gate.forget_permits(permits);
    let mut sessions = JoinSet::new();
    for run in 0..SESSIONS {
        let after = Cursor { epoch: LedgerEpoch::FIRST, positions: vec![begun[0] + run].into(), view: None };
        let (feed, changes) = (process.feed.clone(), usize::try_from(SESSIONS - run).unwrap());
        sessions.spawn(async move {
            let frames = feed.watch_runs(DEFAULT_NAMESPACE.into(), Filter::default(), Begin::After(after));
            frames.await.unwrap().take(changes + 1).map(Result::unwrap).count().await
        });
    }
    let held = async {
        while process.store.pasts.load(Ordering::Relaxed) == 0 {
            yield_now().await;
        }
        // Time passes when nobody has anything else to do: all others have come as well.
        sleep(Duration::from_millis(300)).await;
    };
    timeout(SOON, held).await.expect("somebody reads the past");
    process.store.pasts_gate.add_permits(permits / 2);
    let all = timeout(SOON, sessions.join_all()).await.expect("all read on");
    assert_eq!(all.len() as u64, SESSIONS);
    // Two of the sessions', and the tailer's.
    let most = process.store.pasts_most.load(Ordering::Relaxed);
    assert!(most <= 3, "{most} reads of the past at once");
}

/// Ten thousand waits on so many runs: each has read its run once at most, and none when it ended.
async fn waiters(runs: usize) {
    const WAITERS: usize = 10_000;
    let process = Process::start().await;
    for run in 0..runs {
        process.apply(start(&format!("run-{run}"))).await;
    }
    // Events from before the tailer began are in the history only: let it begin.
    let mut first = live(&process, Filter::default()).await;
    process.apply(start("first")).await;
    assert!(matches!(timeout(SOON, first.next()).await, Ok(Some(Ok(Frame::Change { .. })))));
    let before = process.store.runs.load(Ordering::Relaxed);
    let mut waits = JoinSet::new();
    for nth in 0..WAITERS {
        let feed = process.feed.clone();
        waits.spawn(async move {
            feed.wait_run(&key(&format!("run-{}", nth % runs)), SOON * 10, WaitUntil::Terminal).await.unwrap()
        });
    }
    let read = || process.store.runs.load(Ordering::Relaxed) - before;
    // Time passes when nobody has anything else to do.
    sleep(Duration::from_millis(100)).await;
    assert_eq!(process.feed.hub().watches_of_one_run(), WAITERS);
    let first_reads = read();
    assert!(first_reads <= WAITERS as u64, "who came together has read together: {first_reads}");
    let pages = process.feed.hub().log_reads();
    let begun = Instant::now();
    for run in 0..runs {
        process.apply(complete(&format!("run-{run}"))).await;
    }
    let waited = timeout(SOON, waits.join_all()).await.expect("all are answered");
    assert!(waited.iter().all(|waited| !waited.timed_out));
    // The last of them may have read its run just after it ended.
    let again = read() - first_reads;
    assert!(again <= 10, "{again} runs were read again");
    let polls = u64::try_from(begun.elapsed().as_millis() / 100).unwrap();
    let pages = process.feed.hub().log_reads() - pages;
    assert!(pages <= 3 * runs as u64 + polls + 10, "{pages} pages of the log, {polls} polls");
}

#[tokio::test(start_paused = true)]
async fn ten_thousand_waits_for_one_run_read_it_once_each_at_most() {
    waiters(1).await;
}

#[tokio::test(start_paused = true)]
async fn ten_thousand_waits_for_many_runs_read_them_once_each_at_most() {
    waiters(500).await;
}

#[tokio::test(start_paused = true)]
async fn waits_that_are_over_together_are_all_answered_with_their_runs() {
    let process = Process::start().await;
    process.apply(start("run-1")).await;
    let mut waits = JoinSet::new();
    for _ in 0..2_000 {
        let feed = process.feed.clone();
        waits.spawn(async move {
            feed.wait_run(&key("run-1"), Duration::from_millis(500), WaitUntil::Terminal).await.unwrap()
        });
    }
    assert!(timeout(SOON, waits.join_all()).await.unwrap().iter().all(|waited| waited.timed_out));
    assert_eq!(process.feed.hub().watched_runs(), 0, "nobody has left anything behind");
    assert_eq!(process.feed.hub().sessions_bytes(), 0, "nor anything that is counted");
    let run = process.store.run(&key("run-1")).await.unwrap().unwrap();
    assert_eq!(run.status, Status::Running);
}

#[tokio::test(start_paused = true)]
async fn a_callers_watch_begins_before_the_thousand_waits_of_another_one() {
    let process = Process::start().await;
    process.apply(start("watched")).await;
    let before = process.store.runs.load(Ordering::Relaxed);
    let permits = process.store.run_gate.available_permits();
    process.store.run_gate.forget_permits(permits);
    let reads = async |number| {
        while process.store.runs.load(Ordering::Relaxed) - before < number {
            // Time passes when nobody has anything else to do.
            sleep(Duration::from_millis(1)).await;
        }
    };
    let mut waits = JoinSet::new();
    for nth in 0..1_000 {
        let feed = process.feed.of_caller(CallerKey::new(1, None));
        waits.spawn(
            async move { feed.wait_run(&key(&format!("none-{nth}")), SOON, WaitUntil::Terminal).await.map(drop) },
        );
    }
    timeout(SOON, reads(1)).await.expect("the first of them reads");
    // All others have come as well.
    sleep(Duration::from_millis(10)).await;
    let honest = process.feed.of_caller(CallerKey::new(2, None));
    let mut watch = JoinSet::new();
    watch.spawn(async move { honest.watch_run(key("watched"), None, None).await.map(drop) });
    // Two of the waits' reads stand, and the watch's is the next one.
    timeout(SOON, reads(3)).await.expect("the watch waits for no other caller");
    process.store.run_gate.add_permits(permits);
    let begun = timeout(SOON, watch.join_all()).await.expect("the watch begins");
    assert!(begun.iter().all(Result::is_ok), "{begun:?}");
    let all = timeout(SOON, waits.join_all()).await.expect("all waits are answered");
    assert!(all.iter().all(|waited| matches!(waited, Err(WatchError::RunNotFound))));
}

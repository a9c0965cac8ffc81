//! The feed in this process, on a store in memory and a clock that the test moves: checkpoints, and what many watchers
//! cost.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use futures_util::future::ready;
use futures_util::{Stream, StreamExt as _};
use runledger::clock::SystemClock;
use runledger::domain::{Command, Revision};
use runledger::engine::{self, Engine};
use runledger::feed::watch_run::Frame;
use runledger::feed::{CHECKPOINT_INTERVAL, Feed, Limits, WatchError};
use runledger::store::open::{self, Location};
use runledger::store::{Commits, OfLedger as _, OpenOptions};
use runledger::tasks::Supervisor;
use runledger::wire::WireFrames;
use runledger::wire::seal::Seals;
use serde_json::json;
use tokio::sync::Notify;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, timeout};

use crate::support::commands::{Asking as _, complete, key, start, update};
use crate::support::wrapped::Wrapped;

/// Longer than a checkpoint may be late: the tailer looks every 100 ms, a session that waits for it every second.
pub(super) const LATE_MAX: Duration = Duration::from_millis(1_500);

pub(super) struct Process {
    pub(super) store: Arc<Wrapped>,
    engine: Engine,
    pub(super) feed: Feed,
    pub(super) supervisor: Supervisor,
}

impl Process {
    pub(super) async fn start() -> Self {
        Self::start_with(Limits::default()).await
    }

    pub(super) async fn start_with(limits: Limits) -> Self {
        Self::start_of(limits, OpenOptions::default()).await
    }

    pub(super) async fn start_of(limits: Limits, options: OpenOptions) -> Self {
        let supervisor = Supervisor::new();
        let store = open::open(&Location::Memory, &options, Arc::new(SystemClock), &supervisor).await.unwrap();
        let (store, committed) = (Arc::new(Wrapped::around(store)), Arc::new(Notify::new()));
        let commits: Arc<dyn Commits> = store.clone();
        let engine = Engine::start(&commits, store.clone(), &supervisor, &committed, engine::Limits::default());
        let frames = Arc::new(WireFrames { seals: Arc::new(Seals::new(store.ledger())) });
        let feed = Feed::start(store.clone(), store.clone(), &supervisor, committed, frames, limits);
        Self { store, engine, feed, supervisor }
    }

    pub(super) async fn apply(&self, command: Command) -> Revision {
        self.engine.submit(command, None).await.unwrap().run.revision
    }

    /// A watch of the run, past its caught-up.
    pub(super) async fn live(&self, run_id: &str) -> impl Stream<Item = Result<Frame, WatchError>> + Send + use<> {
        let (_epoch, frames) = self.feed.watch_run(key(run_id), None, None).await.unwrap();
        let mut frames = Box::pin(frames);
        assert!(matches!(frames.next().await, Some(Ok(Frame::Snapshot { .. }))));
        assert!(matches!(frames.next().await, Some(Ok(Frame::CaughtUp { .. }))));
        frames
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.engine.close();
        self.supervisor.stop().cancel();
    }
}

/// The time from the interval's end to the next frame, which is a checkpoint at this revision.
async fn lateness(frames: &mut (impl Stream<Item = Result<Frame, WatchError>> + Unpin), at_revision: u64) -> Duration {
    let begun = Instant::now();
    match frames.next().await {
        Some(Ok(Frame::Checkpoint { revision, .. })) => assert_eq!(revision, at_revision),
        other => panic!("not a checkpoint: {other:?}"),
    }
    begun.elapsed().checked_sub(CHECKPOINT_INTERVAL).expect("never before the interval is over")
}

#[tokio::test(start_paused = true)]
async fn a_checkpoint_comes_after_every_15_seconds_of_quiet() {
    let process = Process::start().await;
    process.apply(start("quiet")).await;
    let mut frames = process.live("quiet").await;
    let mut before = None;
    for _ in 0..4 {
        assert!(lateness(&mut frames, 1).await < LATE_MAX);
        let now = process.feed.hub().log_reads();
        assert!(before < Some(now), "what it says was looked at");
        before = Some(now);
    }
    sleep(Duration::from_secs(10)).await;
    process.apply(update("quiet").metadata(&json!({"n": 1}))).await;
    assert!(matches!(frames.next().await, Some(Ok(Frame::Change { .. }))));
    assert!(lateness(&mut frames, 2).await < LATE_MAX, "a change begins the interval anew");
    process.apply(complete("quiet")).await;
    assert!(matches!(frames.next().await, Some(Ok(Frame::Change { .. }))));
    assert!(matches!(frames.next().await, Some(Ok(Frame::End(_)))));
    assert!(frames.next().await.is_none());
}

#[tokio::test]
async fn an_event_that_cannot_be_read_does_not_stop_the_watches_of_other_runs() {
    let process = Process::start().await;
    process.apply(start("watched")).await;
    let mut frames = process.live("watched").await;
    process.store.spoilt.store(true, Ordering::Relaxed);
    process.apply(start("damaged")).await;
    process.apply(update("watched").metadata(&json!({"n": 1}))).await;
    process.apply(complete("watched")).await;
    for revision in [2, 3] {
        match timeout(Duration::from_secs(10), frames.next()).await {
            Ok(Some(Ok(Frame::Change { revision: shown, .. }))) => assert_eq!(shown, revision),
            other => panic!("not the change to {revision}: {other:?}"),
        }
    }
    // A session that fell behind has read its run itself, and the page is met a little later.
    let met = async {
        while process.store.spoilt.load(Ordering::Relaxed) {
            sleep(Duration::from_millis(10)).await;
        }
    };
    timeout(Duration::from_secs(10), met).await.expect("the damaged page is met");
}

#[tokio::test(start_paused = true)]
async fn a_checkpoint_comes_whatever_happens_to_other_runs() {
    let process = Process::start().await;
    process.apply(start("quiet")).await;
    process.apply(start("busy")).await;
    let mut frames = process.live("quiet").await;
    let busy = async {
        for n in 0.. {
            process.apply(update("busy").metadata(&json!({ "n": n }))).await;
            sleep(Duration::from_secs(1)).await;
        }
    };
    tokio::select! {
        () = busy => {}
        late = lateness(&mut frames, 1) => assert!(late < LATE_MAX),
    }
}

#[tokio::test(start_paused = true)]
async fn no_checkpoint_comes_while_the_log_cannot_be_read() {
    let process = Process::start().await;
    process.apply(start("blind")).await;
    let mut frames = process.live("blind").await;
    assert!(lateness(&mut frames, 1).await < LATE_MAX);
    process.store.blind.store(true, Ordering::Relaxed);
    let claimed = timeout(Duration::from_mins(2), frames.next()).await;
    assert!(claimed.is_err(), "nobody has looked, and it says {claimed:?}");
    process.apply(update("blind").metadata(&json!({"n": 1}))).await;
    process.store.blind.store(false, Ordering::Relaxed);
    match timeout(Duration::from_secs(5), frames.next()).await.expect("once the log can be read again") {
        Some(Ok(Frame::Change { revision, .. })) => assert_eq!(revision, 2),
        other => panic!("a checkpoint that hides a change, or nothing: {other:?}"),
    }
    assert!(lateness(&mut frames, 2).await < LATE_MAX);
}

/// Each session runs on by itself, as under a server, so that none lags behind and goes back to history.
#[tokio::test(start_paused = true)]
async fn a_thousand_watchers_cost_one_tailer() {
    let process = Process::start().await;
    process.apply(start("watched")).await;
    let mut sessions = JoinSet::new();
    for nth in 0..1_000 {
        let frames = process.live("watched").await;
        sessions.spawn(frames.map(Result::unwrap).filter(|frame| ready(matches!(frame, Frame::Change { .. }))).count());
        if nth == 0 {
            // Events from before the tailer began are in the history only: let it begin.
            sleep(Duration::from_secs(1)).await;
            process.store.histories.store(0, Ordering::Relaxed);
        }
    }
    let begun = Instant::now();
    let reads = process.feed.hub().log_reads();
    for n in 0..10_u64 {
        process.apply(update("watched").metadata(&json!({ "n": n }))).await;
        sleep(Duration::from_secs(1)).await;
    }
    assert_eq!(process.feed.hub().watched_runs(), 1);
    process.apply(complete("watched")).await;
    assert_eq!(sessions.join_all().await, [11; 1_000]);
    // One read for each commit that woke the tailer, one to see that it was the end, and those of its poll.
    let polls = begun.elapsed().as_millis() / 100;
    let reads = process.feed.hub().log_reads() - reads;
    assert!(u128::from(reads) <= 30 + polls, "{reads} reads of the log, {polls} polls");
    assert_eq!(process.store.histories.load(Ordering::Relaxed), 0, "no session went to the store");
    assert_eq!(process.feed.hub().watched_runs(), 0);
}

//! The read path: callers that share queries, and what they hold in memory.

use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use futures_util::future::{BoxFuture, FutureExt as _, join_all};
use futures_util::poll;
use runledger::clock::SystemClock;
use runledger::fairness::CallerKey;
use runledger::reads::Reads;
use runledger::store::open::{self, Location};
use runledger::store::{OpenOptions, RunAsKept, StoreError};
use runledger::tasks::Supervisor;
use serde_json::json;
use tokio::sync::Semaphore;
use tokio::task::yield_now;

use crate::conformance::asking::apply;
use crate::support::commands::{Asking as _, key, start};
use crate::support::wrapped::Wrapped;

const RUNS: usize = 64;

/// The bytes at which a query stops, and room for one run more.
const BYTES_MAX: usize = 1024 * 1024 + 256 * 1024;

type Read = BoxFuture<'static, Result<Option<RunAsKept>, StoreError>>;

/// A store of large runs that answers no shared read, and reads that wait for it in every turn.
struct Process {
    store: Arc<Wrapped>,
    reads: Arc<Reads>,
    turns: Vec<Read>,
}

impl Process {
    async fn start() -> Self {
        let (supervisor, options) = (Supervisor::new(), OpenOptions::default());
        let store = open::open(&Location::Memory, &options, Arc::new(SystemClock), &supervisor).await.unwrap();
        let mut store = Wrapped::around(store);
        store.runs_gate = Semaphore::new(0);
        let store = Arc::new(store);
        let large = json!({"text": "x".repeat(60_000)});
        for nth in 0..RUNS {
            apply(&*store, start(&format!("run-{nth}")).metadata(&large)).await;
        }
        let mut process = Self { reads: Arc::new(Reads::new(store.clone(), &supervisor)), store, turns: Vec::new() };
        while process.reads.waiting() == 0 {
            process.turns.push(process.asked(0).await);
        }
        process
    }

    /// A caller that has asked for a run.
    async fn asked(&self, nth: usize) -> Read {
        let reads = self.reads.clone();
        let mut read = async move { reads.run(CallerKey::AUTHORITY, &key(&format!("run-{nth}"))).await }.boxed();
        assert!(poll!(&mut read).is_pending());
        read
    }

    /// The caller whose turn came after one of the first, and that has sent a query for all that have gathered.
    async fn reads_for_all(&mut self) -> Read {
        let mut reader = self.turns.pop().expect("it waits");
        let (first, sent) = (self.turns.remove(0), self.store.runs.load(Ordering::Relaxed));
        self.store.runs_gate.add_permits(1);
        assert_eq!(id(first.await), "run-0");
        while self.store.runs.load(Ordering::Relaxed) == sent {
            assert!(poll!(&mut reader).is_pending());
            yield_now().await;
        }
        reader
    }

    fn release(&self) {
        self.store.runs_gate.add_permits(1_000_000);
    }
}

fn id(read: Result<Option<RunAsKept>, StoreError>) -> String {
    read.unwrap().expect("the run exists").run.run_id.to_string()
}

#[tokio::test]
async fn a_shared_read_is_bounded_in_bytes_and_the_next_one_reads_the_rest() {
    let process = Process::start().await;
    let mut asked = Vec::new();
    for nth in 0..RUNS {
        asked.push(process.asked(nth).await);
    }
    process.release();
    let (first, read) = (join_all(process.turns).await, join_all(asked).await);
    assert!(first.into_iter().all(|read| id(read) == "run-0"));
    for (nth, read) in read.into_iter().enumerate() {
        assert_eq!(id(read), format!("run-{nth}"));
    }
    let shared = process.store.shared.lock().unwrap().clone();
    assert!(shared.iter().all(|(_, bytes)| *bytes <= BYTES_MAX), "{shared:?}");
    assert!(shared.iter().any(|(runs, _)| *runs > 8), "callers share: {shared:?}");
}

#[tokio::test]
async fn runs_count_until_their_callers_have_them_or_are_gone() {
    let mut process = Process::start().await;
    let mut asked = Vec::new();
    for nth in 0..8 {
        asked.push(process.asked(nth).await);
    }
    assert_eq!(process.reads.bytes(), 0);
    process.release();
    // The caller before these was the first to wait for a turn, and reads for all of them.
    let first = process.turns.pop().expect("it waits");
    for turn in process.turns {
        assert_eq!(id(turn.await), "run-0");
    }
    let weight = first.await.unwrap().expect("the run exists").run.weight();
    let bytes = process.reads.bytes();
    assert!((8 * 60_000..=8 * (weight + 8)).contains(&bytes), "{bytes} for 8 runs of {weight}");
    asked.truncate(4);
    assert_eq!(process.reads.bytes() / (bytes / 8), 4, "four have gone");
    for (nth, read) in asked.into_iter().enumerate() {
        assert_eq!(id(read.await), format!("run-{nth}"));
    }
    assert_eq!(process.reads.bytes(), 0);
}

#[tokio::test]
async fn queries_ask_for_about_as_many_runs_as_the_last_one_had_room_for() {
    let process = Process::start().await;
    let mut asked = Vec::new();
    for _ in 0..4 {
        for nth in 0..RUNS {
            asked.push(process.asked(nth).await);
        }
    }
    let before = process.store.runs.load(Ordering::Relaxed);
    process.release();
    join_all(process.turns.into_iter().chain(asked)).await.into_iter().for_each(|read| drop(id(read)));
    let sent = usize::try_from(process.store.runs.load(Ordering::Relaxed) - before).unwrap();
    // Each of the three queries that are sent first may be too large, since none was answered before.
    assert!(sent < 7 * RUNS, "{sent} runs were asked for, of {}", 4 * RUNS);
}

#[tokio::test]
async fn a_reader_that_goes_away_restarts_no_other_callers_read() {
    let mut process = Process::start().await;
    let mut asked = Vec::new();
    for nth in 1..8 {
        asked.push(process.asked(nth).await);
    }
    let reader = process.reads_for_all().await;
    let sent = process.store.runs.load(Ordering::Relaxed);
    drop(reader);
    process.release();
    for (nth, read) in asked.into_iter().enumerate() {
        assert_eq!(id(read.await), format!("run-{}", nth + 1));
    }
    assert_eq!(process.store.runs.load(Ordering::Relaxed), sent, "each was asked for once");
}

#[tokio::test]
async fn a_reader_has_its_own_answer_when_it_is_read_and_not_when_all_are() {
    let mut process = Process::start().await;
    let mut asked = Vec::new();
    for nth in 0..RUNS {
        asked.push(process.asked(nth).await);
    }
    let reader = process.reads_for_all().await;
    // Two of these are for the other two turns, and the third is for the first query of the reader's.
    process.store.runs_gate.add_permits(3);
    assert_eq!(id(reader.await), "run-0");
    let last = asked.last_mut().expect("some asked");
    assert!(poll!(last).is_pending(), "there was no room for it");
    process.release();
    join_all(asked).await.into_iter().for_each(|read| drop(id(read)));
}

#[tokio::test]
async fn a_query_for_callers_that_all_went_away_gives_its_turn_back() {
    let mut process = Process::start().await;
    let mut asked = Vec::new();
    for nth in 1..8 {
        asked.push(process.asked(nth).await);
    }
    let reader = process.reads_for_all().await;
    let next = process.asked(9).await;
    drop((reader, asked));
    let mut next = pin!(next);
    // The turn comes without a permit: the query was dropped.
    while process.reads.waiting() > 0 {
        assert!(poll!(&mut next).is_pending());
        yield_now().await;
    }
    process.release();
    assert_eq!(id(next.await), "run-9");
}

#[tokio::test]
async fn callers_that_went_away_do_not_pile_up() {
    let process = Process::start().await;
    let honest = process.asked(7).await;
    for nth in 0..10_000 {
        drop(process.asked(nth).await);
        yield_now().await;
    }
    assert!(process.reads.waiting() < 1_000, "{} wait", process.reads.waiting());
    process.release();
    let (first, honest) = (join_all(process.turns), honest);
    let (_, read) = futures_util::future::join(first, honest).await;
    assert_eq!(id(read), "run-7");
}

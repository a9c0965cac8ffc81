//! Many who watch or wait, and what they cost.

use std::fs;
use std::time::Duration;

use futures_util::future::join_all;
use runledger_proto::v1::watch_runs_request::Initial;
use runledger_proto::v1::{RunFilter, RunStatus, WaitRunRequest, WatchRunRequest, WatchRunsRequest};
use tempfile::TempDir;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, timeout};

use super::calls::{Step, ask, reason};
use super::data::Data;
use super::replica::replica;
use super::server::{Client, SOON, Server, eventually};

/// Of each kind.
const WATCHERS: usize = 2_500;
/// Each takes 1,024 streams.
const CONNECTIONS: usize = 10;

/// The memory that one watcher with nothing to see may take: its task and its stream, and no run, page or buffer.
const WATCHER_KB_MAX: u64 = 24;

/// A process's memory in kB, by its name in /proc.
pub(crate) fn memory_kb(server: &Server, name: &str) -> u64 {
    let status = fs::read_to_string(format!("/proc/{}/status", server.process.pid())).unwrap();
    let line = status.lines().find(|line| line.starts_with(name)).unwrap();
    line.split_whitespace().nth(1).unwrap().parse().unwrap()
}

/// The time for which a server has had a processor.
pub(crate) fn processor_time(server: &Server) -> Duration {
    let stat = fs::read_to_string(format!("/proc/{}/stat", server.process.pid())).unwrap();
    // After the name, which may have spaces and stands in parentheses: user and system time, in hundredths of a second.
    let (_, numbers) = stat.rsplit_once(')').unwrap();
    let times = numbers.split_whitespace().skip(11).take(2);
    Duration::from_millis(times.map(|ticks| ticks.parse::<u64>().unwrap() * 10).sum())
}

/// Clients with a connection each.
fn clients(server: &Server) -> Vec<Client> {
    (0..CONNECTIONS).map(|_| server.hasty()).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn five_thousand_idle_watchers_take_little_and_all_see_what_is_for_them() {
    let directory = TempDir::new().unwrap();
    let server = Server::start(&Data::Sqlite(directory.path().join("ledger.db")).store()).await;
    server.is_ready().await;
    let mut writer = server.hasty();
    ask(&mut writer, "watched", Step::Start, "").await.unwrap();
    let before = memory_kb(&server, "VmRSS");
    let (mut ones, mut manys) = (Vec::new(), Vec::new());
    for client in clients(&server) {
        let share = WATCHERS / CONNECTIONS;
        let opened = (0..share).map(|_| {
            let mut client = client.clone();
            async move {
                let asked =
                    WatchRunRequest { run_id: "watched".to_owned(), after_revision: Some(1), ledger_epoch: None };
                let mut frames = client.watch_run(asked).await.unwrap().into_inner();
                frames.message().await.unwrap().expect("caught up");
                frames
            }
        });
        ones.extend(join_all(opened).await);
        let opened = (0..share).map(|nth| {
            let mut client = client.clone();
            async move {
                let workflow_id = if nth.is_multiple_of(2) { "workflow-1" } else { "never" }.to_owned();
                let filter = Some(RunFilter { workflow_id, ..RunFilter::default() });
                let initial = Initial::None.into();
                let asked = WatchRunsRequest { filter, initial, cursor: String::new() };
                let mut frames = client.watch_runs(asked).await.unwrap().into_inner();
                frames.message().await.unwrap().expect("caught up");
                frames
            }
        });
        manys.extend(join_all(opened).await);
    }
    let each = memory_kb(&server, "VmRSS").saturating_sub(before) / (2 * WATCHERS as u64);
    println!("{each} kB for each of {} idle watchers", 2 * WATCHERS);
    assert!(each <= WATCHER_KB_MAX, "{each} kB for each watcher");
    // All watchers at once: the interval has not passed for any of them, so the change is the next frame, or a
    // checkpoint is.
    ask(&mut writer, "watched", Step::Update(1), "").await.unwrap();
    let begun = Instant::now();
    let seen = join_all(ones.iter_mut().map(async |frames| {
        use runledger_proto::v1::watch_run_response::Frame;
        loop {
            let frame = timeout(SOON, frames.message()).await.expect("in time").unwrap().unwrap();
            match frame.frame.unwrap() {
                Frame::Change(change) => return change.event.unwrap().revision,
                Frame::Checkpoint(_) => {}
                other @ (Frame::Snapshot(_) | Frame::CaughtUp(_) | Frame::Progressed(_) | Frame::End(_)) => {
                    panic!("not the change: {other:?}")
                }
            }
        }
    }));
    assert!(seen.await.iter().all(|revision| *revision == 2));
    let seen = join_all(manys.iter_mut().enumerate().map(async |(nth, frames)| {
        use runledger_proto::v1::watch_runs_response::Frame;
        let matching = (nth % (WATCHERS / CONNECTIONS)).is_multiple_of(2);
        loop {
            let frame = timeout(SOON, frames.message()).await.expect("in time").unwrap().unwrap();
            match frame.frame.unwrap() {
                Frame::Change(change) => {
                    assert!(matching && change.matches);
                    return;
                }
                Frame::Checkpoint(_) if !matching => return,
                Frame::Checkpoint(_) => {}
                other @ (Frame::Snapshot(_) | Frame::CaughtUp(_)) => panic!("not the change: {other:?}"),
            }
        }
    }));
    seen.await;
    println!("all have seen it, or a checkpoint, after {:?}", begun.elapsed());
}

/// Waits of all clients are held, and are answered soon after the ends of their runs.
async fn waiters(runs: usize) {
    const WAITERS: usize = 10_000;
    let directory = TempDir::new().unwrap();
    let server = Server::start(&Data::Sqlite(directory.path().join("ledger.db")).store()).await;
    server.is_ready().await;
    let mut writer = server.hasty();
    for run in 0..runs {
        ask(&mut writer, &format!("run-{run}"), Step::Start, "").await.unwrap();
    }
    let mut waits = JoinSet::new();
    for (nth, client) in clients(&server).into_iter().cycle().take(WAITERS).enumerate() {
        let mut client = client.clone();
        waits.spawn(async move {
            let asked = WaitRunRequest { run_id: format!("run-{}", nth % runs), timeout: None, until: 0 };
            (client.wait_run(asked).await.unwrap().into_inner(), Instant::now())
        });
    }
    let mut held = 0;
    let all_wait = eventually(SOON * 2, async || {
        held = replica(&server).await.watches_of_one_run;
        (held == WAITERS as u64).then_some(())
    });
    assert_eq!(all_wait.await, Some(()), "{held} waits are held");
    assert!(waits.try_join_next().is_none(), "none is answered before its run has ended");
    let begun = Instant::now();
    for run in 0..runs {
        ask(&mut writer, &format!("run-{run}"), Step::Complete, "").await.unwrap();
    }
    let ended = Instant::now();
    let waited = timeout(SOON, waits.join_all()).await.expect("somebody hangs");
    for (waited, _) in &waited {
        assert!(!waited.timed_out, "{waited:?}");
        assert_eq!(waited.run.as_ref().unwrap().status(), RunStatus::Completed);
    }
    let last = waited.iter().map(|(_, at)| at.saturating_duration_since(ended)).max().unwrap();
    println!("{WAITERS} waits on {runs} runs: ended within {:?}, the last answer {last:?} later", ended - begun);
    let left = eventually(SOON, async || (replica(&server).await.watches_of_one_run == 0).then_some(()));
    assert_eq!(left.await, Some(()), "nobody waits any more");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ten_thousand_who_wait_for_one_run_are_all_answered() {
    waiters(1).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ten_thousand_who_wait_for_many_runs_are_all_answered() {
    waiters(500).await;
}

/// Readers that read nothing.
const SLEEPERS: usize = 48;

/// The memory that sleepers and the feed may take: the ring and two caches of runs, 32 MiB each; a page of the
/// tailer's, as stored and decoded; for each sleeper a page and the frames in its stream's buffers, of runs of 64 KiB;
/// and memory that the allocator does not give back.
const SLEEPERS_KB_MAX: u64 = (3 * 32 + 16 + SLEEPERS as u64 * 2 + 64) * 1024;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn readers_that_sleep_take_a_bounded_amount_of_memory() {
    const HEAVY_RUNS: usize = 24;
    const UPDATES: usize = 120;
    let directory = TempDir::new().unwrap();
    let server = Server::start(&Data::Sqlite(directory.path().join("ledger.db")).store()).await;
    server.is_ready().await;
    let mut writer = server.hasty();
    for run in 0..HEAVY_RUNS {
        let run_id = format!("heavy-{run}");
        ask(&mut writer, &run_id, Step::Start, "").await.unwrap();
        ask(&mut writer, &run_id, Step::Bulk, "").await.unwrap();
    }
    let cursor = {
        use runledger_proto::v1::watch_runs_response::Frame;
        let asked = WatchRunsRequest { initial: Initial::None.into(), ..WatchRunsRequest::default() };
        let mut frames = writer.watch_runs(asked).await.unwrap().into_inner();
        match frames.message().await.unwrap().unwrap().frame.unwrap() {
            Frame::CaughtUp(caught_up) => caught_up.cursor,
            other @ (Frame::Snapshot(_) | Frame::Change(_) | Frame::Checkpoint(_)) => {
                panic!("not caught up: {other:?}")
            }
        }
    };
    let write = async |updates: std::ops::Range<usize>| {
        let lanes = (0..HEAVY_RUNS).map(|run| {
            let (mut writer, updates) = (writer.clone(), updates.clone());
            async move {
                for number in updates {
                    // A busy machine refuses calls for now.
                    while let Err(refused) = ask(&mut writer, &format!("heavy-{run}"), Step::Update(number), "").await {
                        assert_eq!(reason(&refused), "OVERLOADED");
                        sleep(Duration::from_millis(100)).await;
                    }
                }
            }
        });
        join_all(lanes).await;
    };
    // Half of what passes, before anybody sleeps: what calls take is not what this is about.
    write(0..UPDATES / 2).await;
    let before = memory_kb(&server, "VmRSS");
    let mut asleep = Vec::new();
    for nth in 0..SLEEPERS {
        let mut client = server.hasty();
        let (initial, cursor) = match nth % 3 {
            0 => (Initial::Active, String::new()),
            1 => (Initial::None, cursor.clone()),
            _ => (Initial::None, String::new()),
        };
        let asked = WatchRunsRequest { filter: None, initial: initial.into(), cursor };
        asleep.push((client.watch_runs(asked).await.unwrap().into_inner(), client));
    }
    write(UPDATES / 2..UPDATES).await;
    let [after, most] = ["VmRSS", "VmHWM"].map(|name| memory_kb(&server, name).saturating_sub(before));
    let passed = HEAVY_RUNS * UPDATES / 2 * 65 / 1024;
    println!(
        "{passed} MiB of runs passed {SLEEPERS} sleepers: {before} kB, {after} kB more at the end, {most} kB more at most"
    );
    assert!(most <= SLEEPERS_KB_MAX, "{most} kB more, of {SLEEPERS_KB_MAX} kB");
    drop(asleep);
}

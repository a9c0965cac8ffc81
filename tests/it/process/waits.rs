//! Waits that race the end of their run from either side, on the same and on another replica.

use std::net::SocketAddr;
use std::time::Duration;

use runledger_proto::v1::{RunStatus, WaitRunRequest, WaitRunResponse};
use tempfile::TempDir;
use tokio::task::JoinSet;
use tokio::time::{Instant, timeout};
use tonic::Code;

use super::calls::{Step, ask, reason};
use super::data::Data;
use super::replica::replica;
use super::server::{Client, SOON, Server, client, eventually};
use crate::support::postgres::Database;

const RUNS: usize = 240;

async fn wait(mut client: Client, run_id: String) -> (WaitRunResponse, Instant) {
    let asked = WaitRunRequest { run_id, timeout: None, until: 0 };
    let waited = timeout(SOON, client.wait_run(asked)).await.expect("it hangs").unwrap().into_inner();
    (waited, Instant::now())
}

/// The durations of waits, and of the calls beside them.
struct Race {
    /// The time from the end until each wait was answered, sorted.
    delays: Vec<Duration>,
    /// The duration of each call that ended a run, sorted: the machine's time for one answer.
    calls: Vec<Duration>,
}

/// Sends waits long before, just before, with, and after the call that ends their run; gives how much later than its
/// answer they were answered, but for those that were sent after it.
async fn race(ends_at: SocketAddr, waits_at: SocketAddr) -> Race {
    let mut races = JoinSet::new();
    let (writer, watcher) = (client(ends_at), client(waits_at));
    for lane in 0..4_usize {
        let (mut writer, watcher) = (writer.clone(), watcher.clone());
        races.spawn(async move {
            let (mut delays, mut calls) = (Vec::new(), Vec::new());
            for round in 0..RUNS / 4 {
                let run_id = format!("race-{lane}-{round}");
                ask(&mut writer, &run_id, Step::Start, "").await.unwrap();
                let end = async |mut writer: Client| {
                    let step = [Step::Complete, Step::Abort, Step::Fail][round % 3];
                    let sent = Instant::now();
                    ask(&mut writer, &run_id, step, "").await.unwrap();
                    (sent.elapsed(), Instant::now())
                };
                let waiting = wait(watcher.clone(), run_id.clone());
                let ((waited, at), (took, ended)) = match lane {
                    // Long before: the wait is in place.
                    0 => {
                        let mut waits = JoinSet::new();
                        waits.spawn(waiting);
                        ask(&mut writer, &run_id, Step::Update(round), "").await.unwrap();
                        let ended = end(writer.clone()).await;
                        (waits.join_next().await.unwrap().unwrap(), ended)
                    }
                    1 => tokio::join!(waiting, end(writer.clone())),
                    2 => {
                        let (ended, waited) = tokio::join!(end(writer.clone()), waiting);
                        (waited, ended)
                    }
                    _ => {
                        let ended = end(writer.clone()).await;
                        (waiting.await, ended)
                    }
                };
                let run = waited.run.unwrap();
                assert!(!waited.timed_out && run.completed_at.is_some(), "{run:?}");
                calls.push(took);
                if lane != 3 {
                    delays.push(at.saturating_duration_since(ended));
                }
            }
            (delays, calls)
        });
    }
    let (delays, calls): (Vec<_>, Vec<_>) = races.join_all().await.into_iter().unzip();
    let [delays, calls] = [delays, calls].map(|lanes| {
        let mut sorted = lanes.concat();
        sorted.sort_unstable();
        sorted
    });
    Race { delays, calls }
}

/// Half of them within what is promised, or within a few calls' time where the machine is too busy for that; and none
/// as late as it would be if a wake-up were lost.
fn are_in_time(Race { delays, calls }: &Race, promised: Duration) {
    let (middle, last) = (delays[delays.len() / 2], delays[delays.len() - 1]);
    let (call, slowest) = (calls[calls.len() / 2], calls[calls.len() - 1]);
    assert!(middle < promised.max(call * 3), "half of the waits took {middle:?} or longer, and of the calls {call:?}");
    assert!(last < Duration::from_secs(5).max(slowest * 3), "one took {last:?}, and a call {slowest:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_wait_that_races_the_end_of_its_run_never_hangs_on_sqlite() {
    let directory = TempDir::new().unwrap();
    let server = Server::start(&Data::Sqlite(directory.path().join("ledger.db")).store()).await;
    server.is_ready().await;
    are_in_time(&race(server.address, server.address).await, Duration::from_millis(50));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_wait_that_races_the_end_of_its_run_never_hangs_on_the_same_replica() {
    let database = Database::fresh().await;
    let server = Server::start(&database.dsn()).await;
    server.is_ready().await;
    are_in_time(&race(server.address, server.address).await, Duration::from_millis(50));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_wait_that_races_the_end_of_its_run_never_hangs_on_another_replica() {
    let database = Database::fresh().await;
    let servers = [Server::start(&database.dsn()).await, Server::start(&database.dsn()).await];
    for server in &servers {
        server.is_ready().await;
    }
    are_in_time(&race(servers[0].address, servers[1].address).await, Duration::from_millis(200));
}

/// Replicas that do not tell each other of commits look for them instead.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_wait_for_a_run_that_ends_on_another_replica_is_soon_answered_without_notifications() {
    let database = Database::fresh().await;
    let args = ["--store", &database.dsn(), "--notify", "off"];
    let servers = [Server::start_with(&args).await, Server::start_with(&args).await];
    for server in &servers {
        server.is_ready().await;
    }
    let mut writer = servers[0].client();
    let mut delays = Vec::new();
    for nth in 0..5 {
        let run_id = format!("run-{nth}");
        ask(&mut writer, &run_id, Step::Start, "").await.unwrap();
        let mut waits = JoinSet::new();
        waits.spawn(wait(servers[1].client(), run_id.clone()));
        let held = async || (replica(&servers[1]).await.watches_of_one_run == 1).then_some(());
        assert_eq!(eventually(SOON, held).await, Some(()), "the other replica holds the wait");
        ask(&mut writer, &run_id, Step::Complete, "").await.unwrap();
        let ended = Instant::now();
        let (waited, at) = waits.join_next().await.unwrap().unwrap();
        assert!(!waited.timed_out);
        assert_eq!(waited.run.unwrap().status(), RunStatus::Completed);
        delays.push(at.saturating_duration_since(ended));
        let left = async || (replica(&servers[1]).await.watches_of_one_run == 0).then_some(());
        assert_eq!(eventually(SOON, left).await, Some(()), "nobody waits any more");
    }
    delays.sort_unstable();
    assert!(delays[2] < Duration::from_secs(2), "most of them: {delays:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_wait_lasts_no_longer_than_the_server_lets_it() {
    let server = Server::start_with(&["--store", "memory", "--wait-max", "300ms"]).await;
    server.is_ready().await;
    ask(&mut server.client(), "run-1", Step::Start, "").await.unwrap();
    let begun = Instant::now();
    let (waited, _) = wait(server.client(), "run-1".to_owned()).await;
    assert!(waited.timed_out);
    assert_eq!(waited.run.unwrap().status(), RunStatus::Running);
    assert!(begun.elapsed() >= Duration::from_millis(300), "it took {:?}", begun.elapsed());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn waits_and_watches_of_all_runs_are_told_to_come_back_by_a_stopping_server() {
    let mut server = Server::start("memory").await;
    server.is_ready().await;
    let mut client = server.client();
    ask(&mut client, "run-1", Step::Start, "").await.unwrap();
    let mut frames = client.watch_runs(runledger_proto::v1::WatchRunsRequest::default()).await.unwrap().into_inner();
    for _ in 0..2 {
        frames.message().await.unwrap().expect("the run, and caught up");
    }
    let mut waits = JoinSet::new();
    for _ in 0..10 {
        let mut client = client.clone();
        waits.spawn(async move {
            client.wait_run(WaitRunRequest { run_id: "run-1".to_owned(), timeout: None, until: 0 }).await.unwrap_err()
        });
    }
    // On the same connection, and after them.
    ask(&mut client, "run-1", Step::Update(1), "").await.unwrap();
    frames.message().await.unwrap().expect("the change");
    server.process.signal("TERM");
    let mut ends = waits.join_all().await;
    ends.push(frames.message().await.unwrap_err());
    for end in ends {
        assert_eq!((end.code(), reason(&end).as_str()), (Code::Unavailable, "DRAINING"));
    }
    let (code, said) = server.process.exited(SOON).await;
    assert_eq!(code, 0, "{said}");
}

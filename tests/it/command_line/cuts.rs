//! Calls and watches that are cut: nothing is lost, nothing comes twice, and the exit code says what is known.

use std::collections::BTreeMap;
use std::net::TcpListener as StdListener;
use std::sync::atomic::{AtomicU16, Ordering};

use runledger_proto::v1::GetReplicaRequest;
use runledger_proto::v1::replica_service_client::ReplicaServiceClient;
use serde_json::Value;
use tempfile::TempDir;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpListener;
use tokio::time::timeout;
use tonic_health::pb::health_check_response::ServingStatus;

use super::cli::{Going, cli, completed, done, started};
use crate::support::http2;
use crate::support::lossy::{is_running, lossy};
use crate::support::postgres::Database;
use crate::support::server::{PATIENCE, Server, channel};

/// An address that the system gives to no other process between two servers of one test.
fn address() -> String {
    static NEXT: AtomicU16 = AtomicU16::new(0);
    loop {
        let offset = u16::try_from(std::process::id() % 8_000).unwrap() + NEXT.fetch_add(1, Ordering::Relaxed);
        let address = format!("127.0.0.1:{}", 11_000 + offset);
        if StdListener::bind(&address).is_ok() {
            return address;
        }
    }
}

async fn serving(address: &str, store: &str) -> Server {
    let server = Server::spawn_at(address, &["--store", store], &[]);
    server.until("readiness", ServingStatus::Serving).await;
    server
}

/// The number of watches of one run, and of waits, at a server.
async fn watches(address: &str) -> u64 {
    let mut client = ReplicaServiceClient::new(channel(address).await);
    client.get_replica(GetReplicaRequest {}).await.unwrap().into_inner().watches_of_one_run
}

async fn a_restart_costs_a_watch_nothing(store: &str) {
    let address = address();
    let mut server = serving(&address, store).await;
    let mut watch = Going::start(&address, &["watch", "--initial", "none", "--output", "json"]);
    let mut frames = vec![watch.frame().await];
    assert!(frames[0]["caughtUp"]["cursor"].is_string(), "{frames:?}");
    for round in 0..3 {
        let run_ids: Vec<_> = (0..10).map(|index| format!("run-{round}-{index}")).collect();
        for run_id in &run_ids {
            started(&server, run_id).await;
        }
        server.kill();
        server = serving(&address, store).await;
        for run_id in &run_ids {
            completed(&server, run_id).await;
        }
        while frames.iter().filter(|frame| !frame["change"].is_null()).count() < (round + 1) * 20 {
            frames.push(watch.frame().await);
        }
    }
    let mut revisions: BTreeMap<String, Vec<Value>> = BTreeMap::new();
    for event in frames.iter().map(|frame| &frame["change"]["event"]).filter(|event| !event.is_null()) {
        let run_id = event["runId"].as_str().unwrap().to_owned();
        revisions.entry(run_id).or_default().push(event["revision"].clone());
    }
    assert_eq!(revisions.len(), 30);
    assert!(revisions.values().all(|revisions| *revisions == ["1", "2"]), "{revisions:?}");
    assert_eq!(frames.iter().filter(|frame| !frame["caughtUp"].is_null()).count(), 1, "it catches up once");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_restart_costs_a_watch_nothing_on_sqlite() {
    let directory = TempDir::new().unwrap();
    a_restart_costs_a_watch_nothing(&format!("sqlite:{}/ledger.db", directory.path().display())).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_restart_costs_a_watch_nothing_on_postgres() {
    a_restart_costs_a_watch_nothing(&Database::fresh().await.dsn()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_restart_costs_the_watch_of_a_run_and_a_wait_nothing() {
    let directory = TempDir::new().unwrap();
    let store = format!("sqlite:{}/ledger.db", directory.path().display());
    let address = address();
    let server = serving(&address, &store).await;
    started(&server, "r").await;
    let mut watch = Going::start(&address, &["run", "watch", "r", "--output", "json"]);
    assert_eq!(watch.frame().await["snapshot"]["run"]["revision"], "1");
    assert_eq!(watch.frame().await["caughtUp"]["revision"], "1");
    let wait = Going::start(&address, &["run", "wait", "r", "--output", "json"]);
    let begun = async { while watches(&address).await < 2 {} };
    timeout(PATIENCE, begun).await.expect("the wait begins before the server stops");
    done(&address, &["run", "update", "r", "--label", "a=b"]).await;
    assert_eq!(watch.frame().await["change"]["event"]["revision"], "2");
    // A server that stops says so, and one that is killed does not.
    assert!(server.stop().await.success());
    let server = serving(&address, &store).await;
    done(&address, &["run", "update", "r", "--label", "a=c"]).await;
    assert_eq!(watch.frame().await["change"]["event"]["revision"], "3");
    server.kill();
    let server = serving(&address, &store).await;
    completed(&server, "r").await;
    assert_eq!(watch.frame().await["change"]["event"]["revision"], "4");
    assert_eq!(watch.frame().await["end"]["run"]["revision"], "4");
    let (code, lines, err) = watch.ended().await;
    assert_eq!((code, lines.len()), (0, 0), "{err}");
    // A user whose command is back at the first attempt is told nothing.
    assert!((1..=2).contains(&err.matches("the server is back").count()), "{err}");
    assert!(!err.contains("DRAINING"), "{err}");
    let (code, lines, err) = wait.ended().await;
    assert_eq!((code, lines.len()), (0, 1), "{err}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_watch_that_may_not_reconnect_ends_with_4_when_it_is_cut() {
    for args in [&["watch"][..], &["run", "watch", "r"]] {
        let server = Server::start("memory").await;
        started(&server, "r").await;
        let mut watch = Going::start(server.address(), &[args, &["--no-reconnect", "--output", "json"]].concat());
        while watch.frame().await["caughtUp"].is_null() {}
        server.kill();
        let (code, lines, err) = watch.ended().await;
        assert_eq!((code, lines.len()), (4, 0), "{args:?}: {err}");
        assert!(err.starts_with("runledger: the call was cut off: "), "{err}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_start_whose_answer_is_lost_is_sent_again_and_applied_once() {
    let server = Server::start("memory").await;
    let (address, _task) = lossy(server.address(), is_running(&server, "r")).await;
    let out = done(&address, &["run", "start", "--task-thread-id", "t", "--run-id", "r"]);
    let out = timeout(PATIENCE, out).await.expect("it does not end");
    assert!(out.starts_with("disposition  replayed\n"), "{out}");
    let events = done(server.address(), &["run", "events", "r", "--output", "json"]).await;
    assert_eq!(events.lines().count(), 1, "{events}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_claim_whose_answer_is_lost_is_made_again_and_gets_the_same_run() {
    let server = Server::start("memory").await;
    for run_id in ["r", "later"] {
        done(server.address(), &["run", "start", "--task-thread-id", "t", "--run-id", run_id, "--deferred"]).await;
    }
    let (address, _task) = lossy(server.address(), is_running(&server, "r")).await;
    let claimed = cli(&address, &["run", "claim-next", "--wait", "20s", "--quiet"]).await;
    assert_eq!((claimed.code, claimed.out.as_str()), (0, "r\n"), "{}", claimed.err);
    assert!(claimed.err.contains("(trying again)"), "{}", claimed.err);
    let pending = done(server.address(), &["run", "list", "--status", "pending", "-q"]).await;
    assert_eq!(pending, "later\n", "no other run was taken");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_start_that_may_have_been_applied_ends_with_4_even_when_the_server_is_gone_by_then() {
    let server = Server::start("memory").await;
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let start = ["run", "start", "--task-thread-id", "a-thread-that-was-sent", "--timeout", "1s"];
    let cut = async {
        let (mut caller, _) = listener.accept().await.unwrap();
        drop(listener);
        caller.write_all(&http2::settings(&[])).await.unwrap();
        let mut sent = Vec::new();
        while !String::from_utf8_lossy(&sent).contains("a-thread-that-was-sent") {
            assert!(caller.read_buf(&mut sent).await.unwrap() > 0, "the call comes");
        }
    };
    let (ran, ()) = tokio::join!(cli(&address, &start), cut);
    assert_eq!((ran.code, ran.out.as_str()), (4, ""), "{}", ran.err);
    drop(server);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_first_server_that_hangs_is_passed_over_for_the_next() {
    let server = Server::start("memory").await;
    // The kernel takes the connection, and nobody says a word on it.
    let hung = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let servers = format!("{},{}", hung.local_addr().unwrap(), server.address());
    let started = done(&servers, &["run", "start", "--task-thread-id", "t", "--run-id", "r", "-q"]).await;
    assert_eq!(started, "r\n");
    let alone = cli(&hung.local_addr().unwrap().to_string(), &["run", "get", "r", "--timeout", "1s"]).await;
    assert_eq!(alone.code, 3, "nothing was sent: {}", alone.err);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_watch_that_is_not_to_reconnect_ends_with_4_where_it_was_cut_and_with_3_where_nobody_was() {
    let server = Server::start_with("memory", &["--connection-age-max", "1s"], &[]).await;
    started(&server, "r").await;
    for watch in [&["watch", "--no-reconnect", "-o", "json"][..], &["run", "watch", "r", "--no-reconnect"]] {
        let cut = cli(server.address(), watch).await;
        assert_eq!(cut.code, 4, "{watch:?}: {}", cut.err);
        assert!(cut.out.contains("\"caughtUp\""), "{}", cut.out);
        let nobody = cli("127.0.0.1:1", watch).await;
        assert_eq!((nobody.code, nobody.out.as_str()), (3, ""), "{}", nobody.err);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_watch_whose_time_is_over_says_when_its_server_is_not_there() {
    let server = Server::start("memory").await;
    let there = cli(server.address(), &["watch", "--for", "1s", "--output", "json"]).await;
    assert_eq!(there.code, 0, "{}", there.err);
    server.signal("STOP");
    let frozen = cli(server.address(), &["watch", "--for", "1s", "--output", "json"]).await;
    assert_eq!(frozen.code, 4, "{}", frozen.err);
    assert!(frozen.err.contains("is not there"), "{}", frozen.err);
    server.signal("CONT");
}

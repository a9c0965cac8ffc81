//! `runledger bench` against real servers, on both stores: what it says is whole and makes sense.

use std::net::TcpListener;

use serde_json::Value;
use tempfile::TempDir;

use super::data::Data;
use super::server::{Process, SOON, Server, eventually, run};
use crate::support::postgres::Database;

/// Runs a measurement to its end, and gives what it says.
async fn measured(words: &str, server: &Server, more: &[&str]) -> Value {
    let address = server.address.to_string();
    let words = words.split(' ').chain(["--output", "json", "--server", &address]);
    let words: Vec<&str> = ["bench", "watch"].into_iter().chain(words).chain(more.iter().copied()).collect();
    let (code, said) = run(&words).await;
    assert_eq!(code, 0, "{words:?}: {said}");
    let report: Value = serde_json::from_str(&said).unwrap_or_else(|error| panic!("{error}: {said}"));
    assert_eq!(report["interrupted"], false);
    report
}

fn number(report: &Value, name: &str) -> f64 {
    report["numbers"][name].as_f64().unwrap_or_else(|| panic!("no number {name}: {report}"))
}

/// Holds delays against their own order, and gives how many there are.
fn in_order(report: &Value, name: &str) -> u64 {
    let delays = &report["delays_ms"][name];
    let ordered = ["p50", "p90", "p99", "p99_9", "max"].map(|rank| delays[rank].as_f64().unwrap());
    assert!(ordered.is_sorted() && ordered[0] >= 0.0 && ordered[4] > 0.0, "{name}: {report}");
    delays["count"].as_u64().unwrap()
}

async fn every_measurement_counts_what_it_made(data: Data) {
    let server = Server::start(&data.store()).await;
    server.is_ready().await;

    let delay = measured("delay --rate 100 --seconds 2 --warm-up 1 --watchers 2", &server, &[]).await;
    let changes = number(&delay, "changes");
    assert!((200.0..=301.0).contains(&changes), "about a hundred a second: {delay}");
    let calls = in_order(&delay, "call");
    // Two thirds of them; a busy machine makes some of the warm-up's after it, and some of the others after the end.
    assert!((100..300).contains(&calls), "{delay}");
    for name in ["commit_to_watcher", "call_to_watcher"] {
        assert_eq!(in_order(&delay, name), calls * 2, "each of two watchers saw each change: {delay}");
    }
    let idle = measured("delay --rate 0 --seconds 1 --warm-up 0 --of run --watchers 3", &server, &[]).await;
    assert_eq!(in_order(&idle, "call_to_watcher"), in_order(&idle, "call"), "each run has one watcher: {idle}");

    let pid = server.process.pid().to_string();
    let idle = measured("idle --watchers 20 --seconds 0", &server, &["--server-pid", &pid]).await;
    assert!((number(&idle, "watchers") - 20.0).abs() < 0.1, "{idle}");
    assert!(number(&idle, "server_kib_open") > 0.0, "{idle}");

    let caught_up = measured("catch-up --events 501 --watchers 3", &server, &[]).await;
    assert!((number(&caught_up, "events") - 502.0).abs() < 0.1, "two events a run: {caught_up}");
    assert!(number(&caught_up, "one_seconds") > 0.0 && number(&caught_up, "all_seconds") > 0.0, "{caught_up}");
    let cursor = caught_up["notes"][0].as_str().unwrap().rsplit(' ').next().unwrap();
    let again = measured(&format!("catch-up --watchers 1 --cursor {cursor}"), &server, &[]).await;
    assert!((number(&again, "events") - 502.0).abs() < 0.1, "the same events: {again}");

    for rate in ["0", "50"] {
        let words = format!("waiters --waiters 60 --runs 7 --seconds 1 --rate {rate}");
        let waited = measured(&words, &server, &[]).await;
        assert_eq!(in_order(&waited, "commit_to_answer"), 60, "every wait was answered: {waited}");
        in_order(&waited, "call_to_answer");
    }

    let left = "select count(*) from active";
    assert_eq!(data.sql(left).await, [[Some("0".to_owned())]], "no run is left open");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_measurement_counts_what_it_made_on_sqlite() {
    let directory = TempDir::new().unwrap();
    every_measurement_counts_what_it_made(Data::Sqlite(directory.path().join("ledger.db"))).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_measurement_counts_what_it_made_on_postgres() {
    let database = Database::fresh().await;
    every_measurement_counts_what_it_made(Data::Postgres(database.dsn())).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_measurement_across_replicas_writes_to_one_and_watches_the_other() {
    let database = Database::fresh().await;
    let data = Data::Postgres(database.dsn());
    let writer = Server::start(&data.store()).await;
    writer.is_ready().await;
    let reader = Server::start(&data.store()).await;
    reader.is_ready().await;
    let watched = reader.address.to_string();
    let report = measured("delay --rate 50 --seconds 1 --warm-up 0", &writer, &["--watch-server", &watched]).await;
    assert_eq!(in_order(&report, "commit_to_watcher"), in_order(&report, "call"), "{report}");
    assert!(report["did"].as_str().unwrap().contains(&watched), "{report}");
}

async fn ends_with_what_was_measured(signal: &str, ends_with: i32) {
    let directory = TempDir::new().unwrap();
    let data = Data::Sqlite(directory.path().join("ledger.db"));
    let server = Server::start(&data.store()).await;
    server.is_ready().await;
    let address = server.address.to_string();
    let words = ["bench", "watch", "idle", "--watchers", "4", "--single", "100", "--seconds", "600"];
    let mut bench = Process::spawn(&[&words[..], &["--output", "json", "--server", &address]].concat());
    let at_work = async || (data.sql("select count(*) from active").await == [[Some("4".to_owned())]]).then_some(());
    assert_eq!(eventually(SOON, at_work).await, Some(()), "{}", bench.said());
    bench.signal(signal);
    let (code, said) = bench.exited(SOON).await;
    assert_eq!(code, ends_with, "{said}");
    let report: Value = serde_json::from_str(&said).unwrap();
    assert_eq!(report["interrupted"], true, "{said}");
    let left = data.sql("select count(*) from active").await;
    assert_eq!(left, [[Some("0".to_owned())]], "what it started it has ended");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ctrl_c_ends_a_measurement_with_what_was_measured() {
    ends_with_what_was_measured("INT", 130).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_sigterm_ends_a_measurement_with_what_was_measured() {
    ends_with_what_was_measured("TERM", 143).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_is_not_there_is_unreachable_and_a_missing_process_is_named() {
    let free = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().to_string();
    let (code, said) = run(&["bench", "watch", "delay", "--server", &free]).await;
    assert_eq!(code, 3, "{said}");
    assert!(said.contains(&free), "{said}");
    let server = Server::start("memory").await;
    server.is_ready().await;
    let address = server.address.to_string();
    let (code, said) = run(&["bench", "watch", "idle", "--server", &address, "--server-pid", "4194305"]).await;
    assert_eq!(code, 1, "{said}");
    assert!(said.contains("4194305"), "{said}");
}

//! The loads of `runledger bench` against real servers: what they say they did is what the ledger holds.

use std::net::TcpListener;

use serde_json::Value;
use tempfile::TempDir;

use super::data::Data;
use super::server::{Process, SOON, Server, eventually, run};
use crate::support::postgres::{Database, program};

/// Runs a load to its end, and gives what it says.
async fn loaded(words: &str, more: &[&str], servers: &[&Server]) -> Value {
    let addresses: Vec<String> = servers.iter().map(|server| server.address.to_string()).collect();
    let addresses = addresses.join(",");
    let words = words.split(' ').chain(["--output", "json", "--server", &addresses]);
    let words: Vec<&str> = ["bench"].into_iter().chain(words).chain(more.iter().copied()).collect();
    // It measures for as long as it is told, and comparisons have ten rounds: a busy machine may take its time.
    let (code, said) = Process::spawn(&words).exited(SOON * 10).await;
    assert_eq!(code, 0, "{words:?}: {said}");
    serde_json::from_str(&said).unwrap_or_else(|error| panic!("{error}: {said}"))
}

async fn counted(data: &Data, what: &str) -> u64 {
    data.sql(&format!("select count(*) from {what}")).await[0][0].as_ref().unwrap().parse().unwrap()
}

fn number(report: &Value, name: &str) -> u64 {
    report["numbers"][name].as_u64().unwrap_or_else(|| panic!("no count {name}: {report}"))
}

/// The number of delays of that kind, which are in order.
fn delays(report: &Value, name: &str) -> u64 {
    let delays = &report["delays_ms"][name];
    let ordered = ["p50", "p90", "p99", "p99_9", "max"].map(|rank| delays[rank].as_f64().unwrap());
    assert!(ordered.is_sorted() && ordered[0] >= 0.0, "{name}: {report}");
    delays["count"].as_u64().unwrap()
}

/// The kinds of calls of each load, and the transitions among them.
const LOADS: &[(&str, &[&str], &[&str])] = &[
    ("lifecycle", &["start", "update", "complete"], &["start", "update", "complete"]),
    ("start-complete", &["start", "complete"], &["start", "complete"]),
    ("hot-run --runs 2", &["update"], &["update"]),
    ("read --runs 20", &["get"], &[]),
    ("wait", &["start", "complete"], &["start", "complete"]),
];

async fn what_a_load_says_it_wrote_is_what_the_ledger_got(data: Data) {
    let server = Server::start(&data.store()).await;
    server.is_ready().await;
    let mut before = 0;
    for (load, calls, transitions) in LOADS {
        for more in [&["--warm-up", "1"][..], &["--warm-up", "0", "--rounds", "2", "--request-ids"]] {
            let report = loaded(&format!("{load} --callers 5 --seconds 1"), more, &[&server]).await;
            let events = counted(&data, "run_events").await;
            assert_eq!(number(&report, "events_written"), events - before, "{report}");
            before = events;
            let sum = |kinds: &[&str]| kinds.iter().map(|kind| delays(&report, kind)).sum::<u64>();
            assert!(sum(calls) > 0 && sum(calls) == delays(&report, "all_calls"), "{report}");
            if !transitions.is_empty() {
                assert_eq!(number(&report, "transitions"), sum(transitions), "{report}");
            }
            if *load == "wait" {
                assert!(delays(&report, "complete_to_wait_answer") > 0, "{report}");
            }
            let rounds = report["rounds"].as_array().map_or(1, Vec::len);
            assert_eq!(rounds, if more.contains(&"--rounds") { 2 } else { 1 }, "{report}");
            assert_eq!(counted(&data, "active").await, 0, "every run that it started has ended");
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_a_load_says_it_wrote_is_what_the_ledger_got_on_sqlite() {
    let directory = TempDir::new().unwrap();
    what_a_load_says_it_wrote_is_what_the_ledger_got(Data::Sqlite(directory.path().join("ledger.db"))).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_a_load_says_it_wrote_is_what_the_ledger_got_on_postgres() {
    let database = Database::fresh().await;
    what_a_load_says_it_wrote_is_what_the_ledger_got(Data::Postgres(database.dsn())).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_open_loop_begins_what_is_due_however_slow_it_is_done() {
    let directory = TempDir::new().unwrap();
    let data = Data::Sqlite(directory.path().join("ledger.db"));
    let server = Server::start(&data.store()).await;
    server.is_ready().await;
    let report = loaded("lifecycle --rate 20 --seconds 2 --warm-up 1", &[], &[&server]).await;
    assert_eq!(number(&report, "events_written"), 3 * 20 * 4, "{report}");
    assert_eq!(counted(&data, "runs").await, 3 * 20);
    let rate = report["numbers"]["turns_per_second"].as_f64().unwrap();
    // Calls that were due before the time was over and answered after it are not measured.
    assert!((15.0..=25.0).contains(&rate), "{report}");

    // One at a time is too few for what is due: nothing of it is left out.
    let report = loaded("hot-run --rate 100 --callers 1 --seconds 2 --warm-up 0", &[], &[&server]).await;
    assert_eq!(number(&report, "events_written"), 2 * 100 + 2, "one caller catches up: {report}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_load_is_spread_over_all_servers() {
    let directory = TempDir::new().unwrap();
    let mut servers = Vec::new();
    // Two ledgers, so that each tells what came to its own server.
    let ledgers = ["one.db", "other.db"].map(|name| Data::Sqlite(directory.path().join(name)));
    for data in &ledgers {
        let server = Server::start(&data.store()).await;
        server.is_ready().await;
        servers.push(server);
    }
    let report = loaded("start-complete --callers 2 --seconds 1", &[], &[&servers[0], &servers[1]]).await;
    let events = [counted(&ledgers[0], "run_events").await, counted(&ledgers[1], "run_events").await];
    assert!(events.iter().all(|events| *events > 0), "{events:?}");
    assert_eq!(number(&report, "events_written"), events.iter().sum::<u64>(), "{report}");
}

async fn compared_with(load: &str, more: &[&str]) -> Value {
    let database = Database::fresh().await;
    let data = Data::Postgres(database.dsn());
    let server = Server::start(&data.store()).await;
    server.is_ready().await;
    let dsn = database.dsn();
    let words = format!("{load} --seconds 1 --warm-up 0 --rounds 2");
    let report = loaded(&words, &[&["--database", &dsn], more].concat(), &[&server]).await;
    assert_eq!(number(&report, "events_written"), counted(&data, "run_events").await, "{report}");
    let left = counted(&data, "pg_namespace where nspname = 'runledger_bench'").await;
    assert_eq!(left, 0, "its tables are gone");
    for round in report["rounds"].as_array().unwrap() {
        assert!(round["numbers"]["transitions_per_second"].as_f64().unwrap() > 0.0, "{report}");
    }
    for ratio in report["ratios"].as_array().unwrap() {
        let [min, median, max] = ["min", "median", "max"].map(|rank| ratio[rank].as_f64().unwrap());
        assert!(0.0 < min && min <= median && median <= max, "{report}");
        assert_eq!(ratio["each"].as_array().unwrap().len(), 2, "{report}");
    }
    report
}

/// Of each ratio: what, over whom.
fn ratios(report: &Value) -> Vec<(&str, &str)> {
    let ratios = report["ratios"].as_array().unwrap();
    ratios.iter().map(|ratio| (ratio["of"].as_str().unwrap(), ratio["over"].as_str().unwrap())).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_comparison_takes_turns_with_every_baseline_and_says_how_they_stand() {
    let pgbench = program("pgbench").display().to_string();
    let more = ["--versus", "chatty,one-statement", "--pgbench", &pgbench];
    let report = compared_with("start-complete --callers 3", &more).await;
    let rounds = report["rounds"].as_array().unwrap().iter();
    let order: Vec<&str> = rounds.map(|round| round["of"].as_str().unwrap()).collect();
    let sides = ["runledger", "chatty", "pgbench-chatty", "one-statement", "pgbench-one-statement"];
    assert!(order.iter().eq(sides.iter().chain(sides.iter().rev())), "{order:?}");
    let rates = ["chatty", "one-statement", "pgbench-chatty", "pgbench-one-statement"];
    let expected = rates.map(|over| ("transitions_per_second", over));
    let expected: Vec<_> =
        expected.into_iter().chain(rates[..2].iter().map(|over| ("p50_of_all_calls", *over))).collect();
    assert_eq!(ratios(&report), expected);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_load_that_writes_over_and_over_has_baselines() {
    let pgbench = program("pgbench").display().to_string();
    let more = ["--versus", "one-statement,chatty", "--pgbench", &pgbench];
    for load in ["lifecycle --callers 3", "hot-run --callers 3 --runs 2 --metadata-bytes 0"] {
        let report = compared_with(load, &more).await;
        assert_eq!(ratios(&report).len(), 6, "{report}");
    }
    let open = compared_with("start-complete --rate 30 --callers 70", &["--versus", "one-statement"]).await;
    assert_eq!(ratios(&open).len(), 2, "{open}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_comparison_that_cannot_be_made_is_refused_before_anything_is_written() {
    let free = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().to_string();
    let nobody = format!("postgres://u:secret@{free}/d");
    let server = Server::start("memory").await;
    server.is_ready().await;
    let address = server.address.to_string();
    for (words, code, says) in [
        (&["read", "--versus", "chatty", "--database", &nobody][..], 2, "no baseline for read"),
        (&["wait", "--versus", "chatty"], 2, "no baseline for wait"),
        (&["lifecycle", "--versus", "chatty"], 2, "--database"),
        (&["lifecycle", "--versus", "chatty", "--database", "sqlite:secret.db"], 2, "postgres://"),
        (&["lifecycle", "--pgbench", "pgbench"], 2, "--versus"),
        (&["lifecycle", "--versus", "chatty", "--database", &nobody], 3, "the database to compare with"),
    ] {
        let (ended, said) = run(&[&["bench"], words, &["--server", &address]].concat()).await;
        assert_eq!(ended, code, "{words:?}: {said}");
        assert!(said.contains(says) && !said.contains("secret"), "{words:?}: {said}");
    }
    let (ended, said) = run(&["bench", "lifecycle", "--server", &free]).await;
    assert!(ended == 3 && said.contains(&free), "{ended}: {said}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ctrl_c_ends_a_load_with_what_was_done_and_no_run_open() {
    let directory = TempDir::new().unwrap();
    let data = Data::Sqlite(directory.path().join("ledger.db"));
    let server = Server::start(&data.store()).await;
    server.is_ready().await;
    let address = server.address.to_string();
    let words = ["bench", "lifecycle", "--warm-up", "0", "--seconds", "600", "--output", "json", "--server", &address];
    let mut bench = Process::spawn(&words);
    let at_work = async || (counted(&data, "run_events").await > 100).then_some(());
    assert_eq!(eventually(SOON, at_work).await, Some(()), "{}", bench.said());
    bench.signal("INT");
    let (code, said) = bench.exited(SOON).await;
    assert_eq!(code, 130, "{said}");
    let report: Value = serde_json::from_str(&said).unwrap();
    assert_eq!(report["interrupted"], true, "{said}");
    assert!(number(&report, "transitions") > 0, "{said}");
    assert_eq!(number(&report, "events_written"), counted(&data, "run_events").await, "{said}");
    assert_eq!(counted(&data, "active").await, 0, "what it started it has ended");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_load_whose_server_is_killed_says_so_in_words() {
    let directory = TempDir::new().unwrap();
    let data = Data::Sqlite(directory.path().join("ledger.db"));
    let server = Server::start(&data.store()).await;
    server.is_ready().await;
    let address = server.address.to_string();
    let mut bench = Process::spawn(&["bench", "start-complete", "--seconds", "600", "--server", &address]);
    let at_work = async || (counted(&data, "run_events").await > 100).then_some(());
    assert_eq!(eventually(SOON, at_work).await, Some(()), "{}", bench.said());
    server.process.signal("KILL");
    let (code, said) = bench.exited(SOON).await;
    assert_eq!(code, 3, "{said}");
    let last = said.lines().last().unwrap();
    assert!(last.contains("Run failed: ") && !last.contains("code:") && !last.contains('{'), "{last}");
}

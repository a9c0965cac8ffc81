//! An export that goes on: every event once, through trouble of servers and database.

use std::collections::HashSet;
use std::fs;
use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};

use serde_json::Value;
use tempfile::TempDir;
use tokio::sync::watch;
use tokio::task::block_in_place;

use super::export::{exported, places};
use super::ledger::Ledger;
use super::on_both_stores;
use crate::process::data::Data;
use crate::process::load::Load;
use crate::process::server::{Process, SOON, Server, eventually};
use crate::support::commands::{Asking as _, complete, start, update};
use crate::support::postgres::Cluster;

on_both_stores! {
    a_follower_writes_every_event_once_while_writers_write
    a_follower_of_a_session_catches_up_on_a_run_that_is_linked_late
    a_follower_that_is_killed_goes_on_where_its_file_ends
    a_file_of_something_else_is_not_gone_on_with
    a_file_of_another_selection_is_not_gone_on_with
    a_follower_of_a_still_ledger_notices_that_its_reader_has_gone
}

fn follow(store: &str, file: &Path, args: &[&str]) -> Process {
    let fixed = ["export", "--follow", "--store", store, "--output", file.to_str().unwrap()];
    Process::spawn(&[&fixed, args].concat())
}

fn lines(file: &Path) -> Vec<Value> {
    let text = fs::read_to_string(file).unwrap_or_default();
    text.split_inclusive('\n')
        .filter(|line| line.ends_with('\n'))
        .map(|line| serde_json::from_str(line).unwrap())
        .collect()
}

async fn has_lines(file: &Path, count: usize) {
    let there = eventually(SOON, async || (lines(file).len() >= count).then_some(())).await;
    assert!(there.is_some(), "{} of {count} lines are there", lines(file).len());
}

/// Stops a follower with Ctrl-C.
async fn stopped(mut process: Process) {
    process.signal("INT");
    let (code, said) = process.exited(SOON).await;
    assert_eq!(code, 0, "{said}");
    assert!(said.contains("runledger: exported "), "{said}");
}

async fn every_event_is_there_once(ledger: &Data, file: &Path) {
    let held = ledger.sound().await;
    has_lines(file, held.events.len()).await;
    let seen = places(&lines(file));
    let once: HashSet<_> = seen.iter().cloned().collect();
    assert_eq!((seen.len(), once.len()), (held.events.len(), held.events.len()), "every event is there once");
    let mut ends = std::collections::HashMap::new();
    for (run_id, revision) in seen {
        assert_eq!(ends.insert(run_id.clone(), revision).unwrap_or(0) + 1, revision, "{run_id} is in order");
    }
}

async fn a_follower_writes_every_event_once_while_writers_write(ledger: Ledger) {
    let server = Server::start(&ledger.store()).await;
    server.is_ready().await;
    let (_servers, targets) = watch::channel(vec![server.address]);
    let mut load = Load::start("run", 8, &targets);
    load.progresses(100).await;
    let directory = TempDir::new().unwrap();
    let file = directory.path().join("lifecycle.jsonl");
    let follower = follow(&ledger.store(), &file, &[]);
    load.progresses(300).await;
    load.finish().await;
    every_event_is_there_once(&ledger.data, &file).await;
    stopped(follower).await;
    every_event_is_there_once(&ledger.data, &file).await;
}

async fn a_follower_of_a_session_catches_up_on_a_run_that_is_linked_late(ledger: Ledger) {
    ledger.fill().await;
    let directory = TempDir::new().unwrap();
    let file = directory.path().join("lifecycle.jsonl");
    let mut follower = follow(&ledger.store(), &file, &["--audit-session", "audit-1"]);
    has_lines(&file, 3).await;
    let audit = |session: &str| update("late").changing(|changes| changes.audit_session_id = Some(session.to_owned()));
    let tabs = |tabs: &str| update("late").changing(|changes| changes.tab_group_id = Some(tabs.to_owned()));
    ledger.commit(vec![start("late"), start("other"), tabs("1"), audit("audit-1"), tabs("2"), audit("")]).await;
    has_lines(&file, 8).await;
    follower.kill();
    let follower = follow(&ledger.store(), &file, &["--audit-session", "audit-1"]);
    ledger.commit(vec![tabs("3"), audit("audit-1"), complete("other"), complete("late")]).await;
    has_lines(&file, 11).await;
    stopped(follower).await;
    let expected: Vec<(String, u64)> = (1..=3)
        .map(|revision| ("linked".to_owned(), revision))
        .chain((1..=8).map(|revision| ("late".to_owned(), revision)))
        .collect();
    assert_eq!(places(&lines(&file)), expected, "each event once, and none of before is missing");
    assert_eq!(places(&exported(&ledger, &["--audit-session", "audit-1"]).await), expected, "as if it had come later");
}

async fn a_follower_that_is_killed_goes_on_where_its_file_ends(ledger: Ledger) {
    let server = Server::start(&ledger.store()).await;
    server.is_ready().await;
    let (_servers, targets) = watch::channel(vec![server.address]);
    let mut load = Load::start("run", 8, &targets);
    load.progresses(50).await;
    let directory = TempDir::new().unwrap();
    let file = directory.path().join("lifecycle.jsonl");
    for torn in ["", "{", r#"{"at":"2025-11-24T16:00:00.1234"#] {
        let mut follower = follow(&ledger.store(), &file, &[]);
        has_lines(&file, lines(&file).len() + 20).await;
        follower.kill();
        if !torn.is_empty() {
            let whole = fs::read_to_string(&file).unwrap();
            let end = whole.rfind('\n').unwrap() + 1;
            fs::write(&file, format!("{}{torn}", &whole[..end])).unwrap();
        }
        load.progresses(50).await;
    }
    load.finish().await;
    let follower = follow(&ledger.store(), &file, &[]);
    every_event_is_there_once(&ledger.data, &file).await;
    stopped(follower).await;
    let session = directory.path().join("session.jsonl");
    let run_id = lines(&file)[0]["runId"].as_str().unwrap().to_owned();
    let of_run: Vec<_> = places(&lines(&file)).into_iter().filter(|(id, _)| *id == run_id).collect();
    for _ in 0..2 {
        let mut follower = follow(&ledger.store(), &session, &["--run", &run_id]);
        has_lines(&session, of_run.len()).await;
        follower.kill();
    }
    assert_eq!(places(&lines(&session)), of_run);
}

async fn a_file_of_something_else_is_not_gone_on_with(ledger: Ledger) {
    ledger.fill().await;
    let directory = TempDir::new().unwrap();
    let file = directory.path().join("lifecycle.jsonl");
    let of_nobody = "{\"at\":\"2025-11-24T16:00:00.123400Z\",\"runId\":\"nobody's\",\"revision\":1}\n";
    for text in ["a letter", "a letter\n", of_nobody] {
        fs::write(&file, text).unwrap();
        let (code, said) = follow(&ledger.store(), &file, &[]).exited(SOON).await;
        assert_eq!((code, said.contains("it cannot be gone on with")), (1, true), "{said}");
        assert_eq!(fs::read_to_string(&file).unwrap(), text);
    }
}

async fn a_file_of_another_selection_is_not_gone_on_with(ledger: Ledger) {
    ledger.fill().await;
    let directory = TempDir::new().unwrap();
    let (whole, of_run) = (directory.path().join("whole.jsonl"), directory.path().join("run.jsonl"));
    let count = exported(&ledger, &[]).await.len();
    for (file, args, lines_min) in [(&whole, &[][..], count), (&of_run, &["--run", "long"], 1)] {
        let mut follower = follow(&ledger.store(), file, args);
        has_lines(file, lines_min).await;
        follower.kill();
    }
    let at = lines(&whole)[0]["at"].as_str().unwrap().to_owned();
    let others: [(&Path, &[&str]); 7] = [
        (&whole, &["--namespace", "default"]),
        (&whole, &["--run", "long"]),
        (&whole, &["--task-thread", "thread-2"]),
        (&whole, &["--audit-session", "audit-1"]),
        (&whole, &["--since", &at]),
        (&of_run, &[]),
        (&of_run, &["--run", "linked"]),
    ];
    for (file, args) in others {
        let before = fs::read_to_string(file).unwrap();
        let (code, said) = follow(&ledger.store(), file, args).exited(SOON).await;
        assert_eq!((code, said.contains("it is an export of another")), (1, true), "{args:?}: {said}");
        assert_eq!(fs::read_to_string(file).unwrap(), before);
    }
    // Without its note, a file tells by its lines what it has more.
    fs::remove_file(directory.path().join("whole.jsonl.selection")).unwrap();
    let (code, said) = follow(&ledger.store(), &whole, &["--run", "long"]).exited(SOON).await;
    assert_eq!((code, said.contains("it has events of more than this run")), (1, true), "{said}");
    ledger.commit(vec![start("later")]).await;
    let follower = follow(&ledger.store(), &whole, &[]);
    has_lines(&whole, count + 1).await;
    stopped(follower).await;
    // How long ago it was is told from the first time on: what came while nobody followed is there.
    let recent = directory.path().join("recent.jsonl");
    let ago = ["--since", "0s"];
    let mut follower = follow(&ledger.store(), &recent, &ago);
    eventually(SOON, async || directory.path().join("recent.jsonl.selection").exists().then_some(())).await.unwrap();
    ledger.commit(vec![start("followed")]).await;
    has_lines(&recent, 1).await;
    follower.kill();
    ledger.commit(vec![start("meanwhile")]).await;
    let follower = follow(&ledger.store(), &recent, &ago);
    has_lines(&recent, 2).await;
    stopped(follower).await;
}

async fn a_follower_of_a_still_ledger_notices_that_its_reader_has_gone(ledger: Ledger) {
    ledger.fill().await;
    let mut command = Command::new(env!("CARGO_BIN_EXE_runledger"));
    command.args(["export", "--follow", "--store", &ledger.store()]).stdin(Stdio::null()).stdout(Stdio::piped());
    let mut follower = command.spawn().unwrap();
    let mut line = String::new();
    BufReader::new(follower.stdout.take().unwrap()).read_line(&mut line).unwrap();
    let ended = eventually(SOON, async || follower.try_wait().unwrap()).await;
    if ended.is_none() {
        follower.kill().unwrap();
    }
    assert_eq!(ended.map(|status| status.code()), Some(Some(0)));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_follower_outlives_a_postgres_that_is_killed_and_misses_nothing() {
    let mut cluster = block_in_place(|| Cluster::start(&[]));
    let data = Data::Postgres(cluster.dsn());
    let server = Server::start(&data.store()).await;
    server.is_ready().await;
    let (_servers, targets) = watch::channel(vec![server.address]);
    let mut load = Load::start("run", 8, &targets);
    load.progresses(50).await;
    let directory = TempDir::new().unwrap();
    let file = directory.path().join("lifecycle.jsonl");
    let follower = follow(&data.store(), &file, &[]);
    for _ in 0..2 {
        load.progresses(100).await;
        has_lines(&file, lines(&file).len() + 10).await;
        block_in_place(|| cluster.kill());
        follower.says("waiting for it").await;
        block_in_place(|| cluster.restart());
    }
    load.progresses(100).await;
    load.finish().await;
    every_event_is_there_once(&data, &file).await;
    stopped(follower).await;
}

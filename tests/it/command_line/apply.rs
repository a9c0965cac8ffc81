//! `runledger run apply`: commands from a stream.

use std::process::Stdio;

use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::process::{Child, Command};
use tokio::task::JoinSet;
use tokio::time::timeout;

use super::cli::{done, started};
use crate::support::server::{PATIENCE, Server};

/// The command at a server, with its input open.
fn applies(server: &Server, flags: &[&str]) -> Child {
    let mut command = Command::new(env!("CARGO_BIN_EXE_runledger"));
    command.args(["run", "apply", "-", "--server", server.address()]).args(flags).kill_on_drop(true);
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
}

async fn says(child: &mut Child, command: &Value) {
    child.stdin.as_mut().unwrap().write_all(format!("{command}\n").as_bytes()).await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_line_is_answered_while_the_next_one_is_awaited() {
    let server = Server::start("memory").await;
    let mut child = applies(&server, &[]);
    let mut results = BufReader::new(child.stdout.take().unwrap()).lines();
    for command in [json!({"start": {"runId": "r", "taskThreadId": "t"}}), json!({"complete": {"runId": "r"}})] {
        says(&mut child, &command).await;
        let result = timeout(PATIENCE, results.next_line()).await.expect("it waits for more").unwrap().unwrap();
        assert!(result.contains("DISPOSITION_APPLIED"), "{result}");
    }
    drop(child.stdin.take());
    assert_eq!(child.wait().await.unwrap().code(), Some(0));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_is_sent_behind_a_line_that_was_not_answered_in_time() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("ledger.db");
    let server = Server::start(&format!("sqlite:{}", path.display())).await;
    started(&server, "r").await;
    let holder = rusqlite::Connection::open(&path).unwrap();
    holder.execute_batch("begin immediate").unwrap();
    let mut child = applies(&server, &["--timeout", "10s"]);
    says(&mut child, &json!({"update": {"runId": "r", "metadata": {"step": 1}}})).await;
    let mut said = BufReader::new(child.stderr.take().unwrap()).lines();
    let waits = timeout(PATIENCE, said.next_line()).await.expect("it says nothing").unwrap().unwrap();
    assert!(waits.ends_with("has not answered yet (0 commands were answered): waiting"), "{waits}");
    says(&mut child, &json!({"complete": {"runId": "r"}})).await;
    drop(child.stdin.take());
    let ended = timeout(PATIENCE, child.wait()).await.expect("it hangs").unwrap();
    let last = said.next_line().await.unwrap().unwrap();
    assert_eq!(ended.code(), Some(4), "{last}");
    holder.execute_batch("rollback").unwrap();
    let after = done(server.address(), &["run", "update", "r", "--label", "after=1", "-o", "json"]).await;
    assert!(after.contains("RUN_STATUS_RUNNING"), "{after}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ctrl_c_ends_it_with_the_results_of_what_was_sent_while_its_input_is_open() {
    let server = Server::start("memory").await;
    let mut child = applies(&server, &[]);
    says(&mut child, &json!({"start": {"runId": "r", "taskThreadId": "t"}})).await;
    let mut results = BufReader::new(child.stdout.take().unwrap()).lines();
    let result = timeout(PATIENCE, results.next_line()).await.expect("it waits for more").unwrap().unwrap();
    assert!(result.contains("DISPOSITION_APPLIED"), "{result}");
    // A child that is waited for loses its input otherwise.
    let _open = child.stdin.take();
    kill(&child, "INT");
    let ended = timeout(PATIENCE, child.wait_with_output()).await.expect("it hangs").unwrap();
    let said = String::from_utf8(ended.stderr).unwrap();
    assert_eq!(ended.status.code(), Some(130), "{said}");
    assert!(said.ends_with("stopped: commands that have a result: 1; nothing behind them was sent\n"), "{said}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ctrl_c_in_the_middle_of_many_lines_leaves_none_that_was_sent_without_its_result() {
    let server = Server::start("memory").await;
    let mut child = applies(&server, &[]);
    let mut input = child.stdin.take().unwrap();
    let line =
        |number: u32| json!({"start": {"runId": format!("many-{number}"), "taskThreadId": "t"}}).to_string() + "\n";
    // More than have room for their results, so that it waits for that when it is told to end.
    let lines: String = (0..40_000).map(line).collect();
    let mut writes = JoinSet::new();
    writes.spawn(async move { input.write_all(lines.as_bytes()).await });
    let mut results = BufReader::new(child.stdout.take().unwrap()).lines();
    let mut count = 0;
    while count < 100 {
        results.next_line().await.unwrap().unwrap();
        count += 1;
    }
    server.signal("STOP");
    let mut said = BufReader::new(child.stderr.take().unwrap()).lines();
    let mut next = async || timeout(PATIENCE, said.next_line()).await.expect("it says nothing").unwrap().unwrap();
    let waits = next().await;
    assert!(waits.ends_with("were answered): waiting"), "{waits}");
    kill(&child, "INT");
    // On a busy machine it may wait for a result once more, and say so.
    let mut says = async |what: &str| {
        let mut said = next().await;
        while said.ends_with("were answered): waiting") {
            said = next().await;
        }
        assert!(said.contains(what), "{said}");
    };
    says("once more, and it ends at once").await;
    server.signal("CONT");
    while results.next_line().await.unwrap().is_some() {
        count += 1;
    }
    says(&format!("stopped: commands that have a result: {count};")).await;
    let ended = timeout(PATIENCE, child.wait()).await.expect("it hangs").unwrap();
    assert_eq!(ended.code(), Some(130));
    let there = done(server.address(), &["run", "count", "-o", "json"]).await;
    let there: Value = serde_json::from_str(&there).unwrap();
    let of_status = there["counts"].as_array().unwrap().iter().filter_map(|each| each["count"].as_str());
    let counted: u64 = of_status.map(|count| count.parse::<u64>().unwrap()).sum();
    assert_eq!(counted, count, "{there}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ctrl_c_waits_for_a_result_and_a_second_one_does_not() {
    let server = Server::start("memory").await;
    server.signal("STOP");
    let mut child = applies(&server, &["--timeout", "10m"]);
    says(&mut child, &json!({"start": {"runId": "r", "taskThreadId": "t"}})).await;
    let _open = child.stdin.take();
    let mut said = BufReader::new(child.stderr.take().unwrap()).lines();
    let mut next = async || timeout(PATIENCE, said.next_line()).await.expect("it says nothing").unwrap().unwrap();
    let waits = next().await;
    assert!(waits.ends_with("has not answered yet (0 commands were answered): waiting"), "{waits}");
    kill(&child, "INT");
    assert!(next().await.ends_with("once more, and it ends at once"));
    kill(&child, "TERM");
    assert!(
        next().await.contains("stopped at once: commands that have a result: 0; what is behind them may have been")
    );
    let ended = timeout(PATIENCE, child.wait()).await.expect("it hangs").unwrap();
    assert_eq!(ended.code(), Some(143));
    server.signal("CONT");
}

fn kill(child: &Child, signal: &str) {
    let sent = std::process::Command::new("kill").args(["-s", signal, &child.id().unwrap().to_string()]).status();
    assert!(sent.unwrap().success());
}

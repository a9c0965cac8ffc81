//! Every command that calls a server once, in words and in JSON.

use serde_json::json;
use tempfile::TempDir;

use super::cli::{cli, command, done, json, ran};
use crate::support::postgres::Database;
use crate::support::server::Server;

async fn namespaces_are_made_shown_changed_and_deleted(store: &str) {
    let server = Server::start(store).await;
    let server = server.address();
    let create = ["namespace", "create", "team-a", "--description", "a team's", "--max-active-runs", "5"];
    let made = &json(server, &create).await[0];
    assert_eq!((&made["name"], &made["quotas"]), (&json!("team-a"), &json!({"maxActiveRuns": "5"})));
    assert_eq!(json(server, &create).await[0], *made, "a repetition changes nothing");
    let out = done(server, &["namespace", "list"]).await;
    let lines: Vec<&str> = out.lines().collect();
    assert!(lines[0].starts_with("NAME     MAX ACTIVE RUNS  CREATED AT"), "{out}");
    assert!(lines[1].starts_with("default  none ") && lines[2].starts_with("team-a   5 "), "{out}");
    let out = done(server, &["namespace", "update", "team-a", "--max-active-runs", "0"]).await;
    assert!(out.contains("max active runs   none\nmax stored bytes  none\nrevision          2\n"), "{out}");
    assert_eq!(json(server, &["namespace", "get", "team-a"]).await[0]["revision"], "2");
    let stale = cli(server, &["namespace", "delete", "team-a", "--expected-revision", "1"]).await;
    assert!(stale.code != 0 && stale.err.contains("REVISION_MISMATCH"), "{}", stale.err);
    assert_eq!(done(server, &["namespace", "delete", "team-a"]).await, "deleted team-a\n");
    let gone = cli(server, &["namespace", "get", "team-a"]).await;
    assert!(gone.code != 0 && gone.err.contains("NAMESPACE_NOT_FOUND"), "{}", gone.err);
}

#[tokio::test]
async fn namespaces_are_made_shown_changed_and_deleted_by_the_command_line() {
    let directory = TempDir::new().unwrap();
    namespaces_are_made_shown_changed_and_deleted(&format!("sqlite:{}", directory.path().join("l.db").display())).await;
}

async fn a_runs_life_is_told_as_the_authority_knows_it(store: &str) {
    let server = Server::start(store).await;
    let server = server.address();
    let start = ["run", "start", "--task-thread-id", "t", "--run-id", "r", "--deferred", "--route", "mcp"];
    let start = [&start[..], &["--as", "agent 7", "--label", "a=b=c", "--label", "z="]].concat();
    let answers = json(server, &start).await;
    let answer = &answers[0];
    assert_eq!((&answer["disposition"], &answer["currentRevision"]), (&json!("DISPOSITION_APPLIED"), &json!("1")));
    let run = &answer["run"];
    assert_eq!(run["status"], "RUN_STATUS_PENDING");
    assert_eq!((&run["agentId"], &run["labels"]), (&json!("agent 7"), &json!({"a": "b=c", "z": ""})));
    assert_eq!(run["route"], "ROUTE_MCP");

    let out = done(server, &["run", "start", "--task-thread-id", "t", "--run-id", "r", "--fallback-used"]).await;
    assert!(out.starts_with("disposition    applied\nrun id         r\nstatus         running\n"), "{out}");
    let update = ["run", "update", "r", "--as", "agent 7", "--tab-group-id", "tabs", "--remove-label", "z"];
    let patch = ["--metadata", r#"{"n": 1e3, "gone": null, "text": "ü"}"#, "--expected-revision", "2"];
    let answers = json(server, &[&update[..], &patch].concat()).await;
    let run = &answers[0]["run"];
    assert_eq!((&run["metadata"], &run["tabGroupId"]), (&json!({"n": 1000, "text": "ü"}), &json!("tabs")));
    assert_eq!(run["labels"], json!({"a": "b=c"}));
    let again = ["run", "update", "r", "--as", "agent 7", "--tab-group-id", "", "--request-id", "once"];
    let dispositions = [json(server, &again).await, json(server, &again).await].map(|answers| answers[0].clone());
    assert_eq!(dispositions[0]["disposition"], "DISPOSITION_APPLIED");
    assert_eq!(dispositions[1]["disposition"], "DISPOSITION_REPLAYED");
    assert_eq!(dispositions[1]["run"]["tabGroupId"], json!(null));

    let got = &json(server, &["run", "get", "r"]).await[0];
    assert_eq!(got["run"], dispositions[0]["run"]);
    let out = done(server, &["run", "complete", "r", "--as", "agent 7", "--metadata", "{}"]).await;
    assert!(out.contains("\nstatus         completed\n"), "{out}");
    let late = cli(server, &["run", "abort", "r", "--reason-code", "TIMEOUT"]).await;
    assert!(late.code == 0 && late.out.starts_with("disposition    unchanged\n"), "{}", late.out);
    assert!(late.err.ends_with("--reason-code was not taken\n"), "{}", late.err);

    let events = json(server, &["run", "events", "r"]).await;
    let told: Vec<_> = events.iter().map(|event| (event["revision"].as_str().unwrap(), &event["to"])).collect();
    let (pending, running, completed) =
        (json!("RUN_STATUS_PENDING"), json!("RUN_STATUS_RUNNING"), json!("RUN_STATUS_COMPLETED"));
    assert_eq!(told, [("1", &pending), ("2", &running), ("3", &running), ("4", &running), ("5", &completed)]);
    assert!(events[0]["requestId"].as_str().unwrap().starts_with("cli-"), "each invocation is safe to send again");
    let out = done(server, &["run", "events", "r"]).await;
    assert!(out.starts_with("REV  AT "), "{out}");
    assert!(out.contains("  started          pending → running    "), "{out}");
    let page = cli(server, &["run", "events", "r", "--limit", "2"]).await;
    assert_eq!((page.code, page.out.lines().count()), (0, 3));
    assert_eq!(page.err, "runledger: there are more events: --all shows them\n");
    let watched = json(server, &["run", "watch", "r", "--after-revision", "3"]).await;
    let kinds: Vec<_> = watched.iter().flat_map(|frame| frame.as_object().unwrap().keys()).collect();
    assert_eq!(kinds, ["change", "change", "end"], "{watched:?}");
    let out = done(server, &["run", "watch", "r", "--after-revision", "0", "--output", "table"]).await;
    assert_eq!(out.lines().count(), 6, "{out}");

    let fail = ["run", "fail", "other", "--failure-reason", "it broke", "--reason-code", "CDP_DISCONNECT"];
    done(server, &["run", "start", "--task-thread-id", "t", "--run-id", "other"]).await;
    let failed = &json(server, &fail).await[0]["run"];
    assert_eq!((&failed["failureReason"], &failed["reasonCode"]), (&json!("it broke"), &json!("CDP_DISCONNECT")));
    let waited = &json(server, &["run", "wait", "other"]).await[0];
    assert_eq!(&waited["run"], failed, "a run that has ended is not waited for");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_runs_life_is_told_as_the_authority_knows_it_on_sqlite() {
    let directory = TempDir::new().unwrap();
    a_runs_life_is_told_as_the_authority_knows_it(&format!("sqlite:{}/ledger.db", directory.path().display())).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_runs_life_is_told_as_the_authority_knows_it_on_postgres() {
    a_runs_life_is_told_as_the_authority_knows_it(&Database::fresh().await.dsn()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn metadata_comes_from_a_file_or_from_standard_input() {
    let server = Server::start("memory").await;
    let directory = TempDir::new().unwrap();
    let path = directory.path().join("metadata.json");
    std::fs::write(&path, "{\"from\": \"a file\"}\n").unwrap();
    let at = format!("@{}", path.display());
    let start = ["run", "start", "--task-thread-id", "t", "--output", "json", "--metadata"];
    assert!(done(server.address(), &[&start[..], &[&at]].concat()).await.contains(r#""metadata":{"from":"a file"}"#));
    let mut piped = command(server.address(), &[&start[..], &["-"]].concat());
    piped.stdin(std::fs::File::open(&path).unwrap());
    let ran = ran(piped).await;
    assert!(ran.out.contains(r#""metadata":{"from":"a file"}"#), "{ran:?}");
}

#[tokio::test]
async fn completions_are_what_the_shells_take() {
    for shell in ["bash", "zsh", "fish"] {
        let script = done("", &["completions", shell]).await;
        assert!(script.contains("runledger") && script.contains("expected-revision"), "{shell}");
    }
    let script = done("", &["completions", "bash"]).await;
    // In a file: it is longer than an argument may be.
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), script).unwrap();
    let mut bash = tokio::process::Command::new("bash");
    bash.arg("-n").arg(file.path());
    let ran = ran(bash).await;
    assert_eq!((ran.code, ran.err.as_str()), (0, ""));
}

#[tokio::test]
async fn a_run_is_claimed_from_the_command_line_and_ids_are_all_that_is_asked_for() {
    let server = Server::start("memory").await;
    let server = server.address();
    let start = ["run", "start", "--task-thread-id", "t", "--deferred", "--quiet"];
    let ids = [done(server, &start).await, done(server, &start).await];
    let claimed = done(server, &["run", "claim-next", "--task-thread", "t", "-q"]).await;
    assert_eq!(claimed, ids[0], "the oldest");
    let listed = done(server, &["run", "list", "--status", "pending", "-q"]).await;
    assert_eq!(listed, ids[1]);
    let claimed = json(server, &["run", "claim-next", "--wait", "10s"]).await;
    assert_eq!(claimed[0]["run"]["runId"], ids[1].trim());
    assert_eq!(claimed[0]["run"]["lease"]["epoch"], "1");
    let none = cli(server, &["run", "claim-next", "--quiet"]).await;
    assert_eq!((none.code, none.out.as_str()), (4, ""), "{}", none.err);
    assert!(none.err.contains("there was no run to claim"), "{}", none.err);
    let both = cli(server, &["run", "list", "-q", "-o", "json"]).await;
    assert_eq!(both.code, 2);
}

#[tokio::test]
async fn a_transition_is_checked_from_the_command_line() {
    let server = Server::start("memory").await;
    let server = server.address();
    done(server, &["run", "start", "--task-thread-id", "t", "--run-id", "r", "--as", "a"]).await;
    let told = |from, to, transition, answer| {
        format!("from        {from}\nto          {to}\ntransition  {transition}\nanswer      {answer}\n")
    };
    let accepted = done(server, &["run", "check", "r", "--to", "completed"]).await;
    assert_eq!(accepted, told("running", "completed", "allowed", "accepted: applied"));
    // The statuses allow it, and the call would be refused all the same.
    let refused = cli(server, &["run", "check", "r", "--to", "completed", "--as", "b"]).await;
    assert_eq!((refused.code, refused.err.as_str()), (1, ""));
    assert_eq!(refused.out, told("running", "completed", "allowed", "refused: NOT_OWNER"));
    done(server, &["run", "complete", "r", "--as", "a"]).await;
    let unchanged = done(server, &["run", "check", "r", "--to", "aborted"]).await;
    assert_eq!(unchanged, told("completed", "aborted", "not allowed", "accepted: unchanged"));
    let refused = cli(server, &["run", "check", "--from", "aborted", "--to", "running"]).await;
    assert_eq!((refused.code, refused.err.as_str()), (1, ""));
    assert_eq!(refused.out, told("aborted", "running", "not allowed", "refused: INVALID_TRANSITION"));
    assert_eq!(cli(server, &["run", "check", "--to", "running"]).await.code, 2);
}

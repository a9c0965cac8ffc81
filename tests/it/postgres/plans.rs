//! How the server finds rows for a commit.

use std::sync::Arc;

use runledger::domain::batch::decide_batch;
use runledger::domain::limits::KEYFRAME_EVENTS;
use runledger::domain::{Command, Decided, Loaded, Time};
use runledger::store::postgres::{COMMIT_SETTINGS, of_a_commit};
use serde_json::json;
use tokio_postgres::{Client, SimpleQueryMessage};

use super::open;
use crate::support::commands::{Asking as _, complete, deferred, start, update};
use crate::support::postgres::{Database, direct};

/// Runs `from + 1` to `to`, as large as real ones, each with an event that carries a request id.
fn filled(from: u32, to: u32) -> String {
    format!(
        "insert into runs
         select i % 4, 'default', 'run-' || i, 1, 2, now(), 't-' || i % 1000, null, null, null, null, null,
                jsonb_build_object('text', repeat('x', 400)), null
         from generate_series({from} + 1, {to}) as i;
         insert into run_events
         select i % 4, i / 4 + 1, 'default', 'run-' || i, 1, now(),
                jsonb_build_object('text', repeat('x', 200)), gen_random_uuid(), 'r', null, i, null
         from generate_series({from} + 1, {to}) as i;
         insert into active select i % 4, 'default', 'run-' || i, now(), 2 from generate_series({from} + 1, {to}) as i"
    )
}

/// The plan that a session of the store would make for a statement now, and keep.
async fn plan(session: &Client, statement: &str) -> String {
    let count = (1..60).rev().find(|n| statement.contains(&format!("${n}"))).unwrap_or(0);
    let arguments = if count == 0 { String::new() } else { format!("({})", vec!["null"; count].join(", ")) };
    let explain = format!("prepare s as {statement}; explain (costs off) execute s{arguments}; deallocate s");
    let answer = session.simple_query(&explain).await.unwrap();
    let lines = answer.iter().filter_map(|message| match message {
        SimpleQueryMessage::Row(row) => row.get(0),
        SimpleQueryMessage::CommandComplete(_) | SimpleQueryMessage::RowDescription(_) | _ => None,
    });
    lines.collect::<Vec<_>>().join("\n")
}

/// What an index is asked for; `run`: by its whole key.
fn what_for(condition: &str) -> &'static str {
    let asks = |columns: &[&str]| columns.iter().all(|column| condition.contains(column));
    match () {
        () if asks(&["shard = $1", "namespace =", "run_id ="]) => "run",
        () if asks(&["shard = $1", "request_key ="]) => "request",
        () if asks(&["shard = '"]) => "end",
        () if asks(&["singleton"]) => "ledger",
        () if condition.trim() == "Index Cond: (shard = $1)" => "head",
        () => "something else",
    }
}

/// A commit with every part that one can have: it creates a run under a request id, changes links, labels and metadata
/// at a keyframe, starts a run that was pending, and ends one.
fn everything_at_once() -> Decided {
    let at = Time::from_micros(1);
    let decided = |commands: Vec<Command>, runs| {
        let commands: Vec<_> = commands.into_iter().map(Arc::new).collect();
        decide_batch(&commands, Loaded { last: None, now: at, runs, requests: Vec::new() })
    };
    let mut before = vec![start("changed"), deferred("pending"), start("ended")];
    before.extend((2..KEYFRAME_EVENTS).map(|step| update("changed").label("step", &step.to_string())));
    let runs = decided(before, Vec::new()).runs.into_iter().map(|write| write.run).collect();
    let all = decided(
        vec![
            start("new").request("request"),
            update("changed").workflow("w").label("k", "v").metadata(&json!({"k": "v"})),
            start("pending"),
            complete("ended"),
        ],
        runs,
    );
    assert!(all.events.iter().any(|new| new.keyframe.is_some()), "a keyframe");
    all
}

#[tokio::test]
async fn a_commit_finds_rows_by_their_whole_key_with_statistics_and_without() {
    let database = Database::fresh().await;
    open(&database.dsn()).await;
    let (session, other) = (direct(&database.dsn()).await, direct(&database.dsn()).await);
    session.batch_execute(COMMIT_SETTINGS).await.unwrap();
    for table in ["runs", "run_events", "active"] {
        other.batch_execute(&format!("alter table {table} set (autovacuum_enabled = off)")).await.unwrap();
    }
    let statements = of_a_commit(4, &everything_at_once());
    let (mut rows, fills) = (0, [(0, false), (0, true), (1, false), (1_000, false), (20_000, false), (100_000, true)]);
    for (more, analysed) in fills {
        other.batch_execute(&filled(rows, more)).await.unwrap();
        rows = more;
        if analysed {
            other.batch_execute("analyze").await.unwrap();
        }
        for statement in &statements {
            let plan = plan(&session, statement).await;
            let place = format!("{rows} rows, analysed: {analysed}: {statement}\n{plan}");
            for bad in ["Seq Scan", "Hash Cond", "Merge Cond", "Join Filter", "JIT"] {
                assert!(!plan.contains(bad), "{bad}: {place}");
            }
            let name = statement.lines().next().unwrap().trim_start_matches("-- commit.");
            let looked_up = plan.lines().filter(|line| line.contains("Index Cond")).map(what_for).collect::<Vec<_>>();
            let mut expected = match name {
                "lock_head" => vec!["head"],
                "ends" => vec!["end", "end", "end", "end", "ledger"],
                "load_runs" => vec!["run"],
                "load_request_ids" => vec!["request"],
                // The run that changes, and of `active` the run that ends and the one that starts.
                "write" => vec!["run", "run", "run"],
                // The same, and that the new one is not there.
                "at_once" => [vec!["head", "head", "ledger", "request"], vec!["end"; 4], vec!["run"; 4]].concat(),
                other => panic!("what does {other} look for?"),
            };
            expected.sort_unstable();
            let mut found = looked_up.clone();
            found.sort_unstable();
            assert_eq!(found, expected, "{place}");
        }
    }
}

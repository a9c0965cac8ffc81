//! How the server finds rows for a commit.

use runledger::store::postgres::{COMMIT_SETTINGS, of_a_commit};
use tokio_postgres::{Client, SimpleQueryMessage};

use super::open;
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
    let count = (1..20).rev().find(|n| statement.contains(&format!("${n}"))).unwrap_or(0);
    let arguments = if count == 0 { String::new() } else { format!("({})", vec!["null"; count].join(", ")) };
    let explain = format!("prepare s as {statement}; explain (costs off) execute s{arguments}; deallocate s");
    let answer = session.simple_query(&explain).await.unwrap();
    let lines = answer.iter().filter_map(|message| match message {
        SimpleQueryMessage::Row(row) => row.get(0),
        SimpleQueryMessage::CommandComplete(_) | SimpleQueryMessage::RowDescription(_) | _ => None,
    });
    lines.collect::<Vec<_>>().join("\n")
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
    let run = ["shard = $1", "namespace =", "run_id ="];
    let (mut rows, fills) = (0, [(1_000, false), (20_000, false), (100_000, true)]);
    for (more, analysed) in fills {
        other.batch_execute(&filled(rows, more)).await.unwrap();
        rows = more;
        if analysed {
            other.batch_execute("analyze").await.unwrap();
        }
        for statement in &of_a_commit(4) {
            let plan = plan(&session, statement).await;
            let place = format!("{rows} rows, analysed: {analysed}: {statement}\n{plan}");
            for bad in ["Seq Scan", "Hash Cond", "Merge Cond", "Join Filter", "JIT"] {
                assert!(!plan.contains(bad), "{bad}: {place}");
            }
            let name = statement.lines().next().unwrap().trim_start_matches("-- commit.");
            let key: &[&str] = match name {
                "load_runs" | "update_runs" | "update_runs_and_metadata" | "update_active" | "delete_active" => &run,
                "load_request_ids" => &["shard = $1", "request_key ="],
                "lock_head" => &["shard = $1"],
                "last" => &["shard = '"],
                "insert_runs" | "insert_events" | "insert_active" => &[],
                "now" => &["singleton"],
                other => panic!("what does {other} look for?"),
            };
            let conditions: Vec<&str> = plan.lines().filter(|line| line.contains("Index Cond")).collect();
            let lookups = if name == "last" { 4 } else { usize::from(!key.is_empty()) };
            assert_eq!(conditions.len(), lookups, "{place}");
            assert!(conditions.iter().all(|line| key.iter().all(|column| line.contains(column))), "{place}");
        }
    }
}

//! Lists and counts of runs.

use tempfile::TempDir;

use super::cli::{cli, done, json};
use crate::support::postgres::Database;
use crate::support::server::Server;

async fn lists_and_counts_show_the_runs_that_match(store: &str) {
    let server = Server::start(store).await;
    let server = server.address();
    for index in 0..5 {
        let (run_id, parity) = (format!("r{index}"), format!("parity={}", index % 2));
        let start = ["run", "start", "--task-thread-id", "t", "--run-id", &run_id, "--label", &parity];
        done(server, &[&start[..], &["--metadata", "{\"a\": 1}"]].concat()).await;
    }
    done(server, &["run", "complete", "r1"]).await;
    let ids = async |args: &[&str]| -> Vec<String> {
        let runs = json(server, &[&["run", "list"], args].concat()).await;
        runs.iter().map(|run| run["runId"].as_str().unwrap().to_owned()).collect()
    };
    assert_eq!(ids(&[]).await, ["r4", "r3", "r2", "r1", "r0"]);
    assert_eq!(ids(&["--label", "parity=1"]).await, ["r3", "r1"]);
    assert_eq!(ids(&["--status", "completed,failed"]).await, ["r1"]);
    assert_eq!(ids(&["--started-before", "2000-01-01T00:00:00Z"]).await, [""; 0]);
    let full = json(server, &["run", "list", "--full"]).await;
    assert!(full.iter().all(|run| run["metadata"]["a"] == 1));
    let page = cli(server, &["run", "list", "--limit", "2"]).await;
    assert_eq!((page.code, page.out.lines().count()), (0, 3), "{}", page.out);
    assert_eq!(page.err, "runledger: there are more runs: --all shows them\n");
    let all = done(server, &["run", "list", "--all"]).await;
    assert!(all.starts_with("RUN ID  STATUS "), "{all}");
    assert_eq!(all.lines().count(), 6, "{all}");
    let counts = done(server, &["run", "count"]).await;
    assert_eq!(counts, "pending    0\nrunning    4\ncompleted  1\naborted    0\nfailed     0\ntotal      5\n");
    let counts = &json(server, &["run", "count", "--status", "running", "--label", "parity=0"]).await[0];
    assert_eq!(counts.to_string(), r#"{"counts":[{"count":"3","status":"RUN_STATUS_RUNNING"}]}"#);
    done(server, &["run", "start", "--task-thread-id", "t", "--run-id", "a", "--agent-id", "owner", "--as", "actor"])
        .await;
    for flag in ["--agent-id", "--agent"] {
        assert_eq!(ids(&[flag, "owner"]).await, ["a"]);
        assert_eq!(ids(&[flag, "actor"]).await, [""; 0]);
    }
    assert_eq!(ids(&["--as", "actor", "--agent-id", "owner"]).await, ["a"]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn lists_and_counts_show_the_runs_that_match_on_sqlite() {
    let directory = TempDir::new().unwrap();
    lists_and_counts_show_the_runs_that_match(&format!("sqlite:{}/ledger.db", directory.path().display())).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn lists_and_counts_show_the_runs_that_match_on_postgres() {
    lists_and_counts_show_the_runs_that_match(&Database::fresh().await.dsn()).await;
}

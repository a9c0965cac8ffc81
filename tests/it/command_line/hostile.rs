//! Texts of callers in runs are shown, and no program obeys them.

use tempfile::TempDir;

use super::cli::{cli, done};
use crate::support::server::Server;

const HOSTILE: &str = "\u{1b}]0;owned\u{7}\u{1b}[2J\r\nSTATUS  completed\u{9b}1m\u{202e}";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_output_carries_what_a_terminal_obeys() {
    let directory = TempDir::new().unwrap();
    let store = format!("sqlite:{}/ledger.db", directory.path().display());
    let server = Server::start(&store).await;
    let server = server.address();
    let label = format!("k={HOSTILE}");
    let metadata = serde_json::json!({ HOSTILE: HOSTILE }).to_string();
    let start = ["run", "start", "--run-id", "r", "--task-thread-id", HOSTILE, "--as", HOSTILE];
    let mut outs = vec![done(server, &[&start[..], &["--label", &label, "--metadata", &metadata]].concat()).await];
    for format in ["table", "json"] {
        let fail = ["run", "fail", "r", "--as", HOSTILE, "--failure-reason", HOSTILE];
        for args in [
            &["run", "get", "r"][..],
            &fail,
            &["run", "list"],
            &["run", "events", "r"],
            &["run", "watch", "r", "--after-revision", "0"],
            &["run", "wait", "r"],
        ] {
            outs.push(done(server, &[args, &["--output", format]].concat()).await);
        }
    }
    done(server, &["run", "start", "--task-thread-id", HOSTILE, "--agent", HOSTILE]).await;
    for format in ["table", "json"] {
        outs.push(done(server, &["doctor", "--store", &store, "--output", format]).await);
    }
    outs.push(cli(server, &["export", "--store", &store]).await.out);
    let refused = cli(server, &["run", "start", "--run-id", "r", "--task-thread-id", HOSTILE]).await;
    assert_eq!(refused.code, 1);
    outs.push(refused.err);
    let unread = cli(server, &["run", "start", "--task-thread-id", "t", "--metadata", &format!("@{HOSTILE}")]).await;
    assert_eq!(unread.code, 2);
    outs.push(unread.err);
    for out in outs {
        assert!(out.contains("owned"), "{out}");
        assert!(!out.chars().any(|character| character.is_control() && character != '\n'), "{out:?}");
        assert!(!out.contains("\nSTATUS"), "{out}");
    }
}

//! Exit codes: each says what it says, and nothing else.

use std::process::Stdio;

use tempfile::TempDir;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;
use tokio::time::timeout;

use super::cli::{Going, cli, command, completed, done, started};
use crate::support::http2;
use crate::support::server::{PATIENCE, Server};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_the_authority_refuses_ends_with_1_and_says_who_won() {
    let server = Server::start("memory").await;
    let server = server.address();
    done(server, &["run", "start", "--task-thread-id", "t", "--run-id", "r", "--as", "a"]).await;
    for (args, lines) in [
        (&["run", "get", "nobody"][..], &["runledger: RUN_NOT_FOUND: Run nobody does not exist: "][..]),
        (&["run", "watch", "nobody"], &["runledger: RUN_NOT_FOUND: "]),
        (&["run", "wait", "nobody"], &["runledger: RUN_NOT_FOUND: "]),
        (&["run", "watch", "r", "--after-revision", "9"], &["runledger: REVISION_AHEAD: "]),
        (&["watch", "--cursor", "noise"], &["runledger: CURSOR_INVALID: "]),
        (
            &["run", "start", "--task-thread-id", "", "--run-id", "a b"],
            &["runledger: INVALID_FIELD: ", "  task_thread_id: ", "  run_id: "],
        ),
        (&["run", "complete", "r", "--as", "b"], &["runledger: NOT_OWNER: ", "  owner: \"a\", acting agent: \"b\""]),
        (
            &["run", "start", "--task-thread-id", "other", "--run-id", "r"],
            &["runledger: RUN_ID_CONFLICT: ", "  task_thread_id: ", "  run r is running at revision 1 since "],
        ),
        (
            &["run", "abort", "r", "--expected-revision", "3"],
            &["runledger: REVISION_MISMATCH: ", "  run r is running at revision 1 since "],
        ),
    ] {
        let ran = cli(server, args).await;
        assert_eq!((ran.code, ran.out.as_str()), (1, ""), "{args:?}: {}", ran.err);
        let said: Vec<_> = ran.err.lines().collect();
        assert_eq!(said.len(), lines.len(), "{args:?}: {said:?}");
        for (said, line) in said.iter().zip(lines) {
            assert!(said.starts_with(line), "{args:?}: {said}");
        }
    }
    done(server, &["run", "fail", "r", "--as", "a", "--failure-reason", "it broke", "--reason-code", "B"]).await;
    let ran = cli(server, &["run", "start", "--task-thread-id", "t", "--run-id", "r"]).await;
    assert_eq!(ran.code, 1);
    let said: Vec<_> = ran.err.lines().collect();
    assert_eq!(said[0], "runledger: INVALID_TRANSITION: Invalid lifecycle transition for run r: failed → running");
    assert!(said[1].starts_with("  run r is failed at revision 2 since 2"), "{said:?}");
    assert!(said[1].ends_with("Z of agent a with reason code B: it broke"), "{said:?}");
}

#[tokio::test]
async fn what_makes_no_sense_ends_with_2_and_calls_nobody() {
    let start = ["run", "start", "--task-thread-id", "t"];
    for args in [
        &["run"][..],
        &["run", "start"],
        &["run", "get"],
        &["run", "get", "r", "--timeout", "soon"],
        &["run", "list", "--timeout", "0"],
        &["watch", "--for", "0"],
        &["health", "--timeout", "0"],
        &["run", "get", "r", "--server", "nowhere"],
        &["run", "list", "--status", "over"],
        &["run", "list", "--started-from", "yesterday"],
        &["run", "events", "r", "--all", "--limit", "3"],
        &[&start[..], &["--label", "a"]].concat(),
        &[&start[..], &["--metadata", "[1]"]].concat(),
        &[&start[..], &["--metadata", "{\"a\": 1} x"]].concat(),
        &[&start[..], &["--metadata", "@/nowhere/at/all"]].concat(),
        &[&start[..], &["--request-id", ""]].concat(),
        &["watch", "--cursor", "c", "--initial", "all"],
        &["run", "list", "--full"],
        &["run", "list", "--limit", "0"],
        &["run", "check", "r", "--from", "running", "--to", "failed"],
        &["completions", "csh"],
    ] {
        let ran = cli("127.0.0.1:1", args).await;
        assert_eq!((ran.code, ran.out.as_str()), (2, ""), "{args:?}: {}", ran.err);
        assert!(!ran.err.is_empty());
    }
}

#[tokio::test]
async fn what_is_missing_is_named_with_its_alternatives() {
    for (args, named) in [
        (&["run", "check", "--to", "running"][..], "<RUN_ID|--from <STATUS>>"),
        (&["run", "worker", "--", "true"], "<--claim|--task-thread-id <ID>>"),
        (&["run", "list", "--limit", "0"], "expected a number from 1"),
    ] {
        let ran = cli("127.0.0.1:1", args).await;
        assert_eq!((ran.code, ran.err.contains(named)), (2, true), "{args:?}: {}", ran.err);
    }
}

#[tokio::test]
async fn a_label_that_is_given_twice_ends_with_2_in_every_command() {
    let twice = ["--label", "k=1", "--label", "other=1", "--label", "k=2"];
    for args in [
        &["run", "start", "--task-thread-id", "t"][..],
        &["run", "update", "r"],
        &["run", "list"],
        &["run", "count"],
        &["run", "claim-next"],
        &["watch"],
    ] {
        let ran = cli("127.0.0.1:1", &[args, &twice].concat()).await;
        assert_eq!((ran.code, ran.err.as_str()), (2, "runledger: --label: k is given twice\n"), "{args:?}");
    }
    for args in [&["--claim"][..], &["--task-thread-id", "t"]] {
        let ran = cli("127.0.0.1:1", &[&["run", "worker"], args, &twice, &["--", "true"]].concat()).await;
        assert_eq!((ran.code, ran.err.as_str()), (2, "runledger: --label: k is given twice\n"), "{args:?}");
    }
    let limits = ["run", "claim-next", "--max-running", "a=1", "--max-running", "b=1"];
    assert_eq!(cli("127.0.0.1:1", &limits).await.code, 2);
}

#[tokio::test]
async fn a_server_that_is_not_there_ends_every_command_with_3() {
    for args in [
        &["run", "start", "--task-thread-id", "t"][..],
        &["run", "get", "r"],
        &["run", "list"],
        &["run", "count"],
        &["run", "events", "r"],
        &["run", "wait", "r"],
        &["run", "watch", "r"],
        &["watch"],
        &["watch", "--for", "1s"],
    ] {
        let ran = cli("127.0.0.1:1", args).await;
        assert_eq!((ran.code, ran.out.as_str()), (3, ""), "{args:?}: {}", ran.err);
        assert!(ran.err.starts_with("runledger: 127.0.0.1:1 does not answer: "), "{}", ran.err);
        assert!(ran.err.contains("refused"), "{}", ran.err);
        assert!(
            ran.err.ends_with(
                "\n  is the server running? `runledger serve` starts one here; --server or \
             RUNLEDGER_SERVER names another\n"
            ),
            "{}",
            ran.err
        );
    }
    let ran = cli("nobody.invalid:1", &["run", "get", "r"]).await;
    assert_eq!(ran.code, 3, "{}", ran.err);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_store_that_does_not_open_is_unreachable_and_not_refused() {
    let database = "postgres://nobody@127.0.0.1:1/none";
    let server = Server::spawn(&["--store", database], &[]);
    let ran = cli(server.address(), &["run", "start", "--task-thread-id", "t"]).await;
    assert_eq!(ran.code, 3, "{}", ran.err);
    assert!(ran.err.starts_with("runledger: STORE_UNAVAILABLE: "), "{}", ran.err);
}

/// Speaks HTTP/2, and answers no call.
async fn silent() -> (String, JoinSet<()>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let mut task = JoinSet::new();
    task.spawn(async move {
        let mut connections: JoinSet<()> = JoinSet::new();
        loop {
            let (connection, _) = listener.accept().await.unwrap();
            connections.spawn(swallow(connection));
        }
    });
    (address, task)
}

async fn swallow(mut connection: TcpStream) {
    connection.write_all(&http2::settings(&[])).await.unwrap();
    while connection.read(&mut [0; 4096]).await.is_ok_and(|read| read > 0) {}
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_answer_that_does_not_come_in_time_ends_with_4() {
    let (silent, _task) = silent().await;
    for args in [&["run", "get", "r"][..], &["run", "start", "--task-thread-id", "t"]] {
        let ran = cli(&silent, &[args, &["--timeout", "300ms"]].concat()).await;
        assert_eq!((ran.code, ran.out.as_str()), (4, ""), "{args:?}: {}", ran.err);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_wait_ends_with_4_when_its_time_is_over_and_with_0_when_the_run_has_ended() {
    let server = Server::start("memory").await;
    started(&server, "r").await;
    let ran = cli(server.address(), &["run", "wait", "r", "--timeout", "300ms"]).await;
    assert_eq!((ran.code, ran.out.as_str()), (4, ""), "{}", ran.err);
    assert_eq!(ran.err, "runledger: run r has not ended after 300ms\n");
    let waiting = Going::start(server.address(), &["run", "wait", "r", "--output", "json"]);
    completed(&server, "r").await;
    let (code, lines, err) = waiting.ended().await;
    assert_eq!((code, lines.len(), err.as_str()), (0, 1, ""));
    assert!(lines[0].contains("RUN_STATUS_COMPLETED"), "{lines:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn whoever_stops_reading_ends_the_command_quietly() {
    let server = Server::start("memory").await;
    started(&server, "r").await;
    let mut watching = Going::start(server.address(), &["run", "watch", "r", "--output", "json"]);
    watching.frame().await;
    let Going { mut child, out, .. } = watching;
    drop(out);
    for step in 0..10_u32 {
        let step = format!("{{\"step\": {step}}}");
        done(server.address(), &["run", "update", "r", "--metadata", &step]).await;
    }
    let status = timeout(PATIENCE, child.wait()).await.expect("it does not end").unwrap();
    assert_eq!(status.code(), Some(0));
}

/// Every command that ends by itself and prints something, and how it ends when it can.
const SPOKEN: &[(&[&str], i32)] = &[
    (&["--help"], 0),
    (&["completions", "bash"], 0),
    (&["health"], 0),
    (&["run", "get", "r"], 0),
    (&["run", "list"], 0),
    (&["run", "events", "r"], 0),
    (&["run", "watch", "r"], 0),
    (&["run", "wait", "r"], 0),
    (&["doctor"], 0),
    (&["doctor", "--server", "127.0.0.1:1"], 1),
    (&["verify"], 0),
    (&["export"], 0),
    (&["bench", "watch", "idle", "--watchers", "1", "--seconds", "0"], 0),
    (&["bench", "read", "--runs", "1", "--seconds", "1", "--warm-up", "0"], 0),
];

/// Runs it with that standard output: its exit code, and what it said on stderr.
async fn printing_to(out: impl Into<Stdio>, args: &[&str], server: &Server, store: &str) -> (Option<i32>, String) {
    let mut command = command(server.address(), args);
    command.env("RUNLEDGER_STORE", store).stdout(out).stderr(Stdio::piped()).kill_on_drop(true);
    let ended = timeout(PATIENCE, command.spawn().unwrap().wait_with_output()).await.expect("it does not end").unwrap();
    (ended.status.code(), String::from_utf8(ended.stderr).unwrap())
}

async fn of_an_ended_run() -> (TempDir, String, Server) {
    let directory = TempDir::new().unwrap();
    let store = format!("sqlite:{}/ledger.db", directory.path().display());
    let server = Server::start(&store).await;
    started(&server, "r").await;
    completed(&server, "r").await;
    (directory, store, server)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_verdict_stands_whether_or_not_anybody_reads_it() {
    let (_directory, store, server) = of_an_ended_run().await;
    for (args, code) in SPOKEN {
        let (reader, writer) = std::io::pipe().unwrap();
        drop(reader);
        let (ended, err) = printing_to(writer, args, &server, &store).await;
        assert_eq!(ended, Some(*code), "{args:?}: {err}");
        assert!(err.is_empty() || err.starts_with("runledger: exported "), "{args:?}: {err}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn whoever_cannot_be_told_why_is_told_by_the_exit_code() {
    for (args, code) in [
        (&["run", "get", "r"][..], 3),
        (&["run", "get", "r", "--metadata", "{}"], 2),
        (&["verify", "--store", "sqlite:/nowhere/at/all.db"], 3),
        (&["verify", "--store", "nowhere"], 2),
        (&["migrate", "--store", "memory"], 1),
        (&["health"], 3),
        (&["bench", "watch", "idle"], 3),
        (&["serve", "--store", "memory", "--listen", "nobody.invalid:1"], 1),
    ] {
        let (reader, writer) = std::io::pipe().unwrap();
        drop(reader);
        let mut command = command("127.0.0.1:1", args);
        command.stdout(Stdio::null()).stderr(writer).kill_on_drop(true);
        let ended = timeout(PATIENCE, command.status()).await.expect("it does not end").unwrap();
        assert_eq!(ended.code(), Some(code), "{args:?}");
    }
}

#[cfg(target_os = "linux")]
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_output_that_cannot_be_written_ends_with_1_and_is_said() {
    let (_directory, store, server) = of_an_ended_run().await;
    for (args, _) in SPOKEN.iter().filter(|(args, _)| args[0] != "--help") {
        let full = std::fs::File::options().write(true).open("/dev/full").unwrap();
        let (ended, err) = printing_to(full, args, &server, &store).await;
        assert_eq!(ended, Some(1), "{args:?}: {err}");
        assert!(err.contains("the output cannot be written: "), "{args:?}: {err}");
    }
}

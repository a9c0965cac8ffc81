//! The command line as a process: what it prints where, and how it ends.

use std::process::Stdio;

use runledger_proto::v1;
use serde_json::Value;
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, BufReader, Lines};
use tokio::process::{Child, ChildStderr, ChildStdout, Command};
use tokio::time::timeout;

use crate::support::everywhere::Everywhere;
use crate::support::server::{PATIENCE, Server};

/// A command that has ended.
#[derive(Debug)]
pub(super) struct Ran {
    pub(super) code: i32,
    pub(super) out: String,
    pub(super) err: String,
}

/// Runs a command against a server to its end.
pub(super) async fn cli(server: &str, args: &[&str]) -> Ran {
    ran(command(server, args)).await
}

/// The same, where it must succeed: what it printed.
pub(super) async fn done(server: &str, args: &[&str]) -> String {
    let ran = cli(server, args).await;
    assert_eq!((ran.code, ran.err.as_str()), (0, ""), "{args:?}: {}", ran.out);
    ran.out
}

/// The same, printed as JSON: a value for each line.
pub(super) async fn json(server: &str, args: &[&str]) -> Vec<Value> {
    let out = done(server, &[args, &["--output", "json"]].concat()).await;
    out.lines().map(|line| serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {line}"))).collect()
}

pub(super) async fn ran(mut command: Command) -> Ran {
    let output = timeout(PATIENCE, command.kill_on_drop(true).output()).await;
    let output = output.unwrap_or_else(|_| panic!("{command:?} does not end")).unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    let code = output.status.code().unwrap_or_else(|| panic!("{command:?}: {}", output.status));
    Ran { code, out: text(output.stdout), err: text(output.stderr) }
}

/// With nothing of this process's own settings.
pub(super) fn command(server: &str, args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_runledger"));
    command.args(args).env_clear().envs(Everywhere::environment());
    command.env("RUNLEDGER_SERVER", server).stdin(Stdio::null());
    command
}

/// A command that goes on. Killed with this value.
#[derive(Debug)]
pub(super) struct Going {
    pub(super) child: Child,
    pub(super) out: Lines<BufReader<ChildStdout>>,
    err: ChildStderr,
}

impl Going {
    pub(super) fn start(server: &str, args: &[&str]) -> Self {
        Self::of(command(server, args))
    }

    pub(super) fn of(mut command: Command) -> Self {
        command.stdout(Stdio::piped()).stderr(Stdio::piped()).kill_on_drop(true);
        let mut child = command.spawn().unwrap();
        let out = BufReader::new(child.stdout.take().unwrap()).lines();
        let err = child.stderr.take().unwrap();
        Self { child, out, err }
    }

    /// Sends it a signal by its name.
    pub(super) fn signal(&self, name: &str) {
        let pid = self.child.id().expect("it has not ended").to_string();
        let sent = std::process::Command::new("kill").args(["-s", name, &pid]).status().unwrap();
        assert!(sent.success());
    }

    /// The next line as JSON.
    pub(super) async fn frame(&mut self) -> Value {
        let line = timeout(PATIENCE, self.out.next_line()).await.expect("no line came").unwrap();
        serde_json::from_str(&line.expect("it ended")).unwrap()
    }

    /// Waits for its end: the exit code, the lines that were left, and what it said on stderr.
    pub(super) async fn ended(mut self) -> (i32, Vec<String>, String) {
        let ended = timeout(PATIENCE, async {
            let mut lines = Vec::new();
            while let Some(line) = self.out.next_line().await.unwrap() {
                lines.push(line);
            }
            let mut err = String::new();
            self.err.read_to_string(&mut err).await.unwrap();
            (self.child.wait().await.unwrap().code().unwrap(), lines, err)
        });
        ended.await.expect("it does not end")
    }
}

/// Starts a run past the command line.
pub(super) async fn started(server: &Server, run_id: &str) {
    let request = v1::StartRunRequest {
        task_thread_id: "thread-1".to_owned(),
        run_id: run_id.to_owned(),
        ..v1::StartRunRequest::default()
    };
    server.client().await.start_run(request).await.unwrap();
}

/// Completes a run past the command line.
pub(super) async fn completed(server: &Server, run_id: &str) {
    let request = v1::CompleteRunRequest { run_id: run_id.to_owned(), ..v1::CompleteRunRequest::default() };
    server.client().await.complete_run(request).await.unwrap();
}

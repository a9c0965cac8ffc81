//! The live table on a terminal: `script` gives it one.
#![cfg(target_os = "linux")]

use std::process::Stdio;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::process::{Child, ChildStdin, ChildStdout, Command};
use tokio::time::timeout;

use super::cli::{completed, started};
use crate::support::everywhere::Everywhere;
use crate::support::server::{PATIENCE, Server};

/// The end of a picture.
const END: &str = "\u{1b}[?2026l";

/// A command on a terminal of its own.
struct Terminal {
    child: Child,
    keys: ChildStdin,
    out: ChildStdout,
    seen: String,
}

impl Terminal {
    fn start(server: &Server, columns: u16, lines: u16, args: &str) -> Self {
        let binary = env!("CARGO_BIN_EXE_runledger");
        let line = format!("stty cols {columns} rows {lines}; exec {binary} {args}");
        let mut command = Command::new("script");
        command
            .args(["-qefc", &line, "/dev/null"])
            .env("RUNLEDGER_SERVER", server.address())
            .env("SHELL", "/bin/sh")
            .envs(Everywhere::environment());
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::inherit()).kill_on_drop(true);
        let mut child = command.spawn().unwrap();
        let (keys, out) = (child.stdin.take().unwrap(), child.stdout.take().unwrap());
        Self { child, keys, out, seen: String::new() }
    }

    /// Waits until the picture holds this.
    async fn shows(&mut self, text: &str) {
        while !self.picture().contains(text) {
            let mut bytes = [0; 4096];
            let read = timeout(PATIENCE, self.out.read(&mut bytes)).await;
            let read = read.unwrap_or_else(|_| panic!("{text:?} is not shown: {:?}", self.seen)).unwrap();
            assert!(read > 0, "it ended: {:?}", self.seen);
            self.seen.push_str(&String::from_utf8_lossy(&bytes[..read]));
        }
    }

    /// The last picture, as far as it was drawn.
    fn picture(&self) -> &str {
        self.seen.rsplit("\u{1b}[?2026h\u{1b}[H").next().unwrap_or_default()
    }

    async fn ended(mut self) -> (i32, String) {
        let mut rest = String::new();
        timeout(PATIENCE, self.out.read_to_string(&mut rest)).await.expect("it does not end").unwrap();
        (self.child.wait().await.unwrap().code().unwrap(), self.seen + &rest)
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_live_table_follows_the_runs_and_gives_the_terminal_back() {
    let server = Server::start("memory").await;
    started(&server, "run-1").await;
    let mut terminal = Terminal::start(&server, 60, 8, "watch --initial none");
    terminal.shows(", live").await;
    for index in 2..20 {
        started(&server, &format!("run-{index}")).await;
    }
    terminal.shows("pending 0  running 18  completed 0").await;
    terminal.shows(END).await;
    completed(&server, "run-7").await;
    terminal.shows("running 17  completed 1").await;
    terminal.shows(END).await;
    let lines: Vec<_> = terminal.picture().trim_end_matches(END).split("\r\n").collect();
    assert_eq!(lines.len(), 8, "as many as the terminal has: {lines:?}");
    // Cleared before it is written: behind a full line it would take the last cell with it.
    let cleared = |line: &str| line.trim_end_matches('\r').strip_prefix("\u{1b}[2K").expect("cleared").to_owned();
    let lines: Vec<_> = lines.into_iter().map(cleared).collect();
    assert!(lines[3].starts_with("RUN ID ") && lines[4].starts_with("run-7 "), "{lines:?}");
    assert!(lines[4].contains(" completed "), "the last change is on top: {lines:?}");
    assert_eq!(lines[7], "15 that changed before these");
    for line in &lines {
        assert!(line.chars().count() <= 60 && !line.contains('\u{1b}'), "{line:?}");
    }
    terminal.keys.write_all(b"\x03").await.unwrap();
    let (code, seen) = terminal.ended().await;
    assert_eq!(code, 130, "{seen:?}");
    let (_, after) = seen.split_once("\u{1b}[?1049h").expect("it takes the other screen");
    let (_, after) = after.split_once("\u{1b}[?7h\u{1b}[?25h\u{1b}[?1049l").expect("it gives everything back");
    assert!(after.contains("run-7 "), "the last picture stays: {after:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_live_table_says_that_it_is_cut_off_and_ends_as_it_is_told() {
    let server = Server::start("memory").await;
    let mut terminal = Terminal::start(&server, 100, 10, "watch --for 20s");
    terminal.shows(", live").await;
    server.kill();
    terminal.shows("cut off ").await;
    terminal.shows("trying again").await;
    terminal.keys.write_all(b"\x03").await.unwrap();
    assert_eq!(terminal.ended().await.0, 130);
    let server = Server::start("memory").await;
    let terminal = Terminal::start(&server, 100, 10, "watch --for 1s");
    let (code, seen) = terminal.ended().await;
    assert_eq!(code, 0, "{seen:?}");
    assert!(seen.contains("\u{1b}[?1049l"), "{seen:?}");
    let terminal = Terminal::start(&server, 100, 10, "run list");
    assert_eq!(terminal.ended().await.0, 0);
}

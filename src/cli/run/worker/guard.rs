//! The process beside a worker that ends its program where the worker was killed: its lease is renewed no more, and the
//! program would go on beside that of whoever follows. Only a worker that is killed in the moment in which it starts its
//! program leaves it behind.

use std::io;
use std::process::Stdio;
use std::time::Duration;

use clap::Args;
use rustix::io::Errno;
use rustix::process::{Pid, Signal, kill_process_group, test_kill_process_group};
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::process::{Child, ChildStdin, Command};
use tokio::signal::unix::{SignalKind, signal};
use tokio::time::{Instant, sleep};

use crate::cli::ending::{Stop, say};

/// How often it looks whether a program that was told to end has ended.
const LOOK_INTERVAL: Duration = Duration::from_millis(50);

/// The name of the command that it is, which no help shows.
const COMMAND: [&str; 2] = ["run", "worker-guard"];

/// A worker's hold on its guard. It ends with the worker, however that ends.
#[derive(Debug)]
pub(super) struct Guard {
    kill_after: Duration,
    process: Option<(Child, ChildStdin)>,
}

impl Guard {
    /// Starts it. `kill_after`: how long a program may go on after SIGTERM.
    pub(super) fn start(kill_after: Duration) -> Self {
        let mut guard = Self { kill_after, process: None };
        guard.started();
        guard
    }

    fn started(&mut self) -> Option<&mut ChildStdin> {
        match spawn(self.kill_after) {
            Ok(process) => Some(&mut self.process.insert(process).1),
            Err(error) => {
                say(&format!(
                    "if this worker is killed by force, its program goes on: its guard cannot be started: {error}"
                ));
                None
            }
        }
    }

    /// From now on it ends these processes when the worker is gone; none: it ends nothing. One that was ended meanwhile is
    /// started again.
    pub(super) async fn watches(&mut self, group: Option<Pid>) {
        let line = format!("{}\n", group.map_or(0, Pid::as_raw_pid));
        if let Some((_, tell)) = &mut self.process {
            if tell.write_all(line.as_bytes()).await.is_ok() {
                return;
            }
            self.process = None;
        }
        if group.is_some()
            && let Some(tell) = self.started()
        {
            let _gone_at_once = tell.write_all(line.as_bytes()).await;
        }
    }
}

fn spawn(kill_after: Duration) -> io::Result<(Child, ChildStdin)> {
    // On Linux the file may have been replaced by another release meanwhile, and is there all the same.
    let own = std::env::current_exe().ok().filter(|path| path.exists()).unwrap_or_else(|| "/proc/self/exe".into());
    let mut child = Command::new(own)
        .arg0("runledger")
        .args(COMMAND)
        .arg(kill_after.as_millis().to_string())
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        // What a terminal sends to the worker is not for it.
        .process_group(0)
        .spawn()?;
    let tell = child.stdin.take().expect("it is piped");
    Ok((child, tell))
}

/// What the guard itself is told.
#[derive(Args, Debug)]
pub(in crate::cli::run) struct GuardArgs {
    /// How long a program may go on after SIGTERM, in milliseconds
    kill_after_ms: u64,
}

/// Is the guard: hears on standard input which processes there are, and ends them when nobody says anything any more.
pub(in crate::cli::run) async fn run(args: GuardArgs) -> Result<(), Stop> {
    // What ends everybody who is told ends the worker as well, and then the guard has its work.
    let _ignored = [SignalKind::terminate(), SignalKind::interrupt(), SignalKind::hangup()].map(signal);
    let mut lines = BufReader::new(tokio::io::stdin()).lines();
    let mut group = None;
    while let Ok(Some(line)) = lines.next_line().await {
        group = line.parse().ok().and_then(Pid::from_raw);
    }
    let Some(group) = group else { return Ok(()) };
    let _gone = kill_process_group(group, Signal::TERM);
    let until = Instant::now() + Duration::from_millis(args.kill_after_ms);
    // One that runs as somebody else is there still.
    while test_kill_process_group(group) != Err(Errno::SRCH) {
        if Instant::now() >= until {
            let _gone = kill_process_group(group, Signal::KILL);
            return Ok(());
        }
        sleep(LOOK_INTERVAL).await;
    }
    Ok(())
}

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

/// Interval at which the guard looks whether a program that was told to end has ended.
const LOOK_INTERVAL: Duration = Duration::from_millis(50);

/// The words of the guard's command. No help shows them.
const COMMAND: [&str; 2] = ["run", "worker-guard"];

/// A worker's handle on its guard. The guard's standard input closes with the worker, however the worker ends.
#[derive(Debug)]
pub(super) struct Guard {
    kill_after: Duration,
    process: Option<(Child, ChildStdin)>,
}

impl Guard {
    /// Starts a guard. `kill_after`: time that a program may go on after SIGTERM.
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

    /// Tells the guard to end these processes when the worker is gone; none: to end nothing. A guard that has ended
    /// meanwhile is started again.
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
        // The signals that a terminal sends to the worker are not for the guard.
        .process_group(0)
        .spawn()?;
    let tell = child.stdin.take().expect("it is piped");
    Ok((child, tell))
}

/// The arguments of the guard's own process.
#[derive(Args, Debug)]
pub(in crate::cli::run) struct GuardArgs {
    /// Time that a program may go on after SIGTERM, in milliseconds
    kill_after_ms: u64,
}

/// The guard's own process: reads from standard input which processes to end, and ends them when the input is closed.
pub(in crate::cli::run) async fn run(args: GuardArgs) -> Result<(), Stop> {
    // A signal to all processes ends the worker as well, and after that the guard has its work to do.
    let _ignored = [SignalKind::terminate(), SignalKind::interrupt(), SignalKind::hangup()].map(signal);
    let mut lines = BufReader::new(tokio::io::stdin()).lines();
    let mut group = None;
    while let Ok(Some(line)) = lines.next_line().await {
        group = line.parse().ok().and_then(Pid::from_raw);
    }
    let Some(group) = group else { return Ok(()) };
    let _gone = kill_process_group(group, Signal::TERM);
    let until = Instant::now() + Duration::from_millis(args.kill_after_ms);
    // A process of another user, which cannot be signalled, is still there.
    while test_kill_process_group(group) != Err(Errno::SRCH) {
        if Instant::now() >= until {
            let _gone = kill_process_group(group, Signal::KILL);
            return Ok(());
        }
        sleep(LOOK_INTERVAL).await;
    }
    Ok(())
}

//! The process beside a worker that ends its program where the worker was killed: its lease is renewed no more, and
//! the program would go on beside that of whoever follows. It takes the program's files away as well. Only a worker that
//! is killed before its guard knows the program, or that has lost its guard meanwhile, leaves them behind.

use std::io;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use clap::Args;
use rustix::io::Errno;
use rustix::process::{Pid, Signal, kill_process_group, test_kill_process_group};
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::process::{Child, ChildStdin, ChildStdout, Command};
use tokio::signal::unix::{SignalKind, signal};
use tokio::time::{Instant, sleep, timeout};

use super::children;
use crate::cli::exit::{Stop, say};
use crate::text::count;

/// Interval at which the guard looks whether a program that was told to end has ended.
const LOOK_INTERVAL: Duration = Duration::from_millis(50);

/// Time that the guard has for its answer. It starts with the worker, and answers at once when it has started.
const ANSWER_WAIT_MAX: Duration = Duration::from_secs(5);

/// The words of the guard's command. No help shows them.
const COMMAND: [&str; 2] = ["run", "worker-guard"];

/// A worker's handle on its guard. The guard's standard input closes with the worker, however the worker ends.
#[derive(Debug)]
pub(super) struct Guard {
    kill_after: Duration,
    process: Option<Process>,
}

/// The guard's process, from the worker's side.
#[derive(Debug)]
struct Process {
    child: Child,
    id: Option<u32>,
    tell: ChildStdin,
    /// The lines that the guard has read, by which time signals do not end it any more.
    answers: BufReader<ChildStdout>,
}

impl Drop for Process {
    fn drop(&mut self) {
        if let Some(id) = self.id {
            children::ended(id);
        }
    }
}

impl Process {
    /// Tells the guard a line, and waits until it knows it. A guard that does not answer is killed: its input is
    /// about to be closed, and it must not end the processes that another guard will be told of.
    async fn tell(&mut self, line: &str) -> io::Result<()> {
        let told = async {
            self.tell.write_all(line.as_bytes()).await?;
            let mut answer = String::new();
            while answer != line {
                answer.clear();
                if self.answers.read_line(&mut answer).await? == 0 {
                    return Err(io::ErrorKind::UnexpectedEof.into());
                }
            }
            Ok(())
        };
        let told = timeout(ANSWER_WAIT_MAX, told).await.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into()));
        if told.is_err() {
            let _gone = self.child.start_kill();
        }
        told
    }
}

impl Guard {
    /// Starts a guard. `kill_after`: time that a program may go on after SIGTERM.
    pub(super) fn start(kill_after: Duration) -> Self {
        let mut guard = Self { kill_after, process: None };
        // A guard that cannot be started is tried again, and said, with the first program.
        guard.process = spawn(kill_after).ok();
        guard
    }

    /// Tells the guard to end these processes when the worker is gone, and to remove this folder, and waits until the guard
    /// knows; none: to end nothing. A guard that has ended meanwhile is started again.
    pub(super) async fn watches(&mut self, group: Option<Pid>, folder: &Path) {
        // A path that is no line of text is left to the worker.
        let folder = folder.to_str().filter(|path| !path.contains(['\n', '\r'])).unwrap_or_default();
        let line = format!("{} {folder}\n", group.map_or(0, Pid::as_raw_pid));
        if let Some(process) = &mut self.process {
            if process.tell(&line).await.is_ok() {
                return;
            }
            self.process = None;
        }
        if group.is_none() {
            return;
        }
        let told = async {
            let mut process = spawn(self.kill_after)?;
            process.tell(&line).await?;
            Ok(process)
        };
        match told.await {
            Ok(process) => self.process = Some(process),
            Err(error) => {
                let error: io::Error = error;
                say(&format!("if this worker is killed by force, its program goes on: it has no guard: {error}"));
            }
        }
    }
}

fn spawn(kill_after: Duration) -> io::Result<Process> {
    // On Linux the file may have been replaced by another release meanwhile, and is there all the same.
    let own = std::env::current_exe().ok().filter(|path| path.exists()).unwrap_or_else(|| "/proc/self/exe".into());
    let mut command = Command::new(own);
    command
        .arg0("runledger")
        .args(COMMAND)
        .arg(kill_after.as_millis().to_string())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        // The signals that a terminal sends to the worker are not for the guard.
        .process_group(0);
    let mut child = children::spawned(&mut command)?;
    let id = child.id();
    let tell = child.stdin.take().expect("it is piped");
    let answers = BufReader::new(child.stdout.take().expect("it is piped"));
    Ok(Process { child, id, tell, answers })
}

/// The arguments of the guard's own process.
#[derive(Args, Debug)]
pub(in crate::cli::run) struct GuardArgs {
    /// Time that a program may go on after SIGTERM, in milliseconds
    #[arg(value_parser = count::<u64>)]
    kill_after_ms: u64,
}

/// The guard's own process: reads from standard input which processes to end, and ends them when the input is closed.
pub(in crate::cli::run) async fn run(args: GuardArgs) -> Result<(), Stop> {
    // A signal to all processes ends the worker as well, and after that the guard has its work to do.
    let _ignored = [SignalKind::terminate(), SignalKind::interrupt(), SignalKind::hangup()].map(signal);
    let (mut lines, mut out) = (BufReader::new(tokio::io::stdin()).lines(), tokio::io::stdout());
    let (mut group, mut folder) = (None, None);
    while let Ok(Some(line)) = lines.next_line().await {
        let (number, path) = line.split_once(' ').unwrap_or((&line, ""));
        group = number.parse().ok().and_then(Pid::from_raw);
        folder = Some(path).filter(|path| !path.is_empty()).map(PathBuf::from);
        let answered = async {
            out.write_all(format!("{line}\n").as_bytes()).await?;
            out.flush().await
        };
        // Without a worker that reads, the next line is the end of the input.
        let _gone: io::Result<()> = answered.await;
    }
    if let Some(group) = group {
        end(group, Duration::from_millis(args.kill_after_ms)).await;
    }
    if let Some(folder) = folder {
        let _gone = std::fs::remove_dir_all(folder);
    }
    Ok(())
}

/// Ends these processes, by force where they do not end by themselves.
async fn end(group: Pid, kill_after: Duration) {
    let _gone = kill_process_group(group, Signal::TERM);
    let until = Instant::now() + kill_after;
    // A process of another user, which cannot be signalled, is still there.
    while test_kill_process_group(group) != Err(Errno::SRCH) {
        if Instant::now() >= until {
            let _gone = kill_process_group(group, Signal::KILL);
            return;
        }
        sleep(LOOK_INTERVAL).await;
    }
}

//! The program that a worker runs: in a process group of its own, with its output passed on and listened to.

use std::collections::VecDeque;
use std::ffi::OsString;
use std::fs::File;
use std::io::{self, IsTerminal as _};
use std::path::{Path, PathBuf};
use std::pin::pin;
use std::process::{ExitStatus, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use runledger_client::worker::Job;
use rustix::process::{Pid, Signal, kill_process_group};
use tokio::io::{AsyncBufReadExt as _, AsyncRead, AsyncWriteExt as _, BufReader};
use tokio::process::{Child, Command};
use tokio::task::JoinSet;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

use super::children;
use super::guard::Guard;
use crate::text::count;

/// The part of the program's last output on standard error that becomes the reason of its failure.
const LAST_LINES_MAX: usize = 20;
const LAST_BYTES_MAX: usize = 3_500;

/// A line that is longer is passed on in pieces.
const LINE_BYTES_MAX: usize = 64 * 1024;

/// Time for which the program's output is read after its end.
const STREAMS_WAIT_MAX: Duration = Duration::from_secs(1);

/// The beginning of a line of progress: `::progress 3/10 fetching`.
const PROGRESS: &str = "::progress ";

/// The line by which a program that was told to end says that the run is done all the same.
const COMPLETED: &str = "::completed";

/// The standard input of a program.
pub(super) enum Input {
    /// A file; empty where there is none.
    File(Option<PathBuf>),
    /// The worker's own.
    Inherited,
}

/// See the module.
pub(super) struct Program {
    child: Child,
    id: Option<u32>,
    group: Option<Pid>,
    /// The program's last lines on standard error.
    last: Last,
    completed: Arc<AtomicBool>,
    /// Cancelled when the guard knows the program, or when there is none.
    guarded: CancellationToken,
    /// Cancelled when the reader of the worker's output is not waited for any more.
    unread: CancellationToken,
    /// The tasks that pass the program's output on.
    streams: JoinSet<()>,
}

impl Program {
    /// Starts the program with these variables in its environment, and without those that have no value. Lines of progress go to the job.
    ///
    /// Invariant: no output of the program is passed on before its [guard](Self::guarded) knows it, or it was said that
    /// there is none.
    pub(super) fn start(
        command: &[OsString],
        environment: &[(&str, Option<OsString>)],
        input: Input,
        job: Job,
    ) -> io::Result<Self> {
        let (program, words) = command.split_first().expect("clap asks for at least one word");
        let stdin = match input {
            Input::File(Some(path)) => Stdio::from(File::open(path)?),
            Input::File(None) => Stdio::null(),
            // In the background, one that reads from a terminal would be stopped.
            Input::Inherited if io::stdin().is_terminal() => Stdio::null(),
            Input::Inherited => Stdio::inherit(),
        };
        let mut called = Command::new(program);
        // A worker may itself be the program of one: that one's files are not this run's.
        called.env_remove("RUNLEDGER_INPUT");
        for (name, value) in environment {
            match value {
                Some(value) => called.env(name, value),
                None => called.env_remove(name),
            };
        }
        called.args(words).stdin(stdin).stdout(Stdio::piped()).stderr(Stdio::piped()).process_group(0);
        let mut child = children::spawned(&mut called)?;
        let id = child.id();
        let group = child.id().and_then(|id| i32::try_from(id).ok()).and_then(Pid::from_raw);
        let (last, completed, mut streams) = (Last::default(), Arc::default(), JoinSet::new());
        let (guarded, unread) = (CancellationToken::new(), CancellationToken::new());
        let stdout = child.stdout.take().expect("it is piped");
        let stderr = child.stderr.take().expect("it is piped");
        let output = pass_output_on(stdout, job, Arc::clone(&completed), unread.clone());
        let errors = pass_errors_on(stderr, last.clone());
        let told = guarded.clone();
        streams.spawn(async move {
            told.cancelled().await;
            output.await;
        });
        let told = guarded.clone();
        streams.spawn(async move {
            told.cancelled().await;
            errors.await;
        });
        Ok(Self { child, id, group, last, completed, guarded, unread, streams })
    }

    /// Tells the guard of the program and its files. Needs nothing of the program meanwhile, which may be told to end.
    pub(super) fn guarded<'a>(&self, guard: &'a mut Guard, folder: &'a Path) -> impl Future<Output = ()> + use<'a> {
        let (group, guarded) = (self.group, self.guarded.clone());
        async move {
            guard.watches(group, folder).await;
            guarded.cancel();
        }
    }

    /// Waits for the program's end. Safe to cancel and to call again.
    pub(super) async fn wait(&mut self) -> io::Result<ExitStatus> {
        let ended = self.child.wait().await?;
        if let Some(id) = self.id.take() {
            children::ended(id);
        }
        Ok(ended)
    }

    /// Sends a signal to the program and to the processes that it started, as far as they are in its group: a process
    /// that began a session of its own has left it.
    pub(super) fn signal(&self, signal: Signal) {
        if let Some(group) = self.group {
            // The program may have ended in this moment.
            let _gone = kill_process_group(group, signal);
        }
    }

    /// The program's output, once it has ended. A process that it left running may keep the output open, and is not
    /// waited for.
    pub(super) async fn said(mut self) -> Said {
        let mut streams = pin!(async { while self.streams.join_next().await.is_some() {} });
        if timeout(STREAMS_WAIT_MAX, &mut streams).await.is_err() {
            // The output that is still unread may hold lines for the worker.
            self.unread.cancel();
            let _open = timeout(STREAMS_WAIT_MAX, streams).await;
        }
        let last = self.last.lock();
        let words = last.iter().map(String::as_str).collect::<Vec<_>>().join("\n");
        let from = words.ceil_char_boundary(words.len().saturating_sub(LAST_BYTES_MAX));
        Said { last: words[from..].to_owned(), completed: self.completed.load(Ordering::Acquire) }
    }
}

/// The result of reading a program's output.
pub(super) struct Said {
    /// The last lines on standard error.
    pub(super) last: String,
    /// Whether the program said that the run is done.
    pub(super) completed: bool,
}

/// The last lines of a stream.
type Last = Arc<Mutex<VecDeque<String>>>;

/// Reads a stream line by line; a very long line, in pieces.
struct Lines<R> {
    stream: BufReader<R>,
    line: Vec<u8>,
    /// Whether the next piece goes on with a line.
    goes_on: bool,
}

/// A line with its end, or a piece of one.
struct Piece<'a> {
    text: &'a [u8],
    /// Whether it is all of its line. A word for the worker is a whole line: a piece is what the program prints, whatever
    /// it begins with.
    is_whole: bool,
}

impl<R: AsyncRead + Unpin> Lines<R> {
    fn of(stream: R) -> Self {
        Self { stream: BufReader::with_capacity(LINE_BYTES_MAX, stream), line: Vec::new(), goes_on: false }
    }

    /// The next line, with its end; none at the end of the stream.
    async fn next(&mut self) -> Option<Piece<'_>> {
        self.line.clear();
        let begins = !self.goes_on;
        loop {
            let (piece, ends) = match self.stream.fill_buf().await {
                Ok([]) | Err(_) if self.line.is_empty() => return None,
                Ok([]) | Err(_) => return Some(Piece { text: &self.line, is_whole: begins }),
                Ok(buffer) => match buffer.iter().position(|byte| *byte == b'\n') {
                    Some(end) => (&buffer[..=end], true),
                    None => (buffer, false),
                },
            };
            let length = piece.len();
            self.line.extend_from_slice(piece);
            self.stream.consume(length);
            if ends || self.line.len() >= LINE_BYTES_MAX {
                self.goes_on = !ends;
                return Some(Piece { text: &self.line, is_whole: begins && ends });
            }
        }
    }
}

/// Passes standard output on. Lines for the worker are told and not shown. A reader that is slow or gone holds up
/// nothing else: the program's work goes on.
async fn pass_output_on(
    stream: impl AsyncRead + Unpin,
    job: Job,
    completed: Arc<AtomicBool>,
    unread: CancellationToken,
) {
    let (mut lines, mut out) = (Lines::of(stream), tokio::io::stdout());
    while let Some(line) = lines.next().await {
        let Piece { text: line, is_whole } = line;
        let text = if is_whole { std::str::from_utf8(line).unwrap_or_default() } else { "" };
        if let Some((done, total, message)) = progress_of(text) {
            job.progress(done, total, message);
        } else if text.trim_end() == COMPLETED {
            completed.store(true, Ordering::Release);
        } else {
            let written = async {
                let _closed = out.write_all(line).await;
                let _closed = out.flush().await;
            };
            let _given_up = unread.run_until_cancelled(written).await;
        }
    }
}

/// Passes standard error on, and keeps its last lines.
async fn pass_errors_on(stream: impl AsyncRead + Unpin, last: Last) {
    let (mut lines, mut err) = (Lines::of(stream), tokio::io::stderr());
    while let Some(line) = lines.next().await {
        {
            let mut last = last.lock();
            if last.len() == LAST_LINES_MAX {
                last.pop_front();
            }
            last.push_back(String::from_utf8_lossy(line.text).trim_end().replace('\0', ""));
        }
        let _closed = err.write_all(line.text).await;
    }
}

/// `::progress done[/total][ message]`; anything else is a line like others.
fn progress_of(line: &str) -> Option<(u64, u64, String)> {
    let said = line.trim_end().strip_prefix(PROGRESS)?;
    let (numbers, message) = said.split_once(' ').unwrap_or((said, ""));
    let (done, total): (u64, u64) = match numbers.split_once('/') {
        Some((done, total)) => (count(done).ok()?, count(total).ok()?),
        None => (count(numbers).ok()?, 0),
    };
    let message = message.replace('\0', "");
    let message = message[..message.floor_char_boundary(crate::domain::limits::PROGRESS_MESSAGE_BYTES_MAX)].to_owned();
    let sound = i64::try_from(done.max(total)).is_ok() && (total == 0 || done <= total);
    sound.then_some((done, total, message))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_word_for_the_worker_is_a_whole_line_and_no_piece_of_one() {
        let long = "x".repeat(LINE_BYTES_MAX);
        for (printed, whole) in [
            ("::completed\n".to_owned(), vec!["::completed\n"]),
            ("::completed".to_owned(), vec!["::completed"]),
            (format!("{long}::completed\nafter\n"), vec!["after\n"]),
            (format!("{long}::completed"), vec![]),
            (format!("{long}{long}::completed\n::progress 1\n"), vec!["::progress 1\n"]),
            (format!("{long}\n::completed\n"), vec!["::completed\n"]),
            (format!("::progress 1/2 {long}\nb"), vec!["b"]),
        ] {
            let mut lines = Lines::of(printed.as_bytes());
            let (mut found, mut all) = (Vec::new(), Vec::new());
            while let Some(Piece { text, is_whole }) = lines.next().await {
                all.extend_from_slice(text);
                if is_whole && text.len() < LINE_BYTES_MAX {
                    found.push(String::from_utf8(text.to_vec()).unwrap());
                }
            }
            assert_eq!(found, whole);
            assert_eq!(all, printed.as_bytes(), "nothing is lost");
        }
    }

    #[test]
    fn a_line_of_progress_is_what_it_says_and_all_else_is_a_line() {
        for (line, done, total, message) in [
            ("::progress 3/10 fetching\n", 3, 10, "fetching"),
            ("::progress 0/0\n", 0, 0, ""),
            ("::progress 7\r\n", 7, 0, ""),
            ("::progress 7 of many", 7, 0, "of many"),
            ("::progress 7 a\0b", 7, 0, "ab"),
        ] {
            assert_eq!(progress_of(line).unwrap(), (done, total, message.to_owned()));
        }
        for line in [
            "progress 1/2",
            " ::progress 1/2",
            "::progress",
            "::progress x/2",
            "::progress 3/2",
            "::progress -1",
            "::progress +1",
        ] {
            assert_eq!(progress_of(line), None, "{line}");
        }
        let long = progress_of(&format!("::progress 1/2 {}", "é".repeat(200))).unwrap();
        assert_eq!(long.2.len(), 256);
    }
}

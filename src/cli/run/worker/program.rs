//! The program that a worker runs: in a process group of its own, with its output passed on and listened to.

use std::collections::VecDeque;
use std::ffi::OsString;
use std::io::{self, Write as _};
use std::process::{ExitStatus, Stdio};

use rustix::process::{Pid, Signal, kill_process_group};
use tokio::io::{AsyncBufReadExt as _, AsyncRead, BufReader};
use tokio::process::{Child, Command};
use tokio::sync::watch;
use tokio::task::JoinSet;

use crate::proto::v1;

/// How much of what the program said last on standard error is its failure's reason.
const LAST_LINES_MAX: usize = 20;
const LAST_BYTES_MAX: usize = 3_500;

/// A line that is longer is passed on in pieces.
const LINE_BYTES_MAX: usize = 64 * 1024;

/// What a line of progress begins with: `::progress 3/10 fetching`.
const PROGRESS: &str = "::progress ";

/// See the module.
pub(super) struct Program {
    child: Child,
    group: Option<Pid>,
    /// How far the work has come, as it said last.
    pub(super) progress: watch::Receiver<Option<v1::Progress>>,
    /// Those that pass its output on; each ends with what it said last.
    streams: JoinSet<VecDeque<String>>,
}

impl Program {
    /// Starts it. `of_run`: what it finds in its environment.
    pub(super) fn start(command: &[OsString], of_run: &[(&str, String)]) -> io::Result<Self> {
        let (program, words) = command.split_first().expect("clap asks for at least one word");
        let mut child = Command::new(program)
            .args(words)
            .envs(of_run.iter().map(|(name, value)| (name, value)))
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .process_group(0)
            .spawn()?;
        let (tell, progress) = watch::channel(None);
        let mut streams = JoinSet::new();
        let stdout = child.stdout.take().expect("it is piped");
        let stderr = child.stderr.take().expect("it is piped");
        streams.spawn(pass_on(stdout, false, tell));
        streams.spawn(pass_on(stderr, true, watch::channel(None).0));
        let group = child.id().and_then(|id| i32::try_from(id).ok()).and_then(Pid::from_raw);
        Ok(Self { child, group, progress, streams })
    }

    /// Waits for its end. May be dropped and asked again.
    pub(super) async fn wait(&mut self) -> io::Result<ExitStatus> {
        self.child.wait().await
    }

    /// Sends a signal to it and to all that it started.
    pub(super) fn signal(&self, signal: Signal) {
        if let Some(group) = self.group {
            // It may have ended in this moment.
            let _gone = kill_process_group(group, signal);
        }
    }

    /// What it said last on standard error, once it has ended. What it left running may keep its output open: that is
    /// not waited for.
    pub(super) async fn last_words(mut self) -> String {
        let mut last = VecDeque::new();
        let streams = async {
            while let Some(lines) = self.streams.join_next().await {
                last.extend(lines.unwrap_or_default());
            }
        };
        let _open = tokio::time::timeout(std::time::Duration::from_secs(1), streams).await;
        let mut words = last.into_iter().collect::<Vec<_>>().join("\n");
        if words.len() > LAST_BYTES_MAX {
            words = words[words.ceil_char_boundary(words.len() - LAST_BYTES_MAX)..].to_owned();
        }
        words
    }
}

/// Passes a stream on, line by line. Lines of progress are told and not shown; `keep`: the last ones are kept.
async fn pass_on(
    stream: impl AsyncRead + Unpin,
    keep: bool,
    progress: watch::Sender<Option<v1::Progress>>,
) -> VecDeque<String> {
    let mut stream = BufReader::with_capacity(LINE_BYTES_MAX, stream);
    let mut last = VecDeque::new();
    let mut line = Vec::new();
    loop {
        let (piece, ends) = match stream.fill_buf().await {
            Ok([]) | Err(_) => break,
            Ok(buffer) => match buffer.iter().position(|byte| *byte == b'\n') {
                Some(end) => (&buffer[..=end], true),
                None => (buffer, false),
            },
        };
        let length = piece.len();
        line.extend_from_slice(piece);
        stream.consume(length);
        if ends || line.len() >= LINE_BYTES_MAX {
            said(&line, keep, &progress, &mut last);
            line.clear();
        }
    }
    if !line.is_empty() {
        said(&line, keep, &progress, &mut last);
    }
    last
}

fn said(line: &[u8], keep: bool, progress: &watch::Sender<Option<v1::Progress>>, last: &mut VecDeque<String>) {
    if keep {
        // Nobody may be listening, and the program's work goes on.
        let _closed = io::stderr().lock().write_all(line);
        if last.len() == LAST_LINES_MAX {
            last.pop_front();
        }
        last.push_back(String::from_utf8_lossy(line).trim_end().replace('\0', ""));
        return;
    }
    if let Some(said) = std::str::from_utf8(line).ok().and_then(progress_of) {
        progress.send_modify(|progress| *progress = Some(said));
    } else {
        let mut stdout = io::stdout().lock();
        let _closed = stdout.write_all(line).and_then(|()| stdout.flush());
    }
}

/// `::progress done[/total][ message]`; anything else is a line like others.
fn progress_of(line: &str) -> Option<v1::Progress> {
    let said = line.trim_end().strip_prefix(PROGRESS)?;
    let (numbers, message) = said.split_once(' ').unwrap_or((said, ""));
    let (done, total): (u64, u64) = match numbers.split_once('/') {
        Some((done, total)) => (done.parse().ok()?, total.parse().ok()?),
        None => (numbers.parse().ok()?, 0),
    };
    let message = message[..message.floor_char_boundary(crate::domain::limits::PROGRESS_MESSAGE_BYTES_MAX)].to_owned();
    let sound = i64::try_from(done.max(total)).is_ok() && (total == 0 || done <= total);
    sound.then_some(v1::Progress { done, total, message, at: None })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_of_progress_is_what_it_says_and_all_else_is_a_line() {
        for (line, done, total, message) in [
            ("::progress 3/10 fetching\n", 3, 10, "fetching"),
            ("::progress 0/0\n", 0, 0, ""),
            ("::progress 7\r\n", 7, 0, ""),
            ("::progress 7 of many", 7, 0, "of many"),
        ] {
            let said = progress_of(line).unwrap();
            assert_eq!((said.done, said.total, said.message.as_str()), (done, total, message));
        }
        for line in
            ["progress 1/2", " ::progress 1/2", "::progress", "::progress x/2", "::progress 3/2", "::progress -1"]
        {
            assert_eq!(progress_of(line), None, "{line}");
        }
        let long = progress_of(&format!("::progress 1/2 {}", "é".repeat(200))).unwrap();
        assert_eq!(long.message.len(), 256);
    }
}

//! `runledger run apply`: commands from a stream, each answered by a line.

use std::cell::{Cell, OnceCell};
use std::fs::File;
use std::io::{self, BufRead, BufReader, Read as _};
use std::path::PathBuf;
use std::pin::pin;
use std::time::Duration;

use clap::Args;
use futures_util::FutureExt as _;
use tokio::signal::unix::SignalKind;
use tokio::sync::mpsc;
use tokio::sync::mpsc::error::TryRecvError;
use tokio::task::spawn_blocking;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

use crate::cli::connect::Caller;
use crate::cli::exit::{Stop, exit_codes, say};
use crate::cli::output::Out;
use crate::clock;
use crate::tasks::signals::Signals;
use crate::text;
use runledger_client::{CommandBuffer, Failure, Kind, QueuedCommand, Repetition};
use runledger_proto::methods::request_id_mut;
use runledger_proto::{json, v1};

/// Bytes of a line, which may be a call by itself.
const LINE_BYTES_MAX: u64 = 1024 * 1024;

pub(super) const HELP: &str = concat!(
    "Examples:\n  \
    runledger run apply commands.jsonl\n  \
    echo '{\"start\": {\"runId\": \"try-7\", \"taskThreadId\": \"thread-1\"}}' | runledger run apply -\n  \
    cat commands.jsonl | runledger run apply - > results.jsonl\n\n\
    A line is a JSON object with one command: start, update, complete, abort, fail, claim, release, suspend or \
    requestAbort, each with the fields of its call's request, as grpcurl takes them. Each line has a result, in the order \
    of the lines; commands on one run are decided in their order. What was read while a call was under way goes in the \
    next one, at most 1,000 at once. A line without `requestId` gets one. What the server had no room for is sent again \
    until `--timeout` is over; then this ends, and nothing behind it is sent. Ends at the first line that is no command, too. \
    With a command that was refused it goes on, and ends with 1. Ctrl-C, or SIGTERM, ends the reading: what was read before \
    is sent and has its results, then it ends with 130, or 143. A second one ends it at once.\n\n",
    exit_codes!()
);

#[derive(Args, Debug)]
pub(super) struct ApplyArgs {
    /// The file with a command on each line; `-`: standard input
    #[arg(value_name = "FILE|-")]
    file: PathBuf,
    #[command(flatten)]
    caller: Caller,
}

/// Lines that are read before the buffer has room for them, and results that are waited for, at most.
const LINES_MAX: usize = 16;
const RESULTS_MAX: usize = 4_096;

/// What may be done where not all is known.
const SEND_AGAIN: &str = "with a `requestId` of their own, the same lines may be sent again";

/// The time without a result after which it is said that one is waited for.
const SILENT_MAX: Duration = Duration::from_secs(3);

/// The command of a line, or what is wrong with it.
type Line = Result<v1::RunCommand, Stop>;

/// Queues commands as they are read, and writes their results in the same order.
pub(super) async fn run(args: ApplyArgs) -> Result<(), Stop> {
    let (buffer, sends) = CommandBuffer::new(args.caller.client()?, args.caller.timeout());
    let mut lines = lines_of(args.file);
    let (to, results) = mpsc::channel(RESULTS_MAX);
    let signals = Signals::caught(&[SignalKind::interrupt(), SignalKind::terminate()]);
    let mut signals = signals.map_err(|error| Stop::Undone(format!("signals cannot be caught: {error}")))?;
    let (stop, stopped_by) = (CancellationToken::new(), OnceCell::new());
    let queues = async {
        // Dropped at the end, the one tells those who send, and the other those who write, that nothing more comes.
        let (buffer, to) = (buffer, to);
        let queues = async {
            while let Some(line) = lines.recv().await {
                let command = match line {
                    Ok(command) => command,
                    Err(wrong) => return Some(wrong),
                };
                // The place for its result comes first: what is queued is sent, whatever ends this.
                let Ok(place) = to.reserve().await else { return None };
                place.send(buffer.queue(command).await);
            }
            None
        };
        tokio::select! {
            biased;
            () = stop.cancelled() => Ok(stopped_by.get().copied().map(Stop::Signal)),
            wrong = queues => Ok(wrong),
        }
    };
    let answered = Cell::new(0);
    let all = async { tokio::try_join!(queues, sends.map(Ok), write(results, &answered)) };
    let twice = async {
        stopped_by.set(signals.next().await).expect("it is set here only");
        stop.cancel();
        say("stopping when what is on its way has its results: once more, and it ends at once");
        signals.next().await
    };
    let open = |because: &str| {
        let answered = answered.get();
        say(&format!(
            "{because}: commands that have a result: {answered}; what is behind them may have been applied: {SEND_AGAIN}"
        ));
    };
    let (wrong, (), told) = tokio::select! {
        biased;
        done = all => done.inspect_err(|stop| {
            if let Stop::Unwritable(_) = stop {
                open("nobody takes the results");
            }
        })?,
        number = twice => {
            open("stopped at once");
            return Err(Stop::Signal(number));
        }
    };
    told.ended_by(wrong)
}

/// The results that were written.
#[derive(Default)]
struct ResultCounts {
    count: u64,
    /// Those of commands that were refused.
    refused: u64,
    /// Those of commands that wrote nothing, for a cause that passes.
    unserved: u64,
    /// Those of commands of which nobody knows whether they were applied.
    open: u64,
}

impl ResultCounts {
    fn note(&mut self, result: &v1::CommandResult) {
        self.count += 1;
        match result.error.as_ref().map(Repetition::from) {
            None => {}
            Some(Repetition::Useless) => self.refused += 1,
            Some(Repetition::After(_)) => self.unserved += 1,
            Some(Repetition::Open) => self.open += 1,
        }
    }

    /// The end of the command, which what is given here cut short, if anything did.
    fn ended_by(&self, cut: Option<Stop>) -> Result<(), Stop> {
        let Some(cut) = cut else { return self.ended() };
        let is_signal = matches!(cut, Stop::Signal(_));
        if is_signal {
            say(&format!("stopped: commands that have a result: {}; nothing behind them was sent", self.count));
        }
        if (is_signal || self.count > 0)
            && let Err(Stop::Unreachable(said) | Stop::TimedOut(said)) = self.ended()
        {
            say(&said);
        }
        // A signal has no sentence.
        Err(if self.count == 0 { cut } else { cut.with_sentence(|what| format!("{what}; what is before it was sent")) })
    }

    /// The end of the command, where every line has a result.
    fn ended(&self) -> Result<(), Stop> {
        let Self { count, refused, unserved, open } = *self;
        if open > 0 {
            return Err(Stop::TimedOut(format!("{open} of {count} commands may have been applied: {SEND_AGAIN}")));
        }
        if unserved > 0 {
            let said = format!("{unserved} of {count} commands were not served: {SEND_AGAIN}");
            return Err(if unserved == count { Stop::Unreachable(said) } else { Stop::TimedOut(said) });
        }
        if refused > 0 {
            say(&format!("{refused} of {count} commands failed: see `error` in their lines"));
            return Err(Stop::Unsound);
        }
        Ok(())
    }
}

/// Writes results as they come.
async fn write(mut results: mpsc::Receiver<QueuedCommand>, answered: &Cell<u64>) -> Result<ResultCounts, Stop> {
    let (mut out, mut told) = (Out::patient(), ResultCounts::default());
    loop {
        let next = match results.try_recv() {
            Ok(next) => next,
            Err(TryRecvError::Disconnected) => break,
            // What is known is shown while lines are waited for.
            Err(TryRecvError::Empty) => {
                out.written().await.map_err(Stop::Unwritable)?;
                match results.recv().await {
                    Some(next) => next,
                    None => break,
                }
            }
        };
        let mut next = pin!(next.result());
        let result = if let Some(result) = next.as_mut().now_or_never() {
            result
        } else {
            // And while others are waited for.
            out.written().await.map_err(Stop::Unwritable)?;
            if let Ok(result) = timeout(SILENT_MAX, next.as_mut()).await {
                result
            } else {
                say(&format!("the server has not answered yet ({} commands were answered): waiting", told.count));
                next.await
            }
        };
        match result {
            Ok(result) => {
                told.note(&result);
                answered.set(told.count);
                out.json(&result)?;
            }
            Err(failure) => {
                out.written().await.map_err(Stop::Unwritable)?;
                return Err(failed_after(failure, told.count));
            }
        }
        if out.is_full() {
            out.written().await.map_err(Stop::Unwritable)?;
        }
    }
    out.written().await.map_err(Stop::Unwritable)?;
    Ok(told)
}

/// Ends the command by a failure: which lines it is about is told, and of those that were answered not that nothing was
/// done.
fn failed_after(mut failure: Failure, answered: u64) -> Stop {
    if answered == 0 {
        return failure.into();
    }
    failure.message = format!(
        "{} ({answered} commands have a result before that): {SEND_AGAIN}",
        failure.message.trim_end_matches('.')
    );
    if failure.kind == Kind::Unreachable { Stop::TimedOut(failure.message) } else { failure.into() }
}

/// Reads the lines on a thread of its own, some calls ahead, up to the first one that is wrong.
fn lines_of(file: PathBuf) -> mpsc::Receiver<Line> {
    let (to, lines) = mpsc::channel(LINES_MAX);
    let _reads = spawn_blocking(move || {
        let unreadable = |error: io::Error| Stop::Usage(format!("{}: cannot be read: {error}", file.display()));
        let opened: io::Result<Box<dyn BufRead>> = if file.as_os_str() == "-" {
            Ok(Box::new(BufReader::new(io::stdin())))
        } else {
            File::open(&file).map(|file| Box::new(BufReader::new(file)) as Box<dyn BufRead>)
        };
        let ended = opened.map_err(unreadable).and_then(|mut input| {
            for number in 1_u64.. {
                let mut line = Vec::new();
                let read = input.by_ref().take(LINE_BYTES_MAX + 1).read_until(b'\n', &mut line).map_err(unreadable)?;
                let wrong = |what: String| Stop::Usage(format!("{}: line {number}: {what}", file.display()));
                if read == 0 {
                    break;
                }
                if read as u64 > LINE_BYTES_MAX {
                    return Err(wrong(format!("is longer than {LINE_BYTES_MAX} bytes")));
                }
                let line = str::from_utf8(&line).map_err(|error| wrong(format!("is not UTF-8: {error}")))?.trim();
                // Nobody who is gone misses what was not read.
                if !line.is_empty() && to.blocking_send(Ok(command(line).map_err(wrong)?)).is_err() {
                    break;
                }
            }
            Ok(())
        });
        if let Err(wrong) = ended {
            let _gone = to.blocking_send(Err(wrong));
        }
    });
    lines
}

/// The command of a line, with a `request_id`, so that a call that was cut off can be sent again.
fn command(line: &str) -> Result<v1::RunCommand, String> {
    const NONE: &str = "is no JSON object with a command, such as {\"complete\": {\"runId\": \"try-1\"}}";
    if !line.trim_start_matches('\u{feff}').starts_with('{') {
        return Err(NONE.to_owned());
    }
    let object = text::object(line).map_err(|what| what.replace(" at line 1 column ", " at column "))?;
    let mut read: v1::RunCommand = json::read(object)?;
    let Some(command) = &mut read.command else { return Err(NONE.to_owned()) };
    let id = request_id_mut(command);
    if id.is_empty() {
        *id = format!("cli-{}", clock::draw_id());
    }
    Ok(read)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_one_command_with_an_id_of_its_own_and_nothing_of_it_is_dropped() {
        let read = |line: &str| command(line).map(|mut read| request_id_mut(read.command.as_mut().unwrap()).clone());
        assert_eq!(read(r#"{"complete": {"runId": "a", "requestId": "mine"}}"#), Ok("mine".to_owned()));
        assert!(read(r#"{"start": {"taskThreadId": "t"}}"#).unwrap().starts_with("cli-"));
        for wrong in [
            "",
            "[]",
            "{}",
            "{\"complete\": {\"runId\": \"a\"}} {}",
            r#"{"complete": {"runId": "a", "runId": "b"}}"#,
            r#"{"complete": {"run": "a"}}"#,
            r#"{"complete": {"runId": "a"}, "abort": {"runId": "a"}}"#,
            r#"{"claimNext": {}}"#,
        ] {
            assert!(read(wrong).is_err(), "{wrong}: {:?}", command(wrong));
        }
    }
}

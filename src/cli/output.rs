//! The output of a command: a table for people, or JSON for programs.

use std::io::{self, IsTerminal as _, Write as _};
use std::mem;

use clap::{Args, ValueEnum};
use rustix::fs::{FileType, OFlags, fcntl_getfl, fstat, stat};
use tokio::task::spawn_blocking;

use super::table::{Column, Table};
use runledger_proto::json::{self, Named};

/// The form of standard output.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum Output {
    /// Columns for people
    Table,
    /// One JSON object a line
    Json,
}

/// The flag for the form in which a command prints its answer.
#[derive(Args, Debug)]
pub(super) struct Format {
    /// Form of the output
    #[arg(long, short, value_name = "FORMAT", value_enum, default_value = "table")]
    pub(super) output: Output,
}

/// The flags of a command whose output may be only the run's id, for use in other commands.
#[derive(Args, Debug)]
pub(super) struct RunFormat {
    #[command(flatten)]
    format: Format,
    /// Print ids of runs and nothing else
    #[arg(long, short, conflicts_with = "output")]
    quiet: bool,
}

/// The part of a run that is printed, and its form.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum RunOutput {
    Ids,
    As(Output),
}

impl RunFormat {
    pub(super) fn output(&self) -> RunOutput {
        if self.quiet { RunOutput::Ids } else { RunOutput::As(self.format.output) }
    }
}

/// Prints a text at once, for a command whose exit code says the same: it matters to nobody that nobody reads on.
pub(super) fn tell(text: &str) -> io::Result<()> {
    match write(text.as_bytes()) {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        told => told,
    }
}

/// Whether nobody gave this process a standard output: the runtime puts `/dev/null` in the place of a closed one, open to
/// read and to write, as no shell opens it. For a command whose output is lost for good, or is all that it is for.
pub(super) fn is_stdout_closed() -> bool {
    let (out, nowhere) = (fstat(io::stdout()), stat("/dev/null"));
    let is_nowhere = out.ok().zip(nowhere.ok()).is_some_and(|(out, nowhere)| {
        FileType::from_raw_mode(out.st_mode) == FileType::CharacterDevice && out.st_rdev == nowhere.st_rdev
    });
    is_nowhere && fcntl_getfl(io::stdout()).is_ok_and(|flags| flags.contains(OFlags::RDWR))
}

/// The columns of a terminal that does not tell its width.
const WIDTH_DEFAULT: usize = 80;
const HEIGHT_DEFAULT: usize = 24;

/// The size of the terminal on standard output, in columns and lines; none when it is not one.
pub(super) fn terminal() -> Option<(usize, usize)> {
    if !io::stdout().is_terminal() {
        return None;
    }
    let size = terminal_size::terminal_size_of(io::stdout());
    let known = |size: u16, default| if size == 0 { default } else { usize::from(size) };
    Some(size.map_or((WIDTH_DEFAULT, HEIGHT_DEFAULT), |(width, height)| {
        (known(width.0, WIDTH_DEFAULT), known(height.0, HEIGHT_DEFAULT))
    }))
}

const PAIR: &[Column] = &[Column::whole(""), Column::whole("")];

/// Bytes that are gathered before they are written.
const GATHERED_BYTES_MAX: usize = 64 << 10;

/// Standard output. Written in large pieces, so it must be flushed.
#[derive(Debug)]
pub(super) struct Out {
    gathered: Vec<u8>,
    /// Whether nothing is written before the caller asks for it.
    waits: bool,
    /// Of the terminal, when it is one.
    pub(super) width: Option<usize>,
}

impl Out {
    pub(super) fn new() -> Self {
        Self { gathered: Vec::new(), waits: false, width: terminal().map(|(width, _)| width) }
    }

    /// An output that is written by [`written`](Self::written) alone.
    pub(super) fn patient() -> Self {
        let mut out = Self::new();
        out.waits = true;
        out
    }

    pub(super) fn line(&mut self, line: &str) -> io::Result<()> {
        self.gathered.extend_from_slice(line.as_bytes());
        self.gathered.push(b'\n');
        if self.is_full() && !self.waits { self.flush() } else { Ok(()) }
    }

    pub(super) fn json<M: Named>(&mut self, message: &M) -> io::Result<()> {
        self.line(&json::line(message))
    }

    /// Rows of a table, at first under its header.
    pub(super) fn rows(&mut self, table: &mut Table, rows: &[Vec<String>], first: bool) -> io::Result<()> {
        if first {
            self.line(&table.header(rows))?;
        }
        table.lines(rows).iter().try_for_each(|line| self.line(line))
    }

    /// Names and values, one pair a line.
    pub(super) fn pairs(&mut self, pairs: &[Vec<String>]) -> io::Result<()> {
        let mut table = Table::new(PAIR, None);
        for line in table.lines(pairs) {
            self.line(&line)?;
        }
        Ok(())
    }

    /// Whether it is time to write.
    pub(super) fn is_full(&self) -> bool {
        self.gathered.len() >= GATHERED_BYTES_MAX
    }

    pub(super) fn flush(&mut self) -> io::Result<()> {
        write(&mem::take(&mut self.gathered))
    }

    /// Writes what was gathered, on a thread of its own: the reader may let it wait for longer than the caller does.
    pub(super) async fn written(&mut self) -> io::Result<()> {
        let gathered = mem::take(&mut self.gathered);
        if gathered.is_empty() { Ok(()) } else { spawn_blocking(move || write(&gathered)).await? }
    }
}

impl Drop for Out {
    /// What came before an error is shown.
    fn drop(&mut self) {
        let _closed = self.flush();
    }
}

fn write(text: &[u8]) -> io::Result<()> {
    if text.is_empty() {
        return Ok(());
    }
    let mut stdout = io::stdout().lock();
    stdout.write_all(text)?;
    stdout.flush()
}

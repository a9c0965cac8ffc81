//! `runledger export`: the log as JSON lines, for the bridges' `lifecycle.jsonl`.
//!
//! The output stops at the shards' ends, which are read first, and has one order: by time, shard and position. Memory
//! holds one page and the links of runs that are under way, and no more.

mod cursor;
mod line;
mod lineage;
mod log;
mod past;
mod range;
mod replaced;
mod resume;
mod selection;
mod sink;

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use clap::Args;
use tokio::signal::unix::{SignalKind, signal};
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;

use self::cursor::CursorFile;
use self::line::{Beside, Lines};
use self::past::Trail;
use self::resume::Seen;
use self::sink::Sink;
use super::exit::{Stop, say};
use super::ledger_access::{self, PATIENCE, Progress, counted, patiently};
use crate::app;
use crate::config::StoreLocation;
use crate::domain::{ContentTable, Event, LedgerEpoch, Namespace, Positions, Revision, RunKey, Time};
use crate::private;
use crate::store::contents;
use crate::store::inspect::{Inspect, Link, Links};
use crate::store::{PAGE_BYTES_MAX, StoreError};
use crate::telemetry::chain;
use crate::text::When;

/// Events of one shard, or of one run, in a page.
const PAGE_EVENTS_MAX: usize = 4096;

/// Time that an output which takes nothing is waited for, once an export that follows was told to stop: a disk under load
/// takes a line within it.
const STOP_WAIT_MAX: Duration = Duration::from_secs(10);

/// Interval between two looks at the log for new events.
const POLL: Duration = Duration::from_millis(200);

pub(super) const HELP: &str = "Examples:\n  \
    runledger export --output lifecycle.jsonl\n  \
    runledger export --audit-session audit-7 --since 7d\n  \
    runledger export --store postgres://app:secret@db/runs --since 2026-01-31 --until 2026-02-01\n  \
    runledger export --follow --since 0s\n  \
    runledger export --namespace team-a --output team-a.jsonl --cursor-output team-a.cursor\n\n\
    One object a line and event, by time: at, runId, auditSessionId, taskThreadId, revision, type, from, to, principal \
    {kind, agentId}, reason {code, text} or null, and namespace where it is not default. \
    auditSessionId and taskThreadId are the run's right after the event. What the event put beside its run is in input, \
    result and links, and parentRunId and continuesRunId say where the run comes from; suspension (kind, reason, \
    resumeHint, deadline) and resumption (by, reason) what it waits for, and by what it goes on. Where events of a shard are gone \
    since their runs were purged, an export of all namespaces without a link has a line that says how many: at, type \
    (purged), shard, events. Goes on while servers \
    write, and writes nothing to the store. With --follow on a ledger that is restored or failed over, it says so and \
    goes back to what both have in common. With --follow, Ctrl-C ends it after the last whole line, or after \
    2 s where the output takes nothing.\n\n\
    Exit codes: 0 written, or stopped while following, or nobody reads on; 1 the output cannot be written, there is no \
    such run, or an output that takes nothing was given up; 2 usage; 3 the store cannot be read; 130 after Ctrl-C without --follow, or a second one with it.";

#[derive(Args, Debug)]
pub(super) struct ExportArgs {
    #[command(flatten)]
    store: StoreLocation,
    /// Every event of the runs that are linked to this audit session when the export's range ends
    #[arg(long, visible_alias = "audit-session-id", value_name = "ID")]
    audit_session: Option<String>,
    /// Only events of runs of this task thread
    #[arg(long, visible_alias = "task-thread-id", value_name = "ID")]
    task_thread: Option<String>,
    /// Only events of this namespace; with --run, the run's [default: all, with --run default]
    #[arg(long, value_name = "NAME")]
    namespace: Option<Namespace>,
    /// Only events of this run
    #[arg(long, visible_alias = "run-id", value_name = "ID")]
    run: Option<String>,
    /// Only events from then on: 2026-01-31T10:00:00Z, 2026-01-31 (UTC), or so long ago, such as 90m or 7d
    #[arg(long, value_name = "TIME|DURATION")]
    since: Option<When>,
    /// Only events before then
    #[arg(long, value_name = "TIME|DURATION", conflicts_with = "follow")]
    until: Option<When>,
    /// The output: a file, which is there once it is complete and replaces an earlier export of the same, a pipe or a device, or - for standard output
    #[arg(long, short, value_name = "FILE", default_value = "-")]
    output: String,
    /// File for the cursor up to which the output has every event of the namespace, for `runledger namespace exported`;
    /// with --follow, it is written anew as the output goes on
    #[arg(long, value_name = "FILE", requires = "namespace",
          conflicts_with_all = ["audit_session", "task_thread", "run", "since", "until"])]
    cursor_output: Option<PathBuf>,
    /// Go on with new events as they come; a file is gone on with behind its last whole line
    #[arg(long)]
    follow: bool,
    /// Replace the files of the output and of the cursor also where no export of this ledger and namespace wrote them
    #[arg(long)]
    force: bool,
}

/// The reason why an export ended before its end.
#[derive(Debug, thiserror::Error)]
enum Ended {
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error("the output cannot be written")]
    Output(#[source] std::io::Error),
    #[error("the file of the cursor cannot be written")]
    Cursor(#[source] std::io::Error),
    #[error("there is no such run, or it was purged: {0}")]
    NoRun(String),
    #[error("there is no namespace {0}")]
    NoNamespace(Namespace),
    #[error("--since must be earlier than --until: {since} is not earlier than {until}")]
    EmptyRange { since: Time, until: Time },
    #[error("it is there, and stays as it is: {0}; name another file, or replace it by --force")]
    Kept(&'static str),
    #[error("it cannot be gone on with: {0}")]
    Foreign(&'static str),
    #[error("the ledger was restored or failed over meanwhile: what was written is of two pasts; export it again")]
    TwoPasts,
    #[error("it was told to stop")]
    Stopped,
}

/// An export under way.
struct Export {
    inspect: Arc<dyn Inspect>,
    /// The only namespace; none: all.
    namespace: Option<Namespace>,
    /// The links that runs must have.
    wanted: Vec<Link>,
    since: Option<Time>,
    until: Option<Time>,
    follow: bool,
    stop: CancellationToken,
    sink: Sink,
    lines: Lines,
    /// The positions up to which lines tell of every event, or that it is gone; none: nothing is told of what is gone.
    told: Option<Positions>,
    /// The events that the file has already.
    seen: Seen,
    written: u64,
    /// The file of the cursor.
    cursor: Option<CursorFile>,
    /// The times of the first and the last event of the file that is replaced.
    replaced: Option<(Time, Time)>,
}

pub(super) async fn run(args: ExportArgs) -> Result<(), Stop> {
    let stop = CancellationToken::new();
    if !args.follow {
        let mut interrupted = signal(SignalKind::interrupt())?;
        let mut terminated = signal(SignalKind::terminate())?;
        // The export, when it is dropped, removes the unfinished file.
        return tokio::select! {
            biased;
            _ = interrupted.recv() => Err(Stop::Signal(2)),
            _ = terminated.recv() => Err(Stop::Signal(15)),
            exported = export(args, stop) => exported,
        };
    }
    let signals = app::signals(stop.clone())?;
    let told = stop.clone();
    let late = async {
        told.cancelled().await;
        sleep(STOP_WAIT_MAX).await;
    };
    tokio::select! {
        biased;
        never = signals => match never {},
        exported = export(args, stop) => exported,
        () = late => Err(Stop::Undone(
            "it was told to stop, and its output takes nothing: the last line may be cut off".to_owned(),
        )),
    }
}

async fn export(args: ExportArgs, stop: CancellationToken) -> Result<(), Stop> {
    let inspect = ledger_access::open(&args.store).await?;
    let failed = |ended| stopped(ended, &args.output);
    if let Some(namespace) = &args.namespace
        && !patiently(PATIENCE, || inspect.has_namespace(namespace)).await?
    {
        return Err(failed(Ended::NoNamespace(namespace.clone())));
    }
    if args.cursor_output.as_ref().is_some_and(|path| private::is_one_file(path, args.output.as_ref())) {
        return Err(Stop::Usage(format!("{} cannot be both the output and the cursor's file", args.output)));
    }
    if args.cursor_output.is_some() && !args.follow {
        cursor::replaces_nothing(&args.output).map_err(Stop::Usage)?;
    }
    let sink = Sink::open(&args.output, args.follow).await.map_err(Ended::Output).map_err(failed)?;
    let selected = selected(&args);
    let links = [args.audit_session.map(Link::AuditSession), args.task_thread.map(Link::TaskThread)];
    let mut export = Export {
        inspect,
        namespace: args.namespace.clone(),
        wanted: links.into_iter().flatten().collect(),
        since: None,
        until: None,
        follow: args.follow,
        stop,
        sink,
        lines: Lines::default(),
        told: None,
        seen: Seen::default(),
        written: 0,
        cursor: None,
        replaced: None,
    };
    if let (Some(path), Some(namespace)) = (args.cursor_output, &args.namespace) {
        cursor::may_claim(&path, &mut export.sink).map_err(Stop::Usage)?;
        if !args.force {
            cursor::may_replace(&path, export.inspect.ledger(), namespace).map_err(Stop::Usage)?;
        }
        export.cursor = Some(CursorFile::new(path, namespace.clone()));
    }
    let namespace = args.namespace.unwrap_or_else(Namespace::only);
    let run = args.run.map(|run_id| RunKey { namespace, run_id: run_id.into() });
    if !args.follow && !args.force && args.output != "-" {
        export.may_replace(&args.output, run.as_ref()).await.map_err(failed)?;
    }
    match export.all(&args.output, run, args.since, args.until).await {
        Ok(()) | Err(Ended::Stopped) => {
            if !args.follow && export.sink.is_lasting() {
                selection::forget(&args.output).map_err(Ended::Output).map_err(failed)?;
            }
            export.sink.finish().await.map_err(Ended::Output).map_err(failed)?;
            if let Some((before, now)) = export.sink.became_shorter() {
                say(&format!("the file that was replaced had more: {before} bytes before, and {now} now"));
            }
            export.tell_cursor().map_err(failed)?;
        }
        Err(ended) => return Err(failed(ended)),
    }
    let nothing = if export.written == 0 && !args.follow { selected } else { String::new() };
    say(&format!("exported {}{nothing}", counted(export.written, "event")));
    Ok(())
}

/// How the command ends where its export does not end well.
fn stopped(ended: Ended, output: &str) -> Stop {
    if let Ended::Store(error) = ended {
        error.into()
    } else if matches!(&ended, Ended::Output(error) if error.kind() == std::io::ErrorKind::BrokenPipe) {
        Stop::Closed
    } else if let Ended::EmptyRange { .. } = ended {
        Stop::Usage(ended.to_string())
    } else if let Ended::NoRun(_) | Ended::NoNamespace(_) = ended {
        Stop::Undone(ended.to_string())
    } else {
        Stop::Undone(format!("{output}: {}", chain(&ended)))
    }
}

/// What is said of an export that selects events and found none.
fn selected(args: &ExportArgs) -> String {
    let flags = [
        ("--namespace", args.namespace.is_some()),
        ("--task-thread", args.task_thread.is_some()),
        ("--audit-session", args.audit_session.is_some()),
        ("--since", args.since.is_some()),
        ("--until", args.until.is_some()),
    ];
    let given: Vec<&str> = flags.iter().filter(|(_, is_given)| *is_given).map(|(flag, _)| *flag).collect();
    if given.is_empty() { String::new() } else { format!(": the ledger has none for {}", given.join(" and ")) }
}

impl Export {
    async fn all(
        &mut self,
        output: &str,
        run: Option<RunKey>,
        since: Option<When>,
        until: Option<When>,
    ) -> Result<(), Ended> {
        if since.is_some() || until.is_some() {
            let inspect = self.inspect.clone();
            let now = self.ask(|| range::now(inspect.as_ref())).await?;
            self.since = since.map(|when| when.from(now));
            self.until = until.map(|when| when.from(now));
            if let (Some(since), Some(until)) = (self.since, self.until)
                && since >= until
            {
                return Err(Ended::EmptyRange { since, until });
            }
        }
        let selection = self.held_to_its_selection(output, run.as_ref(), since)?;
        self.resume(run.as_ref()).await?;
        if let Some(selection) = selection {
            selection.note(output)?;
        }
        self.tell_of_less();
        match run {
            Some(key) => self.one_run(&key).await,
            None => self.log().await,
        }
    }

    /// A run's own history, by its index: without a look at the rest of the log.
    async fn one_run(&mut self, key: &RunKey) -> Result<(), Ended> {
        let inspect = self.inspect.clone();
        let (mut links, mut revision) = (Links::default(), Revision::NONE);
        let mut trail = Trail::begin(self.past().await?, 0);
        loop {
            let page = self.ask(|| inspect.run_events(key, revision, PAGE_EVENTS_MAX, PAGE_BYTES_MAX)).await?;
            if self.follow && self.goes_back(&mut trail).await?.is_some() {
                (links, revision) = (Links::default(), Revision::NONE);
                continue;
            }
            for event in &page {
                revision = event.revision;
                let changes = &event.changes;
                links.change(changes.task_thread_id.as_deref(), changes.bindings.audit_session_id.as_deref());
                if self.in_time(event.at) && self.wanted.iter().all(|wanted| links.has(wanted)) {
                    self.write(event, &links).await?;
                }
            }
            self.flush().await?;
            match (page.is_empty(), self.follow) {
                (false, _) => {}
                (true, false) if revision == Revision::NONE => return Err(Ended::NoRun(key.run_id.to_string())),
                (true, false) => return self.is_of_one_past(&trail).await,
                (true, true) => self.pause().await?,
            }
        }
    }

    fn in_time(&self, at: Time) -> bool {
        self.since.is_none_or(|since| at >= since) && self.until.is_none_or(|until| at < until)
    }

    /// Asks the store, again and again while it does not answer: an export that follows waits as long as it takes.
    async fn ask<T, F>(&self, ask: impl FnMut() -> F) -> Result<T, Ended>
    where
        F: Future<Output = Result<T, StoreError>>,
    {
        let wait_max = if self.follow { Duration::MAX } else { PATIENCE };
        tokio::select! {
            biased;
            () = self.stop.cancelled() => Err(Ended::Stopped),
            answer = patiently(wait_max, ask) => Ok(answer?),
        }
    }

    /// Gathers a line, unless the file has it, or its namespace was not asked for.
    async fn write(&mut self, event: &Event, links: &Links) -> Result<(), Ended> {
        let is_asked_for = self.namespace.as_ref().is_none_or(|namespace| event.key.namespace == *namespace);
        if is_asked_for && !self.seen.has(event) {
            let beside = self.beside(event).await?;
            self.lines.write(event, links, &beside);
            if self.lines.bytes() >= PAGE_BYTES_MAX {
                self.flush().await?;
            }
        }
        Ok(())
    }

    /// What an event put beside its run; nothing where it was purged or taken out meanwhile.
    async fn beside(&self, event: &Event) -> Result<Beside, Ended> {
        let refinements = event.changes.refinements.as_deref();
        let late = event.changes.supervision.late_report.as_ref().and_then(|report| report.result);
        let has_result =
            late.is_some() || refinements.is_some_and(|refinements| refinements.attachments.result.is_some());
        let asked = contents::Beside {
            input: refinements.is_some_and(|refinements| refinements.attachments.input.is_some()),
            results: [has_result.then_some(event.revision), None],
            links: 0,
        };
        let mut beside = Beside::default();
        if asked.is_nothing() {
            return Ok(beside);
        }
        for row in self.ask(|| self.inspect.beside(&event.key, &asked)).await? {
            let object = contents::object(&row)?;
            match row.table {
                ContentTable::Input => beside.input = Some(object),
                ContentTable::Result => beside.result = Some(object),
                ContentTable::Link => {}
            }
        }
        Ok(beside)
    }

    /// What the output has by now is safe, once it is synced: the cursor's file says so.
    fn tell_cursor(&mut self) -> Result<(), Ended> {
        let ledger = self.inspect.ledger();
        self.cursor.as_mut().map_or(Ok(()), |cursor| cursor.write(ledger)).map_err(Ended::Cursor)
    }

    /// Takes note that the output has every event up to these positions.
    async fn reached(&mut self, epoch: LedgerEpoch, positions: &Positions) -> Result<(), Ended> {
        let Some(cursor) = &mut self.cursor else { return Ok(()) };
        cursor.reached(epoch, positions);
        if self.follow && cursor.is_due() {
            self.sink.sync().await.map_err(Ended::Output)?;
            self.tell_cursor()?;
        }
        Ok(())
    }

    /// Waits before the next look at the log. Fails when the output has no reader any more, or the stop has come.
    async fn pause(&self) -> Result<(), Ended> {
        if self.sink.is_closed() {
            return Err(Ended::Output(std::io::ErrorKind::BrokenPipe.into()));
        }
        tokio::select! {
            biased;
            () = self.stop.cancelled() => Err(Ended::Stopped),
            () = sleep(POLL) => Ok(()),
        }
    }

    /// Writes the gathered lines, whole ones, and waits until they are written.
    async fn flush(&mut self) -> Result<(), Ended> {
        let (lines, count) = self.lines.take();
        if count > 0 {
            self.sink.write(lines).await.map_err(Ended::Output)?;
            self.written += count;
        }
        Ok(())
    }

    /// A bar, where there is a terminal that shows nothing else.
    fn progress(&self, total: u64) -> Progress {
        if self.follow || self.sink.is_terminal() { Progress::none() } else { Progress::bar(total, "events") }
    }
}

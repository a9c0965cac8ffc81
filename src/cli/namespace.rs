//! `runledger namespace`: namespaces made, shown, changed and deleted.

use std::io::{self, IsTerminal as _};
use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Subcommand};

use super::connect::Caller;
use super::exit::{Stop, exit_codes, say};
use super::output::{Format, Out, Output};
use super::retention::counted::{self, Counted};
use super::retention::flags::RetentionFlags;
use super::table::{Column, Table};
use super::time::time;
use super::words::{Times, moment, status};
use crate::domain::retention::KEEP_MS_MIN;
use crate::stdio;
use crate::text::{MaybeEmpty, bytes, count, without_mark};
use crate::wire::cursor::CURSOR_BYTES_MAX;
use runledger_proto::{Timestamp, v1};

/// Bytes of a file with a cursor: somebody may have put space around it.
const CURSOR_FILE_BYTES_MAX: u64 = CURSOR_BYTES_MAX as u64 + 1_024;

pub(super) const HELP: &str = concat!(
    "Examples:\n  \
    runledger namespace create team-a --max-active-runs 500   a wall round a team's runs\n  \
    runledger namespace list                                  which are there?\n\n\
    Every command may be repeated: what was made or changed stays as it is.\n",
    exit_codes!()
);

const CREATE: &str = concat!(
    "Examples:\n  \
    runledger namespace create team-a\n  \
    runledger namespace create team-a --description 'the crawlers' --max-active-runs 500\n  \
    runledger namespace create team-a --if-missing      leaves one that is there as it is\n\n\
    One that is there with the same settings stays as it is, and the command succeeds.\n",
    exit_codes!()
);

const GET: &str = concat!("Example:\n  runledger namespace get team-b\n\n", exit_codes!());

const LIST: &str = concat!("Example:\n  runledger namespace list --output json\n\n", exit_codes!());

const UPDATE: &str = concat!(
    "Examples:\n  \
    runledger namespace update team-b --max-active-runs 100\n  \
    runledger namespace update team-b --max-active-runs 0      no limit any more\n  \
    runledger namespace update team-b --description 'the testers' --expected-revision 1\n  \
    runledger namespace update team-b --keep 30d --yes         purge runs after 30 days\n\n\
    A retention that is shorter than before tells how many runs are due at once, and waits for --yes, or for an answer \
    on a terminal. Nothing of a namespace is purged within an hour of its last change, so that there is time to take it \
    back.\n",
    exit_codes!()
);

const EXPORTED: &str = concat!(
    "Examples:\n  \
    runledger export --namespace team-b --output team-b.jsonl --cursor-output team-b.cursor\n  \
    runledger namespace exported team-b --cursor-file team-b.cursor\n\n\
    A namespace that was updated with --keep-until-exported true purges no run before.\n",
    exit_codes!()
);

const DELETE: &str = concat!(
    "Example:\n  \
    runledger namespace delete team-b\n\n\
    A namespace that has or had runs is not deleted: their ids stay taken.\n",
    exit_codes!()
);

const COLUMNS: &[Column] = &[
    Column::whole("NAME"),
    Column::whole("MAX ACTIVE RUNS"),
    Column::whole("CREATED AT").leaves(1),
    Column::texts("DESCRIPTION").leaves(2),
];

/// The reason for which a namespace is not made that is there with other settings.
const EXISTS: &str = "NAMESPACE_EXISTS";

/// The most that a page holds.
const PAGE_MAX: i32 = 1_000;

#[derive(Args, Debug)]
pub(super) struct NamespaceArgs {
    #[command(subcommand)]
    command: NamespaceCommand,
}

#[derive(Debug, Subcommand)]
enum NamespaceCommand {
    /// Make a namespace
    #[command(after_help = CREATE)]
    Create(CreateArgs),
    /// Show a namespace
    #[command(after_help = GET)]
    Get(NamedArgs),
    /// List the namespaces by name
    #[command(after_help = LIST)]
    List(ListArgs),
    /// Change a namespace's settings: what is not named stays
    #[command(after_help = UPDATE)]
    Update(UpdateArgs),
    /// Note that a namespace's events are safely elsewhere, so that its runs may be purged
    #[command(after_help = EXPORTED)]
    Exported(ExportedArgs),
    /// Delete a namespace that has no run
    #[command(after_help = DELETE)]
    Delete(DeleteArgs),
}

#[derive(Args, Debug)]
struct CreateArgs {
    /// The name: 1 to 63 of a-z 0-9 -, with a letter or digit at both ends
    name: String,
    /// What it is for
    #[arg(long, value_name = "TEXT", default_value = "")]
    description: MaybeEmpty,
    /// Runs that are not terminal, at most; 0: no limit
    #[arg(long, value_name = "N", default_value_t = 0, value_parser = count::<u64>)]
    max_active_runs: u64,
    /// Bytes that its events take in the store, at most; 0: no limit
    #[arg(long, value_name = "BYTES", default_value_t = 0, value_parser = bytes)]
    max_stored_bytes: u64,
    /// Succeed as well where it is there with other settings, and leave them
    #[arg(long)]
    if_missing: bool,
    #[command(flatten)]
    retention: RetentionFlags,
    #[command(flatten)]
    caller: Caller,
    #[command(flatten)]
    format: Format,
}

#[derive(Args, Debug)]
struct NamedArgs {
    /// The namespace
    name: String,
    #[command(flatten)]
    caller: Caller,
    #[command(flatten)]
    format: Format,
}

#[derive(Args, Debug)]
struct ListArgs {
    #[command(flatten)]
    caller: Caller,
    #[command(flatten)]
    format: Format,
}

#[derive(Args, Debug)]
struct UpdateArgs {
    /// The namespace
    name: String,
    /// What it is for; empty for nothing
    #[arg(long, value_name = "TEXT")]
    description: Option<MaybeEmpty>,
    /// Runs that are not terminal, at most; 0: no limit
    #[arg(long, value_name = "N", value_parser = count::<u64>)]
    max_active_runs: Option<u64>,
    /// Bytes that its events take in the store, at most; 0: no limit
    #[arg(long, value_name = "BYTES", value_parser = bytes)]
    max_stored_bytes: Option<u64>,
    #[command(flatten)]
    retention: RetentionFlags,
    /// Keep runs for a shorter time than before, without being asked
    #[arg(long)]
    yes: bool,
    /// Only if the namespace is at this revision
    #[arg(long, value_name = "REVISION", value_parser = count::<u64>)]
    expected_revision: Option<u64>,
    #[command(flatten)]
    caller: Caller,
    #[command(flatten)]
    format: Format,
}

#[derive(Args, Debug)]
struct ExportedArgs {
    /// The namespace
    name: String,
    /// The cursor of a frame of `WatchRuns` in this namespace: the events before it are safely elsewhere
    #[arg(long, value_name = "CURSOR", required_unless_present = "cursor_file", conflicts_with = "cursor_file")]
    cursor: Option<String>,
    /// The file that `runledger export --cursor-output` has written
    #[arg(long, value_name = "FILE")]
    cursor_file: Option<PathBuf>,
    #[command(flatten)]
    caller: Caller,
}

#[derive(Args, Debug)]
struct DeleteArgs {
    /// The namespace
    name: String,
    /// Only if the namespace is at this revision
    #[arg(long, value_name = "REVISION", value_parser = count::<u64>)]
    expected_revision: Option<u64>,
    #[command(flatten)]
    caller: Caller,
}

pub(super) async fn run(args: NamespaceArgs) -> Result<(), Stop> {
    match args.command {
        NamespaceCommand::Create(args) => create(args).await,
        NamespaceCommand::Get(args) => get(args).await,
        NamespaceCommand::List(args) => list(args).await,
        NamespaceCommand::Update(args) => update(args).await,
        NamespaceCommand::Exported(args) => exported(args).await,
        NamespaceCommand::Delete(args) => delete(args).await,
    }
}

async fn create(args: CreateArgs) -> Result<(), Stop> {
    let CreateArgs { max_active_runs, max_stored_bytes, .. } = args;
    let quotas = Some(v1::NamespaceQuotas { max_active_runs, max_stored_bytes });
    let retention = Some(args.retention.over(None)).filter(|_| args.retention.is_said());
    let (name, mut client, description) = (args.name, args.caller.client()?, args.description.0);
    let request = v1::CreateNamespaceRequest { name: name.clone(), description, quotas, retention };
    let namespace = match args.caller.ask(&mut client, &request).await {
        Err(Stop::Failed(failure)) if args.if_missing && failure.reason.as_deref() == Some(EXISTS) => {
            args.caller.ask(&mut client, &v1::GetNamespaceRequest { name }).await?.namespace
        }
        answer => answer?.namespace,
    };
    show(&namespace.unwrap_or_default(), &args.format)
}

async fn get(args: NamedArgs) -> Result<(), Stop> {
    let request = v1::GetNamespaceRequest { name: args.name };
    let answer = args.caller.ask(&mut args.caller.client()?, &request).await?;
    show(&answer.namespace.unwrap_or_default(), &args.format)
}

async fn update(args: UpdateArgs) -> Result<(), Stop> {
    let UpdateArgs {
        name,
        description,
        max_active_runs,
        max_stored_bytes,
        retention: said,
        yes,
        expected_revision,
        caller,
        format,
    } = args;
    let mut client = caller.client()?;
    let (mut retention, mut expected_revision) = (None, expected_revision);
    if said.is_said() {
        // The retention is set as a whole: what was not said stays, and nobody changes it in between.
        let request = v1::GetNamespaceRequest { name: name.clone() };
        let there = caller.ask(&mut client, &request).await?.namespace.unwrap_or_default();
        Box::pin(agreed(&name, said, there.retention, &caller, yes)).await?;
        retention = Some(said.over(there.retention));
        expected_revision = expected_revision.or(Some(there.revision));
    }
    let request = v1::UpdateNamespaceRequest {
        name,
        description: description.map(|text| text.0),
        max_active_runs,
        max_stored_bytes,
        expected_revision,
        retention,
    };
    let answer = caller.ask(&mut client, &request).await?;
    show(&answer.namespace.unwrap_or_default(), &format)
}

/// Tells what a retention undoes; where it is shorter than before, how many runs are due by it as well, and sees to it
/// that this is meant.
async fn agreed(
    name: &str,
    said: RetentionFlags,
    before: Option<v1::NamespaceRetention>,
    caller: &Caller,
    yes: bool,
) -> Result<(), Stop> {
    let (changes, after) = (said.changes(before), said.over(before));
    let least = Duration::from_millis(KEEP_MS_MIN);
    if changes.iter().any(|change| change.is_shorter() && change.after.is_some_and(|after| after < least)) {
        return Err(Stop::Usage("nothing was changed: runs are kept for 1 minute or more".into()));
    }
    let time = |time: Option<Duration>| time.map_or_else(|| "for ever".to_owned(), lasting);
    for change in changes.iter().filter(|change| !change.is_named && change.before.is_some()) {
        if change.after != change.before {
            let (status, before, after) = (status(change.status.into()), time(change.before), time(change.after));
            say(&format!("--keep is said of {status} runs too: they were kept {before}, and are to be kept {after}"));
        }
    }
    let exports = before.is_some_and(|before| before.until_exported);
    let is_shorter = |change: &super::retention::flags::Change| change.is_shorter() || exports && !after.until_exported;
    let mut due = Ok(Counted::default());
    let mut asked = false;
    for (status, keep) in changes.iter().filter(|of| is_shorter(of)).filter_map(|of| Some((of.status, of.after?))) {
        asked = true;
        if let Ok(before) = due {
            let counted = counted::due(&mut caller.client_in(name)?, caller.timeout(), (&[status], keep)).await;
            due = counted.map(|counted| before.and(counted));
        }
    }
    if !asked {
        return Ok(());
    }
    let exported = if after.until_exported { ", those of them that were exported," } else { "" };
    say(&match due {
        Ok(due) => format!("{} due at once in {name}, and{exported} purged for good from an hour on", due.said()),
        Err(failure) => format!("how many runs are due at once in {name} is not known: {failure}"),
    });
    if yes || is_meant()? {
        Ok(())
    } else {
        Err(Stop::Usage("nothing was changed: --yes says that it is meant".into()))
    }
}

/// Asks whoever sits at the terminal. Nobody there has not agreed.
fn is_meant() -> Result<bool, Stop> {
    if !io::stdin().is_terminal() || !io::stderr().is_terminal() {
        return Ok(false);
    }
    let mut answer = String::new();
    stdio::err().say("runledger: is it meant? [y/N] ");
    stdio::err().flush();
    io::stdin().read_line(&mut answer)?;
    Ok(["y", "yes"].contains(&answer.trim().to_ascii_lowercase().as_str()))
}

async fn exported(args: ExportedArgs) -> Result<(), Stop> {
    let cursor = match (args.cursor, &args.cursor_file) {
        (Some(cursor), _) => cursor,
        (None, Some(path)) => {
            let unreadable = |error| Stop::Usage(format!("cannot read {}: {error}", path.display()));
            without_mark(&runledger_files::text_once(path, CURSOR_FILE_BYTES_MAX).map_err(unreadable)?)
                .trim()
                .to_owned()
        }
        (None, None) => String::new(),
    };
    let request = v1::NoteExportedRequest { name: args.name, cursor };
    args.caller.ask(&mut args.caller.client()?, &request).await?;
    let mut out = Out::new();
    out.line(&format!("noted of {}", request.name))?;
    Ok(out.flush()?)
}

async fn delete(args: DeleteArgs) -> Result<(), Stop> {
    let request = v1::DeleteNamespaceRequest { name: args.name, expected_revision: args.expected_revision };
    args.caller.ask(&mut args.caller.client()?, &request).await?;
    let mut out = Out::new();
    out.line(&format!("deleted {}", request.name))?;
    Ok(out.flush()?)
}

async fn list(args: ListArgs) -> Result<(), Stop> {
    let mut client = args.caller.client()?;
    let mut out = Out::new();
    let mut table = Table::new(COLUMNS, out.width);
    let mut request = v1::ListNamespacesRequest { page_size: PAGE_MAX, ..v1::ListNamespacesRequest::default() };
    let mut first = true;
    loop {
        let page = args.caller.ask(&mut client, &request).await?;
        match args.format.output {
            Output::Json => page.namespaces.iter().try_for_each(|namespace| out.json(namespace))?,
            Output::Table => {
                let rows: Vec<_> = page.namespaces.iter().map(row).collect();
                out.rows(&mut table, &rows, first)?;
            }
        }
        out.flush()?;
        first = false;
        request.page_token = page.next_page_token;
        if request.page_token.is_empty() {
            return Ok(());
        }
    }
}

fn show(namespace: &v1::Namespace, format: &Format) -> Result<(), Stop> {
    let mut out = Out::new();
    match format.output {
        Output::Json => out.json(namespace)?,
        Output::Table => {
            let pairs = [
                ("name", namespace.name.clone()),
                ("description", namespace.description.clone()),
                ("max active runs", quota(namespace, |quotas| quotas.max_active_runs)),
                ("max stored bytes", quota(namespace, |quotas| quotas.max_stored_bytes)),
                ("stored bytes", stored_bytes(namespace)),
                ("keeps", keeps(namespace.retention.as_ref())),
                ("revision", namespace.revision.to_string()),
                ("created at", at(namespace.created_at.as_ref())),
                ("updated at", at(namespace.updated_at.as_ref())),
            ];
            let set = pairs.into_iter().filter(|(_, value)| !value.is_empty());
            out.pairs(&set.map(|(name, value)| vec![name.to_owned(), value]).collect::<Vec<_>>())?;
        }
    }
    Ok(out.flush()?)
}

fn row(namespace: &v1::Namespace) -> Vec<String> {
    vec![
        namespace.name.clone(),
        quota(namespace, |quotas| quotas.max_active_runs),
        at(namespace.created_at.as_ref()),
        namespace.description.clone(),
    ]
}

fn at(timestamp: Option<&Timestamp>) -> String {
    moment(time(timestamp), Times::Whole)
}

/// How long runs are kept, such as `completed 30d, failed 1y`.
fn keeps(retention: Option<&v1::NamespaceRetention>) -> String {
    let Some(v1::NamespaceRetention { completed, aborted, failed, until_exported }) = retention else {
        return String::new();
    };
    let each = [("completed", completed), ("aborted", aborted), ("failed", failed)];
    let said = each.into_iter().filter_map(|(name, keep)| {
        let keep = Duration::try_from((*keep)?).ok()?;
        Some(format!("{name} {}", lasting(keep)))
    });
    let until = until_exported.then(|| "and until they are exported".to_owned());
    said.chain(until).collect::<Vec<_>>().join(", ")
}

/// A time in the largest unit that it is a multiple of, such as `30d`.
pub(super) fn lasting(time: Duration) -> String {
    let ms = time.as_millis();
    let units = [("d", 86_400_000), ("h", 3_600_000), ("m", 60_000), ("s", 1_000), ("ms", 1)];
    let (unit, size) = units.into_iter().find(|(_, size)| ms.is_multiple_of(*size)).expect("all are multiples of 1 ms");
    format!("{}{unit}", ms / size)
}

fn quota(namespace: &v1::Namespace, of: impl Fn(v1::NamespaceQuotas) -> u64) -> String {
    match namespace.quotas.map_or(0, of) {
        0 => "none".to_owned(),
        max => max.to_string(),
    }
}

/// The bytes, where they are measured.
fn stored_bytes(namespace: &v1::Namespace) -> String {
    let is_measured = namespace.quotas.is_some_and(|quotas| quotas.max_stored_bytes > 0);
    if is_measured { namespace.stored_bytes.to_string() } else { String::new() }
}

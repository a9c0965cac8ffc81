//! `runledger lifecycle`: what users declare about the runs of theirs, checked, put, shown and drawn.

use std::collections::BTreeMap;
use std::io::Read;
use std::path::{Path, PathBuf};

use clap::{Args, Subcommand};

use super::connect::Caller;
use super::exit::{Stop, exit_codes, say};
use super::output::{Format, Out, Output};
use super::table::{Column, Table};
use super::time::time;
use super::words::{Times, disposition, moment, principal};
use crate::declaration;
use crate::domain::Lifecycle;
use crate::domain::limits::LIFECYCLE_BYTES_MAX;
use runledger_proto::v1;

pub(super) const HELP: &str = concat!(
    "Examples:\n  \
    runledger lifecycle check review.yaml                       is it sound? Needs no server\n  \
    runledger lifecycle put review.yaml                         from now on, runs may name it\n  \
    runledger run start --task-thread-id t --lifecycle review   a run begins in its initial phase\n\n\
    docs/lifecycles.md says what a lifecycle may declare.\n",
    exit_codes!()
);

const PUT: &str = concat!(
    "Examples:\n  \
    runledger lifecycle put review.yaml\n  \
    runledger lifecycle put - < review.json\n\n\
    It is the next version of its name. What says the same as the newest version changes nothing, and the command \
    succeeds. Runs keep the version that they were started with.\n",
    exit_codes!()
);

const GET: &str = concat!(
    "Examples:\n  \
    runledger lifecycle get review            the newest version, as it was written\n  \
    runledger lifecycle get review@1\n  \
    runledger lifecycle get craik.task_run    one that is built in\n\n",
    exit_codes!()
);

const LIST: &str = concat!(
    "Examples:\n  \
    runledger lifecycle list           the newest version of each\n  \
    runledger lifecycle list review    all versions of one\n\n",
    exit_codes!()
);

const CHECK: &str = concat!(
    "Examples:\n  \
    runledger lifecycle check review.yaml\n  \
    runledger lifecycle check - < review.json\n\n\
    Names every mistake, each with its line and column, and ends with 1 where there is one. Calls no server.\n",
    exit_codes!()
);

const DRAW: &str = concat!(
    "Examples:\n  \
    runledger lifecycle draw review\n  \
    runledger lifecycle draw --file review.yaml\n  \
    runledger lifecycle draw --run run-5    the lifecycle of a run, and where the run stands\n\n\
    Prints Mermaid, which GitHub and most wikis show as a picture.\n",
    exit_codes!()
);

const COLUMNS: &[Column] = &[
    Column::whole("NAME"),
    Column::whole("VERSION"),
    Column::whole("PUT AT").leaves(1),
    Column::texts("BY").leaves(2),
];

/// The most that a page holds.
const PAGE_MAX: i32 = 1_000;

#[derive(Args, Debug)]
pub(super) struct LifecycleArgs {
    #[command(subcommand)]
    command: LifecycleCommand,
}

#[derive(Debug, Subcommand)]
enum LifecycleCommand {
    /// Put a declaration as the newest version of its name
    #[command(after_help = PUT)]
    Put(PutArgs),
    /// Show a version as it was written
    #[command(after_help = GET)]
    Get(GetArgs),
    /// List the lifecycles of a namespace, or the versions of one
    #[command(after_help = LIST)]
    List(ListArgs),
    /// Check a declaration, without a server
    #[command(after_help = CHECK)]
    Check(CheckArgs),
    /// Draw a lifecycle as a Mermaid flowchart
    #[command(after_help = DRAW)]
    Draw(DrawArgs),
}

#[derive(Args, Debug)]
struct PutArgs {
    /// The file with the declaration, YAML or JSON
    #[arg(value_name = "FILE|-")]
    file: PathBuf,
    #[command(flatten)]
    caller: Caller,
    #[command(flatten)]
    format: Format,
}

#[derive(Args, Debug)]
struct GetArgs {
    /// The lifecycle, the newest version or that one
    #[arg(value_name = "NAME[@N]")]
    lifecycle: String,
    #[command(flatten)]
    caller: Caller,
    #[command(flatten)]
    format: Format,
}

#[derive(Args, Debug)]
struct ListArgs {
    /// The lifecycle whose versions are listed
    name: Option<String>,
    #[command(flatten)]
    caller: Caller,
    #[command(flatten)]
    format: Format,
}

#[derive(Args, Debug)]
struct CheckArgs {
    /// The file with the declaration, YAML or JSON
    #[arg(value_name = "FILE|-")]
    file: PathBuf,
}

#[derive(Args, Debug)]
struct DrawArgs {
    /// The lifecycle, the newest version or that one [default: the run's]
    #[arg(value_name = "NAME[@N]", required_unless_present_any = ["file", "run"])]
    lifecycle: Option<String>,
    /// A file with a declaration instead
    #[arg(long, value_name = "FILE|-", conflicts_with = "lifecycle")]
    file: Option<PathBuf>,
    /// Mark the phase that this run is in
    #[arg(long, value_name = "RUN_ID")]
    run: Option<String>,
    #[command(flatten)]
    caller: Caller,
}

pub(super) async fn run(args: LifecycleArgs) -> Result<(), Stop> {
    match args.command {
        LifecycleCommand::Put(args) => put(args).await,
        LifecycleCommand::Get(args) => get(args).await,
        LifecycleCommand::List(args) => list(args).await,
        LifecycleCommand::Check(args) => check(&args),
        LifecycleCommand::Draw(args) => draw(args).await,
    }
}

/// The text of a file, or of standard input for `-`.
fn read(path: &Path) -> Result<String, Stop> {
    let unreadable = |error: std::io::Error| Stop::Usage(format!("{} cannot be read: {error}", path.display()));
    let mut text = Vec::new();
    // One byte more than may be, by which it is seen to be too long.
    let max = LIFECYCLE_BYTES_MAX as u64 + 1;
    if path.as_os_str() == "-" {
        std::io::stdin().lock().take(max).read_to_end(&mut text).map_err(unreadable)?;
    } else {
        text = runledger_files::read_once(path, LIFECYCLE_BYTES_MAX as u64).map_err(unreadable)?;
    }
    String::from_utf8(text).map_err(|_| Stop::Usage(format!("{} is no UTF-8 text", path.display())))
}

/// The lifecycle that a file declares. Its mistakes are told as compilers tell theirs.
fn sound(path: &Path, source: &str) -> Result<Lifecycle, Stop> {
    declaration::read(source).map_err(|findings| {
        for finding in &findings {
            let path_within = if finding.path.is_empty() { String::new() } else { format!("{}: ", finding.path) };
            let (at, message) = (&finding.at, &finding.message);
            say(&format!("{}:{}:{}: {path_within}{message}", path.display(), at.line, at.column));
        }
        let mistakes =
            if findings.len() == 1 { "1 mistake".to_owned() } else { format!("{} mistakes", findings.len()) };
        Stop::Undone(format!("{} is not sound: {mistakes}", path.display()))
    })
}

fn check(args: &CheckArgs) -> Result<(), Stop> {
    let source = read(&args.file)?;
    let lifecycle = sound(&args.file, &source)?;
    let mut out = Out::new();
    let phases = match lifecycle.phases.len() {
        1 => "1 phase".to_owned(),
        more => format!("{more} phases"),
    };
    out.line(&format!("{} is sound: {}, {phases}", args.file.display(), lifecycle.name))?;
    for note in declaration::notes(&lifecycle) {
        say(&note);
    }
    Ok(out.flush()?)
}

async fn put(args: PutArgs) -> Result<(), Stop> {
    let declaration = read(&args.file)?;
    // The server checks it as well, and names no more mistakes than fit in its answer.
    sound(&args.file, &declaration)?;
    let request = v1::PutLifecycleRequest { declaration };
    let answer = args.caller.ask(&mut args.caller.client()?, &request).await?;
    let mut out = Out::new();
    match args.format.output {
        Output::Json => out.json(&answer)?,
        Output::Table => {
            let put = answer.lifecycle.unwrap_or_default();
            let pairs = [
                ("disposition", disposition(answer.disposition)),
                ("lifecycle", format!("{}@{}", put.name, put.version)),
            ];
            out.pairs(&pairs.map(|(name, value)| vec![name.to_owned(), value]))?;
        }
    }
    out.flush()?;
    answer.notes.iter().for_each(|note| say(note));
    Ok(())
}

async fn get(args: GetArgs) -> Result<(), Stop> {
    let request = v1::GetLifecycleRequest { lifecycle: args.lifecycle };
    let answer = args.caller.ask(&mut args.caller.client()?, &request).await?;
    let lifecycle = answer.lifecycle.unwrap_or_default();
    let mut out = Out::new();
    match args.format.output {
        Output::Json => out.json(&lifecycle)?,
        Output::Table => lifecycle.declaration.lines().try_for_each(|line| out.line(line))?,
    }
    out.flush()?;
    let v1::Lifecycle { name, version, .. } = &lifecycle;
    match (version, starts(&lifecycle.declaration)) {
        (0, true) => say("it is built in: the first run that names it puts it as version 1"),
        (0, false) => say("it is built in, and no run starts with it in this release: see `runledger lifecycle check`"),
        (version, _) => {
            let by = lifecycle.created_by.as_ref().map(principal).unwrap_or_default();
            let at = moment(time(lifecycle.created_at.as_ref()), Times::Whole);
            say(&format!("{name}@{version}, put at {at}, by {by}"));
        }
    }
    Ok(())
}

/// Whether runs start with a lifecycle of this text.
fn starts(declaration: &str) -> bool {
    declaration::read(declaration).is_ok_and(|lifecycle| lifecycle.not_enforced().is_empty())
}

async fn list(args: ListArgs) -> Result<(), Stop> {
    let mut client = args.caller.client()?;
    let mut out = Out::new();
    let mut table = Table::new(COLUMNS, out.width);
    let name = args.name.unwrap_or_default();
    let mut request = v1::ListLifecyclesRequest { name, page_size: PAGE_MAX, page_token: String::new() };
    let mut first = true;
    let mut built_in: BTreeMap<&str, &str> = declaration::built_ins().collect();
    let mut count = 0;
    loop {
        let page = args.caller.ask(&mut client, &request).await?;
        built_in.retain(|name, _| page.lifecycles.iter().all(|lifecycle| lifecycle.name != *name));
        count += page.lifecycles.len();
        match args.format.output {
            Output::Json => page.lifecycles.iter().try_for_each(|lifecycle| out.json(lifecycle))?,
            Output::Table => {
                let rows: Vec<_> = page.lifecycles.iter().map(row).collect();
                out.rows(&mut table, &rows, first)?;
            }
        }
        out.flush()?;
        first = false;
        request.page_token = page.next_page_token;
        if request.page_token.is_empty() {
            break;
        }
    }
    if !request.name.is_empty() {
        built_in.retain(|name, _| *name == request.name);
        if count == 0 && built_in.is_empty() {
            return Err(Stop::Undone(format!("there is no lifecycle {}", request.name)));
        }
    }
    let (now, later): (Vec<_>, Vec<_>) = built_in.into_iter().partition(|(_, declaration)| starts(declaration));
    let names = |of: Vec<(&str, &str)>| of.into_iter().map(|(name, _)| name).collect::<Vec<_>>().join(", ");
    for (what, of) in [
        ("built in, and put by the first run that names one", now),
        ("built in, and no run starts with one in this release", later),
    ] {
        if !of.is_empty() {
            say(&format!("{what}: {}", names(of)));
        }
    }
    Ok(())
}

fn row(lifecycle: &v1::Lifecycle) -> Vec<String> {
    vec![
        lifecycle.name.clone(),
        lifecycle.version.to_string(),
        moment(time(lifecycle.created_at.as_ref()), Times::Whole),
        lifecycle.created_by.as_ref().map(principal).unwrap_or_default(),
    ]
}

/// Whether a run's lifecycle is one that was named, as far as a version was.
fn is_of(pinned: &str, named: &str) -> bool {
    pinned == named || pinned.split_once('@').is_some_and(|(name, _)| name == named)
}

async fn draw(args: DrawArgs) -> Result<(), Stop> {
    let run = match &args.run {
        None => None,
        Some(run_id) => {
            let view = Some(v1::RunView::Basic.into());
            let request = v1::GetRunRequest { run_id: run_id.clone(), view, ..v1::GetRunRequest::default() };
            args.caller.ask(&mut args.caller.client()?, &request).await?.run
        }
    };
    let named = args.lifecycle.clone();
    let source = match (&args.file, args.lifecycle) {
        (Some(file), _) => read(file)?,
        (None, named) => {
            let of_run = run.as_ref().map(|run| run.lifecycle.clone()).filter(|lifecycle| !lifecycle.is_empty());
            let Some(lifecycle) = named.or(of_run) else {
                return Err(Stop::Undone("the run has no lifecycle: name one".to_owned()));
            };
            let request = v1::GetLifecycleRequest { lifecycle };
            let answer = args.caller.ask(&mut args.caller.client()?, &request).await?;
            answer.lifecycle.unwrap_or_default().declaration
        }
    };
    if let (Some(run), Some(named)) = (&run, &named)
        && !is_of(&run.lifecycle, named)
    {
        let of_run = if run.lifecycle.is_empty() { "no lifecycle" } else { &run.lifecycle };
        return Err(Stop::Undone(format!("run {} has {of_run}, and not {named}", run.run_id)));
    }
    let lifecycle = match &args.file {
        Some(file) => sound(file, &source)?,
        None => sound(Path::new("the declaration"), &source)?,
    };
    let standing = run.as_ref().map(|run| run.phase.as_str()).filter(|phase| !phase.is_empty());
    let mut out = Out::new();
    declaration::draw(&lifecycle, standing).lines().try_for_each(|line| out.line(line))?;
    Ok(out.flush()?)
}

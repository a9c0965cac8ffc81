//! `runledger run`: one run's life, and lists of runs.

mod apply;
mod change;
mod check;
mod claim_next;
mod events;
mod heartbeat;
mod list;
mod mutation;
mod parts;
mod start;
mod update;
mod wait;
mod watch;
mod worker;

use clap::{Args, Subcommand};

use self::change::change;
use self::parts::{archive, attachments, ending, lease, redaction, rest, rows};
use super::connect::Caller;
use super::exit::{Stop, exit_codes};
use super::output::{Out, Output, RunFormat, RunOutput};
use super::table::Table;
use super::view;
use runledger_proto::{json, v1};

/// The help of `runledger run`, after its flags. A test runs every example of every command.
pub(super) const HELP: &str = concat!(
    "Examples:\n  \
    runledger run start --task-thread-id thread-1 --run-id try-1\n  \
    runledger run complete try-1\n  \
    runledger run list --context local\n\n\
    `runledger context` names servers with their TLS, token and namespace.\n",
    exit_codes!()
);

const GET: &str = concat!(
    "Examples:\n  \
    runledger run get try-1\n  \
    runledger run get run-2 --queue-label instance\n  \
    runledger run get try-1 --links\n  \
    runledger run get try-1 --output json\n\n",
    exit_codes!()
);

#[derive(Args, Debug)]
pub(super) struct RunArgs {
    #[command(subcommand)]
    command: RunCommand,
}

#[derive(Debug, Subcommand)]
enum RunCommand {
    /// Create a run, or start one that is pending
    #[command(after_help = start::HELP)]
    Start(Box<start::StartArgs>),
    /// Change a running run's links, labels and metadata
    #[command(after_help = update::HELP)]
    Update(Box<update::UpdateArgs>),
    /// Add a link to a running run: an artifact, a receipt, evidence
    #[command(after_help = attachments::LINK)]
    Link(attachments::LinkArgs),
    /// End a running run as completed
    #[command(after_help = ending::COMPLETE)]
    Complete(ending::CompleteArgs),
    /// End a pending or running run as aborted
    #[command(after_help = ending::ABORT)]
    Abort(ending::EndArgs),
    /// End a pending or running run as failed
    #[command(after_help = ending::FAIL, mut_arg("failure_reason", |reason| reason.required(true)))]
    Fail(ending::FailArgs),
    /// Take the lease of a pending run, or of one that nobody holds any more
    #[command(after_help = lease::CLAIM)]
    Claim(lease::ClaimArgs),
    /// Take the lease of the run that waits for a claim with the highest priority, then the oldest
    #[command(after_help = claim_next::HELP)]
    ClaimNext(claim_next::ClaimNextArgs),
    /// Give a lease up, so that another may claim the run
    #[command(after_help = lease::RELEASE)]
    Release(lease::ReleaseArgs),
    /// Renew a lease, and hear whether the run is to be aborted
    #[command(after_help = heartbeat::HELP)]
    Heartbeat(heartbeat::HeartbeatArgs),
    /// Ask whoever executes a run to abort it
    #[command(after_help = ending::REQUEST_ABORT)]
    RequestAbort(ending::RequestAbortArgs),
    /// Let a running run wait, without anybody who executes it
    #[command(after_help = rest::SUSPEND)]
    Suspend(rest::SuspendArgs),
    /// Let a suspended run go on
    #[command(after_help = rest::RESUME)]
    Resume(rest::ResumeArgs),
    /// Hide a run that has ended from lists and counts
    #[command(after_help = archive::ARCHIVE)]
    Archive(archive::ArchiveArgs),
    /// Show an archived run in lists and counts again
    #[command(after_help = archive::RESTORE)]
    Restore(archive::RestoreArgs),
    /// Take out of a run and its history what should not have been written
    #[command(after_help = redaction::REDACT)]
    Redact(redaction::RedactArgs),
    /// Apply commands from a file or a stream, one on each line, and write a line for each
    #[command(after_help = apply::HELP)]
    Apply(apply::ApplyArgs),
    /// Run a program as a run: start or claim it, keep it alive, and end it as the program ends
    #[command(after_help = worker::help::HELP)]
    Worker(Box<worker::WorkerArgs>),
    /// End a program whose worker is gone
    #[command(hide = true)]
    WorkerGuard(worker::guard::GuardArgs),
    /// Show a run as it is
    #[command(after_help = GET)]
    Get(GetArgs),
    /// Ask whether a transition is allowed
    #[command(after_help = check::HELP)]
    Check(check::CheckArgs),
    /// Show a run's history, oldest first
    #[command(after_help = events::HELP)]
    Events(events::EventsArgs),
    /// List runs, newest first
    #[command(after_help = list::LIST)]
    List(Box<list::ListArgs>),
    /// Count runs by status
    #[command(after_help = list::COUNT)]
    Count(Box<list::CountArgs>),
    /// Show each change of a run until it ends
    #[command(after_help = watch::HELP)]
    Watch(watch::WatchArgs),
    /// Wait until a run has ended
    #[command(after_help = wait::HELP)]
    Wait(wait::WaitArgs),
}

#[derive(Args, Debug)]
#[expect(clippy::struct_excessive_bools, reason = "each is a flag")]
struct GetArgs {
    /// The run
    run_id: String,
    /// Show a pending run's place among those with the same value of this label
    #[arg(long, value_name = "LABEL")]
    queue_label: Option<String>,
    /// Show what it was given, and nothing else
    #[arg(long, group = "part")]
    input: bool,
    /// Show what came of it, and nothing else
    #[arg(long, group = "part")]
    result: bool,
    /// Show what a late report says came of it, and nothing else
    #[arg(long, group = "part")]
    late_result: bool,
    /// Show its links, and nothing else
    #[arg(long, group = "part")]
    links: bool,
    #[command(flatten)]
    caller: Caller,
    #[command(flatten)]
    format: RunFormat,
}

pub(super) async fn run(args: RunArgs) -> Result<(), Stop> {
    match args.command {
        RunCommand::Start(args) => change(args.request()?).await.map(|made| start::tell(&made)),
        RunCommand::Update(args) => change(args.request()?).await.map(|made| update::tell(&made)),
        RunCommand::Link(args) => change(args.request()).await.map(drop),
        RunCommand::Complete(args) => change(args.request()?).await.map(|made| ending::tell(&made)),
        RunCommand::Abort(args) => change(args.abort()?).await.map(|made| ending::tell(&made)),
        RunCommand::Fail(args) => change(args.request()?).await.map(|made| ending::tell(&made)),
        RunCommand::Claim(args) => change(args.request()).await.map(drop),
        RunCommand::Release(args) => change(args.request()).await.map(drop),
        RunCommand::RequestAbort(args) => change(args.request()).await.map(drop),
        RunCommand::Suspend(args) => change(args.request()).await.map(drop),
        RunCommand::Resume(args) => change(args.request()).await.map(drop),
        RunCommand::Archive(args) => change(args.request()).await.map(drop),
        RunCommand::Restore(args) => change(args.request()).await.map(drop),
        RunCommand::Redact(args) => change(args.request()).await.map(|made| redaction::tell(&made)),
        RunCommand::ClaimNext(args) => claim_next::run(args).await,
        RunCommand::Apply(args) => apply::run(args).await,
        RunCommand::Heartbeat(args) => heartbeat::run(args).await,
        RunCommand::Worker(args) => Box::pin(worker::run(*args)).await,
        RunCommand::WorkerGuard(args) => worker::guard::run(args).await,
        RunCommand::Get(args) => get(args).await,
        RunCommand::Check(args) => check::run(args).await,
        RunCommand::Events(args) => events::run(args).await,
        RunCommand::List(args) => list::run(*args).await,
        RunCommand::Count(args) => list::count(*args).await,
        RunCommand::Watch(args) => watch::run(args).await,
        RunCommand::Wait(args) => wait::run(args).await,
    }
}

async fn get(args: GetArgs) -> Result<(), Stop> {
    let mut client = args.caller.client()?;
    let queue = args.queue_label.is_some();
    if args.links {
        let request = v1::ListLinksRequest { run_id: args.run_id.clone(), ..v1::ListLinksRequest::default() };
        let answer = args.caller.ask(&mut client, &request).await?;
        return links(&args, &answer.links, Out::new());
    }
    let is_whole = args.input || args.result || args.late_result;
    let view = is_whole.then(|| v1::RunView::Whole.into());
    let (run_id, queue_label) = (args.run_id.clone(), args.queue_label.clone());
    let request = v1::GetRunRequest { run_id, queue_label, view };
    let answer = args.caller.ask(&mut client, &request).await?;
    let mut out = Out::new();
    if is_whole {
        return part(&args, answer, out);
    }
    match args.format.output() {
        RunOutput::Ids => out.line(&answer.run.unwrap_or_default().run_id)?,
        RunOutput::As(Output::Json) => out.json(&answer)?,
        RunOutput::As(Output::Table) => {
            let mut pairs = rows(&answer.run.unwrap_or_default());
            pairs.extend(queue.then(|| view::queue_pair(answer.queue.as_ref())));
            out.pairs(&pairs)?;
        }
    }
    Ok(out.flush()?)
}

fn links(args: &GetArgs, links: &[v1::Link], mut out: Out) -> Result<(), Stop> {
    match args.format.output() {
        RunOutput::Ids => links.iter().try_for_each(|link| out.line(&link.target))?,
        RunOutput::As(Output::Json) => links.iter().try_for_each(|link| out.json(link))?,
        RunOutput::As(Output::Table) => {
            let mut table = Table::new(view::LINKS, out.width);
            let rows: Vec<_> = links.iter().map(view::link_row).collect();
            out.rows(&mut table, &rows, true)?;
        }
    }
    Ok(out.flush()?)
}

/// An object that stands beside the run: as JSON, in whatever form. To a program it goes as the text whose size and hash
/// are shown; a terminal might obey that.
fn part(args: &GetArgs, answer: v1::GetRunResponse, mut out: Out) -> Result<(), Stop> {
    let run_id = answer.run.unwrap_or_default().run_id;
    let is_late = answer.late_result.is_some();
    let (what, object) = match () {
        () if args.input => ("input", answer.input),
        () if args.late_result => ("late result", answer.late_result),
        () => ("result", answer.result),
    };
    let object = object.ok_or_else(|| {
        let hint = if args.result && is_late { "; its late report has one: --late-result" } else { "" };
        Stop::Undone(format!("run {run_id} has no {what}{hint}"))
    })?;
    let is_shown = out.width.is_some();
    out.line(&if is_shown { json::object(&object) } else { json::text(&object) })?;
    Ok(out.flush()?)
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory as _;
    use runledger_proto::fields::names;

    use super::*;
    use crate::cli::Cli;

    /// Fields of which the flag has another name, or which belong to another command.
    const OTHERS: [(&str, &str, &str); 5] = [
        ("update", "progress", "heartbeat: --done"),
        ("update", "links", "link"),
        ("update", "suspension", "--suspend-reason and others"),
        ("suspend", "timeout", "--suspend-timeout"),
        ("complete", "claim_next", "claim-next"),
    ];

    #[test]
    fn each_field_of_a_request_that_changes_a_run_has_its_flag() {
        let mut root = Cli::command();
        root.build();
        let run = root.find_subcommand("run").unwrap();
        for (command, fields) in [
            ("start", names::<v1::StartRunRequest>()),
            ("update", names::<v1::UpdateRunRequest>()),
            ("complete", names::<v1::CompleteRunRequest>()),
            ("abort", names::<v1::AbortRunRequest>()),
            ("fail", names::<v1::FailRunRequest>()),
            ("claim", names::<v1::ClaimRunRequest>()),
            ("release", names::<v1::ReleaseRunRequest>()),
            ("request-abort", names::<v1::RequestAbortRequest>()),
            ("suspend", names::<v1::SuspendRunRequest>()),
            ("resume", names::<v1::ResumeRunRequest>()),
            ("archive", names::<v1::ArchiveRunRequest>()),
            ("restore", names::<v1::RestoreRunRequest>()),
            ("redact", names::<v1::RedactRunRequest>()),
        ] {
            let flags: Vec<_> = run.find_subcommand(command).unwrap().get_arguments().map(clap::Arg::get_id).collect();
            for field in fields {
                let is_other = OTHERS.iter().any(|other| (other.0, other.1) == (command, field.as_str()));
                assert!(is_other || flags.iter().any(|flag| *flag == field.as_str()), "{command}: {field}");
            }
        }
    }
}

//! `runledger retention`: what is due by the namespaces' retention, what would be due by another one, and its purge.

pub(super) mod counted;
pub(super) mod flags;
mod server;

use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use clap::{Args, Subcommand};
use runledger_client::ServerAddress;
use serde::Serialize;

use self::flags::RetentionFlags;
use super::connect::Selected;
use super::exit::{Stop, say};
use super::ledger_access::{self, Progress};
use super::output::{Format, Out, Output};
use super::table::{Column, Table};
use crate::clock::SystemClock;
use crate::config::StoreConfig;
use crate::domain::{Namespace, Retention};
use crate::retention::{self, GRACE, Mode, Quiets};
use crate::store::retention::{Purged, Retained};
use crate::store::{self, OpenError, Store};
use crate::tasks::Supervisor;
use crate::telemetry::chain;
use crate::text::limit;
use runledger_proto::v1;

macro_rules! exit_codes {
    () => {
        "Exit codes: 0 done; 1 the walk did not come to its end, or the output cannot be written; 2 usage; 3 the store \
         or the server cannot be reached."
    };
}

pub(super) const HELP: &str = concat!(
    "Examples:\n  \
    runledger retention preview\n  \
    runledger retention run --store postgres://app:secret@db/runs --only team-a\n\n\
    A namespace says for how long runs are kept that have ended (runledger namespace update --keep). Servers purge by \
    themselves what is due, every 10 seconds, but nothing of a namespace that was changed within the last hour; this does \
    it now. It works on the database, as `migrate` does: on Postgres \
    beside servers, on an SQLite file while no server has it.\n",
    exit_codes!()
);

const PREVIEW: &str = concat!(
    "Examples:\n  \
    runledger retention preview --only team-a\n  \
    runledger retention preview --only team-a --keep 30d       what would go if it were kept so long?\n  \
    runledger retention preview --server 127.0.0.1:50051 --only team-a --keep 30d\n\n\
    With --server, a server's lists are counted, 20,000 runs at most for each time that runs are kept; a number with a + \
    is one of more.\n",
    exit_codes!()
);

const RUN: &str = concat!(
    "Examples:\n  runledger retention run --store postgres://app:secret@db/runs\n\n\
    Leaves out what was changed within the last hour, as servers do, unless --at-once says otherwise. Purges small parts, \
    each whole: it may be stopped at any time, and goes on where it was.\n",
    exit_codes!()
);

#[derive(Args, Debug)]
pub(super) struct RetentionArgs {
    #[command(subcommand)]
    command: RetentionCommand,
}

#[derive(Debug, Subcommand)]
enum RetentionCommand {
    /// Tell what would be purged now, and purge nothing
    #[command(after_help = PREVIEW)]
    Preview(Box<PreviewArgs>),
    /// Purge now what is due
    #[command(after_help = RUN)]
    Run(PurgeArgs),
}

#[derive(Args, Debug)]
struct PreviewArgs {
    #[command(flatten)]
    walk: WalkArgs,
    #[command(flatten)]
    keep: RetentionFlags,
    /// A server to ask instead of the store, which needs no access to the database
    #[arg(long, value_name = "HOST:PORT", value_delimiter = ',', help_heading = "Connection")]
    server: Vec<ServerAddress>,
    /// Time that a server has for each answer: seconds, or such as 500ms or 2m
    #[arg(long, value_name = "DURATION", default_value = "10s", value_parser = limit, help_heading = "Connection")]
    timeout: Duration,
    #[command(flatten)]
    selected: Selected,
}

#[derive(Args, Debug)]
struct PurgeArgs {
    #[command(flatten)]
    walk: WalkArgs,
    /// Purge also what became due by a change of the last hour
    #[arg(long)]
    at_once: bool,
}

#[derive(Args, Debug)]
struct WalkArgs {
    #[command(flatten)]
    store: StoreConfig,
    /// Only this namespace
    #[arg(long, value_name = "NAMESPACE")]
    only: Option<String>,
    #[command(flatten)]
    format: Format,
}

/// What was found of runs that are kept equally long.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct DueRuns {
    namespace: String,
    statuses: Vec<&'static str>,
    keep_ms: u64,
    runs: u64,
    events: u64,
    /// There are more: not all were looked at.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    more: bool,
}

const COLUMNS: &[Column] = &[
    Column::whole("NAMESPACE"),
    Column::whole("STATUS"),
    Column::whole("KEPT"),
    Column::whole("RUNS"),
    Column::whole("EVENTS"),
];

pub(super) async fn run(args: RetentionArgs) -> Result<(), Stop> {
    match args.command {
        RetentionCommand::Preview(args) => Box::pin(preview(*args)).await,
        RetentionCommand::Run(PurgeArgs { walk, at_once }) => {
            let grace = if at_once { Duration::ZERO } else { GRACE };
            let (store, retentions) = opened(&walk, "it purges by itself; stop it, and this command does").await?;
            for of in retentions.iter().filter(|of| is_meant(&walk, of) && retention::is_held(of, grace)) {
                let ago = super::namespace::lasting(Duration::from_secs(of.unchanged_for.as_secs()));
                say(&format!(
                    "{} was changed {ago} ago: nothing of it is purged within an hour, unless --at-once says so",
                    of.namespace
                ));
            }
            Box::pin(found(&walk, store, retentions, (Mode::Purge, Quiets::with_grace(grace)))).await
        }
    }
}

/// Whether a namespace is asked about.
fn is_meant(args: &WalkArgs, of: &Retained) -> bool {
    args.only.as_deref().is_none_or(|only| *of.namespace == *only)
}

async fn preview(args: PreviewArgs) -> Result<(), Stop> {
    let PreviewArgs { walk, keep, server, timeout, selected } = args;
    if keep.is_said() && walk.only.is_none() {
        return Err(Stop::Usage("--only names the namespace whose runs would be kept so long".to_owned()));
    }
    if !server.is_empty() {
        let target = selected.target(&server)?;
        return tell(&server::due(&target, timeout, walk.only.as_deref(), keep).await?, &walk.format);
    }
    let (store, mut retentions) = opened(&walk, "--server HOST:PORT asks that server").await?;
    if let (true, Some(only)) = (keep.is_said(), &walk.only) {
        let only = Namespace::from(only.as_str());
        let named = store.namespaces(std::slice::from_ref(&only)).await.context("the namespaces cannot be read")?;
        let named = named.into_iter().next().ok_or_else(|| Stop::Usage(format!("--only {only}: there is none")))?;
        let retention = within(keep.over(Some(of_wire(named.settings.retention))));
        let unchanged_for = Duration::MAX;
        retentions = vec![Retained { namespace: only, retention, revision: named.revision, unchanged_for }];
    }
    found(&walk, store, retentions, (Mode::Preview, Quiets::default())).await
}

fn of_wire(retention: Retention) -> v1::NamespaceRetention {
    let time = |ms: Option<u64>| ms.map(|ms| runledger_proto::duration(Duration::from_millis(ms)));
    v1::NamespaceRetention {
        completed: time(retention.completed_ms),
        aborted: time(retention.aborted_ms),
        failed: time(retention.failed_ms),
        until_exported: retention.until_exported,
    }
}

fn within(retention: v1::NamespaceRetention) -> Retention {
    let ms = |time: Option<runledger_proto::Duration>| {
        let time = Duration::try_from(time?).ok()?;
        Some(u64::try_from(time.as_millis()).unwrap_or(u64::MAX))
    };
    Retention {
        completed_ms: ms(retention.completed),
        aborted_ms: ms(retention.aborted),
        failed_ms: ms(retention.failed),
        until_exported: retention.until_exported,
    }
}

/// The store that is asked for, and how long its namespaces keep runs; `beside` a server that has it, the next step.
async fn opened(args: &WalkArgs, beside: &str) -> Result<(Arc<dyn Store>, Vec<Retained>), Stop> {
    // A ledger that is not there is not made for this.
    ledger_access::open(&args.store.at).await?;
    let location = args.store.location().map_err(Stop::Usage)?;
    let options = args.store.options(false, true);
    let supervisor = Supervisor::new();
    let opened = store::open::open(&location, &options, Arc::new(SystemClock), &supervisor).await;
    let store: Arc<dyn Store> = opened.map_err(|error| {
        let next = if matches!(error, OpenError::Locked { .. }) { format!(": {beside}") } else { String::new() };
        Stop::Unreachable(chain(&error) + &next)
    })?;
    let retentions = store.retentions().await.context("the namespaces cannot be read")?;
    Ok((store, retentions))
}

/// What there is to be found in a namespace, before anything is.
fn nothing_yet(namespace: &Namespace, retention: &Retention) -> Vec<DueRuns> {
    let each = retention.each().into_iter().map(|(keep_ms, statuses)| DueRuns {
        namespace: namespace.to_string(),
        statuses: statuses.iter().map(|status| status.name()).collect(),
        keep_ms,
        runs: 0,
        events: 0,
        more: false,
    });
    each.collect()
}

/// Walks, and tells what was found.
async fn found(
    args: &WalkArgs,
    store: Arc<dyn Store>,
    retentions: Vec<Retained>,
    (mode, mut quiets): (Mode, Quiets),
) -> Result<(), Stop> {
    let meant = retentions.iter().filter(|of| is_meant(args, of));
    let mut found: Vec<DueRuns> = meant.flat_map(|of| nothing_yet(&of.namespace, &of.retention)).collect();
    let only = args.only.as_deref().map(Namespace::from);
    if let Some(only) = only.as_ref().filter(|_| found.is_empty()) {
        return Err(Stop::Usage(format!("--only {only}: there is no such namespace, or it keeps its runs for ever")));
    }
    let mut progress = Progress::shown(0, "runs");
    let walked = retention::walk_over(&*store, (&retentions, only.as_ref()), mode, &mut quiets, |step| {
        let Purged { runs, events } = step.purged;
        let of = found.iter_mut().find(|of| of.namespace == *step.walk.namespace && of.keep_ms == step.walk.keep_ms);
        if let Some(of) = of {
            of.runs += runs;
            of.events += events;
        }
        progress.at(found.iter().map(|of| of.runs).sum());
        ControlFlow::Continue(())
    });
    let walked = walked.await;
    progress.end();
    store.close().await;
    walked.context("the walk did not come to its end: what was purged is purged")?;
    tell(&found, &args.format)
}

fn tell(found: &[DueRuns], format: &Format) -> Result<(), Stop> {
    let mut out = Out::new();
    match format.output {
        Output::Json => {
            for found in found {
                out.line(&serde_json::to_string(found).expect("strings and numbers serialize"))?;
            }
        }
        Output::Table => {
            let mut table = Table::new(COLUMNS, out.width);
            let rows: Vec<Vec<String>> = found.iter().map(row).collect();
            out.rows(&mut table, &rows, true)?;
        }
    }
    Ok(out.flush()?)
}

fn row(found: &DueRuns) -> Vec<String> {
    let DueRuns { namespace, statuses, keep_ms, runs, events, more } = found;
    let kept = super::namespace::lasting(Duration::from_millis(*keep_ms));
    let plus = if *more { "+" } else { "" };
    vec![namespace.clone(), statuses.join(","), kept, format!("{runs}{plus}"), format!("{events}{plus}")]
}

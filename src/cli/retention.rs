//! `runledger retention`: what is due by the namespaces' retention, and its purge.

use std::ops::ControlFlow;
use std::sync::Arc;

use anyhow::Context as _;
use clap::{Args, Subcommand};
use serde::Serialize;

use super::ending::Stop;
use super::look::{self, Progress};
use super::output::{Format, Out, Output};
use super::table::{Column, Table};
use crate::clock::SystemClock;
use crate::config::StoreConfig;
use crate::domain::Namespace;
use crate::retention::{self, Mode, Quiets};
use crate::store::retention::Purged;
use crate::store::{self, Store};
use crate::supervise::Supervisor;
use crate::telemetry::chain;

macro_rules! exit_codes {
    () => {
        "Exit codes: 0 done; 1 the walk did not come to its end, or the output cannot be written; 2 usage; 3 the store \
         cannot be opened."
    };
}

pub(super) const HELP: &str = concat!(
    "Examples:\n  \
    runledger retention preview\n  \
    runledger retention run --store postgres://app:secret@db/runs --only team-a\n\n\
    A namespace says for how long runs are kept that have ended (runledger namespace update --keep). Servers purge by \
    themselves what is due, every 10 seconds; this does it now. It works on the database, as `migrate` does: on Postgres \
    beside servers, on an SQLite file while no server has it.\n",
    exit_codes!()
);

const PREVIEW: &str = concat!("Examples:\n  runledger retention preview --only team-a\n\n", exit_codes!());

const RUN: &str = concat!(
    "Examples:\n  runledger retention run --store postgres://app:secret@db/runs\n\n\
    Purges small parts, each whole: it may be stopped at any time, and goes on where it was.\n",
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
    Preview(WalkArgs),
    /// Purge now what is due
    #[command(after_help = RUN)]
    Run(WalkArgs),
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
struct Found {
    namespace: String,
    statuses: Vec<&'static str>,
    keep_ms: u64,
    runs: u64,
    events: u64,
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
        RetentionCommand::Preview(args) => walk(args, Mode::Preview).await,
        RetentionCommand::Run(args) => walk(args, Mode::Purge).await,
    }
}

async fn walk(args: WalkArgs, mode: Mode) -> Result<(), Stop> {
    // A ledger that is not there is not made for this.
    look::open(&args.store.at).await?;
    let location = args.store.location().map_err(Stop::Usage)?;
    let options = args.store.options(false, true);
    let supervisor = Supervisor::new();
    let opened = store::open::open(&location, &options, Arc::new(SystemClock), &supervisor).await;
    let store: Arc<dyn Store> = opened.map_err(|error| Stop::Unreachable(chain(&error)))?;
    let only = args.only.as_deref().map(Namespace::from);
    let mut found: Vec<Found> = Vec::new();
    for (namespace, of) in store.retentions().await.context("the namespaces cannot be read")? {
        if only.as_ref().is_none_or(|only| *only == namespace) {
            found.extend(of.each().into_iter().map(|(keep_ms, statuses)| Found {
                namespace: namespace.to_string(),
                statuses: statuses.iter().map(|status| status.name()).collect(),
                keep_ms,
                runs: 0,
                events: 0,
            }));
        }
    }
    if let Some(only) = only.as_ref().filter(|_| found.is_empty()) {
        return Err(Stop::Usage(format!("--only {only}: there is no such namespace, or it keeps its runs for ever")));
    }
    let mut progress = Progress::shown(0, "runs");
    let mut quiets = Quiets::default();
    let walked = retention::walk(&*store, only.as_ref(), mode, &mut quiets, |step| {
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
    let mut out = Out::new();
    match args.format.output {
        Output::Json => {
            for found in &found {
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

fn row(found: &Found) -> Vec<String> {
    let Found { namespace, statuses, keep_ms, runs, events } = found;
    let kept = super::namespace::lasting(std::time::Duration::from_millis(*keep_ms));
    vec![namespace.clone(), statuses.join(","), kept, runs.to_string(), events.to_string()]
}

//! `runledger bench fill`.

use std::sync::Arc;
use std::time::Duration;

use clap::Args;
use indicatif::{HumanBytes, HumanCount};
use tokio::time::{Instant, interval};
use tokio_util::sync::CancellationToken;

use crate::cli::ending::{Stop, say};
use crate::cli::look::Progress;
use crate::clock::SystemClock;
use crate::config::Asked;
use crate::fill::{Done, Fill, FillError, Plan};
use crate::store::bulk::Bulk;
use crate::store::{self, OpenOptions};
use crate::telemetry::chain;
use runledger_bench::filled::{RUNS_MAX, SEED};
use runledger_bench::report::{Number, Report};

pub(super) const HELP: &str = "Examples:\n  \
    runledger bench fill 10000000 --store postgres://app:secret@db/runs\n  \
    runledger bench fill 100000 --store sqlite:large.db --seed 2\n\n\
    Writes to the database itself: no server is needed. On Postgres servers may run meanwhile, and may have to wait some \
    tenths of a second for a shard; a file must not be a server's at the time. A missing or empty database is made.\n\
    The runs have three events on average, 200 bytes of metadata, agents, and task threads of ten runs, some of 100,000. \
    N is how many runs of the seed there are at the end: after a fill that was ended early, the same one goes on where it \
    stopped; with another seed, it adds N others.\n\
    It says how much disk it will want, and writes nothing where there is too little. On Postgres a VACUUM (FREEZE, \
    ANALYZE) of the tables that it wrote to comes last. There is no way back but to drop the database.\n\n\
    Ctrl-C or SIGTERM ends it after the transactions in hand, a second one at once.\n\
    Exit codes: 0 filled; 1 refused, or it failed, or the output cannot be written; 2 usage; 3 the store does not \
    answer; 130 after Ctrl-C, and 143 after SIGTERM.";

/// Interval between two looks at the progress.
const TICK: Duration = Duration::from_millis(200);

#[derive(Args, Debug)]
pub(super) struct FillArgs {
    /// Runs of the seed that are there at the end
    #[arg(value_name = "N", value_parser = clap::value_parser!(u64).range(1..=RUNS_MAX))]
    runs: u64,
    /// The store to fill: sqlite:PATH or postgres://USER:PASSWORD@HOST:PORT/DATABASE. Neither `RUNLEDGER_STORE` nor a
    /// default stands in for it: what is filled is not to be the ledger that is in use
    #[arg(long, value_name = "STORE")]
    store: Asked,
    /// The choice of runs: the same seed makes the same runs
    #[arg(long, value_name = "SEED", default_value_t = SEED)]
    seed: u64,
    /// Connections to Postgres that write at the same time, one a shard at most
    #[arg(long, value_name = "N", default_value_t = 4,
          value_parser = clap::builder::RangedU64ValueParser::<usize>::new().range(1..=4))]
    connections: usize,
}

pub(super) async fn run(args: &FillArgs, stop: &CancellationToken) -> Result<Report, Stop> {
    let location = args.store.location().map_err(Stop::Usage)?;
    // Half of a store's connections write.
    let options = OpenOptions { connections: 2 * args.connections + 1, ..OpenOptions::default() };
    let opened = store::open::for_loading(&location, &options, Arc::new(SystemClock)).await;
    let bulk = opened.map_err(|error| {
        let sentence = format!("nothing was filled: {}", chain(&error));
        if error.is_temporary() { Stop::Unreachable(sentence) } else { Stop::Undone(sentence) }
    })?;
    let report = fill(args, bulk.clone(), stop).await;
    bulk.close().await;
    report
}

async fn fill(args: &FillArgs, bulk: Arc<dyn Bulk>, stop: &CancellationToken) -> Result<Report, Stop> {
    let fill = Fill::plan(bulk.clone(), args.seed, args.runs).await?;
    let plan = fill.planned().clone();
    announce(&plan, &bulk.describe().location);

    let begun = Instant::now();
    let done = Arc::new(Done::default());
    let mut progress = Progress::shown(plan.runs, "runs");
    let mut tick = interval(TICK);
    let mut filling = Box::pin(fill.run(args.runs, done.clone(), stop));
    let filled = loop {
        tokio::select! {
            biased;
            filled = &mut filling => break filled,
            _ = tick.tick() => progress.at(done.runs()),
        }
    };
    progress.end();
    let time = begun.elapsed();
    filled?;

    let vacuum = Instant::now();
    let interrupted = stop.is_cancelled() && done.runs() < plan.runs;
    let mut notes = Vec::new();
    if done.runs() > 0 && !interrupted {
        if bulk.describe().kind == "postgres" {
            say("vacuum: statistics are taken and rows are frozen; Ctrl-C leaves that to the database");
        }
        tokio::select! {
            biased;
            () = stop.cancelled() => notes.push("The vacuum was left to the database.".to_owned()),
            done = bulk.vacuum() => done?,
        }
    }
    let seconds = |time: Duration| Number::from(time.as_secs_f64());
    let rate = |count: u64| crate::cli::look::rate(count, time);
    Ok(Report {
        bench: "fill",
        did: format!("wrote runs of seed {} to {}", args.seed, bulk.describe().location),
        interrupted,
        numbers: vec![
            ("runs_there_before", plan.there.into()),
            ("runs", done.runs().into()),
            ("events", done.events().into()),
            ("seconds", seconds(time)),
            ("runs_per_second", rate(done.runs()).into()),
            ("events_per_second", rate(done.events()).into()),
            ("vacuum_seconds", seconds(vacuum.elapsed())),
        ],
        notes,
        ..Report::default()
    })
}

fn announce(plan: &Plan, location: &str) {
    let Plan { there, runs, wanted, free } = plan;
    let free = match free {
        Some((place, free)) => format!("{} are free at {}", HumanBytes(*free), place.display()),
        None => "how much is free there cannot be told from here: see to it".to_owned(),
    };
    say(&format!(
        "{} runs are there and {} are to be written to {location}: they want about {} of disk, and {free}",
        HumanCount(*there),
        HumanCount(*runs),
        HumanBytes(*wanted),
    ));
}

impl From<FillError> for Stop {
    fn from(error: FillError) -> Self {
        match error {
            FillError::Store(error) => error.into(),
            FillError::NoRoom { .. } | FillError::Foreign { .. } | FillError::Load(_) | FillError::Broken(_) => {
                Self::Undone(chain(&error))
            }
        }
    }
}

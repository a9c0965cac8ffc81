//! The delay from a commit to those who watch.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use clap::Args;
use parking_lot::Mutex;
use tokio::task::JoinSet;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::frames::{Told, Watch};
use super::matching::{Matching, Measured};
use super::{Rpc, failed, per_second};
use crate::BenchError;
use crate::pace::{self, Pace};
use crate::progress::Progress;
use crate::report::Report;
use crate::runs::{AT_ONCE, Runs};
use crate::servers::{Connections, Reach, Servers};

/// The settings of the measurement.
#[derive(Args, Clone, Debug)]
pub struct Plan {
    /// Changes to write in a second, answered or not; 0 is one at a time with pauses, about 20 a second
    #[arg(long, value_name = "N", default_value_t = 1_000)]
    rate: u32,
    /// Time to measure, in seconds
    #[arg(long, value_name = "SECONDS", default_value_t = 30, value_parser = clap::value_parser!(u32).range(1..))]
    seconds: u32,
    /// Time to write before that, in seconds
    #[arg(long, value_name = "SECONDS", default_value_t = 3)]
    warm_up: u32,
    /// Number of watchers
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..))]
    watchers: u32,
    /// The call that watches, and the writes: runs are started and completed, or the watched ones are updated
    #[arg(long, value_name = "WHAT", value_enum, default_value = "runs")]
    of: Rpc,
    #[command(flatten)]
    servers: Servers,
}

impl Plan {
    /// The servers that are called, and the way to them.
    pub fn reach(&mut self) -> Reach<'_> {
        self.servers.reach()
    }
}

/// Writes at a rate, and notes for each change when the watchers have it.
///
/// # Errors
///
/// A call failed, or changes are missing.
pub async fn measure(plan: &Plan, stop: &CancellationToken) -> Result<Report, BenchError> {
    let progress = Progress::new();
    let meter = plan.servers.meter()?;
    let (writer, reader) = plan.servers.connect().await?;
    let runs = Runs::new(writer);
    let watches = opened(plan, &runs, &reader, &progress).await?;
    let usage_before = meter.usage()?;

    let begun = Instant::now();
    let measured_from = begun + Duration::from_secs(plan.warm_up.into());
    let until = measured_from + Duration::from_secs(plan.seconds.into());
    let seen_by = match plan.of {
        Rpc::Runs => watches.len(),
        Rpc::Run => 1,
    };
    let matching = Arc::new(Matching::new(seen_by, measured_from..until));
    let mut following = JoinSet::new();
    for watch in watches {
        following.spawn(follow(watch, runs.clone(), matching.clone()));
    }
    let load =
        Load { of: plan.of, watched: plan.watchers.into(), runs, running: Arc::default(), matching: matching.clone() };
    progress.phase("changes", u64::from(plan.rate.max(20)) * (u64::from(plan.warm_up) + u64::from(plan.seconds)));
    let written = async {
        let call = |number| {
            progress.step();
            load.clone().write(number)
        };
        let made = pace::make(Pace::of(plan.rate), u64::MAX, Some(until), stop, call).await?;
        let took = begun.elapsed();
        matching.settled().await;
        load.end().await?;
        matching.settled().await;
        Ok::<_, BenchError>((made, took))
    };
    let (made, took) = tokio::select! {
        written = written => written?,
        error = failed(&mut following) => return Err(error),
    };
    let usage = meter.usage()?;
    let (missing, unexpected) = matching.left();
    if (missing, unexpected) != (0, 0) {
        return Err(BenchError::Unmatched { missing, unexpected });
    }

    let mut numbers = vec![("changes", made.into()), ("changes_per_second", per_second(made, took).into())];
    if let (Some(before), Some(after)) = (usage_before, usage) {
        numbers.push(("server_processors", after.processors_since(&before, took).into()));
    }
    let (delays_ms, before_answer) = matching.with_measured(|measured| {
        let Measured { commit_to_watcher, call_to_watcher, call, before_answer } = measured;
        let delays = [("commit_to_watcher", commit_to_watcher), ("call_to_watcher", call_to_watcher), ("call", call)];
        (delays.map(|(name, delays)| (name, delays.summary())).to_vec(), *before_answer)
    });
    numbers.push(("frames_before_answer", before_answer.into()));
    let did = format!(
        "{made} changes in {:.1} s (the first {} s not measured), {} x {}, {}",
        took.as_secs_f64(),
        plan.warm_up,
        plan.watchers,
        plan.of.name(),
        plan.servers.named()
    );
    let notes = notes(plan, per_second(made, took));
    Ok(Report {
        bench: "watch delay",
        did,
        interrupted: stop.is_cancelled(),
        numbers,
        delays_ms,
        notes,
        ..Report::default()
    })
}

fn notes(plan: &Plan, rate: f64) -> Vec<String> {
    let mut notes = vec![
        "commit to watcher: from the call's answer to the frame; a frame before the answer counts as 0".to_owned(),
        "call to watcher: from when the call was sent to the frame".to_owned(),
    ];
    if plan.rate > 0 && rate < f64::from(plan.rate) * 0.98 {
        let full = "this client or the server is full";
        notes.push(format!("only {rate:.0} of {} changes a second were written: {full}", plan.rate));
    }
    notes
}

/// Opens the watches, and waits until they are live.
async fn opened(plan: &Plan, runs: &Runs, reader: &Connections, progress: &Progress) -> Result<Vec<Watch>, BenchError> {
    let count = u64::from(plan.watchers);
    if plan.of == Rpc::Run {
        progress.phase("runs", count);
        runs.start_all(count, progress, &CancellationToken::new()).await?;
    }
    progress.phase("watches", count);
    let mut watches = Vec::new();
    for number in 0..count {
        let client = reader.of(number);
        let mut watch = match plan.of {
            Rpc::Runs => Watch::runs(client, runs.filter()).await?,
            Rpc::Run => Watch::run(client, runs.run_id(number)).await?,
        };
        watch.caught_up().await?;
        watches.push(watch);
        progress.step();
    }
    Ok(watches)
}

async fn follow(mut watch: Watch, runs: Runs, matching: Arc<Matching>) -> Result<(), BenchError> {
    loop {
        match watch.next().await? {
            Told::Change { run_id, revision } => {
                let seen = Instant::now();
                if let Some(number) = runs.number(&run_id) {
                    matching.saw(number, revision, seen);
                }
            }
            Told::End => return Ok(()),
            Told::CaughtUp(_) | Told::Checkpoint | Told::Other => {}
        }
    }
}

/// The writes of a measurement.
#[derive(Clone, Debug)]
struct Load {
    of: Rpc,
    watched: u64,
    runs: Runs,
    /// Runs that were started and can be completed.
    running: Arc<Mutex<VecDeque<u64>>>,
    matching: Arc<Matching>,
}

impl Load {
    /// Writes one change: every other one completes the run that runs longest, the others start one.
    async fn write(self, number: u64) -> Result<(), BenchError> {
        let ripe = if self.of == Rpc::Runs && number % 2 == 1 { self.next_running() } else { None };
        let (run, written) = match (self.of, ripe) {
            (Rpc::Run, _) => {
                let run = number % self.watched;
                (run, self.runs.update(run, number).await?)
            }
            (Rpc::Runs, Some(run)) => (run, self.runs.complete(run).await?),
            (Rpc::Runs, None) => {
                let written = self.runs.start(number).await?;
                self.running.lock().push_back(number);
                (number, written)
            }
        };
        self.matching.wrote(run, written);
        Ok(())
    }

    /// Completes what still runs.
    async fn end(&self) -> Result<(), BenchError> {
        let open: Vec<u64> = match self.of {
            Rpc::Runs => self.running.lock().drain(..).collect(),
            Rpc::Run => (0..self.watched).collect(),
        };
        let complete = |number: u64| {
            let (load, run) = (self.clone(), open[usize::try_from(number).expect("an index")]);
            async move {
                let written = load.runs.complete(run).await?;
                load.matching.wrote(run, written);
                Ok(())
            }
        };
        pace::make_all(open.len() as u64, AT_ONCE, &CancellationToken::new(), complete).await.map(drop)
    }

    fn next_running(&self) -> Option<u64> {
        self.running.lock().pop_front()
    }
}

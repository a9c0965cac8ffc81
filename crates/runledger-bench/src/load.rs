//! Load: many callers, what they get done in a second, and how long their calls take.

pub mod asked;
mod over_grpc;
pub(super) mod phase;
mod rounds;
mod runledger;
pub(super) mod tally;
mod waits;

use std::num::NonZeroU32;
use std::sync::Arc;
use std::time::Duration;

use clap::Args;
use tokio_util::sync::CancellationToken;

use self::asked::{Asked, Content, Draws};
pub(crate) use self::over_grpc::applied;
use self::phase::{Phase, Watched};
use self::rounds::{Rounds, Turn, Wrote};
use self::runledger::Runledger;
use super::BenchError;
use super::direct::{Direct, Side, Versus};
use super::pace::OPEN_MAX;
use super::progress::Progress;
use super::report::Report;
use super::servers::{Reach, Replicas};
use crate::fill::recipe::{RUNS_MAX, Recipe, SEED};

/// The sequence of calls that the callers repeat.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Workload {
    /// Start a run, update it twice, complete it.
    Lifecycle,
    /// Start a run, complete it.
    StartComplete,
    /// Update one of a few runs.
    HotRun {
        /// The number of runs.
        runs: u32,
    },
    /// Read one of many runs.
    Read {
        /// The number of runs that are started for it.
        runs: u32,
        /// The runs of a fill, which are read instead.
        filled: Option<Filled>,
    },
    /// Start a run, wait for its end, complete it meanwhile.
    Wait,
}

/// The runs of `bench fill`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Filled {
    recipe: Recipe,
    runs: u64,
}

/// The settings of the measurement.
#[derive(Args, Clone, Debug)]
pub struct Plan {
    /// Callers, each of which calls again once it was answered; with --rate, callers that may be busy at once [default:
    /// 32, with --rate 8192]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=65_536))]
    callers: Option<u32>,
    /// Begin this many in a second whether or not earlier ones were answered: runs, or updates or reads of such. A late
    /// call counts from the time at which it was due
    #[arg(long, value_name = "N")]
    rate: Option<NonZeroU32>,
    /// Time to measure in each round, in seconds
    #[arg(long, value_name = "SECONDS", default_value_t = 10, value_parser = clap::value_parser!(u32).range(1..))]
    seconds: u32,
    /// Time to call before that in each round, in seconds
    #[arg(long, value_name = "SECONDS", default_value_t = 3)]
    warm_up: u32,
    /// Number of rounds [default: 1, with --versus 5]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1_000))]
    rounds: Option<u32>,
    #[command(flatten)]
    content: Content,
    #[command(flatten)]
    replicas: Replicas,
    #[command(flatten)]
    versus: Versus,
}

/// The settings of a load over runs that were started before.
#[derive(Args, Clone, Debug)]
pub struct HotRunPlan {
    /// Number of runs that all callers share
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    runs: u32,
    #[command(flatten)]
    plan: Plan,
}

/// The settings of a load that reads.
#[derive(Args, Clone, Debug)]
pub struct ReadPlan {
    /// Number of runs to start first, and to read then
    #[arg(long, value_name = "N", default_value_t = 1_000, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    runs: u32,
    /// Read the runs of `bench fill N` instead, all of them alike
    #[arg(long, value_name = "N", conflicts_with = "runs", value_parser = clap::value_parser!(u64).range(1..=RUNS_MAX))]
    filled: Option<u64>,
    /// The seed of that fill
    #[arg(long, value_name = "N", default_value_t = SEED, requires = "filled")]
    fill_seed: u64,
    #[command(flatten)]
    plan: Plan,
}

impl Plan {
    /// The servers that are called, and the way to them.
    pub fn reach(&mut self) -> Reach<'_> {
        self.replicas.reach()
    }
}

impl HotRunPlan {
    /// The servers that are called, and the way to them.
    pub fn reach(&mut self) -> Reach<'_> {
        self.plan.reach()
    }

    /// See [`measure`].
    ///
    /// # Errors
    ///
    /// See [`measure`].
    pub async fn measure(&self, stop: &CancellationToken) -> Result<Report, BenchError> {
        measure(Workload::HotRun { runs: self.runs }, &self.plan, stop).await
    }
}

impl ReadPlan {
    /// The servers that are called, and the way to them.
    pub fn reach(&mut self) -> Reach<'_> {
        self.plan.reach()
    }

    /// See [`measure`].
    ///
    /// # Errors
    ///
    /// See [`measure`].
    pub async fn measure(&self, stop: &CancellationToken) -> Result<Report, BenchError> {
        let filled = self.filled.map(|runs| Filled { recipe: Recipe::new(self.fill_seed), runs });
        let runs = if filled.is_some() { 0 } else { self.runs };
        measure(Workload::Read { runs, filled }, &self.plan, stop).await
    }
}

impl Filled {
    /// The id of one of them.
    fn run_id(self, draws: &mut Draws) -> String {
        self.recipe.run_id(1 + draws.number_below(self.runs))
    }
}

impl Workload {
    /// The workload's name on the command line.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Lifecycle => "lifecycle",
            Self::StartComplete => "start-complete",
            Self::HotRun { .. } => "hot-run",
            Self::Read { .. } => "read",
            Self::Wait => "wait",
        }
    }

    /// Runs that are there before it begins.
    pub(super) fn runs(self) -> u32 {
        match self {
            Self::HotRun { runs } | Self::Read { runs, .. } => runs,
            Self::Lifecycle | Self::StartComplete | Self::Wait => 0,
        }
    }
}

impl Plan {
    fn phase(&self) -> Phase {
        let callers = self.callers.map(|callers| usize::try_from(callers).expect("32 bits"));
        Phase {
            callers: callers.unwrap_or(if self.rate.is_some() { OPEN_MAX } else { 32 }),
            rate: self.rate,
            warm_up: Duration::from_secs(self.warm_up.into()),
            time: Duration::from_secs(self.seconds.into()),
        }
    }

    fn rounds(&self, sides: &[Side]) -> u32 {
        self.rounds.unwrap_or(if sides.len() > 1 { 5 } else { 1 })
    }

    /// The load in words.
    fn named(&self, phase: &Phase, rounds: u32) -> String {
        let Self { seconds, warm_up, .. } = self;
        let who = match self.rate {
            Some(rate) => format!("{rate} a second, at most {} at once", phase.callers),
            None if phase.callers == 1 => "one caller".to_owned(),
            None => format!("{} callers", phase.callers),
        };
        let often = if rounds == 1 { String::new() } else { format!("{rounds} x ") };
        format!("{who}, {often}{seconds} s after {warm_up} s not measured, {}", self.replicas.named())
    }
}

/// Lets callers call for a time, as often as there are rounds.
///
/// # Errors
///
/// A call failed, or changed nothing.
pub async fn measure(workload: Workload, plan: &Plan, stop: &CancellationToken) -> Result<Report, BenchError> {
    plan.versus.check(workload)?;
    let progress = Progress::new();
    let asked = Asked::new(&plan.content);
    let runledger = Runledger::open(workload, &plan.replicas, asked.clone()).await?;
    // A failure here may leave the tables behind, which the next comparison drops, and no open runs.
    let direct = plan.versus.prepare(workload, &asked).await?;
    let runs = runledger.prepared(&progress, stop).await?;
    let sides = Sides { runledger, direct, runs, progress, stop };
    let measured = sides.rounds(workload, plan).await;
    // The runs are ended and the tables removed, also when a round failed; the round's failure is then the one that is
    // given.
    let (around, ended) = sides.end().await;
    let rounds = measured?;
    ended?;
    let did = plan.named(&plan.phase(), plan.rounds(&plan.versus.sides()));
    Ok(rounds.report(workload.name(), did, around, stop.is_cancelled()))
}

/// The sides of a comparison.
struct Sides<'a> {
    runledger: Runledger,
    direct: Option<Direct>,
    /// The runs that the load is on.
    runs: Arc<[String]>,
    progress: Progress,
    stop: &'a CancellationToken,
}

impl Sides<'_> {
    async fn rounds(&self, workload: Workload, plan: &Plan) -> Result<Rounds, BenchError> {
        let mut sides = plan.versus.sides();
        let count = plan.rounds(&sides);
        let durability = self.direct.as_ref().map(|direct| direct.durability.clone());
        let mut rounds = Rounds::new(workload, plan.rate, durability);
        for round in 1..=count {
            for side in &sides {
                if !self.stop.is_cancelled() {
                    let name = format!("round {round} of {count}, {}", side.name());
                    let wrote = self.turn(*side, &plan.phase(), &name).await?;
                    rounds.add(Turn { round, side: *side, wrote, whole: !self.stop.is_cancelled() });
                }
            }
            // The first side finds the machine as the round before left it, so that the order changes with each round.
            sides.reverse();
        }
        Ok(rounds)
    }

    async fn turn(&self, side: Side, phase: &Phase, name: &str) -> Result<Wrote, BenchError> {
        let watched = Watched { name, progress: &self.progress, stop: self.stop };
        let direct = || self.direct.as_ref().expect("it was prepared when it has a side");
        Ok(match side {
            Side::Runledger => Wrote::Measured(Box::new(self.runledger.phase(phase, &self.runs, watched).await?)),
            Side::Direct(baseline) => Wrote::Measured(Box::new(direct().phase(baseline, phase, watched).await?)),
            Side::Pgbench(baseline) => Wrote::Told(direct().pgbench(baseline, phase, watched).await?),
        })
    }

    /// Removes what was made. Gives how many events that and its making were.
    async fn end(self) -> (u64, Result<(), BenchError>) {
        let Self { runledger, direct, runs, progress, .. } = self;
        let dropped = match direct {
            Some(direct) => direct.end().await,
            None => Ok(()),
        };
        let ended = runledger.end(&runs, &progress).await;
        (2 * runs.len() as u64, dropped.and(ended))
    }
}

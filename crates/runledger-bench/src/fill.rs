//! Fills a ledger with finished runs, so that servers can be measured on a large one.
//!
//! Each run is made from the seed and its number. The runs are written in parts: a part begins when the one before it is
//! whole. So the first runs of the parts tell where a fill ended, and the same fill, once more, goes on there.

pub mod recipe;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use clap::Args;
use runledger_client::Repetition;
use runledger_proto::v1::{self, GetRunRequest};
use tokio::time::{Instant, sleep};
use tokio_util::sync::CancellationToken;
use tonic::Code;

use self::recipe::{Call, RUNS_MAX, Recipe, SEED};
use crate::BenchError;
use crate::load::applied;
use crate::pace;
use crate::progress::Progress;
use crate::report::{Report, per_second};
use crate::servers::{Client, Connections, Reach, Replicas};

/// The runs of a part. Its last ones are written by fewer callers than there are, and of two parts a fill that goes on
/// has to look which runs there are.
const PART_RUNS: u64 = 10_000;

/// The time for which a call that the server refuses for now is repeated.
const BUSY_MAX: Duration = Duration::from_mins(1);

/// The settings of a fill.
#[derive(Args, Clone, Debug)]
pub struct Plan {
    /// Runs of the seed that are there at the end
    #[arg(value_name = "N", value_parser = clap::value_parser!(u64).range(1..=RUNS_MAX))]
    runs: u64,
    /// The choice of runs: the same seed makes the same runs
    #[arg(long, value_name = "SEED", default_value_t = SEED)]
    seed: u64,
    /// Callers, each of which writes one run after the other
    #[arg(long, value_name = "N", default_value_t = 256, value_parser = clap::value_parser!(u32).range(1..=65_536))]
    callers: u32,
    #[command(flatten)]
    replicas: Replicas,
}

impl Plan {
    /// The servers that are called, and the way to them.
    pub fn reach(&mut self) -> Reach<'_> {
        self.replicas.reach()
    }
}

/// A fill that is under way.
struct Fill {
    recipe: Recipe,
    connections: Connections,
    there: AtomicU64,
    written: AtomicU64,
    events: AtomicU64,
}

/// Writes the runs that are missing, until the stop. After the stop, the runs that were begun are ended.
///
/// # Errors
///
/// A call failed. The same fill, once more, goes on.
pub async fn measure(plan: &Plan, stop: &CancellationToken) -> Result<Report, BenchError> {
    let progress = Progress::new();
    let connections = plan.replicas.connect().await?;
    let (there, written, events) = (AtomicU64::new(0), AtomicU64::new(0), AtomicU64::new(0));
    let fill = Arc::new(Fill { recipe: Recipe::new(plan.seed), connections, there, written, events });
    let callers = usize::try_from(plan.callers).expect("32 bits");
    let parts = plan.runs.div_ceil(PART_RUNS);
    progress.phase("runs", plan.runs);
    let begun = Instant::now();
    let first = fill.first_part(parts).await?;
    fill.there.fetch_add(first * PART_RUNS, Ordering::Relaxed);
    for part in first..parts {
        let before = part * PART_RUNS;
        let count = PART_RUNS.min(plan.runs - before);
        // A fill that was killed has left runs in these.
        let may_be_there = part <= first + 1;
        let write = |index| {
            let fill = fill.clone();
            progress.show(before + index);
            async move { fill.write(before + 1 + index, may_be_there).await }
        };
        pace::make_all(count, callers, stop, write).await?;
        if stop.is_cancelled() {
            break;
        }
    }
    Ok(fill.report(plan, begun.elapsed(), stop))
}

impl Fill {
    /// The first part that may lack runs. Every part before the last one that was begun is whole.
    async fn first_part(&self, parts: u64) -> Result<u64, BenchError> {
        let (mut begun, mut open) = (0, parts);
        while begun < open {
            let part = u64::midpoint(begun, open);
            match self.events_there(part * PART_RUNS + 1).await? {
                0 => open = part,
                _ => begun = part + 1,
            }
        }
        // The part that is found open may have been begun with another run than its first.
        Ok(begun.saturating_sub(1))
    }

    /// The events of a run that are there.
    async fn events_there(&self, number: u64) -> Result<u64, BenchError> {
        let request = GetRunRequest { run_id: self.recipe.run_id(number), ..GetRunRequest::default() };
        let begun = Instant::now();
        loop {
            match self.connections.of(number).get_run(request.clone()).await {
                Ok(answer) => return Ok(answer.into_inner().run.map_or(0, |run| run.revision)),
                Err(status) if status.code() == Code::NotFound => return Ok(0),
                Err(status) => before_again(BenchError::call("GetRun")(status), begun).await?,
            }
        }
    }

    /// Makes the calls of a run that were not made yet: each of them makes one event.
    async fn write(&self, number: u64, may_be_there: bool) -> Result<(), BenchError> {
        let made = if may_be_there { self.events_there(number).await? } else { 0 };
        let calls = self.recipe.history(number).into_iter().skip(usize::try_from(made).unwrap_or(usize::MAX));
        let mut client = self.connections.of(number);
        let mut events = 0;
        for call in calls {
            let begun = Instant::now();
            while let Err(failed) = make(&mut client, call.clone()).await {
                before_again(failed, begun).await?;
            }
            events += 1;
        }
        let counted = if events == 0 { &self.there } else { &self.written };
        counted.fetch_add(1, Ordering::Relaxed);
        self.events.fetch_add(events, Ordering::Relaxed);
        Ok(())
    }

    fn report(&self, plan: &Plan, time: Duration, stop: &CancellationToken) -> Report {
        let count = |counted: &AtomicU64| counted.load(Ordering::Relaxed);
        let (there, runs, events) = (count(&self.there), count(&self.written), count(&self.events));
        Report {
            bench: "fill",
            did: format!("wrote runs of seed {} by {} callers, {}", plan.seed, plan.callers, plan.replicas.named()),
            interrupted: stop.is_cancelled() && there + runs < plan.runs,
            numbers: vec![
                ("runs_there_before", there.into()),
                ("runs", runs.into()),
                ("events", events.into()),
                ("seconds", time.as_secs_f64().into()),
                ("runs_per_second", per_second(runs, time).into()),
                ("events_per_second", per_second(events, time).into()),
            ],
            ..Report::default()
        }
    }
}

/// Waits before a call is made again that failed because the server was busy, as long as it says that it wrote nothing.
async fn before_again(failed: BenchError, begun: Instant) -> Result<(), BenchError> {
    let BenchError::Call { status, .. } = &failed else { return Err(failed) };
    match Repetition::from(&**status) {
        Repetition::After(wait) if begun.elapsed() < BUSY_MAX => {
            sleep(wait).await;
            Ok(())
        }
        Repetition::After(_) | Repetition::Open | Repetition::Useless => Err(failed),
    }
}

async fn make(client: &mut Client, call: Call) -> Result<(), BenchError> {
    match call {
        Call::Start(request) => {
            applied("StartRun", client.start_run(*request).await, v1::StartRunResponse::disposition)
        }
        Call::Update(request) => {
            applied("UpdateRun", client.update_run(*request).await, v1::UpdateRunResponse::disposition)
        }
        Call::Complete(request) => {
            applied("CompleteRun", client.complete_run(*request).await, v1::CompleteRunResponse::disposition)
        }
        Call::Fail(request) => applied("FailRun", client.fail_run(*request).await, v1::FailRunResponse::disposition),
        Call::Abort(request) => {
            applied("AbortRun", client.abort_run(*request).await, v1::AbortRunResponse::disposition)
        }
    }
}

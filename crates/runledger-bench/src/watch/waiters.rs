//! The delay of answers to waits for a run's end, and the cost of the waits until then.

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use clap::Args;
use runledger_proto::Duration as WireDuration;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, timeout};
use tokio_util::sync::CancellationToken;

use super::STRAGGLERS_WAIT_MAX;
use super::real;
use crate::BenchError;
use crate::delays::Delays;
use crate::pace::{self, Pace};
use crate::progress::Progress;
use crate::report::{Number, Report};
use crate::runs::{Runs, Written};
use crate::servers::{Client, Reach, Servers};
use runledger_proto::v1::{WaitRunRequest, WaitRunResponse};

/// Seconds that a wait may last: longer than any measurement.
const WAIT_SECONDS: i64 = 3_600;

/// The settings of the measurement.
#[derive(Args, Clone, Debug)]
pub struct Plan {
    /// Number of waits
    #[arg(long, value_name = "N", default_value_t = 10_000, value_parser = clap::value_parser!(u32).range(1..))]
    waiters: u32,
    /// Number of runs that they wait for
    #[arg(long, value_name = "N", default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..))]
    runs: u32,
    /// Time that they wait before the first run ends, in seconds
    #[arg(long, value_name = "SECONDS", default_value_t = 10)]
    seconds: u32,
    /// Runs to complete in a second; 0 completes all at once
    #[arg(long, value_name = "N", default_value_t = 20)]
    rate: u32,
    #[command(flatten)]
    servers: Servers,
}

impl Plan {
    /// The servers that are called, and the way to them.
    pub fn reach(&mut self) -> Reach<'_> {
        self.servers.reach()
    }
}

/// An answered wait.
struct Waited {
    run: u64,
    answered: Instant,
    timed_out: bool,
}

/// Waits for runs, completes them, and notes when the waits are answered.
///
/// # Errors
///
/// A call failed, or a wait was not answered.
pub async fn measure(plan: &Plan, stop: &CancellationToken) -> Result<Report, BenchError> {
    let progress = Progress::new();
    let meter = plan.servers.meter()?;
    let (writer, reader) = plan.servers.connect_for(plan.waiters).await?;
    let runs = Runs::new(writer);
    progress.phase("runs", plan.runs.into());
    let count = runs.start_all(plan.runs.into(), &progress, &CancellationToken::new()).await?;

    let before = meter.usage()?;
    let mut waits = JoinSet::new();
    for number in 0..u64::from(plan.waiters) {
        let run = number % count;
        waits.spawn(wait(reader.of(number), run, runs.run_id(run)));
    }
    progress.phase("the waits stay", 0);
    // The first half is for the calls to arrive: nobody tells when they have.
    let half = Duration::from_secs(plan.seconds.into()) / 2;
    pause(half, stop).await;
    let arrived = meter.usage()?;
    let held = pause(half, stop).await;
    let after = meter.usage()?;

    progress.phase("runs", count);
    let completed: Arc<[OnceLock<Written>]> = (0..count).map(|_| OnceLock::new()).collect();
    let complete = |run: u64| {
        let (runs, completed) = (runs.clone(), completed.clone());
        progress.step();
        async move {
            let written = runs.complete(run).await?;
            let _first = completed[usize::try_from(run).expect("an index")].set(written);
            Ok(())
        }
    };
    // Every run is ended, whoever is in a hurry.
    let all = CancellationToken::new();
    if plan.rate == 0 {
        pace::make_all(count, usize::MAX, &all, complete).await?;
    } else {
        pace::make(Pace::of(plan.rate), count, None, &all, complete).await?;
    }
    let answered = timeout(STRAGGLERS_WAIT_MAX, answers(&mut waits, &completed)).await;
    let (commit_to_answer, call_to_answer, early) =
        answered.map_err(|_elapsed| BenchError::Unmatched { missing: waits.len() as u64, unexpected: 0 })??;

    let mut numbers: Vec<(&'static str, Number)> = vec![
        ("waiters", u64::from(plan.waiters).into()),
        ("runs", count.into()),
        ("answers_before_commit_answer", early.into()),
    ];
    if let (Some(before), Some(arrived), Some(after)) = (before, arrived, after) {
        let grown = after.resident_kib.saturating_sub(before.resident_kib);
        numbers.extend([
            ("server_kib_per_waiter", (real(grown) / f64::from(plan.waiters)).into()),
            ("server_processors_waiting", after.processors_since(&arrived, held).into()),
        ]);
    }
    let delays_ms =
        vec![("commit_to_answer", commit_to_answer.summary()), ("call_to_answer", call_to_answer.summary())];
    let notes = vec![
        "commit to answer: from the completing call's answer to the wait's; one before it counts as 0".to_owned(),
        "call to answer: from when the completing call was sent".to_owned(),
    ];
    let how = if plan.rate == 0 { "at once".to_owned() } else { format!("{} a second", plan.rate) };
    let did = format!("{} x WaitRun on {count} runs, completed {how}, {}", plan.waiters, plan.servers.named());
    Ok(Report {
        bench: "watch waiters",
        did,
        interrupted: stop.is_cancelled(),
        numbers,
        delays_ms,
        notes,
        ..Report::default()
    })
}

async fn wait(mut client: Client, run: u64, run_id: String) -> Result<Waited, BenchError> {
    let limit = WireDuration { seconds: WAIT_SECONDS, nanos: 0 };
    let waited = client.wait_run(WaitRunRequest { run_id, timeout: Some(limit), until: 0 }).await;
    let answered = Instant::now();
    let WaitRunResponse { timed_out, .. } = waited.map_err(BenchError::call("WaitRun"))?.into_inner();
    Ok(Waited { run, answered, timed_out })
}

/// The delays of all answers, and how many came before the completing call's own.
async fn answers(
    waits: &mut JoinSet<Result<Waited, BenchError>>,
    completed: &[OnceLock<Written>],
) -> Result<(Delays, Delays, u64), BenchError> {
    let (mut commit_to_answer, mut call_to_answer) = (Delays::new(), Delays::new());
    let (mut early, mut timed_out) = (0, 0);
    while let Some(waited) = waits.join_next().await {
        let waited = waited??;
        timed_out += u64::from(waited.timed_out);
        let written = completed[usize::try_from(waited.run).expect("an index")].get();
        let written = written.ok_or(BenchError::Unmatched { missing: 0, unexpected: 1 })?;
        early += u64::from(waited.answered < written.answered);
        commit_to_answer.record(waited.answered.saturating_duration_since(written.answered));
        call_to_answer.record(waited.answered.saturating_duration_since(written.sent));
    }
    if timed_out > 0 { Err(BenchError::TimedOut { timed_out }) } else { Ok((commit_to_answer, call_to_answer, early)) }
}

/// Gives how long it was.
async fn pause(time: Duration, stop: &CancellationToken) -> Duration {
    let begun = Instant::now();
    tokio::select! {
        () = stop.cancelled() => {}
        () = sleep(time) => {}
    }
    begun.elapsed()
}

//! The cost of keeping many runs alive.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use clap::Args;
use parking_lot::Mutex;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::LEASE_TTL;
use crate::BenchError;
use crate::delays::Delays;
use crate::pace::{self, Pace};
use crate::progress::Progress;
use crate::report::{Number, Report, per_second};
use crate::runs::{AT_ONCE, Runs};
use crate::servers::{Connections, Reach, Servers};
use runledger_proto::v1::{CompleteRunRequest, HeartbeatRunRequest, StartRunRequest};

/// The settings of the measurement.
#[derive(Args, Clone, Debug)]
pub struct Plan {
    /// Number of runs that are held
    #[arg(long, value_name = "N", default_value_t = 20_000, value_parser = clap::value_parser!(u32).range(1..))]
    runs: u32,
    /// Interval between two heartbeats of a run, in seconds
    #[arg(long, value_name = "SECONDS", default_value_t = 10, value_parser = clap::value_parser!(u32).range(1..=60))]
    every: u32,
    /// Time to measure, in seconds
    #[arg(long, value_name = "SECONDS", default_value_t = 60, value_parser = clap::value_parser!(u32).range(1..))]
    seconds: u32,
    #[command(flatten)]
    servers: Servers,
}

impl Plan {
    /// The servers that are called, and the way to them.
    pub fn reach(&mut self) -> Reach<'_> {
        self.servers.reach()
    }
}

/// Starts runs under leases, renews them at an even pace, and completes them.
///
/// # Errors
///
/// A call failed: also a heartbeat that came too late.
pub async fn measure(plan: &Plan, stop: &CancellationToken) -> Result<Report, BenchError> {
    let progress = Progress::new();
    let meter = plan.servers.meter()?;
    let (connections, _) = plan.servers.connect().await?;
    let runs = Runs::new(connections.clone());
    let (started, lease_epoch) = start(plan, &connections, &runs, &progress, stop).await?;
    let before = meter.usage()?;
    let begun = Instant::now();
    let rate = plan.runs.div_ceil(plan.every);
    let beats = u64::from(rate) * u64::from(plan.seconds);
    progress.phase("heartbeats", beats);
    let delays = Arc::new(Mutex::new(Delays::new()));
    let beat = |number: u64| {
        let run = number % started.max(1);
        let (mut client, runs, delays) = (connections.of(run), runs.clone(), delays.clone());
        progress.step();
        async move {
            let sent = Instant::now();
            let request =
                HeartbeatRunRequest { run_id: runs.run_id(run), lease_epoch, ..HeartbeatRunRequest::default() };
            client.heartbeat_run(request).await.map_err(BenchError::call("HeartbeatRun"))?;
            delays.lock().record(sent.elapsed());
            Ok(())
        }
    };
    let made = pace::make(Pace::of(rate), if started == 0 { 0 } else { beats }, None, stop, beat).await?;
    let took = begun.elapsed();
    let after = meter.usage()?;

    complete(started, lease_epoch, &connections, &runs, &progress).await?;
    let mut numbers: Vec<(&'static str, Number)> = vec![
        ("runs", started.into()),
        ("heartbeats", made.into()),
        ("heartbeats_per_second", per_second(made, took).into()),
    ];
    if let (Some(before), Some(after)) = (before, after) {
        numbers.extend([
            ("server_processors", after.processors_since(&before, took).into()),
            ("server_kib", after.resident_kib.into()),
        ]);
    }
    let delays = delays.lock().summary();
    let every = Duration::from_secs(plan.every.into());
    Ok(Report {
        bench: "leases heartbeats",
        did: format!(
            "{started} runs renewed every {every:?} for {:.1} s, {}",
            took.as_secs_f64(),
            plan.servers.named()
        ),
        interrupted: stop.is_cancelled(),
        numbers,
        delays_ms: vec![("heartbeat", delays)],
        ..Report::default()
    })
}

/// Starts the runs, each under a lease. Returns how many there are, and the epoch of their leases.
async fn start(
    plan: &Plan,
    connections: &Connections,
    runs: &Runs,
    progress: &Progress,
    stop: &CancellationToken,
) -> Result<(u64, u64), BenchError> {
    let count = u64::from(plan.runs);
    progress.phase("runs", count);
    let epoch = Arc::new(AtomicU64::new(0));
    let start = |number| {
        let (mut client, runs, epoch) = (connections.of(number), runs.clone(), epoch.clone());
        progress.step();
        async move {
            let request = StartRunRequest {
                task_thread_id: runs.thread().to_owned(),
                run_id: runs.run_id(number),
                lease_ttl: Some(LEASE_TTL),
                ..StartRunRequest::default()
            };
            let answer = client.start_run(request).await.map_err(BenchError::call("StartRun"))?.into_inner();
            // The first leases of a ledger's runs have all one epoch.
            let lease = answer.run.and_then(|run| run.lease);
            epoch.store(lease.map_or(0, |lease| lease.epoch), Ordering::Relaxed);
            Ok(())
        }
    };
    let started = pace::make_all(count, AT_ONCE, stop, start).await?;
    Ok((started, epoch.load(Ordering::Relaxed)))
}

/// Completes the runs, also after a stop.
async fn complete(
    started: u64,
    lease_epoch: u64,
    connections: &Connections,
    runs: &Runs,
    progress: &Progress,
) -> Result<(), BenchError> {
    progress.phase("ends", started);
    let complete = |number| {
        let (mut client, runs) = (connections.of(number), runs.clone());
        progress.step();
        async move {
            let request =
                CompleteRunRequest { run_id: runs.run_id(number), lease_epoch, ..CompleteRunRequest::default() };
            client.complete_run(request).await.map(drop).map_err(BenchError::call("CompleteRun"))
        }
    };
    pace::make_all(started, AT_ONCE, &CancellationToken::new(), complete).await.map(drop)
}

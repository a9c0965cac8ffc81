//! The rate at which pending runs are claimed.

use std::collections::HashSet;

use clap::Args;
use tokio::task::JoinSet;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::LEASE_TTL;
use crate::BenchError;
use crate::delays::Delays;
use crate::pace;
use crate::progress::Progress;
use crate::random::draw_id;
use crate::report::{Report, per_second};
use crate::runs::{AT_ONCE, Runs};
use crate::servers::{Client, Reach, Replicas};
use runledger_proto::v1::run_command::Command;
use runledger_proto::v1::{
    ApplyCommandsRequest, ClaimNextRunRequest, ClaimNextRunResponse, CompleteRunRequest, MaxRunning, Run, RunCommand,
    StartRunRequest,
};

/// The label that has instances as values.
const INSTANCE: &str = "instance";
/// Time that a worker waits for a run whose value has room.
const WAIT: runledger_proto::Duration = runledger_proto::Duration { seconds: 2, nanos: 0 };

/// The settings of the measurement.
#[derive(Args, Clone, Debug)]
pub struct Plan {
    /// Number of pending runs
    #[arg(long, value_name = "N", default_value_t = 10_000, value_parser = clap::value_parser!(u32).range(1..))]
    runs: u32,
    /// Number of workers, each of which claims and completes runs, one call after the other
    #[arg(long, value_name = "N", default_value_t = 50, value_parser = clap::value_parser!(u32).range(1..))]
    workers: u32,
    /// Spread the runs over this many values of a label, of each of which one run may be running [default: no limit]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    instances: Option<u32>,
    /// Runs that a worker claims in one call at most, and then completes in one
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=100))]
    max_runs: u32,
    #[command(flatten)]
    servers: Replicas,
}

impl Plan {
    /// The servers that are called, and the way to them.
    pub fn reach(&mut self) -> Reach<'_> {
        self.servers.reach()
    }
}

/// The work that a worker did.
struct Done {
    runs: Vec<String>,
    claims: Delays,
    /// The time at which the worker completed its last run.
    last: Option<Instant>,
}

/// Makes pending runs, and lets workers take them until none is left.
///
/// # Errors
///
/// A call failed, or a run was taken twice or never.
pub async fn measure(plan: &Plan, stop: &CancellationToken) -> Result<Report, BenchError> {
    let progress = Progress::new();
    let connections = plan.servers.connect().await?;
    let runs = Runs::new(connections.clone());
    let count = u64::from(plan.runs);
    progress.phase("runs", count);
    let instances = plan.instances.map(u64::from);
    let start = |number| {
        let (mut client, runs) = (connections.of(number), runs.clone());
        progress.step();
        async move {
            let request = StartRunRequest {
                task_thread_id: runs.thread().to_owned(),
                run_id: runs.run_id(number),
                deferred: true,
                labels: instances.map(|of| (INSTANCE.to_owned(), (number % of).to_string())).into_iter().collect(),
                ..StartRunRequest::default()
            };
            client.start_run(request).await.map(drop).map_err(BenchError::call("StartRun"))
        }
    };
    // The runs that were made are claimed, even after the stop.
    let made = pace::make_all(count, AT_ONCE, stop, start).await?;

    progress.phase("claims", 0);
    let begun = Instant::now();
    let mut workers = JoinSet::new();
    for number in 0..u64::from(plan.workers) {
        let request = ClaimNextRunRequest {
            filter: Some(runs.filter()),
            lease_ttl: Some(LEASE_TTL),
            // Where all runs that are left wait for their turn, a claim may take a while.
            wait: instances.map(|_| WAIT),
            max_running: instances.map(|_| MaxRunning { label: INSTANCE.to_owned(), limit: 1 }),
            request_id: String::new(),
            take: 0,
            max_runs: plan.max_runs,
        };
        workers.spawn(drain(connections.of(number), request));
    }
    let (mut claims, mut taken, mut claimed, mut last) = (Delays::new(), HashSet::new(), 0, None);
    while let Some(done) = workers.join_next().await {
        let done = done??;
        claims.add(&done.claims);
        claimed += done.runs.len() as u64;
        last = last.max(done.last);
        taken.extend(done.runs);
    }
    // The time does not include the wait that told the last worker that there is no more.
    let took = last.map_or_else(|| begun.elapsed(), |last| last - begun);
    let once = taken.len() as u64;
    let of = instances.map_or_else(String::new, |of| format!(" of {of} instances, of each one at a time"));
    if once != made || claimed != made {
        return Err(BenchError::Unmatched { missing: made.saturating_sub(once), unexpected: claimed - once });
    }
    Ok(Report {
        bench: "leases claims",
        did: format!("{} workers claimed and completed {made} runs{of}, {}", plan.workers, plan.servers.named()),
        interrupted: stop.is_cancelled(),
        numbers: vec![("runs", made.into()), ("claims_per_second", per_second(made, took).into())],
        delays_ms: vec![("claim", claims.summary())],
        notes: vec![format!(
            "each worker claims up to {} in one call, and completes them before it claims more",
            plan.max_runs,
        )],
        ..Report::default()
    })
}

async fn drain(mut client: Client, request: ClaimNextRunRequest) -> Result<Done, BenchError> {
    let mut done = Done { runs: Vec::new(), claims: Delays::new(), last: None };
    loop {
        let sent = Instant::now();
        // The call has a `request_id`, as a worker's has, so that no run is lost with an answer.
        let asked = ClaimNextRunRequest { request_id: draw_id().to_string(), ..request.clone() };
        let answer = client.claim_next_run(asked).await.map_err(BenchError::call("ClaimNextRun"))?;
        let ClaimNextRunResponse { run, more_runs, .. } = answer.into_inner();
        let claimed: Vec<Run> = run.into_iter().chain(more_runs).collect();
        if claimed.is_empty() {
            return Ok(done);
        }
        done.claims.record(sent.elapsed());
        match claimed.as_slice() {
            [run] => {
                client.complete_run(end(run)).await.map_err(BenchError::call("CompleteRun"))?;
            }
            runs => complete_all(&mut client, runs.iter().map(end)).await?,
        }
        done.runs.extend(claimed.into_iter().map(|run| run.run_id));
        done.last = Some(Instant::now());
    }
}

fn end(run: &Run) -> CompleteRunRequest {
    let lease_epoch = run.lease.as_ref().map_or(0, |lease| lease.epoch);
    CompleteRunRequest { run_id: run.run_id.clone(), lease_epoch, ..CompleteRunRequest::default() }
}

async fn complete_all(client: &mut Client, ends: impl Iterator<Item = CompleteRunRequest>) -> Result<(), BenchError> {
    let commands = ends.map(|end| RunCommand { command: Some(Command::Complete(end)) }).collect();
    let asked = ApplyCommandsRequest { commands, view: None };
    let answer = client.apply_commands(asked).await.map_err(BenchError::call("ApplyCommands"))?;
    match answer.into_inner().results.into_iter().find_map(|result| result.error) {
        None => Ok(()),
        Some(error) => Err(BenchError::Command { message: error.message }),
    }
}

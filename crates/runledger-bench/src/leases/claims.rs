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
    /// Claim the next run in the call that completes the one before
    #[arg(long, conflicts_with = "max_runs")]
    claim_next: bool,
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
        workers.spawn(drain(connections.of(number), request, plan.claim_next));
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
        notes: vec![if plan.claim_next {
            "each worker claims its next run in the call that completes the one before: a claim's time is that of both"
                .to_owned()
        } else {
            let max_runs = plan.max_runs;
            format!("each worker claims up to {max_runs} in one call, and completes them before it claims more")
        }],
        ..Report::default()
    })
}

async fn drain(mut client: Client, request: ClaimNextRunRequest, at_once: bool) -> Result<Done, BenchError> {
    let mut done = Done { runs: Vec::new(), claims: Delays::new(), last: None };
    // The claim has a `request_id`, as a worker's has, so that no run is lost with an answer.
    let ask = || ClaimNextRunRequest { request_id: draw_id().to_string(), ..request.clone() };
    let mut next = None;
    loop {
        let claimed = if let Some(claimed) = next.take() {
            claimed
        } else {
            let sent = Instant::now();
            let answer = client.claim_next_run(ask()).await.map_err(BenchError::call("ClaimNextRun"))?;
            done.claims.record(sent.elapsed());
            runs_of(answer.into_inner())
        };
        match claimed.as_slice() {
            [] => return Ok(done),
            [run] => {
                let sent = Instant::now();
                // A claim that waits has a call of its own.
                let claim_next = at_once.then(|| Box::new(ClaimNextRunRequest { wait: None, ..ask() }));
                let end = CompleteRunRequest { claim_next, ..end(run) };
                let answer = client.complete_run(end).await.map_err(BenchError::call("CompleteRun"))?.into_inner();
                if let Some(error) = answer.claim_error {
                    return Err(BenchError::Command { message: error.message });
                }
                next = answer
                    .claimed
                    .map(|claimed| runs_of(*claimed))
                    .filter(|claimed| request.wait.is_none() || !claimed.is_empty());
                if at_once {
                    done.claims.record(sent.elapsed());
                }
            }
            runs => complete_all(&mut client, runs.iter().map(end)).await?,
        }
        done.runs.extend(claimed.into_iter().map(|run| run.run_id));
        done.last = Some(Instant::now());
    }
}

fn runs_of(ClaimNextRunResponse { run, more_runs, .. }: ClaimNextRunResponse) -> Vec<Run> {
    run.into_iter().chain(more_runs).collect()
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

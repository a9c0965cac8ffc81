//! `runledger run claim-next`.

use std::time::Duration;

use clap::Args;
use clap::builder::NonEmptyStringValueParser;
use tokio::time::{Instant, sleep};

use super::change::show_all;
use crate::cli::connect::Server;
use crate::cli::exit::{Stop, exit_codes, say};
use crate::cli::fields::{Label, MaxRunning, Take, labels};
use crate::cli::output::RunFormat;
use crate::clock;
use crate::text::{limit, seconds_or_duration};
use runledger_client::Kind;
use runledger_proto::v1;

pub(super) const HELP: &str = concat!(
    "Examples:\n  \
    runledger run claim-next --label team=search --wait 1s\n  \
    runledger run claim-next --max-running instance=1 --lease-ttl 1m --output json\n  \
    runledger run claim-next --take both --wait 1s\n  \
    runledger run claim-next --label team=search --max-runs 10 --quiet\n\n\
    Each run is for one caller. The answer names each run and the epoch of its lease: send a heartbeat every third of the \
    ttl, or give the run back by `runledger run release --not-begun`. A claim that is cut off is made \
    again under the same request id, so no run is taken for an answer that gets lost. No run to claim within --wait: 4. `runledger run \
    worker --claim` does all of it for a program.\n",
    exit_codes!()
);

/// Wait before a claim that was not answered is made again.
const AGAIN_AFTER: Duration = Duration::from_millis(500);

#[derive(Args, Debug)]
pub(super) struct ClaimNextArgs {
    /// Runs of this task thread
    #[arg(long, visible_alias = "task-thread-id", value_name = "ID", value_parser = NonEmptyStringValueParser::new())]
    task_thread: Option<String>,
    /// Runs of this workflow
    #[arg(long, visible_alias = "workflow-id", value_name = "ID", value_parser = NonEmptyStringValueParser::new())]
    workflow: Option<String>,
    /// Runs with this label; repeat it for more, all of which they must have
    #[arg(long = "label", value_name = "KEY=VALUE")]
    labels: Vec<Label>,
    /// Which runs: pending ones, suspended ones that are ready to go on, or both
    #[arg(long, value_name = "WHICH", value_enum, default_value = "pending")]
    take: Take,
    /// Time that the lease lasts without a heartbeat
    #[arg(long, value_name = "DURATION", value_parser = seconds_or_duration, default_value = "30s")]
    lease_ttl: Duration,
    /// Time to wait for a run
    #[arg(long, value_name = "DURATION", value_parser = seconds_or_duration, default_value = "0s")]
    wait: Duration,
    /// Runs to claim at most, 1 to 100: what is there comes at once
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=100))]
    max_runs: u32,
    /// Pass over runs while N (1 to 100) with the same value of this label are running that were claimed so
    #[arg(long, value_name = "LABEL=N")]
    max_running: Option<MaxRunning>,
    /// Id that makes this call the same as an earlier one: it is then answered with the same run
    #[arg(long, value_name = "ID", value_parser = NonEmptyStringValueParser::new())]
    request_id: Option<String>,
    /// Time to wait for an answer, beside --wait: seconds, or such as 500ms or 2m
    #[arg(long, value_name = "DURATION", default_value = "10s", value_parser = limit, help_heading = "Connection")]
    timeout: Duration,
    #[command(flatten)]
    server: Server,
    #[command(flatten)]
    format: RunFormat,
}

fn request_id() -> String {
    format!("cli-{}", clock::draw_id())
}

pub(super) async fn run(args: ClaimNextArgs) -> Result<(), Stop> {
    let filter = v1::RunFilter {
        task_thread_id: args.task_thread.unwrap_or_default(),
        workflow_id: args.workflow.unwrap_or_default(),
        labels: labels(args.labels)?,
        ..v1::RunFilter::default()
    };
    let own_id = args.request_id.is_none();
    let mut request = v1::ClaimNextRunRequest {
        filter: Some(filter),
        lease_ttl: Some(runledger_proto::duration(args.lease_ttl)),
        wait: None,
        max_running: args.max_running.as_ref().map(MaxRunning::message),
        request_id: args.request_id.unwrap_or_else(request_id),
        take: args.take.message(),
        max_runs: args.max_runs,
    };
    let until = Instant::now().checked_add(args.wait).and_then(|until| until.checked_add(args.timeout));
    let until = until.ok_or_else(|| Stop::Usage("--wait is too long".to_owned()))?;
    let mut client = args.server.client()?;
    let mut lost = false;
    let answer = loop {
        let left = until.saturating_duration_since(Instant::now()).saturating_sub(args.timeout);
        request.wait = Some(runledger_proto::duration(left));
        match client.attempt(&request, until).await {
            Ok(answer) => break answer,
            // No server was ever reached.
            Err(failure) if !lost && failure.kind == Kind::Unreachable && failure.reason.is_none() => {
                return Err(failure.into());
            }
            // The run that this call was granted was given back, because nobody received the answer.
            Err(failure) if lost && own_id && failure.reason.as_deref() == Some("LEASE_LOST") => {
                request.request_id = request_id();
            }
            Err(failure) if failure.kind == Kind::Refused => return Err(failure.into()),
            Err(failure) if Instant::now() + AGAIN_AFTER >= until => {
                say(&format!("what was claimed is claimed under --request-id {}", request.request_id));
                return Err(failure.into());
            }
            // The same id is used again: a run whose claim was not answered belongs to this call.
            Err(failure) => {
                if !std::mem::replace(&mut lost, true) {
                    say(&format!("{failure} (trying again)"));
                }
                sleep(AGAIN_AFTER).await;
            }
        }
    };
    match &answer.run {
        Some(run) => show_all(&args.format, &answer, std::iter::once(run).chain(&answer.more_runs), answer.disposition),
        None if args.wait.is_zero() => Err(Stop::TimedOut("there was no run to claim: nothing was claimed".to_owned())),
        None => Err(Stop::TimedOut(format!("there was no run to claim for {:?}: nothing was claimed", args.wait))),
    }
}

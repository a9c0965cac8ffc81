//! `runledger run suspend` and `runledger run resume`.

use std::time::Duration;

use clap::Args;
use clap::builder::NonEmptyStringValueParser;

use super::mutations::{Holder, Mutation};
use super::phases::Stand;
use crate::cli::exit::Stop;
use crate::cli::fields::{self, MaxRunning};
use crate::text::{seconds_or_duration, within};
use runledger_proto::v1;

#[derive(Args, Debug)]
pub(super) struct SuspendArgs {
    /// The run
    run_id: String,
    /// What it waits for: HELP, PAUSED, INTERRUPTED, BLOCKED, FEEDBACK, or a word of yours of A-Z, 0-9 and _
    #[arg(long, value_name = "KIND", value_parser = fields::suspension_kind)]
    kind: String,
    /// Reason, for people
    #[arg(long, value_name = "TEXT", value_parser = NonEmptyStringValueParser::new())]
    reason: String,
    /// How to go on, for whoever resumes it
    #[arg(long, value_name = "TEXT")]
    resume_hint: Option<String>,
    /// Time that it may wait; then the authority aborts it [default: for ever]
    #[arg(long, value_name = "DURATION", value_parser = seconds_or_duration)]
    suspend_timeout: Option<Duration>,
    /// Time that it may be ready then; not claimed by then, it ends as FAILED / ORPHANED [default: for ever]
    #[arg(long, value_name = "DURATION", value_parser = seconds_or_duration)]
    ready_timeout: Option<Duration>,
    /// Let it count towards --max-running all the same
    #[arg(long)]
    keep_slot: bool,
    #[command(flatten)]
    stand: Stand,
    #[command(flatten)]
    holder: Holder,
    #[command(flatten)]
    mutation: Mutation,
}

#[derive(Args, Debug)]
pub(super) struct ResumeArgs {
    /// The run
    run_id: String,
    /// Reason, for people; required after HELP, BLOCKED and INTERRUPTED
    #[arg(long, value_name = "TEXT")]
    reason: Option<String>,
    /// Take its lease for so long, and execute it [default: the next claim takes the run]
    #[arg(long, value_name = "DURATION", value_parser = seconds_or_duration)]
    lease_ttl: Option<Duration>,
    /// Refuse where N (1 to 100) runs with its value of this label are running that were claimed so
    #[arg(long, value_name = "LABEL=N", requires = "lease_ttl")]
    max_running: Option<MaxRunning>,
    /// Iteration that it may come to from now on
    #[arg(long, value_name = "N", value_parser = within(1..=u32::MAX))]
    max_iterations: Option<u32>,
    #[command(flatten)]
    stand: Stand,
    #[command(flatten)]
    mutation: Mutation,
}

pub(super) async fn suspend(args: SuspendArgs) -> Result<(), Stop> {
    let request = v1::SuspendRunRequest {
        run_id: args.run_id,
        kind: args.kind,
        reason: args.reason,
        resume_hint: args.resume_hint.unwrap_or_default(),
        timeout: args.suspend_timeout.map(runledger_proto::duration),
        ready_timeout: args.ready_timeout.map(runledger_proto::duration),
        keep_slot: args.keep_slot,
        lease_epoch: args.holder.lease_epoch,
        phase: args.stand.phase(),
        request_id: args.mutation.request_id(),
        expected_revision: args.mutation.expected_revision,
    };
    let answer = args.mutation.caller.ask(&mut args.mutation.caller.client()?, &request).await?;
    args.mutation.show(&answer, answer.run.as_ref(), answer.disposition)
}

pub(super) async fn resume(args: ResumeArgs) -> Result<(), Stop> {
    let request = v1::ResumeRunRequest {
        run_id: args.run_id,
        reason: args.reason.unwrap_or_default(),
        phase: args.stand.phase(),
        lease_ttl: args.lease_ttl.map(runledger_proto::duration),
        max_running: args.max_running.as_ref().map(MaxRunning::message),
        max_iterations: args.max_iterations.unwrap_or_default(),
        request_id: args.mutation.request_id(),
        expected_revision: args.mutation.expected_revision,
    };
    let answer = args.mutation.caller.ask(&mut args.mutation.caller.client()?, &request).await?;
    args.mutation.show(&answer, answer.run.as_ref(), answer.disposition)
}

//! The calls that change a run. Every call has a `request_id`, so that a call that was cut off can be sent again.

use std::time::Duration;

use clap::Args;
use clap::builder::NonEmptyStringValueParser;

use super::link::Brought;
use super::phases::{Begin, Stand};
use super::unchanged;
use crate::cli::connect::Caller;
use crate::cli::exit::{Stop, say};
use crate::cli::fields::{self, JsonSource, Label, MaxRunning, Route};
use crate::cli::output::{Out, Output, RunFormat, RunOutput};
use crate::cli::view;
use crate::clock;
use crate::text::{MaybeEmpty, count, seconds_or_duration, within};
use runledger_proto::Struct;
use runledger_proto::json::Named;
use runledger_proto::v1;

/// The flag by which the holder of a run's lease proves that it holds it.
#[derive(Args, Debug)]
pub(super) struct Holder {
    /// The epoch of the lease that you hold, where the run has one
    #[arg(long, value_name = "N", default_value_t = 0, hide_default_value = true, value_parser = count::<u64>)]
    pub(super) lease_epoch: u64,
}

/// The flags of every mutation.
#[derive(Args, Debug)]
pub(super) struct Mutation {
    /// Id that makes this call the same as an earlier one: it is then applied once
    #[arg(long, value_name = "ID", value_parser = NonEmptyStringValueParser::new())]
    request_id: Option<String>,
    /// Refuse unless the run is at this revision (start: 0 when it must not exist)
    #[arg(long, value_name = "N", value_parser = count::<u64>)]
    pub(super) expected_revision: Option<u64>,
    #[command(flatten)]
    pub(super) caller: Caller,
    #[command(flatten)]
    format: RunFormat,
}

#[derive(Args, Debug)]
pub(super) struct StartArgs {
    /// The orchestration task that the run belongs to
    #[arg(long, visible_alias = "task-thread", value_name = "ID")]
    task_thread_id: String,
    /// The run's id [default: the authority makes one]
    #[arg(long, value_name = "ID")]
    run_id: Option<String>,
    /// Create it pending, to be started later
    #[arg(long)]
    deferred: bool,
    /// Route by which the run is executed
    #[arg(long, value_name = "ROUTE", value_enum)]
    route: Option<Route>,
    /// The run degraded from MCP to CLI
    #[arg(long)]
    fallback_used: bool,
    /// The run's owner [default: the acting agent]
    #[arg(long, visible_alias = "agent", value_name = "ID")]
    agent_id: Option<String>,
    /// The run's tab group
    #[arg(long, visible_alias = "tab-group", value_name = "ID")]
    tab_group_id: Option<String>,
    /// The run's audit session
    #[arg(long, visible_alias = "audit-session", value_name = "ID")]
    audit_session_id: Option<String>,
    /// The run's workflow
    #[arg(long, visible_alias = "workflow", value_name = "ID")]
    workflow_id: Option<String>,
    /// A label; repeat it for more
    #[arg(long = "label", value_name = "KEY=VALUE")]
    labels: Vec<Label>,
    /// The run's own data
    #[arg(long, value_name = "JSON|@FILE|-", allow_hyphen_values = true)]
    metadata: Option<JsonSource>,
    /// Hold a lease on it: without a heartbeat for so long, it ends as failed
    #[arg(long, value_name = "DURATION", value_parser = seconds_or_duration)]
    lease_ttl: Option<Duration>,
    /// Time that the run may stay pending; then it ends as aborted
    #[arg(long, value_name = "DURATION", value_parser = seconds_or_duration)]
    start_timeout: Option<Duration>,
    /// Time that the run may be running; then it ends as aborted
    #[arg(long, value_name = "DURATION", value_parser = seconds_or_duration)]
    run_timeout: Option<Duration>,
    /// What whoever executes the run must know, kept beside the run
    #[arg(long, value_name = "JSON|@FILE|-", allow_hyphen_values = true)]
    input: Option<JsonSource>,
    /// The run that starts this one
    #[arg(long, visible_alias = "parent-run-id", value_name = "RUN_ID")]
    parent: Option<String>,
    /// The run that this one goes on with or repeats
    #[arg(long, visible_alias = "continues-run-id", value_name = "RUN_ID")]
    continues: Option<String>,
    /// Priority among the runs that wait for a claim, -100 to 100: the higher one comes first
    #[arg(long, value_name = "N", allow_hyphen_values = true, value_parser = within(-100..=100_i32))]
    priority: Option<i32>,
    #[command(flatten)]
    begin: Begin,
    #[command(flatten)]
    mutation: Mutation,
}

#[derive(Args, Debug)]
pub(super) struct UpdateArgs {
    /// The run
    run_id: String,
    /// Route by which the run is executed
    #[arg(long, value_name = "ROUTE", value_enum)]
    route: Option<Route>,
    /// The run degraded from MCP to CLI
    #[arg(long)]
    fallback_used: bool,
    /// The run's tab group; empty for none
    #[arg(long, visible_alias = "tab-group", value_name = "ID")]
    tab_group_id: Option<MaybeEmpty>,
    /// The run's audit session; empty for none
    #[arg(long, visible_alias = "audit-session", value_name = "ID")]
    audit_session_id: Option<MaybeEmpty>,
    /// The run's workflow; empty for none
    #[arg(long, visible_alias = "workflow", value_name = "ID")]
    workflow_id: Option<MaybeEmpty>,
    /// A label to set; repeat it for more
    #[arg(long = "label", value_name = "KEY=VALUE")]
    labels: Vec<Label>,
    /// A label to drop; repeat it for more
    #[arg(long = "remove-label", value_name = "KEY")]
    remove_labels: Vec<String>,
    /// A merge patch on the run's own data: objects merge, null deletes
    #[arg(long, value_name = "JSON|@FILE|-", allow_hyphen_values = true)]
    metadata: Option<JsonSource>,
    /// The iteration that the run has come to, where its lifecycle does not count them
    #[arg(long, value_name = "N", value_parser = count::<u32>)]
    iteration: Option<u32>,
    /// Priority of a pending run among those that wait for a claim, -100 to 100; with nothing else
    #[arg(long, value_name = "N", allow_hyphen_values = true, value_parser = within(-100..=100_i32))]
    priority: Option<i32>,
    /// Why the phase suspends the run, for people [default: the phase's name]
    #[arg(long, value_name = "TEXT", requires = "phase")]
    suspend_reason: Option<String>,
    /// How to go on, for whoever resumes it
    #[arg(long, value_name = "TEXT", requires = "phase")]
    resume_hint: Option<String>,
    /// Time that it may wait in the phase [default: as the lifecycle has it]
    #[arg(long, value_name = "DURATION", value_parser = seconds_or_duration, requires = "phase")]
    suspend_timeout: Option<Duration>,
    #[command(flatten)]
    stand: Stand,
    #[command(flatten)]
    left: Left,
    #[command(flatten)]
    holder: Holder,
    #[command(flatten)]
    mutation: Mutation,
}

/// The flag by which a call says what came of the run.
#[derive(Args, Debug)]
struct Left {
    /// What came of the run, replacing what was there: kept beside the run
    #[arg(long, value_name = "JSON|@FILE|-", allow_hyphen_values = true)]
    result: Option<JsonSource>,
}

impl Left {
    fn read(&self) -> Result<Option<Struct>, Stop> {
        self.result.as_ref().map(|result| result.read("--result")).transpose()
    }
}

#[derive(Args, Debug)]
pub(super) struct CompleteArgs {
    /// The run
    run_id: String,
    /// A last merge patch on the run's own data
    #[arg(long, value_name = "JSON|@FILE|-", allow_hyphen_values = true)]
    metadata: Option<JsonSource>,
    /// A link to what came of the run, such as artifact=URL; repeat it for more (run link says more of one)
    #[arg(long = "link", value_name = "REL=TARGET")]
    links: Vec<Brought>,
    #[command(flatten)]
    stand: Stand,
    #[command(flatten)]
    left: Left,
    #[command(flatten)]
    holder: Holder,
    #[command(flatten)]
    mutation: Mutation,
}

#[derive(Args, Debug)]
pub(super) struct AbortArgs {
    /// The run
    run_id: String,
    /// Reason, for people
    #[arg(long, visible_alias = "reason", value_name = "TEXT")]
    failure_reason: Option<String>,
    /// Reason code, for programs, such as TIMEOUT
    #[arg(long, value_name = "CODE")]
    reason_code: Option<String>,
    #[command(flatten)]
    stand: Stand,
    #[command(flatten)]
    left: Left,
    #[command(flatten)]
    holder: Holder,
    #[command(flatten)]
    mutation: Mutation,
}

#[derive(Args, Debug)]
pub(super) struct FailArgs {
    /// The run
    run_id: String,
    /// Reason, for people
    #[arg(long, visible_alias = "reason", value_name = "TEXT")]
    failure_reason: String,
    /// Reason code, for programs, such as TIMEOUT
    #[arg(long, value_name = "CODE")]
    reason_code: Option<String>,
    #[command(flatten)]
    stand: Stand,
    #[command(flatten)]
    left: Left,
    #[command(flatten)]
    holder: Holder,
    #[command(flatten)]
    mutation: Mutation,
}

#[derive(Args, Debug)]
pub(super) struct ClaimArgs {
    /// The run
    run_id: String,
    /// Time that the lease lasts without a heartbeat
    #[arg(long, value_name = "DURATION", value_parser = seconds_or_duration, default_value = "30s")]
    lease_ttl: Duration,
    /// Refuse unless the run is at this epoch (0: it never had a lease)
    #[arg(long, value_name = "N", value_parser = count::<u64>)]
    expected_epoch: Option<u64>,
    /// Refuse to start a pending run while N (1 to 100) with the same value of this label are running that were
    /// claimed so
    #[arg(long, value_name = "LABEL=N")]
    max_running: Option<MaxRunning>,
    #[command(flatten)]
    mutation: Mutation,
}

#[derive(Args, Debug)]
pub(super) struct ReleaseArgs {
    /// The run
    run_id: String,
    /// The epoch of the lease that you hold
    #[arg(long, value_name = "N", value_parser = count::<u64>)]
    lease_epoch: u64,
    /// The run was claimed and nothing was done: it is ready for the next claim, as if it had not been claimed
    #[arg(long)]
    not_begun: bool,
    #[command(flatten)]
    mutation: Mutation,
}

#[derive(Args, Debug)]
pub(super) struct RequestAbortArgs {
    /// The run
    run_id: String,
    /// Reason, for people
    #[arg(long, value_name = "TEXT")]
    reason: Option<String>,
    /// Time that the run may go on; then the authority ends it [default: as long as it likes]
    #[arg(long, value_name = "DURATION", value_parser = seconds_or_duration)]
    grace: Option<Duration>,
    #[command(flatten)]
    mutation: Mutation,
}

impl Mutation {
    /// The caller's, or one of this invocation's own.
    pub(super) fn request_id(&self) -> String {
        self.request_id.clone().unwrap_or_else(|| format!("cli-{}", clock::draw_id()))
    }

    /// Prints the answer to a call that changed a run.
    pub(super) fn show<A: Named>(&self, answer: &A, run: Option<&v1::Run>, disposition: i32) -> Result<(), Stop> {
        show(&self.format, answer, run, disposition)
    }
}

#[allow(clippy::needless_update, reason = "a field without a flag of its own is left to the authority")]
pub(super) async fn start(args: StartArgs) -> Result<(), Stop> {
    let mut request = v1::StartRunRequest {
        task_thread_id: args.task_thread_id,
        run_id: args.run_id.unwrap_or_default(),
        deferred: args.deferred,
        route: fields::route(args.route),
        fallback_used: args.fallback_used,
        agent_id: args.agent_id.unwrap_or_default(),
        tab_group_id: args.tab_group_id.unwrap_or_default(),
        audit_session_id: args.audit_session_id.unwrap_or_default(),
        workflow_id: args.workflow_id.unwrap_or_default(),
        metadata: read(args.metadata.as_ref())?,
        labels: fields::labels(args.labels)?,
        request_id: args.mutation.request_id(),
        expected_revision: args.mutation.expected_revision,
        lease_ttl: args.lease_ttl.map(runledger_proto::duration),
        start_timeout: args.start_timeout.map(runledger_proto::duration),
        run_timeout: args.run_timeout.map(runledger_proto::duration),
        input: args.input.as_ref().map(|input| input.read("--input")).transpose()?,
        parent_run_id: args.parent.unwrap_or_default(),
        continues_run_id: args.continues.unwrap_or_default(),
        priority: args.priority.unwrap_or_default(),
        ..v1::StartRunRequest::default()
    };
    args.begin.add_to(&mut request);
    let answer = args.mutation.caller.ask(&mut args.mutation.caller.client()?, &request).await?;
    args.mutation.show(&answer, answer.run.as_ref(), answer.disposition)?;
    if answer.disposition() == v1::Disposition::Unchanged {
        unchanged::tell_of_start(&request, answer.run.as_ref().unwrap_or(&v1::Run::default()));
        if args.lease_ttl.is_some() {
            say("the run was running already: no lease was granted, and the one that it shows may be somebody else's");
        }
    }
    Ok(())
}

pub(super) async fn update(args: UpdateArgs) -> Result<(), Stop> {
    let said = args.suspend_reason.is_some() || args.resume_hint.is_some() || args.suspend_timeout.is_some();
    let suspension = said.then(|| v1::SuspensionTerms {
        reason: args.suspend_reason.unwrap_or_default(),
        resume_hint: args.resume_hint.unwrap_or_default(),
        timeout: args.suspend_timeout.map(runledger_proto::duration),
    });
    let request = v1::UpdateRunRequest {
        run_id: args.run_id,
        audit_session_id: args.audit_session_id.map(|text| text.0),
        tab_group_id: args.tab_group_id.map(|text| text.0),
        workflow_id: args.workflow_id.map(|text| text.0),
        route: fields::route(args.route),
        fallback_used: args.fallback_used,
        metadata: read(args.metadata.as_ref())?,
        labels: fields::labels(args.labels)?,
        remove_labels: args.remove_labels,
        result: args.left.read()?,
        lease_epoch: args.holder.lease_epoch,
        phase: args.stand.phase(),
        iteration: args.iteration,
        suspension,
        priority: args.priority,
        request_id: args.mutation.request_id(),
        expected_revision: args.mutation.expected_revision,
        ..v1::UpdateRunRequest::default()
    };
    let answer = args.mutation.caller.ask(&mut args.mutation.caller.client()?, &request).await?;
    args.mutation.show(&answer, answer.run.as_ref(), answer.disposition)?;
    let run = answer.run.unwrap_or_default();
    if run.status() == v1::RunStatus::Aborted {
        say(&format!("the update ended the run: {}: {}", run.reason_code, run.failure_reason));
    } else if let Some(suspension) = &run.suspension {
        say(&format!("the run is suspended: {}: {}", suspension.kind, suspension.reason));
    }
    Ok(())
}

pub(super) async fn complete(args: CompleteArgs) -> Result<(), Stop> {
    let request = v1::CompleteRunRequest {
        run_id: args.run_id,
        lease_epoch: args.holder.lease_epoch,
        metadata: read(args.metadata.as_ref())?,
        request_id: args.mutation.request_id(),
        expected_revision: args.mutation.expected_revision,
        result: args.left.read()?,
        links: args.links.into_iter().map(Into::into).collect(),
        phase: args.stand.phase(),
    };
    let answer = args.mutation.caller.ask(&mut args.mutation.caller.client()?, &request).await?;
    args.mutation.show(&answer, answer.run.as_ref(), answer.disposition)?;
    let links = !request.links.is_empty();
    let given = [("--metadata", request.metadata.is_some()), ("--result", request.result.is_some()), ("--link", links)];
    unchanged::tell_of_end(answer.disposition(), &given);
    Ok(())
}

pub(super) async fn abort(args: AbortArgs) -> Result<(), Stop> {
    let request = v1::AbortRunRequest {
        run_id: args.run_id,
        lease_epoch: args.holder.lease_epoch,
        failure_reason: args.failure_reason.unwrap_or_default(),
        reason_code: args.reason_code.unwrap_or_default(),
        phase: args.stand.phase(),
        result: args.left.read()?,
        request_id: args.mutation.request_id(),
        expected_revision: args.mutation.expected_revision,
    };
    let answer = args.mutation.caller.ask(&mut args.mutation.caller.client()?, &request).await?;
    args.mutation.show(&answer, answer.run.as_ref(), answer.disposition)?;
    let [reason, code] = unchanged::other_reasons(&request.failure_reason, &request.reason_code, answer.run.as_ref());
    let given = [("--failure-reason", reason), ("--reason-code", code), ("--result", request.result.is_some())];
    unchanged::tell_of_end(answer.disposition(), &given);
    Ok(())
}

pub(super) async fn fail(args: FailArgs) -> Result<(), Stop> {
    let request = v1::FailRunRequest {
        run_id: args.run_id,
        lease_epoch: args.holder.lease_epoch,
        failure_reason: args.failure_reason,
        reason_code: args.reason_code.unwrap_or_default(),
        phase: args.stand.phase(),
        result: args.left.read()?,
        request_id: args.mutation.request_id(),
        expected_revision: args.mutation.expected_revision,
    };
    let answer = args.mutation.caller.ask(&mut args.mutation.caller.client()?, &request).await?;
    args.mutation.show(&answer, answer.run.as_ref(), answer.disposition)?;
    let [reason, code] = unchanged::other_reasons(&request.failure_reason, &request.reason_code, answer.run.as_ref());
    let given = [("--failure-reason", reason), ("--reason-code", code), ("--result", request.result.is_some())];
    unchanged::tell_of_end(answer.disposition(), &given);
    Ok(())
}

pub(super) async fn claim(args: ClaimArgs) -> Result<(), Stop> {
    let request = v1::ClaimRunRequest {
        run_id: args.run_id,
        lease_ttl: Some(runledger_proto::duration(args.lease_ttl)),
        expected_epoch: args.expected_epoch,
        max_running: args.max_running.as_ref().map(MaxRunning::message),
        request_id: args.mutation.request_id(),
        expected_revision: args.mutation.expected_revision,
    };
    let answer = args.mutation.caller.ask(&mut args.mutation.caller.client()?, &request).await?;
    args.mutation.show(&answer, answer.run.as_ref(), answer.disposition)
}

pub(super) async fn release(args: ReleaseArgs) -> Result<(), Stop> {
    let request = v1::ReleaseRunRequest {
        run_id: args.run_id,
        lease_epoch: args.lease_epoch,
        not_begun: args.not_begun,
        request_id: args.mutation.request_id(),
        expected_revision: args.mutation.expected_revision,
    };
    let answer = args.mutation.caller.ask(&mut args.mutation.caller.client()?, &request).await?;
    args.mutation.show(&answer, answer.run.as_ref(), answer.disposition)
}

pub(super) async fn request_abort(args: RequestAbortArgs) -> Result<(), Stop> {
    let request = v1::RequestAbortRequest {
        run_id: args.run_id,
        reason: args.reason.unwrap_or_default(),
        grace: args.grace.map(runledger_proto::duration),
        request_id: args.mutation.request_id(),
        expected_revision: args.mutation.expected_revision,
    };
    let answer = args.mutation.caller.ask(&mut args.mutation.caller.client()?, &request).await?;
    args.mutation.show(&answer, answer.run.as_ref(), answer.disposition)
}

pub(super) fn show<A: Named>(
    format: &RunFormat,
    answer: &A,
    run: Option<&v1::Run>,
    disposition: i32,
) -> Result<(), Stop> {
    let mut out = Out::new();
    match format.output() {
        RunOutput::Ids => run.map_or(Ok(()), |run| out.line(&run.run_id))?,
        RunOutput::As(Output::Json) => out.json(answer)?,
        RunOutput::As(Output::Table) => {
            let mut pairs = vec![vec!["disposition".to_owned(), view::disposition(disposition)]];
            pairs.extend(run.map(view::run_pairs).unwrap_or_default());
            out.pairs(&pairs)?;
        }
    }
    Ok(out.flush()?)
}

fn read(source: Option<&JsonSource>) -> Result<Option<Struct>, Stop> {
    source.map(|source| source.read("--metadata")).transpose()
}

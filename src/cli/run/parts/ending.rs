//! How a run ends: the calls that end it, or ask for it.

use std::time::Duration;

use clap::Args;

use super::attachments::{Brought, Outcome};
use super::lease::Holder;
use super::position::Phase;
use super::row::Row;
use crate::cli::exit::{Stop, exit_codes};
use crate::cli::fields::{self, JsonSource};
use crate::cli::run::mutation::{Mutation, once, tell_dropped};
use crate::cli::time::time;
use crate::cli::words::{at, because, principal, status};
use crate::text::seconds_or_duration;
use runledger_proto::fields::{shown, unlike};
use runledger_proto::methods::RunMutation;
use runledger_proto::{duration, v1};

pub(in crate::cli::run) const COMPLETE: &str = concat!(
    "Example:\n  \
    runledger run complete try-1 --metadata '{\"pages\": 3}'\n  \
    echo '{\"found\": 3}' | runledger run complete try-1 --result -\n  \
    runledger run complete try-1 --phase approved --link artifact=s3://bucket/report.pdf\n\n",
    once!(),
    exit_codes!()
);

pub(in crate::cli::run) const ABORT: &str = concat!(
    "Example:\n  \
    runledger run abort try-1 --reason-code USER_CANCELLED\n\n\
    A run that has ended stays as it is, and the command succeeds: see the disposition.\n",
    once!(),
    exit_codes!()
);

pub(in crate::cli::run) const FAIL: &str = concat!(
    "Example:\n  \
    runledger run fail try-1 --failure-reason 'the tab crashed' --reason-code CDP_DISCONNECT\n  \
    runledger run fail try-1 --failure-reason 'no such account' --final\n\n\
    While attempts are left, it fails the attempt: the run is ready for the claim that begins the next one. A run that has ended stays as it is, and the command succeeds: see the disposition.\n",
    once!(),
    exit_codes!()
);

pub(in crate::cli::run) const REQUEST_ABORT: &str = concat!(
    "Examples:\n  \
    runledger run request-abort try-1 --reason 'wrong page'\n  \
    runledger run request-abort try-1 --grace 30s\n\n\
    Its worker hears of it with the next heartbeat. With --grace, the authority ends the run by itself after that.\n",
    once!(),
    exit_codes!()
);

#[derive(Args, Debug)]
pub(in crate::cli::run) struct CompleteArgs {
    /// The run
    run_id: String,
    /// A last merge patch on the run's own data
    #[arg(long, value_name = "JSON|@FILE|-", allow_hyphen_values = true)]
    metadata: Option<JsonSource>,
    /// A link to what came of the run, such as artifact=URL; repeat it for more (run link says more of one)
    #[arg(long = "link", value_name = "REL=TARGET")]
    links: Vec<Brought>,
    #[command(flatten)]
    phase: Phase,
    #[command(flatten)]
    outcome: Outcome,
    #[command(flatten)]
    holder: Holder,
    #[command(flatten)]
    mutation: Mutation,
}

/// The flags of a failure.
#[derive(Args, Debug)]
pub(in crate::cli::run) struct FailArgs {
    #[command(flatten)]
    end: EndArgs,
    /// No further attempt is to be made, whatever is left of --max-attempts
    #[arg(id = "final", long = "final")]
    is_final: bool,
}

/// The flags of an abort, and of a failure, which must have a reason.
#[derive(Args, Debug)]
pub(in crate::cli::run) struct EndArgs {
    /// The run
    run_id: String,
    /// Reason, for people
    #[arg(long, visible_alias = "reason", value_name = "TEXT")]
    failure_reason: Option<String>,
    /// Reason code, for programs, such as TIMEOUT
    #[arg(long, value_name = "CODE")]
    reason_code: Option<String>,
    #[command(flatten)]
    phase: Phase,
    #[command(flatten)]
    outcome: Outcome,
    #[command(flatten)]
    holder: Holder,
    #[command(flatten)]
    mutation: Mutation,
}

#[derive(Args, Debug)]
pub(in crate::cli::run) struct RequestAbortArgs {
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

impl CompleteArgs {
    pub(in crate::cli::run) fn request(self) -> Result<(v1::CompleteRunRequest, Mutation), Stop> {
        let request = v1::CompleteRunRequest {
            run_id: self.run_id,
            lease_epoch: self.holder.lease_epoch,
            metadata: fields::json("--metadata", self.metadata.as_ref())?,
            result: self.outcome.read()?,
            links: self.links.into_iter().map(Into::into).collect(),
            phase: self.phase.name(),
            ..v1::CompleteRunRequest::default()
        };
        Ok((request, self.mutation))
    }
}

impl EndArgs {
    pub(in crate::cli::run) fn abort(self) -> Result<(v1::AbortRunRequest, Mutation), Stop> {
        let request = v1::AbortRunRequest {
            run_id: self.run_id,
            lease_epoch: self.holder.lease_epoch,
            failure_reason: self.failure_reason.unwrap_or_default(),
            reason_code: self.reason_code.unwrap_or_default(),
            phase: self.phase.name(),
            result: self.outcome.read()?,
            ..v1::AbortRunRequest::default()
        };
        Ok((request, self.mutation))
    }
}

impl FailArgs {
    pub(in crate::cli::run) fn request(self) -> Result<(v1::FailRunRequest, Mutation), Stop> {
        let (request, mutation) = self.end.abort()?;
        let v1::AbortRunRequest { run_id, lease_epoch, failure_reason, reason_code, phase, result, .. } = request;
        let given = v1::FailRunRequest {
            run_id,
            lease_epoch,
            failure_reason,
            reason_code,
            phase,
            result,
            r#final: self.is_final,
            ..v1::FailRunRequest::default()
        };
        Ok((given, mutation))
    }
}

impl RequestAbortArgs {
    pub(in crate::cli::run) fn request(self) -> (v1::RequestAbortRequest, Mutation) {
        let request = v1::RequestAbortRequest {
            run_id: self.run_id,
            reason: self.reason.unwrap_or_default(),
            grace: self.grace.map(duration),
            ..v1::RequestAbortRequest::default()
        };
        (request, self.mutation)
    }
}

/// The flags that a run which has ended does not take, by the fields of their requests.
const DROPPED: [(&str, &str); 5] = [
    ("failure_reason", "--failure-reason"),
    ("reason_code", "--reason-code"),
    ("metadata", "--metadata"),
    ("result", "--result"),
    ("links", "--link"),
];

/// Says which of these were not taken: a patch always, of the others what the run does not say itself.
pub(in crate::cli::run) fn tell<R: RunMutation>((request, answer): &(R, R::Answer)) {
    let (run, disposition) = R::outcome(answer);
    if disposition == i32::from(v1::Disposition::Unchanged) {
        let unlike = unlike(request, run.unwrap_or(&v1::Run::default()));
        let is_patch = |field: &str| field == "metadata" && shown(request).iter().any(|(name, _)| name == field);
        let is_dropped = |field: &str| is_patch(field) || unlike.iter().any(|name| name == field);
        let dropped: Vec<_> = DROPPED.iter().filter(|(field, _)| is_dropped(field)).map(|(_, flag)| flag).collect();
        let goes_on = run.is_some_and(|run| run.status() == v1::RunStatus::Running);
        let why = if goes_on { "the attempt had failed already" } else { "the run had ended already" };
        tell_dropped(&format!("{why}, and stays as it is"), &dropped);
    }
}

pub(super) const ROWS: &[Row] = &[
    Row::plain("reason code"),
    Row::plain("failure reason"),
    Row::said("presumed", &[], |run| {
        if run.presumed { "yes: nobody who executes it reported this".to_owned() } else { String::new() }
    }),
    Row::said("late report", &[], |run| run.late_report.as_ref().map(late_report).unwrap_or_default()),
    Row::said("abort request", &[], |run| run.abort_request.as_ref().map(abort_request).unwrap_or_default()),
];

/// Such as `completed, by agent-7, at 2026-11-22T10:00:00.000000Z, under epoch 1`.
fn late_report(report: &v1::LateReport) -> String {
    let by = report.by.as_ref().map(principal).unwrap_or_default();
    let (status, at) = (status(report.status), at(report.at.as_ref()));
    let phase = if report.phase.is_empty() { String::new() } else { format!(", phase {}", report.phase) };
    let why = [report.reason_code.as_str(), report.failure_reason.as_str()];
    let why = why.into_iter().filter(|part| !part.is_empty()).collect::<Vec<_>>().join(": ");
    let lacks = report.completion_missing.join(", ");
    let lacks = if lacks.is_empty() { lacks } else { format!(" (lacks {lacks})") };
    format!("{status}, by {by}, at {at}, under epoch {}{phase}{}{lacks}", report.lease_epoch, because(&why))
}

/// Such as `by agent-7, at 2026-11-22T10:00:00.000000Z: the page is wrong`.
pub(in crate::cli::run) fn abort_request(request: &v1::AbortRequest) -> String {
    let by = request.by.as_ref().map(principal).unwrap_or_default();
    let at = at(request.at.as_ref());
    let until =
        time(request.deadline.as_ref()).map(|at| format!(", to be ended by the authority at {at}")).unwrap_or_default();
    format!("by {by}, at {at}{until}{}", because(&request.reason))
}

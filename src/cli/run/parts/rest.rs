//! A run that rests: what it waits for, and what lets it go on. `runledger run suspend` and `runledger run resume`.

use std::time::Duration;

use clap::builder::NonEmptyStringValueParser;
use clap::{Args, ValueEnum};

use super::lease::Holder;
use super::position::Phase;
use super::row::Row;
use crate::cli::exit::exit_codes;
use crate::cli::fields::{self, MaxRunning};
use crate::cli::run::mutation::{Mutation, once};
use crate::cli::words::{at, because, principal, until};
use crate::text::{seconds_or_duration, within};
use runledger_proto::{duration, v1};

pub(in crate::cli::run) const SUSPEND: &str = concat!(
    "Examples:\n  \
    runledger run suspend run-3 --kind HELP --reason 'which account?' --lease-epoch 1\n  \
    runledger run suspend try-1 --kind PAUSED --reason 'not during the release' --suspend-timeout 2d\n  \
    runledger run suspend try-1 --kind TIMER --reason later --suspend-timeout 1d --timeout-then resume\n\n\
    The run stays RUNNING; nobody holds it, nothing of it expires, and its --run-timeout stands still. Another kind or \
    reason replaces the whole suspension, with its times and its hint; the same is `unchanged`. It stops no process that does not ask: a worker \
    hears of it by its next call, which is refused as RUN_SUSPENDED. `runledger run list --suspended` shows what waits.\n",
    once!(),
    exit_codes!()
);

pub(in crate::cli::run) const RESUME: &str = concat!(
    "Examples:\n  \
    runledger run resume try-1 --reason 'account 7'\n  \
    runledger run resume try-1 --reason 'account 7' --lease-ttl 1m\n\n\
    Without --lease-ttl, the run is ready: the next worker takes it by `runledger run claim-next --take ready`. A run that \
    never had a lease goes on as it is. In a phase that suspends, --phase says which one it goes on in.\n",
    once!(),
    exit_codes!()
);

/// The flags of an update whose phase suspends the run.
#[derive(Args, Debug)]
pub(in crate::cli::run) struct Terms {
    /// Why the phase suspends the run, for people [default: the phase's name]
    #[arg(long, value_name = "TEXT", requires = "phase")]
    suspend_reason: Option<String>,
    /// How to go on, for whoever resumes it
    #[arg(long, value_name = "TEXT", requires = "phase")]
    resume_hint: Option<String>,
    /// Time that it may wait in the phase [default: as the lifecycle has it]
    #[arg(long, value_name = "DURATION", value_parser = seconds_or_duration, requires = "phase")]
    suspend_timeout: Option<Duration>,
    /// What becomes of it then [default: as the lifecycle has it, else abort]
    #[arg(long, value_enum, requires = "phase")]
    timeout_then: Option<Then>,
}

/// What becomes of a suspended run at its deadline.
#[derive(Clone, Copy, Debug, ValueEnum)]
enum Then {
    Abort,
    /// It goes on by itself
    Resume,
    Fail,
}

#[derive(Args, Debug)]
pub(in crate::cli::run) struct SuspendArgs {
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
    /// Time that it may wait [default: as the lifecycle has it, else for ever]
    #[arg(long, value_name = "DURATION", value_parser = seconds_or_duration)]
    suspend_timeout: Option<Duration>,
    /// What becomes of it then [default: as the lifecycle has it, else abort]
    #[arg(long, value_enum)]
    timeout_then: Option<Then>,
    /// Time that it may be ready then; not claimed by then, it ends as FAILED / ORPHANED [default: for ever]
    #[arg(long, value_name = "DURATION", value_parser = seconds_or_duration)]
    ready_timeout: Option<Duration>,
    /// Let it count towards --max-running all the same
    #[arg(long)]
    keep_slot: bool,
    #[command(flatten)]
    phase: Phase,
    #[command(flatten)]
    holder: Holder,
    #[command(flatten)]
    mutation: Mutation,
}

#[derive(Args, Debug)]
pub(in crate::cli::run) struct ResumeArgs {
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
    phase: Phase,
    #[command(flatten)]
    mutation: Mutation,
}

impl Terms {
    pub(in crate::cli::run) fn put(self, request: &mut v1::UpdateRunRequest) {
        let Self { suspend_reason, resume_hint, suspend_timeout, timeout_then } = &self;
        let said =
            suspend_reason.is_some() || resume_hint.is_some() || suspend_timeout.is_some() || timeout_then.is_some();
        request.suspension = said.then(|| v1::SuspensionTerms {
            reason: self.suspend_reason.unwrap_or_default(),
            resume_hint: self.resume_hint.unwrap_or_default(),
            timeout: self.suspend_timeout.map(duration),
            timeout_then: then(self.timeout_then),
        });
    }
}

fn then(then: Option<Then>) -> i32 {
    let then = match then {
        None => v1::TimeoutThen::Unspecified,
        Some(Then::Abort) => v1::TimeoutThen::Abort,
        Some(Then::Resume) => v1::TimeoutThen::Resume,
        Some(Then::Fail) => v1::TimeoutThen::Fail,
    };
    then.into()
}

impl SuspendArgs {
    pub(in crate::cli::run) fn request(self) -> (v1::SuspendRunRequest, Mutation) {
        let request = v1::SuspendRunRequest {
            run_id: self.run_id,
            kind: self.kind,
            reason: self.reason,
            resume_hint: self.resume_hint.unwrap_or_default(),
            timeout: self.suspend_timeout.map(duration),
            ready_timeout: self.ready_timeout.map(duration),
            keep_slot: self.keep_slot,
            timeout_then: then(self.timeout_then),
            lease_epoch: self.holder.lease_epoch,
            phase: self.phase.name(),
            ..v1::SuspendRunRequest::default()
        };
        (request, self.mutation)
    }
}

impl ResumeArgs {
    pub(in crate::cli::run) fn request(self) -> (v1::ResumeRunRequest, Mutation) {
        let request = v1::ResumeRunRequest {
            run_id: self.run_id,
            reason: self.reason.unwrap_or_default(),
            phase: self.phase.name(),
            lease_ttl: self.lease_ttl.map(duration),
            max_running: self.max_running.as_ref().map(MaxRunning::message),
            max_iterations: self.max_iterations.unwrap_or_default(),
            ..v1::ResumeRunRequest::default()
        };
        (request, self.mutation)
    }
}

pub(super) const ROWS: &[Row] = &[
    Row::said("suspended", &["suspension"], |run| run.suspension.as_deref().map(suspended).unwrap_or_default()),
    Row::said("resume hint", &[], |run| run.suspension.as_ref().map(|it| it.resume_hint.clone()).unwrap_or_default()),
    Row::said("resumed", &["resumed_from"], |run| {
        run.suspension.as_ref().or(run.resumed_from.as_ref()).map(|it| resumed(it)).unwrap_or_default()
    }),
    Row::said("ready", &[], |run| run.ready.as_ref().map(|it| ready(it, run.suspension.is_some())).unwrap_or_default()),
];

/// Such as `HELP since 2026-11-27 10:00:00 by agent-1, until 2026-11-28 10:00:00, then it is aborted: which account?`.
fn suspended(suspension: &v1::Suspension) -> String {
    let then = match suspension.timeout_then() {
        v1::TimeoutThen::Unspecified => "",
        v1::TimeoutThen::Abort => ", then it is aborted",
        v1::TimeoutThen::Resume => ", then it goes on by itself",
        v1::TimeoutThen::Fail => ", then it fails",
    };
    let until = until(suspension.deadline.as_ref()) + then;
    let by = suspension.by.as_ref().map(|by| format!(" by {}", principal(by))).unwrap_or_default();
    let since = at(suspension.at.as_ref());
    let slot = if suspension.keep_slot { ", keeping its slot" } else { "" };
    format!("{} since {since}{by}{until}{slot}: {}", suspension.kind, suspension.reason)
}

/// Such as `from HELP (which account?) at 2026-11-27 10:00:00 by agent-1: account 7`; empty while nobody has resumed it.
fn resumed(suspension: &v1::Suspension) -> String {
    let Some(resumption) = &suspension.resumption else { return String::new() };
    let by = resumption.by.as_ref().map(|by| format!(" by {}", principal(by))).unwrap_or_default();
    let at = at(resumption.at.as_ref());
    let why = because(&resumption.reason);
    let phase = if resumption.phase.is_empty() { String::new() } else { format!(", in phase {}", resumption.phase) };
    let max = match resumption.max_iterations {
        0 => String::new(),
        max => format!(", up to iteration {max}"),
    };
    format!("from {} ({}) at {at}{by}{phase}{max}{why}", suspension.kind, suspension.reason)
}

/// Such as `since 2026-11-22T10:00:00.000000Z, until 2026-11-22T11:00:00.000000Z: the next claim takes it`.
fn ready(ready: &v1::Ready, goes_on: bool) -> String {
    let since = at(ready.at.as_ref());
    let until = until(ready.deadline.as_ref());
    let take = if goes_on { "the next claim that takes ready runs has it" } else { "the next claim takes it" };
    format!("since {since}{until}: {take}")
}

//! The attempts at a run.

use std::time::Duration;

use clap::Args;

use super::row::Row;
use crate::cli::words::{at, because, principal, until};
use crate::text::{seconds_or_duration, within};
use runledger_proto::{duration, v1};

/// The flags of a start that say how often a run may be attempted.
#[derive(Args, Debug)]
pub(in crate::cli::run) struct Attempts {
    /// Attempts that there may be, 1 to 100: one that fails is followed by the next claim [default: as the lifecycle has it, else 1]
    #[arg(long, value_name = "N", value_parser = within(1..=100_u32))]
    max_attempts: Option<u32>,
    /// Time that one attempt may be running [default: as the lifecycle has it, else as long as the run]
    #[arg(long, value_name = "DURATION", value_parser = seconds_or_duration)]
    attempt_timeout: Option<Duration>,
}

impl Attempts {
    pub(in crate::cli::run) fn put(self, request: &mut v1::StartRunRequest) {
        request.max_attempts = self.max_attempts.unwrap_or_default();
        request.attempt_timeout = self.attempt_timeout.map(duration);
    }
}

pub(super) const ROWS: &[Row] = &[
    Row::said("attempt", &["max_attempts", "attempt_timeout", "attempt_deadline"], attempt),
    Row::said("last failure", &[], |run| run.last_failure.as_deref().map(failure).unwrap_or_default()),
];

/// Such as `2 of 5, until 2026-11-22T10:00:00.000000Z`.
fn attempt(run: &v1::Run) -> String {
    match run.attempt {
        0 => String::new(),
        attempt => format!("{attempt} of {}{}", run.max_attempts, until(run.attempt_deadline.as_ref())),
    }
}

/// Such as `attempt 1 at 2026-11-22T10:00:00.000000Z by (authority), epoch 1, presumed (ORPHANED): the lease expired`.
fn failure(failure: &v1::AttemptFailure) -> String {
    let by = failure.by.as_ref().map(|by| format!(" by {}", principal(by))).unwrap_or_default();
    let epoch = if failure.lease_epoch == 0 { String::new() } else { format!(", epoch {}", failure.lease_epoch) };
    let presumed = if failure.presumed { ", presumed" } else { "" };
    let code = if failure.reason_code.is_empty() { String::new() } else { format!(" ({})", failure.reason_code) };
    let (number, at, why) = (failure.attempt, at(failure.at.as_ref()), because(&failure.failure_reason));
    format!("attempt {number} at {at}{by}{epoch}{presumed}{code}{why}")
}

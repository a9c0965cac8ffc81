//! The times by which a run must have begun, and ended.

use std::time::Duration;

use clap::Args;

use super::row::Row;
use crate::text::seconds_or_duration;
use runledger_proto::{duration, v1};

/// The flags of a start.
#[derive(Args, Debug)]
pub(in crate::cli::run) struct Timeouts {
    /// Time that the run may stay pending; then it ends as aborted
    #[arg(long, value_name = "DURATION", value_parser = seconds_or_duration)]
    start_timeout: Option<Duration>,
    /// Time that the run may be running; then it ends as aborted
    #[arg(long, value_name = "DURATION", value_parser = seconds_or_duration)]
    run_timeout: Option<Duration>,
}

impl Timeouts {
    pub(in crate::cli::run) fn put(&self, request: &mut v1::StartRunRequest) {
        request.start_timeout = self.start_timeout.map(duration);
        request.run_timeout = self.run_timeout.map(duration);
    }
}

pub(super) const ROWS: &[Row] = &[Row::plain("start deadline"), Row::plain("deadline")];

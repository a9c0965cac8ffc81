//! Where a run stands within its status: its lifecycle, its phase and its iteration.

use clap::builder::NonEmptyStringValueParser;
use clap::{Args, ValueEnum};

use super::row::Row;
use crate::text::within;
use runledger_proto::v1;

/// The flags of a start.
#[derive(Args, Debug)]
pub(in crate::cli::run) struct Position {
    /// The lifecycle that it is pinned to, the newest version of its name or that one
    #[arg(long, value_name = "NAME[@N]", value_parser = NonEmptyStringValueParser::new())]
    lifecycle: Option<String>,
    #[command(flatten)]
    phase: Phase,
    /// Iteration that the run may come to at most [default: what its lifecycle says]
    #[arg(long, value_name = "N", value_parser = within(1..=u32::MAX))]
    max_iterations: Option<u32>,
    /// What happens to a run that would begin one more [default: what its lifecycle says, else refuse]
    #[arg(long, value_name = "EFFECT", value_enum)]
    max_iterations_then: Option<Then>,
}

/// The flag of a call that may set the phase.
#[derive(Args, Debug)]
pub(in crate::cli::run) struct Phase {
    /// The phase that the run is in from now on, or in which it ends
    #[arg(long, value_name = "PHASE", value_parser = NonEmptyStringValueParser::new())]
    phase: Option<String>,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Then {
    /// The call is refused.
    Refuse,
    /// The run is aborted.
    Abort,
    /// The run is suspended.
    Suspend,
}

impl Phase {
    pub(in crate::cli::run) fn name(self) -> String {
        self.phase.unwrap_or_default()
    }
}

impl Position {
    pub(in crate::cli::run) fn put(self, request: &mut v1::StartRunRequest) {
        request.lifecycle = self.lifecycle.unwrap_or_default();
        request.phase = self.phase.name();
        request.max_iterations = self.max_iterations.unwrap_or_default();
        request.max_iterations_then = match self.max_iterations_then {
            None => v1::LimitThen::Unspecified,
            Some(Then::Refuse) => v1::LimitThen::Refuse,
            Some(Then::Abort) => v1::LimitThen::Abort,
            Some(Then::Suspend) => v1::LimitThen::Suspend,
        }
        .into();
    }
}

pub(super) const ROWS: &[Row] = &[
    Row::plain("word"),
    Row::plain("lifecycle"),
    Row::plain("phase"),
    Row::plain("phase started at"),
    Row::said("iteration", &["max_iterations", "max_iterations_then"], iteration),
];

/// Such as `2 of 5, then refuse`.
fn iteration(run: &v1::Run) -> String {
    let then = match run.max_iterations_then() {
        v1::LimitThen::Unspecified | v1::LimitThen::Refuse => "refuse",
        v1::LimitThen::Abort => "abort",
        v1::LimitThen::Suspend => "suspend",
    };
    match (run.iteration, run.max_iterations) {
        (0, 0) => String::new(),
        (iteration, 0) => iteration.to_string(),
        (iteration, max) => format!("{iteration} of {max}, then {then}"),
    }
}

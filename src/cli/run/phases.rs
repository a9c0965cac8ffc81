//! The flags that say where a run stands within its status.

use clap::builder::NonEmptyStringValueParser;
use clap::{Args, ValueEnum};

use crate::text::within;
use runledger_proto::v1;

/// The flags of a start.
#[derive(Args, Debug)]
pub(super) struct Begin {
    /// The lifecycle that it is pinned to, the newest version of its name or that one
    #[arg(long, value_name = "NAME[@N]", value_parser = NonEmptyStringValueParser::new())]
    lifecycle: Option<String>,
    #[command(flatten)]
    stand: Stand,
    /// Iteration that the run may come to at most [default: what its lifecycle says]
    #[arg(long, value_name = "N", value_parser = within(1..=u32::MAX))]
    max_iterations: Option<u32>,
    /// What happens to a run that would begin one more [default: what its lifecycle says, else refuse]
    #[arg(long, value_name = "EFFECT", value_enum)]
    max_iterations_then: Option<Then>,
}

/// The flag of a call that may set the phase.
#[derive(Args, Debug)]
pub(super) struct Stand {
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

impl Stand {
    pub(super) fn phase(&self) -> String {
        self.phase.clone().unwrap_or_default()
    }
}

impl Begin {
    pub(super) fn add_to(&self, request: &mut v1::StartRunRequest) {
        request.lifecycle = self.lifecycle.clone().unwrap_or_default();
        request.phase = self.stand.phase();
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

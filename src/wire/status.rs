//! A problem as gRPC has it: the only maker of a [`Status`]. Each problem that is told is counted.

use tonic::{Code, Status};

use super::problem::Problem;
use crate::telemetry::record;

impl From<Problem> for Status {
    fn from(problem: Problem) -> Self {
        record::refusal(problem.reason());
        uncounted(problem)
    }
}

/// A status that is kept to be told many times: each time is counted by whoever tells it.
#[must_use]
#[expect(clippy::disallowed_methods, reason = "the one place that makes a status")]
pub fn uncounted(problem: Problem) -> Status {
    let code = Code::from(problem.code().number());
    let (message, details) = problem.encoded();
    Status::with_details(code, message, details.into())
}

//! A problem as gRPC has it: the only maker of a [`Status`].

use tonic::{Code, Status};

use super::problem::Problem;

impl From<Problem> for Status {
    #[expect(clippy::disallowed_methods, reason = "the one place that makes a status")]
    fn from(problem: Problem) -> Self {
        let code = Code::from(problem.code().number());
        let (message, details) = problem.encoded();
        Self::with_details(code, message, details.into())
    }
}

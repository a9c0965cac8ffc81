//! Many heartbeats in one request, and what became of each.

use super::listed_errors::ListedErrors;
use super::problem::Problem;
use super::request;
use super::validate::Violations;
use crate::auth::Caller;
use crate::domain::{Renewal, RunKey, Violation};
use crate::store::leases::Renewed;
use runledger_proto::v1;

/// Heartbeats of one call at most: with as many requests to abort, of the longest reasons, the answer has less than 3 MiB.
const HEARTBEATS_MAX: usize = 500;

/// One heartbeat of the list: the renewal, or its violations by the fields of its own request.
pub type Heartbeat = Result<(RunKey, Renewal), Vec<Violation>>;

/// The heartbeats of a `HeartbeatRuns`.
///
/// # Errors
///
/// Every violation of the call. Those of a heartbeat are for its own result.
pub fn heartbeat_runs(request: v1::HeartbeatRunsRequest, caller: &Caller) -> Result<Vec<Heartbeat>, Vec<Violation>> {
    let mut violations = Violations::default();
    match request.heartbeats.len() {
        0 => violations.push("heartbeats", "is required: 1 to 500 heartbeats"),
        1..=HEARTBEATS_MAX => {}
        more => violations.push("heartbeats", format!("has {more} heartbeats; the limit is {HEARTBEATS_MAX}")),
    }
    let heartbeats = violations.settle(request.heartbeats)?;
    Ok(heartbeats.into_iter().map(|heartbeat| request::heartbeat_run(heartbeat, caller)).collect())
}

/// Writes the answer: results in order.
#[derive(Debug, Default)]
pub struct Results {
    errors: ListedErrors,
    answer: v1::HeartbeatRunsResponse,
}

impl Results {
    /// The result of the next heartbeat. Without a run, it is not known to name one.
    pub fn push(&mut self, run: Option<&RunKey>, renewed: Result<Renewed, Problem>) {
        let run_id = run.map(|key| key.run_id.to_string()).unwrap_or_default();
        let mut result = v1::HeartbeatResult { run_id, ..v1::HeartbeatResult::default() };
        match renewed {
            Ok(renewed) => result.renewed = Some((&renewed).into()),
            Err(problem) => {
                let (error, details_left_out) = self.errors.next(problem);
                (result.error, result.details_left_out) = (Some(error), details_left_out);
            }
        }
        self.answer.results.push(result);
    }

    #[must_use]
    pub fn answer(self) -> v1::HeartbeatRunsResponse {
        self.answer
    }
}

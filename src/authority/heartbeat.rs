//! The calls that renew leases.

use super::{Authority, Call, unreadable};
use crate::domain::RunKey;
use crate::telemetry::traces;
use crate::upkeep::renewals::Failure;
use crate::wire::heartbeats::{self, Results};
use crate::wire::problem::{self, Problem};
use crate::wire::request;
use runledger_proto::v1;

impl Authority {
    /// Answers a `HeartbeatRun`.
    ///
    /// # Errors
    ///
    /// The lease was not renewed, or nobody knows.
    pub async fn heartbeat_run(
        &self,
        call: Call<v1::HeartbeatRunRequest>,
    ) -> Result<v1::HeartbeatRunResponse, Problem> {
        let (key, renewal) = request::heartbeat_run(call.message, &call.caller).map_err(problem::invalid)?;
        traces::current_run(&key.namespace, &key.run_id);
        let renewed = self.renewals.renew(call.key, key.clone(), renewal, call.until.deadline).await;
        Ok((&renewed.map_err(|failure| failed(failure, &key, "HeartbeatRun"))?).into())
    }

    /// Answers a `HeartbeatRuns`.
    ///
    /// # Errors
    ///
    /// No lease was renewed.
    pub async fn heartbeat_runs(
        &self,
        call: Call<v1::HeartbeatRunsRequest>,
    ) -> Result<v1::HeartbeatRunsResponse, Problem> {
        let heartbeats = heartbeats::heartbeat_runs(call.message, &call.caller).map_err(problem::invalid)?;
        let asked = heartbeats.iter().filter_map(|heartbeat| heartbeat.as_ref().ok()).cloned().collect();
        let renewed = self.renewals.renew_all(call.key, asked, call.until.deadline).await;
        let (mut renewed, mut results) = (renewed.into_iter(), Results::default());
        for heartbeat in heartbeats {
            match heartbeat {
                Err(violations) => results.push(None, Err(problem::invalid(violations))),
                Ok((key, _)) => {
                    let renewed = renewed.next().expect("each renewal has an answer");
                    results.push(Some(&key), renewed.map_err(|failure| failed(failure, &key, "HeartbeatRuns")));
                }
            }
        }
        Ok(results.answer())
    }
}

fn failed(failure: Failure, key: &RunKey, rpc: &'static str) -> Problem {
    match failure {
        Failure::Refused(refusal) => problem::refusal(&refusal),
        Failure::Overloaded => problem::overloaded(),
        Failure::Draining => problem::draining(),
        // The lease may have been renewed, and renewing again does no harm.
        Failure::Deadline => problem::outcome_unknown(true),
        Failure::NotRenewed => problem::deadline(),
        Failure::Store(error) => unreadable(rpc, key, &error),
    }
}

//! The call that renews a lease.

use super::{Authority, Call, unreadable};
use crate::telemetry::traces;
use crate::upkeep::renewals::Failure;
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
        let renewed = renewed.map_err(|failure| match failure {
            Failure::Refused(refusal) => problem::refusal(&refusal),
            Failure::Overloaded => problem::overloaded(),
            Failure::Draining => problem::draining(),
            // The lease may have been renewed, and renewing again does no harm.
            Failure::Deadline => problem::outcome_unknown(true),
            Failure::Store(error) => unreadable("HeartbeatRun", &key, &error),
        })?;
        Ok((&renewed).into())
    }
}

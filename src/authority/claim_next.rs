//! The call that claims the next run of those that wait.

use futures_util::FutureExt as _;
use prost::Message as _;
use tokio::time::Instant;

use super::mutations;
use super::{ANSWER_BYTES_MAX, Authority, Call, unlisted};
use crate::auth::Caller;
use crate::claims::{self, Claim, Granted};
use crate::telemetry::{record, traces};
use crate::wire::from_domain::FromDomain as _;
use crate::wire::problem::{self, Problem};
use crate::wire::query;
use runledger_proto::v1;

impl Authority {
    /// Answers a `ClaimNextRun`.
    ///
    /// # Errors
    ///
    /// No run was claimed, although one may wait.
    pub async fn claim_next_run(
        &self,
        call: Call<v1::ClaimNextRunRequest>,
    ) -> Result<v1::ClaimNextRunResponse, Problem> {
        let Call { caller, key, until, trace, message } = call;
        let message = query::claim_next_run(message, &caller).map_err(problem::invalid)?;
        self.claim_next(Call { caller, key, until, trace, message }, ANSWER_BYTES_MAX).await
    }

    /// Claims as a request has asked. The answer has so many bytes at most, but for its first run.
    ///
    /// # Errors
    ///
    /// No run was claimed, although one may wait.
    pub(super) async fn claim_next(
        &self,
        call: Call<query::ClaimNext>,
        bytes_max: usize,
    ) -> Result<v1::ClaimNextRunResponse, Problem> {
        let query::ClaimNext { filter, take, lease_ttl_ms, wait, max_running, max_runs, request } = call.message;
        let Caller { namespace, principal, agents, .. } = call.caller;
        let came = Instant::now();
        let wait_until = came + self.wait_max(wait, &call.until);
        let retry_is_safe = request.is_some();
        let claim = Claim {
            namespace,
            filter,
            take,
            max_running,
            lease_ttl_ms,
            max_runs,
            principal,
            agents,
            caller: call.key,
            bytes_max,
            request,
            wait_until,
            deadline: call.until.deadline,
            trace: call.trace,
        };
        let mut cut = None;
        let is_cut = call.until.cut_short().map(|why| cut = Some(why));
        let granted = self.claims.next(&claim, is_cut).await;
        match &granted {
            Ok(Some(Granted { replayed: false, .. })) => record::claim((0, "granted"), Some(came.elapsed())),
            Ok(Some(Granted { replayed: true, .. })) => record::claim((1, "replayed"), None),
            Ok(None) => record::claim((2, "none"), None),
            Err(_) => record::claim((3, "failed"), None),
        }
        let granted = granted.map_err(|failure| match failure {
            claims::Failure::Engine(failure) => mutations::failed(failure, retry_is_safe),
            claims::Failure::Refused(refusal) => problem::refusal(&refusal),
            claims::Failure::Store(error) => unlisted("ClaimNextRun", &claim.namespace, &error),
            claims::Failure::Overloaded { wait } => problem::overloaded_for(wait),
            claims::Failure::Draining => problem::draining(),
            claims::Failure::Cut => cut.unwrap_or_else(problem::connection_ends),
        })?;
        let disposition = match &granted {
            None => v1::Disposition::Unspecified,
            Some(Granted { replayed: false, .. }) => v1::Disposition::Applied,
            Some(Granted { replayed: true, .. }) => v1::Disposition::Replayed,
        };
        let Some(Granted { first, more, .. }) = granted else { return Ok(v1::ClaimNextRunResponse::default()) };
        traces::current_run(&claim.namespace, &first.run().run_id);
        let run = v1::Run::from_domain(first.run());
        first.receive();
        let mut bytes = run.encoded_len();
        let mut more_runs = Vec::with_capacity(more.len());
        for grant in more {
            let run = v1::Run::from_domain(grant.run());
            bytes += run.encoded_len();
            // What is left here is given back.
            if bytes > bytes_max {
                break;
            }
            grant.receive();
            more_runs.push(run);
        }
        Ok(v1::ClaimNextRunResponse { run: Some(run), disposition: disposition.into(), more_runs })
    }
}

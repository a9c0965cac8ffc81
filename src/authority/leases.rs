//! The calls of leases besides commands: renewals, claims of the next run, and reads of a lease's own row.

use tokio::time::Instant;

use super::mutations;
use super::{Authority, Call, unlisted, unreadable};
use crate::auth::Caller;
use crate::claims::{self, Claim, Granted};
use crate::domain::{LabelValue, Run, RunKey, Status as RunStatus};
use crate::leases::renewals::Failure;
use crate::store::query::Place;
use crate::wire::answer::{self, timestamp};
use crate::wire::problem::{self, Problem};
use crate::wire::{query, request};
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
        let renewed = self.renewals.renew(key.clone(), renewal, call.until.deadline).await;
        let renewed = renewed.map_err(|failure| match failure {
            Failure::Refused(refusal) => problem::refusal(&refusal),
            Failure::Overloaded => problem::overloaded(),
            Failure::Draining => problem::draining(),
            // The lease may have been renewed, and renewing again does no harm.
            Failure::Deadline => problem::outcome_unknown(true),
            Failure::Store(error) => unreadable("HeartbeatRun", &key, &error),
        })?;
        Ok(v1::HeartbeatRunResponse {
            revision: renewed.run.revision,
            expires_at: Some(timestamp(renewed.expires_at)),
            abort_request: renewed.run.supervision.abort_request.as_deref().map(Into::into),
            now: Some(timestamp(renewed.now)),
        })
    }

    /// Answers a `ClaimNextRun`.
    ///
    /// # Errors
    ///
    /// No run was claimed, although one may wait.
    pub async fn claim_next_run(
        &self,
        call: Call<v1::ClaimNextRunRequest>,
    ) -> Result<v1::ClaimNextRunResponse, Problem> {
        let query::ClaimNext { filter, lease_ttl_ms, wait, max_running, request } =
            query::claim_next_run(call.message, &call.caller).map_err(problem::invalid)?;
        let Caller { namespace, principal } = call.caller;
        let wait_until = Instant::now() + self.wait_max(wait, call.until);
        let retry_is_safe = request.is_some();
        let claim = Claim {
            namespace,
            filter,
            max_running,
            lease_ttl_ms,
            principal,
            request,
            wait_until,
            deadline: call.until.deadline,
        };
        let granted = self.claims.next(&claim).await.map_err(|failure| match failure {
            claims::Failure::Engine(failure) => mutations::failed(failure, retry_is_safe),
            claims::Failure::Refused(refusal) => problem::refusal(&refusal),
            claims::Failure::Store(error) => unlisted("ClaimNextRun", &claim.namespace, &error),
            claims::Failure::Overloaded => problem::overloaded(),
            claims::Failure::Draining => problem::draining(),
        })?;
        let disposition = match &granted {
            None => v1::Disposition::Unspecified,
            Some(Granted { replayed: false, .. }) => v1::Disposition::Applied,
            Some(Granted { replayed: true, .. }) => v1::Disposition::Replayed,
        };
        let run = granted.map(|granted| granted.run.as_ref().into());
        Ok(v1::ClaimNextRunResponse { run, disposition: disposition.into() })
    }

    /// The place of a run that waits for a claim in the queue of its value of a label.
    pub(super) async fn place(&self, key: &RunKey, run: &Run, label: &str) -> Result<Option<v1::QueuePlace>, Problem> {
        let Some(value) = LabelValue::of(run, label).filter(|_| run.awaits_claim()) else { return Ok(None) };
        let ahead = self.count_waiting(&key.namespace, &value, &Place::of(run)).await?;
        let running = self.store.running(std::slice::from_ref(&value)).await;
        let running = running.map_err(|error| unreadable("GetRun", key, &error))?;
        // A run that was claimed a moment ago would wait for itself.
        let running_run_ids =
            running.into_iter().flatten().filter(|run_id| *run_id != key.run_id).map(String::from).collect();
        let LabelValue { label, value, .. } = value;
        let position = ahead.counts.values().sum::<u64>() + 1;
        Ok(Some(v1::QueuePlace { label, value, position, truncated: ahead.truncated, running_run_ids }))
    }

    /// A run with the expiry and the progress in its lease's own row. Only a running run with a lease has such a row.
    pub(super) async fn shown(&self, key: &RunKey, run: &Run) -> Result<v1::Run, Problem> {
        let mut shown: v1::Run = run.into();
        let Some(lease) = &mut shown.lease else { return Ok(shown) };
        if run.status != RunStatus::Running {
            return Ok(shown);
        }
        let kept = self.store.leases(std::slice::from_ref(key)).await;
        let kept = kept.map_err(|error| unreadable("GetRun", key, &error))?.pop().flatten();
        // The row is read a moment after the run: it may be of a later lease, which this run does not have.
        if let Some(kept) = kept.filter(|kept| kept.epoch == lease.epoch) {
            lease.expires_at = Some(timestamp(kept.expires_at));
            shown.progress = kept.progress.as_ref().map(answer::progress);
        }
        Ok(shown)
    }
}

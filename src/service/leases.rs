//! What leases have besides commands: renewals, claims of whatever comes next, and what a lease's own row says.

use tokio::time::Instant;
use tonic::Status;

use super::{Backend, lists, runs, unlisted, unreadable};
use crate::auth::Caller;
use crate::claims::{self, Claim, Granted};
use crate::domain::{LabelValue, Renewal, Run, RunKey, Status as RunStatus};
use crate::leases::renewals::Failure;
use crate::store::query::Place;
use crate::wire::answer::{self, timestamp};
use crate::wire::{query, status};
use runledger_proto::v1;

/// Answers a `HeartbeatRun`.
pub(super) async fn heartbeat(
    backend: &Backend,
    key: RunKey,
    renewal: Renewal,
    deadline: Option<Instant>,
) -> Result<v1::HeartbeatRunResponse, Status> {
    let renewed = backend.renewals.renew(key.clone(), renewal, deadline).await.map_err(|failure| match failure {
        Failure::Refused(refusal) => status::refusal(&refusal),
        Failure::Overloaded => status::overloaded(),
        Failure::Draining => status::draining(),
        // Perhaps it was renewed, and renewing again does no harm.
        Failure::Deadline => status::outcome_unknown(true),
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
pub(super) async fn claim_next(
    backend: &Backend,
    caller: Caller,
    until: runs::Until,
    request: v1::ClaimNextRunRequest,
) -> Result<v1::ClaimNextRunResponse, Status> {
    let query::ClaimNext { filter, lease_ttl_ms, wait, max_running, request } =
        query::claim_next_run(request, &caller).map_err(status::invalid)?;
    let Caller { namespace, principal } = caller;
    let wait_until = Instant::now() + runs::wait_max(backend, wait, until);
    let retry_is_safe = request.is_some();
    let claim = Claim {
        namespace,
        filter,
        max_running,
        lease_ttl_ms,
        principal,
        request,
        wait_until,
        deadline: until.deadline,
    };
    let granted = backend.claims.next(&claim).await.map_err(|failure| match failure {
        claims::Failure::Engine(failure) => runs::failed(failure, retry_is_safe),
        claims::Failure::Refused(refusal) => status::refusal(&refusal),
        claims::Failure::Store(error) => unlisted("ClaimNextRun", &claim.namespace, &error),
        claims::Failure::Overloaded => status::overloaded(),
        claims::Failure::Draining => status::draining(),
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
pub(super) async fn place(
    backend: &Backend,
    key: &RunKey,
    run: &Run,
    label: &str,
) -> Result<Option<v1::QueuePlace>, Status> {
    let Some(value) = LabelValue::of(run, label).filter(|_| run.awaits_claim()) else { return Ok(None) };
    let ahead = lists::count_waiting(backend, &key.namespace, &value, &Place::of(run)).await?;
    let running = backend.store.running(std::slice::from_ref(&value)).await;
    let running = running.map_err(|error| unreadable("GetRun", key, &error))?;
    // Claimed a moment ago, it would wait for itself.
    let running_run_ids = running.into_iter().flatten().filter(|run_id| *run_id != key.run_id).collect();
    let LabelValue { label, value, .. } = value;
    let position = ahead.counts.values().sum::<u64>() + 1;
    Ok(Some(v1::QueuePlace { label, value, position, truncated: ahead.truncated, running_run_ids }))
}

/// A run with what its lease's own row says. Only a running run with a lease has one.
pub(super) async fn shown(backend: &Backend, key: &RunKey, run: &Run) -> Result<v1::Run, Status> {
    let mut shown: v1::Run = run.into();
    let Some(lease) = &mut shown.lease else { return Ok(shown) };
    if run.status != RunStatus::Running {
        return Ok(shown);
    }
    let kept = backend.store.leases(std::slice::from_ref(key)).await;
    let kept = kept.map_err(|error| unreadable("GetRun", key, &error))?.pop().flatten();
    // Read a moment after the run: it may be another lease by now, which this run does not have.
    if let Some(kept) = kept.filter(|kept| kept.epoch == lease.epoch) {
        lease.expires_at = Some(timestamp(kept.expires_at));
        shown.progress = kept.progress.as_ref().map(answer::progress);
    }
    Ok(shown)
}

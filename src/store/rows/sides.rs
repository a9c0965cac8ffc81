//! Rows of the sides: `leases`, `claims` and `max_running`; and the statements on them that both databases take.

use super::{Columns, Reader};
use crate::domain::{ClaimKey, Claimed, Progress, RunKey};
use crate::store::StoreError;
use crate::store::leases::KeptLease;
use crate::store::scalars::shown;

/// A lease as it is kept, from `epoch`, `expires_at`, `progress_done`, `progress_total`, `progress_message` and
/// `progress_at`.
pub(in crate::store) fn lease<R: Columns>(row: &R, key: &RunKey) -> Result<KeptLease, StoreError> {
    let lease = Reader { table: "leases", row, key: &|| shown(key) };
    let progress = match lease.get((5, "progress_at"))? {
        None => None,
        Some(at) => {
            let (done, total) = (lease.get((2, "progress_done"))?, lease.get((3, "progress_total"))?);
            Some((Progress { done, total, message: lease.get((4, "progress_message"))? }, at))
        }
    };
    Ok(KeptLease { epoch: lease.get((0, "epoch"))?, expires_at: lease.get((1, "expires_at"))?, progress })
}

/// Reads the claim of a request. Most requests are new and cost this read only.
pub(in crate::store) const READ_CLAIM: &str = "-- claims.read
select namespace, request_id, request_digest, run_id, epoch, replays
from claims
where namespace = $1 and request_id = $2 and run_id is not null";

/// Notes one more answer. On Postgres, waits for a claim that is being given back.
pub(in crate::store) const REPLAY_CLAIM: &str = "-- claims.replay
update claims
set replays = replays + 1
where namespace = $1 and request_id = $2 and run_id is not null
returning namespace, request_id, request_digest, run_id, epoch, replays";

/// A claim, from the columns of [`READ_CLAIM`].
pub(in crate::store) fn claim<R: Columns>(row: &R) -> Result<(ClaimKey, Claimed), StoreError> {
    let claim = Reader { table: "claims", row, key: &|| "a row without a key".to_owned() };
    let (namespace, request_id): ClaimKey = (claim.get((0, "namespace"))?, claim.get((1, "request_id"))?);
    let claim = Reader { table: "claims", row, key: &|| format!("{namespace}/{request_id}") };
    let claimed = Claimed {
        key: RunKey { namespace: namespace.clone(), run_id: claim.get((3, "run_id"))? },
        epoch: claim.get((4, "epoch"))?,
        digest: claim.get((2, "request_digest"))?,
        replays: claim.get((5, "replays"))?,
    };
    Ok(((namespace, request_id), claimed))
}

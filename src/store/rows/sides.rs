//! Rows of the sides: `leases`, `claims` and `max_running`.

use std::collections::HashMap;

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

/// A claim, from `namespace`, `request_id`, `request_digest`, `run_id`, `epoch` and `replays`.
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

/// The claims of these requests, in their order.
pub(in crate::store) fn claims_of(
    request_ids: &[String],
    claims: impl IntoIterator<Item = (ClaimKey, Claimed)>,
) -> Vec<Option<Claimed>> {
    let mut claims: HashMap<String, Claimed> = claims.into_iter().map(|((_, id), claimed)| (id, claimed)).collect();
    request_ids.iter().map(|id| claims.remove(id)).collect()
}

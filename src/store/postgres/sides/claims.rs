//! The claims of claimers' own requests: see [`Claimed`].
//!
//! A request's row is its mutex. It is taken after the head and after the rows of [limits](super::limits),
//! several in the order of their keys, and read in a later statement than the one that waited. So of two attempts on two
//! replicas, whatever runs they mean to take, one claims, and the other finds that claim.

use tokio_postgres::Row;

use super::super::read::reading;
use super::super::rows::Reader;
use super::super::sessions::Sessions;
use super::leases::writing;
use crate::domain::{ClaimKey, Claimed, Namespace, RunKey};
use crate::store::StoreError;

/// Takes the rows of the requests, and makes those that are not there.
pub(in crate::store::postgres) const LOCK: &str = "-- commit.lock_claims
insert into claims (namespace, request_id, claimed_at)
select namespace, request_id, clock_timestamp()
from unnest($1::text[], $2::text[]) as v (namespace, request_id)
order by namespace collate \"C\", request_id collate \"C\"
on conflict (namespace, request_id) do update set claimed_at = excluded.claimed_at where false";

/// Those that were applied before.
pub(in crate::store::postgres) const LOAD: &str = "-- commit.load_claims
select c.namespace, c.request_id, c.request_digest, c.run_id, c.epoch, c.replays
from unnest($1::text[], $2::text[]) as v (namespace, request_id)
cross join lateral (
    select * from claims where namespace = v.namespace and request_id = v.request_id offset 0) as c
where c.run_id is not null";

const READ: &str = "-- claims.read
select namespace, request_id, request_digest, run_id, epoch, replays
from claims
where namespace = $1 and request_id = $2 and run_id is not null";

/// Waits for a claim that is being given back.
const REPLAY: &str = "-- claims.replay
update claims
set replays = replays + 1
where namespace = $1 and request_id = $2 and run_id is not null
returning namespace, request_id, request_digest, run_id, epoch, replays";

/// Whatever was claimed this long ago is forgotten.
const FORGET: &str = "-- claims.forget
delete from claims
where ctid = any (array(
    select ctid from claims
    where claimed_at < (select clock_timestamp() - interval '1 hour')
    order by claimed_at
    limit 1000
    for update skip locked))
returning 1";

/// Rows that are forgotten at once at most, as the statement says.
const FORGET_ROWS_MAX: usize = 1_000;

/// The statements that look for requests, for a look at their plans.
#[must_use]
pub fn of_claims() -> Vec<String> {
    [LOCK, LOAD, READ, REPLAY, FORGET].map(str::to_owned).to_vec()
}

/// A row of [`LOAD`].
pub(in crate::store::postgres) fn claimed(row: &Row) -> Result<(ClaimKey, Claimed), StoreError> {
    let reader = Reader { table: "claims", row };
    let unknown = || "a row without a key".to_owned();
    let (namespace, request_id): (Namespace, String) =
        (reader.get("namespace", unknown)?, reader.get("request_id", unknown)?);
    let here = || format!("{namespace}/{request_id}");
    let digest: &[u8] = reader.get("request_digest", here)?;
    let digest = digest
        .try_into()
        .map_err(|_| reader.corrupt("request_digest", here(), format!("{} bytes and not 32", digest.len()).into()))?;
    let claimed = Claimed {
        key: RunKey { namespace: namespace.clone(), run_id: reader.get("run_id", here)? },
        epoch: reader.unsigned("epoch", here)?,
        digest,
        replays: reader.unsigned("replays", here)?,
    };
    Ok(((namespace, request_id), claimed))
}

/// Most requests are new: they cost this.
pub(in crate::store::postgres) async fn read(
    sessions: &Sessions,
    namespace: &str,
    request_id: &str,
) -> Result<Option<Claimed>, StoreError> {
    let found = reading(sessions, |session| async move {
        let found = async {
            let statement = session.prepare_cached(READ).await?;
            session.query_opt(&statement, &[&namespace, &request_id]).await
        };
        let found = found.await;
        (session, found)
    });
    found.await?.as_ref().map(|row| claimed(row).map(|(_, claimed)| claimed)).transpose()
}

pub(in crate::store::postgres) async fn replay(
    sessions: &Sessions,
    namespace: &str,
    request_id: &str,
) -> Result<Option<Claimed>, StoreError> {
    let rows = writing(sessions, REPLAY, &[&namespace, &request_id]).await?;
    rows.first().map(|row| claimed(row).map(|(_, claimed)| claimed)).transpose()
}

pub(in crate::store::postgres) async fn forget(sessions: &Sessions) -> Result<bool, StoreError> {
    Ok(writing(sessions, FORGET, &[]).await?.len() >= FORGET_ROWS_MAX)
}

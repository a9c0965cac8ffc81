//! The claims of claimers' own requests: see [`Claimed`].
//!
//! A request's row is its mutex. The row is taken after the head and after the rows of [`max_running`](super::max_running),
//! several in the order of their keys, and read in a later statement than the one that waited. So of two attempts on
//! two replicas, whatever runs they mean to take, one claims, and the other finds that claim.

use super::super::read;
use super::super::sessions::Sessions;
use super::super::writing::writing;
use crate::domain::Claimed;
use crate::store::StoreError;
use crate::store::rows::sides::{READ_CLAIM, REPLAY_CLAIM, claim};

/// Takes the rows of the requests, and makes those that are not there.
pub(in crate::store::postgres) const LOCK: &str = "-- commit.lock_claims
insert into claims (namespace, request_id, claimed_at)
select namespace, request_id, clock_timestamp()
from unnest($1::text[], $2::text[]) as v (namespace, request_id)
order by namespace collate \"C\", request_id collate \"C\"
on conflict (namespace, request_id) do update set claimed_at = excluded.claimed_at where false";

/// The requests that were answered with a claim before.
pub(in crate::store::postgres) const LOAD: &str = "-- commit.load_claims
select c.namespace, c.request_id, c.request_digest, c.run_id, c.epoch, c.replays
from unnest($1::text[], $2::text[]) as v (namespace, request_id)
cross join lateral (
    select * from claims where namespace = v.namespace and request_id = v.request_id offset 0) as c
where c.run_id is not null";

/// Deletes the claims that were made this long ago.
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
    [LOCK, LOAD, READ_CLAIM, REPLAY_CLAIM, FORGET].map(str::to_owned).to_vec()
}

pub(in crate::store::postgres) async fn claimed(
    sessions: &Sessions,
    namespace: &str,
    request_id: &str,
) -> Result<Option<Claimed>, StoreError> {
    let rows = read::rows(sessions, READ_CLAIM, &[&namespace, &request_id]).await?;
    rows.first().map(|row| claim(row).map(|(_, claimed)| claimed)).transpose()
}

pub(in crate::store::postgres) async fn replay(
    sessions: &Sessions,
    namespace: &str,
    request_id: &str,
) -> Result<Option<Claimed>, StoreError> {
    let rows = writing(sessions, REPLAY_CLAIM, &[&namespace, &request_id]).await?;
    rows.first().map(|row| claim(row).map(|(_, claimed)| claimed)).transpose()
}

pub(in crate::store::postgres) async fn forget(sessions: &Sessions) -> Result<bool, StoreError> {
    Ok(writing(sessions, FORGET, &[]).await?.len() >= FORGET_ROWS_MAX)
}

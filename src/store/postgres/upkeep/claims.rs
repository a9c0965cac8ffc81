//! The claims of claimers' own requests beside commits: read, answered once more, forgotten.

use tokio_postgres::Row;

use crate::domain::{Claimed, Time};
use crate::store::StoreError;
use crate::store::postgres::autocommit_writes::writing;
use crate::store::postgres::read;
use crate::store::postgres::rows::At;
use crate::store::postgres::sessions::Sessions;
use crate::store::postgres::sides::claims::{LOAD, LOCK};
use crate::store::rows::sides::{claim, claims_of};

/// Notes one more answer of each. Waits for claims that are being given back. Takes the rows before in the order in which
/// commits take them.
const REPLAY: &str = "-- claims.replay
with held as materialized (
    select from (select request_id from unnest($2::text[]) as k (request_id) order by request_id collate \"C\") as v
    cross join lateral (
        select from claims where namespace = $1 and request_id = v.request_id for update) as c)
update claims
set replays = replays + 1
where namespace = $1 and request_id = any ($2) and run_id is not null and (select count(*) from held) >= 0
returning namespace, request_id, request_digest, run_id, epoch, replays";

/// Deletes the claims that were made this long ago.
const FORGET: &str = "-- claims.forget
delete from claims
where ctid = any (array(
    select ctid from claims
    where claimed_at < (
        select least(clock_timestamp() + steady_ahead, $1::timestamptz + interval '1 s') - interval '1 hour' from uptime where singleton)
    order by claimed_at
    limit 1000
    for update skip locked))
returning 1";

/// Rows that are forgotten at once at most, as the statement says.
const FORGET_ROWS_MAX: usize = 1_000;

/// The statements that look for requests, for a look at their plans.
#[must_use]
pub fn of_claims() -> Vec<String> {
    [LOCK, LOAD, REPLAY, FORGET].map(str::to_owned).to_vec()
}

pub(in crate::store::postgres) async fn claimed(
    sessions: &Sessions,
    namespace: &str,
    request_ids: &[String],
) -> Result<Vec<Option<Claimed>>, StoreError> {
    let namespaces = vec![namespace; request_ids.len()];
    in_order(request_ids, &read::rows(sessions, LOAD, &[&namespaces, &request_ids]).await?)
}

pub(in crate::store::postgres) async fn replay(
    sessions: &Sessions,
    namespace: &str,
    request_ids: &[String],
) -> Result<Vec<Option<Claimed>>, StoreError> {
    in_order(request_ids, &writing(sessions, REPLAY, &[&namespace, &request_ids]).await?)
}

fn in_order(request_ids: &[String], rows: &[Row]) -> Result<Vec<Option<Claimed>>, StoreError> {
    let claims: Vec<_> = rows.iter().map(claim).collect::<Result<_, _>>()?;
    Ok(claims_of(request_ids, claims))
}

/// At this time of the steady clock.
pub(in crate::store::postgres) async fn forget(sessions: &Sessions, now: Time) -> Result<bool, StoreError> {
    Ok(writing(sessions, FORGET, &[&At(now)]).await?.len() >= FORGET_ROWS_MAX)
}

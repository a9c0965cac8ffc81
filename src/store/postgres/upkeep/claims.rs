//! The claims of claimers' own requests beside commits: read, answered once more, forgotten.

use crate::domain::{Claimed, Time};
use crate::store::StoreError;
use crate::store::postgres::autocommit_writes::writing;
use crate::store::postgres::read;
use crate::store::postgres::rows::At;
use crate::store::postgres::sessions::Sessions;
use crate::store::postgres::sides::claims::{LOAD, LOCK};
use crate::store::rows::sides::{READ_CLAIM, REPLAY_CLAIM, claim};

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

/// At this time of the steady clock.
pub(in crate::store::postgres) async fn forget(sessions: &Sessions, now: Time) -> Result<bool, StoreError> {
    Ok(writing(sessions, FORGET, &[&At(now)]).await?.len() >= FORGET_ROWS_MAX)
}

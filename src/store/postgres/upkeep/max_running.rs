//! The rows of `max_running` beside commits: forgotten where no run is left.

use crate::domain::Time;
use crate::store::StoreError;
use crate::store::postgres::autocommit_writes::writing;
use crate::store::postgres::rows::At;
use crate::store::postgres::sessions::Sessions;
use crate::store::postgres::sides::max_running::IS_ACTIVE;

/// Rows that are forgotten at once at most.
const FORGET_ROWS_MAX: usize = 1_000;

/// Deletes the rows of values whose runs have all ended. A row that was changed a moment ago is left alone: `active`
/// may have been read before the claim that changed it.
pub(in crate::store::postgres) async fn tidy(sessions: &Sessions, now: Time) -> Result<bool, StoreError> {
    let statement = format!(
        "-- max_running.tidy
delete from max_running m
where (m.namespace, m.label, m.value) in (
    select m.namespace, m.label, m.value
    from max_running m
    where m.changed_at < (
        select least(clock_timestamp() + steady_ahead, $1::timestamptz + interval '1 s') - interval '1 minute'
        from uptime where singleton)
      and not exists (select from jsonb_each(m.runs) as h where {IS_ACTIVE})
    limit {FORGET_ROWS_MAX}
    for update skip locked)
returning 1"
    );
    Ok(writing(sessions, &statement, &[&At(now)]).await?.len() >= FORGET_ROWS_MAX)
}

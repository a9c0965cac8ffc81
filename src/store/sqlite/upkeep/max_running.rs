//! The rows of `max_running` beside commits: forgotten where no run is left.

use rusqlite::Connection;

use crate::clock::Clock;
use crate::store::StoreError;
use crate::store::sqlite::rows::execute;

/// The shortest time for which a value is kept whose runs have all ended, in milliseconds.
const KEEP_MS: i64 = 60_000;

/// Rows that are forgotten at once at most.
const FORGET_ROWS_MAX: usize = 1_000;

/// Forgets values whose runs have all ended.
pub(in crate::store::sqlite) fn tidy(connection: &mut Connection, clock: &dyn Clock) -> Result<bool, StoreError> {
    let until = clock.now().micros() - KEEP_MS * 1_000;
    let forgotten = execute(
        connection,
        "-- max_running.tidy
         delete from max_running where (namespace, label, value) in (
                select m.namespace, m.label, m.value from max_running as m
                 where m.changed_at < ?1 and not exists (
                        select 1 from json_each(m.runs) as h
                          join active as a on a.shard = h.value and a.namespace = m.namespace and a.run_id = h.key)
                 limit ?2)",
        (until, i64::try_from(FORGET_ROWS_MAX).unwrap_or(i64::MAX)),
    );
    Ok(forgotten? >= FORGET_ROWS_MAX)
}

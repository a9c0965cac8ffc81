//! Pages of the log: all shards in one snapshot, merged.

use std::ops::ControlFlow;

use rusqlite::{Connection, Row, Transaction};

use super::rows::{Yielding, bigint, each};
use super::{ends, errors};
use crate::domain::{Namespace, Position, Positions, Shard, Time};
use crate::store::json::EventColumns;
use crate::store::merge::{self, ShardEvents};
use crate::store::rows::events;
use crate::store::{Page, StoreError};

const PART: &str = "-- changes.part
select revision, at, event, request_id, position, namespace, run_id from run_events
 where shard = ?1 and position > ?2 order by position limit ?3";

/// The condition on the namespace is said twice: only with the second half SQLite takes the index of it.
const PART_OF: &str = "-- changes.part_of
select revision, at, event, request_id, position, namespace, run_id from run_events
 where shard = ?1 and position > ?2 and namespace = ?4 and namespace <> 'default' order by position limit ?3";

/// The events above `after`. The clock was read before the snapshot is taken, so that the page is at least as young as
/// `as_of`. The snapshot is released before a row is decoded: while it is held, the write-ahead log
/// cannot start over.
pub(super) fn page(
    connection: &mut Connection,
    shard_count: u16,
    after: &Positions,
    limit: usize,
    bytes_max: usize,
    as_of: Time,
) -> Result<Page, StoreError> {
    let bytes_max = bytes_max / usize::from(shard_count).max(1);
    let mut yielding = Yielding::begin();
    let snapshot = connection.transaction().map_err(errors::statement)?;
    let parts = (0..shard_count)
        .map(Shard)
        .map(|shard| part(&snapshot, (shard, None), after.of(shard), limit.max(1), bytes_max, &mut yielding))
        .collect::<Result<Vec<_>, StoreError>>()?;
    drop(snapshot);
    // The decoding takes as long again.
    std::thread::yield_now();
    Ok(merge::page(as_of, parts))
}

/// The events of one namespace above `after`, in the same way.
pub(super) fn page_of(
    connection: &mut Connection,
    shard_count: u16,
    namespace: &Namespace,
    after: &Positions,
    limit: usize,
    bytes_max: usize,
    as_of: Time,
) -> Result<Page, StoreError> {
    let bytes_max = bytes_max / usize::from(shard_count).max(1);
    let mut yielding = Yielding::begin();
    let snapshot = connection.transaction().map_err(errors::statement)?;
    let of = Some(namespace);
    let parts = (0..shard_count)
        .map(Shard)
        .map(|shard| part(&snapshot, (shard, of), after.of(shard), limit.max(1), bytes_max, &mut yielding))
        .collect::<Result<Vec<_>, StoreError>>()?;
    let ends = ends::ends(&snapshot, shard_count)?;
    drop(snapshot);
    std::thread::yield_now();
    Ok(merge::page_of(as_of, parts, ends))
}

/// A shard's events, of all namespaces or of one: at least one row if there is one, at most `limit`, about `bytes_max`.
fn part(
    snapshot: &Transaction<'_>,
    (shard, namespace): (Shard, Option<&Namespace>),
    after: Position,
    limit: usize,
    bytes_max: usize,
    yielding: &mut Yielding,
) -> Result<ShardEvents<EventColumns>, StoreError> {
    // One row more than wanted tells whether there is more.
    let limit_and_one = i64::try_from(limit.saturating_add(1)).unwrap_or(i64::MAX);
    let mut part = ShardEvents { shard, events: Vec::new(), cut: false };
    let mut bytes = 0;
    let visit = |row: &Row<'_>| {
        yielding.row();
        let (position, columns) = events::logged(row, shard)?;
        bytes += columns.event.len();
        if part.events.len() == limit || (bytes > bytes_max && !part.events.is_empty()) {
            part.cut = true;
            return Ok(ControlFlow::Break(()));
        }
        part.events.push((position, columns));
        Ok(ControlFlow::Continue(()))
    };
    let (shard, after) = (shard.0, bigint(after));
    match namespace {
        None => each(snapshot, PART, (shard, after, limit_and_one), visit)?,
        Some(namespace) => each(snapshot, PART_OF, (shard, after, limit_and_one, namespace.as_str()), visit)?,
    }
    Ok(part)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::migrations::SQLITE;

    #[test]
    fn the_history_of_one_namespace_is_found_by_an_index_of_its_own() {
        let connection = Connection::open_in_memory().unwrap();
        for migration in SQLITE {
            connection.execute_batch(migration.sql).unwrap();
        }
        for (statement, expected) in [
            (PART, "SEARCH run_events USING INDEX sqlite_autoindex_run_events_1 (shard=? AND position>?)"),
            (PART_OF, "SEARCH run_events USING INDEX run_events_by_namespace (namespace=? AND shard=? AND position>?)"),
        ] {
            let mut plan = connection.prepare(&format!("explain query plan {statement}")).unwrap();
            let none = vec![rusqlite::types::Null; plan.parameter_count()];
            let steps = plan.query_map(rusqlite::params_from_iter(none), |row| row.get::<_, String>("detail")).unwrap();
            let plan: Vec<String> = steps.map(Result::unwrap).collect();
            assert_eq!(plan, [expected], "neither another way, nor a sort");
        }
    }
}

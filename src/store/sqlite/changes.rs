//! Pages of the log: all shards in one snapshot, merged.

use std::ops::ControlFlow;

use rusqlite::{Connection, Transaction};

use super::errors;
use super::rows::{Yielding, bigint, each};
use crate::clock::Clock;
use crate::domain::{Position, Positions, Shard};
use crate::store::json::EventColumns;
use crate::store::merge::{self, Part};
use crate::store::rows::events;
use crate::store::{Page, StoreError};

const PART: &str = "-- changes.part
select revision, at, event, request_id, position, namespace, run_id from run_events
 where shard = ?1 and position > ?2 order by position limit ?3";

/// The events above `after`. The snapshot is released before a row is decoded: while it is held, the write-ahead log
/// cannot start over.
pub(super) fn page(
    connection: &mut Connection,
    shard_count: u16,
    after: &Positions,
    limit: usize,
    bytes_max: usize,
    clock: &dyn Clock,
) -> Result<Page, StoreError> {
    // The clock is read before the snapshot is taken, so that the page is at least as young as `as_of`.
    let as_of = clock.now();
    let bytes_max = bytes_max / usize::from(shard_count).max(1);
    let mut yielding = Yielding::begin();
    let snapshot = connection.transaction().map_err(errors::statement)?;
    let parts = (0..shard_count)
        .map(Shard)
        .map(|shard| part(&snapshot, shard, after.of(shard), limit.max(1), bytes_max, &mut yielding))
        .collect::<Result<Vec<_>, StoreError>>()?;
    drop(snapshot);
    // The decoding takes as long again.
    std::thread::yield_now();
    Ok(merge::page(as_of, parts))
}

/// A shard's events: at least one row if there is one, at most `limit`, about `bytes_max`.
fn part(
    snapshot: &Transaction<'_>,
    shard: Shard,
    after: Position,
    limit: usize,
    bytes_max: usize,
    yielding: &mut Yielding,
) -> Result<Part<EventColumns>, StoreError> {
    // One row more than wanted tells whether there is more.
    let limit_and_one = i64::try_from(limit.saturating_add(1)).unwrap_or(i64::MAX);
    let mut part = Part { events: Vec::new(), cut: false };
    let mut bytes = 0;
    each(snapshot, PART, (shard.0, bigint(after), limit_and_one), |row| {
        yielding.row();
        let (position, columns) = events::logged(row, shard)?;
        bytes += columns.event.len();
        if part.events.len() == limit || (bytes > bytes_max && !part.events.is_empty()) {
            part.cut = true;
            return Ok(ControlFlow::Break(()));
        }
        part.events.push(((columns.at, shard, position), columns));
        Ok(ControlFlow::Continue(()))
    })?;
    Ok(part)
}

//! Reads of one run, of the shards' ends, and of the ledger's row.

use std::ops::ControlFlow;

use rusqlite::Connection;

use super::rows::{Reader, all, bigint, each, first, ledger, shown};
use super::sides::leases;
use super::uptime::UptimeClock;
use super::{ends, errors};
use crate::domain::{ContentRow, Event, Position, Positions, Revision, Run, RunKey, Shard};
use crate::store::contents::{self, BESIDE, Beside};
use crate::store::dialect::run_columns;
use crate::store::rows::{events, runs};
use crate::store::{FoundRun, RunAsKept, StoreError, json};

const RUN: &str = concat!(
    "-- read.run\nselect ",
    run_columns!(sqlite),
    " from runs as r where r.shard = ?1 and r.namespace = ?2 and r.run_id = ?3"
);

/// The events from the keyframe at or before the revision, or from the first event.
const RUN_AT: &str = "-- read.run_at
select revision, at, event, request_id, case when revision = ?4 then keyframe end from run_events
 where shard = ?1 and namespace = ?2 and run_id = ?3 and revision >= ?4 and revision <= ?5 order by revision";

/// The plus keeps SQLite from walking the shard's log.
pub(super) const REVISION_AS_OF: &str = "-- read.revision_as_of
select revision from run_events
 where shard = ?1 and namespace = ?2 and run_id = ?3 and +position <= ?4 order by revision desc limit 1";

const RUN_EVENTS: &str = "-- read.run_events
select revision, at, event, request_id from run_events
 where shard = ?1 and namespace = ?2 and run_id = ?3 and revision > ?4 order by revision limit ?5";

/// The run as it is stored.
pub(super) fn run(connection: &Connection, shard: Shard, key: &RunKey) -> Result<Option<Run>, StoreError> {
    first(connection, RUN, (shard.0, &key.namespace.as_str(), &key.run_id.as_str()), |row| runs::run(row))
}

/// Runs as they are stored, with their leases, until they have so many bytes. Each is read for itself, and a lease a
/// moment after its run: one snapshot would cost more than both.
pub(super) fn runs(
    connection: &Connection,
    keys: &[(Shard, RunKey)],
    bytes_max: usize,
    clock: &UptimeClock,
) -> Result<Vec<FoundRun>, StoreError> {
    let mut bytes = 0;
    let read = |(shard, key): &(Shard, RunKey)| {
        if bytes >= bytes_max.max(1) {
            return Ok(FoundRun::Left);
        }
        let Some(run) = run(connection, *shard, key)? else { return Ok(FoundRun::Nothing) };
        bytes += run.weight().max(1);
        let lease = if RunAsKept::keeps_lease(&run) {
            leases::kept(connection, *shard, key, &clock.seen())?.map(|row| row.lease.told(|time| clock.shown(time)))
        } else {
            None
        };
        Ok(FoundRun::Run(Box::new(RunAsKept { run, lease })))
    };
    keys.iter().map(read).collect()
}

/// What stands beside a run.
pub(super) fn beside(
    connection: &Connection,
    shard: Shard,
    key: &RunKey,
    asked: &Beside,
) -> Result<Vec<ContentRow>, StoreError> {
    let [own, late] = asked.results.map(|revision| revision.map_or(0, bigint));
    let values = (shard.0, key.namespace.as_str(), key.run_id.as_str(), i64::from(asked.input), own, late, asked.links);
    all(connection, BESIDE, values, |row| contents::row(row))
}

/// Runs right after one of their events each, in one snapshot.
pub(super) fn runs_at(
    connection: &mut Connection,
    wanted: &[(Shard, RunKey, Revision)],
) -> Result<Vec<Option<Run>>, StoreError> {
    let snapshot = connection.transaction().map_err(errors::statement)?;
    let run_at = |(shard, key, revision): &(Shard, RunKey, Revision)| {
        let mut history = events::History::of(key);
        let values =
            (shard.0, key.namespace.as_str(), key.run_id.as_str(), bigint(revision.first_to_fold()), bigint(*revision));
        each(&snapshot, RUN_AT, values, |row| history.add(row).map(ControlFlow::Continue))?;
        Ok(history.run()?.filter(|run| run.revision == *revision))
    };
    wanted.iter().map(run_at).collect()
}

/// Runs, each with its shard and the shard's last position then.
pub(super) fn as_of(
    keys: &[RunKey],
    ends: &Positions,
    shard_of: impl Fn(&RunKey) -> Shard,
) -> Vec<(Shard, RunKey, Position)> {
    let at = |key: &RunKey| {
        let shard = shard_of(key);
        (shard, key.clone(), ends.of(shard))
    };
    keys.iter().map(at).collect()
}

/// The revision of each run when its shard ended at a position.
pub(super) fn revisions_as_of(
    connection: &mut Connection,
    wanted: &[(Shard, RunKey, Position)],
) -> Result<Vec<Revision>, StoreError> {
    let snapshot = connection.transaction().map_err(errors::statement)?;
    let revision = |(shard, key, end): &(Shard, RunKey, Position)| {
        let values = (shard.0, key.namespace.as_str(), key.run_id.as_str(), bigint(*end));
        let revision = first(&snapshot, REVISION_AS_OF, values, |row| {
            Reader { table: "run_events", row, key: &|| shown(key) }.get((0, "revision"))
        });
        Ok(revision?.unwrap_or(Revision::NONE))
    };
    wanted.iter().map(revision).collect()
}

/// A page of a run's events.
pub(super) fn run_events(
    connection: &Connection,
    shard: Shard,
    key: &RunKey,
    after: Revision,
    limit: usize,
    bytes_max: usize,
) -> Result<Vec<Event>, StoreError> {
    let limit = i64::try_from(limit).unwrap_or(i64::MAX);
    let mut page = Vec::new();
    let mut bytes = 0;
    each(
        connection,
        RUN_EVENTS,
        (shard.0, &key.namespace.as_str(), &key.run_id.as_str(), bigint(after), limit),
        |row| {
            let columns = events::columns(row, key.clone())?;
            bytes += columns.event.len();
            if bytes > bytes_max && !page.is_empty() {
                return Ok(ControlFlow::Break(()));
            }
            page.push(json::read_event(columns)?);
            Ok(ControlFlow::Continue(()))
        },
    )?;
    Ok(page)
}

/// Each shard's last position, in one snapshot.
pub(super) fn ends(connection: &mut Connection, shard_count: u16) -> Result<Positions, StoreError> {
    let snapshot = connection.transaction().map_err(errors::statement)?;
    ends::ends(&snapshot, shard_count)
}

/// The bytes of the file, without its log.
pub(super) fn bytes(connection: &Connection) -> Result<u64, StoreError> {
    let pragma = |name| connection.pragma_query_value(None, name, |row| row.get::<_, i64>(0));
    let bytes = pragma("page_count").and_then(|pages| Ok(pages.saturating_mul(pragma("page_size")?)));
    bytes.map(|bytes| u64::try_from(bytes).unwrap_or_default()).map_err(errors::statement)
}

/// Reads the ledger's row.
pub(super) fn ping(connection: &Connection) -> Result<(), StoreError> {
    ledger(connection).map(|_ledger| ())
}

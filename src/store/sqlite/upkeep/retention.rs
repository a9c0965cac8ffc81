//! Purges: the walk over a shard's log, and the transaction that takes what it has found.

use std::ops::ControlFlow;

use rusqlite::{Connection, params};

use crate::domain::{Namespace, Position, Positions, RunId, Shard, Status, Steady, Time};
use crate::store::StoreError;
use crate::store::dialect::content_bytes;
use crate::store::retention::{Due, Purged, Retained, StepSoFar, WALK_EVENTS_MAX, Walk, Walked, WalkedRows};
use crate::store::rows::namespaces::{retained, retentions};
use crate::store::sqlite::errors;
use crate::store::sqlite::rows::{Reader, all, bigint, each, execute, first};
use crate::store::sqlite::writer::begin;

const RETENTIONS: &str = retentions!("$1");

const WALKED: &str = "-- retention.walked
select position from retention_walks
 where namespace = ?1 and shard = ?2 and keep_ms = ?3 and statuses = ?4";

/// The events after a position, but for the shard's newest one; each with its run's status where it is the run's last.
macro_rules! walk {
    ($name:literal, $condition:literal) => {
        concat!(
            "-- retention.",
            $name,
            "
select e.position, e.at, e.run_id, e.revision, r.status, coalesce(e.event ->> 'steadyAheadMicros', 0)
  from run_events as e
  left join runs as r on r.shard = e.shard and r.namespace = ?3 and r.namespace = e.namespace and r.run_id = e.run_id
                     and r.revision = e.revision and r.status > 2 and r.purged_at is null
 where e.shard = ?1 and e.position > ?2 and e.position < (
       select position from run_events where shard = ?1 order by position desc limit 1)",
            $condition,
            "
 order by e.position limit ?4"
        )
    };
}
const WALK: &str = walk!("walk", "");
const WALK_OF: &str = walk!("walk_of", " and e.namespace = ?3 and e.namespace <> 'default'");

/// Whether the namespace still wants what the walk was begun for.
const WANTED: &str = "-- retention.wanted
select 1 from namespaces
 where name = ?2
   and (?4 & 8 = 0 or keep_completed_ms = ?3) and (?4 & 16 = 0 or keep_aborted_ms = ?3)
   and (?4 & 32 = 0 or keep_failed_ms = ?3)
   and (not keep_until_exported
        or ?5 <= coalesce((select position from exported where namespace = ?2 and shard = ?1), 0))";

const CUT: &str = "-- retention.cut
update runs
   set purged_at = ?5, started_at = ?6, task_thread_id = '', agent_id = null, workflow_id = null,
       audit_session_id = null, parent_run_id = null, continues_run_id = null, route = null, labels = null,
       metadata = null, archived_at = null,
       record = json_object('updatedAt', record ->> 'updatedAt', 'completedAt', record ->> 'completedAt')
 where shard = ?1 and namespace = ?2 and run_id = ?3 and revision = ?4 and status > 2 and purged_at is null";

const MEASURED: &str = concat!(
    "-- retention.measured
update stored_bytes
   set bytes = max(0, bytes - (
       select coalesce(sum(octet_length(e.event) + coalesce(octet_length(e.keyframe), 0) + ",
    content_bytes!(),
    "), 0)
         from run_events as e
        where e.shard = ?1 and e.namespace = ?2 and e.run_id = ?3 and e.position <= stored_bytes.position))
 where shard = ?1 and namespace = ?2"
);

/// What stands beside the run.
const NOTHING_BESIDE: [&str; 3] = [
    "-- retention.no_input\ndelete from run_input where shard = ?1 and namespace = ?2 and run_id = ?3",
    "-- retention.no_results\ndelete from run_results where shard = ?1 and namespace = ?2 and run_id = ?3",
    "-- retention.no_links\ndelete from run_links where shard = ?1 and namespace = ?2 and run_id = ?3",
];

const GONE: &str = "-- retention.gone
delete from run_events where shard = ?1 and namespace = ?2 and run_id = ?3";

/// The last event of a run is its newest.
const NOTED: &str = "-- retention.noted
insert into purged (namespace, shard, position)
select ?2, ?1, position from run_events where shard = ?1 and namespace = ?2 and run_id = ?3 and revision = ?4
on conflict (namespace, shard) do update set position = max(position, excluded.position)";

const WALKED_TO: &str = "-- retention.walked_to
insert into retention_walks (namespace, shard, keep_ms, statuses, position) values (?1, ?2, ?3, ?4, ?5)
on conflict (namespace, shard, keep_ms) do update set statuses = excluded.statuses, position = excluded.position";

const WALKED_ALL: &str = "-- retention.walked_all
select keep_ms, shard, statuses, position from retention_walks where namespace = ?1 order by keep_ms, shard";

const FORGOTTEN: &str = "-- retention.forgotten
select shard, position from purged where namespace = ?1";

const EXPORTED: &str = "-- retention.exported
select shard, position from exported where namespace = ?1";

pub(in crate::store::sqlite) fn forgotten(
    connection: &Connection,
    namespace: &Namespace,
    shard_count: u16,
) -> Result<Positions, StoreError> {
    positions(connection, ("purged", FORGOTTEN), namespace, shard_count)
}

pub(in crate::store::sqlite) fn exported(
    connection: &Connection,
    namespace: &Namespace,
    shard_count: u16,
) -> Result<Positions, StoreError> {
    positions(connection, ("exported", EXPORTED), namespace, shard_count)
}

pub(in crate::store::sqlite) fn walked_all(
    connection: &Connection,
    namespace: &Namespace,
    clock: Time,
) -> Result<(Walked, Time), StoreError> {
    let mut walked = WalkedRows::default();
    each(connection, WALKED_ALL, [namespace.as_str()], |row| {
        let walk = Reader { table: "retention_walks", row, key: &|| namespace.to_string() };
        let shard = Shard(walk.get((1, "shard"))?);
        walked.add(walk.get((0, "keep_ms"))?, shard, walk.get((2, "statuses"))?, walk.get((3, "position"))?);
        Ok(ControlFlow::Continue(()))
    })?;
    Ok((walked.end(), clock))
}

/// A position for each shard, from a table of such.
fn positions(
    connection: &Connection,
    (table, statement): (&'static str, &str),
    namespace: &Namespace,
    shard_count: u16,
) -> Result<Positions, StoreError> {
    let mut positions = Positions::start(shard_count);
    each(connection, statement, [namespace.as_str()], |row| {
        let place = Reader { table, row, key: &|| namespace.to_string() };
        positions.set(Shard(place.get((0, "shard"))?), place.get((1, "position"))?);
        Ok(ControlFlow::Continue(()))
    })?;
    Ok(positions)
}

pub(in crate::store::sqlite) fn retentions(connection: &Connection, clock: Time) -> Result<Vec<Retained>, StoreError> {
    all(connection, RETENTIONS, [clock.micros()], |row| retained(row))
}

pub(in crate::store::sqlite) fn walked(
    connection: &Connection,
    shard: Shard,
    walk: &Walk,
) -> Result<Position, StoreError> {
    let values = (walk.namespace.as_str(), shard.0, bigint(walk.keep_ms), walk.bits());
    let position = first(connection, WALKED, values, |row| {
        Reader { table: "retention_walks", row, key: &|| "a walk".to_owned() }.get((0, "position"))
    })?;
    Ok(position.unwrap_or_default())
}

pub(in crate::store::sqlite) fn due(
    connection: &Connection,
    shard: Shard,
    walk: &Walk,
    (after, upto): (Position, Position),
    steady: Steady,
) -> Result<Due, StoreError> {
    let Walk { namespace, keep_ms, statuses } = walk;
    let now = steady.now;
    let statement = if *namespace == Namespace::only() { WALK } else { WALK_OF };
    let limit = i64::try_from(WALK_EVENTS_MAX + 1).expect("some thousand");
    let mut step = StepSoFar::after(after);
    each(connection, statement, (shard.0, bigint(after), namespace.as_str(), limit), |row| {
        let event = Reader { table: "run_events", row, key: &|| "an event of a walk".to_owned() };
        // Those that follow are no earlier, by the steady clock.
        let until = steady.kept_until((event.get((1, "at"))?, event.get((5, "event"))?), *keep_ms);
        if until > now {
            step.is_kept(until, now);
            return Ok(ControlFlow::Break(()));
        }
        let position = event.get((0, "position"))?;
        if position > upto {
            return Ok(ControlFlow::Break(()));
        }
        let status = event.get::<Option<Status>>((4, "status"))?;
        let is_due = status.is_some_and(|status| statuses.contains(&status));
        let last_of =
            is_due.then(|| Ok::<_, StoreError>((event.get::<RunId>((2, "run_id"))?, event.get((3, "revision"))?)));
        let goes_on = step.come_by(position, last_of.transpose()?);
        Ok(if goes_on { ControlFlow::Continue(()) } else { ControlFlow::Break(()) })
    })?;
    Ok(step.end())
}

pub(in crate::store::sqlite) fn purge(
    connection: &mut Connection,
    shard: Shard,
    walk: &Walk,
    due: &Due,
    clock: Time,
) -> Result<Option<Purged>, StoreError> {
    let transaction = begin(connection)?;
    let (shard, namespace, now) = (shard.0, walk.namespace.as_str(), clock.micros());
    let wanted = (shard, namespace, bigint(walk.keep_ms), walk.bits(), bigint(due.upto));
    if first(&transaction, WANTED, wanted, |_row| Ok(()))?.is_none() {
        return Ok(None);
    }
    let mut purged = Purged::default();
    for (run_id, revision) in &due.runs {
        let revision = bigint(*revision);
        // No list looks so far back.
        if execute(&transaction, CUT, params![shard, namespace, run_id.as_str(), revision, now, i64::MIN])? == 0 {
            continue;
        }
        execute(&transaction, NOTED, params![shard, namespace, run_id.as_str(), revision])?;
        execute(&transaction, MEASURED, params![shard, namespace, run_id.as_str()])?;
        for statement in NOTHING_BESIDE {
            execute(&transaction, statement, params![shard, namespace, run_id.as_str()])?;
        }
        purged.events += execute(&transaction, GONE, params![shard, namespace, run_id.as_str()])? as u64;
        purged.runs += 1;
    }
    let (keep_ms, upto) = (bigint(walk.keep_ms), bigint(due.upto));
    execute(&transaction, WALKED_TO, params![namespace, shard, keep_ms, walk.bits(), upto])?;
    transaction.commit().map_err(errors::statement)?;
    Ok(Some(purged))
}

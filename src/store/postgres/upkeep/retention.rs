//! Purges: the walk over a shard's log, and the one statement that takes what it has found.

use std::time::Duration;

use async_trait::async_trait;
use tokio_postgres::types::ToSql;

use crate::domain::{Namespace, Position, Positions, Revision, RunId, Shard, Status, Time};
use crate::store::postgres::autocommit_writes::writing;
use crate::store::postgres::rows::{Reader, bigint, smallint};
use crate::store::postgres::sessions::Sessions;
use crate::store::postgres::{PostgresStore, min_release, read};
use crate::store::retention::{Due, Purged, Purges, Retained, StepSoFar, WALK_EVENTS_MAX, Walk, Walked, WalkedRows};
use crate::store::rows::namespaces::{retained, retentions};
use crate::store::{OfLedger as _, StoreError};

const RETENTIONS: &str = retentions!("clock_timestamp()");

const WALKED: &str = "-- retention.walked
select position from retention_walks
where namespace = $1 and shard = $2 and keep_ms = $3 and statuses = $4";

/// Whether the event that is next can be due at all: the others are later.
const NEXT: &str = "-- retention.next
select l.min_release, e.at, e.event
from ledger l
left join lateral (
    select at, (event->>'steadyAheadMicros')::bigint as event
    from run_events where shard = $1 and position > $2 order by position limit 1) as e on true
where l.singleton";
const NEXT_OF: &str = "-- retention.next_of
select l.min_release, e.at, e.event
from ledger l
left join lateral (
    select at, (event->>'steadyAheadMicros')::bigint as event from run_events
    where shard = $1 and position > $2 and namespace = $3 and namespace <> 'default' order by position limit 1) as e on true
where l.singleton";

/// The events after a position, but for the shard's newest one; each with its run's status where it is the run's last.
macro_rules! walk {
    ($name:literal, $condition:literal) => {
        concat!(
            "-- retention.",
            $name,
            "
select e.position, e.at, e.run_id, e.revision, e.event, r.status
from (
    select position, at, namespace, run_id, revision, (event->>'steadyAheadMicros')::bigint as event
    from run_events
    where shard = $1 and position > $2 and position < (
        select position from run_events where shard = $1 order by position desc limit 1)",
            $condition,
            "
    order by position
    limit $4) as e
left join lateral (
    select r.status from runs r
    where r.shard = $1 and r.namespace = $3 and r.namespace = e.namespace and r.run_id = e.run_id
      and r.revision = e.revision and r.status > 2 and r.purged_at is null offset 0) as r on true
order by e.position"
        )
    };
}
const WALK: &str = walk!("walk", "");
const WALK_OF: &str = walk!("walk_of", " and namespace = $3 and namespace <> 'default'");

/// Takes the head first: no commit that has read one of the runs writes it after this. A run that was written since it was
/// found has another revision, and stays; and all of them stay where the namespace wants otherwise by now.
const PURGE: &str = "-- retention.purge
with head as materialized (
    select s.shard
    from shards s cross join ledger l
    where s.shard = $1 and l.singleton and l.min_release = $2
    for update of s),
wanted as materialized (
    select from namespaces n
    where n.name = $3
      and ($7::smallint & 8::smallint = 0 or n.keep_completed_ms = $6) and ($7::smallint & 16::smallint = 0 or n.keep_aborted_ms = $6)
      and ($7::smallint & 32::smallint = 0 or n.keep_failed_ms = $6)
      and (not n.keep_until_exported
           or $8 <= coalesce((select x.position from exported x where x.namespace = $3 and x.shard = $1), 0))),
cut as (
    update runs r
    set purged_at = clock_timestamp(), started_at = '-infinity', task_thread_id = null, agent_id = null,
        workflow_id = null, audit_session_id = null, parent_run_id = null, continues_run_id = null, route = null,
        labels = null, metadata = null, archived_at = null,
        record = jsonb_build_object('updatedAt', r.record->'updatedAt', 'completedAt', r.record->'completedAt')
    from head, wanted, unnest($4::text[], $5::bigint[]) as v (run_id, revision)
    where r.shard = $1 and r.namespace = $3 and r.run_id = v.run_id and r.revision = v.revision
      and r.status > 2 and r.purged_at is null
    returning r.run_id),
gone as (
    delete from run_events e
    using cut
    where e.shard = $1 and e.namespace = $3 and e.run_id = cut.run_id
    returning e.position, e.run_id, e.revision,
              pg_column_size(e.event) + coalesce(pg_column_size(e.keyframe), 0) as bytes),
no_input as (
    delete from run_input c where c.shard = $1 and c.namespace = $3 and c.run_id = any (array(select run_id from cut))
    returning c.run_id, c.revision, octet_length(c.content) as bytes),
no_results as (
    delete from run_results c where c.shard = $1 and c.namespace = $3 and c.run_id = any (array(select run_id from cut))
    returning c.run_id, c.revision, octet_length(c.content) as bytes),
no_links as (
    delete from run_links c where c.shard = $1 and c.namespace = $3 and c.run_id = any (array(select run_id from cut))
    returning c.run_id, c.revision, octet_length(c.content) as bytes),
sizes as (
    select max(position) over (partition by run_id, revision) as position, bytes
    from (
        select position, run_id, revision, bytes from gone
        union all
        select null, * from no_input
        union all
        select null, * from no_results
        union all
        select null, * from no_links) as c),
noted as (
    insert into purged as p (namespace, shard, position)
    select $3, $1, max(position) from gone having count(*) > 0
    on conflict (namespace, shard) do update set position = greatest(p.position, excluded.position)),
measured as (
    update stored_bytes b
    set bytes = greatest(0, b.bytes - (select coalesce(sum(s.bytes), 0) from sizes s where s.position <= b.position))
    where b.namespace = $3 and b.shard = $1 and exists (select from gone)),
walked as (
    insert into retention_walks as w (namespace, shard, keep_ms, statuses, position)
    select $3, $1, $6, $7, $8 from head, wanted
    on conflict (namespace, shard, keep_ms) do update
    set statuses = excluded.statuses,
        position = case when w.statuses = excluded.statuses then greatest(w.position, excluded.position)
                        else excluded.position end)
select (select count(*) from head) as heads, (select count(*) from wanted) as wanted,
       (select count(*) from cut) as runs, (select count(*) from gone) as events";

/// The statement that purges, for a look at its plan.
#[must_use]
pub fn of_purge() -> &'static str {
    PURGE
}

/// One row at least, for the time.
const WALKED_ALL: &str = "-- retention.walked_all
select clock_timestamp() as now, w.keep_ms, w.shard, w.statuses, w.position
from ledger l left join retention_walks w on w.namespace = $1
where l.singleton
order by w.keep_ms, w.shard";

const FORGOTTEN: &str = "-- retention.forgotten
select shard, position from purged where namespace = $1";

const EXPORTED: &str = "-- retention.exported
select shard, position from exported where namespace = $1";

/// What is tried of these when the store is opened.
pub(in crate::store::postgres) const TRIED: [&str; 8] =
    [WALKED, NEXT, NEXT_OF, WALK, WALK_OF, PURGE, FORGOTTEN, EXPORTED];

pub(in crate::store::postgres) async fn forgotten(
    sessions: &Sessions,
    namespace: &Namespace,
    shard_count: u16,
) -> Result<Positions, StoreError> {
    positions(sessions, ("purged", FORGOTTEN), namespace, shard_count).await
}

pub(in crate::store::postgres) async fn walked_all(
    sessions: &Sessions,
    namespace: &Namespace,
) -> Result<(Walked, Time), StoreError> {
    let (mut walked, mut now) = (WalkedRows::default(), Time::from_micros(0));
    for row in &read::rows(sessions, WALKED_ALL, &[&namespace.as_str()]).await? {
        let walk = Reader { table: "retention_walks", row, key: &|| namespace.to_string() };
        now = walk.get("now")?;
        if let Some(keep_ms) = walk.get::<Option<u64>>("keep_ms")? {
            let shard = Shard(walk.get("shard")?);
            walked.add(keep_ms, shard, walk.get("statuses")?, walk.get("position")?);
        }
    }
    Ok((walked.end(), now))
}

/// A position for each shard, from a table of such.
async fn positions(
    sessions: &Sessions,
    (table, statement): (&'static str, &str),
    namespace: &Namespace,
    shard_count: u16,
) -> Result<Positions, StoreError> {
    let mut positions = Positions::start(shard_count);
    for row in &read::rows(sessions, statement, &[&namespace.as_str()]).await? {
        let place = Reader { table, row, key: &|| namespace.to_string() };
        positions.set(Shard(place.get("shard")?), place.get("position")?);
    }
    Ok(positions)
}

#[async_trait]
impl Purges for PostgresStore {
    fn unattended(&self) -> Duration {
        self.commits.uptime.unattended()
    }

    async fn retentions(&self) -> Result<Vec<Retained>, StoreError> {
        read::rows(&self.commits.sessions, RETENTIONS, &[]).await?.iter().map(retained).collect()
    }

    async fn exported(&self, namespace: &Namespace) -> Result<Positions, StoreError> {
        positions(&self.commits.sessions, ("exported", EXPORTED), namespace, self.ledger().shard_count).await
    }

    async fn walked(&self, shard: Shard, walk: &Walk) -> Result<Position, StoreError> {
        let values: [&(dyn ToSql + Sync); 4] =
            [&walk.namespace.as_str(), &smallint(shard), &bigint(walk.keep_ms), &walk.bits()];
        let rows = read::rows(&self.commits.sessions, WALKED, &values).await?;
        let position = rows.first().map(|row| of_walk(row).get("position"));
        position.transpose().map(Option::unwrap_or_default)
    }

    async fn due(&self, shard: Shard, walk: &Walk, after: Position, upto: Position) -> Result<Due, StoreError> {
        let Walk { namespace, keep_ms, statuses } = walk;
        let (shard, place) = (smallint(shard), bigint(after));
        let mut step = StepSoFar::after(after);
        let is_of_all = *namespace == Namespace::only();
        let next = if is_of_all {
            read::rows(&self.commits.sessions, NEXT, &[&shard, &place]).await?
        } else {
            read::rows(&self.commits.sessions, NEXT_OF, &[&shard, &place, &namespace.as_str()]).await?
        };
        let Some(next) = next.first() else { return Ok(step.end()) };
        let steady = self.commits.uptime.steady();
        let now = steady.now;
        let kept_until = |event| Some(steady.kept_until(event, *keep_ms)).filter(|until| *until > now);
        // Where no event is next, one that comes now is kept for the whole time.
        if let Some(until) = happened(next)?.map_or_else(|| Some(now.plus_ms(*keep_ms)), kept_until) {
            step.is_kept(until, now);
            return Ok(step.end());
        }
        let statement = if is_of_all { WALK } else { WALK_OF };
        let limit = i64::try_from(WALK_EVENTS_MAX + 1).expect("some thousand");
        for row in
            &read::rows(&self.commits.sessions, statement, &[&shard, &place, &namespace.as_str(), &limit]).await?
        {
            let event = of_walk(row);
            if let Some(until) = happened(row)?.and_then(kept_until) {
                step.is_kept(until, now);
                break;
            }
            let position = event.get("position")?;
            if position > upto {
                break;
            }
            let status = event.get::<Option<Status>>("status")?;
            let is_due = status.is_some_and(|status| statuses.contains(&status));
            let last_of = is_due.then(|| Ok::<_, StoreError>((event.get::<RunId>("run_id")?, event.get("revision")?)));
            if !step.come_by(position, last_of.transpose()?) {
                break;
            }
        }
        Ok(step.end())
    }

    async fn purge(&self, shard: Shard, walk: &Walk, due: &Due) -> Result<Option<Purged>, StoreError> {
        let Walk { namespace, keep_ms, .. } = walk;
        // A walk from behind everything finds nothing, and says which release the database wants.
        let beyond = read::rows(&self.commits.sessions, NEXT, &[&smallint(shard), &i64::MAX]).await?;
        let Some(ledger) = beyond.first() else { return Ok(None) };
        let wanted = min_release::admits(ledger)?;
        let (run_ids, revisions): (Vec<&str>, Vec<i64>) =
            due.runs.iter().map(|(run_id, revision): &(RunId, Revision)| (&**run_id, bigint(*revision))).unzip();
        let rows = writing(
            &self.commits.sessions,
            PURGE,
            &[
                &smallint(shard),
                &wanted,
                &namespace.as_str(),
                &run_ids,
                &revisions,
                &bigint(*keep_ms),
                &walk.bits(),
                &bigint(due.upto),
            ],
        )
        .await?;
        let Some(row) = rows.first() else { return Ok(None) };
        let row = of_walk(row);
        if row.get::<u64>("heads")? == 0 {
            return Err(StoreError::Unavailable("the database was migrated meanwhile".into()));
        }
        let is_wanted = row.get::<u64>("wanted")? > 0;
        is_wanted.then(|| Ok(Purged { runs: row.get("runs")?, events: row.get("events")? })).transpose()
    }
}

/// The time of an event, and by how much the steady clock was ahead; none where there is no event.
fn happened(row: &tokio_postgres::Row) -> Result<Option<(Time, i64)>, StoreError> {
    let event = of_walk(row);
    let (at, noted) = (event.get::<Option<Time>>("at")?, event.get::<Option<i64>>("event")?);
    Ok(at.map(|at| (at, noted.unwrap_or(0))))
}

fn of_walk(row: &tokio_postgres::Row) -> Reader<'_, 'static, tokio_postgres::Row> {
    Reader { table: "run_events", row, key: &|| "an event of a walk".to_owned() }
}

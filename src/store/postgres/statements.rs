//! The statements of a commit, and a session's prepared forms of them.
//!
//! Plain statements with the shard as a constant and one array a column. Each write answers one row, and raises
//! "division by zero" (22012) unless it changed exactly the rows that it was given: a wrong count then ends the
//! transaction before COMMIT instead of being noticed after it.
//!
//! What joins has `limit cardinality($2)`, which limits nothing. The planner takes an array that it does not know for
//! ten rows, and a limit that it does not know for a tenth: for one row, the whole key is cheaper than a look at all of
//! the shard as soon as a table has a few hundred rows, and not only after thousands or an ANALYZE.

use deadpool_postgres::ClientWrapper;
use tokio_postgres::{Error, Statement};

pub(super) const BEGIN: &str = "-- commit.begin
begin isolation level read committed";

pub(super) const ROLLBACK: &str = "-- commit.rollback
rollback";

/// The driver reports success when COMMIT was answered with ROLLBACK. A statement in front of it in the same message
/// fails in a transaction that failed before, and keeps COMMIT from being reached. The time-out is not for COMMIT: one
/// that waits for a standby must not be cut short, because it then answers as if the standby had confirmed.
pub(super) const COMMIT: &str = "-- commit.commit
set local statement_timeout = 0; commit";

pub(super) const LOCK_HEAD: &str = "-- commit.lock_head
select shard from shards where shard = $1 for update";

/// The last event of each shard. A statement of its own: its snapshot is younger than the wait for the head, and shows
/// every commit that was acknowledged before a command of this one was sent.
pub(super) fn last(shard_count: u16) -> String {
    let ends = (0..shard_count).map(|shard| {
        format!(
            "(select {shard}::bigint as shard, position, at from run_events where shard = {shard}::smallint
order by position desc limit 1)"
        )
    });
    format!("-- commit.last\n{}", ends.collect::<Vec<_>>().join("\nunion all\n"))
}

/// The clock's name is not qualified, so that a schema in front of `pg_catalog` may give another time. Begun after the
/// wait for the head, it sees a `min_release` that was raised meanwhile; the statement that waits would not.
const NOW: &str = "-- commit.now
select clock_timestamp() as now, min_release from ledger where singleton";

const LOAD_RUNS: &str = "-- commit.load_runs
select r.namespace, r.run_id, r.record::text as record, r.metadata::text as metadata
from (select * from unnest($2::text[], $3::text[]) limit cardinality($2)) as v (namespace, run_id)
join runs r on r.shard = $1 and r.namespace = v.namespace and r.run_id = v.run_id";

/// By key: other requests may share it, and are told apart by their texts.
const LOAD_REQUEST_IDS: &str = "-- commit.load_request_ids
select e.namespace, e.run_id, e.request_id, e.revision, e.request_digest
from (select * from unnest($2::bigint[]) limit cardinality($2)) as v (request_key)
join run_events e on e.shard = $1 and e.request_key = v.request_key";

const INSERT_RUNS: &str = "-- commit.insert_runs
with written as (
    insert into runs (shard, namespace, run_id, revision, status, started_at, task_thread_id,
                      agent_id, workflow_id, audit_session_id, route, labels, record, metadata)
    select $1, v.namespace, v.run_id, v.revision, v.status, v.started_at, v.task_thread_id,
           v.agent_id, v.workflow_id, v.audit_session_id, v.route, v.labels::jsonb, v.record::jsonb, v.metadata::jsonb
    from unnest($2::text[], $3::text[], $4::bigint[], $5::smallint[], $6::timestamptz[], $7::text[],
                $8::text[], $9::text[], $10::text[], $11::text[], $12::text[], $13::text[], $14::text[])
         as v (namespace, run_id, revision, status, started_at, task_thread_id,
               agent_id, workflow_id, audit_session_id, route, labels, record, metadata)
    returning 1)
select 1 / (count(*) = cardinality($2))::int from written";

/// Leaves the metadata alone: not written, it costs nothing, whatever its size.
const UPDATE_RUNS: &str = "-- commit.update_runs
with written as (
    update runs r
    set revision = v.revision, status = v.status, agent_id = v.agent_id, workflow_id = v.workflow_id,
        audit_session_id = v.audit_session_id, route = v.route, labels = v.labels::jsonb, record = v.record::jsonb
    from (select * from unnest($2::text[], $3::text[], $4::bigint[], $5::bigint[], $6::smallint[],
                               $7::text[], $8::text[], $9::text[], $10::text[], $11::text[], $12::text[])
          limit cardinality($2))
         as v (namespace, run_id, before, revision, status,
               agent_id, workflow_id, audit_session_id, route, labels, record)
    where r.shard = $1 and r.namespace = v.namespace and r.run_id = v.run_id and r.revision = v.before
    returning 1)
select 1 / (count(*) = cardinality($2))::int from written";

const UPDATE_RUNS_AND_METADATA: &str = "-- commit.update_runs_and_metadata
with written as (
    update runs r
    set revision = v.revision, status = v.status, agent_id = v.agent_id, workflow_id = v.workflow_id,
        audit_session_id = v.audit_session_id, route = v.route, labels = v.labels::jsonb, record = v.record::jsonb,
        metadata = v.metadata::jsonb
    from (select * from unnest($2::text[], $3::text[], $4::bigint[], $5::bigint[], $6::smallint[],
                               $7::text[], $8::text[], $9::text[], $10::text[], $11::text[], $12::text[], $13::text[])
          limit cardinality($2))
         as v (namespace, run_id, before, revision, status,
               agent_id, workflow_id, audit_session_id, route, labels, record, metadata)
    where r.shard = $1 and r.namespace = v.namespace and r.run_id = v.run_id and r.revision = v.before
    returning 1)
select 1 / (count(*) = cardinality($2))::int from written";

const INSERT_EVENTS: &str = "-- commit.insert_events
with written as (
    insert into run_events (shard, commit_id, position, namespace, run_id, revision, at, event,
                            request_id, request_digest, request_key, keyframe)
    select $1, $2, v.position, v.namespace, v.run_id, v.revision, v.at, v.event::jsonb,
           v.request_id, v.request_digest, v.request_key, v.keyframe::jsonb
    from unnest($3::bigint[], $4::text[], $5::text[], $6::bigint[], $7::timestamptz[], $8::text[],
                $9::text[], $10::bytea[], $11::bigint[], $12::text[])
         as v (position, namespace, run_id, revision, at, event, request_id, request_digest, request_key, keyframe)
    returning 1)
select 1 / (count(*) = cardinality($3))::int from written";

const INSERT_ACTIVE: &str = "-- commit.insert_active
with written as (
    insert into active (shard, namespace, run_id, started_at, status)
    select $1, v.namespace, v.run_id, v.started_at, v.status
    from unnest($2::text[], $3::text[], $4::timestamptz[], $5::smallint[])
         as v (namespace, run_id, started_at, status)
    returning 1)
select 1 / (count(*) = cardinality($2))::int from written";

const UPDATE_ACTIVE: &str = "-- commit.update_active
with written as (
    update active a
    set status = v.status
    from (select * from unnest($2::text[], $3::text[], $4::smallint[]) limit cardinality($2))
         as v (namespace, run_id, status)
    where a.shard = $1 and a.namespace = v.namespace and a.run_id = v.run_id
    returning 1)
select 1 / (count(*) = cardinality($2))::int from written";

const DELETE_ACTIVE: &str = "-- commit.delete_active
with written as (
    delete from active a
    using (select * from unnest($2::text[], $3::text[]) limit cardinality($2)) as v (namespace, run_id)
    where a.shard = $1 and a.namespace = v.namespace and a.run_id = v.run_id
    returning 1)
select 1 / (count(*) = cardinality($2))::int from written";

/// Every statement of a commit, for a look at their plans.
#[must_use]
pub fn of_a_commit(shard_count: u16) -> [String; 12] {
    [
        LOCK_HEAD.to_owned(),
        last(shard_count),
        NOW.to_owned(),
        LOAD_RUNS.to_owned(),
        LOAD_REQUEST_IDS.to_owned(),
        INSERT_RUNS.to_owned(),
        UPDATE_RUNS.to_owned(),
        UPDATE_RUNS_AND_METADATA.to_owned(),
        INSERT_EVENTS.to_owned(),
        INSERT_ACTIVE.to_owned(),
        UPDATE_ACTIVE.to_owned(),
        DELETE_ACTIVE.to_owned(),
    ]
}

/// What a session has prepared.
pub(super) struct Statements {
    pub(super) lock_head: Statement,
    pub(super) last: Statement,
    pub(super) now: Statement,
    pub(super) load_runs: Statement,
    pub(super) load_request_ids: Statement,
    pub(super) insert_runs: Statement,
    pub(super) update_runs: Statement,
    pub(super) update_runs_and_metadata: Statement,
    pub(super) insert_events: Statement,
    pub(super) insert_active: Statement,
    pub(super) update_active: Statement,
    pub(super) delete_active: Statement,
}

impl Statements {
    /// Prepares what the session has not yet, before any transaction: only prepared statements can be sent in one go.
    pub(super) async fn of(session: &ClientWrapper, last: &str) -> Result<Self, Error> {
        Ok(Self {
            lock_head: session.prepare_cached(LOCK_HEAD).await?,
            last: session.prepare_cached(last).await?,
            now: session.prepare_cached(NOW).await?,
            load_runs: session.prepare_cached(LOAD_RUNS).await?,
            load_request_ids: session.prepare_cached(LOAD_REQUEST_IDS).await?,
            insert_runs: session.prepare_cached(INSERT_RUNS).await?,
            update_runs: session.prepare_cached(UPDATE_RUNS).await?,
            update_runs_and_metadata: session.prepare_cached(UPDATE_RUNS_AND_METADATA).await?,
            insert_events: session.prepare_cached(INSERT_EVENTS).await?,
            insert_active: session.prepare_cached(INSERT_ACTIVE).await?,
            update_active: session.prepare_cached(UPDATE_ACTIVE).await?,
            delete_active: session.prepare_cached(DELETE_ACTIVE).await?,
        })
    }
}

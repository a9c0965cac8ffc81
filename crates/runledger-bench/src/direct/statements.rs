//! The statements that a user would write without Runledger. `$1` is the run's id everywhere.

/// Dropped and made anew. The tables and indexes are what such a user needs: runs by id and by thread, events by run.
pub(super) const SCHEMA: &str = r#"-- direct.schema
set client_min_messages = warning;
drop schema if exists runledger_bench cascade;
create schema runledger_bench;
set search_path = runledger_bench;
create table druns (
    run_id text collate "C" primary key,
    task_thread_id text,
    status text not null,
    revision int not null,
    started_at timestamptz not null default now(),
    completed_at timestamptz,
    metadata jsonb
) with (fillfactor = 85);
create index on druns (task_thread_id);
create table devents (
    id bigserial primary key,
    run_id text collate "C" not null,
    revision int not null,
    at timestamptz not null default now(),
    event jsonb not null,
    unique (run_id, revision)
)"#;

pub(super) const DROP: &str = "-- direct.drop
drop schema if exists runledger_bench cascade";

pub(super) const SEARCH_PATH: &str = "-- direct.search_path
set search_path = runledger_bench";

pub(super) const SETTINGS: &str = "-- direct.settings
select 'PostgreSQL ' || current_setting('server_version') || ', fsync ' || current_setting('fsync')
    || ', synchronous_commit ' || current_setting('synchronous_commit')";

pub(super) const OTHERS: &str = "-- direct.others
select count(*) from pg_stat_activity
where application_name = $1 and datname = current_database() and pid <> pg_backend_pid()";

pub(super) const PREPARED_RUN: &str = r#"-- direct.prepared_run
with i as (
    insert into druns (run_id, task_thread_id, status, revision, metadata)
    values ($1, 'thread-1', 'RUNNING', 1, $2::text::jsonb)
    returning run_id)
insert into devents (run_id, revision, event) select run_id, 1, '{"type": "started", "agent": "agent-1"}' from i"#;

/// One statement a transition.
pub(super) mod one {
    pub(in super::super) const START: &str = r#"-- direct.start
with i as (
    insert into druns (run_id, task_thread_id, status, revision, metadata)
    values ($1, $2, 'RUNNING', 1, $3::text::jsonb)
    on conflict do nothing
    returning run_id)
insert into devents (run_id, revision, event) select run_id, 1, '{"type": "started", "agent": "agent-1"}' from i"#;

    pub(in super::super) const UPDATE: &str = "-- direct.update
with u as (
    update druns set revision = revision + 1,
        metadata = coalesce(metadata, '{}') || jsonb_build_object('step', $2::text)
    where run_id = $1 and status = 'RUNNING'
    returning run_id, revision)
insert into devents (run_id, revision, event)
select run_id, revision, jsonb_build_object('type', 'updated', 'step', $2::text) from u";

    pub(in super::super) const COMPLETE: &str = r#"-- direct.complete
with u as (
    update druns set status = 'COMPLETED', revision = revision + 1, completed_at = now()
    where run_id = $1 and status = 'RUNNING'
    returning run_id, revision)
insert into devents (run_id, revision, event) select run_id, revision, '{"type": "completed"}' from u"#;
}

/// A transaction a transition: begin, look, write the run, write the event, commit.
pub(super) mod chatty {
    pub(in super::super) const BEGIN: &str = "begin";

    pub(in super::super) const COMMIT: &str = "commit";

    pub(in super::super) const LOOK: &str = "-- direct.look
select status, revision from druns where run_id = $1 for update";

    pub(in super::super) const INSERT: &str = "-- direct.insert_run
insert into druns (run_id, task_thread_id, status, revision, metadata)
values ($1, $2, 'RUNNING', 1, $3::text::jsonb)";

    pub(in super::super) const UPDATE: &str = "-- direct.update_run
update druns set revision = $2, metadata = coalesce(metadata, '{}') || jsonb_build_object('step', $3::text)
where run_id = $1";

    pub(in super::super) const COMPLETE: &str = "-- direct.complete_run
update druns set status = 'COMPLETED', revision = $2, completed_at = now() where run_id = $1";

    pub(in super::super) const EVENT: &str = "-- direct.insert_event
insert into devents (run_id, revision, event) values ($1, $2, $3::text::jsonb)";
}

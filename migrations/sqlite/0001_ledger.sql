-- The ledger: five tables, as on Postgres. Times are microseconds since 1970 (show one with
-- datetime(at / 1000000, 'unixepoch')), JSON is text, texts compare by byte.

-- One row: the database's identity, and which releases may work with it. Inserted when the database is created.
create table ledger (
    singleton integer primary key check (singleton = 1),
    id text not null,
    epoch integer not null,                     -- how often it was restored from a copy
    shard_count integer not null check (shard_count between 1 and 1024),
    schema_release text not null,               -- the release that made or last migrated the schema
    min_release text not null,                  -- the oldest release that can work with the schema
    created_at integer not null,
    alive_at integer not null                   -- when a server was last seen alive
) strict;

-- One row a shard. SQLite has one writer, so nothing locks it; it is here so that both stores have the same tables.
create table shards (
    shard integer primary key
) strict;

-- The runs as they are: a cached fold of their events. A run is all of its columns, and none says what another does.
create table runs (
    shard integer not null,
    namespace text not null,
    run_id text not null,
    revision integer not null,
    status integer not null,                    -- 1 pending, 2 running, 3 completed, 4 aborted, 5 failed
    started_at integer not null,
    task_thread_id text not null,
    agent_id text,
    workflow_id text,
    audit_session_id text,
    route text,
    labels text,                                -- null: none
    record text not null,                       -- what of the run has no column of its own
    metadata text,                              -- null: {}; a column of its own, left alone by most transitions
    primary key (shard, namespace, run_id)
) strict;

-- Lists, newest first; the keys never change.
create index runs_by_start on runs (namespace, started_at, run_id);
create index runs_by_task_thread on runs (namespace, task_thread_id, started_at, run_id);
-- The links: partial, so that a run without one costs nothing.
create index runs_by_agent on runs (namespace, agent_id, started_at, run_id) where agent_id is not null;
create index runs_by_workflow on runs (namespace, workflow_id, started_at, run_id) where workflow_id is not null;
create index runs_by_audit_session on runs (namespace, audit_session_id, started_at, run_id) where audit_session_id is not null;

-- The log: every event for ever. In each shard positions are dense, from 1, in commit order.
create table run_events (
    shard integer not null,
    position integer not null,
    namespace text not null,
    run_id text not null,
    revision integer not null,                  -- of the run: dense, from 1
    at integer not null,                        -- never falls within a shard
    event text not null,
    commit_id text not null,                    -- the commit that wrote it: settles unknown outcomes
    request_id text,
    request_digest blob,
    request_key integer,                        -- 8 bytes of a hash of namespace, run and request id
    keyframe text,                              -- the whole run after the event, at every 32nd revision
    primary key (shard, position),
    unique (shard, namespace, run_id, revision)
) strict;

-- Finds a request id: eight bytes of key instead of three texts.
create index run_events_by_request on run_events (shard, request_key) where request_key is not null;

-- One row for each run that is not terminal.
create table active (
    shard integer not null,
    namespace text not null,
    run_id text not null,
    started_at integer not null,
    status integer not null,
    primary key (shard, namespace, run_id)
) strict, without rowid;

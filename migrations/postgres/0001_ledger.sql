-- The ledger: five tables. Text keys compare by byte (collate "C") on every machine alike, and as SQLite does.

-- One row: the database's identity, and which releases may work with it. Inserted when the database is created.
create table ledger (
    singleton boolean primary key default true check (singleton),
    id uuid not null,
    epoch bigint not null,                      -- how often it was restored from a copy
    shard_count smallint not null check (shard_count between 1 and 1024),
    schema_release text not null,               -- the release that made or last migrated the schema
    min_release text not null,                  -- the oldest release that can work with the schema
    created_at timestamptz not null,
    alive_at timestamptz not null               -- when a server was last seen alive
);

-- One row a shard: the mutex of the shard. Locked by every writer before anything else, never updated; a page of its
-- own for each few rows keeps replicas off each other's pages.
create table shards (
    shard smallint primary key
) with (fillfactor = 10);

-- The runs as they are: a cached fold of their events. A run is all of its columns, and none says what another does.
-- fillfactor: room for the next version of a row beside it. No index may touch a column that a transition changes
-- (revision, status, record), so that transitions stay heap-only (HOT).
create table runs (
    shard smallint not null,
    namespace text collate "C" not null,
    run_id text collate "C" not null,
    revision bigint not null,
    status smallint not null,                   -- 1 pending, 2 running, 3 completed, 4 aborted, 5 failed
    started_at timestamptz not null,
    task_thread_id text collate "C" not null,
    agent_id text collate "C",
    workflow_id text collate "C",
    audit_session_id text collate "C",
    route text collate "C",
    labels jsonb,                               -- null: none
    record jsonb not null,                      -- what of the run has no column of its own
    metadata jsonb,                             -- null: {}; a column of its own, left alone by most transitions
    primary key (shard, namespace, run_id)
) with (fillfactor = 70);

-- Lists, newest first; the keys never change.
create index runs_by_start on runs (namespace, started_at, run_id);
create index runs_by_task_thread on runs (namespace, task_thread_id, started_at, run_id);
-- The links: partial, so that a run without one costs nothing.
create index runs_by_agent on runs (namespace, agent_id, started_at, run_id) where agent_id is not null;
create index runs_by_workflow on runs (namespace, workflow_id, started_at, run_id) where workflow_id is not null;
create index runs_by_audit_session on runs (namespace, audit_session_id, started_at, run_id) where audit_session_id is not null;

-- The log: every event for ever. In each shard positions are dense, from 1, in commit order.
create table run_events (
    shard smallint not null,
    position bigint not null,
    namespace text collate "C" not null,
    run_id text collate "C" not null,
    revision bigint not null,                   -- of the run: dense, from 1
    at timestamptz not null,                    -- never falls within a shard
    event jsonb not null,
    commit_id uuid not null,                    -- the commit that wrote it: settles unknown outcomes
    request_id text collate "C",
    request_digest bytea,
    request_key bigint,                         -- 8 bytes of a hash of namespace, run and request id
    keyframe jsonb,                             -- the whole run after the event, at every 32nd revision
    primary key (shard, position),
    unique (shard, namespace, run_id, revision)
);

-- Finds a request id: eight bytes of key instead of three texts.
create index run_events_by_request on run_events (shard, request_key) where request_key is not null;

-- One row for each run that is not terminal.
create table active (
    shard smallint not null,
    namespace text collate "C" not null,
    run_id text collate "C" not null,
    started_at timestamptz not null,
    status smallint not null,
    primary key (shard, namespace, run_id)
) with (fillfactor = 70);

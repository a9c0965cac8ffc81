-- The namespaces: each is a wall round its runs. A commit that creates a run in another namespace than `default` reads its
-- row under the shard's head; who deletes a namespace takes every head first, and finds it empty. `default` is always
-- there, and no commit reads its row.
create table namespaces (
    name text collate "C" primary key,
    description text not null,
    max_active_runs bigint,                     -- null: no quota
    max_stored_bytes bigint,                    -- null: no quota
    revision bigint not null,                   -- from 1, dense
    created_at timestamptz not null,
    updated_at timestamptz not null
) with (fillfactor = 50);
insert into namespaces (name, description, revision, created_at, updated_at)
values ('default', '', 1, clock_timestamp(), clock_timestamp());

-- The bytes that the events of a namespace with a quota of them take, as far as they were measured: beside commits, so
-- no commit waits for it.
create table stored_bytes (
    namespace text collate "C" not null,
    shard smallint not null,
    position bigint not null,                   -- of the last event that was measured
    bytes bigint not null,
    primary key (namespace, shard)
) with (fillfactor = 50);

-- The history of one namespace, without everybody's. Events of `default` have no entry: a ledger that has no other
-- namespace pays nothing, and its history is the log. The log is read once while the index is made, and nobody writes
-- meanwhile: some seconds for ten million events.
create index run_events_by_namespace on run_events (namespace, shard, position) where namespace <> 'default';

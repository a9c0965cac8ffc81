-- The namespaces: each is a wall round its runs. A commit that creates a run in another namespace than `default` reads its
-- row. `default` is always there, and no commit reads its row.
create table namespaces (
    name text primary key,
    description text not null,
    max_active_runs integer,                    -- null: no quota
    max_stored_bytes integer,                   -- null: no quota
    revision integer not null,                  -- from 1, dense
    created_at integer not null,
    updated_at integer not null
) strict;
insert into namespaces (name, description, revision, created_at, updated_at)
values ('default', '', 1, cast(unixepoch('subsec') * 1000000 as integer), cast(unixepoch('subsec') * 1000000 as integer));

-- The bytes that the events of a namespace with a quota of them take, as far as they were measured: beside commits.
create table stored_bytes (
    namespace text not null,
    shard integer not null,
    position integer not null,                  -- of the last event that was measured
    bytes integer not null,
    primary key (namespace, shard)
) strict, without rowid;

-- The history of one namespace, without everybody's. Events of `default` have no entry: a ledger that has no other
-- namespace pays nothing, and its history is the log.
create index run_events_by_namespace on run_events (namespace, shard, position) where namespace <> 'default';

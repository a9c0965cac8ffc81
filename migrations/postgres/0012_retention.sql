-- How long runs are kept that have ended, in milliseconds since their last event. Null: for ever.
alter table namespaces add column keep_completed_ms bigint, add column keep_aborted_ms bigint,
    add column keep_failed_ms bigint;

-- When a run was purged: its row is its tombstone then, for ever. `started_at` is -infinity and the rest is null, so that
-- no index but the key has it.
alter table runs add column if not exists purged_at timestamptz, alter column task_thread_id drop not null;

-- The last position of a shard of which an event of a namespace may be gone: a reader that has not come so far has missed
-- it.
create table purged (
    namespace text collate "C" not null,
    shard smallint not null,
    position bigint not null,
    primary key (namespace, shard)
) with (fillfactor = 50);

-- Up to where a shard's log was looked through for runs of a namespace that were to be kept for this time. Written with
-- the purges, beside commits; not made from the log.
create table retention_walks (
    namespace text collate "C" not null,
    shard smallint not null,
    keep_ms bigint not null,
    statuses smallint not null,                 -- a bit for each status that was looked for
    position bigint not null,
    primary key (namespace, shard, keep_ms)
) with (fillfactor = 50);

-- Rows of the log are deleted now: vacuum comes before their room is a fiftieth of the table, as for `runs`.
alter table run_events set (autovacuum_vacuum_scale_factor = 0.02);

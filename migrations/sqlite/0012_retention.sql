-- How long runs are kept that have ended, in milliseconds since their last event. Null: for ever.
alter table namespaces add column keep_completed_ms integer;
alter table namespaces add column keep_aborted_ms integer;
alter table namespaces add column keep_failed_ms integer;

-- When a run was purged: its row is its tombstone then, for ever. `started_at` is before all times, `task_thread_id` is
-- empty, and the rest is null.
alter table runs add column purged_at integer;

-- The last position of a shard of which an event of a namespace may be gone: a reader that has not come so far has missed
-- it.
create table purged (
    namespace text not null,
    shard integer not null,
    position integer not null,
    primary key (namespace, shard)
) strict, without rowid;

-- Up to where a shard's log was looked through for runs of a namespace that were to be kept for this time. Written with
-- the purges, beside commits; not made from the log.
create table retention_walks (
    namespace text not null,
    shard integer not null,
    keep_ms integer not null,
    statuses integer not null,                  -- a bit for each status that was looked for
    position integer not null,
    primary key (namespace, shard, keep_ms)
) strict, without rowid;

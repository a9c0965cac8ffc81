-- Whether runs that have ended are kept, however long they were, until an exporter has said that it has their events.
alter table namespaces add column keep_until_exported integer not null default 0;

-- Up to where each shard's events of a namespace are safely elsewhere, as an exporter has said. Not made from the log.
create table exported (
    namespace text not null,
    shard integer not null,
    position integer not null,
    primary key (namespace, shard)
) strict, without rowid;

-- Whether old pages of the file may still show what a redaction took out.
alter table ledger add column cleaning_owed integer not null default 0;

-- Tombstones are in no list: so they have no entries in the lists' indexes.
drop index runs_by_start;
create index runs_by_start on runs (namespace, started_at, run_id) where purged_at is null;
drop index runs_by_task_thread;
create index runs_by_task_thread on runs (namespace, task_thread_id, started_at, run_id) where purged_at is null;

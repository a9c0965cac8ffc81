-- What stands beside runs: inputs, results, links, each with the revision that wrote it. The run and its events have their
-- sizes and hashes alone. The rows never change, but for what a redaction takes out, and go with their run.
create table run_input (
    shard smallint not null,
    namespace text collate "C" not null,
    run_id text collate "C" not null,
    revision bigint not null,
    content text not null,                      -- compact JSON, keys sorted: the hash is of these bytes
    primary key (shard, namespace, run_id)
);
create table run_results (
    shard smallint not null,
    namespace text collate "C" not null,
    run_id text collate "C" not null,
    revision bigint not null,
    content text not null,
    primary key (shard, namespace, run_id, revision)
);
create table run_links (
    shard smallint not null,
    namespace text collate "C" not null,
    run_id text collate "C" not null,
    number smallint not null,                   -- from 1, in the order of decision
    revision bigint not null,
    link_key bytea,                             -- SHA-256 of rel and target; null: taken out
    content text not null,                      -- the link as JSON
    primary key (shard, namespace, run_id, number)
);
-- Rows that never change are frozen the first time that vacuum meets them, as those of the log.
alter table run_input set (
    autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_insert_scale_factor = 0.02, autovacuum_freeze_min_age = 0);
alter table run_results set (
    autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_insert_scale_factor = 0.02, autovacuum_freeze_min_age = 0);
alter table run_links set (
    autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_insert_scale_factor = 0.02, autovacuum_freeze_min_age = 0);
alter table run_input alter column content set statistics 0;
alter table run_results alter column content set statistics 0;
alter table run_links alter column content set statistics 0, alter column link_key set statistics 0;

-- The runs that a run comes from: the record has them too, and these columns are for lists.
alter table runs add column if not exists parent_run_id text collate "C",
    add column if not exists continues_run_id text collate "C";

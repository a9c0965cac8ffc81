-- What stands beside runs: inputs, results, links, each with the revision that wrote it. The run and its events have their
-- sizes and hashes alone. The rows never change, but for what a redaction takes out, and go with their run.
create table run_input (
    shard integer not null,
    namespace text not null,
    run_id text not null,
    revision integer not null,
    content text not null,                      -- compact JSON, keys sorted: the hash is of these bytes
    primary key (shard, namespace, run_id)
) strict;
create table run_results (
    shard integer not null,
    namespace text not null,
    run_id text not null,
    revision integer not null,
    content text not null,
    primary key (shard, namespace, run_id, revision)
) strict;
create table run_links (
    shard integer not null,
    namespace text not null,
    run_id text not null,
    number integer not null,                    -- from 1, in the order of decision
    revision integer not null,
    link_key blob,                              -- SHA-256 of rel and target; null: taken out
    content text not null,                      -- the link as JSON
    primary key (shard, namespace, run_id, number)
) strict;

-- The runs that a run comes from: the record has them too, and these columns are for lists.
alter table runs add column parent_run_id text;
alter table runs add column continues_run_id text;

-- Which runs count towards what claims allow of a label's value (max_running). A row is the mutex of its value: a claim
-- takes it after the shard's head, several in the order of their keys, and holds it until it commits. What has ended
-- counts no more, and is forgotten by the next claim; a row with nothing that counts is deleted in time.
create table max_running (
    namespace text collate "C" not null,
    label text collate "C" not null,
    value text collate "C" not null,
    runs jsonb not null,                        -- {run_id: shard}; counts while `active` has it
    changed_at timestamptz not null,
    primary key (namespace, label, value)
) with (fillfactor = 50);
alter table max_running set (
    autovacuum_vacuum_scale_factor = 0,
    autovacuum_vacuum_threshold = 20000,
    autovacuum_vacuum_cost_delay = 0
);

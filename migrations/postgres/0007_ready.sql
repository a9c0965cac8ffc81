-- One row for each RUNNING run that nobody executes and the next claim takes: a claim that was given back before it was
-- begun. Written and deleted with the events that say so; claims read it beside the pending runs, in the same order.
create table suspended (
    shard smallint not null,
    namespace text collate "C" not null,
    run_id text collate "C" not null,
    started_at timestamptz not null,
    ready boolean not null,
    primary key (shard, namespace, run_id)
);
create index suspended_by_start on suspended (namespace, started_at, run_id) where ready;
alter table suspended set (
    autovacuum_vacuum_scale_factor = 0,
    autovacuum_vacuum_threshold = 20000,
    autovacuum_vacuum_cost_delay = 0
);

-- Which run a claimer's own request_id was answered with (ClaimNextRun). The row is the request's mutex: a claim takes it
-- after the shard's head, so that of two attempts one claims a run and the other finds that. Kept for an hour. Not made
-- from the log: no event names the request.
create table claims (
    namespace text collate "C" not null,
    request_id text collate "C" not null,
    request_digest bytea,                       -- with the four below: null until a claim was made
    run_id text collate "C",
    epoch bigint,                               -- of the lease that was granted
    replays bigint not null default 0,          -- how often a repetition was answered
    claimed_at timestamptz not null,
    primary key (namespace, request_id)
) with (fillfactor = 70);
create index claims_by_time on claims (claimed_at);
alter table claims set (
    autovacuum_vacuum_scale_factor = 0,
    autovacuum_vacuum_threshold = 20000,
    autovacuum_vacuum_cost_delay = 0
);

-- Whether the lease was renewed since it was granted: then somebody has received it.
alter table leases add column renewed boolean not null default false;

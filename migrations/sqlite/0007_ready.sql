-- One row for each RUNNING run that nobody executes and the next claim takes: a claim that was given back before it was
-- begun. Written and deleted with the events that say so; claims read it beside the pending runs, in the same order.
create table suspended (
    shard integer not null,
    namespace text not null,
    run_id text not null,
    started_at integer not null,
    ready integer not null,
    primary key (shard, namespace, run_id)
) strict, without rowid;
create index suspended_by_start on suspended (namespace, started_at, run_id) where ready;

-- Which run a claimer's own request_id was answered with (ClaimNextRun). Kept for an hour. Not made from the log: no event
-- names the request.
create table claims (
    namespace text not null,
    request_id text not null,
    request_digest blob not null,
    run_id text not null,
    epoch integer not null,                     -- of the lease that was granted
    replays integer not null default 0,         -- how often a repetition was answered
    claimed_at integer not null,
    primary key (namespace, request_id)
) strict, without rowid;
create index claims_by_time on claims (claimed_at);

-- Whether the lease was renewed since it was granted: then somebody has received it.
alter table leases add column renewed integer not null default 0;

-- Runs that are at rest: suspended, or ready for the next claim. Until now only runs were that were ready because a claim was
-- given back before it was begun: these have no kind of suspension.
alter table suspended add column kind text;
alter table suspended add column keep_slot integer not null default 0;
alter table suspended add column priority integer not null default 0;
drop index suspended_by_start;
create index suspended_by_start on suspended (namespace, started_at, run_id);
create index suspended_by_claim on suspended (namespace, kind is null, priority desc, started_at, run_id) where ready;

-- The priority of a run that waits to be started; null: 0, or the run is not PENDING. A run without one pays nothing.
alter table active add column priority integer;
create index active_by_priority on active (namespace, priority desc, started_at, run_id) where priority is not null;

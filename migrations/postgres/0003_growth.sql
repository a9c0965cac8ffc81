-- What large and busy tables need. Measured with batches of 128 and three updates a run: at fillfactor 70 half of the
-- updates find no room on their page (HOT 50 to 71 %), at 50 all do: the runs of one commit are neighbours, and the
-- next commit that takes them writes a version of each. The heap is even smaller for it, the indexes by a tenth, the
-- log by a fifth. Vacuum comes before a tenth of ten million rows is dead.
alter table runs set (
    fillfactor = 50,
    autovacuum_vacuum_scale_factor = 0.02,
    autovacuum_vacuum_insert_scale_factor = 0.05,
    autovacuum_analyze_scale_factor = 0.02
);

-- Rows that never change are frozen the first time that vacuum meets them, in small helpings and not six million at once.
alter table run_events set (
    autovacuum_vacuum_insert_scale_factor = 0.02,
    autovacuum_freeze_min_age = 0
);

-- Few rows live at any time and every run passes through: what is dead goes soon and without a pause. After 300,000
-- runs without a vacuum, the first page of active runs took 97 ms, and the vacuum 0.2 s.
alter table active set (
    autovacuum_vacuum_scale_factor = 0,
    autovacuum_vacuum_threshold = 20000,
    autovacuum_vacuum_cost_delay = 0
);

-- Nobody asks how often a document comes, and comparing thirty thousand of them is most of the work of ANALYZE.
alter table runs alter column labels set statistics 0, alter column record set statistics 0,
                 alter column metadata set statistics 0;
alter table run_events alter column event set statistics 0, alter column keyframe set statistics 0;

-- The lists' indexes, for lists alone. A row is looked for by its whole key a million times more often, and the planner
-- takes an index that begins with the namespace for as good as the primary key while it knows nothing of the table, or
-- better when the primary key has grown by churn: each look would then walk the whole namespace, until the plan is made
-- anew. A condition that all rows meet, and that only lists state, keeps these indexes out of it. Lists of a replica that
-- does not state it yet walk the namespace; and nobody writes while the indexes are made, some seconds a million runs.
drop index if exists runs_by_start;
create index runs_by_start on runs (namespace, started_at, run_id) where started_at > '-infinity';
drop index if exists runs_by_task_thread;
create index runs_by_task_thread on runs (namespace, task_thread_id, started_at, run_id)
    where task_thread_id is not null;
drop index if exists active_by_start;
create index active_by_start on active (namespace, started_at, run_id) where started_at > '-infinity';

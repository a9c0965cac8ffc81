-- Lists by the runs that a run comes from. Partial indexes, so that a run without one costs nothing. A step of its own: runs
-- are read while they are made.
create index runs_by_parent on runs (namespace, parent_run_id, started_at, run_id) where parent_run_id is not null;
create index runs_by_continued on runs (namespace, continues_run_id, started_at, run_id) where continues_run_id is not null;

-- The runs that are not terminal in the order of lists: a page of them costs what it shows, however many have ended.
-- Neither column ever changes, so a change of `status` leaves the index alone.
create index active_by_start on active (namespace, started_at, run_id);

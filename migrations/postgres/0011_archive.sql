-- Since when lists and counts leave a run out that has ended. No index has the column: it is tested on the runs that a list
-- looks at anyway.
alter table runs add column if not exists archived_at timestamptz;

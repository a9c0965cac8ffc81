-- What becomes of a suspended run at its deadline stands in its record and its events. No table changes; but a release before
-- 0.9.0 takes such a record for corrupt, and would abort runs that are to go on by themselves.
select 1;

-- When a server was last seen alive stands in `uptime`: here it was written once, when the ledger was created, and never
-- read. `min_release` need not rise for this: an older release names the column only where it creates a ledger, in a
-- database that has none, after its own first step has made the column.
-- All commits read this table, and would wait behind the step while it waits for a long transaction that has read it, as a
-- dump is: it gives up soon, and the migration is made again.
set local lock_timeout = '2s';
alter table ledger drop column alive_at;

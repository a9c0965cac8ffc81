-- Which server wrote the ledger, and on which of its timelines: a failover and a restored backup show in them. What was
-- acknowledged before may be lost then, and what was given out for it (cursors, revisions) leads elsewhere: whoever sees
-- them change raises `epoch`. `table_oid` is that of the database and of this table: a dump that is put back has others.
-- Null: not known yet; the first session that knows fills it in.
alter table ledger add column if not exists system_identifier text, add column if not exists timeline bigint,
    add column if not exists table_oid text;

-- The key that cursors and page tokens are sealed with: see src/wire/seal.rs. The database draws it, from the system's
-- cryptographic random numbers (122 bits of each id), so that it is in no statement and in no log of statements. It goes
-- with the ledger: a copy, a dump and a standby have the same.
-- All commits read this table, and would wait behind the step while it waits for a long transaction that has read it, as a
-- dump is: it gives up soon, and the migration is made again.
set local lock_timeout = '2s';
alter table ledger add column seal_key bytea check (length(seal_key) = 32);
-- Not with the column: the table would be written anew, and look empty to a transaction that is older than the step.
alter table ledger alter column seal_key
    set default sha256(uuid_send(gen_random_uuid()) || uuid_send(gen_random_uuid()));
update ledger set seal_key = default;
alter table ledger alter column seal_key set not null;

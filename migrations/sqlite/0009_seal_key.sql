-- The key that cursors and page tokens are sealed with: see src/wire/seal.rs. The migrating program draws it and fills it
-- in, in the same transaction: SQLite's own random numbers are not made for keys. It goes with the ledger: a copy has the
-- same.
alter table ledger add column seal_key blob check (length(seal_key) = 32);

-- The steady clock, by which leases and deadlines are over: how far it is ahead of the store's clock, in microseconds, as a
-- server noticed last, and the time from which on the ledger has had it. From here on `alive_at` is a time of it, as are
-- leases.expires_at, leases.progress_at, active.due_at, claims.claimed_at and max_running.changed_at. Until the store's clock
-- is set, both clocks are the same. While `steady_ahead` is 0 the clock was never set, and in no shard does a time fall:
-- `export --since` and `--until` rest on that.
alter table uptime add column steady_ahead integer not null default 0;
alter table uptime add column steady_since integer not null default 0;

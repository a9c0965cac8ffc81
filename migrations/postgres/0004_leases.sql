-- Who holds which run, and until when. A renewal takes no head, makes no event and is one heap-only update: no index may
-- touch the expiry, and the rows are scanned once a second instead. fillfactor: room for the next version of a row.
create table leases (
    shard smallint not null,
    namespace text collate "C" not null,
    run_id text collate "C" not null,
    epoch bigint not null,                      -- of the run's lease: the fencing token
    ttl_ms bigint not null,
    expires_at timestamptz not null,
    released boolean not null,                  -- nobody holds this epoch: nothing renews it
    progress_done bigint,                       -- how far the work has come, as the holder said last
    progress_total bigint,
    progress_message text,
    progress_at timestamptz,
    primary key (shard, namespace, run_id)
) with (fillfactor = 50);
-- Every row is renewed all the time: what is dead goes soon and without a pause, as in `active`.
alter table leases set (
    autovacuum_vacuum_scale_factor = 0,
    autovacuum_vacuum_threshold = 20000,
    autovacuum_vacuum_cost_delay = 0
);

-- One row: when a server was last seen alive, and since when without a gap. A table of its own: `ledger` is read by every
-- commit, and a row that changes every second grows a chain of dead versions while any snapshot is held.
create table uptime (
    singleton boolean primary key default true check (singleton),
    alive_at timestamptz not null,
    up_since timestamptz not null
);
insert into uptime (alive_at, up_since) values (clock_timestamp(), clock_timestamp());

-- When the authority has to end the run by itself: its deadline, or the end of an abort's grace. Null: never.
alter table active add column due_at timestamptz;
create index active_by_due on active (shard, due_at) where due_at is not null;

-- Who holds which run, and until when. A renewal makes no event. Scanned once a second.
create table leases (
    shard integer not null,
    namespace text not null,
    run_id text not null,
    epoch integer not null,                     -- of the run's lease: the fencing token
    ttl_ms integer not null,
    expires_at integer not null,
    released integer not null,                  -- nobody holds this epoch: nothing renews it
    progress_done integer,                      -- how far the work has come, as the holder said last
    progress_total integer,
    progress_message text,
    progress_at integer,
    primary key (shard, namespace, run_id)
) strict, without rowid;

-- One row: when the server was last seen alive, and since when without a gap. 0: never; the first to come sets both.
create table uptime (
    singleton integer primary key check (singleton = 1),
    alive_at integer not null,
    up_since integer not null
) strict;
insert into uptime (singleton, alive_at, up_since) values (1, 0, 0);

-- When the authority has to end the run by itself: its deadline, or the end of an abort's grace. Null: never.
alter table active add column due_at integer;
create index active_by_due on active (shard, due_at) where due_at is not null;

-- The steady clock, by which leases and deadlines are over: how far it is ahead of the database's clock, as a server noticed
-- last, and the time from which on the ledger has had it. From here on `alive_at` and `up_since` are times of it, as are
-- leases.expires_at, leases.progress_at, active.due_at, claims.claimed_at and max_running.changed_at. Until the database's
-- clock is set, both clocks are the same.
alter table uptime add column steady_ahead interval not null default '0';
alter table uptime add column steady_since timestamptz not null default clock_timestamp();
alter table uptime alter column steady_since drop default;
update uptime set alive_at = least(alive_at, steady_since), up_since = least(up_since, steady_since);

-- While `steady_ahead` is 0 the clock was never set, and in no shard does a time fall: `export --since` and `--until` rest on
-- that. Where the newest event of a shard has not happened yet, later ones will bear earlier times: so it is not 0 there.
update uptime u set steady_ahead = interval '1 microsecond'
where exists (
    select from shards s
    cross join lateral (
        select e.at from run_events e where e.shard = s.shard order by e.position desc limit 1) as newest
    where newest.at > u.steady_since + interval '1 s');

-- A run whose newest event has not happened yet was written while the clock was ahead: what is left of its time begins now.
update active a
set due_at = u.steady_since + (a.due_at - (r.record->>'updatedAt')::timestamptz)
from runs r, uptime u
where a.due_at > u.steady_since + interval '1 s'
  and r.shard = a.shard and r.namespace = a.namespace and r.run_id = a.run_id
  and (r.record->>'updatedAt')::timestamptz > u.steady_since + interval '1 s';

-- What was renewed or remembered then is of now.
update leases l set expires_at = u.steady_since + l.ttl_ms * interval '1 ms'
from uptime u where l.expires_at > u.steady_since + l.ttl_ms * interval '1 ms';
update claims c set claimed_at = u.steady_since from uptime u where c.claimed_at > u.steady_since;
update max_running m set changed_at = u.steady_since from uptime u where m.changed_at > u.steady_since;

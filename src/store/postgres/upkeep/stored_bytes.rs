//! The bytes of namespaces with a quota of them: measured beside commits, each event once.
//! What lifecycles take is added in `lifecycles`, as they are put. The other quota, of active runs, is counted in
//! `sides::namespaces`, at each commit that creates a run.

use crate::store::StoreError;
use crate::store::dialect::content_bytes;
use crate::store::postgres::autocommit_writes::writing;
use crate::store::postgres::sessions::Sessions;

/// Events of a shard that are measured at once at most.
const EVENTS_MAX: i64 = 10_000;

/// A namespace that is being deleted has no event, and its rows are deleted with it. What lifecycles take is counted as
/// they are put from then on.
const BEGIN: &str = "-- stored_bytes.begin
insert into stored_bytes (namespace, shard, position, bytes)
select n.name, s.shard, 0, case when s.shard > 0 then 0 else (
    select coalesce(sum(octet_length(source) + octet_length(declaration)), 0) from lifecycles
    where namespace = n.name) end
from namespaces n
cross join shards s
where n.max_stored_bytes is not null
  and not exists (select from stored_bytes b where b.namespace = n.name and b.shard = s.shard)
on conflict do nothing
returning 1";

/// What another server measures is left to it. The sizes of events are those on the disk; what stands beside a run is
/// counted as it was sent, and looked for only where an event says that there is any.
const MEASURE: &str = concat!(
    "-- stored_bytes.measure
with known as (
    select b.namespace, b.shard, b.position
    from stored_bytes b
    where b.namespace in (select name from namespaces where max_stored_bytes is not null)
    for update skip locked),
measured as (
    select k.namespace, k.shard, max(e.position) as position, sum(e.bytes) as bytes, count(*) as events
    from known k
    cross join lateral (
        select position, pg_column_size(event) + coalesce(pg_column_size(keyframe), 0)
               + case when event->'changes' ?| array['refinements', 'lateReport'] then ",
    content_bytes!(),
    " else 0 end as bytes
        from run_events as e
        where namespace = k.namespace and namespace <> 'default' and shard = k.shard and position > k.position
        order by position
        limit $1) as e
    group by k.namespace, k.shard)
update stored_bytes b
set position = m.position, bytes = b.bytes + m.bytes
from measured m
where b.namespace = m.namespace and b.shard = m.shard
returning m.events"
);

/// What is tried of these when the store is opened.
pub(in crate::store::postgres) const TRIED: [&str; 2] = [BEGIN, MEASURE];

/// Measures what came since it was measured last, and tells whether there may be more.
pub(in crate::store::postgres) async fn measure(sessions: &Sessions) -> Result<bool, StoreError> {
    writing(sessions, BEGIN, &[]).await?;
    let measured = writing(sessions, MEASURE, &[&EVENTS_MAX]).await?;
    Ok(measured.iter().any(|row| row.try_get("events").is_ok_and(|events: i64| events >= EVENTS_MAX)))
}

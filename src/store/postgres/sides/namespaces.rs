//! The namespaces of runs that are created: see [`NamespaceRow`](crate::domain::NamespaceRow).
//!
//! Who deletes a namespace takes every head first, so a row that is read under a head stays there until the commit has
//! ended. Of a namespace with a quota the row is its mutex as well: commits of all shards that create runs there take it
//! after the head and after the rows of [`claims`](super::claims), several in the order of their names, and count the
//! active runs in a later statement than the one that waited. So that quota is exact. The one of stored bytes is held
//! against what was measured last.

/// Takes the rows of namespaces that have a quota.
pub(in crate::store::postgres) const LOCK: &str = "-- commit.lock_namespaces
select name from namespaces
where name = any($1::text[]) and max_active_runs is not null
order by name
for update";

/// The namespaces that are there. The active runs are counted up to the quota, in an index.
pub(in crate::store::postgres) const LOAD: &str = "-- commit.load_namespaces
select n.name, n.max_active_runs,
       case when n.max_active_runs is not null then (
           select count(*) from (
               select from active a
               where a.namespace = n.name and a.started_at > '-infinity'
               limit n.max_active_runs) as counted) end as active_runs,
       n.max_stored_bytes,
       case when n.max_stored_bytes is not null then (
           select cast(coalesce(sum(b.bytes), 0) as bigint) from stored_bytes b
           where b.namespace = n.name) end as stored_bytes
from unnest($1::text[]) as v (name)
cross join lateral (select * from namespaces where name = v.name offset 0) as n";

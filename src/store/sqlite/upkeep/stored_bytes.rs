//! The bytes of namespaces with a quota of them: measured beside commits, each event once.
//! What lifecycles take is added in `lifecycles`, as they are put. The other quota, of active runs, is counted in
//! `sides::namespaces`, at each commit that creates a run.
//!
//! The store has one writer. So the events are looked at on a connection that reads, some at a time, and the writer is
//! told the sum.

use rusqlite::Connection;

use crate::domain::Namespace;
use crate::store::StoreError;
use crate::store::dialect::content_bytes;
use crate::store::sqlite::rows::{Reader, all, execute};
use crate::store::sqlite::writer;

/// Events of a shard that are measured at once at most.
const EVENTS_MAX: u64 = 1_000;

const KNOWN: &str = "-- stored_bytes.known
select n.name, s.shard, coalesce(b.position, 0)
  from namespaces as n
  cross join shards as s
  left join stored_bytes as b on b.namespace = n.name and b.shard = s.shard
 where n.max_stored_bytes is not null";

const MEASURE: &str = concat!(
    "-- stored_bytes.measure
select count(*), coalesce(max(position), 0), coalesce(sum(bytes), 0)
  from (select position, octet_length(event) + coalesce(octet_length(keyframe), 0) + ",
    content_bytes!(),
    " as bytes
          from run_events as e
         where namespace = ?1 and namespace <> 'default' and shard = ?2 and position > ?3
         order by position limit ?4)"
);

/// With what lifecycles take, which is counted as they are put from then on.
const ADD: &str = "-- stored_bytes.add
insert into stored_bytes (namespace, shard, position, bytes)
select name, ?2, ?3, ?4 + case when ?2 > 0 then 0 else (
    select coalesce(sum(octet_length(source) + octet_length(declaration)), 0) from lifecycles where namespace = ?1) end
  from namespaces where name = ?1
on conflict (namespace, shard) do update set position = excluded.position, bytes = bytes + ?4";

/// What came in a shard of a namespace since it was measured last.
pub(in crate::store::sqlite) struct Measured {
    namespace: Namespace,
    shard: i64,
    position: i64,
    bytes: i64,
}

/// Measures what came, and tells whether there may be more.
pub(in crate::store::sqlite) fn measure(connection: &Connection) -> Result<(Vec<Measured>, bool), StoreError> {
    let known = all(connection, KNOWN, [], |row| {
        let row = Reader { table: "stored_bytes", row, key: &|| "a namespace with a quota".to_owned() };
        Ok((row.get::<Namespace>((0, "namespace"))?, row.get::<i64>((1, "shard"))?, row.get::<i64>((2, "position"))?))
    })?;
    let (mut measured, mut more) = (Vec::new(), false);
    for (namespace, shard, after) in known {
        let limit = i64::try_from(EVENTS_MAX).unwrap_or(i64::MAX);
        let sums = all(connection, MEASURE, (&namespace.as_str(), shard, after, limit), |row| {
            let row = Reader { table: "run_events", row, key: &|| namespace.to_string() };
            Ok((row.get::<u64>((0, "count"))?, row.get::<i64>((1, "position"))?, row.get::<i64>((2, "bytes"))?))
        })?;
        for (events, position, bytes) in sums.into_iter().filter(|(events, ..)| *events > 0) {
            more |= events >= EVENTS_MAX;
            measured.push(Measured { namespace: namespace.clone(), shard, position, bytes });
        }
    }
    Ok((measured, more))
}

/// Keeps what was measured.
pub(in crate::store::sqlite) fn keep(connection: &mut Connection, measured: &[Measured]) -> Result<(), StoreError> {
    let transaction = writer::begin(connection)?;
    for Measured { namespace, shard, position, bytes } in measured {
        execute(&transaction, ADD, (namespace.as_str(), shard, position, bytes))?;
    }
    transaction.commit().map_err(crate::store::sqlite::errors::statement)
}

//! The sessions that hold the shards' heads, that wait for them, and that are idle in a transaction.

use std::collections::HashMap;

use tokio_postgres::Row;

use crate::store::StoreError;
use crate::store::inspect::{Head, Session, Sessions as Seen};
use crate::store::postgres::read::rows;
use crate::store::postgres::rows::Reader;
use crate::store::postgres::sessions::Sessions;

/// A role without `pg_read_all_stats` sees of other roles' sessions only that they are there.
const SESSIONS: &str = "-- inspect.sessions
select pid, nullif(application_name, '') as application, host(client_addr) as client, usename::text as \"user\", state,
       left(query, 200) as statement,
       (extract(epoch from clock_timestamp() - xact_start) * 1000)::bigint as transaction_ms,
       (extract(epoch from clock_timestamp() - case when state = 'active' then query_start else state_change end)
        * 1000)::bigint as state_ms
from pg_stat_activity
where datname = current_database() and pid <> pg_backend_pid()";

const CONNECTIONS: &str = "-- inspect.connections
select (select sum(numbackends) from pg_stat_database)::bigint as used,
       (current_setting('max_connections')::int - current_setting('superuser_reserved_connections')::int)::bigint as max,
       pg_has_role('pg_read_all_stats', 'usage') as all_seen";

/// A row's lock stands in the row: its `xmax` is the transaction that has the lock, or had it last. The first session
/// to wait waits for the end of that transaction, and later ones for the row.
const HEADS: &str = "-- inspect.heads
select s.shard::bigint as shard, l.pid, l.granted
from (select shard, xmax, (ctid::text::point)[0]::int as page, (ctid::text::point)[1]::int as tuple from shards) as s
join (
    select locktype, transactionid, page, tuple, pid, granted
    from pg_locks
    where locktype = 'transactionid'
       or (locktype = 'tuple' and relation = 'shards'::regclass
           and database = (select oid from pg_database where datname = current_database()))) as l
  on (l.locktype = 'transactionid' and l.transactionid = s.xmax)
  or (l.locktype = 'tuple' and not l.granted and l.page = s.page and l.tuple::int = s.tuple)";

/// Adds to each head its holder and its waiters, and gives the rest of the facts about sessions.
pub(super) async fn seen(sessions: &Sessions, heads: &mut [Head]) -> Result<Seen, StoreError> {
    // First the locks, then the sessions: of a session that has gone between the two nothing can be told.
    let locks = rows(sessions, HEADS, &[]).await?;
    let mut known = HashMap::new();
    for row in &rows(sessions, SESSIONS, &[]).await? {
        let session = session(row)?;
        known.insert(session.pid, session);
    }
    for row in &locks {
        let lock = Reader { table: "pg_locks", row, key: &String::new };
        let (shard, pid): (u16, i32) = (lock.get("shard")?, lock.get("pid")?);
        let Some(head) = heads.iter_mut().find(|head| head.shard == shard) else { continue };
        let Some(session) = known.get(&pid) else { continue };
        if lock.get("granted")? {
            head.holder = Some(session.clone());
        } else {
            head.waiters.push(session.clone());
        }
    }
    for head in heads {
        head.waiters.sort_by_key(|session| std::cmp::Reverse(session.state_ms));
    }
    let of = rows(sessions, CONNECTIONS, &[]).await?;
    let row = of.first().ok_or_else(|| StoreError::Refused("a count has a row".into()))?;
    let connections = Reader { table: "pg_stat_database", row, key: &String::new };
    let silent =
        |session: &&Session| session.state.as_deref().is_some_and(|state| state.starts_with("idle in transaction"));
    let mut idle_in_transaction: Vec<Session> = known.values().filter(silent).cloned().collect();
    idle_in_transaction.sort_by_key(|session| std::cmp::Reverse(session.state_ms));
    Ok(Seen {
        used: connections.get("used")?,
        max: connections.get("max")?,
        all_seen: connections.get("all_seen")?,
        idle_in_transaction,
        oldest_transaction: known
            .into_values()
            .filter(|session| session.transaction_ms.is_some())
            .max_by_key(|session| session.transaction_ms),
    })
}

/// A row of `pg_stat_activity`.
pub(in crate::store::postgres) fn session(row: &Row) -> Result<Session, StoreError> {
    let pid: i32 = Reader { table: "pg_stat_activity", row, key: &String::new }.get("pid")?;
    let session = Reader { table: "pg_stat_activity", row, key: &|| format!("pid {pid}") };
    let statement: Option<&str> = session.get("statement")?;
    Ok(Session {
        pid,
        application: session.get("application")?,
        client: session.get("client")?,
        user: session.get("user")?,
        state: session.get("state")?,
        statement: statement.filter(|text| !text.is_empty()).map(name),
        transaction_ms: session.get("transaction_ms")?,
        state_ms: session.get("state_ms")?,
    })
}

/// A statement's name: this program's statements begin with one; of others, the beginning tells something.
fn name(statement: &str) -> String {
    let first = statement.lines().next().unwrap_or_default();
    first.strip_prefix("-- ").unwrap_or(first).chars().take(60).collect()
}

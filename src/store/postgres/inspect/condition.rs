//! How a database is. Several short statements: none waits for another's lock, and none is a snapshot of all.

use super::{links, rows, sessions};
use crate::domain::Shard;
use crate::store::StoreError;
use crate::store::inspect::{Condition, Head, OldRun, Replication, Standby, Table};
use crate::store::postgres::changes::OverShards;
use crate::store::postgres::rows::{At, Reader, shown};
use crate::store::postgres::sessions::Sessions;

const LEDGER: &str = "-- inspect.ledger
select clock_timestamp() as now, current_setting('server_version') as version,
       current_setting('synchronous_commit') as synchronous_commit, schema_release, min_release, created_at
from ledger";

const COUNT_ACTIVE: &str = "-- inspect.count_active
select status, count(*) as runs from active group by status order by status";

const OLDEST: &str = "-- inspect.oldest
select a.namespace, a.run_id, a.status, a.started_at, r.agent_id
from (select * from active order by started_at, run_id limit 10) as a
left join lateral (
    select agent_id
    from runs r
    where r.shard = a.shard and r.namespace = a.namespace and r.run_id = a.run_id
    limit 1) as r on true
order by a.started_at, a.run_id";

/// Of those that follow: what takes a backup or reads changes takes over nothing.
const STANDBYS: &str = "-- inspect.standbys
select application_name as name, sync_state
from pg_stat_replication
where state is distinct from 'backup' and application_name is distinct from 'pg_receivewal' and pid not in (
    select active_pid from pg_replication_slots where slot_type = 'logical' and active_pid is not null)
order by pid";

const TABLES: &str = "-- inspect.tables
select relname as name, pg_table_size(relid) as bytes, pg_indexes_size(relid) as index_bytes, n_live_tup as rows,
       n_dead_tup as dead_rows, last_autovacuum
from pg_stat_user_tables
where relid in ('runs'::regclass, 'run_events'::regclass, 'active'::regclass, 'shards'::regclass)
order by pg_total_relation_size(relid) desc";

pub(super) async fn condition(
    sessions: &Sessions,
    over_shards: &OverShards,
    migration: u32,
) -> Result<Condition, StoreError> {
    let mut heads = Vec::new();
    for (shard, position) in (0..).zip(over_shards.heads(sessions).await?) {
        let at = links::time_of(sessions, Shard(shard), position).await?;
        heads.push(Head { shard, position, at, ..Head::default() });
    }
    let seen = sessions::seen(sessions, &mut heads).await?;
    let ledgers = rows(sessions, LEDGER, &[], |_| 0).await?;
    let row = ledgers.first().ok_or_else(|| StoreError::Refused("the database has no ledger row".into()))?;
    let ledger = Reader { table: "ledger", row };
    let one = || "the only row".to_owned();
    let (At(now), At(created_at)) = (ledger.get("now", one)?, ledger.get("created_at", one)?);
    let counted = rows(sessions, COUNT_ACTIVE, &[], |_| 0).await?;
    let active = counted.iter().map(|row| {
        let active = Reader { table: "active", row };
        Ok((active.get("status", String::new)?, active.unsigned("runs", String::new)?))
    });
    let oldest = rows(sessions, OLDEST, &[], |_| 0).await?;
    let oldest = oldest.iter().map(|row| {
        let active = Reader { table: "active", row };
        let key = active.key()?;
        let shown = || shown(&key);
        let At(started_at) = active.get("started_at", shown)?;
        let (status, agent_id) = (active.get("status", shown)?, active.get("agent_id", shown)?);
        Ok(OldRun { key, status, started_at, agent_id })
    });
    let standbys = rows(sessions, STANDBYS, &[], |_| 0).await?;
    let standbys = standbys.iter().map(|row| {
        let standby = Reader { table: "pg_stat_replication", row };
        let name: Option<String> = standby.get("name", String::new)?;
        Ok(Standby { name, sync_state: standby.get("sync_state", String::new)? })
    });
    let sizes = rows(sessions, TABLES, &[], |_| 0).await?;
    let tables = sizes.iter().map(|row| {
        let table = Reader { table: "pg_stat_user_tables", row };
        let name: String = table.get("name", String::new)?;
        let key = || name.clone();
        let last_autovacuum: Option<At> = table.get("last_autovacuum", key)?;
        Ok(Table {
            bytes: table.unsigned("bytes", key)?,
            index_bytes: table.unsigned("index_bytes", key)?,
            rows: table.unsigned("rows", key)?,
            dead_rows: table.unsigned("dead_rows", key)?,
            last_autovacuum: last_autovacuum.map(|At(at)| at),
            name: name.clone(),
        })
    });
    Ok(Condition {
        now,
        server_version: Some(ledger.get("version", one)?),
        schema_release: ledger.get("schema_release", one)?,
        min_release: ledger.get("min_release", one)?,
        migration: u64::from(migration),
        created_at,
        active: active.collect::<Result<_, StoreError>>()?,
        oldest: oldest.collect::<Result<_, StoreError>>()?,
        tables: tables.collect::<Result<_, StoreError>>()?,
        sessions: Some(seen),
        replication: Some(Replication {
            synchronous_commit: ledger.get("synchronous_commit", one)?,
            standbys: standbys.collect::<Result<_, StoreError>>()?,
        }),
        heads,
        file: None,
    })
}

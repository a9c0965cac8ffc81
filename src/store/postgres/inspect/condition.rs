//! The condition of a database. Several short statements: none waits for another's lock, and none is a snapshot of all.

use tokio_postgres::Row;

use super::{links, sessions};
use crate::domain::Shard;
use crate::store::StoreError;
use crate::store::inspect::rows::{self, COUNT_ACTIVE, OLDEST};
use crate::store::inspect::{Condition, Head, Replication, Standby, Table};
use crate::store::postgres::changes::OverShards;
use crate::store::postgres::read;
use crate::store::postgres::rows::Reader;
use crate::store::postgres::sessions::Sessions;

const LEDGER: &str = "-- inspect.ledger
select clock_timestamp() as now, current_setting('server_version') as version,
       current_setting('synchronous_commit') as synchronous_commit, schema_release, min_release, created_at
from ledger";

/// The standbys: a connection that takes a backup or reads changes can take over nothing.
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
    for (shard, position) in (0..).zip(Vec::from(over_shards.ends(sessions).await?)) {
        let at = links::time_of(sessions, Shard(shard), position).await?;
        heads.push(Head { shard, position, at, ..Head::default() });
    }
    let seen = sessions::seen(sessions, &mut heads).await?;
    let ledgers = read::rows(sessions, LEDGER, &[]).await?;
    let active = read::rows(sessions, COUNT_ACTIVE, &[]).await?;
    let oldest = read::rows(sessions, OLDEST, &[]).await?;
    let standbys = read::rows(sessions, STANDBYS, &[]).await?;
    let tables = read::rows(sessions, TABLES, &[]).await?;
    let steady_ahead_micros = links::steady_ahead(sessions).await?;
    let row = ledgers.first().ok_or_else(|| StoreError::Refused("the database has no ledger row".into()))?;
    let ledger = Reader { table: "ledger", row, key: &|| "the only row".to_owned() };
    Ok(Condition {
        now: ledger.get("now")?,
        server_version: Some(ledger.get("version")?),
        schema_release: ledger.get("schema_release")?,
        min_release: ledger.get("min_release")?,
        migration: u64::from(migration),
        created_at: ledger.get("created_at")?,
        active: active.iter().map(rows::active).collect::<Result<_, _>>()?,
        oldest: oldest.iter().map(rows::old).collect::<Result<_, _>>()?,
        tables: tables.iter().map(table).collect::<Result<_, _>>()?,
        steady_ahead_micros,
        sessions: Some(seen),
        replication: Some(Replication {
            synchronous_commit: ledger.get("synchronous_commit")?,
            standbys: standbys.iter().map(standby).collect::<Result<_, _>>()?,
        }),
        heads,
        file: None,
    })
}

fn standby(row: &Row) -> Result<Standby, StoreError> {
    let standby = Reader { table: "pg_stat_replication", row, key: &String::new };
    Ok(Standby { name: standby.get("name")?, sync_state: standby.get("sync_state")? })
}

fn table(row: &Row) -> Result<Table, StoreError> {
    let name: String = Reader { table: "pg_stat_user_tables", row, key: &String::new }.get("name")?;
    let table = Reader { table: "pg_stat_user_tables", row, key: &|| name.clone() };
    Ok(Table {
        bytes: table.get("bytes")?,
        index_bytes: table.get("index_bytes")?,
        rows: table.get("rows")?,
        dead_rows: table.get("dead_rows")?,
        last_autovacuum: table.get("last_autovacuum")?,
        name,
    })
}

//! The namespaces: looked up, listed, made, changed and deleted.

use async_trait::async_trait;
use futures_util::FutureExt as _;
use tokio_postgres::types::ToSql;
use tokio_postgres::{Error, Row};

use super::autocommit_writes::writing;
use super::commit::statements::{BEGIN, ROLLBACK};
use super::commit::{Written, write_and_commit};
use super::read;
use super::rows::{At, Reader, bigint};
use super::sessions::Session;
use super::store::PostgresStore;
use super::transactions::{self, Failed, query};
use crate::domain::{
    Namespace, NamespaceAsk, NamespaceCommand, NamespaceDecision, NamespaceFacts, NamespaceRecord, Positions, Quotas,
    Retention, namespace,
};
use crate::store::rows::namespaces::{LIST, namespace_columns, record};
use crate::store::{ChangeError, Namespaces, StoreError};

const NAMED: &str =
    concat!("-- namespaces.named\nselect ", namespace_columns!(), " from namespaces where name = any($1::text[])");

/// Takes every head, in one order, and makes a new version of each: by it, an optimistic commit that waited for its
/// head sees that another writer had it, and writes nothing.
const LOCK_HEADS: &str = "-- namespaces.lock_heads
select shard from shards order by shard for update";
const RENEW_HEADS: &str = "-- namespaces.renew_heads
update shards set shard = shard";

const LOCK: &str =
    concat!("-- namespaces.lock\nselect ", namespace_columns!(), " from namespaces where name = $1 for update");

/// A statement of its own, begun after the waits: it sees every commit that had a head before.
const FACTS: &str = "-- namespaces.facts
select clock_timestamp() as now, (select count(*) from namespaces) as namespaces,
       exists (select from runs where namespace = $1 and started_at > '-infinity')
       or exists (select from purged where namespace = $1) as has_runs";

const CREATE: &str = "-- namespaces.create
insert into namespaces (name, description, max_active_runs, max_stored_bytes, revision, created_at, updated_at,
                        keep_completed_ms, keep_aborted_ms, keep_failed_ms, keep_until_exported)
values ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11)
returning name";
const UPDATE: &str = "-- namespaces.update
update namespaces set description = $2, max_active_runs = $3, max_stored_bytes = $4, revision = $5, created_at = $6,
    updated_at = $7, keep_completed_ms = $8, keep_aborted_ms = $9, keep_failed_ms = $10,
    keep_until_exported = $11
where name = $1
returning name";
const DELETE: &str = "-- namespaces.delete
with measured as (delete from stored_bytes where namespace = $1),
     walked as (delete from retention_walks where namespace = $1),
     exported as (delete from exported where namespace = $1),
     declared as (delete from lifecycles where namespace = $1)
delete from namespaces where name = $1 returning name";

/// The positions only grow: what was exported once, was.
const NOTE_EXPORTED: &str = "-- exported.note
insert into exported as e (namespace, shard, position)
select $1, v.shard, v.position from unnest($2::smallint[], $3::bigint[]) as v (shard, position)
on conflict (namespace, shard) do update set position = greatest(e.position, excluded.position)
returning shard";

/// What is tried of these when the store is opened.
pub(super) const TRIED: [&str; 9] =
    [NAMED, FACTS, LOCK_HEADS, RENEW_HEADS, LOCK, CREATE, UPDATE, DELETE, NOTE_EXPORTED];

#[async_trait]
impl Namespaces for PostgresStore {
    async fn namespaces(&self, names: &[Namespace]) -> Result<Vec<NamespaceRecord>, StoreError> {
        let names: Vec<&str> = names.iter().map(Namespace::as_str).collect();
        read::rows(&self.commits.sessions, NAMED, &[&names]).await?.iter().map(record).collect()
    }

    async fn list_namespaces(
        &self,
        prefix: &str,
        after: &str,
        limit: usize,
    ) -> Result<Vec<NamespaceRecord>, StoreError> {
        let limit = i64::try_from(limit).unwrap_or(i64::MAX);
        read::rows(&self.commits.sessions, LIST, &[&prefix, &after, &limit]).await?.iter().map(record).collect()
    }

    async fn note_exported(&self, name: &Namespace, upto: &Positions) -> Result<(), StoreError> {
        let (shards, positions): (Vec<i16>, Vec<i64>) =
            (0_i16..).zip(upto.iter().map(|position| bigint(*position))).unzip();
        writing(&self.commits.sessions, NOTE_EXPORTED, &[&name.as_str(), &shards, &positions]).await.map(drop)
    }

    async fn change_namespace(&self, command: &NamespaceCommand) -> Result<NamespaceDecision, ChangeError> {
        let command = command.clone();
        transactions::change(&self.commits.sessions, move |session| {
            let command = command.clone();
            async move { change_once(session, &command).await }.boxed()
        })
        .await
    }
}

type Decided = Result<NamespaceDecision, crate::domain::NamespaceRefusal>;

async fn change_once(session: &Session, command: &NamespaceCommand) -> Result<Decided, Failed> {
    let name = &command.name.as_str();
    session.batch_execute(BEGIN).await?;
    if command.ask == NamespaceAsk::Delete {
        query(session, LOCK_HEADS, &[]).await?;
        query(session, RENEW_HEADS, &[]).await?;
    }
    let record = query(session, LOCK, &[name]).await?;
    let record = record.first().map(record_of).transpose().map_err(Failed::Unreadable)?;
    let facts = query(session, FACTS, &[name]).await?;
    let decided = decide(command, record.as_ref(), &facts).map_err(Failed::Unreadable)?;
    let written = match &decided {
        Ok(NamespaceDecision::Create(record)) => write(session, CREATE, record).await?,
        Ok(NamespaceDecision::Update(record)) => write(session, UPDATE, record).await?,
        Ok(NamespaceDecision::Delete) => {
            let statement = session.prepare_cached(DELETE).await?;
            write_and_commit(session, session.query_one(&statement, &[name])).await
        }
        Ok(NamespaceDecision::Unchanged(_)) | Err(_) => {
            session.batch_execute(ROLLBACK).await?;
            return Ok(decided);
        }
    };
    match written {
        Written::Committed(_row) => Ok(decided),
        Written::RolledBack(error) | Written::Unsent(error) => Err(Failed::NotApplied(error)),
        Written::Unknown(error) => Err(Failed::Unknown(error)),
    }
}

fn record_of(row: &Row) -> Result<NamespaceRecord, StoreError> {
    record(row)
}

fn decide(command: &NamespaceCommand, record: Option<&NamespaceRecord>, facts: &[Row]) -> Result<Decided, StoreError> {
    let Some(row) = facts.first() else {
        let source = "no answer".into();
        return Err(StoreError::Corrupt { table: "namespaces", column: "name", key: "facts".to_owned(), source });
    };
    let facts = Reader { table: "namespaces", row, key: &|| command.name.to_string() };
    let facts = NamespaceFacts {
        record,
        has_runs: facts.get("has_runs")?,
        namespaces: facts.get("namespaces")?,
        now: facts.get("now")?,
    };
    Ok(namespace::decide(command, &facts))
}

async fn write(session: &Session, sql: &str, record: &NamespaceRecord) -> Result<Written<Row>, Error> {
    let statement = session.prepare_cached(sql).await?;
    let Quotas { max_active_runs, max_stored_bytes } = record.settings.quotas;
    let (max_active_runs, max_stored_bytes) = (max_active_runs.map(bigint), max_stored_bytes.map(bigint));
    let Retention { completed_ms, aborted_ms, failed_ms, until_exported } = record.settings.retention;
    let keep = [completed_ms, aborted_ms, failed_ms].map(|keep_ms| keep_ms.map(bigint));
    let arguments: [&(dyn ToSql + Sync); 11] = [
        &record.name.as_str(),
        &record.settings.description,
        &max_active_runs,
        &max_stored_bytes,
        &bigint(record.revision),
        &At(record.created_at),
        &At(record.updated_at),
        &keep[0],
        &keep[1],
        &keep[2],
        &until_exported,
    ];
    Ok(write_and_commit(session, session.query_one(&statement, &arguments)).await)
}

/// The statements by which a commit reads namespaces, for a look at their plans.
#[must_use]
pub fn of_namespaces() -> Vec<String> {
    use super::sides::namespaces::{LOAD, LOCK};
    [LOCK, LOAD].map(str::to_owned).to_vec()
}

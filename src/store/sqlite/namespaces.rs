//! The namespaces: looked up, listed, made, changed and deleted; and read where a commit may create a run in one. The
//! one writer stands for every shard's head.

use async_trait::async_trait;
use rusqlite::{Connection, Transaction, params};

use super::errors;
use super::rows::{Reader, all, bigint, execute, first};
use super::store::SqliteStore;
use super::writer::begin;
use crate::domain::{
    Namespace, NamespaceCommand, NamespaceDecision, NamespaceFacts, NamespaceRecord, Positions, Time, namespace,
};
use crate::store::rows::namespaces::{LIST, namespace_columns, record};
use crate::store::{ChangeError, Namespaces, StoreError};

const NAMED: &str = concat!("-- namespaces.named\nselect ", namespace_columns!(), " from namespaces where name = ?1");

const FACTS: &str = "-- namespaces.facts
select (select count(*) from namespaces),
       exists (select 1 from runs where namespace = ?1 and purged_at is null)
       or exists (select 1 from purged where namespace = ?1)";

#[async_trait]
impl Namespaces for SqliteStore {
    async fn namespaces(&self, names: &[Namespace]) -> Result<Vec<NamespaceRecord>, StoreError> {
        let names = names.to_vec();
        self.connections.read(move |connection| named(connection, &names)).await?
    }

    async fn list_namespaces(
        &self,
        prefix: &str,
        after: &str,
        limit: usize,
    ) -> Result<Vec<NamespaceRecord>, StoreError> {
        let (prefix, after) = (prefix.to_owned(), after.to_owned());
        self.connections.read(move |connection| list(connection, (&prefix, &after), limit)).await?
    }

    async fn note_exported(&self, name: &Namespace, upto: &Positions) -> Result<(), StoreError> {
        let (name, upto) = (name.clone(), upto.clone());
        self.connections.write(move |connection| note_exported(connection, &name, &upto)).await?
    }

    async fn change_namespace(&self, command: &NamespaceCommand) -> Result<NamespaceDecision, ChangeError> {
        let (command, clock) = (command.clone(), self.clock.clone());
        let change = move |connection: &mut Connection| change(connection, &command, clock.clock());
        self.connections.write(change).await?
    }
}

fn named(connection: &Connection, names: &[Namespace]) -> Result<Vec<NamespaceRecord>, StoreError> {
    let mut found = Vec::new();
    for name in names {
        found.extend(first(connection, NAMED, [name.as_str()], |row| record(row))?);
    }
    Ok(found)
}

fn list(
    connection: &Connection,
    (prefix, after): (&str, &str),
    limit: usize,
) -> Result<Vec<NamespaceRecord>, StoreError> {
    all(connection, LIST, (prefix, after, i64::try_from(limit).unwrap_or(i64::MAX)), |row| record(row))
}

/// The positions only grow: what was exported once, was.
const NOTE_EXPORTED: &str = "-- exported.note
insert into exported (namespace, shard, position) values (?1, ?2, ?3)
on conflict (namespace, shard) do update set position = max(position, excluded.position)";

fn note_exported(connection: &mut Connection, name: &Namespace, upto: &Positions) -> Result<(), StoreError> {
    let transaction = begin(connection)?;
    for (shard, position) in upto.iter().enumerate() {
        let shard = i64::try_from(shard).expect("there are few shards");
        execute(&transaction, NOTE_EXPORTED, params![name.as_str(), shard, bigint(*position)])?;
    }
    transaction.commit().map_err(errors::statement)
}

fn change(
    connection: &mut Connection,
    command: &NamespaceCommand,
    now: Time,
) -> Result<NamespaceDecision, ChangeError> {
    let transaction = begin(connection)?;
    let record = first(&transaction, NAMED, [&command.name.as_str()], |row| record(row))?;
    let counted = first(&transaction, FACTS, [&command.name.as_str()], |row| {
        let facts = Reader { table: "namespaces", row, key: &|| command.name.to_string() };
        Ok((facts.get((0, "namespaces"))?, facts.get::<i64>((1, "has_runs"))? != 0))
    })?;
    let (namespaces, has_runs) = counted.unwrap_or_default();
    let facts = NamespaceFacts { record: record.as_ref(), has_runs, namespaces, now };
    let decision = namespace::decide(command, &facts).map_err(ChangeError::Refused)?;
    match &decision {
        NamespaceDecision::Unchanged(_) => return Ok(decision),
        NamespaceDecision::Create(record) | NamespaceDecision::Update(record) => write(&transaction, record)?,
        NamespaceDecision::Delete => {
            execute(
                &transaction,
                "-- namespaces.delete\ndelete from namespaces where name = ?1",
                [&command.name.as_str()],
            )?;
            let measured = "-- stored_bytes.delete\ndelete from stored_bytes where namespace = ?1";
            execute(&transaction, measured, [&command.name.as_str()])?;
            let walked = "-- retention_walks.delete\ndelete from retention_walks where namespace = ?1";
            execute(&transaction, walked, [&command.name.as_str()])?;
            let exported = "-- exported.delete\ndelete from exported where namespace = ?1";
            execute(&transaction, exported, [&command.name.as_str()])?;
            let declared = "-- lifecycles.delete\ndelete from lifecycles where namespace = ?1";
            execute(&transaction, declared, [&command.name.as_str()])?;
        }
    }
    match transaction.execute_batch("COMMIT") {
        Ok(()) => Ok(decision),
        Err(error) if errors::wrote_nothing(&transaction, &error) => Err(errors::statement(error).into()),
        Err(error) => Err(ChangeError::Unknown(errors::statement(error))),
    }
}

fn write(transaction: &Transaction<'_>, record: &NamespaceRecord) -> Result<(), StoreError> {
    execute(
        transaction,
        "-- namespaces.write
         insert into namespaces
            (name, description, max_active_runs, max_stored_bytes, revision, created_at, updated_at,
             keep_completed_ms, keep_aborted_ms, keep_failed_ms, keep_until_exported)
         values (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11)
         on conflict (name) do update
            set description = ?2, max_active_runs = ?3, max_stored_bytes = ?4, revision = ?5, created_at = ?6,
                updated_at = ?7, keep_completed_ms = ?8, keep_aborted_ms = ?9, keep_failed_ms = ?10,
                keep_until_exported = ?11",
        params![
            record.name.as_str(),
            record.settings.description,
            record.settings.quotas.max_active_runs.map(bigint),
            record.settings.quotas.max_stored_bytes.map(bigint),
            bigint(record.revision),
            record.created_at.micros(),
            record.updated_at.micros(),
            record.settings.retention.completed_ms.map(bigint),
            record.settings.retention.aborted_ms.map(bigint),
            record.settings.retention.failed_ms.map(bigint),
            record.settings.retention.until_exported,
        ],
    )
    .map(drop)
}

//! The lifecycles: put, read and listed; and read where a commit rests on one. The one writer is their lock.

use std::collections::BTreeSet;
use std::sync::Arc;

use async_trait::async_trait;
use rusqlite::{Connection, Transaction, params};

use super::errors;
use super::rows::{Reader, all, bigint, execute, first};
use super::store::SqliteStore;
use super::writer::begin;
use crate::domain::lifecycle::put;
use crate::domain::{
    Declared, LifecycleKey, LifecycleName, LifecyclePin, LifecycleRecord, Namespace, PutFacts, PutLifecycle,
    PutOutcome, PutRefusal, Time, Used,
};
use crate::store::lifecycles::{Lifecycles, Remembered, Versions};
use crate::store::rows::lifecycles::{DECLARED, NAMED, VERSIONS, declared, digest_column, record};
use crate::store::{ChangeError, StoreError};

/// A put of a time to come was made while the clock was ahead, and counts no more.
const FACTS: &str = "-- lifecycles.facts
select exists (select 1 from namespaces where name = ?1),
       (select count(*) from lifecycles indexed by lifecycles_by_name where namespace = ?1 and version = 1),
       (select count(*) from lifecycles where namespace = ?1 and at > ?2 - 60000000 and at <= ?2 + 1000000),
       (select max_stored_bytes from namespaces where name = ?1),
       (select coalesce(sum(bytes), 0) from stored_bytes where namespace = ?1)";

const DIGEST: &str = "-- lifecycles.digest
select digest from lifecycles
 where namespace = ?1 and name = ?2 and version = case when ?3 > 0 then ?3 else (
    select max(m.version) from lifecycles as m where m.namespace = ?1 and m.name = ?2) end";

/// What it takes counts towards the namespace's quota, where it has one or had one: in the row of the first shard.
const COUNT: &str = "-- lifecycles.count
insert into stored_bytes (namespace, shard, position, bytes)
select ?1, 0, 0, (select sum(octet_length(source) + octet_length(declaration)) from lifecycles where namespace = ?1)
  from namespaces where name = ?1 and (
    max_stored_bytes is not null or exists (select 1 from stored_bytes where namespace = ?1 and shard = 0))
on conflict (namespace, shard) do update set bytes = bytes + ?2";

/// A page of names. SQLite would walk every version of the namespace.
const LIST: &str = "-- lifecycles.list
select l.namespace, l.name, l.version, l.at, l.principal, '' as source
  from (select name from lifecycles indexed by lifecycles_by_name
         where namespace = ?1 and version = 1 and name > ?2 order by name limit ?3) as n
  cross join lifecycles as l on l.namespace = ?1 and l.name = n.name
    and l.version = (select max(m.version) from lifecycles as m where m.namespace = ?1 and m.name = n.name)
 order by l.name";

const PUT: &str = "-- lifecycles.put
insert into lifecycles (namespace, name, version, at, principal, source, declaration, digest)
values (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)";

#[async_trait]
impl Lifecycles for SqliteStore {
    async fn put_lifecycle(&self, put: &PutLifecycle) -> Result<PutOutcome, ChangeError<PutRefusal>> {
        let (asked, clock) = (put.clone(), self.clock.clone());
        let outcome = self.connections.write(move |connection| self::put(connection, &asked, clock.clock())).await??;
        self.versions.put(put, &outcome);
        Ok(outcome)
    }

    async fn lifecycle(
        &self,
        namespace: &Namespace,
        name: &LifecycleName,
    ) -> Result<Option<LifecycleRecord>, StoreError> {
        let (namespace, name) = (namespace.clone(), name.clone());
        let read = move |connection: &mut Connection| {
            first(connection, NAMED, (&namespace.as_str(), &name.name, version(&name)), |row| record(row))
        };
        self.connections.read(read).await?
    }

    async fn declared(&self, key: &LifecycleKey) -> Result<Option<Arc<Declared>>, StoreError> {
        if let (LifecycleKey::Pinned(..), Some(declared)) = (key, self.versions.get(key)) {
            return Ok(Some(declared));
        }
        let key = key.clone();
        self.connections.read(move |connection| what_is_declared(connection, &key)).await?
    }

    async fn list_lifecycles(
        &self,
        namespace: &Namespace,
        after: &str,
        limit: usize,
    ) -> Result<Vec<LifecycleRecord>, StoreError> {
        let (namespace, after) = (namespace.clone(), after.to_owned());
        let read = move |connection: &mut Connection| {
            all(connection, LIST, (&namespace.as_str(), &after, bigint(limit as u64)), |row| record(row))
        };
        self.connections.read(read).await?
    }

    async fn lifecycle_versions(
        &self,
        namespace: &Namespace,
        name: &str,
        below: u32,
        limit: usize,
    ) -> Result<Vec<LifecycleRecord>, StoreError> {
        let (namespace, name) = (namespace.clone(), name.to_owned());
        let read = move |connection: &mut Connection| {
            all(connection, VERSIONS, (&namespace.as_str(), &name, below, bigint(limit as u64)), |row| record(row))
        };
        self.connections.read(read).await?
    }
}

fn version(name: &LifecycleName) -> u32 {
    name.version.unwrap_or(0)
}

fn what_is_declared(connection: &Connection, key: &LifecycleKey) -> Result<Option<Arc<Declared>>, StoreError> {
    let (namespace, name) = (key.namespace(), key.name());
    let found = first(connection, DECLARED, (namespace.as_str(), &name.name, version(&name)), |row| declared(row))?;
    Ok(found.filter(|declared| key.is(declared)).map(Arc::new))
}

/// Whether a name stands for what is remembered of it.
fn is_still(connection: &Connection, key: &LifecycleKey, known: &Declared) -> Result<bool, StoreError> {
    let (namespace, name) = (key.namespace(), key.name());
    let found = first(connection, DIGEST, (namespace.as_str(), &name.name, version(&name)), |row| {
        Reader { table: "lifecycles", row, key: &|| name.to_string() }.get::<i64>((0, "digest"))
    })?;
    Ok(found == Some(digest_column(&known.pin)))
}

/// The lifecycles that the commands of a commit rest on: from memory, or read.
pub(super) fn found(
    transaction: &Transaction<'_>,
    wanted: BTreeSet<LifecycleKey>,
    versions: &Versions,
) -> Result<Vec<(LifecycleKey, Arc<Declared>)>, StoreError> {
    let Remembered { mut found, missing } = versions.remembered(wanted);
    for (key, known) in missing {
        let declared = match known {
            Some(known) if is_still(transaction, &key, &known)? => Some(known),
            Some(_) | None => what_is_declared(transaction, &key)?,
        };
        if let Some(declared) = declared {
            versions.note(&key, &declared);
            found.push((key, declared));
        }
    }
    Ok(found)
}

fn put(connection: &mut Connection, put: &PutLifecycle, now: Time) -> Result<PutOutcome, ChangeError<PutRefusal>> {
    let PutLifecycle { namespace, lifecycle, source, by, only_new: _ } = put;
    let transaction = begin(connection)?;
    let name = LifecycleName { name: lifecycle.name.clone(), version: None };
    let newest = what_is_declared(&transaction, &LifecycleKey::Named(namespace.clone(), name))?;
    let newest = newest.map(|declared| (declared.pin.id.version, declared.lifecycle.clone()));
    let facts = first(&transaction, FACTS, (namespace.as_str(), now.micros()), |row| {
        let facts = Reader { table: "lifecycles", row, key: &|| "facts".to_owned() };
        let has_namespace = facts.get::<i64>((0, "has_namespace"))? != 0;
        let (names, puts) = (facts.get((1, "names"))?, facts.get((2, "puts"))?);
        let (max, used) = (facts.get::<Option<u64>>((3, "max_stored_bytes"))?, facts.get((4, "stored_bytes"))?);
        Ok(PutFacts { has_namespace, newest: None, names, puts, stored_bytes: max.map(|max| Used { max, used }) })
    })?;
    let facts = PutFacts { newest, ..facts.unwrap_or_default() };
    let decided = put::decide(put, &facts).map_err(ChangeError::Refused)?;
    let PutOutcome::Applied(id) = &decided else { return Ok(decided) };
    let principal = serde_json::to_string(by).expect("strings serialize");
    let declaration = lifecycle.text();
    let digest = digest_column(&LifecyclePin::new(id.clone(), &declaration));
    let bytes = bigint((source.len() + declaration.len()) as u64);
    let values =
        params![namespace.as_str(), id.name.as_str(), id.version, now.micros(), principal, source, declaration, digest];
    execute(&transaction, PUT, values)?;
    execute(&transaction, COUNT, params![namespace.as_str(), bytes])?;
    match transaction.execute_batch("COMMIT") {
        Ok(()) => Ok(decided),
        Err(error) if errors::wrote_nothing(&transaction, &error) => Err(errors::statement(error).into()),
        Err(error) => Err(ChangeError::Unknown(errors::statement(error))),
    }
}

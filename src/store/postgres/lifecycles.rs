//! The lifecycles: put, read and listed. What commits read of them is in [`sides`](super::sides::lifecycles).

use std::sync::Arc;

use async_trait::async_trait;
use futures_util::FutureExt as _;
use tokio_postgres::Row;
use tokio_postgres::types::ToSql;

use super::commit::statements::{BEGIN, ROLLBACK};
use super::commit::{Written, write_and_commit};
use super::read;
use super::rows::{Reader, bigint};
use super::sessions::{Session, Sessions};
use super::store::PostgresStore;
use super::transactions::{Failed, change, query};
use crate::domain::lifecycle::put;
use crate::domain::{
    Declared, LifecycleKey, LifecycleName, LifecyclePin, LifecycleRecord, Namespace, PutFacts, PutLifecycle,
    PutOutcome, PutRefusal, Used,
};
use crate::store::rows::lifecycles::{DECLARED, LIST, NAMED, VERSIONS, declared, digest_column, record};
use crate::store::{ChangeError, Lifecycles, StoreError};

/// Puts in one namespace follow one another. Nobody else waits for this lock.
const LOCK: &str = "-- lifecycles.lock
select pg_advisory_xact_lock(hashtextextended('runledger.lifecycles/' || $1, 0))";

/// The namespace stays for as long as the put lasts.
const HOLD: &str = "-- lifecycles.hold_namespace
select name from namespaces where name = $1 for key share";

/// A statement of its own, begun after the wait: it sees every put before.
const FACTS: &str = "-- lifecycles.facts
select (select count(*) from lifecycles where namespace = $1 and version = 1) as names,
       (select count(*) from lifecycles
        where namespace = $1 and at > (select clock_timestamp()) - interval '1 minute'
          and at <= (select clock_timestamp()) + interval '1 second') as puts,
       (select max_stored_bytes from namespaces where name = $1) as max_stored_bytes,
       (select cast(coalesce(sum(bytes), 0) as bigint) from stored_bytes where namespace = $1) as stored_bytes";

/// What it takes counts towards the namespace's quota, where it has one or had one: in the row of the first shard.
const PUT: &str = "-- lifecycles.put
with counted as (
    insert into stored_bytes as b (namespace, shard, position, bytes)
    select $1, 0, 0, octet_length($5::text) + octet_length($6::text) + (
        select coalesce(sum(octet_length(source) + octet_length(declaration)), 0) from lifecycles where namespace = $1)
    from namespaces where name = $1 and (
        max_stored_bytes is not null or exists (select from stored_bytes where namespace = $1 and shard = 0))
    on conflict (namespace, shard) do update
        set bytes = b.bytes + octet_length($5::text) + octet_length($6::text))
insert into lifecycles (namespace, name, version, at, principal, source, declaration, digest)
values ($1, $2, $3, clock_timestamp(), $4, $5, $6, $7)
returning version";

/// What is tried of these when the store is opened.
pub(super) const TRIED: [&str; 4] = [LOCK, HOLD, FACTS, PUT];

#[async_trait]
impl Lifecycles for PostgresStore {
    async fn put_lifecycle(&self, put: &PutLifecycle) -> Result<PutOutcome, ChangeError<PutRefusal>> {
        let outcome = self.put(put).await?;
        self.commits.hints.lifecycles().put(put, &outcome);
        Ok(outcome)
    }

    async fn lifecycle(
        &self,
        namespace: &Namespace,
        name: &LifecycleName,
    ) -> Result<Option<LifecycleRecord>, StoreError> {
        let values: [&(dyn ToSql + Sync); 3] = [&namespace.as_str(), &name.name, &version(name)];
        read::rows(&self.commits.sessions, NAMED, &values).await?.first().map(record).transpose()
    }

    async fn declared(&self, key: &LifecycleKey) -> Result<Option<Arc<Declared>>, StoreError> {
        match (key, self.commits.hints.lifecycles().get(key)) {
            (LifecycleKey::Pinned(..), Some(declared)) => Ok(Some(declared)),
            (LifecycleKey::Pinned(..) | LifecycleKey::Named(..), _) => {
                what_is_declared(&self.commits.sessions, key).await
            }
        }
    }

    async fn list_lifecycles(
        &self,
        namespace: &Namespace,
        after: &str,
        limit: usize,
    ) -> Result<Vec<LifecycleRecord>, StoreError> {
        let values: [&(dyn ToSql + Sync); 3] = [&namespace.as_str(), &after, &bigint(limit as u64)];
        read::rows(&self.commits.sessions, LIST, &values).await?.iter().map(record).collect()
    }

    async fn lifecycle_versions(
        &self,
        namespace: &Namespace,
        name: &str,
        below: u32,
        limit: usize,
    ) -> Result<Vec<LifecycleRecord>, StoreError> {
        let below = i32::try_from(below).unwrap_or(i32::MAX);
        let values: [&(dyn ToSql + Sync); 4] = [&namespace.as_str(), &name, &below, &bigint(limit as u64)];
        read::rows(&self.commits.sessions, VERSIONS, &values).await?.iter().map(record).collect()
    }
}

impl PostgresStore {
    /// What says the same as the newest version is unchanged, and waits for nobody. Of others each process puts one at a
    /// time: more would wait for one another in sessions that commits need.
    async fn put(&self, put: &PutLifecycle) -> Result<PutOutcome, ChangeError<PutRefusal>> {
        let sessions = &self.commits.sessions;
        if let Some(unchanged) = unchanged(sessions, put).await? {
            return Ok(unchanged);
        }
        let _turn = self.puts.lock().await;
        // Of many that put the same, the first has done it.
        if let Some(unchanged) = unchanged(sessions, put).await? {
            return Ok(unchanged);
        }
        let put = put.clone();
        change(sessions, move |session| {
            let put = put.clone();
            async move { put_once(session, &put).await }.boxed()
        })
        .await
    }
}

async fn unchanged(sessions: &Sessions, put: &PutLifecycle) -> Result<Option<PutOutcome>, StoreError> {
    let name = LifecycleName { name: put.lifecycle.name.clone(), version: None };
    let newest = what_is_declared(sessions, &LifecycleKey::Named(put.namespace.clone(), name)).await?;
    let newest = newest.filter(|newest| newest.lifecycle == put.lifecycle);
    Ok(newest.map(|newest| PutOutcome::Unchanged(newest.pin.id.clone())))
}

async fn put_once(session: &Session, put: &PutLifecycle) -> Result<Result<PutOutcome, PutRefusal>, Failed> {
    let PutLifecycle { namespace, lifecycle, source, by, only_new: _ } = put;
    let (namespace, name) = (&namespace.as_str(), &lifecycle.name);
    session.batch_execute(BEGIN).await?;
    query(session, LOCK, &[namespace]).await?;
    let has_namespace = !query(session, HOLD, &[namespace]).await?.is_empty();
    let newest = query(session, DECLARED, &[namespace, name, &0_i32]).await?;
    let counted = query(session, FACTS, &[namespace]).await?;
    let facts = facts(has_namespace, newest.first(), counted.first()).map_err(Failed::Unreadable)?;
    let decided = put::decide(put, &facts);
    let Ok(PutOutcome::Applied(id)) = &decided else {
        session.batch_execute(ROLLBACK).await?;
        return Ok(decided);
    };
    let version = i32::try_from(id.version).unwrap_or(i32::MAX);
    let principal = serde_json::to_string(by).expect("strings serialize");
    let declaration = lifecycle.text();
    let digest = digest_column(&LifecyclePin::new(id.clone(), &declaration));
    let statement = session.prepare_cached(PUT).await?;
    let values: [&(dyn ToSql + Sync); 7] = [namespace, name, &version, &principal, source, &declaration, &digest];
    match write_and_commit(session, session.query_one(&statement, &values)).await {
        Written::Committed(_row) => Ok(decided),
        Written::RolledBack(error) | Written::Unsent(error) => Err(Failed::NotApplied(error)),
        Written::Unknown(error) => Err(Failed::Unknown(error)),
    }
}

fn facts(has_namespace: bool, newest: Option<&Row>, counted: Option<&Row>) -> Result<PutFacts, StoreError> {
    let newest = newest.map(declared).transpose()?;
    let newest = newest.map(|Declared { pin, lifecycle, .. }| (pin.id.version, lifecycle));
    let Some(row) = counted else { return Ok(PutFacts { has_namespace, newest, ..PutFacts::default() }) };
    let counted = Reader { table: "lifecycles", row, key: &|| "facts".to_owned() };
    let max: Option<u64> = counted.get("max_stored_bytes")?;
    let used = counted.get("stored_bytes")?;
    let stored_bytes = max.map(|max| Used { max, used });
    Ok(PutFacts { has_namespace, newest, names: counted.get("names")?, puts: counted.get("puts")?, stored_bytes })
}

fn version(name: &LifecycleName) -> i32 {
    name.version.map_or(0, |version| i32::try_from(version).unwrap_or(i32::MAX))
}

async fn what_is_declared(sessions: &Sessions, key: &LifecycleKey) -> Result<Option<Arc<Declared>>, StoreError> {
    let (namespace, name) = (&key.namespace().as_str(), key.name());
    let rows = read::rows(sessions, DECLARED, &[namespace, &name.name, &version(&name)]).await?;
    let declared = rows.first().map(declared).transpose()?;
    Ok(declared.filter(|declared| key.is(declared)).map(Arc::new))
}

//! The lifecycles that a commit rests on, and the guard of those that were taken from memory.

use std::collections::BTreeSet;
use std::sync::Arc;

use tokio_postgres::{Error, Row};

use crate::domain::{Declared, LifecycleKey, LifecyclePin};
use crate::store::StoreError;
use crate::store::lifecycles::{Remembered, Versions};
use crate::store::postgres::parts::Parts;
use crate::store::postgres::rows::Reader;
use crate::store::postgres::sessions::Session;
use crate::store::rows::lifecycles::{declared, digest_column};

/// Reads versions, or the newest ones. A statement that began after every call of the commit had come. Of what this
/// process remembers of a name (`known`) the text is not sent again.
const LOAD: &str = "-- commit.load_lifecycles
select v.number, l.name, l.version, l.digest,
       case when l.digest is distinct from v.known then l.declaration end as declaration
from unnest($1::text[], $2::text[], $3::int[], $4::bigint[]) with ordinality as v (namespace, name, version, known, number)
cross join lateral (
    select name, version, digest, declaration from lifecycles
    where namespace = v.namespace and name = v.name
      and version = coalesce(v.version, (select max(m.version) from lifecycles m
                                         where m.namespace = v.namespace and m.name = v.name))
    offset 0) as l";

/// The statement that reads lifecycles, for a look at its plan.
#[must_use]
pub fn of_lifecycles() -> &'static str {
    LOAD
}

/// The lifecycles that the commands rest on, once their runs are known: from memory, and what is not there by one
/// statement under the head.
pub(in crate::store::postgres) async fn found(
    session: &Session,
    wanted: BTreeSet<LifecycleKey>,
    versions: &Versions,
) -> Result<Result<Vec<(LifecycleKey, Arc<Declared>)>, StoreError>, Error> {
    let Remembered { mut found, missing } = versions.remembered(wanted);
    if missing.is_empty() {
        return Ok(Ok(found));
    }
    let rows = load(session, &missing).await?;
    let read = rows.iter().try_for_each(|row| {
        let (key, declared) = read(row, &missing)?;
        // Somebody put another one in its place by hand, or it is that of a namespace which was deleted.
        if !key.is(&declared) {
            return Ok(());
        }
        versions.note(key, &declared);
        found.push((key.clone(), declared));
        Ok(())
    });
    // What a name stood for is no longer there: else commits would be decided on it again and again.
    let is_found = |key: &LifecycleKey| found.iter().any(|(of, _)| of == key);
    missing
        .iter()
        .filter(|(key, known)| known.is_some() && !is_found(key))
        .for_each(|(key, _)| versions.forget_of(key));
    Ok(read.map(|()| found))
}

type Missing = (LifecycleKey, Option<Arc<Declared>>);

fn read<'a>(row: &Row, missing: &'a [Missing]) -> Result<(&'a LifecycleKey, Arc<Declared>), StoreError> {
    let place = Reader { table: "lifecycles", row, key: &|| "a lifecycle of a commit".to_owned() };
    let number: u64 = place.get("number")?;
    let asked = usize::try_from(number).ok().and_then(|number| missing.get(number.checked_sub(1)?));
    let (key, known) = asked.ok_or_else(|| place.corrupt("number", "not one that was asked for"))?;
    match known {
        Some(known) if place.get::<Option<&str>>("declaration")?.is_none() => Ok((key, known.clone())),
        Some(_) | None => declared(row).map(|declared| (key, Arc::new(declared))),
    }
}

impl<'a> Parts<'a> {
    /// The condition that names of lifecycles still stand for what this process remembers.
    pub(in crate::store::postgres) fn guard_lifecycles(
        &mut self,
        stands_for: &'a [(LifecycleKey, LifecyclePin)],
    ) -> String {
        let keys = LifecycleKeys::new(stands_for.iter().map(|(key, _)| key));
        let digests = stands_for.iter().map(|(_, pin)| digest_column(pin)).collect::<Vec<_>>();
        let (namespaces, names) = (self.add("text[]", keys.namespaces), self.add("text[]", keys.names));
        let (versions, digests) = (self.add("int[]", keys.versions), self.add("bigint[]", digests));
        format!(
            "\n      and not exists (
        select from unnest({namespaces}, {names}, {versions}, {digests}) as v (namespace, name, version, digest)
        where (select l.digest from lifecycles l
               where l.namespace = v.namespace and l.name = v.name
                 and l.version = coalesce(v.version, (select max(m.version) from lifecycles m
                                                      where m.namespace = v.namespace and m.name = v.name))
              ) is distinct from v.digest)"
        )
    }
}

/// Lifecycles as statements are asked for them.
struct LifecycleKeys<'a> {
    namespaces: Vec<&'a str>,
    names: Vec<String>,
    versions: Vec<Option<i32>>,
}

impl<'a> LifecycleKeys<'a> {
    fn new(keys: impl Iterator<Item = &'a LifecycleKey> + Clone) -> Self {
        let number = |version: u32| i32::try_from(version).unwrap_or(i32::MAX);
        let (names, versions) =
            keys.clone().map(LifecycleKey::name).map(|of| (of.name, of.version.map(number))).unzip();
        Self { namespaces: keys.map(|key| key.namespace().as_str()).collect(), names, versions }
    }
}

/// The lifecycles, as far as they are there: under the head, for commands that came before.
async fn load(session: &Session, missing: &[Missing]) -> Result<Vec<Row>, Error> {
    let LifecycleKeys { namespaces, names, versions } = LifecycleKeys::new(missing.iter().map(|(key, _)| key));
    let digest = |known: &Option<Arc<Declared>>| known.as_ref().map(|declared| digest_column(&declared.pin));
    let known: Vec<Option<i64>> = missing.iter().map(|(_, known)| digest(known)).collect();
    let statement = session.prepare_cached(LOAD).await?;
    session.query(&statement, &[&namespaces, &names, &versions, &known]).await
}

//! The namespaces of runs that are created: see [`NamespaceRow`](crate::domain::NamespaceRow).
//!
//! Who deletes a namespace takes every head first, so a row that is read under a head stays there until the commit has
//! ended. Of a namespace with a quota the row is its mutex as well: commits of all shards that create runs there take it
//! after the head and after the rows of [`claims`](super::claims), several in the order of their names, and count the
//! active runs in a later statement than the one that waited. So that quota is exact. The one of stored bytes is held
//! against what was measured last.

use std::collections::HashSet;
use std::sync::Arc;

use parking_lot::Mutex;

use super::side::{Reading, Side};
use crate::domain::sides::namespaces::wanted;
use crate::domain::{Command, Namespace, NamespaceRow, Sides};
use crate::store::postgres::parts::Parts;
use crate::store::rows::namespaces;

pub(super) const SIDE: Side = Side {
    read: Some(Reading {
        lock: Some(|| LOCK.into()),
        load: |wanted| (!wanted.namespaces.is_empty()).then(|| LOAD.into()),
        keys: |wanted, _| vec![Box::new(wanted.namespaces.iter().map(Namespace::as_str).collect::<Vec<_>>())],
        read: |row, _, sides| {
            sides.namespaces.push(namespaces::side(row)?);
            Ok(())
        },
    }),
    write: None,
    guard: Some(guard),
};

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

/// The condition that the namespaces in which runs are created are there, and have no quota: of one that has, the
/// active runs would have to be counted. Who deletes a namespace leaves a new version of every head.
fn guard<'a>(parts: &mut Parts<'a>, Sides { namespaces, .. }: &'a Sides) -> Option<String> {
    if namespaces.is_empty() {
        return None;
    }
    let names = parts.add("text[]", namespaces.iter().map(|row| row.name.as_str()).collect::<Vec<_>>());
    Some(format!(
        "\n      and not exists (
        select from unnest({names}) as v (name)
        where not exists (select from namespaces s
                          where s.name = v.name and s.max_active_runs is null
                            and s.max_stored_bytes is null offset 0))"
    ))
}

/// Namespaces that are remembered at most. When there are more, all are forgotten, and learned again.
const NAMESPACES_MAX: usize = 1_024;

/// The sides that are remembered as hints: of namespaces, which of them are there, and have no quota. Runs that are
/// created in these are decided without a read; the statement that writes looks under the head whether they are still
/// there and without a quota.
#[derive(Default)]
pub(in crate::store::postgres) struct HintedSides(Mutex<HashSet<Namespace>>);

impl HintedSides {
    /// Notes rows as they were read under a head.
    pub(in crate::store::postgres) fn note(&self, Sides { namespaces: rows, .. }: &Sides) {
        if rows.is_empty() {
            return;
        }
        let mut known = self.0.lock();
        for row in rows {
            if row.active_runs.is_some() || row.stored_bytes.is_some() {
                known.remove(&row.name);
                continue;
            }
            if known.len() >= NAMESPACES_MAX {
                known.clear();
            }
            known.insert(row.name.clone());
        }
    }

    /// Forgets what these commands rested on: a namespace may be gone, or have a quota by now.
    pub(in crate::store::postgres) fn were_wrong(&self, commands: &[Arc<Command>]) {
        let mut named = commands.iter().filter_map(|command| wanted(command)).peekable();
        if named.peek().is_some() {
            let mut known = self.0.lock();
            for namespace in named {
                known.remove(namespace);
            }
        }
    }

    pub(in crate::store::postgres) fn forget(&self) {
        self.0.lock().clear();
    }

    /// The rows that these commands may rest on; none where one is not remembered.
    pub(in crate::store::postgres) fn of(&self, commands: &[Arc<Command>]) -> Option<Sides> {
        let mut named = commands.iter().filter_map(|command| wanted(command)).peekable();
        // Most ledgers have `default` alone, and take no lock here.
        if named.peek().is_none() {
            return Some(Sides::default());
        }
        let named: HashSet<&Namespace> = named.collect();
        let known = self.0.lock();
        let row = |name: &Namespace| known.contains(name).then(|| NamespaceRow::without_quotas(name.clone()));
        let namespaces = named.into_iter().map(row).collect::<Option<_>>()?;
        Some(Sides { namespaces, ..Sides::default() })
    }
}

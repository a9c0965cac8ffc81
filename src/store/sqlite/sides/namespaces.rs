//! The namespaces of runs that are created, as a commit reads them.

use super::side::{Loading, Side};
use crate::domain::Sides;
use crate::store::StoreError;
use crate::store::rows::namespaces;
use crate::store::sqlite::rows::first;

/// A namespace, and its active runs, counted up to the quota.
const LOAD: &str = "-- commit.load_namespace
select n.name, n.max_active_runs,
       case when n.max_active_runs is not null then (
           select count(*) from (
               select 1 from active as a
                where a.namespace = n.name
                limit (select max_active_runs from namespaces where name = ?1))) end,
       n.max_stored_bytes,
       case when n.max_stored_bytes is not null then (
           select coalesce(sum(b.bytes), 0) from stored_bytes as b where b.namespace = n.name) end
  from namespaces as n where n.name = ?1";

pub(super) const SIDE: Side = Side { load: Some(load), write: None };

fn load(Loading { transaction, wanted, .. }: &Loading<'_>, sides: &mut Sides) -> Result<(), StoreError> {
    for name in &wanted.namespaces {
        sides.namespaces.extend(first(transaction, LOAD, [name.as_str()], |row| namespaces::side(row))?);
    }
    Ok(())
}

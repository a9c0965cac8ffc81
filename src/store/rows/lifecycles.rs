//! Rows of `lifecycles`, and the statements on them that both databases take.

use super::{Columns, Reader};
use crate::domain::lifecycle::{Lifecycle, LifecycleId, LifecyclePin};
use crate::domain::{Declared, LifecycleRecord, Namespace, Principal};
use crate::store::StoreError;

/// A version, or the newest one where `$3` is 0.
pub(in crate::store) const NAMED: &str = "-- lifecycles.named
select namespace, name, version, at, principal, source from lifecycles
where namespace = $1 and name = $2 and version = case when $3 > 0 then $3 else (
    select max(m.version) from lifecycles as m where m.namespace = $1 and m.name = $2) end";

/// What a version declares, or the newest one where `$3` is 0.
pub(in crate::store) const DECLARED: &str = "-- lifecycles.declared
select name, version, digest, declaration from lifecycles
where namespace = $1 and name = $2 and version = case when $3 > 0 then $3 else (
    select max(m.version) from lifecycles as m where m.namespace = $1 and m.name = $2) end";

/// The newest version of each name. Names are found by their first versions, of which there is an index.
pub(in crate::store) const LIST: &str = "-- lifecycles.list
select l.namespace, l.name, l.version, l.at, l.principal, '' as source
from (select name from lifecycles where namespace = $1 and version = 1 and name > $2 order by name limit $3) as n
join lifecycles as l on l.namespace = $1 and l.name = n.name
    and l.version = (select max(m.version) from lifecycles as m where m.namespace = $1 and m.name = n.name)
order by l.name";

/// The versions of a name.
pub(in crate::store) const VERSIONS: &str = "-- lifecycles.versions
select namespace, name, version, at, principal, '' as source from lifecycles
where namespace = $1 and name = $2 and version < $3
order by version desc limit $4";

/// A version as it was put.
pub(in crate::store) fn record<R: Columns>(row: &R) -> Result<LifecycleRecord, StoreError> {
    let row = Reader { table: "lifecycles", row, key: &|| "a lifecycle".to_owned() };
    let namespace: Namespace = row.get((0, "namespace"))?;
    let id = LifecycleId { name: row.get((1, "name"))?, version: row.get((2, "version"))? };
    let row = Reader { key: &|| format!("{namespace}/{id}"), ..row };
    let by: Principal =
        serde_json::from_str(row.get((4, "principal"))?).map_err(|error| row.corrupt("principal", error))?;
    Ok(LifecycleRecord {
        source: row.get((5, "source"))?,
        at: row.get((3, "at"))?,
        by,
        namespace: namespace.clone(),
        id: id.clone(),
    })
}

/// What a version declares, from the columns of [`DECLARED`].
pub(in crate::store) fn declared<R: Columns>(row: &R) -> Result<Declared, StoreError> {
    let place = Reader { table: "lifecycles", row, key: &|| "a lifecycle".to_owned() };
    let id = LifecycleId { name: place.get((0, "name"))?, version: place.get((1, "version"))? };
    let row = Reader { key: &|| id.to_string(), ..place };
    let text: &str = row.get((3, "declaration"))?;
    let pin = LifecyclePin::new(id.clone(), text);
    if digest_column(&pin) != row.get::<i64>((2, "digest"))? {
        return Err(row.corrupt("digest", "not that of the declaration"));
    }
    let lifecycle: Lifecycle = serde_json::from_str(text).map_err(|error| row.corrupt("declaration", error))?;
    Ok(Declared::pinned(pin, lifecycle))
}

/// A digest as its column has it.
pub(in crate::store) fn digest_column(pin: &LifecyclePin) -> i64 {
    pin.digest.cast_signed()
}

//! Rows of `namespaces`, and the statements on them that both databases take.

use super::{Columns, Reader};
use crate::domain::{Namespace, NamespaceRecord, NamespaceRow, NamespaceSettings, Quotas, Used};
use crate::store::StoreError;

/// The columns of a namespace.
macro_rules! namespace_columns {
    () => {
        "name, description, max_active_runs, revision, created_at, updated_at"
    };
}
pub(in crate::store) use namespace_columns;

/// A page of namespaces by name.
pub(in crate::store) const LIST: &str = concat!(
    "-- namespaces.list\nselect ",
    namespace_columns!(),
    " from namespaces where name > $1 order by name limit $2"
);

/// A namespace, from [`namespace_columns`].
pub(in crate::store) fn record<R: Columns>(row: &R) -> Result<NamespaceRecord, StoreError> {
    let name: Namespace =
        Reader { table: "namespaces", row, key: &|| "a row without its name".to_owned() }.get((0, "name"))?;
    let row = Reader { table: "namespaces", row, key: &|| format!("{name}") };
    Ok(NamespaceRecord {
        settings: NamespaceSettings {
            description: row.get((1, "description"))?,
            quotas: Quotas { max_active_runs: row.get((2, "max_active_runs"))? },
        },
        revision: row.get((3, "revision"))?,
        created_at: row.get((4, "created_at"))?,
        updated_at: row.get((5, "updated_at"))?,
        name: name.clone(),
    })
}

/// A namespace as the creation of a run is decided on it, from `name`, `max_active_runs` and `active_runs`.
pub(in crate::store) fn side<R: Columns>(row: &R) -> Result<NamespaceRow, StoreError> {
    let row = Reader { table: "namespaces", row, key: &|| "a namespace of a new run".to_owned() };
    let max: Option<u64> = row.get((1, "max_active_runs"))?;
    let used: Option<u64> = row.get((2, "active_runs"))?;
    let active_runs = max.map(|max| Used { max, used: used.unwrap_or(0) });
    Ok(NamespaceRow { name: row.get((0, "name"))?, active_runs })
}

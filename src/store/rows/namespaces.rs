//! Rows of `namespaces`, and the statements on them that both databases take.

use std::time::Duration;

use super::{Columns, Reader};
use crate::domain::{Namespace, NamespaceRecord, NamespaceRow, NamespaceSettings, Quotas, Retention, Time, Used};
use crate::store::StoreError;
use crate::store::retention::Retained;

/// The columns of a namespace.
macro_rules! namespace_columns {
    () => {
        "name, description, max_active_runs, max_stored_bytes, revision, created_at, updated_at,
       case when max_stored_bytes is not null then (
           select cast(coalesce(sum(b.bytes), 0) as bigint) from stored_bytes as b
            where b.namespace = namespaces.name) end as stored_bytes,
       keep_completed_ms, keep_aborted_ms, keep_failed_ms, keep_until_exported"
    };
}
pub(in crate::store) use namespace_columns;

/// A page of namespaces by name, of those whose names begin so. Names are of characters before `~`.
pub(in crate::store) const LIST: &str = concat!(
    "-- namespaces.list\nselect ",
    namespace_columns!(),
    " from namespaces where name >= $1 and name < $1 || '~' and name > $2 order by name limit $3"
);

/// A namespace, from [`namespace_columns`].
pub(in crate::store) fn record<R: Columns>(row: &R) -> Result<NamespaceRecord, StoreError> {
    let name: Namespace =
        Reader { table: "namespaces", row, key: &|| "a row without its name".to_owned() }.get((0, "name"))?;
    let row = Reader { table: "namespaces", row, key: &|| format!("{name}") };
    Ok(NamespaceRecord {
        settings: NamespaceSettings {
            description: row.get((1, "description"))?,
            quotas: Quotas {
                max_active_runs: row.get((2, "max_active_runs"))?,
                max_stored_bytes: row.get((3, "max_stored_bytes"))?,
            },
            retention: Retention {
                completed_ms: row.get((8, "keep_completed_ms"))?,
                aborted_ms: row.get((9, "keep_aborted_ms"))?,
                failed_ms: row.get((10, "keep_failed_ms"))?,
                until_exported: row.get((11, "keep_until_exported"))?,
            },
        },
        revision: row.get((4, "revision"))?,
        created_at: row.get((5, "created_at"))?,
        updated_at: row.get((6, "updated_at"))?,
        stored_bytes: row.get((7, "stored_bytes"))?,
        name: name.clone(),
    })
}

/// A namespace as the creation of a run is decided on it, from `name`, and each quota with its use.
pub(in crate::store) fn side<R: Columns>(row: &R) -> Result<NamespaceRow, StoreError> {
    let row = Reader { table: "namespaces", row, key: &|| "a namespace of a new run".to_owned() };
    let of = |max: Option<u64>, used: Option<u64>| max.map(|max| Used { max, used: used.unwrap_or(0) });
    Ok(NamespaceRow {
        name: row.get((0, "name"))?,
        active_runs: of(row.get((1, "max_active_runs"))?, row.get((2, "active_runs"))?),
        stored_bytes: of(row.get((3, "max_stored_bytes"))?, row.get((4, "stored_bytes"))?),
    })
}

/// The namespaces that do not keep all runs for ever.
macro_rules! retentions {
    ($now:literal) => {
        concat!(
            "-- retention.retentions
select name, keep_completed_ms, keep_aborted_ms, keep_failed_ms, keep_until_exported, revision, updated_at, ",
            $now,
            " as now from namespaces
where keep_completed_ms is not null or keep_aborted_ms is not null or keep_failed_ms is not null
order by name"
        )
    };
}
pub(in crate::store) use retentions;

/// A namespace and its retention, from [`retentions`].
pub(in crate::store) fn retained<R: Columns>(row: &R) -> Result<Retained, StoreError> {
    let row = Reader { table: "namespaces", row, key: &|| "a namespace's retention".to_owned() };
    let retention = Retention {
        completed_ms: row.get((1, "keep_completed_ms"))?,
        aborted_ms: row.get((2, "keep_aborted_ms"))?,
        failed_ms: row.get((3, "keep_failed_ms"))?,
        until_exported: row.get((4, "keep_until_exported"))?,
    };
    let (changed, now): (Time, Time) = (row.get((6, "updated_at"))?, row.get((7, "now"))?);
    let micros = u64::try_from(now.micros().saturating_sub(changed.micros())).unwrap_or(0);
    Ok(Retained {
        namespace: row.get((0, "name"))?,
        retention,
        revision: row.get((5, "revision"))?,
        unchanged_for: Duration::from_micros(micros),
    })
}

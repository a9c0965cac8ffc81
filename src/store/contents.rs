//! What stands beside a run, as it is read: by the revision that wrote it, so that the rows fit a run that was read before.

use super::StoreError;
use super::rows::{Columns, Reader, key};
use super::scalars::shown;
use crate::domain::{ContentRow, ContentTable, Link, Metadata, Revision, Run};

/// The rows that are asked for of one run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Beside {
    /// Whether the input is.
    pub input: bool,
    /// The revisions of the results: the run's own, and that of a late report.
    pub results: [Option<Revision>; 2],
    /// The number of links, from the first.
    pub links: u32,
}

impl Beside {
    /// Everything that a run says it has.
    #[must_use]
    pub fn of(run: &Run) -> Self {
        let refinements = run.refinements.as_deref();
        let late = run.supervision.late_report.as_ref().and_then(|report| report.result);
        Self {
            input: refinements.is_some_and(|refinements| refinements.attachments.input.is_some()),
            results: [refinements.and_then(|refinements| refinements.attachments.result), late]
                .map(|result| Some(result?.revision)),
            links: run.all_links(),
        }
    }

    /// The links of a run alone.
    #[must_use]
    pub fn links_of(run: &Run) -> Self {
        Self { links: run.all_links(), ..Self::default() }
    }

    /// Whether nothing is asked for.
    #[must_use]
    pub fn is_nothing(&self) -> bool {
        *self == Self::default()
    }
}

/// `$1` shard, `$2` and `$3` the key, `$4` 1 for the input, `$5` and `$6` the revisions of results or 0, `$7` the number of
/// links.
pub(super) const BESIDE: &str = "-- read.beside
select namespace, run_id, 1 as place, revision, 0 as number, content from run_input
 where shard = $1 and namespace = $2 and run_id = $3 and revision <= $4
union all
select namespace, run_id, 2, revision, 0, content from run_results
 where shard = $1 and namespace = $2 and run_id = $3 and revision in ($5, $6)
union all
select namespace, run_id, 3, revision, number, content from run_links
 where shard = $1 and namespace = $2 and run_id = $3 and number <= $7
order by place, revision, number";

/// A row of [`BESIDE`].
pub(super) fn row<R: Columns>(row: &R) -> Result<ContentRow, StoreError> {
    let key = key(row, "run_links", 0)?;
    let content = Reader { table: "run_links", row, key: &|| shown(&key) };
    let place: i16 = content.get((2, "place"))?;
    let table = ContentTable::ALL.into_iter().find(|table| table.code() == place);
    Ok(ContentRow {
        table: table.ok_or_else(|| content.corrupt("place", format!("no table has the number {place}")))?,
        revision: content.get((3, "revision"))?,
        number: content.get((4, "number"))?,
        link_key: None,
        content: content.get((5, "content"))?,
        key,
    })
}

/// The link of a row.
///
/// # Errors
///
/// [`StoreError::Corrupt`].
pub fn link(row: &ContentRow) -> Result<Link, StoreError> {
    serde_json::from_str(&row.content).map_err(|error| StoreError::Corrupt {
        table: row.table.name(),
        column: "content",
        key: shown(&row.key),
        source: error.into(),
    })
}

/// The content of a row.
///
/// # Errors
///
/// [`StoreError::Corrupt`].
pub fn object(row: &ContentRow) -> Result<Metadata, StoreError> {
    serde_json::from_str(&row.content).map_err(|error| StoreError::Corrupt {
        table: row.table.name(),
        column: "content",
        key: shown(&row.key),
        source: error.into(),
    })
}

/// The rows of a table in the order of their runs, revisions and numbers. `$1` shard, `$2` to `$4` the run and the place
/// of the row before the first, `$5` and `$6` the last run, `$7` how many.
pub(super) fn page_of(table: ContentTable, columns: &str) -> String {
    let (name, place) = (table.name(), place_of(table));
    let number = if table == ContentTable::Link { "number" } else { "0" };
    format!(
        "select namespace, run_id, revision, {number} as number, content{columns}
  from {name}
 where shard = $1 and (namespace, run_id, {place}) > ($2, $3, cast($4 as bigint)) and (namespace, run_id) <= ($5, $6)
 order by namespace, run_id, {place} limit $7"
    )
}

/// The column that tells the rows of one run apart.
pub(super) fn place_of(table: ContentTable) -> &'static str {
    match table {
        ContentTable::Input | ContentTable::Result => "revision",
        ContentTable::Link => "number",
    }
}

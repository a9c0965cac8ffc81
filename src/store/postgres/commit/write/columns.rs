//! Rows, column by column: as arrays, or as values where there is one row.

use tokio_postgres::types::{Json, ToSql};

use super::parts::Argument;
use super::runs::runs;
use crate::domain::{RunKey, RunWrite};
use crate::store::json::Record;
use crate::store::postgres::rows::bigint;

/// Rows, column by column.
pub(super) struct Columns<'a> {
    pub(super) rows: usize,
    pub(super) columns: Vec<Column<'a>>,
}

pub(super) struct Column<'a> {
    pub(super) name: &'static str,
    pub(super) sql_type: &'static str,
    pub(super) values: Argument<'a>,
}

impl<'a> Columns<'a> {
    pub(super) fn of(rows: usize) -> Self {
        Self { rows, columns: Vec::new() }
    }

    /// Rows that have the keys of runs.
    pub(super) fn of_keys(keys: impl ExactSizeIterator<Item = &'a RunKey> + Clone) -> Self {
        let mut columns = Self::of(keys.len());
        columns.add("namespace", "text", keys.clone().map(|key| key.namespace.as_str()));
        columns.add("run_id", "text", keys.map(|key| key.run_id.as_str()));
        columns
    }

    pub(super) fn add<T>(&mut self, name: &'static str, sql_type: &'static str, mut values: impl Iterator<Item = T>)
    where
        T: ToSql + Send + Sync + 'a,
    {
        let values: Argument<'a> = match self.rows {
            1 => Box::new(values.next().expect("one row")),
            _ => Box::new(values.collect::<Vec<T>>()),
        };
        self.columns.push(Column { name, sql_type, values });
    }

    /// The columns that every part that writes runs needs.
    pub(super) fn of_runs(writes: &[&'a RunWrite]) -> Self {
        let mut columns = Self::of(writes.len());
        columns.add("namespace", "text", runs(writes).map(|run| run.namespace.as_str()));
        columns.add("run_id", "text", runs(writes).map(|run| run.run_id.as_str()));
        columns.add("revision", "bigint", runs(writes).map(|run| bigint(run.revision)));
        columns.add("status", "smallint", runs(writes).map(|run| run.status.code()));
        columns
    }

    /// The columns that an insert sets, and an update where owner, links, route or labels change.
    pub(super) fn changeable(&mut self, writes: &[&'a RunWrite]) {
        self.add("agent_id", "text", runs(writes).map(|run| run.agent_id.as_deref()));
        self.add("workflow_id", "text", runs(writes).map(|run| run.links.workflow_id.as_deref()));
        self.add("audit_session_id", "text", runs(writes).map(|run| run.links.audit_session_id.as_deref()));
        self.add("route", "text", runs(writes).map(|run| run.links.route.map(crate::domain::Route::name)));
        self.add("labels", "jsonb", runs(writes).map(|run| (!run.labels.is_empty()).then_some(Json(&run.labels))));
        self.add("record", "jsonb", runs(writes).map(|run| Json(Record::of(run))));
    }
}

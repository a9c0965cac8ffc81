//! The rows that more than one concern reads, turned into domain values once. A row that cannot be read is an error
//! that names table, column and key.

use rusqlite::types::FromSql;
use rusqlite::{Connection, Row};
use uuid::Uuid;

use super::errors;
use crate::domain::{Position, Run, RunKey, Shard, Time};
pub(super) use crate::store::columns::{after_all, bigint, shown};
use crate::store::json::{self, EventColumns, RunColumns};
use crate::store::{Ledger, StoreError};

/// One cell of a table: what an error names.
#[derive(Clone, Copy)]
pub(super) struct Cell<'a> {
    /// The table.
    pub(super) table: &'static str,
    /// The row's key, as far as it is known.
    pub(super) key: &'a dyn Fn() -> String,
}

impl Cell<'_> {
    /// Reads a column by its place in the select list.
    pub(super) fn get<T: FromSql>(self, row: &Row<'_>, index: usize, column: &'static str) -> Result<T, StoreError> {
        row.get(index).map_err(|error| self.corrupt(column, error))
    }

    /// Reads a column that is never negative.
    pub(super) fn count(self, row: &Row<'_>, index: usize, column: &'static str) -> Result<u64, StoreError> {
        let number: i64 = self.get(row, index, column)?;
        u64::try_from(number).map_err(|error| self.corrupt(column, error))
    }

    /// The error of a column that cannot be read.
    pub(super) fn corrupt(self, column: &'static str, source: impl Into<crate::store::error::Source>) -> StoreError {
        StoreError::Corrupt { table: self.table, column, key: (self.key)(), source: source.into() }
    }
}

/// What a select list must begin with for [`run_columns_of`], of the table `runs` as `r`.
macro_rules! run_columns {
    () => {
        "r.namespace, r.run_id, r.revision, r.status, r.started_at, r.task_thread_id, r.agent_id, r.workflow_id,
       r.audit_session_id, r.route, r.labels, r.record, r.metadata"
    };
}
pub(super) use run_columns;

/// The columns of a run, from a row of [`run_columns`].
pub(super) fn run_columns_of(row: &Row<'_>) -> Result<RunColumns<String>, StoreError> {
    let cell = Cell { table: "runs", key: &|| "a row without a key".to_owned() };
    let key = RunKey { namespace: cell.get(row, 0, "namespace")?, run_id: cell.get(row, 1, "run_id")? };
    let cell = Cell { table: "runs", key: &|| shown(&key) };
    Ok(RunColumns {
        revision: cell.get(row, 2, "revision")?,
        status: cell.get(row, 3, "status")?,
        started_at: Time::from_micros(cell.get(row, 4, "started_at")?),
        task_thread_id: cell.get(row, 5, "task_thread_id")?,
        agent_id: cell.get(row, 6, "agent_id")?,
        workflow_id: cell.get(row, 7, "workflow_id")?,
        audit_session_id: cell.get(row, 8, "audit_session_id")?,
        route: cell.get(row, 9, "route")?,
        labels: cell.get(row, 10, "labels")?,
        record: cell.get(row, 11, "record")?,
        metadata: cell.get(row, 12, "metadata")?,
        key,
    })
}

/// The run as it is stored.
pub(super) fn run(connection: &Connection, shard: Shard, key: &RunKey) -> Result<Option<Run>, StoreError> {
    let statement = concat!(
        "-- rows.run
         select ",
        run_columns!(),
        " from runs as r where r.shard = ?1 and r.namespace = ?2 and r.run_id = ?3"
    );
    let mut statement = connection.prepare_cached(statement).map_err(errors::statement)?;
    let mut rows = statement.query((shard.0, &key.namespace, &key.run_id)).map_err(errors::statement)?;
    let Some(row) = rows.next().map_err(errors::statement)? else { return Ok(None) };
    json::read_run(run_columns_of(row)?).map(Some)
}

/// What a select list must be for [`event`].
macro_rules! event_columns {
    () => {
        "position, namespace, run_id, revision, at, event, request_id"
    };
}
pub(super) use event_columns;

/// An event's place and columns, from a row of [`event_columns`].
pub(super) fn event(row: &Row<'_>, shard: Shard) -> Result<(Position, EventColumns), StoreError> {
    let cell = Cell { table: "run_events", key: &|| format!("shard {}", shard.0) };
    let position = cell.count(row, 0, "position")?;
    let cell = Cell { table: "run_events", key: &|| format!("shard {} position {position}", shard.0) };
    let columns = EventColumns {
        key: RunKey { namespace: cell.get(row, 1, "namespace")?, run_id: cell.get(row, 2, "run_id")? },
        revision: cell.count(row, 3, "revision")?,
        at: Time::from_micros(cell.get(row, 4, "at")?),
        event: cell.get(row, 5, "event")?,
        request_id: cell.get(row, 6, "request_id")?,
    };
    Ok((position, columns))
}

/// The ledger's identity.
pub(super) fn ledger(connection: &Connection) -> Result<Ledger, StoreError> {
    let mut statement =
        connection.prepare("-- rows.ledger\nselect id, epoch, shard_count from ledger").map_err(errors::statement)?;
    let mut rows = statement.query([]).map_err(errors::statement)?;
    let cell = Cell { table: "ledger", key: &|| "the database".to_owned() };
    let Some(row) = rows.next().map_err(errors::statement)? else {
        return Err(cell.corrupt("id", "the row is missing"));
    };
    let id: String = cell.get(row, 0, "id")?;
    Ok(Ledger {
        id: Uuid::parse_str(&id).map_err(|error| cell.corrupt("id", error))?,
        epoch: cell.count(row, 1, "epoch")?,
        shard_count: cell.get(row, 2, "shard_count")?,
    })
}

//! Rows of `runs`.

use super::{Columns, Reader, key};
use crate::domain::Run;
use crate::store::StoreError;
use crate::store::json::{self, RunColumns};
use crate::store::scalars::shown;

/// The number of these columns: others that are selected with them come after.
pub(in crate::store) const COLUMNS: usize = 15;

/// The columns of a run, from a row of [`run_columns`](crate::store::dialect::run_columns).
pub(in crate::store) fn columns<R: Columns>(row: &R) -> Result<RunColumns<&str>, StoreError> {
    let key = key(row, "runs", 0)?;
    let run = Reader { table: "runs", row, key: &|| shown(&key) };
    Ok(RunColumns {
        revision: run.get((2, "revision"))?,
        status: run.get((3, "status"))?,
        started_at: run.get((4, "started_at"))?,
        task_thread_id: run.get::<Option<_>>((5, "task_thread_id"))?.unwrap_or_default(),
        agent_id: run.get((6, "agent_id"))?,
        workflow_id: run.get((7, "workflow_id"))?,
        audit_session_id: run.get((8, "audit_session_id"))?,
        route: run.get((9, "route"))?,
        labels: run.get((10, "labels"))?,
        record: run.get((11, "record"))?,
        metadata: run.get((12, "metadata"))?,
        archived_at: run.get((13, "archived_at"))?,
        purged_at: run.get((14, "purged_at"))?,
        key,
    })
}

/// A run, from such a row.
pub(in crate::store) fn run<R: Columns>(row: &R) -> Result<Run, StoreError> {
    json::read_run(columns(row)?)
}

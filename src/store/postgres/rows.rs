//! Between the columns and the domain's values.

use bytes::BytesMut;
use tokio_postgres::Row;
use tokio_postgres::types::{FromSql, IsNull, ToSql, Type, to_sql_checked};

use crate::domain::{Run, RunKey, Shard, Time};
use crate::store::StoreError;
pub(super) use crate::store::columns::{after_all, bigint, shown};
use crate::store::json::{self, RunColumns};

/// 2000-01-01, from where Postgres counts, in microseconds since 1970-01-01.
const EPOCH_MICROS: i64 = 946_684_800_000_000;

/// A time as `timestamptz`.
#[derive(Clone, Copy, Debug)]
pub(super) struct At(pub(super) Time);

impl ToSql for At {
    fn to_sql(&self, _: &Type, out: &mut BytesMut) -> Result<IsNull, Box<dyn std::error::Error + Sync + Send>> {
        out.extend_from_slice(&(self.0.micros() - EPOCH_MICROS).to_be_bytes());
        Ok(IsNull::No)
    }

    fn accepts(ty: &Type) -> bool {
        *ty == Type::TIMESTAMPTZ
    }

    to_sql_checked!();
}

impl<'a> FromSql<'a> for At {
    fn from_sql(_: &Type, raw: &'a [u8]) -> Result<Self, Box<dyn std::error::Error + Sync + Send>> {
        let micros = i64::from_be_bytes(raw.try_into()?);
        Ok(Self(Time::from_micros(micros.saturating_add(EPOCH_MICROS))))
    }

    fn accepts(ty: &Type) -> bool {
        *ty == Type::TIMESTAMPTZ
    }
}

/// A shard as `smallint`.
pub(super) fn smallint(shard: Shard) -> i16 {
    i16::try_from(shard.0).expect("a ledger has at most 1024 shards")
}

/// One table's rows, so that a bad one is named.
#[derive(Clone, Copy)]
pub(super) struct Reader<'a> {
    pub(super) table: &'static str,
    pub(super) row: &'a Row,
}

impl<'a> Reader<'a> {
    /// A column; `key` says which row it was when it cannot be read.
    pub(super) fn get<T: FromSql<'a>>(
        self,
        column: &'static str,
        key: impl FnOnce() -> String,
    ) -> Result<T, StoreError> {
        self.row.try_get(column).map_err(|error| self.corrupt(column, key(), error.into()))
    }

    /// A column that never is negative.
    pub(super) fn unsigned(self, column: &'static str, key: impl Fn() -> String) -> Result<u64, StoreError> {
        let number: i64 = self.get(column, &key)?;
        u64::try_from(number).map_err(|error| self.corrupt(column, key(), error.into()))
    }

    /// `namespace` and `run_id`.
    pub(super) fn key(self) -> Result<RunKey, StoreError> {
        let unknown = || "a row without a key".to_owned();
        Ok(RunKey { namespace: self.get("namespace", unknown)?, run_id: self.get("run_id", unknown)? })
    }

    pub(super) fn corrupt(self, column: &'static str, key: String, source: crate::store::error::Source) -> StoreError {
        StoreError::Corrupt { table: self.table, column, key, source }
    }
}

/// What a select list must have for [`run`], of the table `runs` as `r`.
macro_rules! run_columns {
    () => {
        "r.namespace, r.run_id, r.revision, r.status, r.started_at, r.task_thread_id, r.agent_id, r.workflow_id,
       r.audit_session_id, r.route, r.labels::text as labels, r.record::text as record, r.metadata::text as metadata"
    };
}
pub(super) use run_columns;

/// About how many bytes a row of `runs` is, as it is stored: for bounds on pages.
macro_rules! run_size {
    () => {
        "pg_column_size(record) + coalesce(pg_column_size(metadata), 0) + coalesce(pg_column_size(labels), 0)
              + octet_length(run_id) + octet_length(task_thread_id) + coalesce(octet_length(agent_id), 0)
              + coalesce(octet_length(workflow_id), 0) + coalesce(octet_length(audit_session_id), 0)"
    };
}
pub(super) use run_size;

/// How many bytes of text are in a row of [`run_columns`].
pub(super) fn run_bytes(row: &Row) -> usize {
    let texts = ["namespace", "run_id", "task_thread_id", "agent_id", "workflow_id", "audit_session_id"];
    let columns = texts.into_iter().chain(["labels", "record", "metadata"]);
    let length = |column| row.try_get::<_, Option<&str>>(column).ok().flatten().map_or(0, str::len);
    columns.map(length).sum()
}

/// The columns of a run, from a row of [`run_columns`].
pub(super) fn run_columns_of(row: &Row) -> Result<RunColumns<&str>, StoreError> {
    let run = Reader { table: "runs", row };
    let key = run.key()?;
    let shown = || shown(&key);
    let At(started_at) = run.get("started_at", shown)?;
    Ok(RunColumns {
        revision: run.get("revision", shown)?,
        status: run.get("status", shown)?,
        started_at,
        task_thread_id: run.get("task_thread_id", shown)?,
        agent_id: run.get("agent_id", shown)?,
        workflow_id: run.get("workflow_id", shown)?,
        audit_session_id: run.get("audit_session_id", shown)?,
        route: run.get("route", shown)?,
        labels: run.get("labels", shown)?,
        record: run.get("record", shown)?,
        metadata: run.get("metadata", shown)?,
        key,
    })
}

/// A run, from a row of [`run_columns`].
pub(super) fn run(row: &Row) -> Result<Run, StoreError> {
    json::read_run(run_columns_of(row)?)
}

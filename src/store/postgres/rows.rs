//! Rows as Postgres has them, and values as it takes them.

use bytes::BytesMut;
use tokio_postgres::Row;
use tokio_postgres::types::{FromSql, IsNull, ToSql, Type, accepts, to_sql_checked};

use crate::domain::{Shard, Time};
use crate::store::error::Source;
pub(super) use crate::store::rows::Reader;
use crate::store::rows::{Column, Columns};
pub(super) use crate::store::scalars::{bigint, shown};

/// 2000-01-01, from where Postgres counts, in microseconds since 1970-01-01.
const EPOCH_MICROS: i64 = 946_684_800_000_000;

/// A time as `timestamptz`.
#[derive(Clone, Copy, Debug)]
pub(super) struct At(pub(super) Time);

impl ToSql for At {
    fn to_sql(&self, _: &Type, out: &mut BytesMut) -> Result<IsNull, Source> {
        out.extend_from_slice(&(self.0.micros() - EPOCH_MICROS).to_be_bytes());
        Ok(IsNull::No)
    }

    accepts!(TIMESTAMPTZ);
    to_sql_checked!();
}

impl FromSql<'_> for At {
    fn from_sql(_: &Type, raw: &[u8]) -> Result<Self, Source> {
        let micros = i64::from_be_bytes(raw.try_into()?);
        Ok(Self(Time::from_micros(micros.saturating_add(EPOCH_MICROS))))
    }

    accepts!(TIMESTAMPTZ);
}

/// A whole number of any size.
struct Number(i64);

impl FromSql<'_> for Number {
    fn from_sql(sql_type: &Type, raw: &[u8]) -> Result<Self, Source> {
        Ok(Self(match *sql_type {
            Type::INT2 => i16::from_sql(sql_type, raw)?.into(),
            Type::INT4 => i32::from_sql(sql_type, raw)?.into(),
            _ => i64::from_sql(sql_type, raw)?,
        }))
    }

    accepts!(INT2, INT4, INT8);
}

impl Columns for Row {
    fn number(&self, column: Column) -> Result<Option<i64>, Source> {
        Ok(self.try_get::<_, Option<Number>>(column.name)?.map(|Number(number)| number))
    }

    fn flag(&self, column: Column) -> Result<Option<bool>, Source> {
        Ok(self.try_get(column.name)?)
    }

    fn time(&self, column: Column) -> Result<Option<Time>, Source> {
        Ok(self.try_get::<_, Option<At>>(column.name)?.map(|At(at)| at))
    }

    fn text(&self, column: Column) -> Result<Option<&str>, Source> {
        Ok(self.try_get(column.name)?)
    }

    fn bytes(&self, column: Column) -> Result<Option<&[u8]>, Source> {
        Ok(self.try_get(column.name)?)
    }
}

/// A shard as `smallint`.
pub(super) fn smallint(shard: Shard) -> i16 {
    i16::try_from(shard.0).expect("a ledger has at most 1024 shards")
}

/// The stored size of a row of `runs`, about: for bounds on pages.
macro_rules! run_size {
    () => {
        "pg_column_size(record) + coalesce(pg_column_size(metadata), 0) + coalesce(pg_column_size(labels), 0)
              + octet_length(run_id) + coalesce(octet_length(task_thread_id), 0) + coalesce(octet_length(agent_id), 0)
              + coalesce(octet_length(workflow_id), 0) + coalesce(octet_length(audit_session_id), 0)"
    };
}
pub(super) use run_size;

//! Between the columns and the domain's values.

use bytes::BytesMut;
use tokio_postgres::Row;
use tokio_postgres::types::{FromSql, IsNull, ToSql, Type, to_sql_checked};

use crate::domain::{RunKey, Shard, Time};
use crate::store::StoreError;
pub(super) use crate::store::columns::{after_all, bigint, shown};

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

//! Rows of both databases, read once and turned into the domain's values. A value that cannot be read is an error that
//! names table, column and key.
//!
//! A driver defines how a column is read, by implementing [`Columns`]; everything else is the same for both. The
//! readers of the tables are beside this: [`runs`], [`events`], [`sides`], and
//! [`inspect::rows`](super::inspect::rows) for rows as they stand.

pub(super) mod events;
pub(super) mod lifecycles;
pub(super) mod namespaces;
pub(super) mod runs;
pub(super) mod sides;

use std::convert::Infallible;

use super::error::Source;
use super::{StoreError, scalars};
use crate::domain::ids::DEFAULT_NAMESPACE;
use crate::domain::{LeaseEpoch, LedgerEpoch, Namespace, Revision, RunId, RunKey, Status, Time};

/// A column of a row.
#[derive(Clone, Copy, Debug)]
pub(super) struct Column {
    pub(super) name: &'static str,
    /// The place where SQLite finds the column in the select list: to find it by its name, SQLite is asked for every
    /// name before it. Postgres uses the name: its select lists have more columns, in other places.
    pub(super) place: Option<usize>,
}

impl From<&'static str> for Column {
    fn from(name: &'static str) -> Self {
        Self { name, place: None }
    }
}

impl From<(usize, &'static str)> for Column {
    fn from((place, name): (usize, &'static str)) -> Self {
        Self { name, place: Some(place) }
    }
}

/// A row of a result, as its driver has it. None is a null.
pub(super) trait Columns {
    fn number(&self, column: Column) -> Result<Option<i64>, Source>;
    fn flag(&self, column: Column) -> Result<Option<bool>, Source>;
    fn time(&self, column: Column) -> Result<Option<Time>, Source>;
    fn text(&self, column: Column) -> Result<Option<&str>, Source>;
    fn bytes(&self, column: Column) -> Result<Option<&[u8]>, Source>;
}

/// A value that stands in a column.
pub(super) trait Value<'a>: Sized {
    fn of<R: Columns>(row: &'a R, column: Column) -> Result<Option<Self>, Source>;
}

/// A table's row.
pub(super) struct Reader<'a, 'k, R> {
    pub(super) table: &'static str,
    pub(super) row: &'a R,
    /// The row's key, as far as it is known: for errors.
    pub(super) key: &'k dyn Fn() -> String,
}

impl<'a, R: Columns> Reader<'a, '_, R> {
    /// The value of a column; none for a null, where that is a value.
    pub(super) fn get<T: Value<'a>>(&self, column: impl Into<Column>) -> Result<T, StoreError> {
        let column = column.into();
        let value = T::of(self.row, column).map_err(|error| self.corrupt(column.name, error))?;
        value.ok_or_else(|| self.corrupt(column.name, "there is no value"))
    }

    /// The error of a column that cannot be read.
    pub(super) fn corrupt(&self, column: &'static str, source: impl Into<Source>) -> StoreError {
        StoreError::Corrupt { table: self.table, column, key: (self.key)(), source: source.into() }
    }
}

/// The key in `namespace` and `run_id`; on SQLite from this place on.
pub(super) fn key<R: Columns>(row: &R, table: &'static str, place: usize) -> Result<RunKey, StoreError> {
    let row = Reader { table, row, key: &|| "a row without a key".to_owned() };
    Ok(RunKey { namespace: row.get((place, "namespace"))?, run_id: row.get((place + 1, "run_id"))? })
}

/// Reads a value from a column of some kind.
macro_rules! value {
    ($value:ty, $column:ident) => {
        impl<'a> Value<'a> for $value {
            fn of<R: Columns>(row: &'a R, column: Column) -> Result<Option<Self>, Source> {
                row.$column(column)
            }
        }
    };
    ($value:ty, $column:ident, $make:expr) => {
        impl Value<'_> for $value {
            fn of<R: Columns>(row: &R, column: Column) -> Result<Option<Self>, Source> {
                Ok(row.$column(column)?.map($make).transpose()?)
            }
        }
    };
}

value!(i64, number);
value!(i16, number, Self::try_from);
value!(i32, number, Self::try_from);
value!(u16, number, Self::try_from);
value!(u32, number, Self::try_from);
value!(u64, number, Self::try_from);
value!(Revision, number, |number| u64::try_from(number).map(Self::from));
value!(LeaseEpoch, number, |number| u64::try_from(number).map(Self::from));
value!(LedgerEpoch, number, |number| u64::try_from(number).map(Self::from));
value!(bool, flag);
value!(Time, time);
value!(&'a str, text);
value!(String, text, |text| Ok::<_, Infallible>(text.to_owned()));
value!(RunId, text, |text| Ok::<_, Infallible>(text.into()));
value!(Vec<u8>, bytes, |bytes| Ok::<_, Infallible>(bytes.to_vec()));
value!([u8; 32], bytes, |bytes| bytes.try_into().map_err(|_| format!("{} bytes and not 32", bytes.len())));

/// Almost every row has the only namespace, whose text all share.
impl Value<'_> for Namespace {
    fn of<R: Columns>(row: &R, column: Column) -> Result<Option<Self>, Source> {
        let shared = |text: &str| if text == DEFAULT_NAMESPACE { Self::only() } else { text.into() };
        Ok(row.text(column)?.map(shared))
    }
}

impl Value<'_> for Status {
    fn of<R: Columns>(row: &R, column: Column) -> Result<Option<Self>, Source> {
        let status = |code| scalars::status(code).ok_or_else(|| format!("no status is {code}"));
        Ok(i16::of(row, column)?.map(status).transpose()?)
    }
}

impl<'a, T: Value<'a>> Value<'a> for Option<T> {
    fn of<R: Columns>(row: &'a R, column: Column) -> Result<Option<Self>, Source> {
        T::of(row, column).map(Some)
    }
}

//! Rows as SQLite has them, and how a statement's rows are gone through.

use std::ops::ControlFlow;
use std::time::Duration;

use rusqlite::types::{FromSqlResult, ValueRef};
use rusqlite::{Connection, Params, Row};
use tokio::time::Instant;
use uuid::Uuid;

use super::errors;
use crate::domain::Time;
use crate::store::error::Source;
pub(super) use crate::store::rows::Reader;
use crate::store::rows::{Column, Columns};
pub(super) use crate::store::scalars::{bigint, shown};
use crate::store::steady::KeptSteady;
use crate::store::{Ledger, SealKey, StoreError};

impl Columns for Row<'_> {
    fn number(&self, column: Column) -> Result<Option<i64>, Source> {
        value(self, column, |value| value.as_i64_or_null())
    }

    fn flag(&self, column: Column) -> Result<Option<bool>, Source> {
        Ok(self.number(column)?.map(|number| number != 0))
    }

    fn time(&self, column: Column) -> Result<Option<Time>, Source> {
        Ok(self.number(column)?.map(Time::from_micros))
    }

    fn text(&self, column: Column) -> Result<Option<&str>, Source> {
        value(self, column, |value| value.as_str_or_null())
    }

    fn bytes(&self, column: Column) -> Result<Option<&[u8]>, Source> {
        value(self, column, |value| value.as_blob_or_null())
    }
}

fn value<'a, T>(
    row: &'a Row<'_>,
    column: Column,
    of: impl FnOnce(ValueRef<'a>) -> FromSqlResult<T>,
) -> Result<T, Source> {
    let value = match column.place {
        Some(place) => row.get_ref(place),
        None => row.get_ref(column.name),
    }?;
    of(value).map_err(|error| format!("{error}: {}", value.data_type()).into())
}

/// The time after which a reading yields the processor. Who wakes, to answer a call that takes a tenth of a millisecond,
/// would else wait for the end of the slice of time that the reading was given, which is about 3 ms. A reading that
/// yields more often gets nowhere on a machine that is busy, since each time it may wait for others' slices.
const YIELD_AFTER: Duration = Duration::from_micros(400);

/// Rows between two looks at the time.
const LOOK_ROWS: u32 = 32;

/// Yields the processor between rows of a reading that may be long.
pub(super) struct Yielding {
    rows: u32,
    since: Instant,
}

impl Yielding {
    pub(super) fn begin() -> Self {
        Self { rows: 0, since: Instant::now() }
    }

    /// A row was read.
    pub(super) fn row(&mut self) {
        self.rows += 1;
        if self.rows.is_multiple_of(LOOK_ROWS) && self.since.elapsed() >= YIELD_AFTER {
            std::thread::yield_now();
            self.since = Instant::now();
        }
    }
}

/// Calls a function for each row of a statement, until it breaks.
pub(super) fn each(
    connection: &Connection,
    sql: &str,
    values: impl Params,
    mut visit: impl FnMut(&Row<'_>) -> Result<ControlFlow<()>, StoreError>,
) -> Result<(), StoreError> {
    let mut statement = connection.prepare_cached(sql).map_err(errors::statement)?;
    let mut rows = statement.query(values).map_err(errors::statement)?;
    while let Some(row) = rows.next().map_err(errors::statement)? {
        if visit(row)?.is_break() {
            break;
        }
    }
    Ok(())
}

/// A statement's rows, each made into a value.
pub(super) fn all<T>(
    connection: &Connection,
    sql: &str,
    values: impl Params,
    read: impl Fn(&Row<'_>) -> Result<T, StoreError>,
) -> Result<Vec<T>, StoreError> {
    let mut all = Vec::new();
    each(connection, sql, values, |row| {
        all.push(read(row)?);
        Ok(ControlFlow::Continue(()))
    })?;
    Ok(all)
}

/// A statement's first row, made into a value.
pub(super) fn first<T>(
    connection: &Connection,
    sql: &str,
    values: impl Params,
    read: impl Fn(&Row<'_>) -> Result<T, StoreError>,
) -> Result<Option<T>, StoreError> {
    let mut first = None;
    each(connection, sql, values, |row| {
        first = Some(read(row)?);
        Ok(ControlFlow::Break(()))
    })?;
    Ok(first)
}

/// Executes a statement, and gives the number of rows that it changed.
pub(super) fn execute(connection: &Connection, sql: &str, values: impl Params) -> Result<usize, StoreError> {
    connection.prepare_cached(sql).and_then(|mut statement| statement.execute(values)).map_err(errors::statement)
}

/// The ledger's identity.
pub(super) fn ledger(connection: &Connection) -> Result<Ledger, StoreError> {
    let statement = "-- rows.ledger\nselect id, epoch, shard_count, seal_key from ledger";
    let read = |row: &Row<'_>| {
        let ledger = Reader { table: "ledger", row, key: &|| "the database".to_owned() };
        let id = Uuid::parse_str(ledger.get((0, "id"))?).map_err(|error| ledger.corrupt("id", error))?;
        Ok(Ledger {
            id,
            epoch: ledger.get((1, "epoch"))?,
            shard_count: ledger.get((2, "shard_count"))?,
            seal_key: SealKey::new(ledger.get((3, "seal_key"))?),
        })
    };
    first(connection, statement, [], read)?.ok_or_else(|| {
        let (key, source) = ("the database".to_owned(), "the row is missing".into());
        StoreError::Corrupt { table: "ledger", column: "id", key, source }
    })
}

/// What is kept of the steady clock.
pub(super) fn kept(connection: &Connection) -> Result<KeptSteady, StoreError> {
    let statement = "-- rows.kept\nselect alive_at, steady_ahead, steady_since from uptime";
    let read = |row: &Row<'_>| {
        let uptime = Reader { table: "uptime", row, key: &|| "the database".to_owned() };
        let (alive_at, since) = (uptime.get((0, "alive_at"))?, uptime.get((2, "steady_since"))?);
        Ok(KeptSteady { alive_at, ahead: uptime.get((1, "steady_ahead"))?, since })
    };
    first(connection, statement, [], read)?.ok_or_else(|| {
        let (key, source) = ("the database".to_owned(), "the row is missing".into());
        StoreError::Corrupt { table: "uptime", column: "alive_at", key, source }
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::inspect::OfRuns;
    use crate::store::inspect::rows::{PLACES, TIME_OF, keys_of};
    use crate::store::migrations::SQLITE;

    #[test]
    fn parameters_of_statements_for_both_databases_have_the_numbers_that_their_names_say() {
        let connection = Connection::open_in_memory().unwrap();
        for migration in SQLITE {
            connection.execute_batch(migration.sql).unwrap();
        }
        let keys = OfRuns::ALL.map(keys_of);
        let fixed = [PLACES, TIME_OF];
        for sql in fixed.into_iter().chain(keys.iter().map(String::as_str)) {
            let statement = connection.prepare(sql).unwrap();
            assert!(statement.parameter_count() > 0, "{sql}");
            for number in 1..=statement.parameter_count() {
                assert_eq!(statement.parameter_name(number), Some(format!("${number}").as_str()), "{sql}");
            }
        }
    }

    #[test]
    fn a_value_that_cannot_be_read_is_told_with_table_column_and_key() {
        let connection = Connection::open_in_memory().unwrap();
        for (value, why) in [("null", "there is no value"), ("'x'", "Invalid type: Text"), ("-1", "out of range")] {
            let read = |row: &Row<'_>| {
                Reader { table: "runs", row, key: &|| "default/run-1".to_owned() }.get::<u64>((0, "revision"))
            };
            let error = first(&connection, &format!("select {value}"), [], read).unwrap_err();
            assert_eq!(error.to_string(), "runs.revision of default/run-1 cannot be read");
            let StoreError::Corrupt { source, .. } = error else { panic!("{error}") };
            assert!(source.to_string().contains(why), "{source}");
        }
    }
}

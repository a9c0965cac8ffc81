//! Rows, column by column: as arrays, or as values where there is one row.

use tokio_postgres::types::ToSql;

use crate::domain::RunKey;

/// An argument of a statement.
pub(in crate::store::postgres) type Argument<'a> = Box<dyn ToSql + Send + Sync + 'a>;

/// Rows, column by column.
pub(in crate::store::postgres) struct Columns<'a> {
    pub(in crate::store::postgres) rows: usize,
    pub(in crate::store::postgres) columns: Vec<Column<'a>>,
}

pub(in crate::store::postgres) struct Column<'a> {
    pub(in crate::store::postgres) name: &'static str,
    pub(in crate::store::postgres) sql_type: &'static str,
    pub(in crate::store::postgres) values: Argument<'a>,
}

impl<'a> Columns<'a> {
    pub(in crate::store::postgres) fn of(rows: usize) -> Self {
        Self { rows, columns: Vec::new() }
    }

    /// Rows that have the keys of runs.
    pub(in crate::store::postgres) fn of_keys(keys: impl ExactSizeIterator<Item = &'a RunKey> + Clone) -> Self {
        let mut columns = Self::of(keys.len());
        columns.add("namespace", "text", keys.clone().map(|key| key.namespace.as_str()));
        columns.add("run_id", "text", keys.map(|key| key.run_id.as_str()));
        columns
    }

    pub(in crate::store::postgres) fn add<T>(
        &mut self,
        name: &'static str,
        sql_type: &'static str,
        mut values: impl Iterator<Item = T>,
    ) where
        T: ToSql + Send + Sync + 'a,
    {
        let values: Argument<'a> = match self.rows {
            1 => Box::new(values.next().expect("one row")),
            _ => Box::new(values.collect::<Vec<T>>()),
        };
        self.columns.push(Column { name, sql_type, values });
    }
}

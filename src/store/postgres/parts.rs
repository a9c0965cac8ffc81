//! A statement as it is put together from its parts.

pub(super) mod columns;

use tokio_postgres::types::ToSql;

use self::columns::{Argument, Columns};
use super::rows::At;
use crate::domain::Time;

/// The parts of a statement, as they are collected.
#[derive(Default)]
pub(super) struct Parts<'a> {
    /// The tables that are read: the arrays.
    pub(super) tables: Vec<String>,
    /// The parts that write.
    pub(super) writes: Vec<String>,
    /// Conditions on the numbers of rows that were written.
    pub(super) counted: Vec<String>,
    pub(super) arguments: Vec<Argument<'a>>,
    /// The table with the steady clock, where a part has asked for it.
    pub(super) steady: Option<String>,
}

impl<'a> Parts<'a> {
    /// Adds an argument; gives the expression that stands for it.
    pub(super) fn add(&mut self, sql_type: &str, value: impl ToSql + Send + Sync + 'a) -> String {
        self.arguments.push(Box::new(value));
        format!("${}::{sql_type}", self.arguments.len())
    }

    /// Adds rows as a table, in their order: one row as it is, since an array costs a tuple store of its own; more as
    /// arrays. Gives the expression for the number of rows.
    pub(super) fn table(&mut self, name: &str, columns: Columns<'a>) -> String {
        let Columns { rows, columns } = columns;
        let names: Vec<&str> = columns.iter().map(|column| column.name).collect();
        let values: Vec<String> = columns
            .into_iter()
            .map(|column| {
                self.arguments.push(column.values);
                let array = if rows == 1 { "" } else { "[]" };
                format!("${}::{}{array}", self.arguments.len(), column.sql_type)
            })
            .collect();
        if rows == 1 {
            let values = values.iter().zip(names).map(|(value, name)| format!("{value} as {name}"));
            let values = values.collect::<Vec<_>>().join(", ");
            self.tables.push(format!("{name} as materialized (\n    select {values}, 1 as n)"));
            return "1".to_owned();
        }
        self.tables.push(format!(
            "{name} as materialized (
    select * from unnest({}) with ordinality as v ({}, n))",
            values.join(", "),
            names.join(", "),
        ));
        format!("cardinality({})", values[0])
    }

    /// The steady clock in a commit, by the database's clock; not far from where this process takes it to be, as the clock may
    /// have been set a moment ago.
    pub(super) fn steady_now(&mut self, steady: Time) -> &'static str {
        if self.steady.is_none() {
            let steady = self.add("timestamptz", At(steady));
            let now = near("place.now + u.steady_ahead", &steady);
            self.steady =
                Some(format!("steady as materialized (select {now} as now from place, uptime u where u.singleton)"));
        }
        "(select now from steady)"
    }

    /// Demands that a part writes so many rows.
    pub(super) fn count(&mut self, part: &str, rows: &str) {
        self.counted.push(format!("(select count(*) from {part}) = {rows}"));
    }
}

/// A time of the steady clock, held to at most a second after the time that this process takes it to be.
pub(super) fn near(time: &str, expected: &str) -> String {
    format!("least(greatest({time}, {expected}), {expected} + interval '1 s')")
}

/// A row by its whole key. In a subquery, each row is looked up by index one by one, whatever the planner thinks of
/// the sizes of tables when it makes a plan that lasts.
pub(super) fn key(table: &str, shard: &str) -> String {
    format!("{table}.shard = {shard} and {table}.namespace = v.namespace and {table}.run_id = v.run_id")
}

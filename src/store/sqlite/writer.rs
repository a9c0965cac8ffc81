//! The writer: SQLite has one, which stands for every shard's head lock.

use rusqlite::{Connection, Params, Transaction, TransactionBehavior};

use super::errors;
use super::rows::{execute, shown};
use crate::domain::{RunKey, Shard};
use crate::store::StoreError;

/// Begins the one transaction that may write: it is every shard's head lock.
pub(super) fn begin(connection: &mut Connection) -> Result<Transaction<'_>, StoreError> {
    connection.transaction_with_behavior(TransactionBehavior::Immediate).map_err(errors::statement)
}

/// Writes to a shard in a transaction.
pub(super) struct Writer<'a> {
    pub(super) transaction: &'a Transaction<'a>,
    pub(super) shard: Shard,
}

impl Writer<'_> {
    /// Executes a statement that changes exactly one row, or fails, and with it the transaction.
    pub(super) fn one_row(
        &self,
        table: &'static str,
        key: &RunKey,
        sql: &str,
        values: impl Params,
    ) -> Result<(), StoreError> {
        match execute(self.transaction, sql, values)? {
            1 => Ok(()),
            changed => {
                let source = format!("{changed} rows were changed where there must be one").into();
                Err(StoreError::Corrupt { table, column: "revision", key: shown(key), source })
            }
        }
    }
}

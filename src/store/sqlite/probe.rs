//! A write without meaning: commits would succeed if it does.

use rusqlite::{Connection, Transaction};

use super::errors;
use super::writer::begin;
use crate::store::StoreError;

/// Commits of a page each that a probe makes: together they need as much room in the log as a commit of a few runs.
const COMMITS: usize = 16;

/// Writes without meaning. One commit would not do: in the rest of a full disk a page may fit again and again.
pub(super) fn write(connection: &mut Connection) -> Result<(), StoreError> {
    for _ in 0..COMMITS {
        let transaction = begin(connection)?;
        overwrite(&transaction).and_then(|()| transaction.commit()).map_err(errors::statement)?;
    }
    Ok(())
}

/// Changes the file's first page and nothing that has a meaning: a number for applications, which nobody reads. A row
/// that is written as it was would change no page.
pub(super) fn overwrite(transaction: &Transaction<'_>) -> rusqlite::Result<()> {
    let number: i32 = transaction.pragma_query_value(None, "user_version", |row| row.get(0))?;
    transaction.pragma_update(None, "user_version", number.wrapping_add(1))
}

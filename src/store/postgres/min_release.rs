//! Keeps an old replica from writing to a database that a later release has made its own while it was running.
//!
//! A commit reads `min_release` under its shard's head, and a migration that raises it holds every head: so a commit of
//! an older release is either done before the migration or refused.

use std::sync::Once;

use tokio_postgres::Row;

use super::rows::Reader;
use crate::store::StoreError;
use crate::store::migrations;

/// Every commit finds the same state; an operator needs to read it once.
static SAID: Once = Once::new();

/// Refuses to go on when the row's `min_release` is above this release; else gives it.
pub(super) fn admits(row: &Row) -> Result<&str, StoreError> {
    let min_release: &str = Reader { table: "ledger", row, key: &|| "the only row".to_owned() }.get("min_release")?;
    migrations::admits(min_release).map_err(|error| {
        SAID.call_once(|| tracing::error!(%error, "this replica is too old for its database and writes no more"));
        StoreError::Unavailable(error.into())
    })?;
    Ok(min_release)
}

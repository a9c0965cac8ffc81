//! The rows of runs that are ready.

use rusqlite::params;

use crate::domain::{RunKey, Time};
use crate::store::StoreError;
use crate::store::sqlite::writer::Writer;

/// Adds the row, with the time of the run's creation, or deletes it.
pub(super) fn write(writer: &Writer<'_>, key: &RunKey, started_at: Option<Time>) -> Result<(), StoreError> {
    let (shard, namespace, run_id) = (writer.shard.0, &key.namespace, &key.run_id);
    match started_at {
        Some(started_at) => writer.one_row(
            "suspended",
            key,
            "-- commit.insert_suspended
             insert into suspended (shard, namespace, run_id, started_at, ready) values (?1, ?2, ?3, ?4, 1)",
            params![shard, namespace, run_id, started_at.micros()],
        ),
        None => writer.one_row(
            "suspended",
            key,
            "-- commit.delete_suspended
             delete from suspended where shard = ?1 and namespace = ?2 and run_id = ?3",
            params![shard, namespace, run_id],
        ),
    }
}

//! Writes the table `suspended`: a row for each run that is suspended or ready. What a suspension says, and its
//! deadline, is written with its run: see `commit::write`.

use rusqlite::params;

use super::side::Side;
use crate::domain::{Rest, RunKey, SideWrites, Time};
use crate::store::StoreError;
use crate::store::sqlite::writer::Writer;

pub(super) const SIDE: Side = Side { load: None, write: Some(write) };

fn write(writer: &Writer<'_>, sides: &SideWrites, _: Time) -> Result<(), StoreError> {
    sides.suspended.iter().try_for_each(|(key, rest)| keep(writer, key, rest.as_ref()))
}

/// Writes the row, or deletes it.
fn keep(writer: &Writer<'_>, key: &RunKey, rest: Option<&Rest>) -> Result<(), StoreError> {
    let (shard, namespace, run_id) = (writer.shard.0, &key.namespace, &key.run_id);
    match rest {
        Some(Rest { started_at, kind, ready, keep_slot, priority }) => writer.one_row(
            "suspended",
            key,
            "-- commit.insert_suspended
             insert into suspended (shard, namespace, run_id, started_at, kind, ready, keep_slot, priority)
             values (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)
             on conflict (shard, namespace, run_id)
             do update set kind = excluded.kind, ready = excluded.ready, keep_slot = excluded.keep_slot",
            params![
                shard,
                namespace.as_str(),
                run_id.as_str(),
                started_at.micros(),
                kind,
                ready,
                keep_slot,
                priority.get()
            ],
        ),
        None => writer.one_row(
            "suspended",
            key,
            "-- commit.delete_suspended
             delete from suspended where shard = ?1 and namespace = ?2 and run_id = ?3",
            params![shard, namespace.as_str(), run_id.as_str()],
        ),
    }
}

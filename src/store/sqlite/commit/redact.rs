//! Redactions: the events of a run that are in the log are written anew, in the transaction of the commit.

use std::ops::ControlFlow;

use rusqlite::{Connection, Transaction, params};

use crate::domain::redaction::{NO_DIGEST, Rewriting, Rewritten};
use crate::domain::{NewEvent, Position, RunKey, Shard};
use crate::store::redaction::not_all_rewritten;
use crate::store::rows::events;
use crate::store::scalars::shown;
use crate::store::sqlite::rows::{Reader, bigint, each, execute};
use crate::store::{StoreError, json};

/// Events that are read and written at once.
const PAGE_EVENTS: usize = 256;

const READ: &str = "-- redact.read
select revision, at, event, request_id, position from run_events
 where shard = ?1 and namespace = ?2 and run_id = ?3 and revision > ?4 and revision < ?5 order by revision limit ?6";

/// The digest of a request that wrote what is taken out would tell of it.
const REWRITE: &str = "-- redact.rewrite
update run_events
   set event = coalesce(?3, event), keyframe = coalesce(?4, keyframe),
       request_digest = case when ?3 is null or request_digest is null then request_digest else ?5 end
 where shard = ?1 and position = ?2";

const SAY_NOTHING: &str = "-- redact.progress
update leases set progress_message = ''
 where shard = ?1 and namespace = ?2 and run_id = ?3 and progress_message <> ''";

/// Whether a redaction is among these events.
pub(super) fn is_among(decided: &[NewEvent]) -> bool {
    decided.iter().any(|new| new.event.changes.redaction.is_some())
}

/// Writes the write-ahead log into the file, which keeps what was taken out until then, and cuts it.
pub(super) fn empty_log(connection: &Connection) {
    match connection.query_row("pragma wal_checkpoint(truncate)", [], |row| row.get::<_, i64>(0)) {
        Ok(0) => {}
        Ok(_busy) => tracing::warn!(
            "what a redaction took out is still in the write-ahead log, which a long read uses: a later checkpoint takes \
             it away"
        ),
        Err(error) => tracing::warn!(error = %error, "what a redaction took out is still in the write-ahead log"),
    }
}

/// Takes out of the log, and of the progress, what a redaction names, for each redaction among these events.
pub(super) fn rewrite(transaction: &Transaction<'_>, shard: Shard, decided: &[NewEvent]) -> Result<(), StoreError> {
    for NewEvent { event: redacted, .. } in decided {
        let Some(redaction) = &redacted.changes.redaction else { continue };
        let (key, until) = (&redacted.key, bigint(redacted.revision));
        let (mut rewriting, mut after, mut read) = (Rewriting::of(redaction), 0_i64, PAGE_EVENTS);
        while read == PAGE_EVENTS {
            read = 0;
            let mut rewritten: Vec<(Position, Rewritten)> = Vec::new();
            let limit = i64::try_from(PAGE_EVENTS).expect("some hundred");
            let from = after;
            each(transaction, READ, params![shard.0, key.namespace, key.run_id, from, until, limit], |row| {
                let event = events::event(row, key)?;
                (after, read) = (bigint(event.revision), read + 1);
                let position = Reader { table: "run_events", row, key: &|| shown(key) }.get((4, "position"))?;
                rewritten.push((position, rewriting.next(event)));
                Ok(ControlFlow::Continue(()))
            })?;
            for (position, rewritten) in rewritten {
                write(transaction, shard, key, position, &rewritten)?;
            }
        }
        if redaction.is_of_progress() {
            execute(transaction, SAY_NOTHING, (shard.0, &key.namespace, &key.run_id))?;
        }
    }
    Ok(())
}

fn write(
    transaction: &Transaction<'_>,
    shard: Shard,
    key: &RunKey,
    position: Position,
    Rewritten { event, keyframe }: &Rewritten,
) -> Result<(), StoreError> {
    if event.is_none() && keyframe.is_none() {
        return Ok(());
    }
    let (event, keyframe) = (event.as_ref().map(json::event), keyframe.as_deref().map(json::keyframe));
    match execute(transaction, REWRITE, params![shard.0, bigint(position), event, keyframe, NO_DIGEST])? {
        1 => Ok(()),
        _ => Err(not_all_rewritten(key)),
    }
}

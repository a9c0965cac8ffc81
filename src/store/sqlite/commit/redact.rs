//! Redactions: the events of a run that are in the log are written anew, in the transaction of the commit. What old pages
//! of the file may still show of them is left to the [cleaner](crate::store::sqlite::secure_delete), and is owed from then on.

use std::ops::ControlFlow;

use rusqlite::{Transaction, params};
use tokio::time::Instant;

use crate::domain::rewriting::{NO_DIGEST, Rewriting, Rewritten};
use crate::domain::{ContentTable, Event, NewEvent, Position, RedactedPath, Redaction, Revision, Run, RunKey, Shard};
use crate::store::redaction::{self, PAGE_EVENTS_MAX, WRITER_MAX, not_all_rewritten, too_long};
use crate::store::rows::events;
use crate::store::scalars::shown;
use crate::store::sqlite::rows::{Reader, bigint, each, execute};
use crate::store::sqlite::secure_delete;
use crate::store::{PAGE_BYTES_MAX, StoreError, json};

const READ: &str = "-- redact.read
select revision, at, event, request_id, position, octet_length(event) from run_events
 where shard = ?1 and namespace = ?2 and run_id = ?3 and revision > ?4 and revision < ?5 order by revision limit ?6";

const KEYFRAME: &str = "-- redact.keyframe
select keyframe from run_events where shard = ?1 and namespace = ?2 and run_id = ?3 and revision = ?4";

/// What the event takes less by now is taken from what was measured.
const MEASURED: &str = "-- redact.measured
update stored_bytes
   set bytes = max(0, bytes - (
       select octet_length(event) + coalesce(octet_length(keyframe), 0)
              - octet_length(coalesce(?4, event)) - coalesce(octet_length(coalesce(?5, keyframe)), 0)
         from run_events where shard = ?1 and position = ?3))
 where shard = ?1 and namespace = ?2 and position >= ?3";

const REWRITE: &str = "-- redact.rewrite
update run_events set event = coalesce(?3, event), keyframe = coalesce(?4, keyframe)
 where shard = ?1 and position = ?2";

/// The digest of a request that wrote what is taken out would tell of it, also where its event did not keep it.
const FORGET: &str = "-- redact.forget
update run_events set request_digest = ?5
 where shard = ?1 and namespace = ?2 and run_id = ?3 and revision < ?4 and request_digest <> ?5";

/// The bytes that are taken out of what an event wrote beside its run are taken from what was measured.
const MEASURED_BESIDE: &str = "-- redact.measured_beside
update stored_bytes
   set bytes = max(0, bytes - ?5)
 where shard = ?1 and namespace = ?2
   and position >= (select position from run_events
                     where shard = ?1 and namespace = ?2 and run_id = ?3 and revision = ?4)";

const LINKS: &str = "-- redact.links
select number, revision, content from run_links
 where shard = ?1 and namespace = ?2 and run_id = ?3 and revision < ?4 order by number";

/// A link that was taken out is no other's like any more.
const REWRITE_LINK: &str = "-- redact.rewrite_link
update run_links set content = ?5, link_key = null
 where shard = ?1 and namespace = ?2 and run_id = ?3 and number = ?4";

const SAY_NOTHING: &str = "-- redact.progress
update leases set progress_message = ''
 where shard = ?1 and namespace = ?2 and run_id = ?3 and progress_message <> ''";

/// Whether a redaction is among these events.
pub(in crate::store::sqlite) fn is_among(decided: &[NewEvent]) -> bool {
    decided.iter().any(|new| new.event.changes.redaction.is_some())
}

/// Takes out of the log, and of the progress, what a redaction names, for each redaction among these events. Up to a
/// revision somebody has looked through the history, and found nothing to take out. Where nothing is, nothing is owed. Tells
/// how many values it took out; none where no redaction is among the events.
pub(super) fn rewrite(
    transaction: &Transaction<'_>,
    shard: Shard,
    decided: &[NewEvent],
    nothing_up_to: Revision,
) -> Result<Option<u64>, StoreError> {
    let mut redacted_values = None;
    for NewEvent { event: redacted, .. } in decided {
        let Some(redaction) = &redacted.changes.redaction else { continue };
        let (key, until) = (&redacted.key, bigint(redacted.revision));
        // Where no event came since the look, there is nothing to be read.
        let is_looked_through = nothing_up_to.next() == redacted.revision;
        let (changed, values) =
            if is_looked_through { (0, 0) } else { history(transaction, shard, (redacted, redaction), nothing_up_to)? };
        let forgotten = execute(
            transaction,
            FORGET,
            params![shard.0, key.namespace.as_str(), key.run_id.as_str(), until, NO_DIGEST],
        )?;
        let mut beside = 0;
        for table in redaction.paths.iter().filter_map(RedactedPath::table) {
            beside += take_out(transaction, shard, key, until, table)?;
        }
        if redaction.is_of_links() {
            beside += links(transaction, shard, key, until, redaction)?;
        }
        if redaction.is_of_progress() {
            beside += execute(transaction, SAY_NOTHING, (shard.0, &key.namespace.as_str(), &key.run_id.as_str()))?;
        }
        if changed + forgotten + beside > 0 {
            secure_delete::owe(transaction)?;
        }
        redacted_values = Some(redacted_values.unwrap_or(0) + values + beside as u64);
    }
    Ok(redacted_values)
}

/// Writes the events and keyframes of a run anew that have any of it, and tells how many, and how many values these had.
fn history(
    transaction: &Transaction<'_>,
    shard: Shard,
    (redacted, redaction): (&Event, &Redaction),
    nothing_up_to: Revision,
) -> Result<(usize, u64), StoreError> {
    let begun = Instant::now();
    let events_max = i64::try_from(PAGE_EVENTS_MAX).expect("some hundred");
    let (key, until) = (&redacted.key, bigint(redacted.revision));
    let before = keyframe(transaction, shard, key, nothing_up_to)?;
    let mut after = before.as_ref().map_or(0, |run| bigint(run.revision));
    let mut rewriting = before.map_or_else(|| Rewriting::new(redaction), |run| Rewriting::after(redaction, run));
    let (mut changed, mut values) = (0, 0);
    loop {
        let (mut rewritten, mut bytes): (Vec<(Position, Rewritten)>, usize) = (Vec::new(), 0);
        let place = params![shard.0, key.namespace.as_str(), key.run_id.as_str(), after, until, events_max];
        let mut last = after;
        each(transaction, READ, place, |row| {
            let event = events::event(row, key)?;
            last = bigint(event.revision);
            let of_event = Reader { table: "run_events", row, key: &|| shown(key) };
            let size: u64 = of_event.get((5, "event"))?;
            bytes += usize::try_from(size).unwrap_or(usize::MAX);
            rewritten.push((of_event.get((4, "position"))?, rewriting.next(&event)));
            Ok(if bytes < PAGE_BYTES_MAX { ControlFlow::Continue(()) } else { ControlFlow::Break(()) })
        })?;
        if rewritten.is_empty() {
            return Ok((changed, values));
        }
        after = last;
        for (position, rewritten) in rewritten {
            values += rewritten.values;
            changed += write(transaction, shard, key, position, &rewritten)?;
        }
        if begun.elapsed() > WRITER_MAX {
            return Err(too_long(key));
        }
    }
}

/// The run as the last keyframe up to a revision has it; none where there is none.
fn keyframe(
    transaction: &Transaction<'_>,
    shard: Shard,
    key: &RunKey,
    revision: Revision,
) -> Result<Option<Run>, StoreError> {
    let revision = revision.first_to_fold();
    if !revision.has_keyframe() {
        return Ok(None);
    }
    let mut run = None;
    each(
        transaction,
        KEYFRAME,
        params![shard.0, key.namespace.as_str(), key.run_id.as_str(), bigint(revision)],
        |row| {
            let text: &str = Reader { table: "run_events", row, key: &|| shown(key) }.get((0, "keyframe"))?;
            run = Some(json::read_keyframe(key, text)?);
            Ok(ControlFlow::Break(()))
        },
    )?;
    Ok(run)
}

/// Inputs and results are taken out whole.
fn take_out(
    transaction: &Transaction<'_>,
    shard: Shard,
    key: &RunKey,
    until: i64,
    table: ContentTable,
) -> Result<usize, StoreError> {
    let name = table.name();
    let rows = format!(
        "-- redact.sizes
         select revision, octet_length(content) from {name}
          where shard = ?1 and namespace = ?2 and run_id = ?3 and revision < ?4"
    );
    let place = params![shard.0, key.namespace.as_str(), key.run_id.as_str(), until];
    let mut sizes: Vec<(i64, i64)> = Vec::new();
    each(transaction, &rows, place, |row| {
        let content = Reader { table: name, row, key: &|| shown(key) };
        sizes.push((content.get((0, "revision"))?, content.get((1, "content"))?));
        Ok(ControlFlow::Continue(()))
    })?;
    for (revision, bytes) in sizes {
        execute(
            transaction,
            MEASURED_BESIDE,
            params![shard.0, key.namespace.as_str(), key.run_id.as_str(), revision, bytes],
        )?;
    }
    let gone = format!(
        "-- redact.{name}
         delete from {name} where shard = ?1 and namespace = ?2 and run_id = ?3 and revision < ?4"
    );
    execute(transaction, &gone, place)
}

fn links(
    transaction: &Transaction<'_>,
    shard: Shard,
    key: &RunKey,
    until: i64,
    redaction: &Redaction,
) -> Result<usize, StoreError> {
    let mut left: Vec<(i64, i64, i64, String)> = Vec::new();
    each(transaction, LINKS, params![shard.0, key.namespace.as_str(), key.run_id.as_str(), until], |row| {
        let link = Reader { table: "run_links", row, key: &|| shown(key) };
        let content: &str = link.get((2, "content"))?;
        if let Some(rewritten) = redaction::left_of_link(redaction, content, key)? {
            let less = bigint(content.len() as u64) - bigint(rewritten.len() as u64);
            left.push((link.get((0, "number"))?, link.get((1, "revision"))?, less, rewritten));
        }
        Ok(ControlFlow::Continue(()))
    })?;
    let mut changed = 0;
    for (number, revision, less, content) in left {
        execute(
            transaction,
            MEASURED_BESIDE,
            params![shard.0, key.namespace.as_str(), key.run_id.as_str(), revision, less],
        )?;
        changed += execute(
            transaction,
            REWRITE_LINK,
            params![shard.0, key.namespace.as_str(), key.run_id.as_str(), number, content],
        )?;
    }
    Ok(changed)
}

fn write(
    transaction: &Transaction<'_>,
    shard: Shard,
    key: &RunKey,
    position: Position,
    Rewritten { event, keyframe, .. }: &Rewritten,
) -> Result<usize, StoreError> {
    if event.is_none() && keyframe.is_none() {
        return Ok(0);
    }
    let (event, keyframe) = (event.as_ref().map(json::event), keyframe.as_deref().map(json::keyframe));
    execute(transaction, MEASURED, params![shard.0, key.namespace.as_str(), bigint(position), event, keyframe])?;
    match execute(transaction, REWRITE, params![shard.0, bigint(position), event, keyframe])? {
        1 => Ok(1),
        _ => Err(not_all_rewritten(key)),
    }
}

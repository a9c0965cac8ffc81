//! Every run of a shard, by key, with its events beside it: both are read in the same order, so a page of either is all
//! that is held, and the digests of what must stand beside the runs of a page.

use std::collections::BTreeMap;
use std::sync::atomic::Ordering;

use super::beside;
use super::difference::Difference;
use super::replay::{Replay, Wanted};
use super::row_now::row_now;
use super::{Ledger, PATIENCE, patiently};
use crate::domain::ids::shard_of;
use crate::domain::{EventType, Namespace, Revision, RunId, RunKey, Shard};
use crate::store::inspect::{OfRuns, RunRow};
use crate::store::{PAGE_BYTES_MAX, StoreError};

/// Events of one run that are read at once.
const EVENTS_MAX: usize = 1_000;

pub(super) async fn replay(ledger: &Ledger, shard: Shard) -> Result<(), StoreError> {
    let mut differences = Vec::new();
    let mut after = before_all();
    loop {
        let page = patiently(PATIENCE, || ledger.inspect.run_rows(shard, &after)).await?;
        let Some(last) = page.last() else { break };
        places(ledger, shard, &page, &mut differences);
        histories(ledger, shard, &after, &page, &mut differences).await?;
        ledger.found(&mut differences).await;
        ledger.runs.fetch_add(u64::try_from(page.len()).unwrap_or(0), Ordering::Relaxed);
        after.clone_from(&last.columns.key);
    }
    for table in OfRuns::ALL {
        without_a_run(ledger, shard, table).await?;
    }
    Ok(())
}

/// Rows of runs that are not there; where one is, they were compared with it.
async fn without_a_run(ledger: &Ledger, shard: Shard, table: OfRuns) -> Result<(), StoreError> {
    let mut differences = Vec::new();
    let mut after = before_all();
    loop {
        let page = patiently(PATIENCE, || ledger.inspect.keys_of(table, shard, &after)).await?;
        let Some((last, _)) = page.last() else { return Ok(()) };
        after.clone_from(last);
        let orphans = page.into_iter().filter(|(_, known)| !known);
        differences.extend(orphans.map(|(key, _)| Difference {
            table: table.name(),
            key: shown(&key),
            what: "row".to_owned(),
            expected: "a run of this id".to_owned(),
            found: "none".to_owned(),
        }));
        ledger.found(&mut differences).await;
    }
}

fn before_all() -> RunKey {
    RunKey { namespace: Namespace::default(), run_id: RunId::default() }
}

fn shown(key: &RunKey) -> String {
    format!("{}/{}", key.namespace, key.run_id)
}

/// Whether the runs are in the shard where they are looked for.
fn places(ledger: &Ledger, shard: Shard, page: &[RunRow], differences: &mut Vec<Difference>) {
    let known = ledger.inspect.ledger();
    for row in page {
        let home = shard_of(known.id, known.shard_count, &row.columns.key);
        if home != shard {
            differences.push(Difference {
                table: "runs",
                key: shown(&row.columns.key),
                what: "shard".to_owned(),
                expected: home.0.to_string(),
                found: shard.0.to_string(),
            });
        }
    }
}

/// Replays the runs of a page. Events of a run that is not on it belong to one that was created after it was read, or
/// to none, which the walk through the log tells.
async fn histories(
    ledger: &Ledger,
    shard: Shard,
    before: &RunKey,
    page: &[RunRow],
    differences: &mut Vec<Difference>,
) -> Result<(), StoreError> {
    let mut wanted = BTreeMap::new();
    let mut found = Vec::new();
    let mut rows = page.iter();
    let mut replay = rows.next().map(Replay::new);
    let Some(last) = page.last() else { return Ok(()) };
    let mut after = (before.clone(), i64::MAX);
    while after.0 < last.columns.key || after.1 < last.columns.revision {
        let events =
            patiently(PATIENCE, || ledger.inspect.event_rows(shard, (&after.0, after.1), &last.columns.key)).await?;
        let Some(end) = events.last() else { break };
        after = (end.key.clone(), end.revision);
        ledger.count_events(events.len());
        for event in events {
            while let Some(done) = replay.take_if(|replay| *replay.key() < event.key) {
                differences.append(&mut settle(ledger, shard, done, &mut wanted, std::mem::take(&mut found)).await?);
                replay = rows.next().map(Replay::new);
            }
            if let Some(replay) = replay.as_mut().filter(|replay| *replay.key() == event.key) {
                replay.take(event, &mut found);
            }
        }
        ledger.found(differences).await;
    }
    while let Some(done) = replay.take() {
        differences.append(&mut settle(ledger, shard, done, &mut wanted, std::mem::take(&mut found)).await?);
        replay = rows.next().map(Replay::new);
    }
    beside::compare(ledger, shard, (before, &last.columns.key), wanted, differences).await
}

/// Ends the replay of a run. What was found of it is nothing where it was purged or redacted since its row was read: a
/// redaction rewrites the events before it.
async fn settle(
    ledger: &Ledger,
    shard: Shard,
    mut replay: Replay<'_>,
    wanted: &mut BTreeMap<RunKey, Wanted>,
    mut found: Vec<Difference>,
) -> Result<Vec<Difference>, StoreError> {
    let key = replay.key();
    if replay.is_cut() {
        let row = row_now(ledger, shard, key).await?;
        if row.is_some_and(|row| row.columns.purged_at.is_some()) {
            return Ok(Vec::new());
        }
    }
    let revision = replay.revision();
    let rows = replay.wanted();
    replay.end(&mut found);
    if !found.is_empty() && is_redacted_since(ledger, key, revision).await? {
        return Ok(Vec::new());
    }
    wanted.insert(key.clone(), rows);
    Ok(found)
}

/// Whether a run was redacted after a revision.
async fn is_redacted_since(ledger: &Ledger, key: &RunKey, revision: i64) -> Result<bool, StoreError> {
    let mut after = u64::try_from(revision).map_or(Revision::NONE, Revision::from);
    loop {
        let page = patiently(PATIENCE, || ledger.inspect.run_events(key, after, EVENTS_MAX, PAGE_BYTES_MAX)).await;
        let page = match page {
            Ok(page) => page,
            Err(StoreError::Corrupt { .. }) => return Ok(false),
            Err(error) => return Err(error),
        };
        let Some(last) = page.last() else { return Ok(false) };
        if page.iter().any(|event| event.event_type == EventType::Redacted) {
            return Ok(true);
        }
        after = last.revision;
    }
}

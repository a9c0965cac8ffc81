//! Every event of a shard in its place in the log, and the shards themselves.

use super::difference::{Difference, Row};
use super::{Ledger, PATIENCE, patiently};
use crate::domain::Shard;
use crate::domain::ids::shard_of;
use crate::store::StoreError;
use crate::store::inspect::{PlaceRow, Tombstones};

/// Positions are dense from 1 but for those of purged runs, and every event has a run that has come at
/// least as far.
pub(super) async fn walk(ledger: &Ledger, shard: Shard) -> Result<(), StoreError> {
    let mut differences = Vec::new();
    let mut after = i64::MIN;
    let mut end: Option<i64> = None;
    let mut gaps = Gaps::default();
    let before = patiently(PATIENCE, || ledger.inspect.tombstones(shard)).await?;
    loop {
        let page = patiently(PATIENCE, || ledger.inspect.place_rows(shard, after)).await?;
        let Some(last) = page.last() else {
            let since = patiently(PATIENCE, || ledger.inspect.tombstones(shard)).await?;
            gaps.are_of(shard, before, since, &mut differences);
            ledger.found(&mut differences).await;
            return Ok(());
        };
        after = last.position;
        ledger.count_events(page.len());
        for place in page {
            let key = format!("shard {} position {}", shard.0, place.position);
            let mut said = Row { table: "run_events", key: &key, differences: &mut differences };
            follows(&place, end, &mut gaps, &mut said);
            has_run(ledger, shard, &place, &mut said);
            end = Some(place.position);
        }
        ledger.found(&mut differences).await;
    }
}

/// The positions that are missing in a shard's log.
#[derive(Default)]
struct Gaps {
    missing: i64,
    /// The last of them.
    last: i64,
    /// The first gaps, should none be of a purged run.
    first: Vec<Difference>,
}

/// Gaps that are told one by one.
const TOLD_MAX: usize = 1_000;

impl Gaps {
    /// The missing positions must be as many as the purged runs had events, and none above what was noted with the purges.
    /// Runs may be purged while the log is read: their events are missing for the rest of it, or not.
    fn are_of(self, shard: Shard, before: Tombstones, since: Tombstones, differences: &mut Vec<Difference>) {
        if since.runs == 0 {
            differences.extend(self.first);
            return;
        }
        let key = format!("shard {}", shard.0);
        let mut said = Row { table: "run_events", key: &key, differences };
        if !(before.events..=since.events).contains(&self.missing) {
            let expected = format!("{} missing, as {} purged runs had events", since.events, since.runs);
            said.differs("position", expected, format!("{} missing", self.missing));
        }
        if self.last > since.upto {
            let expected = format!("every position above {}, up to which runs were purged", since.upto);
            said.differs("position", expected, format!("none at {}", self.last));
        }
    }
}

fn follows(place: &PlaceRow, end: Option<i64>, gaps: &mut Gaps, said: &mut Row<'_>) {
    let expected = end.map_or(1, |position| position.saturating_add(1));
    if place.position > expected {
        gaps.missing += place.position - expected;
        gaps.last = place.position - 1;
        if gaps.first.len() < TOLD_MAX {
            Row { differences: &mut gaps.first, ..*said }.differs("position", expected, place.position);
        }
    } else if place.position < expected {
        said.differs("position", expected, place.position);
    }
}

fn has_run(ledger: &Ledger, shard: Shard, place: &PlaceRow, said: &mut Row<'_>) {
    let PlaceRow { key, revision, .. } = place;
    let known = ledger.inspect.ledger();
    let home = shard_of(known.id, known.shard_count, key);
    if home != shard {
        said.differs("shard", home.0, shard.0);
    }
    match place.run_revision {
        None => said.differs("run_id", "an event of a run", format!("no run {}/{}", key.namespace, key.run_id)),
        Some(run) if run < *revision => {
            let run_id = format!("{}/{}", key.namespace, key.run_id);
            said.differs("revision", format!("{run} at most, as {run_id} has"), revision);
        }
        Some(_) => {}
    }
}

/// The ledger has the shards that it says, and no other.
pub(super) async fn shards(ledger: &Ledger) -> Result<(), StoreError> {
    let count = ledger.inspect.ledger().shard_count;
    let found = patiently(PATIENCE, || ledger.inspect.shard_rows()).await?;
    let mut differences = Vec::new();
    let expected: Vec<i64> = (0..i64::from(count)).collect();
    let mut said = Row { table: "shards", key: "all", differences: &mut differences };
    said.same("shard", &expected, &found.shards);
    differences.extend(found.strays.into_iter().map(|(table, shard)| Difference {
        table,
        key: format!("shard {shard}"),
        what: "shard".to_owned(),
        expected: format!("0 to {}", count - 1),
        found: shard.to_string(),
    }));
    ledger.found(&mut differences).await;
    Ok(())
}

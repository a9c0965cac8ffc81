//! What stands beside the runs of a page: held against what their events say.

use std::collections::{BTreeMap, BTreeSet};

use super::difference::{Difference, Row};
use super::replay::{Expected, Place};
use super::runs::revision_now;
use super::{Ledger, PATIENCE, patiently};
use crate::domain::{ContentDigest, ContentRow, ContentTable, RunKey, Shard};
use crate::store::StoreError;
use crate::store::contents;

/// What must stand beside the runs of a page, each with its revision; none where that is not known.
pub(super) type Wanted = BTreeMap<RunKey, (i64, Option<BTreeMap<Place, Expected>>)>;

/// Goes through the rows of the tables between two runs. A run that was redacted, purged or written since its row was read
/// is left out: its revision is another one now.
pub(super) async fn compare(
    ledger: &Ledger,
    shard: Shard,
    (before, last): (&RunKey, &RunKey),
    mut wanted: Wanted,
    differences: &mut Vec<Difference>,
) -> Result<(), StoreError> {
    let mut found: BTreeMap<RunKey, Vec<Difference>> = BTreeMap::new();
    for table in ContentTable::ALL {
        let mut after = (before.clone(), i64::MAX);
        loop {
            let page =
                patiently(PATIENCE, || ledger.inspect.content_rows(table, shard, (&after.0, after.1), last)).await?;
            let Some(end) = page.last() else { break };
            after = (end.key.clone(), contents::place(end));
            for row in page {
                if let Some((revision, Some(expected))) = wanted.get_mut(&row.key) {
                    row_of(&row, *revision, expected, found.entry(row.key.clone()).or_default());
                }
            }
        }
    }
    for (key, (_, expected)) in &wanted {
        for ((table, revision, number), _) in expected.iter().flatten() {
            let key_of_row = shown(key, *table, *revision, *number);
            let missing = found.entry(key.clone()).or_default();
            let mut said = Row { table: table.name(), key: &key_of_row, differences: missing };
            said.differs("row", "one, as the event says", "none");
        }
    }
    let suspects: BTreeSet<RunKey> =
        found.iter().filter(|(_, differences)| !differences.is_empty()).map(|(key, _)| key.clone()).collect();
    for key in suspects {
        let known = wanted.get(&key).map(|(revision, _)| *revision);
        if known.is_some() && revision_now(ledger, shard, &key).await? == known {
            differences.append(found.entry(key).or_default());
        }
    }
    Ok(())
}

fn row_of(row: &ContentRow, upto: i64, expected: &mut BTreeMap<Place, Expected>, differences: &mut Vec<Difference>) {
    let revision = i64::try_from(row.revision.get()).unwrap_or(i64::MAX);
    if revision > upto {
        return;
    }
    let key = shown(&row.key, row.table, revision, row.number);
    let mut said = Row { table: row.table.name(), key: &key, differences };
    match expected.remove(&(row.table, revision, row.number)) {
        None => said.differs("row", "none: no event says so", "one"),
        Some(Expected::Content(digest)) => {
            let found = ContentDigest::of(&row.content);
            said.same("bytes", &digest.bytes, &found.bytes);
            said.same("sha256", &digest.sha256, &found.sha256);
        }
        Some(Expected::Link(link)) => match contents::link(row) {
            Err(error) => said.unreadable(&error),
            Ok(found) => {
                let value = |link: &crate::domain::Link| serde_json::to_value(link).expect("strings serialize");
                said.same_fields("content", &value(&link), &value(&found));
                if row.link_key.is_some() {
                    said.same("link_key", &Some(link.key()), &row.link_key);
                }
            }
        },
    }
}

fn shown(key: &RunKey, table: ContentTable, revision: i64, number: u32) -> String {
    let run = format!("{}/{}", key.namespace, key.run_id);
    match table {
        ContentTable::Input | ContentTable::Result => format!("{run} revision {revision}"),
        ContentTable::Link => format!("{run} link {number}"),
    }
}

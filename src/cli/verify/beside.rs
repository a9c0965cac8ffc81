//! What stands beside the runs of a page: held against what their events say.

use std::collections::{BTreeMap, BTreeSet};

use super::difference::{Difference, Row};
use super::replay::{Expected, Place, Wanted};
use super::row_now::row_now;
use super::{Ledger, PATIENCE, patiently};
use crate::domain::{ContentDigest, ContentTable, RunKey, Shard};
use crate::store::StoreError;
use crate::store::inspect::BesideRow;

/// Goes through the rows of the tables between two runs. A run that was redacted, purged or written since its row was read
/// is left out: its revision is another one now, or it is purged.
pub(super) async fn compare(
    ledger: &Ledger,
    shard: Shard,
    (before, last): (&RunKey, &RunKey),
    mut wanted: BTreeMap<RunKey, Wanted>,
    differences: &mut Vec<Difference>,
) -> Result<(), StoreError> {
    let mut found: BTreeMap<RunKey, Vec<Difference>> = BTreeMap::new();
    for table in ContentTable::ALL {
        let mut after = (before.clone(), i64::MAX);
        loop {
            let page =
                patiently(PATIENCE, || ledger.inspect.content_rows(table, shard, (&after.0, after.1), last)).await?;
            let Some(end) = page.last() else { break };
            after = (end.key.clone(), end.place());
            for row in page {
                if let Some(Wanted { rows: Some(expected), .. }) = wanted.get_mut(&row.key) {
                    row_of(&row, expected, found.entry(row.key.clone()).or_default());
                }
            }
        }
    }
    for (key, run) in &wanted {
        for place in run.rows.iter().flatten().map(|(place, _)| place) {
            let key_of_row = shown(key, *place);
            let missing = found.entry(key.clone()).or_default();
            let mut said = Row { table: place.0.name(), key: &key_of_row, differences: missing };
            said.differs("row", "one, as the event says", "none");
        }
    }
    let suspects: BTreeSet<RunKey> =
        found.iter().filter(|(_, differences)| !differences.is_empty()).map(|(key, _)| key.clone()).collect();
    for key in suspects {
        let now = row_now(ledger, shard, &key).await?;
        let now = now.map(|row| (row.columns.revision, row.columns.purged_at.is_some()));
        if wanted.get(&key).map(|run| (run.revision, run.is_purged)) == now {
            differences.append(found.entry(key).or_default());
        }
    }
    Ok(())
}

fn row_of(row: &BesideRow, expected: &mut BTreeMap<Place, Expected>, differences: &mut Vec<Difference>) {
    let place = (row.table, row.revision, row.number);
    let key = shown(&row.key, place);
    let mut said = Row { table: row.table.name(), key: &key, differences };
    let Some(Expected { content, link_key }) = expected.remove(&place) else {
        said.differs("row", "none: no event says so", "one");
        return;
    };
    let found = ContentDigest::new(&row.content);
    said.same("bytes", &content.bytes, &found.bytes);
    said.same("sha256", &content.sha256, &found.sha256);
    if let Some((link_key, may_be_none)) = link_key
        && !(may_be_none && row.link_key.is_none())
        && row.link_key.as_deref() != Some(link_key.as_bytes())
    {
        said.differs(
            "link_key",
            "the hash of its rel and target",
            if row.link_key.is_some() { "another" } else { "none" },
        );
    }
}

fn shown(key: &RunKey, (table, revision, number): Place) -> String {
    let run = format!("{}/{}", key.namespace, key.run_id);
    match table {
        ContentTable::Input | ContentTable::Result => format!("{run} revision {revision}"),
        ContentTable::Link => format!("{run} link {number}"),
    }
}

//! The row of one run, read again after its place in a page.

use super::{Ledger, PATIENCE, patiently};
use crate::domain::{RunId, RunKey, Shard};
use crate::store::StoreError;
use crate::store::inspect::RunRow;

/// The row of a run as it is now.
pub(super) async fn row_now(ledger: &Ledger, shard: Shard, key: &RunKey) -> Result<Option<RunRow>, StoreError> {
    let mut before = key.clone();
    // The greatest key below it of the same length: what comes after that is the run, or comes before it.
    before.run_id = just_before(&key.run_id);
    loop {
        let page = patiently(PATIENCE, || ledger.inspect.run_rows(shard, &before)).await?;
        let Some(last) = page.last() else { return Ok(None) };
        before.clone_from(&last.columns.key);
        if before >= *key {
            return Ok(page.into_iter().find(|row| row.columns.key == *key));
        }
    }
}

/// A text that comes before a run's id, and after most others that do.
fn just_before(run_id: &RunId) -> RunId {
    let mut text = run_id.to_string();
    let last = text.pop();
    // Ids are ASCII: the character before the last one, followed by the greatest, is below the id.
    if let Some(before) = last.map(u32::from).and_then(|last| char::from_u32(last.checked_sub(1)?)) {
        text.push(before);
        text.push(char::MAX);
    }
    text.into()
}

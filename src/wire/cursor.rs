//! The cursor that resumes a watch of many runs. Opaque to clients, and sealed: it opens for its ledger and namespace
//! alone, with any filter, and shows nothing of the log, in which other namespaces have events too. Its length depends on
//! the number of shards, on the last run that was shown, and on for how many times the namespace keeps its runs.

use prost::Message;

use super::seal::{Binding, OVERHEAD_MAX, Opened, Purpose, Seals, text_bytes};
use crate::domain::limits::RUN_ID_BYTES_MAX;
use crate::domain::{LedgerEpoch, Positions, Time};
use crate::feed::cursor::{Cursor, View, ViewOf};
use crate::store::Ledger;
use crate::store::query::Place;
use crate::store::retention::Walked;

/// The most shards that a ledger has, as the table of the ledger says.
const SHARDS_MAX: usize = 1024;
/// Bytes of a shard's position.
const POSITION_BYTES_MAX: usize = 8;
/// A longer text is no cursor: a view, its place and its walks take less than 448 bytes beside the run's id.
pub const CURSOR_BYTES_MAX: usize = text_bytes(OVERHEAD_MAX + SHARDS_MAX * POSITION_BYTES_MAX + 448 + RUN_ID_BYTES_MAX);

/// The refusal of a cursor: one answer for noise, for a cursor of another ledger or namespace, and for one ahead of the
/// ledger.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the cursor is not one that was given out here")]
pub struct CursorInvalid;

/// The content of a cursor beside its epoch: later releases may add fields. A position always takes eight bytes, so that
/// the length does not tell how much the ledger holds.
#[derive(Clone, PartialEq, Message)]
struct Content {
    #[prost(fixed64, repeated, tag = "1")]
    positions: Vec<u64>,
    /// 0: the first view is over; 1: of active runs; 2: of all.
    #[prost(uint32, tag = "2")]
    view: u32,
    #[prost(message, optional, tag = "3")]
    shown: Option<PlaceMessage>,
    /// Of a view of all runs. Cursors of releases before 0.8 have none, as where nothing was ever purged.
    #[prost(message, repeated, tag = "4")]
    walked: Vec<Walk>,
}

#[derive(Clone, PartialEq, Message)]
struct Walk {
    #[prost(fixed64, tag = "1")]
    keep_ms: u64,
    #[prost(fixed64, tag = "2")]
    digest: u64,
}

#[derive(Clone, PartialEq, Message)]
struct PlaceMessage {
    #[prost(sfixed64, tag = "1")]
    started_at: i64,
    #[prost(string, tag = "2")]
    run_id: String,
}

/// The cursor as clients get it.
#[must_use]
pub fn encode(cursor: &Cursor, seals: &Seals, namespace: &str) -> String {
    let view = match cursor.view.as_ref().map(|view| view.of) {
        None => 0,
        Some(ViewOf::Active) => 1,
        Some(ViewOf::All) => 2,
    };
    let shown = cursor.view.as_ref().and_then(|view| view.shown.as_ref());
    let shown =
        shown.map(|place| PlaceMessage { started_at: place.started_at.micros(), run_id: place.run_id.to_string() });
    let walked = cursor.view.iter().flat_map(|view| view.walked.pairs());
    let walked = walked.map(|(keep_ms, digest)| Walk { keep_ms, digest }).collect();
    let content = Content { positions: cursor.positions.to_vec(), view, shown, walked };
    seals.seal(&binding(namespace), cursor.epoch, content.encoded_len(), |bytes| {
        content.encode(bytes).expect("a vector takes all");
    })
}

/// The cursor of whoever has every event of a namespace up to these positions.
#[must_use]
pub fn after(epoch: LedgerEpoch, positions: Positions, seals: &Seals, namespace: &str) -> String {
    encode(&Cursor { epoch, positions, view: None }, seals, namespace)
}

/// The epoch of the ledger that a cursor is of, which may be another than the ledger's as it is known here; none
/// where it was not given out for this namespace.
#[must_use]
pub fn epoch(text: &str, seals: &Seals, namespace: &str) -> Option<LedgerEpoch> {
    opened(text, seals, namespace).ok().map(|(epoch, _)| epoch)
}

/// The cursor in a text that a client sent.
///
/// # Errors
///
/// The cursor was not given out by this ledger, as it is now, for this namespace.
pub fn decode(text: &str, seals: &Seals, ledger: Ledger, namespace: &str) -> Result<Cursor, CursorInvalid> {
    let (epoch, content) = opened(text, seals, namespace)?;
    if epoch != ledger.epoch || content.positions.len() != usize::from(ledger.shard_count) {
        return Err(CursorInvalid);
    }
    let of = match content.view {
        0 => None,
        1 => Some(ViewOf::Active),
        2 => Some(ViewOf::All),
        _ => return Err(CursorInvalid),
    };
    let shown = content
        .shown
        .map(|shown| Place { started_at: Time::from_micros(shown.started_at), run_id: shown.run_id.into() });
    let walked: Walked = content.walked.into_iter().map(|Walk { keep_ms, digest }| (keep_ms, digest)).collect();
    Ok(Cursor { epoch, positions: content.positions.into(), view: of.map(|of| View { of, shown, walked }) })
}

/// The epoch and the content of a cursor of this ledger, whatever its epoch.
fn opened(text: &str, seals: &Seals, namespace: &str) -> Result<(LedgerEpoch, Content), CursorInvalid> {
    if text.len() > CURSOR_BYTES_MAX {
        return Err(CursorInvalid);
    }
    let Opened { epoch, content } = seals.open(&binding(namespace), text).ok_or(CursorInvalid)?;
    Content::decode(&*content).map(|content| (epoch, content)).map_err(|_| CursorInvalid)
}

fn binding(namespace: &str) -> Binding<'_> {
    Binding { purpose: Purpose::Cursor, namespace, question: &[] }
}

#[cfg(test)]
mod tests;

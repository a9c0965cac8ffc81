//! The ends of the shards: read here, and nowhere else.
//!
//! A shard's end is its newest event, to which the log's primary key leads: no commit writes it a second time.
//! Invariant: nothing ever deletes a shard's newest event. Without it, its position would be given out again, for
//! another event.

use std::sync::Arc;

use tokio_postgres::Row;

use super::min_release;
use super::rows::Reader;
use crate::domain::steady::PRESENT_MICROS;
use crate::domain::{LedgerEpoch, Position, Time};
use crate::store::StoreError;

/// A shard's newest event, if it has one: an index probe.
fn newest(shard: u16, columns: &str) -> String {
    format!("select {columns} from run_events where shard = {shard}::smallint order by position desc limit 1")
}

/// The newest event of each shard that has one.
pub(super) fn newest_events(shard_count: u16) -> String {
    of_each(shard_count, |shard| format!("({})", newest(shard, &format!("{shard}::bigint as shard, position, at"))))
}

/// Each shard's last position; 0 where it has no event.
pub(super) fn ends(shard_count: u16) -> String {
    of_each(shard_count, |shard| {
        format!("select {shard}::bigint as shard, coalesce(({}), 0) as position", newest(shard, "position"))
    })
}

fn of_each(shard_count: u16, statement: impl Fn(u16) -> String) -> String {
    (0..shard_count).map(statement).collect::<Vec<_>>().join("\nunion all\n")
}

/// The facts that a writer reads under its shard's head first: the store's clock, `min_release`, and the newest event
/// of each shard that has one. A statement of its own: its snapshot is younger than the wait for the head, and shows
/// every commit that was acknowledged before a command of this one was sent, and a `min_release` that was raised
/// meanwhile. The clock's name is not qualified, so that a schema in front of `pg_catalog` may give another time.
pub(super) fn statement(shard_count: u16) -> String {
    format!(
        "-- commit.ends
select clock_timestamp() as now, l.min_release, l.epoch, e.shard, e.position, e.at
from ledger l
left join ({}) as e on true
where l.singleton",
        newest_events(shard_count)
    )
}

/// The facts of that statement, seen from one shard.
#[derive(Debug)]
pub(super) struct Ends {
    /// The shard's last event: its position and time; none in an empty shard.
    pub(super) last: Option<(Position, Time)>,
    /// The latest time in the other shards, of those that are of the present.
    pub(super) elsewhere: Option<Time>,
    /// The store's clock.
    pub(super) now: Time,
    /// The release that the schema asks for, which is not above this one.
    pub(super) min_release: Arc<str>,
    pub(super) ledger_epoch: LedgerEpoch,
}

impl Ends {
    pub(super) fn read(rows: &[Row], shard: i16) -> Result<Self, StoreError> {
        let Some(first) = rows.first() else {
            let (key, source) = ("the only row".to_owned(), "it is missing".into());
            return Err(StoreError::Corrupt { table: "ledger", column: "singleton", key, source });
        };
        let min_release = min_release::admits(first)?.into();
        let ledger_epoch = Reader { table: "ledger", row: first, key: &|| "the only row".to_owned() }.get("epoch")?;
        let now: Time = Reader { table: "clock_timestamp()", row: first, key: &String::new }.get("now")?;
        let (mut last, mut elsewhere) = (None, None);
        for row in rows {
            let event = Reader { table: "run_events", row, key: &|| "the last of a shard".to_owned() };
            let Some(of) = event.get::<Option<i16>>("shard")? else { continue };
            let event = Reader { key: &|| format!("the last of shard {of}"), ..event };
            let at = event.get("at")?;
            if of == shard {
                last = Some((event.get("position")?, at));
            } else {
                elsewhere = elsewhere.max(Some(at).filter(|at: &Time| at.since(now) <= PRESENT_MICROS));
            }
        }
        Ok(Self { last, elsewhere, now, min_release, ledger_epoch })
    }
}

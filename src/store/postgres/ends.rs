//! What a writer reads under its shard's head first: where the shards end, the store's clock, and the fence.

use std::sync::Arc;

use tokio_postgres::Row;

use super::super::fence;
use super::super::rows::{At, Reader};
use super::statements::last_events;
use crate::domain::{Position, Time};
use crate::store::StoreError;

/// The clock, and the last event of each shard that has one. A statement of its own: its snapshot is younger than the
/// wait for the head, and shows every commit that was acknowledged before a command of this one was sent, and a
/// `min_release` that was raised meanwhile. The clock's name is not qualified, so that a schema in front of
/// `pg_catalog` may give another time.
pub(in crate::store::postgres) fn statement(shard_count: u16) -> String {
    format!(
        "-- commit.ends
select clock_timestamp() as now, l.min_release, l.epoch, e.shard, e.position, e.at
from ledger l
left join ({}) as e on true
where l.singleton",
        last_events(shard_count)
    )
}

/// What the statement says, seen from one shard.
#[derive(Debug)]
pub(in crate::store::postgres) struct Ends {
    /// The shard's last event: its position and time; none in an empty shard.
    pub(in crate::store::postgres) last: Option<(Position, Time)>,
    /// The latest time in the other shards.
    pub(in crate::store::postgres) elsewhere: Option<Time>,
    /// The store's clock.
    pub(in crate::store::postgres) now: Time,
    /// The release that the schema asks for, which is not above this one.
    pub(in crate::store::postgres) min_release: Arc<str>,
    /// The ledger's epoch.
    pub(in crate::store::postgres) ledger_epoch: u64,
}

impl Ends {
    pub(in crate::store::postgres) fn read(rows: &[Row], shard: i16) -> Result<Self, StoreError> {
        let Some(first) = rows.first() else {
            let (key, source) = ("the only row".to_owned(), "it is missing".into());
            return Err(StoreError::Corrupt { table: "ledger", column: "singleton", key, source });
        };
        let min_release = fence::admits(first)?.into();
        let ledger_epoch = Reader { table: "ledger", row: first }.unsigned("epoch", || "the only row".to_owned())?;
        let At(now) = Reader { table: "clock_timestamp()", row: first }.get("now", String::new)?;
        let (mut last, mut elsewhere) = (None, None);
        for row in rows {
            let event = Reader { table: "run_events", row };
            let of: Option<i64> = event.get("shard", || "the last of a shard".to_owned())?;
            let Some(of) = of else { continue };
            let place = || format!("the last of shard {of}");
            let At(at) = event.get("at", place)?;
            if of == i64::from(shard) {
                last = Some((event.unsigned("position", place)?, at));
            } else {
                elsewhere = elsewhere.max(Some(at));
            }
        }
        Ok(Self { last, elsewhere, now, min_release, ledger_epoch })
    }
}

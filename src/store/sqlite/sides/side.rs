//! What a side is to this store.

use std::sync::Arc;

use rusqlite::Transaction;

use crate::domain::{Run, Shard, SideWrites, Sides, Time, Wanted};
use crate::store::StoreError;
use crate::store::sqlite::uptime::UptimeClock;
use crate::store::sqlite::writer::Writer;

type Load = fn(&Loading<'_>, &mut Sides) -> Result<(), StoreError>;

/// At this time of the steady clock.
type Write = fn(&Writer<'_>, &SideWrites, Time) -> Result<(), StoreError>;

/// How the rows of a side are read and written.
pub(super) struct Side {
    pub(super) load: Option<Load>,
    pub(super) write: Option<Write>,
}

/// The rows that are wanted.
pub(in crate::store::sqlite) struct Loading<'a> {
    pub(in crate::store::sqlite) transaction: &'a Transaction<'a>,
    pub(in crate::store::sqlite) shard: Shard,
    pub(in crate::store::sqlite) wanted: &'a Wanted,
    /// The runs of the commands.
    pub(in crate::store::sqlite) runs: &'a [Arc<Run>],
    pub(in crate::store::sqlite) uptime: &'a UptimeClock,
}

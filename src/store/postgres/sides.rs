//! The sides of a decision: rows besides its run that a commit reads under the head, locks, and writes with the event.
//!
//! Commits of two shards share three kinds of locks: the rows of `max_running`, of `claims`, and of namespaces with a
//! quota. A commit takes them after the head and in this order, and several of one kind in the order of their keys.
//! While a commit waits for one, so does its shard, for 2 s at most where the holder is frozen.

pub(super) mod claims;
pub(super) mod contents;
pub(super) mod leases;
pub(super) mod lifecycles;
pub(super) mod max_running;
pub(super) mod namespaces;
mod side;
mod suspended;

use std::future::poll_fn;
use std::task::Poll;

use futures_util::future::maybe_done;
use tokio_postgres::types::ToSql;
use tokio_postgres::{Error, Row, Statement};

use self::side::{Reading, Side};
pub(super) use self::side::{Sending, Writing};
use super::parts::Parts;
use super::sessions::Session;
use crate::domain::sides::each_side;
use crate::domain::{SideWrites, Sides, Wanted};
use crate::store::StoreError;

macro_rules! all {
    ($($side:ident),+) => {
        static SIDES: &[Side] = &[$($side::SIDE),+];
    };
}
each_side!(all);

/// The statements of a side that a batch rests on, as a session has prepared them.
pub(super) struct Prepared {
    side: &'static Reading,
    lock: Option<Statement>,
    load: Statement,
}

/// Nothing is prepared, or sent, for a side of which no row is wanted.
pub(super) async fn prepared(session: &Session, wanted: &Wanted) -> Result<Vec<Prepared>, Error> {
    let mut prepared = Vec::new();
    for side in SIDES.iter().filter_map(|side| side.read.as_ref()) {
        let Some(load) = (side.load)(wanted) else { continue };
        let lock = match side.lock {
            None => None,
            Some(lock) => Some(session.prepare_cached(&lock()).await?),
        };
        prepared.push(Prepared { side, lock, load: session.prepare_cached(&load).await? });
    }
    Ok(prepared)
}

/// The rows of a side, as they came.
pub(super) struct Loaded {
    side: &'static Reading,
    rows: Vec<Row>,
}

/// Loads the sides whose rows commits of several shards share, or the others: `prepared` in its order, so that locks
/// are taken in it, and all statements go out in one write.
pub(super) async fn load(
    session: &Session,
    prepared: &[Prepared],
    wanted: &Wanted,
    sending: &Sending<'_>,
    are_shared: bool,
) -> Result<Vec<Loaded>, Error> {
    let asked = prepared.iter().filter(|side| side.lock.is_some() == are_shared);
    // Boxed: few commits need a side, and the future of every commit would have room for it.
    let rows = asked.map(|side| Box::pin(maybe_done(side.rows(session, wanted, sending))));
    let mut rows: Vec<_> = rows.collect();
    poll_fn(|context| {
        let left =
            rows.iter_mut().map(|rows| rows.as_mut().poll(context).is_pending()).filter(|is_left| *is_left).count();
        if left == 0 { Poll::Ready(()) } else { Poll::Pending }
    })
    .await;
    rows.iter_mut().map(|rows| rows.as_mut().take_output().expect("it was waited for")).collect()
}

/// Puts loaded rows where they belong.
pub(super) fn read(loaded: &[Loaded], wanted: &Wanted, sides: &mut Sides) -> Result<(), StoreError> {
    loaded.iter().try_for_each(|Loaded { side, rows }| rows.iter().try_for_each(|row| (side.read)(row, wanted, sides)))
}

impl Prepared {
    async fn rows(&self, session: &Session, wanted: &Wanted, sending: &Sending<'_>) -> Result<Loaded, Error> {
        let keys = (self.side.keys)(wanted, sending);
        let keys: Vec<&(dyn ToSql + Sync)> = keys.iter().map(|key| &**key as &(dyn ToSql + Sync)).collect();
        let load = session.query(&self.load, &keys);
        let rows = match &self.lock {
            None => load.await?,
            Some(lock) => {
                let (locked, loaded) = tokio::join!(biased; session.execute(lock, &keys), load);
                locked.and(loaded)?
            }
        };
        Ok(Loaded { side: self.side, rows })
    }
}

/// Adds what the sides write.
pub(super) fn write<'a>(parts: &mut Parts<'a>, to: &Writing<'_>, sides: &'a SideWrites) {
    SIDES.iter().filter_map(|side| side.write).for_each(|write| write(parts, to, sides));
}

/// Adds the conditions that what was remembered of the sides still holds.
pub(super) fn guard<'a>(parts: &mut Parts<'a>, remembered: &'a Sides, guard: &mut String) {
    let conditions = SIDES.iter().filter_map(|side| side.guard).filter_map(|side| side(parts, remembered));
    guard.extend(conditions);
}

//! The sides of a decision: rows besides its run that a commit reads and writes with the event. The one writer is
//! their lock.

pub(super) mod claims;
mod contents;
pub(super) mod leases;
pub(super) mod max_running;
mod namespaces;
mod side;
mod suspended;

pub(super) use self::side::Loading;
use self::side::Side;
use super::writer::Writer;
use crate::domain::sides::each_side;
use crate::domain::{SideWrites, Sides, Time};
use crate::store::StoreError;

macro_rules! all {
    ($($side:ident),+) => {
        const SIDES: &[Side] = &[$($side::SIDE),+];
    };
}
each_side!(all);

impl Loading<'_> {
    pub(super) fn sides(&self) -> Result<Sides, StoreError> {
        let mut sides = Sides::default();
        SIDES.iter().filter_map(|side| side.load).try_for_each(|load| load(self, &mut sides))?;
        sides.acts_from = self.wanted.acts_from.then(|| leases::acts_from(&self.uptime.seen()));
        Ok(sides)
    }
}

/// At this time of the steady clock.
pub(super) fn write(writer: &Writer<'_>, sides: &SideWrites, now: Time) -> Result<(), StoreError> {
    SIDES.iter().filter_map(|side| side.write).try_for_each(|write| write(writer, sides, now))
}

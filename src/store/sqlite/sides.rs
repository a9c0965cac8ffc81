//! The sides of a decision: rows besides its run that a commit reads and writes with the event. The one writer is
//! their lock.

pub(super) mod claims;
pub(super) mod contents;
pub(super) mod leases;
pub(super) mod max_running;
mod suspended;

use std::collections::BTreeSet;
use std::sync::Arc;

use rusqlite::Transaction;

use super::namespaces;
use super::uptime::UptimeClock;
use super::writer::Writer;
use crate::domain::{LabelValue, Run, RunKey, Shard, SideWrites, Sides, Time, Wanted};
use crate::store::StoreError;

pub(super) fn load(
    transaction: &Transaction<'_>,
    shard: Shard,
    wanted: &Wanted,
    runs: &[Arc<Run>],
    uptime: &UptimeClock,
) -> Result<Sides, StoreError> {
    let mut sides = Sides::default();
    for key in &wanted.leases {
        let lease = leases::held(transaction, shard, key, uptime)?;
        sides.leases.extend(lease.map(|lease| (key.clone(), lease)));
    }
    let value_of = |(key, label): &(RunKey, String)| LabelValue::of(runs.iter().find(|run| run.key() == *key)?, label);
    for value in wanted.max_running.iter().filter_map(value_of).collect::<BTreeSet<LabelValue>>() {
        let counted = max_running::running(transaction, &value)?;
        sides.max_running.push((value, counted));
    }
    for key in &wanted.claims {
        sides.claims.extend(claims::claimed(transaction, key)?.map(|claimed| (key.clone(), claimed)));
    }
    for name in &wanted.namespaces {
        sides.namespaces.extend(namespaces::of_creation(transaction, name)?);
    }
    sides.acts_from = wanted.acts_from.then(|| leases::acts_from(&uptime.seen()));
    for key in &wanted.contents {
        contents::load_links(transaction, shard, key, &mut sides.contents)?;
    }
    Ok(sides)
}

/// At this time of the steady clock.
pub(super) fn write(writer: &Writer<'_>, sides: &SideWrites, now: Time) -> Result<(), StoreError> {
    for (key, lease) in &sides.leases {
        leases::write(writer, key, *lease, now)?;
    }
    for (key, rest) in &sides.rests {
        suspended::write(writer, key, rest.as_ref())?;
    }
    for (value, run_ids) in &sides.max_running {
        max_running::write(writer.transaction, writer.shard, value, run_ids, now)?;
    }
    for (key, claimed) in &sides.claims {
        claims::write(writer.transaction, key, claimed.as_ref(), now)?;
    }
    for row in sides.contents.iter().flatten() {
        contents::write(writer, row)?;
    }
    Ok(())
}

//! One batch in one transaction: read, decide, write, and find the outcome.

pub(super) mod load;
pub(super) mod redact;
pub(super) mod settle;
pub(super) mod write;

use std::sync::Arc;

use rusqlite::Connection;
use tokio::time::Instant;
use uuid::Uuid;

use super::uptime::UptimeClock;
use super::writer::begin;
use super::{errors, lifecycles};
use crate::domain::{Command, Decide, Decided, Shard};
use crate::store::lifecycles::Versions;
use crate::store::{CommitError, Unsettled, metrics};
use crate::telemetry::record;

/// Commits a batch, and tells how.
pub(super) fn commit(
    connection: &mut Connection,
    shard: Shard,
    commit_id: Uuid,
    commands: &[Arc<Command>],
    rules: &dyn Decide,
    (clock, versions): (&UptimeClock, &Versions),
) -> Result<Decided, CommitError> {
    let began = Instant::now();
    let committed = write_and_commit(connection, shard, commit_id, commands, rules, (clock, versions));
    record::commit(metrics::WRITER, metrics::outcome(&committed), began.elapsed());
    committed
}

/// Makes the commit. An early return or a panic drops the transaction, which rolls back.
fn write_and_commit(
    connection: &mut Connection,
    shard: Shard,
    commit_id: Uuid,
    commands: &[Arc<Command>],
    rules: &dyn Decide,
    (clock, versions): (&UptimeClock, &Versions),
) -> Result<Decided, CommitError> {
    let transaction = begin(connection)?;
    let mut loaded = load::load(&transaction, shard, commands, &rules.wanted(commands), clock)?;
    loaded.sides.lifecycles = lifecycles::found(&transaction, rules.lifecycles(commands, &loaded.runs), versions)?;
    let mut decided = rules.decide(commands, loaded);
    let Some(first_position) = decided.events.first().map(|event| event.position) else {
        return Ok(decided);
    };
    decided.values_redacted = redact::rewrite(&transaction, shard, &decided.events, decided.nothing_up_to)?;
    write::write(&transaction, shard, commit_id, &decided, clock.steady().now)?;
    // So that the steady clock goes on from no time before the newest event, whenever this process ends.
    let stamped = if clock.is_stale() { Some(clock.stamp(&transaction)?) } else { None };
    match transaction.execute_batch("COMMIT") {
        Ok(()) => {
            if let Some(stamp) = stamped {
                clock.kept(stamp);
            }
            Ok(decided)
        }
        Err(error) if errors::wrote_nothing(&transaction, &error) => {
            Err(CommitError::NotApplied(errors::statement(error)))
        }
        Err(error) => {
            let unsettled = Box::new(Unsettled { shard, commit_id, first_position, decided });
            Err(CommitError::Unknown { unsettled, source: error.into() })
        }
    }
}

//! The facts that a batch is decided on, read after the transaction has begun to write.

use std::collections::HashSet;
use std::sync::Arc;

use rusqlite::Transaction;

use crate::domain::ids::request_key;
use crate::domain::steady::{PRESENT_MICROS, after_all};
use crate::domain::{Command, LedgerEpoch, Loaded, Position, Run, RunKey, Shard, Time, Wanted};
use crate::store::StoreError;
use crate::store::rows::events;
use crate::store::sqlite::rows::first;
use crate::store::sqlite::sides::Loading;
use crate::store::sqlite::uptime::UptimeClock;
use crate::store::sqlite::{ends, read};

/// Finds a request by the short key and compares the texts: two requests may share a key. The plus signs keep SQLite
/// from walking all events of the run instead.
const REQUEST: &str = "-- commit.load_request_ids
select revision, request_digest from run_events
 where shard = ?1 and request_key = ?2 and +namespace = ?3 and +run_id = ?4 and request_id = ?5";

/// Reads the shard's end, the clock, the commands' runs, and those of their request ids that were applied before.
pub(in crate::store::sqlite) fn load(
    transaction: &Transaction<'_>,
    shard: Shard,
    commands: &[Arc<Command>],
    wanted: &Wanted,
    uptime: &UptimeClock,
) -> Result<Loaded, StoreError> {
    let (position, now) = place(transaction, shard, uptime.clock())?;
    let keys: HashSet<&RunKey> = commands.iter().map(|command| &command.key).collect();
    let mut runs: Vec<Arc<Run>> = Vec::with_capacity(keys.len());
    for key in keys {
        runs.extend(read::run(transaction, shard, key)?.map(Arc::new));
    }
    let asked: HashSet<(&RunKey, &str)> = commands
        .iter()
        .filter_map(|command| command.request.as_ref().map(|request| (&command.key, request.id.as_str())))
        .collect();
    let mut requests = Vec::new();
    for (key, id) in asked {
        let values = (shard.0, request_key(key, id), key.namespace.as_str(), key.run_id.as_str(), id);
        let applied = first(transaction, REQUEST, values, |row| events::applied(row, key))?;
        requests.extend(applied.map(|applied| (key.clone(), id.to_owned(), applied)));
    }
    let sides = Loading { transaction, shard, wanted, runs: &runs, uptime }.sides()?;
    let steady = uptime.steady();
    Ok(Loaded { last: position, now, steady, runs, requests, sides, ledger_epoch: LedgerEpoch::FIRST })
}

/// The shard's last position, and the time that an event after it may bear.
fn place(transaction: &Transaction<'_>, shard: Shard, clock: Time) -> Result<(Position, Time), StoreError> {
    let (last, at) = ends::last(transaction, shard)?.unzip();
    let elsewhere = ends::elsewhere(transaction, shard, clock.plus_micros(PRESENT_MICROS))?;
    Ok((last.unwrap_or(0), after_all(clock, at, elsewhere)))
}

//! What a batch is decided on, read after the transaction has begun to write.

use std::collections::HashSet;
use std::sync::Arc;

use rusqlite::Transaction;

use crate::clock::Clock;
use crate::domain::decide::AppliedRequest;
use crate::domain::ids::request_key;
use crate::domain::{Command, Loaded, Run, RunKey, Shard, Wanted};
use crate::store::StoreError;
use crate::store::bulk::End;
use crate::store::sqlite::ends;
use crate::store::sqlite::errors;
use crate::store::sqlite::rows::{self, Cell};
use crate::store::sqlite::sides;
use crate::store::sqlite::uptime::UptimeClock;

/// Reads the shard's end, the clock, the commands' runs, and those of their request ids that were applied before.
pub(in crate::store::sqlite) fn load(
    transaction: &Transaction<'_>,
    shard: Shard,
    commands: &[Arc<Command>],
    sides: &Wanted,
    uptime: &UptimeClock,
) -> Result<Loaded, StoreError> {
    let last = ends::last(transaction, shard)?;
    let clock = uptime.now();
    let now = rows::after_all(clock, ends::elsewhere(transaction, shard)?);
    let keys: HashSet<&RunKey> = commands.iter().map(|command| &command.key).collect();
    let mut runs: Vec<Arc<Run>> = Vec::with_capacity(keys.len());
    for key in keys {
        runs.extend(rows::run(transaction, shard, key)?.map(Arc::new));
    }
    let asked: HashSet<(&RunKey, &str)> = commands
        .iter()
        .filter_map(|command| command.request.as_ref().map(|request| (&command.key, request.id.as_str())))
        .collect();
    let mut requests = Vec::new();
    for (key, id) in asked {
        let applied = applied_request(transaction, shard, key, id)?;
        requests.extend(applied.map(|applied| (key.clone(), id.to_owned(), applied)));
    }
    let sides = sides::load(transaction, shard, sides, &runs, uptime)?;
    Ok(Loaded { last, now, clock, runs, requests, sides, ledger_epoch: 0 })
}

/// What a load is decided on.
pub(in crate::store::sqlite) fn end(
    transaction: &Transaction<'_>,
    shard: Shard,
    clock: &dyn Clock,
) -> Result<End, StoreError> {
    let (last, elsewhere) = (ends::last(transaction, shard)?, ends::elsewhere(transaction, shard)?);
    Ok(End { last, elsewhere, now: clock.now() })
}

/// Finds by the short key and compares the texts: two requests may share a key. The plus signs keep SQLite from walking
/// all events of the run instead.
fn applied_request(
    transaction: &Transaction<'_>,
    shard: Shard,
    key: &RunKey,
    id: &str,
) -> Result<Option<AppliedRequest>, StoreError> {
    let mut statement = transaction
        .prepare_cached(
            "-- commit.load_request_ids
             select revision, request_digest from run_events
              where shard = ?1 and request_key = ?2 and +namespace = ?3 and +run_id = ?4 and request_id = ?5",
        )
        .map_err(errors::statement)?;
    let mut rows =
        statement.query((shard.0, request_key(key, id), &key.namespace, &key.run_id, id)).map_err(errors::statement)?;
    let Some(row) = rows.next().map_err(errors::statement)? else { return Ok(None) };
    let cell = Cell { table: "run_events", key: &|| rows::shown(key) };
    let revision = cell.count(row, 0, "revision")?;
    let digest = cell.get(row, 1, "request_digest")?;
    Ok(Some(AppliedRequest { revision, digest }))
}

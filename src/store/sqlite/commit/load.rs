//! What a batch is decided on, read after the transaction has begun to write.

use std::collections::HashSet;
use std::sync::Arc;

use rusqlite::Transaction;

use crate::clock::Clock;
use crate::domain::ids::request_key;
use crate::domain::{Command, Loaded, Position, Run, RunKey, Shard, Time, Wanted};
use crate::store::StoreError;
use crate::store::bulk::End;
use crate::store::rows::events;
use crate::store::sqlite::rows::{Reader, after_all, first};
use crate::store::sqlite::uptime::UptimeClock;
use crate::store::sqlite::{read, sides};

const LAST: &str = "-- commit.last
select position, at from run_events where shard = ?1 order by position desc limit 1";

const ELSEWHERE: &str = "-- commit.elsewhere
select max((select at from run_events as e where e.shard = s.shard order by position desc limit 1)) as at
  from shards as s where s.shard <> ?1";

/// Finds by the short key and compares the texts: two requests may share a key. The plus signs keep SQLite from walking
/// all events of the run instead.
const REQUEST: &str = "-- commit.load_request_ids
select revision, request_digest from run_events
 where shard = ?1 and request_key = ?2 and +namespace = ?3 and +run_id = ?4 and request_id = ?5";

/// Reads the shard's end, the clock, the commands' runs, and those of their request ids that were applied before.
pub(in crate::store::sqlite) fn load(
    transaction: &Transaction<'_>,
    shard: Shard,
    commands: &[Arc<Command>],
    sides: &Wanted,
    uptime: &UptimeClock,
) -> Result<Loaded, StoreError> {
    let last = last(transaction, shard)?;
    let clock = uptime.now();
    let now = after_all(clock, elsewhere(transaction, shard)?);
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
        let values = (shard.0, request_key(key, id), &key.namespace, &key.run_id, id);
        let applied = first(transaction, REQUEST, values, |row| events::applied(row, key))?;
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
    Ok(End { last: last(transaction, shard)?, elsewhere: elsewhere(transaction, shard)?, now: clock.now() })
}

fn last(transaction: &Transaction<'_>, shard: Shard) -> Result<Option<(Position, Time)>, StoreError> {
    first(transaction, LAST, [shard.0], |row| {
        let event = Reader { table: "run_events", row, key: &|| format!("the last of shard {}", shard.0) };
        Ok((event.get((0, "position"))?, event.get((1, "at"))?))
    })
}

/// The latest time in the other shards.
fn elsewhere(transaction: &Transaction<'_>, shard: Shard) -> Result<Option<Time>, StoreError> {
    let at = first(transaction, ELSEWHERE, [shard.0], |row| {
        Reader { table: "run_events", row, key: &|| "the last of a shard".to_owned() }.get((0, "at"))
    });
    Ok(at?.flatten())
}

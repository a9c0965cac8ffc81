//! The first flush: takes the head and the rows of the sides, and reads the rows that the commands are decided on.

use std::collections::HashSet;
use std::sync::Arc;

use tokio_postgres::types::ToSql;
use tokio_postgres::{Error, Row, Statement};

use super::failed::{Failed, Failure};
use super::statements::{BEGIN, LOAD_REQUEST_IDS, LOAD_RUNS, LOCK_HEAD};

use crate::domain::decide::AppliedRequest;
use crate::domain::ids::request_key;
use crate::domain::steady::after_all;
use crate::domain::{Command, Loaded, Run, RunKey, Shard, Sides, Time, Wanted};
use crate::store::StoreError;
use crate::store::postgres::ends::Ends;
use crate::store::postgres::errors;
use crate::store::postgres::rows::{Reader, shown, smallint};
use crate::store::postgres::sessions::Session;
use crate::store::postgres::sides::{self, Sending};
use crate::store::postgres::uptime::ReplicaUptime;
use crate::store::rows::{self, events, runs};

/// The statements that a session has prepared for the first flush, before any transaction: only prepared statements
/// can be sent together in one write.
pub(super) struct Prepared {
    lock_head: Statement,
    ends: Statement,
    load_runs: Statement,
    load_request_ids: Statement,
    sides: Vec<sides::Prepared>,
}

impl Prepared {
    pub(super) async fn of(session: &Session, ends: &str, wanted: &Wanted) -> Result<Self, Error> {
        Ok(Self {
            sides: sides::prepared(session, wanted).await?,
            lock_head: session.prepare_cached(LOCK_HEAD).await?,
            ends: session.prepare_cached(ends).await?,
            load_runs: session.prepare_cached(LOAD_RUNS).await?,
            load_request_ids: session.prepare_cached(LOAD_REQUEST_IDS).await?,
        })
    }
}

/// The keys of the rows to read, column by column.
pub(super) struct Keys<'a> {
    namespaces: Vec<&'a str>,
    run_ids: Vec<&'a str>,
    requests: Vec<i64>,
}

impl<'a> Keys<'a> {
    pub(super) fn of(commands: &'a [Arc<Command>]) -> Self {
        let keys: HashSet<&RunKey> = commands.iter().map(|command| &command.key).collect();
        let requests: HashSet<i64> = commands
            .iter()
            .filter_map(|command| command.request.as_ref().map(|request| request_key(&command.key, &request.id)))
            .collect();
        Self {
            namespaces: keys.iter().map(|key| key.namespace.as_str()).collect(),
            run_ids: keys.iter().map(|key| key.run_id.as_str()).collect(),
            requests: requests.into_iter().collect(),
        }
    }
}

/// The results of the first flush.
pub(super) struct LoadedRuns {
    pub(super) loaded: Loaded,
    pub(super) now: Time,
    pub(super) min_release: Arc<str>,
}

pub(super) async fn load_runs(
    session: &Session,
    prepared: &Prepared,
    shard: i16,
    keys: &Keys<'_>,
) -> Result<Vec<Row>, Error> {
    session.query(&prepared.load_runs, &[&shard, &keys.namespaces, &keys.run_ids]).await
}

pub(super) fn read_runs(rows: &[Row]) -> Result<Vec<Arc<Run>>, StoreError> {
    rows.iter().map(|row| runs::run(row).map(Arc::new)).collect()
}

/// The first flush. The futures are polled in their order, so the statements go out in it, in one write.
pub(super) async fn lock_and_load(
    session: &Session,
    uptime: &ReplicaUptime,
    prepared: &Prepared,
    shard: Shard,
    (keys, wanted): (&Keys<'_>, &Wanted),
    with_runs: bool,
) -> Result<LoadedRuns, Failed> {
    let shard = smallint(shard);
    let by_shard: [&(dyn ToSql + Sync); 1] = [&shard];
    let sending = Sending { shard, uptime };
    let (begun, head, taken, ends, runs, requests, own) = tokio::join!(
        biased;
        session.batch_execute(BEGIN),
        session.query_opt(&prepared.lock_head, &by_shard),
        sides::load(session, &prepared.sides, wanted, &sending, true),
        session.query(&prepared.ends, &[]),
        async { if with_runs { load_runs(session, prepared, shard, keys).await } else { Ok(Vec::new()) } },
        load_requests(session, prepared, shard, keys),
        sides::load(session, &prepared.sides, wanted, &sending, false),
    );
    begun.map_err(retriable)?;
    if head.map_err(retriable)?.is_none() {
        let source = "the head is missing".into();
        return Err(StoreError::Corrupt { table: "shards", column: "shard", key: shard.to_string(), source }.into());
    }
    let taken = taken.map_err(retriable)?;
    let ends = Ends::read(&ends.map_err(retriable)?, shard)?;
    let (runs, requests, own) = (runs.map_err(retriable)?, requests.map_err(retriable)?, own.map_err(retriable)?);
    let mut sides = Sides::default();
    sides::read(&taken, wanted, &mut sides)?;
    sides::read(&own, wanted, &mut sides)?;
    let (last, at) = (ends.last.map_or(0, |(position, _)| position), ends.last.map(|(_, at)| at));
    let loaded = Loaded {
        last,
        now: after_all(ends.now, at, ends.elsewhere),
        steady: uptime.steady().beside(ends.now),
        runs: read_runs(&runs)?,
        requests: requests.iter().map(applied_of).collect::<Result<_, _>>()?,
        sides,
        ledger_epoch: ends.ledger_epoch,
    };
    Ok(LoadedRuns { loaded, now: ends.now, min_release: ends.min_release })
}

async fn load_requests(session: &Session, prepared: &Prepared, shard: i16, keys: &Keys<'_>) -> Result<Vec<Row>, Error> {
    if keys.requests.is_empty() {
        return Ok(Vec::new());
    }
    session.query(&prepared.load_request_ids, &[&shard, &keys.requests]).await
}

pub(super) fn retriable(error: Error) -> Failed {
    if errors::asks_for_retry(&error) { Failed::at(error, Failure::Again) } else { Failed::finally(error) }
}

fn applied_of(row: &Row) -> Result<(RunKey, String, AppliedRequest), StoreError> {
    let key = rows::key(row, "run_events", 0)?;
    let id = Reader { table: "run_events", row, key: &|| shown(&key) }.get("request_id")?;
    let applied = events::applied(row, &key)?;
    Ok((key, id, applied))
}

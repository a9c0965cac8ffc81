//! The first flush: takes the head and the rows of the sides, and reads the rows that the commands are decided on.

use std::collections::HashSet;
use std::sync::Arc;

use tokio_postgres::types::ToSql;
use tokio_postgres::{Error, Row, Statement};

use super::statements::{BEGIN, LOAD_REQUEST_IDS, LOAD_RUNS, LOCK_HEAD};
use super::{Failed, Failure};
use crate::domain::decide::AppliedRequest;
use crate::domain::ids::request_key;
use crate::domain::steady::after_all;
use crate::domain::{Command, Loaded, Namespace, Run, RunKey, Shard, Sides, Time, Wanted};
use crate::store::StoreError;
use crate::store::postgres::ends::Ends;
use crate::store::postgres::errors;
use crate::store::postgres::rows::{Reader, shown, smallint};
use crate::store::postgres::sessions::Session;
use crate::store::postgres::sides::{claims, contents, leases, max_running, namespaces};
use crate::store::postgres::uptime::ReplicaUptime;
use crate::store::postgres::uptime::statements::parameters;
use crate::store::rows::{self, events, runs, sides};

/// The statements that a session has prepared for the first flush, before any transaction: only prepared statements
/// can be sent together in one write.
pub(super) struct Prepared {
    lock_head: Statement,
    ends: Statement,
    load_runs: Statement,
    load_request_ids: Statement,
    /// Reads leases: only where a command looks at some.
    load_leases: Option<Statement>,
    /// Take, and read, the runs that count towards claims' limits: only where a claim has one.
    max_running: Option<(Statement, Statement)>,
    /// Take, and read, the claimers' requests: only where a command has one.
    claims: Option<(Statement, Statement)>,
    /// Take, and read, the namespaces of runs that may be created: only where one is not `default`.
    namespaces: Option<(Statement, Statement)>,
    /// Reads the links of runs: only where a command adds some.
    load_links: Option<Statement>,
}

impl Prepared {
    pub(super) async fn of(session: &Session, ends: &str, keys: &Keys<'_>) -> Result<Self, Error> {
        let load_leases = match keys.leases.0.as_slice() {
            [] => None,
            [_, ..] => Some(session.prepare_cached(&leases::load(keys.acts_from)).await?),
        };
        let max_running = if keys.max_running.0.is_empty() {
            None
        } else {
            let lock = session.prepare_cached(&max_running::lock()).await?;
            Some((lock, session.prepare_cached(&max_running::load()).await?))
        };
        let claims = if keys.claims.0.is_empty() {
            None
        } else {
            let lock = session.prepare_cached(claims::LOCK).await?;
            Some((lock, session.prepare_cached(claims::LOAD).await?))
        };
        let namespaces = if keys.created_in.is_empty() {
            None
        } else {
            let lock = session.prepare_cached(namespaces::LOCK).await?;
            Some((lock, session.prepare_cached(namespaces::LOAD).await?))
        };
        let load_links = match keys.links.0.as_slice() {
            [] => None,
            [_, ..] => Some(session.prepare_cached(contents::LOAD_LINKS).await?),
        };
        Ok(Self {
            load_links,
            load_leases,
            max_running,
            claims,
            namespaces,
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
    /// The namespaces and ids of runs whose leases are read.
    leases: (Vec<&'a str>, Vec<&'a str>),
    /// The namespaces and ids of runs, and the labels for whose values the counted runs are read.
    max_running: (Vec<&'a str>, Vec<&'a str>, Vec<&'a str>),
    /// The namespaces and ids of claim requests.
    claims: (Vec<&'a str>, Vec<&'a str>),
    /// The namespaces in which runs may be created.
    created_in: Vec<&'a str>,
    /// The namespaces and ids of runs whose links are read.
    links: (Vec<&'a str>, Vec<&'a str>),
    acts_from: bool,
}

impl<'a> Keys<'a> {
    pub(super) fn of(commands: &'a [Arc<Command>], sides: &'a Wanted) -> Self {
        let keys: HashSet<&RunKey> = commands.iter().map(|command| &command.key).collect();
        let requests: HashSet<i64> = commands
            .iter()
            .filter_map(|command| command.request.as_ref().map(|request| request_key(&command.key, &request.id)))
            .collect();
        let of_run = |key: &'a RunKey| (key.namespace.as_str(), key.run_id.as_str());
        let limit = |(key, label): &'a (RunKey, String)| (key.namespace.as_str(), key.run_id.as_str(), label.as_str());
        Self {
            namespaces: keys.iter().map(|key| key.namespace.as_str()).collect(),
            run_ids: keys.iter().map(|key| key.run_id.as_str()).collect(),
            requests: requests.into_iter().collect(),
            leases: sides.leases.iter().map(of_run).unzip(),
            max_running: sides.max_running.iter().map(limit).collect(),
            claims: sides.claims.iter().map(|(namespace, id)| (namespace.as_str(), id.as_str())).unzip(),
            created_in: sides.namespaces.iter().map(Namespace::as_str).collect(),
            links: sides.contents.iter().map(of_run).unzip(),
            acts_from: sides.acts_from,
        }
    }
}

/// The results of the first flush.
pub(super) struct Read {
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
    keys: &Keys<'_>,
    with_runs: bool,
) -> Result<Read, Failed> {
    let shard = smallint(shard);
    let by_shard: [&(dyn ToSql + Sync); 1] = [&shard];
    let (namespaces, run_ids, labels) = &keys.max_running;
    let by_label: [&(dyn ToSql + Sync); 4] = [&shard, namespaces, run_ids, labels];
    let (namespaces, request_ids) = &keys.claims;
    let by_claim: [&(dyn ToSql + Sync); 2] = [namespaces, request_ids];
    let by_name: [&(dyn ToSql + Sync); 1] = [&keys.created_in];
    let (begun, head, max_running, claims, namespaces, ends, runs, requests, leases, links) = tokio::join!(
        biased;
        session.batch_execute(BEGIN),
        session.query_opt(&prepared.lock_head, &by_shard),
        lock_and_load_side(session, prepared.max_running.as_ref(), &by_label),
        lock_and_load_side(session, prepared.claims.as_ref(), &by_claim),
        lock_and_load_side(session, prepared.namespaces.as_ref(), &by_name),
        session.query(&prepared.ends, &[]),
        async { if with_runs { load_runs(session, prepared, shard, keys).await } else { Ok(Vec::new()) } },
        load_requests(session, prepared, shard, keys),
        load_leases(session, uptime, prepared, shard, keys),
        load_links(session, prepared, shard, keys),
    );
    begun.map_err(retriable)?;
    if head.map_err(retriable)?.is_none() {
        let source = "the head is missing".into();
        return Err(StoreError::Corrupt { table: "shards", column: "shard", key: shard.to_string(), source }.into());
    }
    let (max_running, claims) = (max_running.map_err(retriable)?, claims.map_err(retriable)?);
    let namespaces = namespaces.map_err(retriable)?;
    let ends = Ends::read(&ends.map_err(retriable)?, shard)?;
    let (runs, requests) = (runs.map_err(retriable)?, requests.map_err(retriable)?);
    let (leases, links) = (leases.map_err(retriable)?, links.map_err(retriable)?);
    let mut sides = Sides {
        max_running: max_running.iter().map(max_running::counted).collect::<Result<_, _>>()?,
        claims: claims.iter().map(sides::claim).collect::<Result<_, _>>()?,
        namespaces: namespaces.iter().map(rows::namespaces::side).collect::<Result<_, _>>()?,
        contents: links.iter().map(contents::link).collect::<Result<_, _>>()?,
        ..Sides::default()
    };
    for row in &leases {
        leases::read(row, &mut sides, keys.acts_from)?;
    }
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
    Ok(Read { loaded, now: ends.now, min_release: ends.min_release })
}

/// Takes the rows of a side, then reads them: only where a command asks for some.
async fn lock_and_load_side(
    session: &Session,
    prepared: Option<&(Statement, Statement)>,
    keys: &[&(dyn ToSql + Sync)],
) -> Result<Vec<Row>, Error> {
    let Some((lock, load)) = prepared else { return Ok(Vec::new()) };
    // Boxed: few commits need the side, and the future of every commit would have room for it.
    let both = Box::pin(async { tokio::join!(biased; session.execute(lock, keys), session.query(load, keys)) });
    let (locked, loaded) = both.await;
    locked.and(loaded)
}

async fn load_requests(session: &Session, prepared: &Prepared, shard: i16, keys: &Keys<'_>) -> Result<Vec<Row>, Error> {
    if keys.requests.is_empty() {
        return Ok(Vec::new());
    }
    session.query(&prepared.load_request_ids, &[&shard, &keys.requests]).await
}

async fn load_leases(
    session: &Session,
    uptime: &ReplicaUptime,
    prepared: &Prepared,
    shard: i16,
    keys: &Keys<'_>,
) -> Result<Vec<Row>, Error> {
    let Some(statement) = &prepared.load_leases else { return Ok(Vec::new()) };
    let (namespaces, run_ids) = &keys.leases;
    let sent = uptime.sent();
    let [expected, begun, below, ends] = parameters(&sent);
    session.query(statement, &[&shard, namespaces, run_ids, expected, begun, below, ends]).await
}

async fn load_links(session: &Session, prepared: &Prepared, shard: i16, keys: &Keys<'_>) -> Result<Vec<Row>, Error> {
    let Some(statement) = &prepared.load_links else { return Ok(Vec::new()) };
    let (namespaces, run_ids) = &keys.links;
    // Boxed, as in `lock_and_load_side`.
    Box::pin(async move { session.query(statement, &[&shard, namespaces, run_ids]).await }).await
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

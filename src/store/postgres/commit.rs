//! The commit: in one flush where what it rests on can be guessed, else in two, each one round trip.
//!
//! Of two flushes, the first takes the shard's head and reads, the second writes and commits. Run rows need no lock:
//! every writer takes the head first, and what is read after it is current, because a READ COMMITTED statement that
//! begins after the wait sees what the one before committed. Runs that this process left behind need not be read: the
//! second flush writes nothing when they are otherwise. For one flush see [`at_once`].

use std::collections::HashSet;
use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use futures_util::future::{MaybeDone, maybe_done};
use tokio::time::{Instant, timeout, timeout_at};
use tokio_postgres::types::ToSql;
use tokio_postgres::{Config, Error, Row, Statement};
use uuid::Uuid;

use super::at_once::{self, AtOnce};
use super::claimed;
use super::ends::{self, Ends};
use super::errors::{self, LeftBehind, TimedOut};
use super::kept::{Guessed, Kept};
use super::leases;
use super::lineage::Lineage;
use super::max_running;
use super::rows::{self, Reader, after_all, shown, smallint};
use super::safety;
use super::sessions::{Session, Sessions};
use super::statements::{BEGIN, COMMIT, LOAD_REQUEST_IDS, LOAD_RUNS, LOCK_HEAD, ROLLBACK};
use super::uptime::ReplicaUptime;
use super::writes::{Place, write};
use crate::domain::batch::decide_batch;
use crate::domain::decide::AppliedRequest;
use crate::domain::ids::request_key;
use crate::domain::{Command, Decided, Loaded, Run, RunKey, Shard, Time};
use crate::store::{CommitError, Ledger, OpenError, StoreError, Unsettled};

/// For everything before COMMIT may have been sent: past it, surely nothing was applied.
const READ_MAX: Duration = Duration::from_secs(8);
/// For the flush that ends with COMMIT: past it, the outcome is unknown.
pub(super) const WRITE_MAX: Duration = Duration::from_secs(5);
/// Three waits for the head, 2 s each, outlive a frozen holder, whose session ends after 2 s without a statement.
const ATTEMPTS_MAX: usize = 3;

enum Failure {
    /// Rolled back, and worth another attempt at once.
    Again(StoreError),
    /// Rolled back: it was decided on runs as this process left them, and they are otherwise now.
    Stale,
    Final(CommitError),
}

impl From<StoreError> for Failure {
    fn from(error: StoreError) -> Self {
        Self::Final(error.into())
    }
}

/// What commits share.
pub(super) struct Commits {
    pub(super) sessions: Sessions,
    pub(super) kept: Arc<Kept>,
    pub(super) lineage: Arc<Lineage>,
    /// The statement that reads each shard's end.
    ends: String,
    pub(super) shard_count: u16,
    pub(super) uptime: ReplicaUptime,
}

impl Commits {
    /// The uptime begins here.
    pub(super) async fn open(
        config: &Config,
        location: &str,
        connections: usize,
        ledger: &Ledger,
    ) -> Result<Self, OpenError> {
        let shard_count = ledger.shard_count;
        let kept = Arc::new(Kept::new(shard_count));
        let lineage = Arc::new(Lineage::new(ledger, kept.clone()));
        let forget = kept.clone();
        let sessions = Sessions::new(config, connections, Some(&lineage), move || forget.forget());
        safety::isolated(&sessions, location).await?;
        let now = leases::clock(&sessions).await.map_err(|error| errors::opening_with(location, error))?;
        let (ends, uptime) = (ends::statement(shard_count), ReplicaUptime::new(now));
        Ok(Self { sessions, kept, lineage, ends, shard_count, uptime })
    }
}

/// Commits a batch. Its body runs again when the database asks for it, each time on what it reads then.
pub(super) async fn commit(
    commits: &Commits,
    shard: Shard,
    commit_id: Uuid,
    commands: &[Arc<Command>],
) -> Result<Decided, CommitError> {
    let deadline = Instant::now() + READ_MAX;
    match at_once::commit(commits, deadline, shard, commit_id, commands).await? {
        AtOnce::Committed(decided) => return Ok(decided),
        AtOnce::NotWritten => {}
    }
    let wanted = Wanted::by(commands);
    let mut attempt = 1;
    let mut trusting = true;
    loop {
        match attempt_once(commits, deadline, shard, commit_id, commands, &wanted, trusting).await {
            Ok(decided) => return Ok(decided),
            Err(Failure::Stale) => trusting = false,
            Err(Failure::Again(_)) if attempt < ATTEMPTS_MAX => attempt += 1,
            Err(Failure::Again(error)) => return Err(error.into()),
            Err(Failure::Final(error)) => return Err(error),
        }
    }
}

/// An early return that does not give the session back closes it, and with it the transaction. `trusting`: runs that this process left behind
/// are not read; the statement that writes looks whether they still are as they were.
async fn attempt_once(
    commits: &Commits,
    deadline: Instant,
    shard: Shard,
    commit_id: Uuid,
    commands: &[Arc<Command>],
    wanted: &Wanted<'_>,
    trusting: bool,
) -> Result<Decided, Failure> {
    let epoch = commits.lineage.epoch();
    let age = commits.kept.age();
    let session = before(deadline, commits.sessions.commit()).await??;
    let kept = if trusting { commits.kept.runs(shard, commands) } else { None };
    let prepared = before(deadline, Prepared::of(&session, &commits.ends, wanted)).await?.map_err(errors::statement)?;
    let Read { loaded, now, min_release } =
        before(deadline, lock_and_load(&session, &commits.uptime, &prepared, shard, wanted, kept.is_none())).await??;
    commits.kept.clock(now);
    let last = loaded.last.map_or(0, |(position, _)| position);

    let guess = kept.map(|runs| decide_batch(commands, Loaded { runs, ..loaded.clone() }));
    let (decided, guessed) = match guess {
        None => (decide_batch(commands, loaded), Guessed::Nothing),
        Some(decided) if decided.all_applied() => (decided, Guessed::Runs),
        Some(_) => {
            // What makes no event rests on the run as it is, and no write would look at that.
            let runs = before(deadline, load_runs(&session, &prepared, smallint(shard), wanted)).await?;
            let runs = read_runs(&runs.map_err(errors::statement)?)?;
            (decide_batch(commands, Loaded { runs, ..loaded }), Guessed::Nothing)
        }
    };
    let Some(first) = decided.events.first() else {
        // Nothing to make durable: a COMMIT would be as sure, but need not be told apart from one that writes.
        before(deadline, session.batch_execute(ROLLBACK)).await?.map_err(errors::statement)?;
        session.give_back();
        return Ok(decided);
    };

    let write = write(smallint(shard), commit_id, first.event.at, &decided, Place::After(last));
    let statement = before(deadline, session.prepare_cached(&write.sql)).await?.map_err(errors::statement)?;
    let arguments = write.arguments();
    let outcome = timeout(WRITE_MAX, write_and_commit(&session, session.query_one(&statement, &arguments))).await;
    drop(arguments);
    drop(write);
    let source = match outcome {
        Ok(Written::Committed(_)) if commits.lineage.epoch() != epoch => LeftBehind.into(),
        Ok(Written::Committed(_)) => {
            session.give_back();
            commits.kept.committed(shard, last, &decided, min_release, guessed, age);
            commits.lineage.saw(epoch, [(shard, last + decided.events.len() as u64)]);
            return Ok(decided);
        }
        Ok(Written::RolledBack(error)) if errors::asks_for_retry(&error) => {
            return Err(Failure::Again(errors::statement(error)));
        }
        Ok(Written::RolledBack(error)) if guessed == Guessed::Runs && errors::is_lost_race(&error) => {
            commits.kept.runs_were_wrong(shard, commands);
            before(deadline, session.batch_execute(ROLLBACK)).await?.map_err(errors::statement)?;
            session.give_back();
            return Err(Failure::Stale);
        }
        Ok(Written::RolledBack(error)) => return Err(errors::statement(error).into()),
        Ok(Written::Unsent(error)) => return Err(errors::unsent(error).into()),
        Ok(Written::Unknown(error)) => error.into(),
        Err(_) => TimedOut.into(),
    };
    commits.kept.runs_were_wrong(shard, commands);
    let unsettled = Box::new(Unsettled { shard, commit_id, first_position: last + 1, decided });
    Err(Failure::Final(CommitError::Unknown { unsettled, source }))
}

/// What a session has prepared for the first flush, before any transaction: only prepared statements can be sent in one
/// go.
struct Prepared {
    lock_head: Statement,
    ends: Statement,
    load_runs: Statement,
    load_request_ids: Statement,
    /// Only where a command looks at leases.
    load_leases: Option<Statement>,
    /// Take, and read, what counts towards claims' limits: only where a claim has one.
    max_running: Option<(Statement, Statement)>,
    /// Take, and read, what is remembered of claimers' requests: only where a command has one.
    claims: Option<(Statement, Statement)>,
}

impl Prepared {
    async fn of(session: &Session, ends: &str, wanted: &Wanted<'_>) -> Result<Self, Error> {
        let load_leases = match wanted.leases.0.as_slice() {
            [] => None,
            [_, ..] => Some(session.prepare_cached(&leases::load()).await?),
        };
        let max_running = if wanted.limited.0.is_empty() {
            None
        } else {
            let lock = session.prepare_cached(&max_running::lock()).await?;
            Some((lock, session.prepare_cached(&max_running::load()).await?))
        };
        let claims = if wanted.claims.0.is_empty() {
            None
        } else {
            let lock = session.prepare_cached(claimed::LOCK).await?;
            Some((lock, session.prepare_cached(claimed::LOAD).await?))
        };
        Ok(Self {
            load_leases,
            max_running,
            claims,
            lock_head: session.prepare_cached(LOCK_HEAD).await?,
            ends: session.prepare_cached(ends).await?,
            load_runs: session.prepare_cached(LOAD_RUNS).await?,
            load_request_ids: session.prepare_cached(LOAD_REQUEST_IDS).await?,
        })
    }
}

pub(super) async fn before<T>(deadline: Instant, work: impl Future<Output = T>) -> Result<T, StoreError> {
    timeout_at(deadline, work).await.map_err(|_| TimedOut.into())
}

/// What the commands need to see.
struct Wanted<'a> {
    namespaces: Vec<&'a str>,
    run_ids: Vec<&'a str>,
    request_keys: Vec<i64>,
    /// The namespaces and ids of runs whose lease is looked at.
    leases: (Vec<&'a str>, Vec<&'a str>),
    /// The namespaces and ids of runs, and the labels, that claims limit.
    limited: (Vec<&'a str>, Vec<&'a str>, Vec<&'a str>),
    /// The namespaces and ids of claimers' requests.
    claims: (Vec<&'a str>, Vec<&'a str>),
}

impl<'a> Wanted<'a> {
    fn by(commands: &'a [Arc<Command>]) -> Self {
        let keys: HashSet<&RunKey> = commands.iter().map(|command| &command.key).collect();
        let request_keys: HashSet<i64> = commands
            .iter()
            .filter_map(|command| command.request.as_ref().map(|request| request_key(&command.key, &request.id)))
            .collect();
        Self {
            namespaces: keys.iter().map(|key| key.namespace.as_str()).collect(),
            run_ids: keys.iter().map(|key| key.run_id.as_str()).collect(),
            request_keys: request_keys.into_iter().collect(),
            leases: commands
                .iter()
                .filter(|command| command.looks_at_lease())
                .map(|command| (command.key.namespace.as_str(), command.key.run_id.as_str()))
                .collect::<HashSet<_>>()
                .into_iter()
                .unzip(),
            limited: commands
                .iter()
                .filter_map(|command| Some((&command.key, command.max_running()?)))
                .map(|(key, max)| (key.namespace.as_str(), key.run_id.as_str(), max.label.as_str()))
                .collect(),
            claims: commands
                .iter()
                .filter_map(|command| Some((&command.key, command.claim_request()?)))
                .map(|(key, request)| (key.namespace.as_str(), request.id.as_str()))
                .collect::<HashSet<_>>()
                .into_iter()
                .unzip(),
        }
    }
}

/// What the first flush brings.
struct Read {
    loaded: Loaded,
    now: Time,
    min_release: Arc<str>,
}

async fn load_runs(session: &Session, prepared: &Prepared, shard: i16, wanted: &Wanted<'_>) -> Result<Vec<Row>, Error> {
    session.query(&prepared.load_runs, &[&shard, &wanted.namespaces, &wanted.run_ids]).await
}

fn read_runs(rows: &[Row]) -> Result<Vec<Arc<Run>>, StoreError> {
    rows.iter().map(|row| rows::run(row).map(Arc::new)).collect()
}

/// The first flush. The futures are polled in their order, so the statements go out in it, in one write.
async fn lock_and_load(
    session: &Session,
    uptime: &ReplicaUptime,
    prepared: &Prepared,
    shard: Shard,
    wanted: &Wanted<'_>,
    with_runs: bool,
) -> Result<Read, Failure> {
    let shard = smallint(shard);
    let by_shard: [&(dyn ToSql + Sync); 1] = [&shard];
    let by_request: [&(dyn ToSql + Sync); 2] = [&shard, &wanted.request_keys];
    let requests = async {
        if wanted.request_keys.is_empty() {
            return Ok(Vec::new());
        }
        session.query(&prepared.load_request_ids, &by_request).await
    };
    let runs = async { if with_runs { load_runs(session, prepared, shard, wanted).await } else { Ok(Vec::new()) } };
    let (namespaces, run_ids) = &wanted.leases;
    let leases_read = async {
        let Some(statement) = &prepared.load_leases else { return Ok(Vec::new()) };
        let sent = uptime.sent();
        let [expected, begun, below, ends] = leases::parameters(&sent);
        session.query(statement, &[&shard, namespaces, run_ids, expected, begun, below, ends]).await
    };
    let (namespaces, run_ids, labels) = &wanted.limited;
    let by_label: [&(dyn ToSql + Sync); 4] = [&shard, namespaces, run_ids, labels];
    let limited = async {
        match &prepared.max_running {
            None => Ok(Vec::new()),
            Some((lock, load)) => {
                // Apart: few commits have it, and all would carry its room.
                let both = Box::pin(async {
                    tokio::join!(biased; session.execute(lock, &by_label), session.query(load, &by_label))
                });
                let (locked, loaded) = both.await;
                locked.and(loaded)
            }
        }
    };
    let (namespaces, request_ids) = &wanted.claims;
    let by_claim: [&(dyn ToSql + Sync); 2] = [namespaces, request_ids];
    let claims = async {
        match &prepared.claims {
            None => Ok(Vec::new()),
            Some((lock, load)) => {
                let both = Box::pin(async {
                    tokio::join!(biased; session.execute(lock, &by_claim), session.query(load, &by_claim))
                });
                let (locked, loaded) = both.await;
                locked.and(loaded)
            }
        }
    };
    let (begun, head, limited, claims, ends, runs, requests, leases) = tokio::join!(
        biased;
        session.batch_execute(BEGIN),
        session.query_opt(&prepared.lock_head, &by_shard),
        limited,
        claims,
        session.query(&prepared.ends, &[]),
        runs,
        requests,
        leases_read,
    );
    begun.map_err(retriable)?;
    if head.map_err(retriable)?.is_none() {
        let source = "the head is missing".into();
        return Err(StoreError::Corrupt { table: "shards", column: "shard", key: shard.to_string(), source }.into());
    }
    let limited = limited.map_err(retriable)?;
    let claims = claims.map_err(retriable)?;
    let ends = ends.map_err(retriable)?;
    let ends = Ends::read(&ends, shard)?;
    let runs = runs.map_err(retriable)?;
    let requests = requests.map_err(retriable)?;
    let leases = leases.map_err(retriable)?;
    let loaded = Loaded {
        last: ends.last,
        now: after_all(ends.now, ends.elsewhere),
        clock: ends.now,
        runs: read_runs(&runs)?,
        requests: requests.iter().map(applied_of).collect::<Result<_, _>>()?,
        leases: leases.iter().map(leases::held).collect::<Result<_, _>>()?,
        running: limited.iter().map(max_running::counted).collect::<Result<_, _>>()?,
        claimed: claims.iter().map(claimed::claimed).collect::<Result<_, _>>()?,
        ledger_epoch: ends.ledger_epoch,
    };
    Ok(Read { loaded, now: ends.now, min_release: ends.min_release })
}

fn retriable(error: Error) -> Failure {
    let again = errors::asks_for_retry(&error);
    let error = errors::statement(error);
    if again { Failure::Again(error) } else { error.into() }
}

fn applied_of(row: &Row) -> Result<(RunKey, String, AppliedRequest), StoreError> {
    let event = Reader { table: "run_events", row };
    let key = event.key()?;
    let id: String = event.get("request_id", || shown(&key))?;
    let revision = event.unsigned("revision", || shown(&key))?;
    let digest: &[u8] = event.get("request_digest", || shown(&key))?;
    let digest = digest.try_into().map_err(|_| {
        event.corrupt("request_digest", shown(&key), format!("{} bytes and not 32", digest.len()).into())
    })?;
    Ok((key, id, AppliedRequest { revision, digest }))
}

/// What became of a writing statement and its transaction.
pub(super) enum Written<T> {
    /// It is durable, and this is its answer.
    Committed(T),
    /// The statement could not be sent, so that COMMIT was not sent either.
    Unsent(Error),
    /// It was answered with an error, so that COMMIT did not commit.
    RolledBack(Error),
    Unknown(Error),
}

/// A statement that is a transaction of its own. The driver waits for "ready for query", which comes after its end.
pub(super) async fn write_alone<T>(statement: impl Future<Output = Result<T, Error>>) -> Written<T> {
    let mut statement = pin!(maybe_done(statement));
    if let Some(error) = failed_to_send(statement.as_mut()).await {
        // Only what has no encoding was surely not sent: a connection may break, or an answer come, in the same moment.
        return if error.is_closed() || error.as_db_error().is_some() { ended(error) } else { Written::Unsent(error) };
    }
    statement.as_mut().await;
    match statement.take_output().expect("it was waited for") {
        Ok(answer) => Written::Committed(answer),
        Err(error) => ended(error),
    }
}

fn ended<T>(error: Error) -> Written<T> {
    if errors::proves_rollback(&error) { Written::RolledBack(error) } else { Written::Unknown(error) }
}

/// The flush that ends with COMMIT. The statement's answer is looked at before COMMIT's.
pub(super) async fn write_and_commit<T>(
    session: &Session,
    statement: impl Future<Output = Result<T, Error>>,
) -> Written<T> {
    let mut statement = pin!(maybe_done(statement));
    if let Some(error) = failed_to_send(statement.as_mut()).await {
        return Written::Unsent(error);
    }
    let ((), committed) = tokio::join!(biased; statement.as_mut(), session.batch_execute(COMMIT));
    match statement.take_output().expect("it was waited for") {
        Err(error) if errors::proves_rollback(&error) => Written::RolledBack(error),
        Err(error) => Written::Unknown(error),
        Ok(answer) => match committed {
            Ok(()) => Written::Committed(answer),
            Err(error) => Written::Unknown(error),
        },
    }
}

/// Sends a statement and does not wait for it. One that the driver cannot send, because a value has no encoding, is
/// missing from the transaction without the server's knowing: COMMIT must not follow it.
async fn failed_to_send<T, E>(mut statement: Pin<&mut MaybeDone<impl Future<Output = Result<T, E>>>>) -> Option<E> {
    poll_fn(|context| {
        let failed = statement.as_mut().poll(context).is_ready()
            && statement.as_mut().output_mut().is_some_and(|answer| answer.is_err());
        Poll::Ready(failed.then(|| statement.as_mut().take_output().and_then(Result::err)).flatten())
    })
    .await
}

#[cfg(test)]
mod tests {
    use std::future::{pending, ready};

    use futures_util::future::{BoxFuture, FutureExt as _};

    use super::*;

    type Answer = BoxFuture<'static, Result<(), &'static str>>;

    async fn failed(statement: Answer) -> Option<&'static str> {
        failed_to_send(pin!(maybe_done(statement))).await
    }

    #[tokio::test]
    async fn statements_that_wait_for_their_answers_were_sent() {
        assert_eq!(failed(pending().boxed()).await, None);
        assert_eq!(failed(ready(Ok(())).boxed()).await, None);
    }

    #[tokio::test]
    async fn a_statement_that_fails_before_it_waits_was_not_sent() {
        assert_eq!(failed(ready(Err("no encoding")).boxed()).await, Some("no encoding"));
    }
}

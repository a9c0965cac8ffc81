//! The commit: two flushes, each one round trip.
//!
//! The first takes the shard's head and reads, the second writes and commits. Run rows need no lock: every writer takes
//! the head first, and what is read after it is current, because a READ COMMITTED statement that begins after the wait
//! sees what the one before committed.

use std::collections::HashSet;
use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use futures_util::future::{MaybeDone, join_all, maybe_done};
use tokio::time::{Instant, timeout, timeout_at};
use tokio_postgres::types::ToSql;
use tokio_postgres::{Error, Row};
use uuid::Uuid;

use super::errors::{self, TimedOut};
use super::fence;
use super::rows::{At, Reader, after_all, shown, smallint};
use super::sessions::{Session, Sessions};
use super::statements::{BEGIN, COMMIT, ROLLBACK, Statements};
use super::writes::{Write, writes};
use crate::domain::batch::decide_batch;
use crate::domain::decide::AppliedRequest;
use crate::domain::ids::request_key;
use crate::domain::{Command, Decided, Loaded, RunKey, Shard};
use crate::store::{CommitError, StoreError, Unsettled, json};

/// For everything before COMMIT may have been sent: past it, surely nothing was applied.
const READ_MAX: Duration = Duration::from_secs(8);
/// For the flush that ends with COMMIT: past it, the outcome is unknown.
const WRITE_MAX: Duration = Duration::from_secs(5);
/// Three waits for the head, 2 s each, outlive a frozen holder, whose session ends after 2 s without a statement.
const ATTEMPTS_MAX: usize = 3;

enum Failure {
    /// Rolled back, and worth another attempt at once.
    Again(StoreError),
    Final(CommitError),
}

impl From<StoreError> for Failure {
    fn from(error: StoreError) -> Self {
        Self::Final(error.into())
    }
}

/// Commits a batch. Its body runs again when the database asks for it, each time on what it reads then.
pub(super) async fn commit(
    sessions: &Sessions,
    last: &str,
    shard: Shard,
    commit_id: Uuid,
    commands: &[Arc<Command>],
) -> Result<Decided, CommitError> {
    let wanted = Wanted::by(commands);
    let deadline = Instant::now() + READ_MAX;
    let mut attempt = 1;
    loop {
        match attempt_once(sessions, last, deadline, shard, commit_id, commands, &wanted).await {
            Ok(decided) => return Ok(decided),
            Err(Failure::Again(_)) if attempt < ATTEMPTS_MAX => attempt += 1,
            Err(Failure::Again(error)) => return Err(error.into()),
            Err(Failure::Final(error)) => return Err(error),
        }
    }
}

/// Every early return closes the session, and with it the transaction.
async fn attempt_once(
    sessions: &Sessions,
    last: &str,
    deadline: Instant,
    shard: Shard,
    commit_id: Uuid,
    commands: &[Arc<Command>],
    wanted: &Wanted<'_>,
) -> Result<Decided, Failure> {
    let session = before(deadline, sessions.commit()).await??;
    let prepared = before(deadline, Statements::of(&session, last)).await?.map_err(errors::statement)?;
    let loaded = before(deadline, lock_and_load(&session, &prepared, shard, wanted)).await??;
    let first_position = loaded.last.map_or(0, |(position, _)| position) + 1;

    let decided = decide_batch(commands, loaded);
    if decided.events.is_empty() {
        // Nothing to make durable: a COMMIT would be as sure, but need not be told apart from one that writes.
        before(deadline, session.batch_execute(ROLLBACK)).await?.map_err(errors::statement)?;
        session.give_back();
        return Ok(decided);
    }

    let writes = writes(smallint(shard), commit_id, &decided, &prepared);
    let outcome = timeout(WRITE_MAX, write_and_commit(&session, &writes)).await;
    let source = match outcome {
        Ok(Written::Committed) => {
            session.give_back();
            return Ok(decided);
        }
        Ok(Written::RolledBack(error)) if errors::asks_for_retry(&error) => {
            return Err(Failure::Again(errors::statement(error)));
        }
        Ok(Written::RolledBack(error)) => return Err(errors::statement(error).into()),
        Ok(Written::Unsent(error)) => return Err(errors::unsent(error).into()),
        Ok(Written::Unknown(error)) => error.into(),
        Err(_) => TimedOut.into(),
    };
    let unsettled = Box::new(Unsettled { shard, commit_id, first_position, decided });
    Err(Failure::Final(CommitError::Unknown { unsettled, source }))
}

async fn before<T>(deadline: Instant, work: impl Future<Output = T>) -> Result<T, StoreError> {
    timeout_at(deadline, work).await.map_err(|_| TimedOut.into())
}

/// What the commands need to see.
struct Wanted<'a> {
    namespaces: Vec<&'a str>,
    run_ids: Vec<&'a str>,
    request_keys: Vec<i64>,
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
        }
    }
}

/// The first flush. The futures are polled in their order, so the statements go out in it, in one write.
async fn lock_and_load(
    session: &Session,
    prepared: &Statements,
    shard: Shard,
    wanted: &Wanted<'_>,
) -> Result<Loaded, Failure> {
    let shard = smallint(shard);
    let by_shard: [&(dyn ToSql + Sync); 1] = [&shard];
    let by_run: [&(dyn ToSql + Sync); 3] = [&shard, &wanted.namespaces, &wanted.run_ids];
    let by_request: [&(dyn ToSql + Sync); 2] = [&shard, &wanted.request_keys];
    let requests = async {
        if wanted.request_keys.is_empty() {
            return Ok(Vec::new());
        }
        session.query(&prepared.load_request_ids, &by_request).await
    };
    let (begun, head, last, now, runs, requests) = tokio::join!(
        biased;
        session.batch_execute(BEGIN),
        session.query_opt(&prepared.lock_head, &by_shard),
        session.query(&prepared.last, &[]),
        session.query_one(&prepared.now, &[]),
        session.query(&prepared.load_runs, &by_run),
        requests,
    );
    begun.map_err(retriable)?;
    if head.map_err(retriable)?.is_none() {
        let source = "the head is missing".into();
        return Err(StoreError::Corrupt { table: "shards", column: "shard", key: shard.to_string(), source }.into());
    }
    let last = last.map_err(retriable)?;
    let now = now.map_err(retriable)?;
    fence::admits(&now)?;
    let runs = runs.map_err(retriable)?;
    let requests = requests.map_err(retriable)?;
    Ok(read_loaded(shard, &last, &now, &runs, &requests)?)
}

fn retriable(error: Error) -> Failure {
    let again = errors::asks_for_retry(&error);
    let error = errors::statement(error);
    if again { Failure::Again(error) } else { error.into() }
}

fn read_loaded(shard: i16, ends: &[Row], now: &Row, runs: &[Row], requests: &[Row]) -> Result<Loaded, StoreError> {
    let (mut last, mut elsewhere) = (None, None);
    for row in ends {
        let event = Reader { table: "run_events", row };
        let of: i64 = event.get("shard", || "the last of a shard".to_owned())?;
        let place = || format!("the last of shard {of}");
        let At(at) = event.get("at", place)?;
        if of == i64::from(shard) {
            last = Some((event.unsigned("position", place)?, at));
        } else {
            elsewhere = elsewhere.max(Some(at));
        }
    }
    let At(now) = Reader { table: "clock_timestamp()", row: now }.get("now", String::new)?;
    let runs = runs.iter().map(|row| {
        let run = Reader { table: "runs", row };
        let key = run.key()?;
        let record: &str = run.get("record", || shown(&key))?;
        let metadata: Option<&str> = run.get("metadata", || shown(&key))?;
        json::read_run(&key, record, metadata)
    });
    let requests = requests.iter().map(|row| {
        let event = Reader { table: "run_events", row };
        let key = event.key()?;
        let id: String = event.get("request_id", || shown(&key))?;
        let revision = event.unsigned("revision", || shown(&key))?;
        let digest: &[u8] = event.get("request_digest", || shown(&key))?;
        let digest = digest.try_into().map_err(|_| {
            event.corrupt("request_digest", shown(&key), format!("{} bytes and not 32", digest.len()).into())
        })?;
        Ok((key, id, AppliedRequest { revision, digest }))
    });
    Ok(Loaded {
        last,
        now: after_all(now, elsewhere),
        runs: runs.collect::<Result<_, StoreError>>()?,
        requests: requests.collect::<Result<_, StoreError>>()?,
    })
}

enum Written {
    Committed,
    /// A statement could not be sent, so that COMMIT was not sent either.
    Unsent(Error),
    /// A statement before COMMIT was answered with an error, so that COMMIT did not commit.
    RolledBack(Error),
    Unknown(Error),
}

/// The second flush. Every statement's answer is looked at before COMMIT's.
async fn write_and_commit(session: &Session, writes: &[Write]) -> Written {
    let mut statements: Vec<_> = writes.iter().map(|write| Box::pin(maybe_done(write_one(session, write)))).collect();
    if let Some(error) = failed_to_send(&mut statements).await {
        return Written::Unsent(error);
    }
    // At most eight futures: `join_all` polls so few in their order.
    let statements = join_all(statements.into_iter().map(|mut statement| async move {
        statement.as_mut().await;
        statement.as_mut().take_output().expect("nobody else takes it")
    }));
    let (statements, committed) = tokio::join!(biased; statements, session.batch_execute(COMMIT));
    for answer in statements {
        match answer {
            Ok(()) => {}
            Err(error) if errors::proves_rollback(&error) => return Written::RolledBack(error),
            Err(error) => return Written::Unknown(error),
        }
    }
    match committed {
        Ok(()) => Written::Committed,
        Err(error) => Written::Unknown(error),
    }
}

async fn write_one(session: &Session, write: &Write) -> Result<(), Error> {
    session.query_one(&write.statement, &write.arguments()).await.map(|_| ())
}

/// Sends the statements and waits for none. One that the driver cannot send, because a value has no encoding, is
/// missing from the transaction without the server's knowing: COMMIT must not follow it.
async fn failed_to_send<E>(statements: &mut [Pin<Box<MaybeDone<impl Future<Output = Result<(), E>>>>>]) -> Option<E> {
    poll_fn(|context| {
        let mut failed = None;
        for statement in &mut *statements {
            if statement.as_mut().poll(context).is_ready()
                && statement.as_mut().output_mut().is_some_and(|answer| answer.is_err())
            {
                failed = statement.as_mut().take_output().and_then(Result::err);
                break;
            }
        }
        Poll::Ready(failed)
    })
    .await
}

#[cfg(test)]
mod tests {
    use std::future::{pending, ready};

    use futures_util::future::{BoxFuture, FutureExt as _};

    use super::*;

    type Answer = BoxFuture<'static, Result<(), &'static str>>;

    fn statements(list: Vec<Answer>) -> Vec<Pin<Box<MaybeDone<Answer>>>> {
        list.into_iter().map(|statement| Box::pin(maybe_done(statement))).collect()
    }

    #[tokio::test]
    async fn statements_that_wait_for_their_answers_were_sent() {
        let mut sent = statements(vec![pending().boxed(), pending().boxed(), ready(Ok(())).boxed()]);
        assert_eq!(failed_to_send(&mut sent).await, None);
    }

    #[tokio::test]
    async fn a_statement_that_fails_before_it_waits_was_not_sent() {
        let mut sent = statements(vec![pending().boxed(), ready(Err("no encoding")).boxed(), pending().boxed()]);
        assert_eq!(failed_to_send(&mut sent).await, Some("no encoding"));
    }
}

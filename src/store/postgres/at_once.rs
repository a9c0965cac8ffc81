//! The commit in one flush: decided on what this process remembers, checked and written by one statement.
//!
//! The statement takes the head, then looks whether everything is as it was taken to be: each run's revision, new runs
//! not there yet, no request id applied, no event of any shard later than this commit's time, the schema's release, and
//! the store's clock close to what was taken for it. Only then it writes; else nothing, and the commit is made in two
//! flushes. The position is read in it.
//!
//! Where nobody else seems to commit to the shard, that statement is all of the transaction. What it reads is as of its
//! beginning, before it may have waited for the head: if somebody committed meanwhile, its first position is taken, and
//! the log's primary key ends it with 23505, or a run has moved on, and its count ends it with 22012. Who takes heads and
//! writes no event leaves a new version of them, which is seen. Else the head is taken by a statement of its own in front of it, in the
//! same flush, so that it begins after the wait.
//!
//! One that is on its way when its connection breaks may come to the database long after. The clock voids it: see
//! [`DECIDED_BEFORE_MAX_MS`](super::writes::DECIDED_BEFORE_MAX_MS) and [`settle`](super::settle).

use std::sync::Arc;

use tokio::time::{Instant, timeout};
use tokio_postgres::types::ToSql;
use tokio_postgres::{Error, Row, Statement};
use uuid::Uuid;

use super::commit::{Commits, WRITE_MAX, Written, before, write_alone, write_and_commit};
use super::errors::{self, TimedOut};
use super::kept::Guess;
use super::rows::{At, Reader, smallint};
use super::sessions::Session;
use super::statements::{BEGIN, LOCK_HEAD, ROLLBACK};
use super::writes::{Place, Write, write};
use crate::domain::batch::decide_batch;
use crate::domain::{Command, Decided, Shard, Verdict};
use crate::store::error::Source;
use crate::store::{CommitError, Unsettled};
use crate::telemetry::chain;

/// What became of it.
pub(super) enum AtOnce {
    Committed(Decided),
    /// Surely not applied: it could not be guessed, or was guessed wrong, or failed.
    NotWritten,
}

pub(super) async fn commit(
    commits: &Commits,
    deadline: Instant,
    shard: Shard,
    commit_id: Uuid,
    commands: &[Arc<Command>],
) -> Result<AtOnce, CommitError> {
    let kept = &commits.kept;
    let age = kept.age();
    let Some(Guess { loaded, min_release, alone }) = kept.guess(shard, commands) else {
        return Ok(AtOnce::NotWritten);
    };
    let (last, now) = (loaded.last.map_or(0, |(position, _)| position), loaded.now);
    let mut decided = decide_batch(commands, loaded);
    // What makes no event rests on the run as it is, and nothing would have looked at that.
    let all_applied = decided.verdicts.iter().all(|verdict| matches!(verdict, Ok(Verdict::Applied(_))));
    if !all_applied || decided.events.iter().any(|new| new.event.at != now) {
        return Ok(AtOnce::NotWritten);
    }
    let place = Place::AtTheEnd { shard_count: commits.shard_count, min_release: &min_release };
    let write = write(smallint(shard), commit_id, now, &decided, place);
    let session = before(deadline, commits.sessions.commit()).await??;
    if age != kept.age() {
        // It may be a session to another server.
        session.give_back();
        return Ok(AtOnce::NotWritten);
    }
    let Ok(prepared) = before(deadline, Prepared::of(&session, &write, alone)).await? else {
        // In two flushes the same is met again, and told.
        return Ok(AtOnce::NotWritten);
    };
    let written = match timeout(WRITE_MAX, send(&session, &prepared, shard, &write)).await {
        Ok(written) => written,
        Err(_elapsed) => Sent::Unknown(TimedOut.into()),
    };
    drop(write);
    let source = match written {
        Sent::Answered(Some(row)) => {
            session.give_back();
            let place = Reader { table: "run_events", row: &row };
            // They are not null, and of their types: a plan that answers otherwise has no place here.
            let after = place.unsigned("last", String::new).expect("a position");
            let At(now) = place.get("now", String::new).expect("a time");
            kept.clock(now);
            for (position, event) in (after + 1..).zip(&mut decided.events) {
                event.position = position;
            }
            kept.committed(shard, after, &decided, min_release, true, age);
            return Ok(AtOnce::Committed(decided));
        }
        Sent::Answered(None) | Sent::RolledBack => {
            session.give_back();
            kept.distrust(shard, commands);
            return Ok(AtOnce::NotWritten);
        }
        Sent::Closed => {
            kept.distrust(shard, commands);
            return Ok(AtOnce::NotWritten);
        }
        Sent::Unknown(source) => source,
    };
    kept.distrust(shard, commands);
    kept.is_sent(commit_id, now);
    let unsettled = Box::new(Unsettled { shard, commit_id, first_position: last + 1, decided });
    Err(CommitError::Unknown { unsettled, source })
}

/// Prepared before anything is sent.
struct Prepared {
    write: Statement,
    /// Takes the head in front of it.
    lock_head: Option<Statement>,
}

impl Prepared {
    async fn of(session: &Session, write: &Write<'_>, alone: bool) -> Result<Self, Error> {
        let lock_head = if alone { None } else { Some(session.prepare_cached(LOCK_HEAD).await?) };
        Ok(Self { write: session.prepare_cached(&write.sql).await?, lock_head })
    }
}

enum Sent {
    /// With a row: it is durable; without: nothing was written.
    Answered(Option<Row>),
    RolledBack,
    /// Rolled back, and the session is no good any more.
    Closed,
    Unknown(Source),
}

async fn send(session: &Session, prepared: &Prepared, shard: Shard, write: &Write<'_>) -> Sent {
    let arguments = write.arguments();
    let statement = session.query_opt(&prepared.write, &arguments);
    let written = match &prepared.lock_head {
        None => write_alone(statement).await,
        Some(lock_head) => {
            let shard = smallint(shard);
            let by_shard: [&(dyn ToSql + Sync); 1] = [&shard];
            // Where one of the first two fails, the write does.
            let (_begun, _head, written) = tokio::join!(
                biased;
                session.batch_execute(BEGIN),
                session.query_opt(lock_head, &by_shard),
                write_and_commit(session, statement),
            );
            written
        }
    };
    match written {
        Written::Committed(row) => Sent::Answered(row),
        Written::RolledBack(error) if errors::is_lost_race(&error) => match session.batch_execute(ROLLBACK).await {
            Ok(()) => Sent::RolledBack,
            Err(_) => Sent::Closed,
        },
        Written::RolledBack(error) | Written::Unsent(error) => {
            // Read for, the same commit meets it again, and says what it means.
            tracing::warn!(error = chain(&error), "a commit in one flush failed: it is made in two");
            Sent::Closed
        }
        Written::Unknown(error) => Sent::Unknown(error.into()),
    }
}

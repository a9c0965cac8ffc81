//! The commit in one flush: decided on what this process remembers, checked and written by one statement.
//!
//! The statement takes the head, then looks whether everything is as it was taken to be: each run's revision, new runs
//! not there yet, no request id applied, no event of any shard later than this commit's time, the schema's release, and
//! the store's clock close to what was taken for it. Only then it writes; else nothing, and the commit is made in two
//! flushes. The position is read in it.
//!
//! That statement is all of the transaction. What it reads is as of its beginning, before it may have waited for the
//! head: if somebody committed to the shard meanwhile, its first position is taken, and the log's primary key ends it
//! with 23505, or a run has moved on, and its count ends it with 22012. Who takes heads and writes no event leaves a new
//! version of them, which is seen. Calls that were answered before it began are all in what it reads, so times follow
//! the order of calls. Where others commit all the time, guesses are wrong all the time: then commits are made in two
//! flushes for a while.
//!
//! One that is on its way when its connection breaks may come to the database long after. The clock voids it: see
//! [`DECIDED_BEFORE_MAX_MS`](super::writes::DECIDED_BEFORE_MAX_MS) and [`settle`](super::settle).

use std::sync::Arc;

use tokio::time::{Instant, timeout};
use uuid::Uuid;

use super::commit::{Commits, WRITE_MAX, Written, before, write_alone};
use super::errors::{self, LeftBehind, TimedOut};
use super::kept::{Guess, Guessed};
use super::rows::{At, Reader, smallint};
use super::writes::{Place, write};
use crate::domain::batch::decide_batch;
use crate::domain::{Ask, Command, Decided, Loaded, Run, Shard, Status};
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
    let (age, epoch) = (kept.age(), commits.lineage.epoch());
    let Some(Guess { loaded, min_release }) = kept.guess(shard, commands) else {
        return Ok(AtOnce::NotWritten);
    };
    let loaded = Loaded { ledger_epoch: epoch, ..loaded };
    if commands.iter().any(|command| looks_beyond_runs(command, &loaded.runs)) {
        // Nobody keeps that: leases are renewed by whoever holds them, and what counts is of any shard.
        return Ok(AtOnce::NotWritten);
    }
    let (last, now) = (loaded.last.map_or(0, |(position, _)| position), loaded.now);
    let mut decided = decide_batch(commands, loaded);
    // What makes no event rests on the run as it is, and nothing would have looked at that.
    if !decided.all_applied() || decided.events.iter().any(|new| new.event.at != now) {
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
    let Ok(statement) = before(deadline, session.prepare_cached(&write.sql)).await? else {
        // In two flushes the same is met again, and told.
        return Ok(AtOnce::NotWritten);
    };
    let arguments = write.arguments();
    let sent = timeout(WRITE_MAX, write_alone(session.query_opt(&statement, &arguments))).await;
    drop(arguments);
    drop(write);
    let source = match sent {
        Ok(Written::Committed(Some(_))) if commits.lineage.epoch() != epoch => LeftBehind.into(),
        Ok(Written::Committed(Some(row))) => {
            session.give_back();
            let place = Reader { table: "run_events", row: &row };
            // They are not null, and of their types: a plan that answers otherwise has no place here.
            let after = place.unsigned("last", String::new).expect("a position");
            let At(now) = place.get("now", String::new).expect("a time");
            kept.clock(now);
            for (position, event) in (after + 1..).zip(&mut decided.events) {
                event.position = position;
            }
            kept.committed(shard, after, &decided, min_release, Guessed::All, age);
            commits.lineage.saw(epoch, [(shard, after + decided.events.len() as u64)]);
            return Ok(AtOnce::Committed(decided));
        }
        Ok(Written::Committed(None)) => {
            session.give_back();
            kept.was_wrong(shard);
            return Ok(AtOnce::NotWritten);
        }
        Ok(Written::RolledBack(error)) if errors::is_lost_race(&error) => {
            session.give_back();
            kept.was_wrong(shard);
            return Ok(AtOnce::NotWritten);
        }
        Ok(Written::RolledBack(error) | Written::Unsent(error)) => {
            // Read for, the same commit meets it again, and says what it means.
            tracing::warn!(error = chain(&error), "a commit in one flush failed: it is made in two");
            kept.was_wrong(shard);
            kept.runs_were_wrong(shard, commands);
            return Ok(AtOnce::NotWritten);
        }
        Ok(Written::Unknown(error)) => error.into(),
        Err(_elapsed) => TimedOut.into(),
    };
    kept.was_wrong(shard);
    kept.runs_were_wrong(shard, commands);
    kept.is_sent(commit_id, now);
    let unsettled = Box::new(Unsettled { shard, commit_id, first_position: last + 1, decided });
    Err(CommitError::Unknown { unsettled, source })
}

/// A pending run has no lease: who claims it looks at none.
fn looks_beyond_runs(command: &Command, runs: &[Arc<Run>]) -> bool {
    let of_a_pending_run = || runs.iter().any(|run| run.status == Status::Pending && run.key() == command.key);
    let is_claim = matches!(command.ask, Ask::Claim(_));
    let looks_at_lease = command.looks_at_lease() && !(is_claim && of_a_pending_run());
    // A claimer's request may be new; what takes a claim back rests on what is remembered of it.
    let looks_at_request = command.claim_request().is_some() && !is_claim;
    looks_at_lease || looks_at_request || command.max_running().is_some()
}

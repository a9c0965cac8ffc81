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
//! [`DECIDED_BEFORE_MAX_MS`](super::write::DECIDED_BEFORE_MAX_MS) and [`settle`](super::settle).

use std::sync::Arc;

use tokio::time::{Instant, timeout};
use uuid::Uuid;

use super::super::errors::{self, LeftBehind, TimedOut};
use super::super::rows::{Reader, smallint};
use super::hints::{Guess, Guessed};
use super::sent::{Written, write_alone};
use super::write::{Place, write};
use super::{CommitPath, WRITE_MAX, before};
use crate::domain::{Command, Decide, Decided, Loaded, Shard};
use crate::store::{CommitError, Unsettled};
use crate::telemetry::chain;

/// What became of it.
pub(in crate::store::postgres) enum Optimistic {
    Committed(Decided),
    /// Surely not applied: it could not be guessed, or was guessed wrong, or failed.
    NotWritten,
}

pub(in crate::store::postgres) async fn commit(
    commits: &CommitPath,
    deadline: Instant,
    shard: Shard,
    commit_id: Uuid,
    commands: &[Arc<Command>],
    rules: &dyn Decide,
) -> Result<Optimistic, CommitError> {
    let hints = &commits.hints;
    let (age, epoch) = (hints.age(), commits.lineage.epoch());
    let Some(Guess { loaded, min_release }) = hints.guess(shard, commands) else {
        return Ok(Optimistic::NotWritten);
    };
    let (last, now) = (loaded.last.map_or(0, |(position, _)| position), loaded.now);
    let Some(mut decided) = decided(commands, Loaded { ledger_epoch: epoch, ..loaded }, rules) else {
        return Ok(Optimistic::NotWritten);
    };
    let place = Place::AtTheEnd { shard_count: commits.shard_count, min_release: &min_release };
    let write = write(smallint(shard), commit_id, now, &decided, place);
    let session = before(deadline, commits.sessions.commit()).await??;
    if age != hints.age() {
        // It may be a session to another server.
        session.give_back();
        return Ok(Optimistic::NotWritten);
    }
    let Ok(statement) = before(deadline, session.prepare_cached(&write.sql)).await? else {
        // In two flushes the same is met again, and told.
        return Ok(Optimistic::NotWritten);
    };
    let arguments = write.arguments();
    let sent = timeout(WRITE_MAX, write_alone(session.query_opt(&statement, &arguments))).await;
    drop(arguments);
    drop(write);
    let source = match sent {
        Ok(Written::Committed(Some(_))) if commits.lineage.epoch() != epoch => LeftBehind.into(),
        Ok(Written::Committed(Some(row))) => {
            session.give_back();
            let place = Reader { table: "run_events", row: &row, key: &String::new };
            // They are not null, and of their types: a plan that answers otherwise has no place here.
            let after: u64 = place.get("last").expect("a position");
            hints.clock(place.get("now").expect("a time"));
            for (position, event) in (after + 1..).zip(&mut decided.events) {
                event.position = position;
            }
            hints.committed(shard, after, &decided, min_release, Guessed::All, age);
            commits.lineage.saw(epoch, [(shard, after + decided.events.len() as u64)]);
            return Ok(Optimistic::Committed(decided));
        }
        Ok(Written::Committed(None)) => {
            session.give_back();
            hints.was_wrong(shard);
            return Ok(Optimistic::NotWritten);
        }
        Ok(Written::RolledBack(error)) if errors::is_lost_race(&error) => {
            session.give_back();
            hints.was_wrong(shard);
            return Ok(Optimistic::NotWritten);
        }
        Ok(Written::RolledBack(error) | Written::Unsent(error)) => {
            // Read for, the same commit meets it again, and says what it means.
            tracing::warn!(error = chain(&error), "a commit in one flush failed: it is made in two");
            hints.was_wrong(shard);
            hints.runs_were_wrong(shard, commands);
            return Ok(Optimistic::NotWritten);
        }
        Ok(Written::Unknown(error)) => error.into(),
        Err(_elapsed) => TimedOut.into(),
    };
    hints.was_wrong(shard);
    hints.runs_were_wrong(shard, commands);
    hints.is_sent(commit_id, now);
    let unsettled = Box::new(Unsettled { shard, commit_id, first_position: last + 1, decided });
    Err(CommitError::Unknown { unsettled, source })
}

/// Decides commands on what is remembered; none where that does not do.
fn decided(commands: &[Arc<Command>], loaded: Loaded, rules: &dyn Decide) -> Option<Decided> {
    let run_of = |command: &Command| loaded.runs.iter().find(|run| run.key() == command.key).map(|run| &**run);
    if !commands.iter().all(|command| rules.is_only_the_run(command, run_of(command))) {
        // Nobody keeps that: leases are renewed by whoever holds them, and what counts is of any shard.
        return None;
    }
    let now = loaded.now;
    let decided = rules.decide(commands, loaded);
    // What makes no event rests on the run as it is, and nothing would have looked at that.
    (decided.all_applied() && decided.events.iter().all(|new| new.event.at == now)).then_some(decided)
}

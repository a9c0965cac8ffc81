//! The commit: in one flush where it can be decided on [`hints`], else in two, each one round trip.
//!
//! Of two flushes, the first takes the shard's head and reads, the second writes and commits. Run rows need no lock:
//! every writer takes the head first, and a row that is read after it is current, because a READ COMMITTED statement
//! that begins after the wait sees the changes of the commit before. Runs that this process wrote last need not be
//! read: the second flush writes nothing when they have changed since. For one flush see [`optimistic`].
//!
//! Invariant: no answer comes from hints alone. The statement that writes checks under the head that all hints of the
//! commit hold. Where one does not hold, the statement writes nothing, and the commit is made again under the head.
//! Where other processes commit all the time, commits are made in two flushes from the first; of the hints only runs
//! are then used, and checked in the same way.

mod failed;
pub(super) mod hints;
mod load;
mod optimistic;
mod outcome;
mod path;
pub(super) mod redact;
pub(super) mod settle;
pub(super) mod statements;
pub(super) mod write;

use std::collections::BTreeSet;
use std::sync::Arc;

use tokio::time::{Instant, timeout};
use uuid::Uuid;

use self::failed::{Failed, Failure};
use self::hints::RestedOn;
use self::load::{Keys, LoadedRuns, Prepared, load_runs, lock_and_load, read_runs, retriable};
use self::optimistic::Optimistic;
pub(super) use self::outcome::{Written, write_and_commit};
use self::path::READ_MAX;
pub(super) use self::path::{CommitPath, WRITE_MAX, before};
use self::statements::ROLLBACK;
use self::write::{EventsPlace, write};
use super::errors::{self, LeftBehind, TimedOut};
use super::rows::smallint;
use super::sessions::Session;
use super::sides;
use crate::domain::{
    Command, Decide, Decided, Declared, LedgerEpoch, LifecycleKey, Loaded, Position, Run, Shard, Time, Wanted,
};
use crate::store::{CommitError, Unsettled, metrics};
use crate::telemetry::{record, traces};

/// Three waits for the head, 2 s each, outlive a frozen holder, whose session ends after 2 s without a statement.
const ATTEMPTS_MAX: usize = 3;

/// Commits a batch, and tells how.
pub(super) async fn commit(
    commits: &CommitPath,
    shard: Shard,
    commit_id: Uuid,
    commands: &[Arc<Command>],
    rules: &dyn Decide,
) -> Result<Decided, CommitError> {
    let began = Instant::now();
    let mut path = metrics::OPTIMISTIC;
    let committed = match optimistic::commit(commits, began + READ_MAX, shard, commit_id, commands, rules).await {
        Ok(Optimistic::Committed(decided)) => Ok(decided),
        Ok(Optimistic::NotWritten) => {
            path = metrics::UNDER_HEAD;
            under_head(commits, began + READ_MAX, shard, commit_id, commands, rules).await
        }
        Err(error) => Err(error),
    };
    record::commit(path, metrics::outcome(&committed), began.elapsed());
    committed
}

/// Commits a batch in two flushes. The body runs again when the database asks for it, each time on newly read rows.
async fn under_head(
    commits: &CommitPath,
    deadline: Instant,
    shard: Shard,
    commit_id: Uuid,
    commands: &[Arc<Command>],
    rules: &dyn Decide,
) -> Result<Decided, CommitError> {
    let wanted = rules.wanted(commands);
    let batch = Batch { shard, commit_id, commands, rules, keys: Keys::of(commands), wanted: &wanted };
    let mut attempt = 1;
    let mut trusting = true;
    loop {
        match attempt_once(commits, deadline, &batch, trusting).await {
            Ok(decided) => return Ok(decided),
            Err(Failure::Stale) => {
                record::commit_retry(metrics::STALE);
                trusting = false;
            }
            Err(Failure::Again(_)) if attempt < ATTEMPTS_MAX => {
                record::commit_retry(metrics::CONFLICT);
                attempt += 1;
            }
            Err(Failure::Again(error)) => return Err(error.into()),
            Err(Failure::Final(error)) => return Err(error),
        }
    }
}

/// A batch of commands, committed together.
struct Batch<'a> {
    shard: Shard,
    commit_id: Uuid,
    commands: &'a [Arc<Command>],
    rules: &'a dyn Decide,
    keys: Keys<'a>,
    wanted: &'a Wanted,
}

/// Makes one commit in two flushes. A session that is not spared is closed, and with it the transaction.
async fn attempt_once(
    commits: &CommitPath,
    deadline: Instant,
    batch: &Batch<'_>,
    trusting: bool,
) -> Result<Decided, Failure> {
    // Read before the session is lent: a new session may be to another server, and changes them.
    let (epoch, age) = (commits.lineage.epoch(), commits.hints.age());
    let session = before(deadline, commits.sessions.commit()).await??;
    let attempt = Attempt { session: &session, commits, deadline, batch, epoch, age };
    match attempt.commit(trusting).await {
        Ok(decided) => {
            session.put_back();
            Ok(decided)
        }
        Err(Failed { failure, session_spared }) => {
            if session_spared {
                session.roll_back(ROLLBACK).await;
            }
            Err(failure)
        }
    }
}

/// One attempt to commit a batch, on a session.
struct Attempt<'a> {
    session: &'a Session,
    commits: &'a CommitPath,
    deadline: Instant,
    batch: &'a Batch<'a>,
    epoch: LedgerEpoch,
    age: u64,
}

impl Attempt<'_> {
    /// `trusting`: runs that this process wrote last are not read; the statement that writes looks whether they are
    /// unchanged.
    async fn commit(&self, trusting: bool) -> Result<Decided, Failed> {
        let Self { session, commits: CommitPath { hints, ends, uptime, .. }, deadline, batch, .. } = *self;
        let Batch { shard, commands, rules, keys, wanted, .. } = batch;
        let kept = if trusting { hints.runs(*shard, commands, *rules) } else { None };
        let prepared = before(deadline, Prepared::of(session, ends, wanted)).await?.map_err(errors::statement)?;
        let reads = traces::part("store.lock_and_read");
        let load = lock_and_load(session, uptime, &prepared, *shard, (keys, wanted), kept.is_none());
        let LoadedRuns { loaded, now, min_release } = before(deadline, load).await??;
        drop(reads);
        hints.clock(now);
        hints.sides().note(&loaded.sides);
        let (last, at, steady) = (loaded.last, loaded.now, loaded.steady.now);
        let (mut decided, rested_on) = self.decided(loaded, kept, &prepared).await?;
        if decided.events.is_empty() {
            // Nothing to make durable: a COMMIT would be as sure, but need not be told apart from one that writes.
            before(deadline, session.batch_execute(ROLLBACK)).await?.map_err(errors::statement)?;
            return Ok(decided);
        }
        decided.values_redacted =
            redact::rewrite(session, deadline, smallint(*shard), &decided.events, decided.nothing_up_to).await?;
        self.write(decided, last, (at, steady), min_release, rested_on).await
    }

    /// Decides the batch on what was loaded, and on the runs that this process keeps, if it does.
    async fn decided(
        &self,
        mut loaded: Loaded,
        kept: Option<Vec<Arc<Run>>>,
        prepared: &Prepared,
    ) -> Result<(Decided, RestedOn), Failed> {
        let Batch { shard, commands, rules, ref keys, .. } = *self.batch;
        let wanted = rules.lifecycles(commands, kept.as_ref().unwrap_or(&loaded.runs));
        loaded.sides.lifecycles = self.lifecycles(wanted).await?;
        let Some(runs) = kept else { return Ok((rules.decide(commands, loaded), RestedOn::Nothing)) };
        let decided = rules.decide(commands, Loaded { runs, ..loaded.clone() });
        if decided.all_applied() {
            return Ok((decided, RestedOn::Runs));
        }
        // A command that makes no event rests on the run as it is, and no write would look whether it is still so.
        let runs = before(self.deadline, load_runs(self.session, prepared, smallint(shard), keys)).await?;
        let runs = read_runs(&runs.map_err(Failed::finally)?)?;
        // What a name stands for was read already.
        let known = std::mem::take(&mut loaded.sides.lifecycles);
        let mut wanted = rules.lifecycles(commands, &runs);
        wanted.retain(|key| !known.iter().any(|(there, _)| there == key));
        loaded.sides.lifecycles = self.lifecycles(wanted).await?;
        loaded.sides.lifecycles.extend(known);
        Ok((rules.decide(commands, Loaded { runs, ..loaded }), RestedOn::Nothing))
    }

    /// The lifecycles that the commands rest on: nothing is read where they rest on none.
    async fn lifecycles(&self, wanted: BTreeSet<LifecycleKey>) -> Result<Vec<(LifecycleKey, Arc<Declared>)>, Failed> {
        if wanted.is_empty() {
            return Ok(Vec::new());
        }
        let found = sides::lifecycles::found(self.session, wanted, self.commits.hints.lifecycles());
        // Boxed: few commits need the side, and the future of every commit would have room for it.
        Ok(Box::pin(before(self.deadline, found)).await?.map_err(retriable)??)
    }

    /// Writes what was decided after the last event, and commits.
    async fn write(
        &self,
        decided: Decided,
        last: Position,
        times: (Time, Time),
        min_release: Arc<str>,
        rested_on: RestedOn,
    ) -> Result<Decided, Failed> {
        let Self { session, commits, deadline, batch: &Batch { shard, commit_id, commands, .. }, epoch, age } = *self;
        let write = write(smallint(shard), commit_id, times, &decided, EventsPlace::After(last));
        let statement = before(deadline, session.prepare_cached(&write.sql)).await?.map_err(errors::statement)?;
        let arguments = write.arguments();
        let _writes = traces::part("store.write_and_commit");
        let outcome = timeout(WRITE_MAX, write_and_commit(session, session.query_one(&statement, &arguments))).await;
        drop(arguments);
        drop(write);
        let source = match outcome {
            Ok(Written::Committed(_)) if commits.lineage.epoch() != epoch => LeftBehind.into(),
            Ok(Written::Committed(_)) => {
                commits.hints.committed(shard, last, &decided, min_release, rested_on, age);
                commits.lineage.saw(epoch, [(shard, last + decided.events.len() as u64)]);
                return Ok(decided);
            }
            Ok(Written::RolledBack(error)) if errors::asks_for_retry(&error) => {
                return Err(Failed::at(error, Failure::Again));
            }
            Ok(Written::RolledBack(error)) if rested_on == RestedOn::Runs && errors::is_lost_race(&error) => {
                commits.hints.runs_were_wrong(shard, commands);
                return Err(Failed::at(error, |_| Failure::Stale));
            }
            Ok(Written::RolledBack(error)) => return Err(Failed::finally(error)),
            Ok(Written::Unsent(error)) => return Err(errors::unsent(error).into()),
            Ok(Written::Unknown(error)) => error.into(),
            Err(_) => TimedOut.into(),
        };
        commits.hints.runs_were_wrong(shard, commands);
        let unsettled = Box::new(Unsettled { shard, commit_id, first_position: last + 1, decided });
        let failure = Failure::Final(CommitError::Unknown { unsettled, source });
        Err(Failed { failure, session_spared: false })
    }
}

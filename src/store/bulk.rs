//! Writing many finished runs at once, past the service: for `runledger bench fill`.
//!
//! The rows that are loaded are those that the service would have written: the same decisions, the same columns, the
//! shard's head taken first. Only the statements are others, and thousands of runs share one transaction.

use std::path::PathBuf;
use std::sync::Arc;

use async_trait::async_trait;
use uuid::Uuid;

use super::error::Source;
use super::{Description, Ledger, StoreError};
use crate::domain::decide::{Context, Decision, decide};
use crate::domain::ids::DEFAULT_NAMESPACE;
use crate::domain::sides::contents::rows;
use crate::domain::steady::PRESENT_MICROS;
use crate::domain::{Command, Decided, NewEvent, Position, Run, RunWrite, Shard, SideWrites, Time};

/// A ledger that is loaded. Safe beside servers on Postgres; an SQLite file is locked for it, as for a server.
#[async_trait]
pub trait Bulk: Send + Sync + 'static {
    /// The database's identity.
    fn ledger(&self) -> Ledger;

    /// The kind of store, and where it is.
    fn describe(&self) -> Description;

    /// The number of loads, each of another shard, that the store can have in flight at once.
    fn loads_max(&self) -> usize;

    /// The room that runs take, and the room that there is.
    ///
    /// # Errors
    ///
    /// The store cannot be read.
    async fn room(&self) -> Result<Room, StoreError>;

    /// The last run id of a shard that begins with a prefix, by byte; none when none does. The prefix ends with `-`.
    ///
    /// # Errors
    ///
    /// The store cannot be read.
    async fn last_run_id(&self, shard: Shard, prefix: &str) -> Result<Option<String>, StoreError>;

    /// Writes runs to one shard, in one transaction that takes the shard's head first. Durable when this returns.
    /// Gives the number of events that were written.
    ///
    /// # Errors
    ///
    /// See [`LoadError`].
    async fn load(&self, shard: Shard, commit_id: Uuid, load: Load) -> Result<u64, LoadError>;

    /// Leaves the tables as they would be after some quiet time: statistics that are true, and nothing left for the
    /// next reader or the next automatic cleaning to do. Takes minutes where many runs were loaded.
    ///
    /// # Errors
    ///
    /// The tables could not be left so. The runs that were loaded are there all the same.
    async fn vacuum(&self) -> Result<(), StoreError>;

    /// Closes connections and files, and releases locks. No method is called after it.
    async fn close(&self);
}

/// The runs that one transaction loads.
#[derive(Debug)]
pub struct Load {
    /// The commands of each run, in their order: the first command creates the run, the last one ends it.
    pub histories: Vec<Vec<Command>>,
    /// The beginning of all run ids. Ends with `-`.
    pub prefix: String,
    /// The value that [`Bulk::last_run_id`] must have, so that two processes that load the same runs do not load them
    /// twice.
    pub after: Option<String>,
}

/// The reason why a load was not done.
#[derive(Debug, thiserror::Error)]
pub enum LoadError {
    /// The store failed. Nothing was written, unless the connection broke while COMMIT was under way.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// Somebody else has loaded runs with this prefix meanwhile. Nothing was written.
    #[error("somebody else is loading runs whose ids begin with {prefix}")]
    Taken {
        /// See [`Load::prefix`].
        prefix: String,
    },
}

/// The room that runs take, and the room that there is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Room {
    /// The bytes that a run and its three events take, about, indexes included.
    pub bytes_per_run: u64,
    /// The bytes that one run adds to the database's own log, about, and the size to which that log may grow.
    pub log_bytes_per_run: u64,
    /// See [`Room::log_bytes_per_run`].
    pub log_bytes_max: u64,
    /// The place of the data, and the bytes that are free there; none when this process cannot tell.
    pub free: Option<(PathBuf, u64)>,
}

impl Room {
    /// The bytes of disk that so many runs want, about.
    #[must_use]
    pub fn wanted(&self, runs: u64) -> u64 {
        let log = runs.saturating_mul(self.log_bytes_per_run).min(self.log_bytes_max);
        runs.saturating_mul(self.bytes_per_run).saturating_add(log)
    }
}

/// Free bytes for this process in the file system of a path.
pub(super) fn free_at(path: PathBuf) -> Option<(PathBuf, u64)> {
    let found = rustix::fs::statvfs(&path).ok()?;
    Some((path, found.f_bavail.saturating_mul(found.f_frsize)))
}

/// The facts that a load is decided on, read under the shard's head.
#[derive(Clone, Copy, Debug)]
pub(super) struct End {
    /// The shard's last event.
    pub(super) last: Option<(Position, Time)>,
    /// The latest time in the other shards.
    pub(super) elsewhere: Option<Time>,
    /// The store's clock.
    pub(super) now: Time,
}

/// In an empty ledger, the first load's runs begin this long before it.
const FIRST_MICROS: i64 = 1_000_000;

impl End {
    /// The times that events may have: from after every event that is there until now. At `now` alone, or later,
    /// where clocks were set back.
    fn times(&self) -> (i64, i64) {
        let at = self.last.map(|(_, at)| at);
        if at.is_none() && self.elsewhere.is_none() {
            return (self.now.micros() - FIRST_MICROS, self.now.micros());
        }
        // One that is further ahead was written while the clock was wrong, and is no time to begin at.
        let present = |at: &Time| at.since(self.now) <= PRESENT_MICROS;
        let from = [at.filter(present), self.elsewhere.filter(present).map(|at| at.plus_micros(1))];
        let from = from.into_iter().flatten().max().unwrap_or(self.now).micros();
        (from, self.now.micros().max(from))
    }
}

/// Decides the histories of runs that are not there, each command at a time of its own. The runs begin one after the
/// other through the first half of the time that has passed since the shard's last event, and each takes up to half
/// of it: so their events lie between one another in the log, as those of runs that are under way together do.
pub(super) fn decided(histories: Vec<Vec<Command>>, end: &End) -> Result<Decided, StoreError> {
    let (from, until) = end.times();
    let count = histories.len().max(1);
    let mut writes = Vec::with_capacity(histories.len());
    let mut events = Vec::with_capacity(histories.len() * 3);
    let mut contents = Vec::new();
    for (index, commands) in histories.into_iter().enumerate() {
        let mut run: Option<Run> = None;
        let steps = commands.len();
        for (step, command) in commands.into_iter().enumerate() {
            let part = index + step * count / steps;
            let now = from + part_of(until - from, part, 2 * count);
            match decide(run.as_ref(), &command, &Context::at(Time::from_micros(now))) {
                Ok(Decision::Apply(event, next)) => {
                    let keyframe = event.revision.has_keyframe().then(|| Arc::new((*next).clone()));
                    contents.extend(rows(&command, &event, &next));
                    events.push(NewEvent { position: 0, event: *event, request: command.request, keyframe });
                    run = Some(*next);
                }
                Ok(Decision::Unchanged | Decision::Replayed { .. }) => {}
                Err(refusal) => return Err(StoreError::Refused(format!("{refusal:?}").into())),
            }
        }
        writes.extend(run.map(|run| RunWrite { run: Arc::new(run), before: None, metadata_changed: true }));
    }
    // A stable sort: events of one time stay in the order in which they were decided.
    events.sort_by_cached_key(|new| new.event.at);
    let first = end.last.map_or(0, |(position, _)| position) + 1;
    for (position, new) in (first..).zip(&mut events) {
        new.position = position;
    }
    let sides = SideWrites { contents: Some(contents), ..SideWrites::default() };
    Ok(Decided { runs: writes, events, sides, ..Decided::default() })
}

fn part_of(whole: i64, part: usize, parts: usize) -> i64 {
    let whole = i128::from(whole) * i128::try_from(part).unwrap_or(0);
    i64::try_from(whole / i128::try_from(parts).unwrap_or(1)).unwrap_or(0)
}

/// The last run id of a shard and a namespace, of those from `$3` on and before `$4`.
pub(super) const LAST_RUN_ID: &str = "-- bulk.last_run_id
select run_id from runs where shard = $1 and namespace = $2 and run_id >= $3 and run_id < $4
order by run_id desc limit 1";

/// The first text after all texts that begin with a prefix.
pub(super) fn past(prefix: &str) -> String {
    debug_assert!(prefix.ends_with('-'), "{prefix} does not end with a hyphen");
    format!("{}.", prefix.trim_end_matches('-'))
}

/// The namespace that runs are loaded into.
pub(super) const NAMESPACE: &str = DEFAULT_NAMESPACE;

/// An error of a task that computes.
pub(super) fn broken(source: impl Into<Source>) -> StoreError {
    StoreError::Refused(source.into())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::{Agents, Ask, Complete, Ending, Principal, RunKey, Start, Status};

    fn command(run_id: &str, ask: Ask) -> Command {
        Command {
            key: RunKey { namespace: NAMESPACE.into(), run_id: run_id.into() },
            ask,
            expected_revision: None,
            request: None,
            principal: Principal::anonymous(),
            oversize: Vec::new(),
            prepared: crate::domain::Prepared::default(),
            trace: None,
            agents: Agents::All,
        }
    }

    fn complete() -> Ask {
        Ask::Complete(Complete::default())
    }

    fn histories(count: usize) -> Vec<Vec<Command>> {
        let start = Start { task_thread_id: "thread-1".to_owned(), ..Start::default() };
        let why = Ending { failure_reason: Some("because".to_owned()), reason_code: None };
        let fail = crate::domain::End { why, ..crate::domain::End::default() };
        let of = |index: usize| {
            let run_id = format!("run-{index}");
            let last = if index.is_multiple_of(2) { complete() } else { Ask::Fail(fail.clone()) };
            vec![command(&run_id, Ask::Start(start.clone())), command(&run_id, last)]
        };
        (0..count).map(of).collect()
    }

    fn time(micros: i64) -> Time {
        Time::from_micros(micros)
    }

    #[test]
    fn times_are_between_what_is_there_and_now_and_never_fall() {
        let ends = [
            End { last: None, elsewhere: None, now: time(5_000_000) },
            End { last: Some((7, time(1_000))), elsewhere: Some(time(2_000)), now: time(9_000) },
            End { last: Some((7, time(1_000))), elsewhere: Some(time(20)), now: time(1_001) },
            End { last: Some((7, time(1_000))), elsewhere: Some(time(20)), now: time(3) },
        ];
        for end in ends {
            let decided = decided(histories(100), &end).unwrap();
            let times: Vec<i64> = decided.events.iter().map(|new| new.event.at.micros()).collect();
            let positions: Vec<u64> = decided.events.iter().map(|new| new.position).collect();
            let first = end.last.map_or(1, |(position, _)| position + 1);
            assert_eq!(positions, (first..first + 200).collect::<Vec<_>>(), "{end:?}");
            assert!(times.is_sorted(), "{end:?}");
            assert!(end.elsewhere.is_none_or(|at| times[0] > at.micros()), "{end:?}");
            assert!(end.last.is_none_or(|(_, at)| times[0] >= at.micros()), "{end:?}");
            assert!(times[199] <= end.times().1, "{end:?}");
            assert!(decided.runs.iter().all(|write| write.run.status.is_terminal() && write.run.revision == 2));
        }
    }

    #[test]
    fn the_events_of_runs_lie_between_one_another() {
        let end = End { last: None, elsewhere: None, now: time(5_000_000) };
        let decided = decided(histories(100), &end).unwrap();
        let starts_after_an_end = decided.events.windows(2).any(|pair| {
            let [before, after] = pair else { return false };
            before.event.to.is_terminal() && after.event.to == Status::Running
        });
        assert!(starts_after_an_end);
    }

    #[test]
    fn a_command_that_is_refused_fails_the_load() {
        let end = End { last: None, elsewhere: None, now: time(0) };
        let refused = decided(vec![vec![command("run-1", complete())]], &end);
        assert!(matches!(refused, Err(StoreError::Refused(_))));
    }

    #[test]
    fn the_log_is_not_larger_than_it_may_become() {
        let room = Room { bytes_per_run: 10, log_bytes_per_run: 5, log_bytes_max: 12, free: None };
        assert_eq!((room.wanted(2), room.wanted(3), room.wanted(u64::MAX)), (30, 42, u64::MAX));
    }
}

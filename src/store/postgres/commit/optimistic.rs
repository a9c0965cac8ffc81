//! The optimistic commit, in one flush: decided on [hints](super::hints), checked and written by one statement.
//!
//! The statement takes the head, then looks whether all hints hold: each run's revision, new runs not there yet, no
//! request id applied, no event of any shard later than this commit's time, the schema's release, and the store's
//! clock close to the time assumed for it. Only then it writes; else it writes nothing, and the commit is made in two
//! flushes. The statement also reads the position.
//!
//! The transaction is that one statement, which reads as of its own beginning, before it may have waited for the
//! head: if somebody committed to the shard meanwhile, then either its first position is taken, and the log's primary
//! key ends the statement with 23505, or a run has moved on, and the count of changed rows ends it with 22012. A
//! writer that takes heads and writes no event leaves a new version of them, which the statement sees. Calls that
//! were answered before the statement began are all in its snapshot, so times follow the order of calls. Where others
//! commit all the time, hints are wrong all the time: then commits are made in two flushes for a while.
//!
//! An optimistic commit that is on its way when its connection breaks may reach the database long after. The clock
//! voids it: see [`DECIDED_BEFORE_MAX_MS`](super::write::DECIDED_BEFORE_MAX_MS) and [`settle`](super::settle).
//!
//! Such a commit bears the time that this process took for that of the store's clock. The statement checks that this
//! time is at most 5 ms ahead of the store's clock, and less than a second behind it.

use std::collections::BTreeSet;
use std::sync::Arc;

use tokio::time::{Instant, timeout};
use tokio_postgres::Row;
use uuid::Uuid;

use super::super::errors::{self, LeftBehind, TimedOut};
use super::super::rows::{Reader, smallint};
use super::hints::{Hinted, Hints, RestedOn};
use super::outcome::{Written, write_alone};
use super::path::{CommitPath, WRITE_MAX, before};
use super::write::{EventsPlace, write};
use crate::domain::{
    Basis, Command, Decide, Decided, Declared, LedgerEpoch, LifecycleKey, LifecyclePin, Loaded, Position, Shard, Sides,
    Time,
};
use crate::store::lifecycles::Versions;
use crate::store::{CommitError, Unsettled, metrics};
use crate::telemetry::{chain, record, traces};

/// The outcome of an optimistic commit.
#[expect(clippy::large_enum_variant, reason = "one for each commit, and taken apart at once")]
pub(in crate::store::postgres) enum Optimistic {
    Committed(Decided),
    /// Surely not applied: there were no hints, or a wrong one, or the statement failed.
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
    let Some(guess) = guess(commits, shard, commands, rules, epoch) else {
        return Ok(Optimistic::NotWritten);
    };
    let Guess { mut decided, remembered, named, last, times, min_release } = guess;
    let (shard_count, remembered, named) = (commits.shard_count, &remembered, &named[..]);
    let place = EventsPlace::AtTheEnd { shard_count, min_release: &min_release, remembered, named };
    let write = write(smallint(shard), commit_id, times, &decided, place);
    let session = before(deadline, commits.sessions.commit()).await??;
    if age != hints.age() {
        // The session may be to another server.
        session.put_back();
        return Ok(Optimistic::NotWritten);
    }
    let Ok(statement) = before(deadline, session.prepare_cached(&write.sql)).await? else {
        // The commit in two flushes meets the same error, and tells it.
        return Ok(Optimistic::NotWritten);
    };
    let arguments = write.arguments();
    let writes = traces::part("store.check_write_and_commit");
    let sent = timeout(WRITE_MAX, write_alone(session.query_opt(&statement, &arguments))).await;
    drop(writes);
    drop(arguments);
    drop(write);
    let source = match sent {
        Ok(Written::Committed(Some(_))) if commits.lineage.epoch() != epoch => LeftBehind.into(),
        Ok(Written::Committed(Some(row))) => {
            session.put_back();
            let after = place_of(&row, hints, &mut decided);
            hints.committed(shard, after, &decided, min_release, RestedOn::All, age);
            commits.lineage.saw(epoch, [(shard, after + decided.events.len() as u64)]);
            return Ok(Optimistic::Committed(decided));
        }
        Ok(Written::Committed(None)) => {
            session.put_back();
            hints.sides().were_wrong(commands);
            return Ok(was_wrong(hints, shard));
        }
        Ok(Written::RolledBack(error)) if errors::is_lost_race(&error) => {
            session.put_back();
            return Ok(was_wrong(hints, shard));
        }
        Ok(Written::RolledBack(error) | Written::Unsent(error)) => {
            // The commit in two flushes meets the same error again, and tells its meaning.
            tracing::warn!(error = chain(&error), "a commit in one flush failed: it is made in two");
            if errors::spares_session(&error) {
                session.put_back();
            }
            hints.was_wrong(shard);
            hints.runs_were_wrong(shard, commands);
            return Ok(Optimistic::NotWritten);
        }
        Ok(Written::Unknown(error)) => error.into(),
        Err(_elapsed) => TimedOut.into(),
    };
    hints.was_wrong(shard);
    hints.runs_were_wrong(shard, commands);
    hints.is_sent(commit_id, times.0);
    let unsettled = Box::new(Unsettled { shard, commit_id, first_position: last + 1, decided });
    Err(CommitError::Unknown { unsettled, source })
}

/// The position that the events come after, from the statement's answer: it is noted on them, and the clock as a hint.
fn place_of(row: &Row, hints: &Hints, decided: &mut Decided) -> Position {
    let place = Reader { table: "run_events", row, key: &String::new };
    // The columns are not null, and of these types: an answer with others would be a bug of the statement.
    let after: u64 = place.get("last").expect("a position");
    hints.clock(place.get("now").expect("a time"));
    for (position, event) in (after + 1..).zip(&mut decided.events) {
        event.position = position;
    }
    after
}

/// The statement found that a hint did not hold.
fn was_wrong(hints: &Hints, shard: Shard) -> Optimistic {
    record::commit_retry(metrics::WRONG_HINT);
    hints.was_wrong(shard);
    Optimistic::NotWritten
}

/// What was decided on hints, and which of these the statement looks at.
struct Guess {
    decided: Decided,
    remembered: Sides,
    named: Vec<(LifecycleKey, LifecyclePin)>,
    last: Position,
    /// Of the store, and of the steady clock.
    times: (Time, Time),
    min_release: Arc<str>,
}

/// Decides commands on hints; none where hints do not suffice.
fn guess(
    commits: &CommitPath,
    shard: Shard,
    commands: &[Arc<Command>],
    rules: &dyn Decide,
    epoch: LedgerEpoch,
) -> Option<Guess> {
    // What the log has is read under the head.
    if commands.iter().any(|command| rules.basis(command) == Basis::Log) {
        return None;
    }
    let hints = &commits.hints;
    let Hinted { mut loaded, min_release } = hints.hinted(shard, commands, rules, epoch, commits.uptime.steady())?;
    let (last, times) = (loaded.last, (loaded.now, loaded.steady.now));
    let remembered = loaded.sides.clone();
    let (lifecycles, named) = lifecycles(hints.lifecycles(), rules.lifecycles(commands, &loaded.runs))?;
    loaded.sides.lifecycles = lifecycles;
    let decided = decided(commands, loaded, rules)?;
    Some(Guess { decided, remembered, named, last, times, min_release })
}

/// Lifecycles by their keys, and what the names among these stand for.
type Known = (Vec<(LifecycleKey, Arc<Declared>)>, Vec<(LifecycleKey, LifecyclePin)>);

/// The lifecycles that commands rest on, as this process remembers them, and what names must still stand for; none
/// where one is not remembered.
fn lifecycles(versions: &Versions, wanted: BTreeSet<LifecycleKey>) -> Option<Known> {
    let (mut found, mut named) = (Vec::with_capacity(wanted.len()), Vec::new());
    for key in wanted {
        let declared = versions.get(&key)?;
        if matches!(key, LifecycleKey::Named(..)) {
            named.push((key.clone(), declared.pin.clone()));
        }
        found.push((key, declared));
    }
    Some((found, named))
}

/// Decides commands on what was remembered; none where that does not suffice.
fn decided(commands: &[Arc<Command>], loaded: Loaded, rules: &dyn Decide) -> Option<Decided> {
    let run_of = |command: &Command| loaded.runs.iter().find(|run| run.key() == command.key).map(|run| &**run);
    if !commands.iter().all(|command| rules.is_only_the_run(command, run_of(command))) {
        // No hint covers these: leases are renewed by their holders, and the runs that count are of any shard.
        return None;
    }
    let now = loaded.now;
    let decided = rules.decide(commands, loaded);
    // A command that makes no event rests on the run as it is, and no statement would look whether it is still so.
    (decided.all_applied() && decided.events.iter().all(|new| new.event.at == now)).then_some(decided)
}

//! The hints: facts about runs and shards that this process remembers, to decide a commit before its head is taken.
//!
//! A hint may be wrong: each is compared with the tables under the head, in the statement that writes, and a commit
//! whose hints did not hold writes nothing. No answer is ever given from here alone.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use quick_cache::sync::{Cache, DefaultLifecycle};
use quick_cache::{DefaultHashBuilder, OptionsBuilder, Weighter};
use tokio::time::Instant;
use uuid::Uuid;

use super::super::leased_run_hints::HeldRuns;
use super::super::sides::namespaces::HintedSides;
use crate::domain::steady::{PRESENT_MICROS, STEP_MIN_MICROS, after_all};
use crate::domain::{Basis, Command, Decide, Decided, LedgerEpoch, Loaded, Position, Run, RunKey, Shard, Steady, Time};
use crate::store::lifecycles::Versions;

/// Bytes of runs kept to decide the next command on.
const RUNS_BYTES_MAX: u64 = 16 * 1024 * 1024;

/// The number of runs that the cache's tables are made for.
const RUNS: usize = 16 * 1024;

/// After this long without an answer of the store, its clock is asked again: clocks drift apart.
const CLOCK_AGE_MAX: Duration = Duration::from_secs(10);

/// Commits that are made without hints after one whose hints were wrong: at first, and at most, after several in a row.
const BACK_OFF: u32 = 8;
const BACK_OFF_MAX: u32 = 256;

/// The time for which a commit of unknown outcome is remembered: longer than any caller waits for it.
const SENT_MICROS_MAX: i64 = 60_000_000;

/// The runs that are not terminal, the ends of the shards, and the store's clock.
pub(in crate::store::postgres) struct Hints {
    runs: Cache<RunKey, Arc<Run>, ByWeight>,
    shards: Vec<Mutex<Option<End>>>,
    clock: Mutex<Option<ToldClock>>,
    /// The number of times that everything was forgotten.
    age: AtomicU64,
    /// Optimistic commits of unknown outcome, and when they were decided.
    sent: Mutex<HashMap<Uuid, Time>>,
    held: HeldRuns,
    sides: HintedSides,
    lifecycles: Versions,
}

/// The end of a shard, after this process's last commit to it.
#[derive(Clone, Debug)]
struct End {
    position: Position,
    at: Time,
    min_release: Arc<str>,
    /// The back-off after a wrong position: whether nobody else commits meanwhile.
    place: BackOff,
    /// The back-off after wrong runs: whether runs still are as this process left them.
    runs: BackOff,
}

/// Whether a commit should rest on hints. A wrong hint costs a commit that wrote nothing.
#[derive(Clone, Copy, Debug)]
struct BackOff {
    /// Commits that are still made without hints.
    left: u32,
    /// The number of such commits after the next wrong hint.
    next: u32,
}

impl BackOff {
    const NONE: Self = Self { left: 0, next: BACK_OFF };
    /// One commit without hints first: a process that commits only once or twice gains nothing by them.
    const FIRST: Self = Self { left: 1, next: BACK_OFF };

    fn allows(&mut self) -> bool {
        let allows = self.left == 0;
        self.left = self.left.saturating_sub(1);
        allows
    }

    fn right(&mut self) {
        self.next = (self.next - 1).max(BACK_OFF);
    }

    fn wrong(&mut self) {
        self.left = self.next;
        self.next = (self.next * 2).min(BACK_OFF_MAX);
    }
}

/// The hints that a commit rests on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::store::postgres) enum RestedOn {
    /// All of them.
    All,
    Runs,
    Nothing,
}

/// The store's clock, and when an answer told it.
#[derive(Clone, Copy, Debug)]
struct ToldClock {
    now: Time,
    received: Instant,
}

impl ToldClock {
    fn is_better_than(self, later: Self) -> bool {
        let age = later.received - self.received;
        let ahead = self.after(age).since(later.now);
        // One that is ahead by more is no better: the clock was set back.
        age <= CLOCK_AGE_MAX && (1..STEP_MIN_MICROS).contains(&ahead)
    }

    fn after(self, time: Duration) -> Time {
        Time::from_micros(self.now.micros().saturating_add(i64::try_from(time.as_micros()).unwrap_or(i64::MAX)))
    }
}

/// The facts that a commit is decided on without reading.
pub(in crate::store::postgres) struct Hinted {
    pub(in crate::store::postgres) loaded: Loaded,
    pub(in crate::store::postgres) min_release: Arc<str>,
}

#[derive(Clone)]
struct ByWeight;

impl Weighter<RunKey, Arc<Run>> for ByWeight {
    fn weight(&self, key: &RunKey, run: &Arc<Run>) -> u64 {
        (key.run_id.len() + run.weight()) as u64
    }
}

impl Hints {
    pub(in crate::store::postgres) fn new(shard_count: u16, lifecycle_bytes: u64) -> Self {
        let options = OptionsBuilder::new()
            .estimated_items_capacity(RUNS)
            .weight_capacity(RUNS_BYTES_MAX)
            .build()
            .expect("the capacities are given");
        Self {
            runs: Cache::with_options(options, ByWeight, DefaultHashBuilder::default(), DefaultLifecycle::default()),
            shards: (0..shard_count).map(|_| Mutex::default()).collect(),
            clock: Mutex::default(),
            age: AtomicU64::new(0),
            sent: Mutex::default(),
            held: HeldRuns::none(),
            sides: HintedSides::default(),
            lifecycles: Versions::new(lifecycle_bytes),
        }
    }

    /// The runs that are known to be held. They are not forgotten with the others: none is ever checked.
    pub(in crate::store::postgres) fn held(&self) -> &HeldRuns {
        &self.held
    }

    /// The rows of the sides that are remembered.
    pub(in crate::store::postgres) fn sides(&self) -> &HintedSides {
        &self.sides
    }

    /// The versions of lifecycles that were read last.
    pub(in crate::store::postgres) fn lifecycles(&self) -> &Versions {
        &self.lifecycles
    }

    /// Forgets everything: a new session may be to another server than before, which may know fewer or other facts:
    /// after a failover, or from a copy.
    pub(in crate::store::postgres) fn forget(&self) {
        self.age.fetch_add(1, Ordering::SeqCst);
        self.runs.clear();
        self.sides.forget();
        self.lifecycles.forget();
        for end in &self.shards {
            *end.lock() = None;
        }
        *self.clock.lock() = None;
    }

    /// The bytes of runs that are remembered, and how many may be.
    pub(in crate::store::postgres) fn bytes(&self) -> (usize, usize) {
        let bytes = |bytes| usize::try_from(bytes).unwrap_or(usize::MAX);
        (bytes(self.runs.weight()), bytes(RUNS_BYTES_MAX))
    }

    /// The age of the hints: a fact that was noted at one age must not be used at another.
    pub(in crate::store::postgres) fn age(&self) -> u64 {
        self.age.load(Ordering::SeqCst)
    }

    /// The hints for these commands: none where a fact is not known, or hints were wrong of late. Only a command that
    /// may create a run may be for a run that is not remembered.
    pub(in crate::store::postgres) fn hinted(
        &self,
        shard: Shard,
        commands: &[Arc<Command>],
        rules: &dyn Decide,
        ledger_epoch: LedgerEpoch,
        steady: Steady,
    ) -> Option<Hinted> {
        let end = {
            let mut end = self.shards[usize::from(shard.0)].lock();
            let end = end.as_mut()?;
            if !end.place.allows() {
                return None;
            }
            end.clone()
        };
        let told = (*self.clock.lock())?;
        let age = told.received.elapsed();
        if age > CLOCK_AGE_MAX {
            return None;
        }
        let now = told.after(age);
        let sides = self.sides.of(commands)?;
        let loaded = Loaded {
            last: end.position,
            now: after_all(now, Some(end.at), self.elsewhere(shard, now)),
            steady: steady.beside(now),
            runs: self.all_runs(commands, rules)?,
            requests: Vec::new(),
            sides,
            ledger_epoch,
        };
        Some(Hinted { loaded, min_release: end.min_release })
    }

    /// The runs of the commands as this process left them: none where a run is not remembered, unless its command
    /// may create it, or where the runs had changed of late.
    pub(in crate::store::postgres) fn runs(
        &self,
        shard: Shard,
        commands: &[Arc<Command>],
        rules: &dyn Decide,
    ) -> Option<Vec<Arc<Run>>> {
        let allows = self.shards[usize::from(shard.0)].lock().as_mut()?.runs.allows();
        if allows { self.all_runs(commands, rules) } else { None }
    }

    fn all_runs(&self, commands: &[Arc<Command>], rules: &dyn Decide) -> Option<Vec<Arc<Run>>> {
        let mut runs: HashMap<&RunKey, Option<Arc<Run>>> = HashMap::with_capacity(commands.len());
        for command in commands {
            if runs.contains_key(&command.key) {
                continue;
            }
            let run = self.runs.get(&command.key);
            if run.is_none() && rules.basis(command) != Basis::RunOrNone {
                return None;
            }
            runs.insert(&command.key, run);
        }
        Some(runs.into_values().flatten().collect())
    }

    fn elsewhere(&self, shard: Shard, now: Time) -> Option<Time> {
        let others = self.shards.iter().enumerate().filter(|(other, _)| *other != usize::from(shard.0));
        let of_present = |at: &Time| at.since(now) <= PRESENT_MICROS;
        others.filter_map(|(_, end)| end.lock().as_ref().map(|end| end.at)).filter(of_present).max()
    }

    /// Notes that a hint was wrong: somebody else commits to the shard, or to others, or changes its runs.
    pub(in crate::store::postgres) fn was_wrong(&self, shard: Shard) {
        if let Some(end) = self.shards[usize::from(shard.0)].lock().as_mut() {
            end.place.wrong();
        }
    }

    /// Forgets the runs of these commands, which may have changed since this process wrote them.
    pub(in crate::store::postgres) fn runs_were_wrong(&self, shard: Shard, commands: &[Arc<Command>]) {
        for command in commands {
            self.runs.remove(&command.key);
        }
        if let Some(end) = self.shards[usize::from(shard.0)].lock().as_mut() {
            end.runs.wrong();
        }
    }

    /// Notes the store's clock, as an answer told it. An answer that took long is worth less than an earlier one plus
    /// the time since.
    pub(in crate::store::postgres) fn clock(&self, now: Time) {
        let told = ToldClock { now, received: Instant::now() };
        let mut clock = self.clock.lock();
        if !clock.is_some_and(|before| before.is_better_than(told)) {
            *clock = Some(told);
        }
    }

    /// Notes a commit whose events come after this position, made on a session of this age.
    pub(in crate::store::postgres) fn committed(
        &self,
        shard: Shard,
        after: Position,
        decided: &Decided,
        min_release: Arc<str>,
        rested_on: RestedOn,
        age: u64,
    ) {
        self.held.committed(&decided.sides);
        if age != self.age() {
            return;
        }
        for write in &decided.runs {
            if write.run.status.is_terminal() {
                self.runs.remove(&write.run.key());
            } else {
                self.runs.insert(write.run.key(), write.run.clone());
            }
        }
        let Some(last) = decided.events.last() else { return };
        let mut end = self.shards[usize::from(shard.0)].lock();
        let (mut place, mut runs) = end.as_ref().map_or((BackOff::FIRST, BackOff::NONE), |end| (end.place, end.runs));
        match rested_on {
            RestedOn::All => {
                place.right();
                runs.right();
            }
            RestedOn::Runs => runs.right(),
            RestedOn::Nothing => {}
        }
        let position = after + decided.events.len() as u64;
        *end = Some(End { position, at: last.event.at, min_release, place, runs });
    }

    /// Notes an optimistic commit that may still be applied.
    pub(in crate::store::postgres) fn is_sent(&self, commit_id: Uuid, decided_at: Time) {
        let mut sent = self.sent.lock();
        // A commit that nobody has settled for so long is dropped.
        sent.retain(|_, at| decided_at.micros() - at.micros() < SENT_MICROS_MAX);
        sent.insert(commit_id, decided_at);
    }

    /// The time at which a commit was decided, if it was optimistic and its outcome is not known.
    pub(in crate::store::postgres) fn sent(&self, commit_id: Uuid) -> Option<Time> {
        self.sent.lock().get(&commit_id).copied()
    }

    pub(in crate::store::postgres) fn is_settled(&self, commit_id: Uuid) {
        self.sent.lock().remove(&commit_id);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The number of commits that are made without hints from now on.
    fn skipped(back_off: &mut BackOff) -> u32 {
        (0..=BACK_OFF_MAX).find(|_| back_off.allows()).expect("some day")
    }

    #[test]
    fn what_was_wrong_is_left_out_for_longer_each_time_and_forgiven_step_by_step() {
        let mut back_off = BackOff::NONE;
        assert_eq!(skipped(&mut back_off), 0);
        for expected in [BACK_OFF, 2 * BACK_OFF, 4 * BACK_OFF] {
            back_off.wrong();
            assert_eq!(skipped(&mut back_off), expected);
        }
        for _ in 0..8 {
            back_off.wrong();
        }
        assert_eq!(skipped(&mut back_off), BACK_OFF_MAX);
        for _ in 0..BACK_OFF_MAX {
            assert!(back_off.allows());
            back_off.right();
        }
        back_off.wrong();
        assert_eq!(skipped(&mut back_off), BACK_OFF);
    }
}

//! What this process remembers of the shards, so that a commit can be decided before its head is taken.
//!
//! Only a guess: whatever is remembered here is compared with the tables under the head, in the statement that writes,
//! and a commit whose guess was wrong writes nothing. Nothing is ever answered from here.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use quick_cache::sync::{Cache, DefaultLifecycle};
use quick_cache::{DefaultHashBuilder, OptionsBuilder, Weighter};
use tokio::time::Instant;
use uuid::Uuid;

use super::rows::after_all;
use crate::domain::{Command, Decided, Loaded, Operation, Position, Run, RunKey, Shard, Time};

/// Bytes of runs kept to decide the next command on.
const RUNS_BYTES_MAX: u64 = 16 * 1024 * 1024;

/// How many runs the cache's tables are made for.
const RUNS: usize = 16 * 1024;

/// After this long without a word from the store, its clock is asked again: clocks drift apart.
const CLOCK_AGE_MAX: Duration = Duration::from_secs(10);

/// Commits that are read for after a guess that was wrong, doubled with each one that follows.
const DISTRUST_MAX: u32 = 256;

/// How long a commit of unknown fate is remembered: longer than anybody waits for it.
const SENT_MICROS_MAX: i64 = 60_000_000;

/// The runs that are not terminal, the ends of the shards, and the store's clock.
pub(super) struct Kept {
    runs: Cache<RunKey, Arc<Run>, ByWeight>,
    shards: Vec<Mutex<Option<End>>>,
    clock: Mutex<Option<Told>>,
    /// How often everything was forgotten.
    age: AtomicU64,
    /// Commits in one flush whose fate is not known, and when they were decided.
    sent: Mutex<HashMap<Uuid, Time>>,
}

/// Where a shard ended when this process committed to it last.
#[derive(Clone, Debug)]
struct End {
    position: Position,
    at: Time,
    min_release: Arc<str>,
    /// Nobody else committed between this process's last two commits.
    alone: bool,
    /// Commits still to be read for.
    distrusted: u32,
    /// How many they are after the next wrong guess.
    distrust: u32,
}

/// The store's clock.
#[derive(Clone, Copy, Debug)]
struct Told {
    now: Time,
    received: Instant,
}

impl Told {
    fn is_better_than(self, later: Self) -> bool {
        let age = later.received - self.received;
        age <= CLOCK_AGE_MAX && self.after(age) > later.now
    }

    fn after(self, time: Duration) -> Time {
        Time::from_micros(self.now.micros().saturating_add(i64::try_from(time.as_micros()).unwrap_or(i64::MAX)))
    }
}

/// What a commit is decided on without reading.
pub(super) struct Guess {
    pub(super) loaded: Loaded,
    pub(super) min_release: Arc<str>,
    /// Nobody else seems to commit to the shard: its head need not be taken in a statement of its own.
    pub(super) alone: bool,
}

#[derive(Clone)]
struct ByWeight;

impl Weighter<RunKey, Arc<Run>> for ByWeight {
    fn weight(&self, key: &RunKey, run: &Arc<Run>) -> u64 {
        (key.run_id.len() + run.weight()) as u64
    }
}

impl Kept {
    pub(super) fn new(shard_count: u16) -> Self {
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
        }
    }

    /// A new session may be to another server than before, which may know less or other things: after a failover, or
    /// from a copy.
    pub(super) fn forget(&self) {
        self.age.fetch_add(1, Ordering::SeqCst);
        self.runs.clear();
        for end in &self.shards {
            *held(end) = None;
        }
        *held(&self.clock) = None;
    }

    /// What was remembered at an age is worth nothing at another.
    pub(super) fn age(&self) -> u64 {
        self.age.load(Ordering::SeqCst)
    }

    /// What the commands may be decided on: none where something is not known, or guesses were wrong of late. A run
    /// that is not kept may only be meant to be new.
    pub(super) fn guess(&self, shard: Shard, commands: &[Arc<Command>]) -> Option<Guess> {
        let end = {
            let mut end = held(&self.shards[usize::from(shard.0)]);
            let end = end.as_mut()?;
            if end.distrusted > 0 {
                end.distrusted -= 1;
                return None;
            }
            end.clone()
        };
        let told = (*held(&self.clock))?;
        let age = told.received.elapsed();
        if age > CLOCK_AGE_MAX {
            return None;
        }
        let now = told.after(age);
        let mut runs: HashMap<&RunKey, Option<Arc<Run>>> = HashMap::with_capacity(commands.len());
        for command in commands {
            if runs.contains_key(&command.key) {
                continue;
            }
            let run = self.runs.get(&command.key);
            if run.is_none() && !matches!(command.operation, Operation::Start { .. }) {
                return None;
            }
            runs.insert(&command.key, run);
        }
        let loaded = Loaded {
            last: Some((end.position, end.at)),
            now: after_all(now, self.elsewhere(shard)),
            runs: runs.into_values().flatten().collect(),
            requests: Vec::new(),
        };
        Some(Guess { loaded, min_release: end.min_release, alone: end.alone })
    }

    fn elsewhere(&self, shard: Shard) -> Option<Time> {
        let others = self.shards.iter().enumerate().filter(|(other, _)| *other != usize::from(shard.0));
        others.filter_map(|(_, end)| held(end).as_ref().map(|end| end.at)).max()
    }

    /// Something of a guess was wrong.
    pub(super) fn distrust(&self, shard: Shard, commands: &[Arc<Command>]) {
        for command in commands {
            self.runs.remove(&command.key);
        }
        if let Some(end) = held(&self.shards[usize::from(shard.0)]).as_mut() {
            end.alone = false;
            end.distrusted = end.distrust;
            end.distrust = (end.distrust * 2).min(DISTRUST_MAX);
        }
    }

    /// The store's clock, as an answer told it. An answer that was long on its way is worth less than what an earlier
    /// one says of now.
    pub(super) fn clock(&self, now: Time) {
        let told = Told { now, received: Instant::now() };
        let mut clock = held(&self.clock);
        if !clock.is_some_and(|before| before.is_better_than(told)) {
            *clock = Some(told);
        }
    }

    /// A commit was made, whose events come after this position, on a session of this age; `guessed`: without reading.
    pub(super) fn committed(
        &self,
        shard: Shard,
        after: Position,
        decided: &Decided,
        min_release: Arc<str>,
        guessed: bool,
        age: u64,
    ) {
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
        let mut end = held(&self.shards[usize::from(shard.0)]);
        let alone = end.as_ref().is_some_and(|end| end.position == after);
        let (distrusted, distrust) = end.as_ref().map_or((0, 1), |end| (end.distrusted, end.distrust));
        let distrust = if guessed { (distrust / 2).max(1) } else { distrust };
        let position = after + decided.events.len() as u64;
        *end = Some(End { position, at: last.event.at, min_release, alone, distrusted, distrust });
    }

    /// A commit in one flush may still come to life.
    pub(super) fn is_sent(&self, commit_id: Uuid, decided_at: Time) {
        let mut sent = held(&self.sent);
        // Those that nobody settled any more.
        sent.retain(|_, at| decided_at.micros() - at.micros() < SENT_MICROS_MAX);
        sent.insert(commit_id, decided_at);
    }

    /// When it was decided, if it was sent in one flush and its fate is not known.
    pub(super) fn sent(&self, commit_id: Uuid) -> Option<Time> {
        held(&self.sent).get(&commit_id).copied()
    }

    pub(super) fn is_settled(&self, commit_id: Uuid) {
        held(&self.sent).remove(&commit_id);
    }
}

/// Nothing is left half done under these mutexes, so a poisoned one is as good as any.
fn held<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

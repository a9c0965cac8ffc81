//! The path on which runs are purged that were kept for as long as their namespace wants.
//!
//! A shard's log is in the order of time. So the runs that are due are found by a *walk* over it, from where the last one
//! ended: a run is due when its last event is, and that event is come by. No index says which runs are due, and no commit
//! writes one.
//!
//! A purge never takes a shard's newest event: its position would be given out again. The store notes for each
//! namespace up to which position events were purged, and a reader of the log that has not come so far is told.

use std::collections::BTreeMap;
use std::hash::Hasher as _;
use std::time::Duration;

use async_trait::async_trait;
use siphasher::sip::SipHasher13;

use super::{OfLedger, StoreError};
use crate::domain::{Namespace, Position, Positions, Retention, Revision, RunId, Shard, Status, Time};

/// Events that one step of a walk looks at.
pub const WALK_EVENTS_MAX: usize = 2_000;

/// Runs that one step finds, and one purge takes.
pub const PURGE_RUNS_MAX: usize = 500;

/// Events of these runs, about, but at least those of one run.
pub const PURGE_EVENTS_MAX: u64 = 4_096;

/// A walk over a shard's log, for runs of one namespace that are kept equally long.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Walk {
    pub namespace: Namespace,
    /// The time that the runs are kept, in milliseconds since their last event.
    pub keep_ms: u64,
    /// The statuses of the runs.
    pub statuses: Vec<Status>,
}

impl Walk {
    /// The walks that a namespace's retention asks for.
    #[must_use]
    pub fn each(namespace: &Namespace, retention: &Retention) -> Vec<Self> {
        let walk = |(keep_ms, statuses)| Self { namespace: namespace.clone(), keep_ms, statuses };
        retention.each().into_iter().map(walk).collect()
    }

    /// A bit for each of the statuses. A walk that looked for others was another walk.
    #[must_use]
    pub fn bits(&self) -> i16 {
        self.statuses.iter().fold(0, |bits, status| bits | 1 << status.code())
    }
}

/// What a step of a walk has found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Due {
    /// The runs that are due, each at its revision, in the order of their last events.
    pub runs: Vec<(RunId, Revision)>,
    /// The position up to which the walk has looked at every event.
    pub upto: Position,
    /// Whether there may be more that is due: the step ended at one of its limits.
    pub more: bool,
    /// The time in which surely nothing more of this walk comes to be due: its next event is that young.
    pub quiet_for: Duration,
}

/// What a purge has taken.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Purged {
    pub runs: u64,
    /// Their events.
    pub events: u64,
}

/// A namespace that does not keep all runs for ever.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Retained {
    pub namespace: Namespace,
    /// How long it keeps runs.
    pub retention: Retention,
    /// The number of its changes, the creation included.
    pub revision: Revision,
    /// The time since its last change, by the store's clock; none where that lies ahead.
    pub unchanged_for: Duration,
}

/// Times of runs that are kept, whose walks are told apart in a [`Walked`], which stands in a cursor. A namespace has
/// more only where its retention was changed many times.
const WALKED_MAX: usize = 16;

/// How far all walks of a namespace have come: for each time that runs are kept, a digest of its walks' positions. Two
/// that are equal are of one state, since a purge notes how far its walk has come.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Walked(BTreeMap<u64, u64>);

impl Walked {
    /// The walks for runs that are kept for `keep_ms`, by their digest, each in the order of the time.
    pub fn pairs(&self) -> impl Iterator<Item = (u64, u64)> {
        self.0.iter().map(|(keep_ms, digest)| (*keep_ms, *digest))
    }

    /// The time before which each run had its last event that was purged between this state and a later one, which was
    /// read at `now`; none where nothing was.
    #[must_use]
    pub fn purged_before(&self, later: &Self, now: Time) -> Option<Time> {
        let walked = later.0.iter().filter(|(keep_ms, digest)| self.0.get(keep_ms) != Some(digest));
        let kept = walked.map(|(keep_ms, _)| *keep_ms).min();
        // Walks are forgotten with their namespace alone.
        let is_another = self.0.keys().any(|keep_ms| !later.0.contains_key(keep_ms));
        if is_another { Some(now) } else { kept.map(|keep_ms| now.minus_ms(keep_ms)) }
    }
}

impl Walked {
    /// All walks as if each were for the runs that are kept least.
    fn as_one(&self) -> Self {
        let mut hasher = SipHasher13::default();
        for (keep_ms, digest) in self.pairs() {
            hasher.write_u64(keep_ms);
            hasher.write_u64(digest);
        }
        self.0.keys().next().map(|keep_ms| (*keep_ms, hasher.finish())).into_iter().collect()
    }
}

impl FromIterator<(u64, u64)> for Walked {
    fn from_iter<I: IntoIterator<Item = (u64, u64)>>(pairs: I) -> Self {
        Self(pairs.into_iter().collect())
    }
}

/// Makes a [`Walked`] of the rows of walks, which come by the time and the shard: for both stores.
#[derive(Debug, Default)]
pub(super) struct WalkedRows(BTreeMap<u64, SipHasher13>);

impl WalkedRows {
    pub(super) fn add(&mut self, keep_ms: u64, shard: Shard, statuses: i64, position: Position) {
        let hasher = self.0.entry(keep_ms).or_default();
        hasher.write_u16(shard.0);
        hasher.write_i64(statuses);
        hasher.write_u64(position);
    }

    pub(super) fn end(self) -> Walked {
        let walks: Walked = self.0.into_iter().map(|(keep_ms, hasher)| (keep_ms, hasher.finish())).collect();
        if walks.0.len() > WALKED_MAX { walks.as_one() } else { walks }
    }
}

/// Purges of runs.
#[async_trait]
pub trait Purges: OfLedger {
    /// The time for which nobody served before this store was opened, as far as the store's clock said then: it may have been
    /// ahead.
    fn unattended(&self) -> Duration;

    /// The namespaces that do not keep all runs for ever.
    async fn retentions(&self) -> Result<Vec<Retained>, StoreError>;

    /// The position of each shard up to which a namespace's events were [noted as exported](super::Namespaces).
    async fn exported(&self, namespace: &Namespace) -> Result<Positions, StoreError>;

    /// The position up to which a walk's runs were purged.
    async fn walked(&self, shard: Shard, walk: &Walk) -> Result<Position, StoreError>;

    /// The next runs of a walk that are due: one step, which comes by no event after `upto`. A shard's newest event is never come by, for its position would be
    /// given out again without it; its run is due as soon as another event follows.
    async fn due(&self, shard: Shard, walk: &Walk, after: Position, upto: Position) -> Result<Due, StoreError>;

    /// Purges the runs that were found, under the shard's head and in one transaction: deletes their events, cuts their
    /// rows to tombstones, and notes how far the walk has come. A run that has another revision by now is left alone: the
    /// walk comes by its newer event. None where the namespace wants otherwise by now: nothing was purged.
    ///
    /// # Errors
    ///
    /// The store cannot be written. All or nothing was purged.
    async fn purge(&self, shard: Shard, walk: &Walk, due: &Due) -> Result<Option<Purged>, StoreError>;
}

/// Collects what a step comes by, within its limits: for both stores.
#[derive(Debug, Default)]
pub(super) struct StepSoFar {
    due: Due,
    looked_at: usize,
    events: u64,
}

impl StepSoFar {
    /// A step from a position on.
    pub(super) fn after(position: Position) -> Self {
        Self { due: Due { upto: position, ..Due::default() }, ..Self::default() }
    }

    /// Takes note of the next event; `last_of`: the run that is due by it. False where the step ends before it.
    pub(super) fn come_by(&mut self, position: Position, last_of: Option<(RunId, Revision)>) -> bool {
        let events = last_of.as_ref().map_or(0, |(_, revision)| revision.get());
        let is_full = self.looked_at == WALK_EVENTS_MAX
            || self.due.runs.len() == PURGE_RUNS_MAX
            || (!self.due.runs.is_empty() && self.events + events > PURGE_EVENTS_MAX);
        if is_full {
            self.due.more = true;
            return false;
        }
        self.looked_at += 1;
        self.events += events;
        self.due.upto = position;
        self.due.runs.extend(last_of);
        true
    }

    /// The step ends before an event that is kept until a time.
    pub(super) fn is_kept(&mut self, until: Time, now: Time) {
        let micros = until.micros().saturating_sub(now.micros());
        self.due.quiet_for = Duration::from_micros(u64::try_from(micros).unwrap_or(0));
    }

    pub(super) fn end(self) -> Due {
        self.due
    }
}

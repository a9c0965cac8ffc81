//! The runs that were held when this process last read or wrote them.
//!
//! Hints for reads, which choose a statement by them: a run that is not known to be held, and is, costs a second
//! statement, and a run that is held no more costs a look at a table. No answer rests on them.

use std::hash::BuildHasher as _;
use std::sync::atomic::{AtomicU64, Ordering};

use quick_cache::DefaultHashBuilder;

use crate::domain::{RunKey, SideWrites};

/// Runs that are known at most, 8 bytes each.
const RUNS_MAX: usize = 128 * 1024;

/// The places in which a run may stand. A run takes the place of another only where all of these are taken.
const WAYS: usize = 2;

/// See the module.
pub(super) struct HeldRuns {
    sets: Box<[[AtomicU64; WAYS]]>,
    hasher: DefaultHashBuilder,
}

impl HeldRuns {
    pub(super) fn none() -> Self {
        let sets = (0..RUNS_MAX / WAYS).map(|_| [const { AtomicU64::new(0) }; WAYS]).collect();
        Self { sets, hasher: DefaultHashBuilder::default() }
    }

    pub(super) fn has(&self, key: &RunKey) -> bool {
        let (set, hash) = self.set(key);
        set.iter().any(|place| place.load(Ordering::Relaxed) == hash)
    }

    /// Notes a commit.
    pub(super) fn committed(&self, SideWrites { leases, .. }: &SideWrites) {
        for (key, lease) in leases {
            self.note(key, lease.is_some());
        }
    }

    /// Notes whether a run is held. Two calls at once may forget each other's run, or note one twice.
    pub(super) fn note(&self, key: &RunKey, is_held: bool) {
        let (set, hash) = self.set(key);
        let place_of = |wanted| set.iter().find(|place| place.load(Ordering::Relaxed) == wanted);
        match (place_of(hash), is_held) {
            (Some(place), false) => place.store(0, Ordering::Relaxed),
            (None, true) => {
                // Any of its own would do: the hash says nothing of which of the runs is read again.
                let nth = usize::try_from((hash >> 32) % WAYS as u64).expect("less than a small number");
                place_of(0).unwrap_or(&set[nth]).store(hash, Ordering::Relaxed);
            }
            (Some(_), true) | (None, false) => {}
        }
    }

    fn set(&self, key: &RunKey) -> (&[AtomicU64; WAYS], u64) {
        // 0 stands for no run.
        let hash = self.hasher.hash_one(key).max(1);
        let nth = usize::try_from(hash % self.sets.len() as u64).expect("less than a small number");
        (&self.sets[nth], hash)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(nth: usize) -> RunKey {
        RunKey { namespace: "default".into(), run_id: format!("run-{nth}").into() }
    }

    #[test]
    fn nearly_all_of_forty_thousand_held_runs_are_known() {
        let held = HeldRuns::none();
        (0..40_000).for_each(|nth| held.note(&key(nth), true));
        let known = (0..40_000).filter(|nth| held.has(&key(*nth))).count();
        assert!(known > 36_000, "{known} are known");
        (0..40_000).for_each(|nth| held.note(&key(nth), false));
        assert!((0..40_000).all(|nth| !held.has(&key(nth))));
    }
}

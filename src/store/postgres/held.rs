//! The runs that were held when this process last read or wrote them.
//!
//! Hints for reads, which choose a statement by them: a run that is not known to be held, and is, costs a second
//! statement, and a run that is held no more costs a look at a table. No answer rests on them.

use std::hash::BuildHasher as _;
use std::sync::atomic::{AtomicU64, Ordering};

use quick_cache::DefaultHashBuilder;

use crate::domain::RunKey;

/// Runs that are known at most, 8 bytes each. A run takes the place of another where their hashes end alike.
const RUNS_MAX: usize = 16_384;

/// See the module.
pub(super) struct HeldRuns {
    hashes: Box<[AtomicU64]>,
    hasher: DefaultHashBuilder,
}

impl HeldRuns {
    pub(super) fn none() -> Self {
        Self { hashes: (0..RUNS_MAX).map(|_| AtomicU64::new(0)).collect(), hasher: DefaultHashBuilder::default() }
    }

    pub(super) fn has(&self, key: &RunKey) -> bool {
        let (place, hash) = self.place(key);
        place.load(Ordering::Relaxed) == hash
    }

    pub(super) fn note(&self, key: &RunKey, is_held: bool) {
        let (place, hash) = self.place(key);
        let known = place.load(Ordering::Relaxed) == hash;
        if known != is_held {
            place.store(if is_held { hash } else { 0 }, Ordering::Relaxed);
        }
    }

    fn place(&self, key: &RunKey) -> (&AtomicU64, u64) {
        let hash = self.hasher.hash_one(key);
        let place = usize::try_from(hash % RUNS_MAX as u64).expect("less than a small number");
        (&self.hashes[place], hash)
    }
}

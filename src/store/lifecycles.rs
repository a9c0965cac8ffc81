//! The path on which lifecycles are put, read and listed, and the versions that a store remembers.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use async_trait::async_trait;
use parking_lot::Mutex;
use quick_cache::sync::{Cache, DefaultLifecycle};
use quick_cache::{DefaultHashBuilder, OptionsBuilder, Weighter};

use super::{ChangeError, StoreError};
use crate::domain::{
    Declared, LifecycleKey, LifecycleName, LifecyclePin, LifecycleRecord, Namespace, PutLifecycle, PutOutcome,
    PutRefusal,
};

/// Bytes of versions that a store remembers, unless its options say otherwise.
pub const CACHE_BYTES: u64 = 8 * 1024 * 1024;

/// Names of which it is remembered what they stood for. When there are more, all are forgotten, and learned again.
const NAMED_MAX: usize = 1_024;

/// The number of versions that the cache's tables are made for.
const VERSIONS: usize = 1_024;

/// The lifecycles of a ledger.
#[async_trait]
pub trait Lifecycles: Send + Sync {
    /// Puts a version, as the [rules](crate::domain::lifecycle::put::decide) decide. Whoever puts in a namespace waits
    /// for whoever does so already.
    ///
    /// # Errors
    ///
    /// See [`ChangeError`]. A put that is repeated has no second effect.
    async fn put_lifecycle(&self, put: &PutLifecycle) -> Result<PutOutcome, ChangeError<PutRefusal>>;

    /// A version as it was put; none where there is none. Sees every put that was acknowledged before the call.
    async fn lifecycle(
        &self,
        namespace: &Namespace,
        name: &LifecycleName,
    ) -> Result<Option<LifecycleRecord>, StoreError>;

    /// What a version declares; none where there is none. From memory where it is remembered.
    async fn declared(&self, key: &LifecycleKey) -> Result<Option<Arc<Declared>>, StoreError>;

    /// The newest version of each name after `after`, by name, at most `limit`, without their sources.
    async fn list_lifecycles(
        &self,
        namespace: &Namespace,
        after: &str,
        limit: usize,
    ) -> Result<Vec<LifecycleRecord>, StoreError>;

    /// The versions of a name below `below`, the newest first, at most `limit`, without their sources.
    async fn lifecycle_versions(
        &self,
        namespace: &Namespace,
        name: &str,
        below: u32,
        limit: usize,
    ) -> Result<Vec<LifecycleRecord>, StoreError>;
}

/// What a commit found in memory of the lifecycles that it wants.
#[derive(Debug, Default)]
pub(super) struct Remembered {
    /// Those that it may be decided on.
    pub(super) found: Vec<(LifecycleKey, Arc<Declared>)>,
    /// Those that are to be read, each with what is remembered of a name, which need not be read once more.
    pub(super) missing: Vec<(LifecycleKey, Option<Arc<Declared>>)>,
}

/// What was read last, in a bounded number of bytes. What a run is pinned to never changes, so it is never stale; what
/// a name stands for is a hint.
pub(super) struct Versions {
    pinned: Cache<LifecycleKey, Arc<Declared>, ByWeight>,
    named: Mutex<HashMap<LifecycleKey, LifecyclePin>>,
    bytes_max: u64,
}

#[derive(Clone)]
struct ByWeight;

impl Weighter<LifecycleKey, Arc<Declared>> for ByWeight {
    fn weight(&self, key: &LifecycleKey, declared: &Arc<Declared>) -> u64 {
        let texts = key.namespace().len() + 2 * declared.pin.id.name.len();
        (size_of::<LifecycleKey>() + size_of::<Declared>() + texts + declared.weight()) as u64
    }
}

impl Versions {
    pub(super) fn new(bytes_max: u64) -> Self {
        // In one shard, so that one version may take all of a small cache.
        let options = OptionsBuilder::new()
            .estimated_items_capacity(VERSIONS)
            .weight_capacity(bytes_max)
            .shards(1)
            .build()
            .expect("the capacities are given");
        let pinned = Cache::with_options(options, ByWeight, DefaultHashBuilder::default(), DefaultLifecycle::default());
        Self { pinned, named: Mutex::default(), bytes_max }
    }

    /// The bytes that are remembered, and how many may be.
    pub(super) fn bytes(&self) -> (usize, usize) {
        let bytes = |bytes| usize::try_from(bytes).unwrap_or(usize::MAX);
        (bytes(self.pinned.weight()), bytes(self.bytes_max))
    }

    /// What is remembered of a key: of a name, what it stood for when it was read last.
    pub(super) fn get(&self, key: &LifecycleKey) -> Option<Arc<Declared>> {
        match key {
            LifecycleKey::Pinned(..) => self.pinned.get(key),
            LifecycleKey::Named(namespace, _) => {
                let pin = self.named.lock().get(key).cloned()?;
                self.pinned.get(&LifecycleKey::Pinned(namespace.clone(), pin))
            }
        }
    }

    /// What is known of the wanted ones. What a name stands for is never known for sure.
    pub(super) fn remembered(&self, wanted: BTreeSet<LifecycleKey>) -> Remembered {
        let mut remembered = Remembered::default();
        for key in wanted {
            match (&key, self.get(&key)) {
                (LifecycleKey::Pinned(..), Some(declared)) => remembered.found.push((key, declared)),
                (LifecycleKey::Pinned(..), None) => remembered.missing.push((key, None)),
                (LifecycleKey::Named(..), hint) => remembered.missing.push((key, hint)),
            }
        }
        remembered
    }

    /// Notes what was read for a key.
    pub(super) fn note(&self, key: &LifecycleKey, declared: &Arc<Declared>) {
        self.pinned.insert(key.pinned(declared), declared.clone());
        if let LifecycleKey::Named(..) = key {
            let mut named = self.named.lock();
            if named.len() >= NAMED_MAX {
                named.clear();
            }
            named.insert(key.clone(), declared.pin.clone());
        }
    }

    /// Notes what was put.
    pub(super) fn put(&self, put: &PutLifecycle, outcome: &PutOutcome) {
        let name = LifecycleName { name: put.lifecycle.name.clone(), version: None };
        if !put.only_new {
            let declared = Declared::new(outcome.id().clone(), put.lifecycle.clone());
            self.note(&LifecycleKey::Named(put.namespace.clone(), name), &Arc::new(declared));
        }
    }

    /// Forgets what a name stood for.
    pub(super) fn forget_of(&self, key: &LifecycleKey) {
        self.named.lock().remove(key);
    }

    /// Forgets what names stood for.
    pub(super) fn forget(&self) {
        self.named.lock().clear();
    }
}

//! The lifecycles that runs are pinned to, or are to be. What a run is pinned to never changes, so a store reads it
//! once and remembers it; what a name stands for is read under the head each time.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use crate::domain::lifecycle::{Lifecycle, LifecycleId, LifecycleName, LifecyclePin, Masks};
use crate::domain::{Command, Namespace, Run};

/// A lifecycle of a namespace.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum LifecycleKey {
    /// As a start names it: whatever has the name and the version now, or is the newest.
    Named(Namespace, LifecycleName),
    /// As a run is pinned to it: it never changes.
    Pinned(Namespace, LifecyclePin),
}

impl LifecycleKey {
    #[must_use]
    pub fn namespace(&self) -> &Namespace {
        match self {
            Self::Named(namespace, _) | Self::Pinned(namespace, _) => namespace,
        }
    }

    /// The name, and the version where it is not the newest that is meant.
    #[must_use]
    pub fn name(&self) -> LifecycleName {
        match self {
            Self::Named(_, name) => name.clone(),
            Self::Pinned(_, pin) => (&pin.id).into(),
        }
    }

    /// Whether this is what the key means.
    #[must_use]
    pub fn is(&self, declared: &Declared) -> bool {
        match self {
            Self::Named(_, name) => name.is(&declared.pin.id),
            Self::Pinned(_, pin) => *pin == declared.pin,
        }
    }

    /// The key of what a run is pinned to that was started with this.
    #[must_use]
    pub fn pinned(&self, declared: &Declared) -> Self {
        Self::Pinned(self.namespace().clone(), declared.pin.clone())
    }
}

/// A version of a lifecycle, and what it declares.
#[derive(Clone, Debug, PartialEq)]
pub struct Declared {
    /// The version, as runs are pinned to it.
    pub pin: LifecyclePin,
    /// What it declares.
    pub lifecycle: Lifecycle,
    /// The keys whose values it masks.
    pub masks: Masks,
}

impl Declared {
    /// A version that declares this.
    #[must_use]
    pub fn new(id: LifecycleId, lifecycle: Lifecycle) -> Self {
        Self::pinned(LifecyclePin::new(id, &lifecycle.text()), lifecycle)
    }

    /// The version that runs are pinned to by this, and what it declares.
    #[must_use]
    pub fn pinned(pin: LifecyclePin, lifecycle: Lifecycle) -> Self {
        Self { pin, masks: Masks::new(&lifecycle.redact_keys), lifecycle }
    }

    /// About how many bytes it takes in memory, beside itself: for bounds on caches.
    #[must_use]
    pub fn weight(&self) -> usize {
        self.lifecycle.weight() + self.masks.weight()
    }
}

/// The lifecycle that a command is decided on.
#[derive(Clone, Copy, Debug, Default)]
pub enum LifecycleFound<'a> {
    /// The run has none, and is to have none.
    #[default]
    NotAsked,
    /// There is none of that name, or no such version, or somebody deleted it by hand.
    Missing,
    /// The lifecycle.
    There(&'a Declared),
}

impl<'a> LifecycleFound<'a> {
    /// The lifecycle, as far as it is there.
    #[must_use]
    pub fn declared(self) -> Option<&'a Declared> {
        match self {
            Self::NotAsked | Self::Missing => None,
            Self::There(declared) => Some(declared),
        }
    }
}

/// The lifecycle that a command on a run, or on none, is decided on.
#[must_use]
pub fn of(command: &Command, run: Option<&Run>) -> Option<LifecycleKey> {
    let Some(run) = run else {
        let name = command.ask.brought().position?.lifecycle.clone()?;
        return Some(LifecycleKey::Named(command.key.namespace.clone(), name));
    };
    pinned(run)
}

/// The lifecycles that the decisions on these commands may rest on; `runs` are those that the commands are for, as far
/// as they are there. Of a start that creates its run, what it names; but it may meet a run that a command before it in
/// the batch created.
#[must_use]
pub fn wanted<'a>(
    commands: impl IntoIterator<Item = &'a Command>,
    runs: impl IntoIterator<Item = &'a Run>,
) -> BTreeSet<LifecycleKey> {
    let named = commands.into_iter().filter_map(|command| of(command, None));
    runs.into_iter().filter_map(pinned).chain(named).collect()
}

/// What a run is pinned to.
fn pinned(run: &Run) -> Option<LifecycleKey> {
    let pin = run.refinements.as_ref()?.position.lifecycle.clone()?;
    Some(LifecycleKey::Pinned(run.namespace.clone(), pin))
}

/// The lifecycles of a batch.
#[derive(Debug)]
pub(super) struct Lifecycles(HashMap<LifecycleKey, Arc<Declared>>);

impl Lifecycles {
    /// What was found for a name stands under its pin as well: a run that is created in the batch is pinned to it.
    pub(super) fn of(rows: Vec<(LifecycleKey, Arc<Declared>)>) -> Self {
        let versions = rows.iter().map(|(key, declared)| (key.pinned(declared), declared.clone()));
        let versions: Vec<_> = versions.collect();
        Self(rows.into_iter().chain(versions).collect())
    }

    pub(super) fn row(&self, command: &Command, run: Option<&Run>) -> LifecycleFound<'_> {
        // Most commands are on runs without a lifecycle.
        match of(command, run) {
            None => LifecycleFound::NotAsked,
            Some(key) => self.0.get(&key).map_or(LifecycleFound::Missing, |declared| LifecycleFound::There(declared)),
        }
    }
}

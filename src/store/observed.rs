//! A store whose calls are counted: each of its paths is wrapped, so that the counting stands beside the stores and
//! not in them.

mod calls;
#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use uuid::Uuid;

pub use self::calls::{Call, Calls};
use super::contents::Beside;
use super::leases::{KeptLease, Overdue, OverduePlace, Renewed};
use super::query::{CountBy, Place, Reach, ReadyOf, RunCounts, RunPage, RunQuery};
use super::retention::{Due, Purged, Retained, Walk, Walked};
use super::{
    ChangeError, Clocks, CommitError, Commits, Description, FoundRun, Ledger, Lifecycles, Namespaces, OfLedger, Page,
    PoolUse, Purges, RunLog, Runs, Statistics, Store, StoreError, Unsettled, Upkeep,
};
use crate::domain::{
    Claimed, Command, ContentRow, Decide, Decided, Declared, Event, Filter, LabelValue, LifecycleKey, LifecycleName,
    LifecycleRecord, Namespace, NamespaceCommand, NamespaceDecision, NamespaceRecord, Position, Positions, Priority,
    PutLifecycle, PutOutcome, PutRefusal, Renewal, Revision, Run, RunId, RunKey, Shard, Time,
};
use crate::memory::MemoryUse;

/// A store, or one of its paths, and the number of calls of each method.
pub struct Observed<S: ?Sized> {
    calls: Calls,
    inner: Arc<S>,
}

impl<S: ?Sized> Observed<S> {
    /// Observes a store, from now on.
    #[must_use]
    pub fn around(inner: Arc<S>) -> Self {
        Self { calls: Calls::default(), inner }
    }

    /// The number of calls of each method.
    #[must_use]
    pub fn calls(&self) -> &Calls {
        &self.calls
    }
}

/// Passes every call on, and counts those that ask the database.
macro_rules! observed {
    ($($path:ident {
        $(fn $told:ident($($tells:ident: $Told:ty),*) $(-> $Answer:ty)?;)*
        $(async fn $asked:ident($($asks:ident: $Asked:ty),*) $(-> $FoundRun:ty)? $(as $call:ident)?;)*
    })*) => {
        $(#[async_trait]
        impl<S: $path + ?Sized> $path for Observed<S> {
            $(fn $told(&self, $($tells: $Told),*) $(-> $Answer)? {
                self.inner.$told($($tells),*)
            })*

            $(async fn $asked(&self, $($asks: $Asked),*) $(-> $FoundRun)? {
                $(self.calls.count(Call::$call);)?
                self.inner.$asked($($asks),*).await
            })*
        })*
    };
}

crate::store_paths!(observed);

//! The path on which namespaces are looked up, listed, made, changed and deleted.

use std::fmt;

use async_trait::async_trait;

use super::{OfLedger, StoreError};
use crate::domain::{Namespace, NamespaceCommand, NamespaceDecision, NamespaceRecord, NamespaceRefusal, Positions};

/// The namespaces of a ledger.
#[async_trait]
pub trait Namespaces: OfLedger {
    /// The namespaces of these names that there are, in any order: sees every change that was acknowledged before the
    /// call.
    async fn namespaces(&self, names: &[Namespace]) -> Result<Vec<NamespaceRecord>, StoreError>;

    /// The namespaces whose names begin with `prefix` and come after `after`, by name, at most `limit`. What it costs
    /// does not depend on others.
    async fn list_namespaces(
        &self,
        prefix: &str,
        after: &str,
        limit: usize,
    ) -> Result<Vec<NamespaceRecord>, StoreError>;

    /// Notes that a namespace's events up to these positions are safely elsewhere. Positions that were noted before, and
    /// are later ones, stay.
    ///
    /// # Errors
    ///
    /// The store cannot be written. What was noted may be noted again.
    async fn note_exported(&self, name: &Namespace, upto: &Positions) -> Result<(), StoreError>;

    /// Changes a namespace, as the [rules](crate::domain::namespace::decide) decide on it as it is. A deletion takes
    /// the head of every shard first: no commit creates a run in a namespace that was found empty. Commits wait
    /// meanwhile, for one look at an index.
    ///
    /// # Errors
    ///
    /// See [`ChangeError`]. A change that is repeated has no second effect.
    async fn change_namespace(&self, command: &NamespaceCommand) -> Result<NamespaceDecision, ChangeError>;
}

/// A namespace that was not changed, or perhaps was; or a lifecycle that was not put.
#[derive(Debug, thiserror::Error)]
pub enum ChangeError<R: fmt::Debug = NamespaceRefusal> {
    /// The rules refuse it.
    #[error("the change is refused: {0:?}")]
    Refused(R),
    /// Surely nothing was changed.
    #[error("the change was not made")]
    NotApplied(#[from] StoreError),
    /// The change was sent and not confirmed.
    #[error("the change's outcome is not known")]
    Unknown(#[source] StoreError),
}

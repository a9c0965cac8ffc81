//! The path on which the engine writes: batches are committed, and commits of unknown outcome settled.
//!
//! Invariants, in both stores:
//!
//! - A commit writes the log of exactly one shard, and takes the shard's head first. So in each shard positions are
//!   dense and in commit order: a reader that has seen position p has seen all before p. On SQLite the one writer
//!   stands for every head.
//! - A commit rests on rows that were read under the head, or that were found under the head to be as they were
//!   remembered.
//! - Renewals, stamps and tidying are no commits. They are transactions of their own, which write no event and on
//!   Postgres take no head.

use std::sync::Arc;

use async_trait::async_trait;
use uuid::Uuid;

use super::{CommitError, OfLedger, StoreError};
use crate::domain::{Command, Decide, Decided, Position, Shard};

/// Batches of commands, made durable.
#[async_trait]
pub trait Commits: OfLedger {
    /// The number of commits that the store can have in flight at once.
    fn commits_max(&self) -> usize;

    /// Commits one batch to one shard, in one transaction that takes the shard's head first.
    ///
    /// All commands are for runs of `shard`. The rules decide them in order, each on the state that the one before it
    /// left. When this returns `Ok`, the decided events are durable; a batch that made no event writes nothing.
    /// Positions are dense in commit order from 1; `at` never falls within a run. As long as the store's clock is not set, it
    /// never falls within a shard either, and is later than that of every event of another shard whose commit had been
    /// acknowledged before this call. Every event carries `commit_id`, its request and, where decided, its keyframe. The body may run twice, when the database asks for a retry.
    ///
    /// # Errors
    ///
    /// [`CommitError::NotApplied`] surely changed nothing; [`CommitError::Unknown`] may have been applied: settle it.
    async fn commit(
        &self,
        shard: Shard,
        commit_id: Uuid,
        commands: Arc<[Arc<Command>]>,
        rules: &Arc<dyn Decide>,
    ) -> Result<Decided, CommitError>;

    /// Whether a commit of unknown outcome was applied. Takes the shard's head on another connection before it looks,
    /// and so waits until the old transaction has ended.
    ///
    /// # Errors
    ///
    /// The outcome is still unknown; ask again.
    async fn settle(&self, unsettled: &Unsettled) -> Result<bool, StoreError>;

    /// Tells other processes that this one committed something. Best effort, coalesced, never waits for the database.
    fn announce_commit(&self);

    /// Writes a durable row that has no meaning and that nobody sees, as a commit to this shard would: whether
    /// commits would succeed. Called every second or so while commits fail, and never while they do not.
    ///
    /// # Errors
    ///
    /// Commits would fail.
    async fn probe_write(&self, shard: Shard) -> Result<(), StoreError>;
}

/// A commit whose outcome is not known.
#[derive(Debug)]
pub struct Unsettled {
    /// The shard that it wrote to.
    pub shard: Shard,
    /// The id that its events carry.
    pub commit_id: Uuid,
    /// The position of the first event, if the commit was applied.
    pub first_position: Position,
    /// The decided events; they hold if the commit was applied.
    pub decided: Decided,
}

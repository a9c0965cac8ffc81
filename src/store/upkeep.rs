//! The path of what is kept beside runs and their log, and changes without an event: renewals of leases, answers to
//! claimers, the stamps of servers that are alive; and of what looks for leases that are over.

use std::time::Duration;

use async_trait::async_trait;

use super::leases::{KeptLease, Renewed};
use super::{OfLedger, StoreError};
use crate::domain::{Claimed, Namespace, Renewal, RunKey, Shard};

/// Leases, answered claims and stamps, kept up.
#[async_trait]
pub trait Upkeep: OfLedger {
    /// Renews leases of runs of one shard: each whose epoch is the row's and that is not [over](super::leases), for another
    /// ttl from now, with the progress that its holder tells. Waits for no head and makes no event. What was renewed is
    /// durable when this returns, and no commit that comes later finds the lease over before its new time. None for a lease
    /// that was not renewed, for whatever reason. No run may come twice.
    ///
    /// # Errors
    ///
    /// Nothing may have been renewed, or all of it: renewing again does no harm.
    async fn renew(&self, shard: Shard, renewals: &[(RunKey, Renewal)]) -> Result<Vec<Option<Renewed>>, StoreError>;

    /// Renewals waited so long for their turn before they were handed over: time in which nobody was renewed.
    fn renewals_waited(&self, _queued: Duration) {}

    /// The leases of runs as they are kept, in the order of their keys.
    ///
    /// # Errors
    ///
    /// The store cannot be read.
    async fn leases(&self, keys: &[RunKey]) -> Result<Vec<Option<KeptLease>>, StoreError>;

    /// At most `limit` runs of a shard whose lease is [over](super::leases), and as many that are
    /// [due](crate::domain::Run::due_at), those that are due for the longest first. What is told here may be otherwise a
    /// moment later: a [sweep](crate::domain::Ask::Sweep) decides.
    ///
    /// # Errors
    ///
    /// The store cannot be read.
    async fn overdue(&self, shard: Shard, limit: usize) -> Result<Vec<RunKey>, StoreError>;

    /// The claim that a claimer's own request of this id was answered with, if it was.
    ///
    /// # Errors
    ///
    /// The store cannot be read.
    async fn claimed(&self, namespace: &Namespace, request_id: &str) -> Result<Option<Claimed>, StoreError>;

    /// The same, and notes that the claimer is answered once more: the claim is not given back any more as one that nobody
    /// received before that. Waits for a claim that is being given back.
    ///
    /// # Errors
    ///
    /// The store cannot be read or written; it may have been noted all the same.
    async fn replay_claim(&self, namespace: &Namespace, request_id: &str) -> Result<Option<Claimed>, StoreError>;

    /// Says that a server is alive, where others want to know, or where renewals failed and none was made since; and looks
    /// whether the database still has what was acknowledged. Called once a second, by every server.
    ///
    /// # Errors
    ///
    /// The store cannot be written.
    async fn stay_alive(&self) -> Result<(), StoreError>;

    /// This process runs. Called every [`TICK_EVERY`](super::leases::TICK_EVERY), by every server: a call that is late tells
    /// of an interruption, and a store that is not told finds no lease over.
    fn tick(&self);

    /// Forgets values of labels of which nothing counts any more, and claimers' requests after an hour, at most so many at
    /// once, and says whether there may be more. Called once a minute, by every server.
    ///
    /// # Errors
    ///
    /// The store cannot be written.
    async fn tidy(&self) -> Result<bool, StoreError>;
}

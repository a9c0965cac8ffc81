//! The path of the rows beside runs and their log that change without an event: renewals of leases, answers to
//! claimers, the stamps of servers that are alive; and of the search for leases that are over.

use std::time::Duration;

use async_trait::async_trait;

use super::leases::{KeptLease, Overdue, OverduePlace, Renewed};
use super::{Clocks, OfLedger, StoreError};
use crate::domain::{Claimed, Namespace, Renewal, RunKey, Shard};

/// The upkeep of leases, answered claims and stamps.
#[async_trait]
pub trait Upkeep: OfLedger {
    /// Renews leases of runs of one shard: each whose epoch is the row's and that is not [over](super::leases), for
    /// another ttl from now, with the progress that its holder reports. Waits for no head and makes no event. A
    /// renewal is durable when this returns, and no commit that comes later finds the lease over before its new time.
    /// None for a lease that was not renewed, for whatever reason. No run may come twice.
    ///
    /// # Errors
    ///
    /// None or all of the leases may have been renewed: renewing again does no harm.
    async fn renew(&self, shard: Shard, renewals: &[(RunKey, Renewal)]) -> Result<Vec<Option<Renewed>>, StoreError>;

    /// Notes that renewals waited so long for their turn before they were handed over: time in which no lease was
    /// renewed.
    fn renewals_waited(&self, queued: Duration);

    /// The leases of runs as they are kept, in the order of their keys.
    async fn leases(&self, keys: &[RunKey]) -> Result<Vec<Option<KeptLease>>, StoreError>;

    /// At most `limit` runs of a shard whose lease is [over](super::leases), by their keys, and as many that are
    /// [due](crate::domain::Run::due_at), those that are due for the longest first; both after a place. Pages that
    /// follow one another by [`next`](Overdue::next) find each run that is over or due all the time, whatever becomes
    /// of the others. The state of these runs may be another a moment later: a sweep decides.
    async fn overdue(&self, shard: Shard, after: &OverduePlace, limit: usize) -> Result<Overdue, StoreError>;

    /// The claims that a claimer's own requests of these ids were answered with, in the order of the ids. No id may come
    /// twice.
    async fn claimed(&self, namespace: &Namespace, request_ids: &[String]) -> Result<Vec<Option<Claimed>>, StoreError>;

    /// The same, and notes that the claimer is answered once more: from then on, none of the claims can be given back as
    /// one that nobody received before that. Waits for a claim that is being given back.
    ///
    /// # Errors
    ///
    /// The store cannot be read or written; all answers may have been noted all the same, or none.
    async fn replay_claims(
        &self,
        namespace: &Namespace,
        request_ids: &[String],
    ) -> Result<Vec<Option<Claimed>>, StoreError>;

    /// Stamps that a server is alive, where others want to know, or where renewals failed and none was made since;
    /// and looks whether the database still has all acknowledged calls. Called once a second, by every server.
    async fn stay_alive(&self) -> Result<(), StoreError>;

    /// Notes that this process runs. Called every [`TICK_EVERY`](super::leases::TICK_EVERY), by every server: a call
    /// that is late shows an interruption, and a store that is not called finds no lease over.
    fn tick(&self);

    /// What this process knows of the clocks that it goes by.
    fn clocks(&self) -> Clocks;

    /// Measures the bytes of what came in namespaces that have a quota of them since they were measured last, at most so
    /// many events at once, and tells whether there may be more. Called every 10 seconds, by every server.
    ///
    /// # Errors
    ///
    /// The store cannot be read or written.
    async fn measure(&self) -> Result<bool, StoreError>;

    /// Forgets values of labels whose counted runs have all ended, and claimers' requests after an hour, at most so
    /// many at once, and tells whether there may be more. Called once a minute, by every server.
    async fn tidy(&self) -> Result<bool, StoreError>;
}

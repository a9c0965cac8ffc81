//! Whether commits succeed, as the last ones tell: for health, which would otherwise look at reads only.

use tokio::sync::watch;
use tokio::time::Instant;

use crate::domain::Shard;

/// Commits fail, for a reason that is not one run's.
#[derive(Clone, Debug)]
pub struct CommitOutage {
    /// When the first of them failed.
    pub since: Instant,
    /// The shard that it was for.
    pub shard: Shard,
    /// Why, for people.
    pub reason: String,
}

/// Set by each commit that fails or whose outcome stays unknown, and cleared by each that writes, of whatever shard:
/// while some shard commits, this replica is of use.
#[derive(Debug)]
pub struct CommitHealth(watch::Sender<Option<CommitOutage>>);

impl CommitHealth {
    pub(super) fn new() -> Self {
        Self(watch::Sender::new(None))
    }

    /// A commit failed. The first one's reason is kept.
    pub(super) fn failed(&self, shard: Shard, reason: impl FnOnce() -> String) {
        self.0.send_if_modified(|outage| {
            let first = outage.is_none();
            if first {
                *outage = Some(CommitOutage { since: Instant::now(), shard, reason: reason() });
            }
            first
        });
    }

    /// Something was written, durably.
    pub fn succeeded(&self) {
        // The common case takes no lock that excludes readers.
        if self.0.borrow().is_some() {
            self.0.send_if_modified(|outage| outage.take().is_some());
        }
    }

    /// The outage that lasts; none while commits succeed.
    #[must_use]
    pub fn outage(&self) -> Option<CommitOutage> {
        self.0.borrow().clone()
    }

    /// Waits for an outage.
    pub async fn fails(&self) -> CommitOutage {
        let mut health = self.0.subscribe();
        let outage = health.wait_for(Option::is_some).await.expect("its sender is borrowed").clone();
        outage.expect("it was waited for")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn an_outage_lasts_from_the_first_commit_that_fails_to_the_first_that_succeeds() {
        let health = CommitHealth::new();
        health.succeeded();
        assert!(health.outage().is_none());
        let begun = Instant::now();
        health.failed(Shard(1), || "the disk is full".to_owned());
        tokio::time::advance(std::time::Duration::from_secs(5)).await;
        health.failed(Shard(0), || "the disk is on fire".to_owned());
        let CommitOutage { since, shard, reason } = health.fails().await;
        assert_eq!((since, shard, reason.as_str()), (begun, Shard(1), "the disk is full"));
        health.succeeded();
        assert!(health.outage().is_none());
    }
}

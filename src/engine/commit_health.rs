//! Whether commits succeed, as the last ones tell: for health, which would otherwise look at reads only.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::Instant;

use crate::domain::Shard;

/// Commits fail, for a reason that is not one run's.
#[derive(Clone, Debug)]
pub struct CommitOutage {
    /// The time at which the first of them failed.
    pub since: Instant,
    /// The shard of this commit.
    pub shard: Shard,
    /// The reason, for people.
    pub reason: String,
}

/// Commands that the store refuses one by one, with nothing written between them, until commits count as failing.
const REFUSALS_MAX: usize = 4;

/// Set by each commit that fails or whose outcome stays unknown, and cleared by each that writes, in any shard: while
/// one shard commits, this replica is of use.
#[derive(Debug)]
pub struct CommitHealth {
    outage: watch::Sender<Option<CommitOutage>>,
    /// Commands that the store refused since something was written.
    refusals: AtomicUsize,
    began: Instant,
    /// The milliseconds after `began` at which a commit last wrote, from 1; 0: none has.
    wrote: AtomicU64,
    /// The reason why the store does not answer; none while it does.
    silent: watch::Sender<Option<(String, Instant)>>,
}

impl CommitHealth {
    pub(super) fn new() -> Self {
        Self {
            outage: watch::Sender::new(None),
            refusals: AtomicUsize::new(0),
            began: Instant::now(),
            wrote: AtomicU64::new(0),
            silent: watch::Sender::new(None),
        }
    }

    /// Whether the store answers, as whoever asks it has found: the reason why it does not.
    pub fn store_answers(&self, answer: Result<(), String>) {
        self.silent.send_if_modified(|silent| match (answer, silent.is_some()) {
            (Ok(()), true) => silent.take().is_some(),
            (Err(reason), false) => silent.replace((reason, Instant::now())).is_none(),
            (Ok(()), false) | (Err(_), true) => false,
        });
    }

    /// The reason why the store is of no use now, and for how long it has been so; none while it is.
    #[must_use]
    pub fn fault(&self) -> Option<(String, Duration)> {
        let outage = self.outage().map(|outage| (outage.reason, outage.since.elapsed()));
        outage.or_else(|| self.silent.borrow().as_ref().map(|(reason, since)| (reason.clone(), since.elapsed())))
    }

    /// The time since a commit last wrote; none where none has.
    #[must_use]
    pub fn since_last_write(&self) -> Option<Duration> {
        let wrote = self.wrote.load(Ordering::Relaxed);
        (wrote > 0).then(|| self.began.elapsed().saturating_sub(Duration::from_millis(wrote)))
    }

    /// The store refused one command, for a reason that may be its own.
    pub(super) fn refused(&self, shard: Shard, reason: impl FnOnce() -> String) {
        if self.refusals.fetch_add(1, Ordering::Relaxed) + 1 >= REFUSALS_MAX {
            self.failed(shard, reason);
        }
    }

    /// A commit failed. The first one's reason is kept.
    pub(super) fn failed(&self, shard: Shard, reason: impl FnOnce() -> String) {
        self.outage.send_if_modified(|outage| {
            let first = outage.is_none();
            if first {
                *outage = Some(CommitOutage { since: Instant::now(), shard, reason: reason() });
            }
            first
        });
    }

    /// A commit wrote durably.
    pub fn succeeded(&self) {
        let now = u64::try_from(self.began.elapsed().as_millis()).unwrap_or(u64::MAX).max(1);
        self.wrote.store(now, Ordering::Relaxed);
        if self.refusals.load(Ordering::Relaxed) > 0 {
            self.refusals.store(0, Ordering::Relaxed);
        }
        // The common case takes no lock that excludes readers.
        if self.outage.borrow().is_some() {
            self.outage.send_if_modified(|outage| outage.take().is_some());
        }
    }

    /// The outage that lasts; none while commits succeed.
    #[must_use]
    pub fn outage(&self) -> Option<CommitOutage> {
        self.outage.borrow().clone()
    }

    /// Waits for an outage.
    pub async fn fails(&self) -> CommitOutage {
        let mut health = self.outage.subscribe();
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

    #[test]
    fn a_store_that_refuses_one_command_after_the_other_fails_and_one_that_writes_between_them_does_not() {
        let health = CommitHealth::new();
        let refused = || health.refused(Shard(0), || "permission denied".to_owned());
        for _ in 0..10 {
            (1..REFUSALS_MAX).for_each(|_| refused());
            health.succeeded();
        }
        assert!(health.outage().is_none());
        (0..REFUSALS_MAX).for_each(|_| refused());
        assert_eq!(health.outage().map(|outage| outage.reason).as_deref(), Some("permission denied"));
    }
}

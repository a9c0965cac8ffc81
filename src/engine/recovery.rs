//! Settling of commits whose outcome is unknown: the store is asked until it tells, or no caller waits any more.
//!
//! Until then the shard takes no new batch. Commands that queue meanwhile wait for a moment, since most outcomes are
//! settled in one. Then their callers are told that the store is unavailable.

use std::error::Error;
use std::time::Duration;

use tokio::time::{Instant, sleep_until};

use super::Failure;
use super::batch::{Batch, Queue};
use super::commit_health::CommitHealth;
use crate::store::{Commits, StoreError, Unsettled};
use crate::telemetry::chain;

/// The pause before the store is asked again, doubled up to the maximum.
const PAUSE: Duration = Duration::from_millis(50);
const PAUSE_MAX: Duration = Duration::from_secs(1);

/// The time that queued commands wait before they are turned away.
const PATIENCE: Duration = Duration::from_secs(1);

/// The outcome of a commit that was unsettled.
pub(super) enum Settled {
    Applied,
    NotApplied,
    /// The outcome stays unknown: no caller waits for it any more, or the store cannot tell it. The next commit takes
    /// the head first, and so waits for this one if it has reached the store. A commit that has not reached it may
    /// still do so, until the store finds it too old.
    Abandoned,
}

pub(super) async fn settle(
    store: &dyn Commits,
    unsettled: &Unsettled,
    source: &(dyn Error + Send + Sync + 'static),
    batch: &Batch,
    queue: &mut Queue,
    health: &CommitHealth,
) -> Settled {
    let mut pause = PAUSE;
    let patience = Instant::now() + PATIENCE;
    let unhealthy = || health.failed(unsettled.shard, || chain(source));
    while batch.is_awaited() {
        match turning_away(queue, patience, unhealthy, store.settle(unsettled)).await {
            Ok(applied) => {
                tracing::info!(shard = unsettled.shard.0, commit_id = %unsettled.commit_id, applied, "settled");
                return if applied { Settled::Applied } else { Settled::NotApplied };
            }
            // The outcome cannot be found out any more: the callers hear so at once, and the stop is not held up.
            Err(error @ StoreError::Lost(_)) => {
                tracing::error!(shard = unsettled.shard.0, error = chain(&error), "never to be settled");
                health.failed(unsettled.shard, || chain(&error));
                return Settled::Abandoned;
            }
            Err(error @ (StoreError::Unavailable(_) | StoreError::Refused(_) | StoreError::Corrupt { .. })) => {
                tracing::warn!(shard = unsettled.shard.0, error = chain(&error), "not settled yet");
                health.failed(unsettled.shard, || chain(&error));
            }
        }
        turning_away(queue, patience, unhealthy, tokio::time::sleep(pause)).await;
        pause = (pause * 2).min(PAUSE_MAX);
    }
    Settled::Abandoned
}

/// Does some work. From `patience` on it answers the commands that queue meanwhile, and reports that commits fail.
async fn turning_away<T>(
    queue: &mut Queue,
    patience: Instant,
    unhealthy: impl Fn(),
    work: impl Future<Output = T>,
) -> T {
    let turn_away = async {
        sleep_until(patience).await;
        unhealthy();
        while let Some(mut pending) = queue.next().await {
            if pending.take() {
                pending.answer(Err(Failure::StoreUnavailable));
            }
        }
        std::future::pending::<()>().await;
    };
    tokio::select! {
        biased;
        done = work => done,
        () = turn_away => unreachable!("it never ends"),
    }
}

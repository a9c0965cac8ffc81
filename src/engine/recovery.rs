//! Commits of unknown outcome: asked after until the store tells, or nobody wants to know.
//!
//! Until then the shard takes no new batch. What queues meanwhile waits for a moment, since most outcomes are settled
//! in one, and is then told that the store is unavailable, since it is.

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

/// How long what queues waits before it is turned away.
const PATIENCE: Duration = Duration::from_secs(1);

/// What became of a commit.
pub(super) enum Settled {
    Applied,
    NotApplied,
    /// Nobody wants to know any more, or nobody ever will. The next commit takes the head first and so waits for it, if it
    /// has come to the store at all; what has not may still come, until the store finds it too old.
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
            // Nothing will ever tell: who waits hears so at once, and nothing holds up the stop.
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

/// Does some work, and from `patience` on answers what queues meanwhile, and says that commits fail.
async fn turning_away<T>(
    queue: &mut Queue,
    patience: Instant,
    unhealthy: impl Fn(),
    work: impl Future<Output = T>,
) -> T {
    let turn_away = async {
        sleep_until(patience).await;
        unhealthy();
        while let Some(pending) = queue.next().await {
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

//! Commits of unknown outcome: asked after until the store tells, or nobody waits for the answer.
//!
//! Until then the shard takes no new batch. What queues meanwhile is told at once that the store is unavailable, since
//! it is.

use std::time::Duration;

use super::Failure;
use super::batch::{Batch, Queue};
use crate::store::{Store, Unsettled};
use crate::telemetry::chain;

/// The pause before the store is asked again, doubled up to the maximum.
const PAUSE: Duration = Duration::from_millis(50);
const PAUSE_MAX: Duration = Duration::from_secs(1);

/// What became of a commit.
pub(super) enum Settled {
    Applied,
    NotApplied,
    /// Nobody waits for it any more. The next commit takes the head first and so waits for it.
    Abandoned,
}

pub(super) async fn settle(store: &dyn Store, unsettled: &Unsettled, batch: &Batch, queue: &mut Queue) -> Settled {
    let mut pause = PAUSE;
    while batch.is_awaited() {
        match store.settle(unsettled).await {
            Ok(applied) => {
                tracing::info!(shard = unsettled.shard.0, commit_id = %unsettled.commit_id, applied, "settled");
                return if applied { Settled::Applied } else { Settled::NotApplied };
            }
            Err(error) => {
                tracing::warn!(shard = unsettled.shard.0, error = chain(&error), "not settled yet");
                queue.batch().fail(&Failure::StoreUnavailable);
            }
        }
        tokio::time::sleep(pause).await;
        pause = (pause * 2).min(PAUSE_MAX);
    }
    Settled::Abandoned
}

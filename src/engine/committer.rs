//! One shard's committer: the only task of this process that writes to the shard.

use std::sync::Arc;

use tokio::sync::{Notify, Semaphore, mpsc};
use tokio_util::sync::CancellationToken;

use super::batch::{Batch, Queue};
use super::inlet::Pending;
use super::recovery::{Settled, settle};
use super::{Failure, failure};
use crate::clock::draw_id;
use crate::domain::{Decided, Shard};
use crate::store::{CommitError, Store, StoreError};
use crate::telemetry::chain;

/// How often a batch is sent again after its commit turned out not to be applied.
const RESENDS_MAX: usize = 3;

pub(super) struct Committer {
    pub(super) store: Arc<dyn Store>,
    pub(super) shard: Shard,
    pub(super) slots: Arc<Semaphore>,
    pub(super) committed: Arc<Notify>,
}

impl Committer {
    /// Commits what queues until the queue is closed and empty.
    pub(super) async fn run(self, inlet: mpsc::Receiver<Pending>, closing: CancellationToken) {
        let mut queue = Queue::new(inlet);
        while queue.ready(&closing).await {
            let slot = self.slots.acquire().await.expect("the semaphore is never closed");
            self.commit(queue.batch(), &mut queue).await;
            drop(slot);
        }
    }

    /// Commits a batch; one that the store refuses is halved until the guilty command stands alone.
    async fn commit(&self, batch: Batch, queue: &mut Queue) {
        let mut batches = vec![batch];
        while let Some(batch) = batches.pop() {
            if batch.is_empty() {
                continue;
            }
            match self.attempt(&batch, queue).await {
                Ok(decided) => {
                    if !decided.events.is_empty() {
                        self.committed.notify_one();
                        self.store.announce_commit();
                    }
                    batch.answer(decided);
                }
                Err(Failed::Store(StoreError::Refused(_) | StoreError::Corrupt { .. })) if batch.len() > 1 => {
                    let (first, second) = batch.halves();
                    batches.extend([second, first]);
                }
                Err(Failed::Store(error)) => {
                    tracing::error!(
                        shard = self.shard.0,
                        commands = batch.len(),
                        run_id = batch.only_run(),
                        error = chain(&error),
                        "commit failed"
                    );
                    batch.fail(&failure(&error));
                }
                Err(Failed::Abandoned) => batch.fail(&Failure::OutcomeUnknown),
            }
        }
    }

    /// Commits a batch once, for certain: an unknown outcome is settled, and what was not applied is sent again.
    async fn attempt(&self, batch: &Batch, queue: &mut Queue) -> Result<Decided, Failed> {
        let commands = batch.commands();
        let mut resends = 0;
        loop {
            let commit_id = draw_id();
            let (unsettled, source) = match self.store.commit(self.shard, commit_id, commands.clone()).await {
                Ok(decided) => return Ok(decided),
                Err(CommitError::NotApplied(error)) => return Err(Failed::Store(error)),
                Err(CommitError::Unknown { unsettled, source }) => (unsettled, source),
            };
            tracing::warn!(
                shard = self.shard.0,
                %commit_id,
                commands = batch.len(),
                error = chain(&*source),
                "the outcome of a commit is unknown: settling it"
            );
            match settle(&*self.store, &unsettled, batch, queue).await {
                Settled::Applied => return Ok(unsettled.decided),
                Settled::NotApplied if resends < RESENDS_MAX => resends += 1,
                Settled::NotApplied => return Err(Failed::Store(StoreError::Unavailable(source))),
                Settled::Abandoned => return Err(Failed::Abandoned),
            }
        }
    }
}

enum Failed {
    /// Surely not applied.
    Store(StoreError),
    /// Unknown, and nobody waits for it any more.
    Abandoned,
}

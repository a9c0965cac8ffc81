//! One shard's committer: the only task of this process that writes to the shard.

use std::pin::pin;
use std::sync::Arc;

use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

use super::batch::{Batch, Queue};
use super::commit_health::CommitHealth;
use super::recovery::{Settled, settle};
use super::slots::Slots;
use super::{Failure, failure, metrics};
use crate::clock::draw_id;
use crate::domain::{Decide, Decided, Rules, Shard};
use crate::store::error::Source;
use crate::store::{CommitError, Commits, StoreError};
use crate::telemetry::chain;
use crate::telemetry::traces::{self, CallTrace};

/// The number of times that a batch's commands are sent again after their commit turned out not to be applied.
const RESENDS_MAX: usize = 3;

pub(super) struct Committer {
    store: Arc<dyn Commits>,
    rules: Arc<dyn Decide>,
    shard: Shard,
    slots: Arc<Slots>,
    committed: Arc<Notify>,
    health: Arc<CommitHealth>,
    /// Whether the last commit found the store unavailable: an outage is logged once, not once a batch.
    down: bool,
}

impl Committer {
    pub(super) fn new(
        store: Arc<dyn Commits>,
        shard: Shard,
        slots: Arc<Slots>,
        committed: Arc<Notify>,
        health: Arc<CommitHealth>,
    ) -> Self {
        Self { store, rules: Rules::shared(), shard, slots, committed, health, down: false }
    }

    /// Commits queued commands until the queue is closed and empty.
    pub(super) async fn run(mut self, mut queue: Queue, closing: CancellationToken) {
        let slots = self.slots.clone();
        while queue.ready(&closing).await {
            let mut slot = slots.begin(|| queue.len()).await;
            let batch = queue.batch();
            slot.takes(batch.len());
            self.commit(batch, &mut queue).await;
            drop(slot);
        }
    }

    /// Commits a batch, in parts where it must be. A batch that the store refuses is halved until the refused command
    /// is alone; a batch whose commit was lost on its way is halved too, since its size may be the cause.
    async fn commit(&mut self, batch: Batch, queue: &mut Queue) {
        let mut parts = vec![(batch, 0)];
        while let Some((part, resends)) = parts.pop() {
            // Invariant: no command in `parts` has been applied. A caller that was told of an unknown outcome will look
            // for it.
            let part = part.awaited();
            if part.is_empty() {
                continue;
            }
            match self.attempt(&part, queue).await {
                Outcome::Committed(decided) => {
                    self.down = false;
                    let heavy = queue.learn(decided.weight);
                    // A commit without events has written nothing, so its success says nothing about commits that
                    // write.
                    if !decided.events.is_empty() {
                        self.health.succeeded();
                        self.committed.notify_one();
                        self.store.announce_commit();
                    }
                    metrics::committed(&decided);
                    let rest = part.answer(decided);
                    if heavy {
                        // Each attempt reads the runs of all its commands, even of those that it does not come to
                        // decide.
                        let (first, second) = rest.halves();
                        parts.extend([(second, 0), (first, 0)]);
                    } else {
                        parts.push((rest, 0));
                    }
                }
                Outcome::NotApplied(error) if error.may_be_of_one_run() && part.len() > 1 => {
                    let (first, second) = part.halves();
                    parts.extend([(second, resends), (first, resends)]);
                }
                Outcome::NotApplied(error) => self.fail(part, &error),
                Outcome::Lost(_) if resends < RESENDS_MAX => {
                    let (first, second) = part.halves();
                    parts.extend([(second, resends + 1), (first, resends + 1)]);
                }
                Outcome::Lost(source) => self.fail(part, &StoreError::Unavailable(source)),
                Outcome::Abandoned => part.fail(&Failure::OutcomeUnknown),
            }
        }
    }

    /// Commits a part once. An unknown outcome is settled.
    async fn attempt(&self, part: &Batch, queue: &mut Queue) -> Outcome {
        let commit_id = draw_id();
        let commit = pin!(self.store.commit(self.shard, commit_id, part.commands(), &self.rules));
        let span = traces::commit(&part.spans(), &commit_id, self.shard.0, part.len());
        let committed =
            traces::within(span.clone().map(|span| Box::new(CallTrace { context: None, span: Some(span) })), commit)
                .await;
        if let Some(span) = span {
            span.end(metrics::failure(&committed));
        }
        let (unsettled, source) = match committed {
            Ok(decided) => return Outcome::Committed(decided),
            Err(CommitError::NotApplied(error)) => return Outcome::NotApplied(error),
            Err(CommitError::Unknown { unsettled, source }) => (unsettled, source),
        };
        tracing::warn!(
            shard = self.shard.0,
            %commit_id,
            commands = part.len(),
            error = chain(&*source),
            "the outcome of a commit is unknown: settling it"
        );
        match settle(&*self.store, &unsettled, &*source, part, queue, &self.health).await {
            Settled::Applied => Outcome::Committed(unsettled.decided),
            Settled::NotApplied => Outcome::Lost(source),
            Settled::Abandoned => Outcome::Abandoned,
        }
    }

    fn fail(&mut self, part: Batch, error: &StoreError) {
        match error {
            StoreError::Refused(_) => self.health.refused(self.shard, || chain(error)),
            StoreError::Corrupt { .. } if error.may_be_of_one_run() => {}
            StoreError::Corrupt { .. } | StoreError::Unavailable(_) | StoreError::Lost(_) => {
                self.health.failed(self.shard, || chain(error));
            }
        }
        let known = !error.may_be_of_one_run() && std::mem::replace(&mut self.down, true);
        if !known {
            tracing::error!(
                shard = self.shard.0,
                commands = part.len(),
                run_id = part.only_run(),
                trace_id = part.only_trace(),
                error = chain(error),
                "commit failed"
            );
        }
        part.fail(&failure(error));
    }
}

enum Outcome {
    Committed(Decided),
    /// The store gave an error, and certainly nothing was applied.
    NotApplied(StoreError),
    /// The commit was sent, and certainly nothing was applied.
    Lost(Source),
    /// The outcome is unknown, and no caller waits for it any more.
    Abandoned,
}

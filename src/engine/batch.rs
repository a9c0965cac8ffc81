//! The commands of one commit: how they are gathered, answered and halved.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};

use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use super::inlet::{InHand, Pending};
use super::{Failure, Limits};
use crate::domain::{Command, Decided};

/// Commands that are committed together, in the order of their arrival.
#[derive(Debug, Default)]
pub(super) struct Batch(Vec<Pending>);

impl Batch {
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(super) fn len(&self) -> usize {
        self.0.len()
    }

    /// The run of a command that stands alone: the guilty one, where the store refuses it.
    pub(super) fn only_run(&self) -> Option<&str> {
        match self.0.as_slice() {
            [alone] => Some(&alone.command.key.run_id),
            [] | [_, ..] => None,
        }
    }

    pub(super) fn commands(&self) -> Arc<[Arc<Command>]> {
        self.0.iter().map(|pending| pending.command.clone()).collect()
    }

    /// Whether anybody wants to know its outcome.
    pub(super) fn is_awaited(&self) -> bool {
        self.0.iter().any(|pending| pending.is_awaited() || pending.is_told_of())
    }

    /// The two halves, in order.
    pub(super) fn halves(mut self) -> (Self, Self) {
        let second = self.0.split_off(self.0.len() / 2);
        (self, Self(second))
    }

    /// Answers what was decided; what was not comes back.
    pub(super) fn answer(mut self, decided: Decided) -> Self {
        let rest = self.0.split_off(decided.verdicts.len().min(self.0.len()));
        for (pending, verdict) in self.0.into_iter().zip(decided.verdicts) {
            pending.answer(verdict.map_err(|refusal| Failure::Refused(Box::new(refusal))));
        }
        Self(rest)
    }

    /// Without the commands that nobody waits for any more. Only where it is certain that none of them was applied:
    /// their callers were told that they may have been, and will look before they send them again.
    pub(super) fn awaited(mut self) -> Self {
        self.0.retain(Pending::is_awaited);
        self
    }

    pub(super) fn fail(self, failure: &Failure) {
        for pending in self.0 {
            pending.answer(Err(failure.clone()));
        }
    }
}

/// A shard's queue, with what was received and not yet batched.
pub(super) struct Queue {
    inlet: mpsc::Receiver<Pending>,
    /// Told of what was received and has no answer.
    in_hand: Arc<Mutex<InHand>>,
    waiting: VecDeque<Pending>,
    limits: Limits,
    /// What the last commits let the next one take, at most [`Limits::batch_commands_max`].
    commands_max: usize,
}

impl Queue {
    pub(super) fn new(inlet: mpsc::Receiver<Pending>, in_hand: Arc<Mutex<InHand>>, limits: Limits) -> Self {
        Self { inlet, in_hand, waiting: VecDeque::new(), limits, commands_max: limits.batch_commands_max }
    }

    /// Waits for a command. False once the queue is closed and empty. `closing` closes it.
    pub(super) async fn ready(&mut self, closing: &CancellationToken) -> bool {
        if closing.is_cancelled() {
            self.inlet.close();
        }
        self.tell(&[]);
        if !self.waiting.is_empty() {
            return true;
        }
        let pending = tokio::select! {
            biased;
            () = closing.cancelled() => {
                self.inlet.close();
                self.inlet.recv().await
            }
            pending = self.inlet.recv() => pending,
        };
        self.waiting.extend(pending);
        self.tell(&[]);
        !self.waiting.is_empty()
    }

    /// How many commands wait here.
    pub(super) fn len(&self) -> usize {
        self.waiting.len() + self.inlet.len()
    }

    /// Tells what is in hand: a batch, and what waits for the next one.
    fn tell(&self, batch: &[Pending]) {
        let commands = batch.len() + self.waiting.len();
        let since = batch.first().or(self.waiting.front()).map(|pending| pending.since);
        *self.in_hand.lock().unwrap_or_else(PoisonError::into_inner) = InHand { commands, since };
    }

    /// Learns from a commit how many commands the next one should take: how large the runs are is only known then. Says
    /// whether it was too heavy.
    pub(super) fn learn(&mut self, weight: usize) -> bool {
        let Limits { batch_commands_max, batch_runs_bytes_max, .. } = self.limits;
        let heavy = weight > batch_runs_bytes_max;
        self.commands_max =
            if heavy { (self.commands_max / 2).max(1) } else { (self.commands_max * 2).min(batch_commands_max) };
        heavy
    }

    /// The next command to arrive; none once the queue is closed and empty.
    pub(super) async fn next(&mut self) -> Option<Pending> {
        match self.waiting.pop_front() {
            Some(pending) => Some(pending),
            None => self.inlet.recv().await,
        }
    }

    /// Takes what queued, up to the limits, without waiting.
    pub(super) fn batch(&mut self) -> Batch {
        let mut batch = Vec::new();
        let mut bytes = 0;
        while batch.len() < self.commands_max {
            let Some(pending) = self.waiting.pop_front().or_else(|| self.inlet.try_recv().ok()) else { break };
            if !batch.is_empty() && bytes + pending.weight > self.limits.batch_bytes_max {
                self.waiting.push_front(pending);
                break;
            }
            if pending.take() {
                bytes += pending.weight;
                batch.push(pending);
            }
        }
        self.tell(&batch);
        Batch(batch)
    }
}

//! The commands of one commit: how they are gathered, answered and halved.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::mpsc;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::inlet::{InHand, Pending};
use super::{Failure, Limits};
use crate::domain::{Command, Decided};
use crate::fairness::spread;
use crate::telemetry::record;
use crate::telemetry::traces::Span;

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

    /// The run of a command that is alone in its batch: where the store refuses the batch, it refuses this command.
    pub(super) fn only_run(&self) -> Option<&str> {
        match self.0.as_slice() {
            [alone] => Some(&alone.command.key.run_id),
            [] | [_, ..] => None,
        }
    }

    /// The trace of that command's call.
    pub(super) fn only_trace(&self) -> Option<String> {
        match self.0.as_slice() {
            [alone] => alone.command.trace.map(|trace| trace.trace_id()),
            [] | [_, ..] => None,
        }
    }

    /// The spans of the calls that are recorded.
    pub(super) fn spans(&self) -> Vec<Span> {
        self.0.iter().filter_map(|pending| pending.span.clone()).collect()
    }

    pub(super) fn commands(&self) -> Arc<[Arc<Command>]> {
        self.0.iter().map(|pending| pending.command.clone()).collect()
    }

    /// Whether any caller, or the channel of unreceived claims, waits for the batch's outcome.
    pub(super) fn is_awaited(&self) -> bool {
        self.0.iter().any(|pending| pending.is_awaited() || pending.is_told_of())
    }

    /// The two halves, in order.
    pub(super) fn halves(mut self) -> (Self, Self) {
        let second = self.0.split_off(self.0.len() / 2);
        (self, Self(second))
    }

    /// Answers the commands that were decided, and returns the others.
    pub(super) fn answer(mut self, decided: Decided) -> Self {
        let rest = self.0.split_off(decided.verdicts.len().min(self.0.len()));
        for (pending, verdict) in self.0.into_iter().zip(decided.into_verdicts()) {
            pending.answer(verdict.map_err(|refusal| Failure::Refused(Box::new(refusal))));
        }
        Self(rest)
    }

    /// The batch without the commands that no caller waits for any more, and without those of a list whose earlier ones
    /// failed in another part of the batch. Invariant: none of the commands was applied. The callers that have gone were
    /// told that theirs may have been, and will look before they send them again.
    pub(super) fn awaited(self) -> Self {
        let mut awaited = Vec::with_capacity(self.0.len());
        for pending in self.0.into_iter().filter(Pending::is_awaited) {
            match pending.failed_before().cloned() {
                Some(failure) => pending.answer(Err(failure)),
                None => awaited.push(pending),
            }
        }
        Self(awaited)
    }

    pub(super) fn fail(self, failure: &Failure) {
        for pending in self.0 {
            pending.answer(Err(failure.clone()));
        }
    }
}

/// A single command that was taken so long ago tells that others will come.
const SINGLE_RECENTLY: Duration = Duration::from_secs(1);

/// The commands of which a commit takes so many, each caller an equal part of them, and those for which it has no room.
fn in_equal_parts(waiting: VecDeque<Pending>, commands_max: usize) -> (VecDeque<Pending>, VecDeque<Pending>) {
    if waiting.len() <= commands_max {
        return (waiting, VecDeque::new());
    }
    let mut parties = HashMap::<_, usize>::new();
    for pending in &waiting {
        parties.entry(pending.holder).or_default();
    }
    let part = (commands_max / parties.len()).max(1);
    let (mut before, mut behind): (VecDeque<_>, VecDeque<_>) = waiting.into_iter().partition(|pending| {
        let taken = parties.entry(pending.holder).or_default();
        *taken += 1;
        *taken <= part
    });
    // There are more callers than places.
    let mut late = before.split_off(commands_max.min(before.len()));
    late.append(&mut behind);
    (before, late)
}

/// A shard's queue, with the commands that were received and not yet batched.
pub(super) struct Queue {
    inlet: mpsc::Receiver<Pending>,
    /// The count of commands that were received and have no answer.
    in_hand: Arc<Mutex<InHand>>,
    waiting: VecDeque<Pending>,
    limits: Limits,
    /// What the last commits let the next one take, at most [`Limits::batch_commands_max`].
    commands_max: usize,
    /// The time at which a single command was taken last.
    single_at: Option<Instant>,
    /// The time since which each batch has left commands in the queue.
    crowded_since: Option<Instant>,
    /// The number of commands that were refused because they had waited for too long.
    refused: u64,
}

impl Queue {
    pub(super) fn new(inlet: mpsc::Receiver<Pending>, in_hand: Arc<Mutex<InHand>>, limits: Limits) -> Self {
        let (waiting, commands_max) = (VecDeque::new(), limits.batch_commands_max);
        Self { inlet, in_hand, waiting, limits, commands_max, single_at: None, crowded_since: None, refused: 0 }
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

    /// The number of commands that wait here.
    pub(super) fn len(&self) -> usize {
        self.waiting.len() + self.inlet.len()
    }

    /// Publishes the count in hand: a batch. The commands that wait for the next one have their places in the queue.
    fn tell(&self, batch: &[Pending]) {
        let commands = batch.len();
        let since = batch.iter().chain(&self.waiting).map(|pending| pending.since).min();
        *self.in_hand.lock() = InHand { commands, since };
    }

    /// Learns from a commit how many commands the next one should take: the size of the runs is only known afterwards.
    /// Returns whether the commit was too heavy.
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

    /// How many commands the next commit takes. Where more wait, each caller has an equal part of it: whoever sends many at
    /// once is not before those that send one after the other. Of a caller's lists the order is kept, and of its single
    /// commands.
    ///
    /// Where lists and single commands wait, half of the commit is for the single ones: a caller's lists are not before its
    /// single commands, nor before those of a caller that sends several at once.
    fn share_out(&mut self) -> usize {
        let mixed_max = self.commands_max.min(self.limits.batch_mixed_max);
        if self.len() <= mixed_max || self.commands_max == 1 {
            return self.commands_max;
        }
        self.waiting.extend(std::iter::from_fn(|| self.inlet.try_recv().ok()));
        let (lists, singles): (VecDeque<_>, VecDeque<_>) = self.waiting.drain(..).partition(Pending::is_in_list);
        let single = singles.len();
        let commands_max = if self.is_mixed(&lists, single) {
            (2 * single).clamp(mixed_max, self.commands_max)
        } else {
            self.commands_max
        };
        let of_singles = if lists.is_empty() { commands_max } else { commands_max.div_ceil(2).min(single) };
        let (singles, single_rest) = in_equal_parts(singles, of_singles);
        let (lists, rest) = in_equal_parts(lists, commands_max - of_singles);
        // In turn: a commit has a limit of bytes as well, and neither takes all of it.
        let mut lists = lists.into_iter();
        for pending in singles {
            self.waiting.push_back(pending);
            self.waiting.extend(lists.next());
        }
        self.waiting.extend(lists.chain(single_rest).chain(rest));
        commands_max
    }

    /// Whether single commands wait behind lists, or will. A list that has waited for long is not held up any more.
    fn is_mixed(&self, lists: &VecDeque<Pending>, single: usize) -> bool {
        let Some(oldest) = lists.iter().map(|pending| pending.since).min() else { return false };
        let comes = single > 0 || self.single_at.is_some_and(|at| at.elapsed() < SINGLE_RECENTLY);
        comes && oldest.elapsed() < self.limits.wait_max / 3
    }

    /// Takes the queued commands, up to the limits, without waiting. A command that has waited for too long is refused:
    /// while more come than can be committed, all would wait for as long as their callers do, and be work for nobody.
    pub(super) fn batch(&mut self) -> Batch {
        let now = Instant::now();
        let is_crowded = self.crowded_since.is_some_and(|since| now - since >= self.limits.crowded_after);
        let wait_max = if is_crowded { self.limits.crowded_wait_max } else { self.limits.wait_max };
        let commands_max = self.share_out();
        let mut batch = Vec::new();
        let mut bytes = 0;
        while batch.len() < commands_max {
            let Some(mut pending) = self.waiting.pop_front().or_else(|| self.inlet.try_recv().ok()) else { break };
            if !batch.is_empty() && bytes + pending.weight > self.limits.batch_bytes_max {
                self.waiting.push_front(pending);
                break;
            }
            if !pending.take() {
                continue;
            }
            if !pending.is_in_list() {
                self.single_at = Some(now);
            }
            let waited = now - pending.since;
            // A list is as long as its caller wants, and waits for itself.
            let wait_max = if pending.is_in_list() { self.limits.wait_max } else { wait_max };
            if let Some(failure) = pending.failed_before().cloned() {
                pending.answer(Err(failure));
            } else if waited > wait_max {
                self.refused += 1;
                pending.answer(Err(Failure::Overloaded { wait: spread(waited, self.refused) }));
            } else {
                bytes += pending.weight;
                batch.push(pending);
            }
        }
        // Lists are not a crowd: who sends one waits for it, and holds up nobody but those who have as much of a commit.
        let is_left =
            self.waiting.iter().any(|pending| !pending.is_in_list()) || self.waiting.is_empty() && self.len() > 0;
        self.crowded_since = if is_left { self.crowded_since.or(Some(now)) } else { None };
        self.tell(&batch);
        record::batch(batch.iter().map(|pending| now - pending.since));
        for pending in &batch {
            if let Some(span) = &pending.span {
                span.set("runledger.queue.wait", (now - pending.since).as_secs_f64());
                span.event("batched");
            }
        }
        Batch(batch)
    }
}

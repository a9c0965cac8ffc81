//! The calls that the callers of a phase made, and their delays.
//!
//! A caller notes its calls in memory of its own and hands them in by the hundred: callers share no lock for each call,
//! or the load would measure itself.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;

use crate::delays::Delays;

/// Delays of one kind that a caller keeps before it hands them in.
const KEPT_MAX: usize = 512;

/// The kind of a delay.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Of {
    Start,
    Update,
    Complete,
    Get,
    /// From when a run was due to the answer that it has ended.
    Run,
    /// From the answer that a run has ended to the answer of a wait for that end.
    Wait,
}

impl Of {
    pub(crate) const ALL: [Self; 6] = [Self::Start, Self::Update, Self::Complete, Self::Get, Self::Run, Self::Wait];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Start => "start",
            Self::Update => "update",
            Self::Complete => "complete",
            Self::Get => "get",
            Self::Run => "whole_run",
            Self::Wait => "complete_to_wait_answer",
        }
    }

    /// Whether it is one call from its sending to its answer.
    pub(crate) fn is_call(self) -> bool {
        match self {
            Self::Start | Self::Update | Self::Complete | Self::Get => true,
            Self::Run | Self::Wait => false,
        }
    }

    /// Whether its answer says that an event was written.
    fn is_transition(self) -> bool {
        match self {
            Self::Start | Self::Update | Self::Complete => true,
            Self::Get | Self::Run | Self::Wait => false,
        }
    }
}

/// The calls of all callers of a phase.
#[derive(Debug)]
pub(crate) struct Totals {
    /// The time whose answers are measured.
    measured: Range<Instant>,
    /// Calls that were answered, measured or not: for the display.
    answered: AtomicU64,
    sum: Mutex<Sum>,
}

/// The sum of the measured calls.
#[derive(Clone, Debug)]
pub(crate) struct Sum {
    delays: [Delays; Of::ALL.len()],
    /// Transitions that were answered, measured or not.
    pub(crate) written: u64,
}

impl Sum {
    pub(crate) fn new() -> Self {
        Self { delays: std::array::from_fn(|_| Delays::new()), written: 0 }
    }

    pub(crate) fn of(&self, of: Of) -> &Delays {
        &self.delays[of as usize]
    }

    pub(crate) fn add(&mut self, others: &Self) {
        self.delays.iter_mut().zip(&others.delays).for_each(|(delays, others)| delays.add(others));
        self.written += others.written;
    }

    /// The delays of all calls together.
    pub(crate) fn calls(&self) -> Delays {
        let mut all = Delays::new();
        Of::ALL.into_iter().filter(|of| of.is_call()).for_each(|of| all.add(self.of(of)));
        all
    }

    /// Transitions that were measured.
    pub(crate) fn transitions(&self) -> u64 {
        Of::ALL.into_iter().filter(|of| of.is_transition()).map(|of| self.of(of).count()).sum()
    }

    /// Calls that were measured. An answered wait is one too.
    pub(crate) fn call_count(&self) -> u64 {
        Of::ALL.into_iter().filter(|of| *of != Of::Run).map(|of| self.of(of).count()).sum()
    }
}

impl Totals {
    pub(crate) fn new(measured: Range<Instant>) -> Arc<Self> {
        Arc::new(Self { measured, answered: AtomicU64::new(0), sum: Mutex::new(Sum::new()) })
    }

    pub(crate) fn until(&self) -> Instant {
        self.measured.end
    }

    pub(crate) fn answered(&self) -> u64 {
        self.answered.load(Ordering::Relaxed)
    }

    /// The sum once every caller has handed in its notes, and the measured time: less than was planned, when the phase
    /// was ended early.
    pub(crate) fn sum(&self) -> (Sum, Duration) {
        let sum = self.sum.lock().clone();
        (sum, Instant::now().min(self.measured.end).saturating_duration_since(self.measured.start))
    }
}

/// The calls of one caller.
#[derive(Debug)]
pub(crate) struct Tally {
    totals: Arc<Totals>,
    kept: [Vec<u32>; Of::ALL.len()],
    written: u64,
}

impl Tally {
    pub(crate) fn new(totals: Arc<Totals>) -> Self {
        Self { totals, kept: Default::default(), written: 0 }
    }

    /// A tally for calls before and after the measurement.
    pub(crate) fn unmeasured() -> Self {
        let now = Instant::now();
        Self::new(Totals::new(now..now))
    }

    /// Notes a delay from `from` to now. Gives now.
    pub(crate) fn answered(&mut self, of: Of, from: Instant) -> Instant {
        let now = Instant::now();
        self.note(of, from, now);
        now
    }

    /// Notes a delay from `from` to `answered`.
    pub(crate) fn note(&mut self, of: Of, from: Instant, answered: Instant) {
        if of != Of::Run {
            self.totals.answered.fetch_add(1, Ordering::Relaxed);
        }
        self.written += u64::from(of.is_transition());
        if self.totals.measured.contains(&answered) {
            let delay = answered.saturating_duration_since(from);
            let kept = &mut self.kept[of as usize];
            kept.push(u32::try_from(delay.as_micros()).unwrap_or(u32::MAX));
            if kept.len() >= KEPT_MAX {
                self.hand_in();
            }
        }
    }

    /// Adds the notes to the totals. Must be called at the end.
    pub(crate) fn hand_in(&mut self) {
        let mut sum = self.totals.sum.lock();
        for (delays, kept) in sum.delays.iter_mut().zip(&mut self.kept) {
            kept.drain(..).for_each(|micros| delays.record_micros(micros.into()));
        }
        sum.written += std::mem::take(&mut self.written);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    #[tokio::test(start_paused = true)]
    async fn only_what_is_answered_in_time_is_measured_and_every_transition_is_counted() {
        let begun = Instant::now();
        let totals = Totals::new(begun + 10 * MS..begun + 20 * MS);
        let mut tally = Tally::new(totals.clone());
        for answered in [5, 10, 19, 20] {
            tally.note(Of::Start, begun, begun + answered * MS);
        }
        tally.note(Of::Get, begun, begun + 15 * MS);
        tally.note(Of::Run, begun, begun + 15 * MS);
        tally.hand_in();
        tokio::time::advance(15 * MS).await;
        let (sum, time) = totals.sum();
        assert_eq!((sum.transitions(), sum.call_count(), sum.written, totals.answered()), (2, 3, 4, 5));
        assert_eq!(time, 5 * MS, "it is not over");
        tokio::time::advance(15 * MS).await;
        assert_eq!(totals.sum().1, 10 * MS);
        assert_eq!(sum.calls().count(), 3);
    }
}

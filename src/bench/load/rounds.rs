//! What the rounds of a load say together.

use std::num::NonZeroU32;
use std::time::Duration;

use super::Workload;
use super::tally::{Of, Sum};
use crate::bench::report::{Number, Report, Round, Summary, per_second};

/// One round of one side.
#[derive(Debug)]
pub(super) struct Turn {
    pub(super) round: u32,
    /// Who was called.
    pub(super) of: &'static str,
    pub(super) sum: Sum,
    pub(super) time: Duration,
}

/// All of them.
#[derive(Debug)]
pub(super) struct Rounds {
    workload: Workload,
    rate: Option<NonZeroU32>,
    turns: Vec<Turn>,
}

impl Rounds {
    pub(super) fn new(workload: Workload, rate: Option<NonZeroU32>) -> Self {
        Self { workload, rate, turns: Vec::new() }
    }

    pub(super) fn add(&mut self, turn: Turn) {
        self.turns.push(turn);
    }

    /// `around` events were written before the first round and after the last.
    pub(super) fn report(&self, bench: &'static str, did: String, around: u64, interrupted: bool) -> Report {
        let (sum, time) = self.together();
        let mut numbers = self.numbers(&sum, time);
        numbers.push(("measured_seconds", time.as_secs_f64().into()));
        numbers.push(("events_written", (sum.written + around).into()));
        let rounds = match self.turns.len() {
            0 | 1 => Vec::new(),
            _ => self.turns.iter().map(|turn| self.round(turn)).collect(),
        };
        let notes = self.notes(&sum, time);
        Report { bench, did, interrupted, numbers, delays_ms: delays(&sum), rounds, notes }
    }

    fn round(&self, turn: &Turn) -> Round {
        let Turn { round, of, sum, time } = turn;
        Round { round: *round, of, numbers: self.numbers(sum, *time), delays_ms: delays(sum) }
    }

    fn together(&self) -> (Sum, Duration) {
        let mut all = (Sum::new(), Duration::ZERO);
        for Turn { sum, time, .. } in &self.turns {
            all.0.add(sum);
            all.1 += *time;
        }
        all
    }

    fn numbers(&self, sum: &Sum, time: Duration) -> Vec<(&'static str, Number)> {
        let mut numbers = Vec::new();
        if !matches!(self.workload, Workload::Read { .. }) {
            numbers.push(("transitions", sum.transitions().into()));
            numbers.push(("transitions_per_second", per_second(sum.transitions(), time).into()));
        }
        let turns = self.turns_done(sum);
        if self.rate.is_some() {
            numbers.push(("turns_per_second", per_second(turns, time).into()));
        }
        numbers.push(("calls", sum.call_count().into()));
        numbers.push(("calls_per_second", per_second(sum.call_count(), time).into()));
        numbers
    }

    /// How often the workload was done: what a rate is of.
    fn turns_done(&self, sum: &Sum) -> u64 {
        let of = match self.workload {
            Workload::Lifecycle | Workload::StartComplete => Of::Run,
            Workload::HotRun { .. } => Of::Update,
            Workload::Read { .. } => Of::Get,
            Workload::Wait => Of::Complete,
        };
        sum.of(of).count()
    }

    fn notes(&self, sum: &Sum, time: Duration) -> Vec<String> {
        let mut notes = Vec::new();
        if let Some(rate) = self.rate {
            notes.push("a turn's first call, and a whole run, count from when they were due".to_owned());
            let done = per_second(self.turns_done(sum), time);
            if done < f64::from(rate.get()) * 0.98 {
                notes.push(format!("only {done:.0} of {rate} a second were done: this client or the server is full"));
            }
        }
        if self.workload == Workload::Wait {
            notes.push("a wait's delay is from the completing call's answer; one before it counts as 0".to_owned());
        }
        notes
    }
}

/// By kind, and of all calls together.
fn delays(sum: &Sum) -> Vec<(&'static str, Summary)> {
    let kinds = Of::ALL.into_iter().filter(|of| sum.of(*of).count() > 0);
    let mut delays: Vec<_> = kinds.map(|of| (of.name(), sum.of(of).summary())).collect();
    if delays.len() > 1 {
        delays.push(("all_calls", sum.calls().summary()));
    }
    delays
}

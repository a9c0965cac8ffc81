//! The result of all rounds of a load, and the ratios between the sides of a comparison.

use std::num::NonZeroU32;
use std::time::Duration;

use super::Workload;
use super::tally::{Of, Sum};
use crate::direct::Side;
use crate::report::{Number, Ratio, Report, Round, Summary, per_second};

/// One side in one round.
#[derive(Debug)]
pub(super) struct Turn {
    pub(super) round: u32,
    pub(super) side: Side,
    pub(super) wrote: Wrote,
    /// Whether the turn lasted its whole time: a part of a round is compared with nothing.
    pub(super) whole: bool,
}

/// The result of a turn.
#[derive(Debug)]
pub(super) enum Wrote {
    /// The sum of this process's own calls, and their time.
    Measured(Box<(Sum, Duration)>),
    /// Transitions a second, as another program tells; none when it was stopped.
    Told(Option<f64>),
}

/// All rounds of a load.
#[derive(Debug)]
pub(super) struct Rounds {
    workload: Workload,
    rate: Option<NonZeroU32>,
    /// The durability of the database that is compared with.
    durability: Option<String>,
    /// The sum of Runledger's calls in all rounds.
    sum: Sum,
    time: Duration,
    turns: Vec<Round>,
    points: Vec<Point>,
}

/// The numbers of one side in one round, for comparison.
#[derive(Clone, Copy, Debug)]
struct Point {
    round: u32,
    side: Side,
    transitions_per_second: f64,
    /// The median of all calls, in milliseconds.
    p50: Option<f64>,
}

impl Rounds {
    pub(super) fn new(workload: Workload, rate: Option<NonZeroU32>, durability: Option<String>) -> Self {
        let (sum, time) = (Sum::new(), Duration::ZERO);
        Self { workload, rate, durability, sum, time, turns: Vec::new(), points: Vec::new() }
    }

    pub(super) fn add(&mut self, turn: Turn) {
        let Turn { round, side, wrote, whole } = turn;
        let (numbers, delays_ms, point) = match wrote {
            Wrote::Measured(measured) => {
                let (sum, time) = *measured;
                if side == Side::Runledger {
                    self.sum.add(&sum);
                    self.time += time;
                }
                let point = (per_second(sum.transitions(), time), Some(sum.calls().summary().p50));
                (self.numbers(&sum, time), delays(&sum), point)
            }
            Wrote::Told(Some(rate)) => (vec![("transitions_per_second", rate.into())], Vec::new(), (rate, None)),
            Wrote::Told(None) => return,
        };
        self.turns.push(Round { round, of: side.name(), numbers, delays_ms });
        if whole {
            let (transitions_per_second, p50) = point;
            self.points.push(Point { round, side, transitions_per_second, p50 });
        }
    }

    /// `around` events were written before the first round and after the last.
    pub(super) fn report(self, bench: &'static str, did: String, around: u64, interrupted: bool) -> Report {
        let mut numbers = self.numbers(&self.sum, self.time);
        numbers.push(("measured_seconds", self.time.as_secs_f64().into()));
        numbers.push(("events_written", (self.sum.written + around).into()));
        let (delays_ms, ratios, notes) = (delays(&self.sum), self.ratios(), self.notes());
        let rounds = if self.turns.len() > 1 { self.turns } else { Vec::new() };
        Report { bench, did, interrupted, numbers, delays_ms, rounds, ratios, notes }
    }

    /// Runledger over each other side, in the rounds that both have done.
    fn ratios(&self) -> Vec<Ratio> {
        let mut others: Vec<Side> = Vec::new();
        for Point { side, .. } in &self.points {
            if *side != Side::Runledger && !others.contains(side) {
                others.push(*side);
            }
        }
        others.sort_by_key(|side| side.name());
        let ratio = |of, value: fn(&Point) -> Option<f64>, side: Side| {
            let ours = self.points.iter().filter(|point| point.side == Side::Runledger);
            let each = ours.filter_map(|ours| {
                let theirs = self.points.iter().find(|point| (point.side, point.round) == (side, ours.round))?;
                value(ours).zip(value(theirs).filter(|theirs| *theirs > 0.0)).map(|(ours, theirs)| ours / theirs)
            });
            Ratio::new(of, side.name(), each)
        };
        let of_rates =
            others.iter().map(|side| ratio("transitions_per_second", |at| Some(at.transitions_per_second), *side));
        let of_p50 = others.iter().map(|side| ratio("p50_of_all_calls", |at| at.p50, *side));
        of_rates.chain(of_p50).flatten().collect()
    }

    fn numbers(&self, sum: &Sum, time: Duration) -> Vec<(&'static str, Number)> {
        let mut numbers = Vec::new();
        if !matches!(self.workload, Workload::Read { .. }) {
            numbers.push(("transitions", sum.transitions().into()));
            numbers.push(("transitions_per_second", per_second(sum.transitions(), time).into()));
        }
        if self.rate.is_some() {
            numbers.push(("turns_per_second", per_second(self.turns_done(sum), time).into()));
        }
        numbers.push(("calls", sum.call_count().into()));
        numbers.push(("calls_per_second", per_second(sum.call_count(), time).into()));
        numbers
    }

    /// The number of times that the workload was done, for the rate.
    fn turns_done(&self, sum: &Sum) -> u64 {
        let of = match self.workload {
            Workload::Lifecycle | Workload::StartComplete => Of::Run,
            Workload::HotRun { .. } => Of::Update,
            Workload::Read { .. } => Of::Get,
            Workload::Wait => Of::Complete,
        };
        sum.of(of).count()
    }

    fn notes(&self) -> Vec<String> {
        let mut notes = Vec::new();
        if let Some(rate) = self.rate {
            notes.push("a turn's first call, and a whole run, count from when they were due".to_owned());
            let done = per_second(self.turns_done(&self.sum), self.time);
            if done < f64::from(rate.get()) * 0.98 {
                notes.push(format!("only {done:.0} of {rate} a second were done: this client or the server is full"));
            }
        }
        if self.workload == Workload::Wait {
            notes.push("a wait's delay is from the completing call's answer; one before it counts as 0".to_owned());
        }
        notes.extend(self.durability.as_ref().map(|settings| format!("written directly: {settings}")));
        notes
    }
}

/// The delays by kind, and those of all calls together.
fn delays(sum: &Sum) -> Vec<(&'static str, Summary)> {
    let kinds = Of::ALL.into_iter().filter(|of| sum.of(*of).count() > 0);
    let mut delays: Vec<_> = kinds.map(|of| (of.name(), sum.of(of).summary())).collect();
    delays.push(("all_calls", sum.calls().summary()));
    delays
}

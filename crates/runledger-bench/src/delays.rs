//! Delays, as a histogram.

use std::time::Duration;

use hdrhistogram::Histogram;
use serde::Serialize;

/// The greatest delay that is told apart; longer ones count as this.
const MICROS_MAX: u64 = 3_600_000_000;

/// Delays in microseconds, to three digits.
#[derive(Clone, Debug)]
pub(super) struct Delays(Histogram<u64>);

/// A summary of delays for a report, in milliseconds.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Summary {
    /// The number of delays.
    pub count: u64,
    /// Half of them were not longer.
    pub p50: f64,
    /// Nine in ten were not longer.
    pub p90: f64,
    /// Ninety-nine in a hundred were not longer.
    pub p99: f64,
    /// All but one in a thousand were not longer.
    pub p99_9: f64,
    /// None was longer.
    pub max: f64,
}

impl Delays {
    pub(super) fn new() -> Self {
        Self(Histogram::new_with_max(MICROS_MAX, 3).expect("three digits of an hour fit"))
    }

    pub(super) fn record(&mut self, delay: Duration) {
        self.record_micros(u64::try_from(delay.as_micros()).unwrap_or(MICROS_MAX));
    }

    pub(super) fn record_micros(&mut self, micros: u64) {
        self.0.saturating_record(micros);
    }

    pub(super) fn add(&mut self, others: &Self) {
        self.0.add(&others.0).expect("both have the same bounds");
    }

    pub(super) fn count(&self) -> u64 {
        self.0.len()
    }

    pub(super) fn summary(&self) -> Summary {
        let at = |quantile| millis(self.0.value_at_quantile(quantile).min(self.0.max()));
        Summary {
            count: self.0.len(),
            p50: at(0.5),
            p90: at(0.9),
            p99: at(0.99),
            p99_9: at(0.999),
            max: millis(self.0.max()),
        }
    }
}

fn millis(micros: u64) -> f64 {
    // Below an hour, so exact; dividing last leaves three digits and no noise behind them.
    f64::from(u32::try_from(micros).unwrap_or(u32::MAX)) / 1e3
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_summary_is_in_milliseconds_and_in_order() {
        let mut delays = Delays::new();
        (1..=1_000).for_each(|micros| delays.record(Duration::from_micros(micros * 10)));
        let Summary { count, p50, p90, p99, p99_9, max } = delays.summary();
        assert_eq!(count, 1_000);
        for (value, about) in [(p50, 5.0), (p90, 9.0), (p99, 9.9), (p99_9, 9.99), (max, 10.0)] {
            assert!((value - about).abs() < 0.02, "{value} is not about {about}");
        }
    }

    #[test]
    fn nothing_measured_is_nothing_said() {
        let summary = Delays::new().summary();
        assert_eq!((summary.count, summary.max.to_bits()), (0, 0));
    }
}

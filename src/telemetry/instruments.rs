//! The instruments that are recorded with calls and commits. Each series is looked up once, and then bound.
//!
//! Where nobody asks for metrics there are no instruments, and recording costs one load.

use std::collections::HashMap;
use std::sync::OnceLock;

use opentelemetry::KeyValue;
use opentelemetry::metrics::{BoundCounter, BoundHistogram, Counter, Histogram, Meter};
use parking_lot::Mutex;

use super::metrics::{self, Kind, Metric};

static INSTRUMENTS: OnceLock<Instruments> = OnceLock::new();

/// All of them.
pub(super) struct Instruments {
    pub(super) call_duration: Histograms,
    pub(super) transitions: Counters,
    pub(super) refusals: Named,
    pub(super) queue_wait: Histograms,
    pub(super) commit_duration: Histograms,
    pub(super) batch_size: Histograms,
    pub(super) commit_retries: Counters,
    pub(super) pool_wait: Histograms,
    pub(super) watch_lag: Histograms,
    pub(super) watch_frames: Counters,
    pub(super) watch_resumes: Counters,
    pub(super) sweep_duration: Histograms,
    pub(super) sweep_ended: Named,
    pub(super) clock_steps: Named,
    pub(super) purged: Named,
    pub(super) lease_renewals: Counters,
    pub(super) claims: Counters,
    pub(super) claim_wait: Histograms,
    pub(super) auth_failures: Named,
    pub(super) limited: Named,
    pub(super) reloads: Named,
}

impl Instruments {
    fn new(meter: &Meter) -> Self {
        let counter = |metric: &Metric| counter(meter, metric);
        let histogram = |metric: &Metric| histogram(meter, metric);
        Self {
            call_duration: Histograms::new(histogram(&metrics::CALL_DURATION)),
            transitions: Counters::new(counter(&metrics::TRANSITIONS)),
            refusals: Named::new(counter(&metrics::REFUSALS)),
            queue_wait: Histograms::new(histogram(&metrics::QUEUE_WAIT)),
            commit_duration: Histograms::new(histogram(&metrics::COMMIT_DURATION)),
            batch_size: Histograms::new(histogram(&metrics::BATCH_SIZE)),
            commit_retries: Counters::new(counter(&metrics::COMMIT_RETRIES)),
            pool_wait: Histograms::new(histogram(&metrics::POOL_WAIT)),
            watch_lag: Histograms::new(histogram(&metrics::WATCH_LAG)),
            watch_frames: Counters::new(counter(&metrics::WATCH_FRAMES)),
            watch_resumes: Counters::new(counter(&metrics::WATCH_RESUMES)),
            sweep_duration: Histograms::new(histogram(&metrics::SWEEP_DURATION)),
            sweep_ended: Named::new(counter(&metrics::SWEEP_ENDED)),
            clock_steps: Named::new(counter(&metrics::CLOCK_STEPS)),
            purged: Named::new(counter(&metrics::PURGED)),
            lease_renewals: Counters::new(counter(&metrics::LEASE_RENEWALS)),
            claims: Counters::new(counter(&metrics::CLAIMS)),
            claim_wait: Histograms::new(histogram(&metrics::CLAIM_WAIT)),
            auth_failures: Named::new(counter(&metrics::AUTH_FAILURES)),
            limited: Named::new(counter(&metrics::LIMITED)),
            reloads: Named::new(counter(&metrics::RELOADS)),
        }
    }

    /// Makes the instruments of the process; the first ones stay.
    pub(super) fn install(meter: &Meter) {
        let instruments = Self::new(meter);
        // An increase from no series is none to Prometheus: what alerts ask for begins at zero.
        for kind in ["access", "config", "jwks", "tls"] {
            for outcome in ["taken", "refused"] {
                instruments.reloads.add(0, [("kind", kind), ("outcome", outcome)]);
            }
        }
        instruments.clock_steps.add(0, [("clock", "store"), ("direction", "back")]);
        instruments.purged.add(0, []);
        let _already = INSTRUMENTS.set(instruments);
    }

    /// The instruments, where somebody asks for metrics.
    pub(super) fn get() -> Option<&'static Self> {
        INSTRUMENTS.get()
    }
}

fn counter(meter: &Meter, metric: &Metric) -> Counter<u64> {
    meter.u64_counter(metric.name).with_unit(metric.unit).with_description(metric.meaning).build()
}

fn histogram(meter: &Meter, metric: &Metric) -> Histogram<f64> {
    let Kind::Histogram(bounds) = metric.kind else { unreachable!("its row says that it is a histogram") };
    let histogram = meter.f64_histogram(metric.name).with_unit(metric.unit).with_description(metric.meaning);
    histogram.with_boundaries(bounds.to_vec()).build()
}

/// The series of a metric, each at a place that its recorder computes. Above, nothing is told.
const PLACES: usize = 1024;

/// A histogram whose series are told apart by their places.
pub(super) struct Histograms {
    instrument: Histogram<f64>,
    bound: Box<[OnceLock<BoundHistogram<f64>>]>,
}

impl Histograms {
    fn new(instrument: Histogram<f64>) -> Self {
        Self { instrument, bound: (0..PLACES).map(|_| OnceLock::new()).collect() }
    }

    /// Records a value in the series at a place, which has these labels.
    pub(super) fn record<const N: usize>(&self, place: usize, value: f64, labels: impl FnOnce() -> [KeyValue; N]) {
        if let Some(bound) = self.bound.get(place) {
            bound.get_or_init(|| self.instrument.bind(&labels())).record(value);
        }
    }
}

/// A counter whose series are told apart by their places.
pub(super) struct Counters {
    instrument: Counter<u64>,
    bound: Box<[OnceLock<BoundCounter<u64>>]>,
}

impl Counters {
    fn new(instrument: Counter<u64>) -> Self {
        Self { instrument, bound: (0..PLACES).map(|_| OnceLock::new()).collect() }
    }

    /// Counts one in the series at a place, which has these labels.
    pub(super) fn count<const N: usize>(&self, place: usize, labels: impl FnOnce() -> [KeyValue; N]) {
        if let Some(bound) = self.bound.get(place) {
            bound.get_or_init(|| self.instrument.bind(&labels())).add(1);
        }
    }
}

/// A counter of what happens seldom, whose series are told apart by their labels.
pub(super) struct Named {
    instrument: Counter<u64>,
    bound: Mutex<HashMap<(&'static str, &'static str), BoundCounter<u64>>>,
}

impl Named {
    fn new(instrument: Counter<u64>) -> Self {
        Self { instrument, bound: Mutex::default() }
    }

    /// Counts one in the series of these values.
    pub(super) fn count<const N: usize>(&self, labels: [(&'static str, &'static str); N]) {
        self.add(1, labels);
    }

    pub(super) fn add<const N: usize>(&self, number: u64, labels: [(&'static str, &'static str); N]) {
        let value = |place: usize| labels.get(place).map_or("", |(_, value)| *value);
        let mut bound = self.bound.lock();
        let series = bound.entry((value(0), value(1)));
        series
            .or_insert_with(|| self.instrument.bind(&labels.map(|(label, value)| KeyValue::new(label, value))))
            .add(number);
    }
}

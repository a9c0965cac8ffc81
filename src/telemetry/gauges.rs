//! What is read when somebody asks: gauges, and counters that others keep anyway.

use std::sync::OnceLock;

use opentelemetry::KeyValue;
use opentelemetry::metrics::Meter;

use super::metrics::{Kind, Metric};

static METER: OnceLock<Meter> = OnceLock::new();

/// Takes the values of one metric, a series each.
pub type Tell<'a> = dyn FnMut(f64, &[(&'static str, &str)]) + 'a;

pub(super) fn install(meter: &Meter) {
    let _already = METER.set(meter.clone());
}

/// Has a gauge or a counter read by this function whenever somebody asks, where anybody does.
pub fn observe(metric: &'static Metric, read: impl Fn(&mut Tell<'_>) + Send + Sync + 'static) {
    let Some(meter) = METER.get() else { return };
    let labels = |labels: &[(&'static str, &str)]| -> Vec<KeyValue> {
        labels.iter().map(|(label, value)| KeyValue::new(*label, (*value).to_owned())).collect()
    };
    match metric.kind {
        Kind::Gauge => {
            let gauge = meter.f64_observable_gauge(metric.name).with_unit(metric.unit);
            let _registered = gauge
                .with_description(metric.meaning)
                .with_callback(move |observer| read(&mut |value, of| observer.observe(value, &labels(of))))
                .build();
        }
        Kind::Counter => {
            let counter = meter.f64_observable_counter(metric.name).with_unit(metric.unit);
            let _registered = counter
                .with_description(metric.meaning)
                .with_callback(move |observer| read(&mut |value, of| observer.observe(value, &labels(of))))
                .build();
        }
        Kind::Histogram(_) => unreachable!("a histogram is recorded as it happens"),
    }
}

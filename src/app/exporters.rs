//! What the process tells beside its log, from the beginning to the end of the drain.

use std::time::Duration;

use crate::config::{Collectors, TelemetryConfig};
use crate::telemetry::chain;
use crate::telemetry::meter::{Exposition, Metrics};
use crate::telemetry::otlp::Collector;
use crate::telemetry::traces::Traces;

/// Time that the last metrics and spans may take to be sent.
const LAST_WAIT_MAX: Duration = Duration::from_secs(1);

/// A collector as far as the settings and their files tell. One that the environment names for all programs, and that
/// cannot be called, stops nothing.
fn usable(collector: Option<Collector>) -> anyhow::Result<Option<Collector>> {
    let Some(collector) = collector else { return Ok(None) };
    match collector.check() {
        Ok(()) => Ok(Some(collector)),
        Err(error) if collector.is_ambient => {
            tracing::warn!(error = chain(&error), "nothing is sent to the collector that the environment names");
            Ok(None)
        }
        Err(error) => Err(error.into()),
    }
}

/// Says that an exporter cannot be made, as where the system has no CAs: the server does without it.
fn unsent(what: &str, error: &(dyn std::error::Error + 'static)) {
    tracing::warn!(what, error = chain(error), "nothing is sent to the collector");
}

/// See the module.
pub(super) struct Telling {
    metrics: Option<Metrics>,
    traces: Option<Traces>,
}

impl Telling {
    /// Begins. Metrics and spans cost a little with each call, and so are kept only where somebody can read them.
    pub(super) fn begin(config: &TelemetryConfig, is_scraped: bool) -> anyhow::Result<Self> {
        let Collectors { metrics, traces, warnings } = config.collectors();
        for warning in warnings {
            tracing::warn!("{warning}");
        }
        let (metrics, traces) = (usable(metrics)?, usable(traces)?);
        let measured = match &metrics {
            Some(collector) => Metrics::begin(Some(collector)).map(Some).or_else(|error| {
                unsent("metrics", &*error);
                is_scraped.then(|| Metrics::begin(None)).transpose()
            }),
            None => is_scraped.then(|| Metrics::begin(None)).transpose(),
        };
        let metrics = measured.map_err(|error| anyhow::anyhow!("metrics cannot be told: {error}"))?;
        let traces = traces.and_then(|collector| {
            let begun = Traces::begin(&collector, config.trace_sample_ratio);
            begun.inspect_err(|error| unsent("spans", error)).ok()
        });
        Ok(Self { metrics, traces })
    }

    /// What Prometheus reads.
    pub(super) fn exposition(&self) -> Exposition {
        self.metrics.as_ref().map(Metrics::exposition).unwrap_or_default()
    }

    /// Sends what is left.
    pub(super) async fn end(self) {
        let ended = tokio::task::spawn_blocking(move || {
            if let Some(traces) = self.traces {
                traces.end(LAST_WAIT_MAX);
            }
            if let Some(metrics) = self.metrics {
                metrics.end(LAST_WAIT_MAX);
            }
        });
        let _given_up = tokio::time::timeout(2 * LAST_WAIT_MAX, ended).await;
    }
}

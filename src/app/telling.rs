//! What the process tells beside its log, from the beginning to the end of the drain.

use std::time::Duration;

use crate::config::TelemetryConfig;
use crate::telemetry::meter::{Exposition, Metrics};
use crate::telemetry::traces::Traces;

/// Time that the last metrics and spans may take to be sent.
const LAST_WAIT_MAX: Duration = Duration::from_secs(1);

/// See the module.
pub(super) struct Telling {
    metrics: Option<Metrics>,
    traces: Option<Traces>,
}

impl Telling {
    /// Begins. Metrics and spans cost a little with each call, and so are kept only where somebody can read them.
    pub(super) fn begin(config: &TelemetryConfig, is_scraped: bool) -> anyhow::Result<Self> {
        let collector = config.collector().map_err(anyhow::Error::msg)?;
        let metrics = (is_scraped || collector.is_some()).then(|| Metrics::begin(collector.as_ref()));
        let metrics = metrics.transpose().map_err(|error| anyhow::anyhow!("metrics cannot be told: {error}"))?;
        let traces = collector.map(|collector| Traces::begin(&collector, config.trace_sample_ratio)).transpose()?;
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

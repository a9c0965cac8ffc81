//! The meter of the process, and the text in which Prometheus reads it.

use opentelemetry::metrics::{Meter, MeterProvider as _};
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::metrics::SdkMeterProvider;
use prometheus::{Registry, TextEncoder};

use super::gauges;
use super::instruments::Instruments;

/// The metrics of a process. Dropped, they are told no more.
pub struct Metrics {
    provider: SdkMeterProvider,
    meter: Meter,
    registry: Registry,
}

/// What Prometheus reads.
#[derive(Clone, Debug, Default)]
pub struct Exposition(Registry);

impl Metrics {
    /// Begins to measure. Recorders of the whole process record here from now on.
    ///
    /// # Errors
    ///
    /// The registry takes no collector.
    pub fn begin() -> Result<Self, Box<dyn std::error::Error + Send + Sync>> {
        let registry = Registry::new();
        let exporter = opentelemetry_prometheus::exporter().with_registry(registry.clone());
        let exporter = exporter.scope_info_enabled(false).without_target_info().build()?;
        let provider = SdkMeterProvider::builder().with_reader(exporter).with_resource(resource()).build();
        let meter = provider.meter("runledger");
        Instruments::install(&meter);
        gauges::install(&meter);
        Ok(Self { provider, meter, registry })
    }

    /// What Prometheus reads.
    #[must_use]
    pub fn exposition(&self) -> Exposition {
        Exposition(self.registry.clone())
    }

    /// The meter, for gauges.
    #[must_use]
    pub fn meter(&self) -> &Meter {
        &self.meter
    }

    /// Tells the last values, and ends.
    pub fn end(self) {
        if let Err(error) = self.provider.shutdown() {
            tracing::debug!(%error, "the last metrics were not told");
        }
    }
}

impl Exposition {
    /// The media type of the text.
    pub const CONTENT_TYPE: &'static str = prometheus::TEXT_FORMAT;

    /// The values of now, as text.
    ///
    /// # Errors
    ///
    /// A family that cannot be written.
    pub fn text(&self) -> Result<String, prometheus::Error> {
        TextEncoder::new().encode_to_string(&self.0.gather())
    }
}

/// What is the same in all that the process tells.
fn resource() -> Resource {
    Resource::builder()
        .with_service_name("runledger")
        .with_attribute(opentelemetry::KeyValue::new("service.version", env!("CARGO_PKG_VERSION")))
        .build()
}

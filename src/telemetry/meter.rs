//! The meter of the process, and the text in which Prometheus reads it.

use std::sync::LazyLock;
use std::time::Duration;

use opentelemetry::metrics::{Meter, MeterProvider as _};
use opentelemetry::{Key, KeyValue};
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::metrics::{PeriodicReader, SdkMeterProvider};
use prometheus::{Registry, TextEncoder};

use super::gauges;
use super::instruments::Instruments;
use super::otlp::Collector;
use crate::clock::draw_id;

/// The attribute that names the program.
const SERVICE_NAME: &str = "service.name";

/// The attribute by which a collector tells replicas apart.
const INSTANCE_ID: &str = "service.instance.id";

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
    /// Begins to measure, for Prometheus, and for a collector if there is one. Recorders of the whole process record
    /// here from now on.
    ///
    /// # Errors
    ///
    /// The collector cannot be called.
    pub fn begin(collector: Option<&Collector>) -> Result<Self, Box<dyn std::error::Error + Send + Sync>> {
        let registry = Registry::new();
        let exporter = opentelemetry_prometheus::exporter().with_registry(registry.clone());
        let exporter = exporter.scope_info_enabled(false).without_target_info().build()?;
        let mut provider = SdkMeterProvider::builder().with_reader(exporter).with_resource(resource());
        if let Some(collector) = collector {
            let sends = PeriodicReader::builder(collector.metrics()?).with_interval(collector.interval).build();
            provider = provider.with_reader(sends);
        }
        let provider = provider.build();
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

    /// Sends the last values, and ends. It blocks for so long at most.
    pub fn end(self, wait_max: Duration) {
        if let Err(error) = self.provider.shutdown_with_timeout(wait_max) {
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
pub(super) fn resource() -> Resource {
    static INSTANCE: LazyLock<String> = LazyLock::new(|| draw_id().to_string());
    let ambient = Resource::builder().build();
    let of_ambient = |key| ambient.get(&Key::from_static_str(key));
    // What the SDK makes up where neither OTEL_SERVICE_NAME nor OTEL_RESOURCE_ATTRIBUTES has a name.
    let is_made_up = |name: &opentelemetry::Value| name.to_string().starts_with("unknown_service");
    let service = Resource::builder();
    let service = match of_ambient(SERVICE_NAME) {
        Some(name) if !is_made_up(&name) => service,
        Some(_) | None => service.with_service_name("runledger"),
    };
    let service = service.with_attribute(KeyValue::new("service.version", env!("CARGO_PKG_VERSION")));
    // Two replicas of one name would be one to a collector, unless the environment names them.
    let is_named = of_ambient(INSTANCE_ID).is_some();
    let service =
        if is_named { service } else { service.with_attribute(KeyValue::new(INSTANCE_ID, INSTANCE.as_str())) };
    service.build()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_that_a_process_tells_is_of_one_instance() {
        let instance = || resource().get(&Key::from_static_str(INSTANCE_ID)).expect("an instance").to_string();
        assert_eq!(instance(), instance());
        let service = resource().get(&Key::from_static_str("service.name")).map(|name| name.to_string());
        assert_eq!(service.as_deref(), Some("runledger"));
    }
}

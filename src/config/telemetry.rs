//! The settings of what a server tells of itself: log lines, metrics and traces.

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use http::Uri;

use crate::telemetry::otlp::Collector;
use crate::telemetry::{self, LogFormat};
use crate::text::{duration_within, share};

/// OpenTelemetry's own variable for the collector.
const SHARED_ENDPOINT: &str = "OTEL_EXPORTER_OTLP_ENDPOINT";

/// See the module.
#[derive(Args, Clone, Debug)]
pub struct TelemetryConfig {
    /// Format of the log lines (on stderr)
    #[arg(long, env = "RUNLEDGER_LOG_FORMAT", value_name = "FORMAT", value_enum, default_value_t)]
    pub log_format: LogFormat,

    /// Lines to log: TARGET=LEVEL, comma-separated
    #[arg(long, env = "RUNLEDGER_LOG", value_name = "FILTER", default_value = "warn,runledger=info",
          value_parser = telemetry::filter)]
    pub log: String,

    /// Collector that metrics and traces are sent to, by OTLP over gRPC: `http://HOST:PORT` or `https://HOST:PORT`
    /// [default: `$OTEL_EXPORTER_OTLP_ENDPOINT`, else none]
    #[arg(long, env = "RUNLEDGER_OTLP_ENDPOINT", value_name = "URL", value_parser = endpoint)]
    otlp_endpoint: Option<Uri>,

    /// CAs that the collector is proven by (PEM) [default: the system's]
    #[arg(long, env = "RUNLEDGER_OTLP_CA", value_name = "FILE")]
    otlp_ca: Option<PathBuf>,

    /// File of headers to send to the collector, a line each: `NAME: VALUE`
    #[arg(long, env = "RUNLEDGER_OTLP_HEADERS_FILE", value_name = "FILE")]
    otlp_headers_file: Option<PathBuf>,

    /// Time from one sending of metrics to the next
    #[arg(long, env = "RUNLEDGER_OTLP_INTERVAL", value_name = "DURATION", default_value = "15s",
          value_parser = interval)]
    otlp_interval: Duration,

    /// Share of calls that are traced although their callers do not ask for it, from 0 to 1. Of those that do ask, up
    /// to 100 a second are traced
    #[arg(long, env = "RUNLEDGER_TRACE_SAMPLE_RATIO", value_name = "RATIO", default_value_t = 0.01,
          value_parser = share)]
    pub trace_sample_ratio: f64,
}

impl TelemetryConfig {
    /// The collector, where there is one.
    ///
    /// # Errors
    ///
    /// The variable of OpenTelemetry has a value that is no URL.
    pub fn collector(&self) -> Result<Option<Collector>, String> {
        let endpoint = match (&self.otlp_endpoint, shared_endpoint()) {
            (Some(told), _) => Some(told.clone()),
            (None, None) => None,
            (None, Some(shared)) => Some(endpoint(&shared).map_err(|error| format!("{SHARED_ENDPOINT}: {error}"))?),
        };
        Ok(endpoint.map(|endpoint| Collector {
            endpoint,
            ca_file: self.otlp_ca.clone(),
            headers_file: self.otlp_headers_file.clone(),
            interval: self.otlp_interval,
        }))
    }
}

/// The collector that the environment names for every program that tells of itself so.
pub(super) fn shared_endpoint() -> Option<String> {
    super::variable(SHARED_ENDPOINT).map(|value| value.to_string_lossy().into_owned())
}

fn endpoint(text: &str) -> Result<Uri, &'static str> {
    let expected = "expected http://HOST:PORT or https://HOST:PORT";
    let uri: Uri = text.parse().map_err(|_| expected)?;
    let is_http = matches!(uri.scheme_str(), Some("http" | "https"));
    let has_user = uri.authority().is_some_and(|authority| authority.as_str().contains('@'));
    if is_http && !has_user && uri.host().is_some_and(|host| !host.is_empty()) { Ok(uri) } else { Err(expected) }
}

fn interval(text: &str) -> Result<Duration, String> {
    duration_within(text, &(Duration::from_secs(1)..=Duration::from_hours(1)), "1s to 1h")
}

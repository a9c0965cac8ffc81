//! The settings of what a server tells of itself: log lines, metrics and traces.

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use http::Uri;

use super::otel::{Signal, endpoint, shared};
use crate::telemetry::otlp::Collector;
use crate::telemetry::{self, LogFormat};
use crate::text::{duration_within, share};

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

/// Where the process sends what it tells.
#[derive(Clone, Debug, Default)]
pub struct Collectors {
    /// The collector of metrics, where there is one.
    pub metrics: Option<Collector>,
    /// That of spans.
    pub traces: Option<Collector>,
    /// What of the environment could not be followed.
    pub warnings: Vec<String>,
}

impl TelemetryConfig {
    /// The files that flags name for a collector which a flag names.
    pub(super) fn files(&self) -> impl Iterator<Item = (&'static str, &Option<PathBuf>)> {
        let files = [("--otlp-ca", &self.otlp_ca), ("--otlp-headers-file", &self.otlp_headers_file)];
        files.into_iter().filter(|_| self.otlp_endpoint.is_some())
    }

    /// The collectors, by the flags and, beneath them, by OpenTelemetry's own variables.
    #[must_use]
    pub fn collectors(&self) -> Collectors {
        let of = |signal| {
            let shared = shared(signal, text_of);
            let is_named = self.otlp_endpoint.is_some();
            let endpoint = self.otlp_endpoint.clone().or(shared.endpoint).filter(|_| !shared.is_off);
            let collector = endpoint.map(|endpoint| Collector {
                endpoint,
                is_ambient: !is_named,
                ca_file: self.otlp_ca.clone().or(shared.ca_file),
                headers_file: self.otlp_headers_file.clone(),
                interval: self.otlp_interval,
                timeout: shared.timeout,
            });
            let mut warnings = shared.warnings;
            if is_named && shared.is_off {
                let what = match signal {
                    Signal::Metrics => "OTEL_SDK_DISABLED or OTEL_METRICS_EXPORTER switches metrics off",
                    Signal::Traces => "OTEL_SDK_DISABLED or OTEL_TRACES_EXPORTER switches traces off",
                };
                warnings.push(format!("{what}: none are sent to --otlp-endpoint"));
            }
            (collector, warnings)
        };
        let ((metrics, mut warnings), (traces, of_traces)) = (of(Signal::Metrics), of(Signal::Traces));
        for warning in of_traces {
            if !warnings.contains(&warning) {
                warnings.push(warning);
            }
        }
        Collectors { metrics, traces, warnings }
    }
}

/// The collector that the environment names for every program that tells of itself so, where it is followed.
pub(super) fn shared_endpoint() -> Option<String> {
    let of = |signal| {
        let shared = shared(signal, text_of);
        shared.endpoint.filter(|_| !shared.is_off)
    };
    of(Signal::Metrics)
        .or_else(|| of(Signal::Traces))
        .map(|endpoint| endpoint.to_string().trim_end_matches('/').to_owned())
}

fn text_of(name: &str) -> Option<String> {
    super::variable(name).map(|value| value.to_string_lossy().into_owned())
}

fn interval(text: &str) -> Result<Duration, String> {
    duration_within(text, &(Duration::from_secs(1)..=Duration::from_hours(1)), "1s to 1h")
}

//! OpenTelemetry's own variables, which the environment has for every program that tells of itself so.
//!
//! None of them stops a server: what cannot be followed is said, and the server goes on without. Headers, the resource
//! and the sampler are read by the SDK, which leaves out what it cannot read.

use std::path::PathBuf;
use std::time::Duration;

use http::Uri;

/// The longest time of one export, and the one where the environment names none.
const TIMEOUT_MAX: Duration = Duration::from_mins(1);
const TIMEOUT_DEFAULT: Duration = Duration::from_secs(5);

/// What is sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Signal {
    Metrics,
    Traces,
}

/// What the environment says of one signal.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Shared {
    /// Where it is to be sent; none: nowhere, unless a flag says so.
    pub(super) endpoint: Option<Uri>,
    /// Whether it is switched off, whatever a flag says.
    pub(super) is_off: bool,
    pub(super) ca_file: Option<PathBuf>,
    pub(super) timeout: Duration,
    /// What could not be followed.
    pub(super) warnings: Vec<String>,
}

/// Reads what the environment says of a signal. `read` gives the value of a variable that is not empty.
pub(super) fn shared(signal: Signal, read: impl Fn(&str) -> Option<String>) -> Shared {
    let (infix, exporter) = match signal {
        Signal::Metrics => ("METRICS_", "OTEL_METRICS_EXPORTER"),
        Signal::Traces => ("TRACES_", "OTEL_TRACES_EXPORTER"),
    };
    // A variable of the signal comes before the one of all signals.
    let of_otlp = |name: &str| {
        let names = [format!("OTEL_EXPORTER_OTLP_{infix}{name}"), format!("OTEL_EXPORTER_OTLP_{name}")];
        names.into_iter().find_map(|name| read(&name).map(|value| (name, value)))
    };
    let mut shared = Shared { timeout: TIMEOUT_DEFAULT, ..Shared::default() };
    let mut warn = |name: &str, sentence: &str| shared.warnings.push(format!("{name} {sentence}"));
    shared.ca_file = of_otlp("CERTIFICATE").map(|(_, path)| PathBuf::from(path));
    if let Some((name, text)) = of_otlp("TIMEOUT") {
        match text.trim().parse() {
            Ok(ms @ 1..) => shared.timeout = Duration::from_millis(ms).min(TIMEOUT_MAX),
            Ok(_) | Err(_) => warn(&name, "is no number of milliseconds: it is ignored"),
        }
    }
    if let Some(text) = read("OTEL_SDK_DISABLED") {
        match text.trim().to_ascii_lowercase().as_str() {
            "true" => shared.is_off = true,
            "false" => {}
            _ => warn("OTEL_SDK_DISABLED", "is neither true nor false: it is ignored"),
        }
    }
    if let Some(text) = read(exporter) {
        match text.trim().to_ascii_lowercase().as_str() {
            "otlp" => {}
            "none" => shared.is_off = true,
            _ => {
                shared.is_off = true;
                warn(exporter, "names something else than otlp or none: nothing is sent");
            }
        }
    }
    let Some((name, text)) = of_otlp("ENDPOINT") else { return shared };
    let Ok(uri) = endpoint(text.trim()) else {
        warn(&name, "is no http://HOST:PORT or https://HOST:PORT: nothing is sent there");
        return shared;
    };
    match of_otlp("PROTOCOL") {
        Some((name, text)) if ["http/protobuf", "http/json"].contains(&text.trim()) => {
            warn(&name, "names OTLP over HTTP, and this server speaks OTLP over gRPC only: nothing is sent");
        }
        Some((name, text)) if text.trim() != "grpc" => {
            warn(&name, "is no protocol of OTLP: it is ignored, and gRPC is spoken");
            shared.endpoint = Some(uri);
        }
        Some(_) | None => shared.endpoint = Some(uri),
    }
    shared
}

/// The URL of a collector.
pub(super) fn endpoint(text: &str) -> Result<Uri, &'static str> {
    let expected = "expected http://HOST:PORT or https://HOST:PORT";
    let uri: Uri = text.parse().map_err(|_| expected)?;
    let is_http = matches!(uri.scheme_str(), Some("http" | "https"));
    let has_user = uri.authority().is_some_and(|authority| authority.as_str().contains('@'));
    if is_http && !has_user && uri.host().is_some_and(|host| !host.is_empty()) { Ok(uri) } else { Err(expected) }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ENDPOINT: (&str, &str) = ("OTEL_EXPORTER_OTLP_ENDPOINT", "http://collector:4317");

    fn of(signal: Signal, variables: &[(&str, &str)]) -> Shared {
        shared(signal, |asked| {
            let found = variables.iter().rfind(|(name, _)| *name == asked);
            found.map(|(_, value)| (*value).to_owned())
        })
    }

    #[test]
    fn what_cannot_be_followed_is_said_and_sends_nothing() {
        for (name, value, sends) in [
            ("OTEL_EXPORTER_OTLP_ENDPOINT", "collector:4317", false),
            ("OTEL_EXPORTER_OTLP_ENDPOINT", "ftp://collector", false),
            ("OTEL_EXPORTER_OTLP_ENDPOINT", "http://", false),
            ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "collector", false),
            ("OTEL_EXPORTER_OTLP_PROTOCOL", "http/protobuf", false),
            ("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "http/json", false),
            ("OTEL_EXPORTER_OTLP_PROTOCOL", "smoke", true),
            ("OTEL_EXPORTER_OTLP_TIMEOUT", "soon", true),
            ("OTEL_EXPORTER_OTLP_TIMEOUT", "-1", true),
            ("OTEL_EXPORTER_OTLP_TRACES_TIMEOUT", "0", true),
            ("OTEL_SDK_DISABLED", "perhaps", true),
        ] {
            let found = of(Signal::Traces, &[ENDPOINT, (name, value)]);
            assert_eq!((found.endpoint.is_some(), found.is_off), (sends, false), "{name}={value}");
            assert!(found.warnings.len() == 1 && found.warnings[0].starts_with(name), "{:?}", found.warnings);
        }
    }

    #[test]
    fn the_standard_switches_are_followed() {
        for (name, value, [traces, metrics]) in [
            ("OTEL_SDK_DISABLED", "true", [true, true]),
            ("OTEL_SDK_DISABLED", "TRUE", [true, true]),
            ("OTEL_SDK_DISABLED", "false", [false, false]),
            ("OTEL_TRACES_EXPORTER", "none", [true, false]),
            ("OTEL_METRICS_EXPORTER", "none", [false, true]),
            ("OTEL_METRICS_EXPORTER", "otlp", [false, false]),
            ("OTEL_TRACES_EXPORTER", "console", [true, false]),
        ] {
            for (signal, is_off) in [(Signal::Traces, traces), (Signal::Metrics, metrics)] {
                assert_eq!(of(signal, &[ENDPOINT, (name, value)]).is_off, is_off, "{name}={value} {signal:?}");
            }
        }
    }

    #[test]
    fn a_variable_of_the_signal_comes_before_that_of_all() {
        let variables = [
            ENDPOINT,
            ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "https://traces:1"),
            ("OTEL_EXPORTER_OTLP_TIMEOUT", "2000"),
            ("OTEL_EXPORTER_OTLP_METRICS_TIMEOUT", "99999999"),
            ("OTEL_EXPORTER_OTLP_CERTIFICATE", "/ca.pem"),
            ("OTEL_EXPORTER_OTLP_PROTOCOL", "grpc"),
        ];
        let (traces, metrics) = (of(Signal::Traces, &variables), of(Signal::Metrics, &variables));
        assert_eq!(traces.endpoint.unwrap().host(), Some("traces"));
        assert_eq!(metrics.endpoint.unwrap().host(), Some("collector"));
        assert_eq!((traces.timeout, metrics.timeout), (Duration::from_secs(2), TIMEOUT_MAX));
        assert_eq!(traces.ca_file, Some(PathBuf::from("/ca.pem")));
        assert!(traces.warnings.is_empty() && metrics.warnings.is_empty());
    }
}

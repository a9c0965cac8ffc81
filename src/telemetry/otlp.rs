//! Metrics and spans on their way to a collector, by OTLP over gRPC.

use std::path::PathBuf;
use std::time::Duration;

use http::uri::Scheme;
use http::{HeaderMap, HeaderName, HeaderValue, Uri};
use opentelemetry_otlp::{MetricExporter, SpanExporter, WithExportConfig as _, WithTonicConfig as _};
use opentelemetry_sdk::error::{OTelSdkError, OTelSdkResult};
use opentelemetry_sdk::metrics::Temporality;
use opentelemetry_sdk::metrics::data::ResourceMetrics;
use opentelemetry_sdk::metrics::exporter::PushMetricExporter;
use opentelemetry_sdk::trace::SpanData;
use opentelemetry_sdk::{Resource, trace};
use runledger_files as files;
use thiserror::Error;
use tonic::metadata::MetadataMap;
use tonic::transport::{Certificate, ClientTlsConfig};

use super::LogThrottle;
use crate::clock;

/// Bytes of a file at most: headers, or CAs.
const FILE_BYTES_MAX: u64 = 1024 * 1024;

/// The place of a collector.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Collector {
    /// Its URL: `http://HOST:PORT` or `https://HOST:PORT`.
    pub endpoint: Uri,
    /// Whether the environment names it, and no setting of ours: then it stops nothing.
    pub is_ambient: bool,
    /// The CAs that it is proven by; none: the system's.
    pub ca_file: Option<PathBuf>,
    /// Headers to send, a line each (`NAME: VALUE`); credentials among them, so they stand in a file.
    pub headers_file: Option<PathBuf>,
    /// The time from one export of metrics to the next.
    pub interval: Duration,
    /// The longest time of one export.
    pub timeout: Duration,
}

/// The reason for which nothing can be sent to a collector.
#[derive(Debug, Error)]
pub enum NoCollector {
    /// The URL is not one that can be called.
    #[error("the collector's URL must be http://HOST:PORT or https://HOST:PORT")]
    Url,
    /// A file cannot be read.
    #[error("cannot read {}", .0.display())]
    File(PathBuf, #[source] std::io::Error),
    /// A line of the file of headers is none.
    #[error("{}, line {line}: expected NAME: VALUE", .path.display())]
    Header {
        /// The file.
        path: PathBuf,
        /// The line's number.
        line: usize,
    },
    /// The exporter cannot be made.
    #[error("the exporter cannot be made: {0}")]
    Exporter(String),
}

impl Collector {
    fn tls(&self) -> Result<Option<ClientTlsConfig>, NoCollector> {
        if self.endpoint.scheme() != Some(&Scheme::HTTPS) {
            return Ok(None);
        }
        let tls = ClientTlsConfig::new();
        Ok(Some(match &self.ca_file {
            None => tls.with_enabled_roots(),
            Some(path) => {
                let pem = files::read(path, FILE_BYTES_MAX).map_err(|error| NoCollector::File(path.clone(), error))?;
                tls.ca_certificate(Certificate::from_pem(pem))
            }
        }))
    }

    fn headers(&self) -> Result<MetadataMap, NoCollector> {
        let mut headers = HeaderMap::new();
        if let Some(path) = &self.headers_file {
            // It is read for metrics and for spans, so a pipe would not do.
            let text = files::text(path, FILE_BYTES_MAX).map_err(|error| NoCollector::File(path.clone(), error))?;
            let lines = text.lines().zip(1..).filter(|(line, _)| !line.trim().is_empty());
            for (line, number) in lines {
                let wrong = || NoCollector::Header { path: path.clone(), line: number };
                let (name, value) = line.split_once(':').ok_or_else(wrong)?;
                let name: HeaderName = name.trim().parse().map_err(|_| wrong())?;
                let mut value: HeaderValue = value.trim().parse().map_err(|_| wrong())?;
                value.set_sensitive(true);
                headers.append(name, value);
            }
        }
        Ok(MetadataMap::from_headers(headers))
    }

    fn checked(&self) -> Result<(Option<ClientTlsConfig>, MetadataMap, String), NoCollector> {
        let is_http = self.endpoint.scheme().is_some_and(|scheme| [Scheme::HTTP, Scheme::HTTPS].contains(scheme));
        if !is_http || self.endpoint.host().is_none_or(str::is_empty) {
            return Err(NoCollector::Url);
        }
        Ok((self.tls()?, self.headers()?, self.endpoint.to_string()))
    }

    /// Whether the collector can be called, as far as the settings and their files tell.
    ///
    /// # Errors
    ///
    /// The reason for which it cannot.
    pub fn check(&self) -> Result<(), NoCollector> {
        self.checked().map(drop)
    }

    /// What sends metrics. Must be called within the runtime, which carries the connection.
    pub(super) fn metrics(&self) -> Result<LoggedExporter<MetricExporter>, NoCollector> {
        let (tls, headers, endpoint) = self.checked()?;
        let exporter = MetricExporter::builder().with_tonic().with_endpoint(endpoint).with_timeout(self.timeout);
        let exporter = exporter.with_metadata(headers).with_temporality(Temporality::Cumulative);
        let exporter = match tls {
            Some(tls) => exporter.with_tls_config(tls),
            None => exporter,
        };
        Ok(LoggedExporter::new("metrics", exporter.build().map_err(|error| NoCollector::Exporter(error.to_string()))?))
    }

    /// What sends spans. Must be called within the runtime.
    pub(super) fn spans(&self) -> Result<LoggedExporter<SpanExporter>, NoCollector> {
        let (tls, headers, endpoint) = self.checked()?;
        let exporter = SpanExporter::builder().with_tonic().with_endpoint(endpoint).with_timeout(self.timeout);
        let exporter = exporter.with_metadata(headers);
        let exporter = match tls {
            Some(tls) => exporter.with_tls_config(tls),
            None => exporter,
        };
        Ok(LoggedExporter::new("spans", exporter.build().map_err(|error| NoCollector::Exporter(error.to_string()))?))
    }
}

/// An exporter whose failures are logged now and then. The SDK would leave them unsaid.
#[derive(Debug)]
pub(super) struct LoggedExporter<E> {
    what: &'static str,
    exporter: E,
    said: LogThrottle,
}

impl<E> LoggedExporter<E> {
    fn new(what: &'static str, exporter: E) -> Self {
        Self { what, exporter, said: LogThrottle::default() }
    }

    fn tell(&self, exported: OTelSdkResult) -> OTelSdkResult {
        if let Err(error) = &exported
            && let Some(unsaid) = self.said.is_due()
        {
            tracing::warn!(what = self.what, %error, unsaid, "the collector does not take what it is sent");
        }
        exported
    }
}

/// Lets nothing be sent while the machine's clock shows a time before 1970: the libraries of the exporters read it themselves,
/// and their tasks would end by a panic.
fn admitted() -> OTelSdkResult {
    clock::admit().map_err(OTelSdkError::InternalFailure)
}

impl trace::SpanExporter for LoggedExporter<SpanExporter> {
    async fn export(&self, batch: Vec<SpanData>) -> OTelSdkResult {
        self.tell(match admitted() {
            Ok(()) => self.exporter.export(batch).await,
            Err(error) => Err(error),
        })
    }

    fn shutdown_with_timeout(&self, timeout: Duration) -> OTelSdkResult {
        self.exporter.shutdown_with_timeout(timeout)
    }

    fn set_resource(&mut self, resource: &Resource) {
        self.exporter.set_resource(resource);
    }
}

impl PushMetricExporter for LoggedExporter<MetricExporter> {
    async fn export(&self, metrics: &ResourceMetrics) -> OTelSdkResult {
        self.tell(match admitted() {
            Ok(()) => self.exporter.export(metrics).await,
            Err(error) => Err(error),
        })
    }

    fn force_flush(&self) -> OTelSdkResult {
        self.exporter.force_flush()
    }

    fn shutdown_with_timeout(&self, timeout: Duration) -> OTelSdkResult {
        self.exporter.shutdown_with_timeout(timeout)
    }

    fn temporality(&self) -> Temporality {
        self.exporter.temporality()
    }
}

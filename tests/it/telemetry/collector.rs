//! A collector that keeps what it is sent, by the protocol of OpenTelemetry.

use std::sync::{Arc, Mutex};

use opentelemetry_proto::tonic::collector::metrics::v1::metrics_service_server::{
    MetricsService, MetricsServiceServer,
};
use opentelemetry_proto::tonic::collector::metrics::v1::{ExportMetricsServiceRequest, ExportMetricsServiceResponse};
use opentelemetry_proto::tonic::collector::trace::v1::trace_service_server::{TraceService, TraceServiceServer};
use opentelemetry_proto::tonic::collector::trace::v1::{ExportTraceServiceRequest, ExportTraceServiceResponse};
use opentelemetry_proto::tonic::common::v1::any_value::Value;
use opentelemetry_proto::tonic::trace::v1::Span;
use tokio::net::TcpListener;
use tokio::task::JoinSet;
use tonic::metadata::MetadataMap;
use tonic::transport::server::TcpIncoming;
use tonic::{Request, Response, Status};

use crate::process::server::{SOON, eventually};

/// See the module. It ends with this value.
pub(super) struct Collector {
    pub(super) url: String,
    kept: Arc<Kept>,
    _serving: JoinSet<()>,
}

#[derive(Debug, Default)]
struct Kept {
    spans: Mutex<Vec<Span>>,
    metrics: Mutex<Vec<String>>,
    headers: Mutex<Vec<MetadataMap>>,
}

impl Collector {
    pub(super) async fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let kept = Arc::new(Kept::default());
        let incoming = TcpIncoming::from(listener);
        let serving = tonic::transport::Server::builder()
            .add_service(TraceServiceServer::new(Receiver(kept.clone())))
            .add_service(MetricsServiceServer::new(Receiver(kept.clone())))
            .serve_with_incoming(incoming);
        let mut task = JoinSet::new();
        task.spawn(async move { serving.await.unwrap() });
        Self { url, kept, _serving: task }
    }

    /// The spans of a trace, once one of them has this name.
    pub(super) async fn trace(&self, trace_id: &str, until: &str) -> Vec<Span> {
        let found = eventually(SOON, async || {
            let spans: Vec<_> = self.spans().into_iter().filter(|span| hex(&span.trace_id) == trace_id).collect();
            spans.iter().any(|span| span.name == until).then_some(spans)
        });
        found.await.unwrap_or_else(|| panic!("no {until:?} of {trace_id}: {:?}", self.names()))
    }

    pub(super) fn spans(&self) -> Vec<Span> {
        self.kept.spans.lock().unwrap().clone()
    }

    pub(super) fn names(&self) -> Vec<String> {
        self.spans().into_iter().map(|span| span.name).collect()
    }

    /// Waits until a metric of this name has come.
    pub(super) async fn has_metric(&self, name: &str) {
        let came = async || self.kept.metrics.lock().unwrap().iter().any(|own| own == name).then_some(());
        assert!(eventually(SOON, came).await.is_some(), "{name}: {:?}", self.kept.metrics.lock().unwrap());
    }

    /// The headers of each export.
    pub(super) fn headers(&self) -> Vec<MetadataMap> {
        self.kept.headers.lock().unwrap().clone()
    }
}

struct Receiver(Arc<Kept>);

#[tonic::async_trait]
impl TraceService for Receiver {
    async fn export(
        &self,
        request: Request<ExportTraceServiceRequest>,
    ) -> Result<Response<ExportTraceServiceResponse>, Status> {
        self.0.headers.lock().unwrap().push(request.metadata().clone());
        let sent = request.into_inner().resource_spans.into_iter().flat_map(|of| of.scope_spans);
        self.0.spans.lock().unwrap().extend(sent.flat_map(|of| of.spans));
        Ok(Response::new(ExportTraceServiceResponse::default()))
    }
}

#[tonic::async_trait]
impl MetricsService for Receiver {
    async fn export(
        &self,
        request: Request<ExportMetricsServiceRequest>,
    ) -> Result<Response<ExportMetricsServiceResponse>, Status> {
        self.0.headers.lock().unwrap().push(request.metadata().clone());
        let sent = request.into_inner().resource_metrics.into_iter().flat_map(|of| of.scope_metrics);
        self.0.metrics.lock().unwrap().extend(sent.flat_map(|of| of.metrics).map(|metric| metric.name));
        Ok(Response::new(ExportMetricsServiceResponse::default()))
    }
}

/// An id, as people and `traceparent` write it.
pub(super) fn hex(bytes: &[u8]) -> String {
    let number = bytes.iter().fold(0, |number, byte| number << 8 | u128::from(*byte));
    format!("{number:0width$x}", width = 2 * bytes.len())
}

/// The text of an attribute of a span.
pub(super) fn attribute(span: &Span, name: &str) -> Option<String> {
    let found = span.attributes.iter().find(|attribute| attribute.key == name)?;
    let value = found.value.as_ref()?.value.as_ref()?;
    Some(if let Value::StringValue(text) = value { text.clone() } else { format!("{value:?}") })
}

//! Which service answers a call.

use http::{Request, Response};
use hyper::body::Incoming;
use tonic::body::Body;
use tonic::codegen::Service as _;

use super::runs::Runs;
use super::transport::{RUNS, Whole};
use crate::proto::served::run_service_server::RunServiceServer;

/// All services of the port.
#[derive(Clone)]
pub(super) struct Routes {
    /// Called directly: it has nearly all calls.
    pub(super) runs: RunServiceServer<Runs>,
    pub(super) others: tonic::service::Routes,
}

impl Routes {
    /// Whether the requests of a path are streams.
    pub(super) fn takes_streams(path: &str) -> bool {
        path.starts_with("/grpc.reflection.")
    }

    /// Answers a call that takes one message.
    pub(super) async fn call(mut self, request: Request<Whole>) -> Response<Body> {
        let answered = if request.uri().path().starts_with(RUNS) {
            self.runs.call(request).await
        } else {
            self.others.call(request).await
        };
        answered.unwrap_or_else(|never| match never {})
    }

    /// Answers a call that takes a stream of messages.
    pub(super) async fn call_stream(mut self, request: Request<Incoming>) -> Response<Body> {
        self.others.call(request).await.unwrap_or_else(|never| match never {})
    }
}

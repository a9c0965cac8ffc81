//! The choice of the service that answers a call.

use std::convert::Infallible;

use http::{Request, Response};
use hyper::body::Incoming;
use tonic::body::Body;
use tonic::codegen::{BoxFuture, Service as _};

use super::handlers::Handlers;
use super::transport::Whole;
use crate::wire::served::run_service_server::RunServiceServer;

/// The beginning of the paths of `RunService`.
const RUNS: &str = "/runledger.v1.RunService/";

/// All services of the port.
#[derive(Clone)]
pub(super) struct Routes {
    /// Called directly, because nearly all calls are for it.
    pub(super) runs: RunServiceServer<Handlers>,
    pub(super) others: tonic::service::Routes,
}

impl Routes {
    /// Whether the requests of a path are streams.
    pub(super) fn takes_streams(path: &str) -> bool {
        path.starts_with("/grpc.reflection.")
    }

    /// Answers a call that takes one message.
    pub(super) fn call(&mut self, request: Request<Whole>) -> BoxFuture<Response<Body>, Infallible> {
        if request.uri().path().starts_with(RUNS) {
            self.runs.call(request)
        } else {
            Box::pin(self.others.call(request))
        }
    }

    /// Answers a call that takes a stream of messages.
    pub(super) fn call_stream(&mut self, request: Request<Incoming>) -> BoxFuture<Response<Body>, Infallible> {
        Box::pin(self.others.call(request))
    }
}

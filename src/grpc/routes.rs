//! The choice of the service that answers a call.

use std::convert::Infallible;
use std::task::{Context, Poll};

use http::{Request, Response};
use tonic::body::Body;
use tonic::codegen::BoxFuture;
use tower::Service;

use super::handlers::Handlers;
use super::transport::Message;
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

impl Service<Request<Message>> for Routes {
    type Response = Response<Body>;
    type Error = Infallible;
    type Future = BoxFuture<Response<Body>, Infallible>;

    /// No service is ever busy: a call waits for its turn before.
    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Message>) -> Self::Future {
        if request.uri().path().starts_with(RUNS) {
            self.runs.call(request)
        } else {
            Box::pin(self.others.call(request))
        }
    }
}

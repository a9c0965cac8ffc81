//! A wire that asks again where a server answers that nothing was written, as it may on a machine that is busy.

use std::task::{Context, Poll};
use std::time::Duration;

use futures_util::future::BoxFuture;
use http::{Request, Response};
use http_body_util::{BodyExt as _, Full};
use prost::Message as _;
use tokio::time::{Instant, sleep};
use tonic::Status;
use tonic::body::Body;
use tonic_types::pb::{self, ErrorInfo};
use tower::{Service, ServiceExt as _};

use super::everywhere::Wire;
use super::server::PATIENCE;

/// See the module. Each request is read whole first, so no call may stream its requests.
#[derive(Clone, Debug)]
pub(crate) struct Patient {
    wire: Wire,
    patience: Duration,
}

impl Patient {
    pub(crate) fn new(wire: Wire) -> Self {
        Self { wire, patience: PATIENCE }
    }

    /// One that asks once, for whoever looks at how a server refuses.
    pub(crate) fn hasty(wire: Wire) -> Self {
        Self { wire, patience: Duration::ZERO }
    }
}

/// Whether the server has written nothing, whatever was asked, and the same call may have another answer soon.
pub(crate) fn is_for_now(rpc: &pb::Status) -> bool {
    let info = rpc.details.first().and_then(|detail| ErrorInfo::decode(detail.value.as_slice()).ok());
    info.is_some_and(|info| matches!(info.reason.as_str(), "OVERLOADED" | "STORE_UNAVAILABLE"))
}

impl Service<Request<Body>> for Patient {
    type Response = <Wire as Service<Request<Body>>>::Response;
    type Error = <Wire as Service<Request<Body>>>::Error;
    type Future = BoxFuture<'static, Result<Self::Response, Self::Error>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        // The clone that sends waits for its place itself.
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        let (wire, patience) = (self.wire.clone(), self.patience);
        Box::pin(async move {
            let (parts, body) = request.into_parts();
            let message = body.collect().await.expect("a message is at hand").to_bytes();
            let begun = Instant::now();
            loop {
                let request = Request::from_parts(parts.clone(), Body::new(Full::new(message.clone())));
                let response: Response<_> = wire.clone().oneshot(request).await?;
                let refused = Status::from_header_map(response.headers());
                let rpc = refused.and_then(|refused| pb::Status::decode(refused.details()).ok());
                if begun.elapsed() >= patience || !rpc.as_ref().is_some_and(is_for_now) {
                    return Ok(response);
                }
                sleep(Duration::from_millis(100)).await;
            }
        })
    }
}

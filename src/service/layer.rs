//! Around every call: the caller's deadline, and a type for every error, also for those that the transport makes.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use http::{HeaderMap, Request, Response};
use tokio::time::{Instant, timeout_at};
use tonic::body::Body;
use tonic::{Code, Status};
use tower::{Layer, Service};

use crate::domain::Violation;
use crate::proto::status;

/// When the caller stops waiting, a little early: the answer has to travel, and the transport's own timer, which fires
/// on the deadline itself, would answer CANCELLED.
#[derive(Clone, Copy, Debug)]
pub(super) struct Deadline(pub(super) Instant);

/// See the module.
#[derive(Clone, Copy, Debug)]
pub(super) struct CallLayer;

impl<S> Layer<S> for CallLayer {
    type Service = CallService<S>;

    fn layer(&self, inner: S) -> Self::Service {
        CallService { inner }
    }
}

#[derive(Clone, Debug)]
pub(super) struct CallService<S> {
    inner: S,
}

impl<S> Service<Request<Body>> for CallService<S>
where
    S: Service<Request<Body>, Response = Response<Body>>,
    S::Future: Send + 'static,
    S::Error: Send + 'static,
{
    type Response = Response<Body>;
    type Error = S::Error;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, Self::Error>> + Send>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, mut request: Request<Body>) -> Self::Future {
        let left = request.headers().get("grpc-timeout").and_then(|value| timeout(value.to_str().ok()?));
        // A handler answers by half of the margin before this layer does: it knows whether anything was written.
        let deadlines = left.map(|left| {
            let margin = (left / 4).min(Duration::from_millis(10));
            let now = Instant::now();
            (now + left.saturating_sub(margin), now + left.saturating_sub(margin / 2))
        });
        if let Some((handler, _)) = deadlines {
            request.extensions_mut().insert(Deadline(handler));
        }
        let answer = self.inner.call(request);
        Box::pin(async move {
            let answer = match deadlines {
                None => answer.await?,
                Some((_, layer)) => match timeout_at(layer, answer).await {
                    Ok(answer) => answer?,
                    Err(_elapsed) => return Ok(status::deadline().into_http()),
                },
            };
            Ok(match untyped(answer.headers()) {
                None => answer,
                Some(typed) => typed.into_http(),
            })
        })
    }
}

/// The typed form of an error that the transport made before the service saw the call. The service's own have details.
fn untyped(headers: &HeaderMap) -> Option<Status> {
    if !headers.contains_key("grpc-status") || headers.contains_key("grpc-status-details-bin") {
        return None;
    }
    let made = Status::from_header_map(headers)?;
    match made.code() {
        // A message above the size limit; a body that is cut short, empty, or not framed as gRPC frames it.
        Code::OutOfRange | Code::ResourceExhausted | Code::Internal => {
            Some(status::invalid(vec![Violation::new("request", made.message().to_owned())]))
        }
        Code::Ok
        | Code::Cancelled
        | Code::Unknown
        | Code::InvalidArgument
        | Code::DeadlineExceeded
        | Code::NotFound
        | Code::AlreadyExists
        | Code::PermissionDenied
        | Code::FailedPrecondition
        | Code::Aborted
        | Code::Unimplemented
        | Code::Unavailable
        | Code::DataLoss
        | Code::Unauthenticated => None,
    }
}

/// The value of `grpc-timeout`: at most eight digits and a unit.
fn timeout(text: &str) -> Option<Duration> {
    let (digits, unit) = text.split_at_checked(text.len().checked_sub(1)?)?;
    if digits.is_empty() || digits.len() > 8 || !digits.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    let amount: u64 = digits.parse().ok()?;
    match unit {
        "H" => Some(Duration::from_hours(amount)),
        "M" => Some(Duration::from_mins(amount)),
        "S" => Some(Duration::from_secs(amount)),
        "m" => Some(Duration::from_millis(amount)),
        "u" => Some(Duration::from_micros(amount)),
        "n" => Some(Duration::from_nanos(amount)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_timeout_is_read_as_grpc_writes_it() {
        assert_eq!(timeout("5S"), Some(Duration::from_secs(5)));
        assert_eq!(timeout("150m"), Some(Duration::from_millis(150)));
        assert_eq!(timeout("99999999H"), Some(Duration::from_hours(99_999_999)));
        for noise in ["", "S", "5", "5s", "-5S", "123456789S", "5.5S", "5é"] {
            assert_eq!(timeout(noise), None, "{noise:?}");
        }
    }
}

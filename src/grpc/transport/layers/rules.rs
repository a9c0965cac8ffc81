//! The rules of HTTP and gRPC for the headers of a call, and its deadline. Who breaks one is refused, or else who finds no
//! room: nothing was decoded, and nothing was written.

use std::sync::Arc;
use std::time::Duration;

use http::header::{ALLOW, CONTENT_TYPE};
use http::{HeaderValue, Method, Request, Response, StatusCode};
use tokio::time::Instant;
use tonic::Status;
use tonic::body::Body;

use super::super::answer::AnswerBody;
use super::super::begun::Begun;
use super::super::call::{Arrived, Call, Counted, Deadlines};
use super::super::peer::Peer;
use super::super::request::RequestBody;
use super::passing::{Answering, Pass};
use crate::domain::Violation;
use crate::wire::problem;

#[derive(Clone, Debug)]
pub(super) struct Rules(pub(super) Arc<Peer>);

impl<B: RequestBody, N: Answering<Call<B>, B>> Pass<Counted<B>, N> for Rules {
    type Answer = Response<AnswerBody>;
    type Future = Begun<B>;

    fn pass(
        &self,
        Counted { call: Arrived { request, method, at, measured }, open }: Counted<B>,
        next: &mut N,
    ) -> Begun<B> {
        let refused = match (asked_rightly(&request, at), open) {
            (Ok(deadlines), Ok(open)) => {
                return next.call(Call { request, method, deadlines, open: open.measured_by(measured) });
            }
            (Err(refused), _) => refused,
            (Ok(_), Err(refused)) => self.0.refusal(refused),
        };
        Begun::refused(refused, measured, request.into_body())
    }
}

/// Checks a request's headers against the rules of HTTP and gRPC. Gives the request's deadlines, if it has any.
fn asked_rightly<B>(request: &Request<B>, arrived: Instant) -> Result<Option<Deadlines>, Response<Body>> {
    if request.method() != Method::POST {
        return Err(refused_by_http(StatusCode::METHOD_NOT_ALLOWED));
    }
    if !request.headers().get(CONTENT_TYPE).is_some_and(|kind| is_grpc(kind.as_bytes())) {
        return Err(refused_by_http(StatusCode::UNSUPPORTED_MEDIA_TYPE));
    }
    let mut timeouts = request.headers().get_all("grpc-timeout").iter();
    let (Some(asked), another) = (timeouts.next(), timeouts.next()) else { return Ok(None) };
    let Some(left) = asked.to_str().ok().and_then(timeout).filter(|_| another.is_none()) else {
        let rule = "must be one whole number of at most 8 digits and one of H, M, S, m, u, n, such as 500m";
        return Err(Status::from(problem::invalid(vec![Violation::new("grpc-timeout", rule)])).into_http());
    };
    let margin = (left / 4).min(Duration::from_millis(10));
    let handler = arrived + left.saturating_sub(margin);
    Ok(Some(Deadlines { handler, around: arrived + left.saturating_sub(margin / 2) }))
}

/// A request that is none of gRPC's is answered by HTTP's own status.
fn refused_by_http(status: StatusCode) -> Response<Body> {
    let mut answer = Response::new(Body::empty());
    *answer.status_mut() = status;
    if status == StatusCode::METHOD_NOT_ALLOWED {
        answer.headers_mut().insert(ALLOW, HeaderValue::from_static("POST"));
    }
    answer
}

/// Whether a content type says that messages are Protocol Buffers in gRPC's framing.
fn is_grpc(content_type: &[u8]) -> bool {
    let Some(rest) = content_type.strip_prefix(b"application/grpc") else { return false };
    let rest = rest.strip_prefix(b"+proto").unwrap_or(rest);
    matches!(rest.first(), None | Some(b';' | b' '))
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

    #[test]
    fn only_protocol_buffers_in_grpcs_framing_are_taken() {
        for kind in ["application/grpc", "application/grpc+proto", "application/grpc; charset=utf-8"] {
            assert!(is_grpc(kind.as_bytes()), "{kind}");
        }
        for kind in ["", "application/json", "application/grpc-web", "application/grpc+json", "application/grpcx"] {
            assert!(!is_grpc(kind.as_bytes()), "{kind}");
        }
    }
}

//! The layer around every call: the rules of HTTP and gRPC for a request, its deadline, its turn, and a type for every
//! error, also for those that the generated code makes.

use std::convert::Infallible;
use std::future::poll_fn;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context as TaskContext, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use http::header::{ALLOW, AUTHORIZATION, CONTENT_TYPE};
use http::{HeaderMap, HeaderValue, Method, Request, Response, StatusCode};
use http_body::Body as _;
use hyper::body::Incoming;
use tokio::time::{Instant, Sleep, sleep, timeout_at};
use tonic::body::Body;
use tonic::{Code, Status};

use super::super::routes::Routes;
use super::answer::{self, Answer};
use super::method::Kind;
use super::peer::{Open, Peer};
use super::request;
use super::stall::StreamTasks;
use crate::auth::Gate;
use crate::auth::gate::{Admitted, Certificate, Looked};
use crate::domain::Violation;
use crate::wire::problem;

/// Requests of more bytes are decoded one at a time: the other processors have other work. Hundreds of requests may
/// lack only their last bytes, which then come together.
const LARGE_BYTES: usize = 4 * 1024;

/// Headers that are kept as they came. Where there are more, only those that this service knows are kept.
const HEADERS_KEPT: usize = 24;

/// The value that a handler finds among its request's extensions.
#[derive(Clone, Debug)]
pub(in crate::grpc) struct Context {
    /// The time at which the caller stops waiting, a little early: the answer has to travel.
    pub(in crate::grpc) deadline: Option<Instant>,
    /// The connection.
    pub(in crate::grpc) peer: Arc<Peer>,
    /// The caller, as the gate let it in.
    pub(in crate::grpc) admitted: Arc<Admitted>,
}

/// The calls of one connection.
#[derive(Clone)]
pub(super) struct Calls {
    pub(super) routes: Routes,
    pub(super) gate: Arc<Gate>,
    pub(super) peer: Arc<Peer>,
    pub(super) streams: StreamTasks,
}

/// A call that was begun. A call that is refused by its headers costs no task's memory: so a flood can be refused.
pub(super) enum Begun {
    Refused(Box<Refused>),
    Executed(Pin<Box<dyn Future<Output = Response<Answer>> + Send>>),
}

impl Future for Begun {
    type Output = Result<Response<Answer>, Infallible>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut TaskContext<'_>) -> Poll<Self::Output> {
        match &mut *self {
            Self::Refused(refused) => refused.poll(cx).map(Ok),
            Self::Executed(call) => call.as_mut().poll(cx).map(Ok),
        }
    }
}

/// A call that is refused. The body is dropped as it comes, and the answer is sent after it: HTTP/2 takes frames for a
/// stream that was answered and forgotten as a fault of their sender, and many such faults end the connection.
pub(super) struct Refused {
    answer: Option<Response<Answer>>,
    body: Incoming,
    left: usize,
    until: Option<Pin<Box<Sleep>>>,
}

/// The bytes of a refused call's body that are waited for, and the time for which they are.
const REFUSED_BYTES_MAX: usize = 64 * 1024;
const REFUSED_WAIT_MAX: Duration = Duration::from_secs(1);

impl Refused {
    fn of(answer: Response<Body>, body: Incoming) -> Box<Self> {
        Box::new(Self { answer: Some(answer::refused(answer)), body, left: REFUSED_BYTES_MAX, until: None })
    }

    fn poll(&mut self, cx: &mut TaskContext<'_>) -> Poll<Response<Answer>> {
        loop {
            match Pin::new(&mut self.body).poll_frame(cx) {
                Poll::Ready(Some(Ok(frame))) => {
                    let bytes = frame.data_ref().map_or(0, Bytes::len);
                    match self.left.checked_sub(bytes) {
                        Some(left) => self.left = left,
                        None => break,
                    }
                }
                Poll::Ready(None | Some(Err(_))) => break,
                Poll::Pending => {
                    let until = self.until.get_or_insert_with(|| Box::pin(sleep(REFUSED_WAIT_MAX)));
                    ready!(until.as_mut().poll(cx));
                    break;
                }
            }
        }
        Poll::Ready(self.answer.take().expect("a future is not polled after its end"))
    }
}

impl hyper::service::Service<Request<Incoming>> for Calls {
    type Response = Response<Answer>;
    type Error = Infallible;
    type Future = Begun;

    fn call(&self, mut request: Request<Incoming>) -> Begun {
        // Deadlines count from here: the headers have just been read.
        let arrived = Instant::now();
        let kind = Kind::of(request.uri().path());
        let begun = self.peer.begin(kind, request.uri().path());
        let (deadlines, mut open) = match (asked_rightly(&request, arrived), begun) {
            (Ok(deadlines), Ok(open)) => (deadlines, open),
            (Err(refused), _) => return Begun::Refused(Refused::of(refused, request.into_body())),
            (Ok(_), Err(refused)) => {
                return Begun::Refused(Refused::of(self.peer.refusal(refused), request.into_body()));
            }
        };
        let lasts = matches!(kind, Kind::Wait | Kind::Watch);
        let shown = self.peer.certificate();
        let certificate = shown.map(|shown| Certificate { name: &shown.name, issuer: &shown.issuer });
        let admitted = match self.gate.look(request.uri().path(), request.headers(), certificate, lasts) {
            Looked::Admitted(admitted) => Arc::<Admitted>::from(admitted),
            Looked::Denied(denied) => {
                let refused = Status::from(problem::denied(denied)).into_http();
                return Begun::Refused(Refused::of(refused, request.into_body()));
            }
        };
        if let Err(refused) = self.peer.admit(kind, &admitted.caller, &mut open) {
            return Begun::Refused(Refused::of(self.peer.refusal(refused), request.into_body()));
        }
        // Nothing that handles the call needs its secret.
        request.headers_mut().remove(AUTHORIZATION);
        let (routes, peer, sending) = (self.routes.clone(), self.peer.clone(), self.streams.begin());
        keep_known(request.headers_mut());
        let deadline = deadlines.map(|deadlines| deadlines.handler);
        request.extensions_mut().insert(Context { deadline, peer: peer.clone(), admitted: admitted.clone() });
        // As many of these futures are in memory as there are open calls: a value that is moved into one is kept there
        // twice.
        Begun::Executed(Box::pin(async move {
            let answer = {
                let executed = pin!(while_admitted(kind, &admitted, execute(routes, request, kind, &peer, &mut open)));
                match deadlines {
                    None => executed.await,
                    Some(Deadlines { around, .. }) => match timeout_at(around, executed).await {
                        Ok(answer) => answer,
                        Err(_elapsed) => Status::from(problem::deadline()).into_http(),
                    },
                }
            };
            let answer = match untyped(answer.headers()) {
                None => answer,
                Some(typed) => typed.into_http(),
            };
            if kind == Kind::Wait {
                // One event may answer many waits at once.
                peer.until_sent().await;
            }
            match kind {
                Kind::Watch => answer::stream(answer, peer, open, sending),
                Kind::Call | Kind::Page | Kind::Wait | Kind::Local => answer::whole(answer, &peer, open, sending).await,
            }
        }))
    }
}

/// The times by which a call is answered.
#[derive(Clone, Copy, Debug)]
struct Deadlines {
    /// For the handler, which knows whether anything was written.
    handler: Instant,
    /// For the code around the handler, a little later.
    around: Instant,
}

/// Checks a request's headers against the rules of HTTP and gRPC. Gives the request's deadlines, if it has any.
fn asked_rightly(request: &Request<Incoming>, arrived: Instant) -> Result<Option<Deadlines>, Response<Body>> {
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

/// Receives a call's request and has it answered.
fn execute<'a>(
    mut routes: Routes,
    request: Request<Incoming>,
    kind: Kind,
    peer: &'a Arc<Peer>,
    open: &'a mut Open,
) -> impl Future<Output = Response<Body>> + Send + 'a {
    let (head, body) = request.into_parts();
    async move {
        if Routes::takes_streams(head.uri.path()) {
            return routes.call_stream(Request::from_parts(head, body)).await.unwrap_or_else(|never| match never {});
        }
        let (body, _held) = match request::receive(body, peer).await {
            Ok(received) => received,
            Err(refused) => return refused.into_http(),
        };
        let _turn = match peer.turn(kind, body.len(), open).await {
            Ok(turn) => turn,
            Err(_overloaded) => return peer.overloaded(),
        };
        let large = body.len() > LARGE_BYTES;
        let mut answer = routes.call(Request::from_parts(head, request::Whole::new(body)));
        if large {
            // The first poll decodes and validates the request.
            let _alone = peer.large_turn().await;
            if let Poll::Ready(answer) = poll_fn(|cx| Poll::Ready(answer.as_mut().poll(cx))).await {
                return answer.unwrap_or_else(|never| match never {});
            }
        }
        answer.await.unwrap_or_else(|never| match never {})
    }
}

/// Ends a wait whose caller is let in no more. A watch ends itself, after the frames that it has.
async fn while_admitted(
    kind: Kind,
    admitted: &Admitted,
    executed: impl Future<Output = Response<Body>>,
) -> Response<Body> {
    match &admitted.session {
        Some(session) if kind == Kind::Wait => tokio::select! {
            biased;
            answer = executed => answer,
            denied = session.until_denied() => Status::from(problem::denied(denied)).into_http(),
        },
        Some(_) | None => executed.await,
    }
}

/// Drops the headers that nobody reads: a call may wait for long, and they may take more room than its message.
fn keep_known(headers: &mut HeaderMap) {
    if headers.len() > HEADERS_KEPT {
        let known = |name: &str| name.starts_with("runledger-") || name.starts_with("grpc-");
        // The map is made anew: a map that was large keeps its capacity.
        let kept = headers.iter().filter(|(name, _)| known(name.as_str()));
        *headers = kept.map(|(name, value)| (name.clone(), value.clone())).collect();
    }
}

/// The typed form of an error that the generated code made before the service saw the call. The service's own errors
/// have details.
fn untyped(headers: &HeaderMap) -> Option<Status> {
    if !headers.contains_key("grpc-status") || headers.contains_key("grpc-status-details-bin") {
        return None;
    }
    let made = Status::from_header_map(headers)?;
    match made.code() {
        // A body that is not framed as gRPC frames it.
        Code::OutOfRange | Code::ResourceExhausted | Code::Internal => {
            Some(problem::invalid(vec![Violation::new("request", made.message().to_owned())]).into())
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

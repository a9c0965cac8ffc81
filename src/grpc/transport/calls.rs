//! The layer around every call: the rules of HTTP and gRPC for a request, its credential, its deadline, its turn, and a
//! type for every error, also for those that the generated code makes.

mod begun;
mod rules;

use std::convert::Infallible;
use std::future::poll_fn;
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;

use http::header::AUTHORIZATION;
use http::{HeaderMap, Request, Response};
use hyper::body::Incoming;
use runledger_proto::methods::Kind;
use tokio::time::{Instant, timeout_at};
use tonic::body::Body;
use tonic::{Code, Status};

pub(super) use self::begun::Begun;
use self::rules::{Deadlines, asked_rightly};
use super::super::routes::Routes;
use super::answer::{self, Answer};
use super::measured::Measured;
use super::method::Method;
use super::peer::{Open, Peer, Turn};
use super::request;
use super::stall::StreamTasks;
use crate::auth::Gate;
use crate::auth::gate::{Admitted, Asked, Certificate, Denied, Looked};
use crate::domain::{TraceContext, Violation};
use crate::telemetry::traces;
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
    /// The call's place in a trace.
    pub(in crate::grpc) trace: Option<TraceContext>,
}

/// The calls of one connection.
#[derive(Clone)]
pub(super) struct Calls {
    pub(super) routes: Routes,
    pub(super) gate: Arc<Gate>,
    pub(super) peer: Arc<Peer>,
    pub(super) streams: StreamTasks,
}

/// The status of a call that was refused for want of room, as its header has it.
const RESOURCE_EXHAUSTED: &str = "8";

impl hyper::service::Service<Request<Incoming>> for Calls {
    type Response = Response<Answer>;
    type Error = Infallible;
    type Future = Begun;

    fn call(&self, request: Request<Incoming>) -> Begun {
        // Deadlines count from here: the headers have just been read.
        let arrived = Instant::now();
        let method = Method::of(request.uri().path());
        let measured = Measured::of(method, request.headers(), arrived);
        let begun = self.peer.begin(method);
        let (deadlines, open) = match (asked_rightly(&request, arrived), begun) {
            (Ok(deadlines), Ok(open)) => (deadlines, open),
            (Err(refused), _) => return Begun::refused(refused, measured, request.into_body()),
            (Ok(_), Err(refused)) => {
                return Begun::refused(self.peer.refusal(refused), measured, request.into_body());
            }
        };
        match self.gate.look(self.asked(method, request.headers())) {
            Looked::Admitted(admitted) => self.enter(request, method.kind, deadlines, (open, measured), *admitted),
            Looked::Denied(denied) => {
                let refused = self.denied(denied, method);
                Begun::refused(refused, measured, request.into_body())
            }
            Looked::Unproven => {
                Begun::Proving(Box::pin(self.clone().prove(request, method, deadlines, (open, measured))))
            }
        }
    }
}

impl Calls {
    fn asked<'a>(&'a self, method: Method, headers: &'a HeaderMap) -> Asked<'a> {
        let shown = self.peer.certificate();
        let certificate = shown.map(|shown| Certificate { name: &shown.name, issuer: &shown.issuer });
        Asked { access: method.access, headers, certificate, lasts: matches!(method.kind, Kind::Wait | Kind::Watch) }
    }

    /// Waits until a call's signed token is verified.
    async fn prove(
        self,
        request: Request<Incoming>,
        method: Method,
        deadlines: Option<Deadlines>,
        (open, measured): (Open, Measured),
    ) -> Begun {
        let (head, body) = request.into_parts();
        let proving = self.gate.prove(self.asked(method, &head.headers), self.peer.connection_key());
        let proved = match deadlines {
            None => proving.await,
            Some(Deadlines { around, .. }) => match timeout_at(around, proving).await {
                Ok(proved) => proved,
                Err(_elapsed) => return Begun::refused(Status::from(problem::deadline()).into_http(), measured, body),
            },
        };
        match proved {
            Ok(admitted) => {
                self.enter(Request::from_parts(head, body), method.kind, deadlines, (open, measured), admitted)
            }
            Err(denied) => Begun::refused(self.denied(denied, method), measured, body),
        }
    }

    /// The answer to a call that does not pass the gate.
    fn denied(&self, denied: Denied, method: Method) -> Response<Body> {
        let is_denied = !matches!(denied, Denied::Headers(_) | Denied::Busy);
        let refused = Status::from(problem::denied(denied));
        if is_denied {
            self.peer.tell_denied(method.named.1, refused.message());
        }
        refused.into_http()
    }

    /// Begins a call that the gate has let in.
    fn enter(
        &self,
        mut request: Request<Incoming>,
        kind: Kind,
        deadlines: Option<Deadlines>,
        (mut open, measured): (Open, Measured),
        admitted: Admitted,
    ) -> Begun {
        let admitted = Arc::new(admitted);
        if let Err(refused) = self.peer.admit(kind, &admitted.caller, &mut open) {
            return Begun::refused(self.peer.refusal(refused), measured, request.into_body());
        }
        let trace = measured.trace();
        let open = open.measured_by(measured);
        // Nothing that handles the call needs its secret.
        request.headers_mut().remove(AUTHORIZATION);
        let (routes, peer, sending) = (self.routes.clone(), self.peer.clone(), self.streams.begin());
        keep_known(request.headers_mut());
        let deadline = deadlines.map(|deadlines| deadlines.handler);
        request.extensions_mut().insert(Context {
            deadline,
            peer: peer.clone(),
            admitted: admitted.clone(),
            trace: trace.as_ref().and_then(|trace| trace.context),
        });
        // As many of these futures are in memory as there are open calls: a value that is moved into one is kept there
        // twice.
        Begun::Executed(Box::pin(async move {
            let answer = {
                let executed = pin!(while_admitted(kind, &admitted, execute(routes, request, kind, &peer)));
                let executed = traces::within(trace, executed);
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
            if answer.headers().get("grpc-status").is_some_and(|code| code == RESOURCE_EXHAUSTED) {
                peer.tell_refused(&admitted.caller);
            }
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

/// Receives a call's request and has it answered.
fn execute<'a>(
    mut routes: Routes,
    request: Request<Incoming>,
    kind: Kind,
    peer: &'a Arc<Peer>,
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
        let Ok(turn) = peer.turn(kind, body.len()).await else { return peer.overloaded() };
        let large = body.len() > LARGE_BYTES;
        let mut executed = routes.call(Request::from_parts(head, request::Whole::new(body)));
        if large {
            // The first poll decodes and validates the request.
            let _alone = peer.large_turn().await;
            if let Poll::Ready(answer) = poll_fn(|cx| Poll::Ready(executed.as_mut().poll(cx))).await {
                return ended(turn, answer);
            }
        }
        ended(turn, executed.await)
    }
}

/// Ends a turn. A refusal's status is in its headers.
fn ended(turn: Turn<'_>, Ok(answer): Result<Response<Body>, Infallible>) -> Response<Body> {
    turn.answered(answer.headers().contains_key("grpc-status"));
    answer
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
            denied = session.until_denied() => Status::from(problem::let_in_no_more(denied)).into_http(),
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
    // A body that is not framed as gRPC frames it.
    let is_of_the_body = matches!(made.code(), Code::OutOfRange | Code::ResourceExhausted | Code::Internal);
    is_of_the_body.then(|| problem::invalid(vec![Violation::new("request", made.message().to_owned())]).into())
}

//! Begins the execution of a call, which is a task's memory from here on, and makes the body of its answer: counted until
//! it is written, and with a type for every error, also for those that the generated code makes. Refuses nothing.

use std::sync::Arc;

use futures_util::FutureExt as _;
use http::header::AUTHORIZATION;
use http::{HeaderMap, Response};
use runledger_proto::methods::Kind;
use tonic::{Code, Status};

use super::super::answer::{self, AnswerBody};
use super::super::begun::Begun;
use super::super::call::{Call, Context, Entered, Execution};
use super::super::peer::{Open, Peer};
use super::super::request::RequestBody;
use super::super::stall::{Sending, StreamTasks};
use super::passing::{Executed, Executing, Pass};
use crate::auth::gate::Admitted;
use crate::domain::Violation;
use crate::wire::problem;

/// Headers that are kept as they came. Where there are more, only those that this service knows are kept.
const HEADERS_KEPT: usize = 24;

/// The status of a call that was refused for want of room, as its header has it.
const RESOURCE_EXHAUSTED: &str = "8";

/// What takes the answers of one connection's calls.
#[derive(Clone)]
pub(super) struct Answers {
    pub(super) peer: Arc<Peer>,
    pub(super) streams: StreamTasks,
}

impl<B: RequestBody, N: Executing<Execution<B>>> Pass<Entered<B>, N> for Answers {
    type Answer = Response<AnswerBody>;
    type Future = Begun<B>;

    fn pass(
        &self,
        Entered { call: Call { mut request, method, deadlines, mut open }, admitted }: Entered<B>,
        next: &mut N,
    ) -> Begun<B> {
        let Self { peer, streams } = self;
        let kind = method.kind;
        let trace = open.measured().trace();
        // Nothing that handles the call needs its secret.
        request.headers_mut().remove(AUTHORIZATION);
        keep_known(request.headers_mut());
        request.extensions_mut().insert(Context {
            deadline: deadlines.map(|deadlines| deadlines.handler),
            peer: peer.clone(),
            admitted: admitted.clone(),
            trace: trace.as_ref().and_then(|trace| trace.context),
        });
        let executed = next.call(Execution { request, kind, deadlines, admitted: admitted.clone(), trace });
        let (peer, sending) = (peer.clone(), streams.begin());
        // As many of these futures are in memory as there are open calls: a value that is moved into an async block is kept
        // there twice.
        Begun::Executed(Box::pin(executed.then(move |answer| answered(answer, kind, peer, admitted, open, sending))))
    }
}

/// Makes the answer of what executed the call.
async fn answered(
    Ok(answer): Executed,
    kind: Kind,
    peer: Arc<Peer>,
    admitted: Arc<Admitted>,
    open: Open,
    sending: Arc<Sending>,
) -> Response<AnswerBody> {
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

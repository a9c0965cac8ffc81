//! Has a call wait for its turn: its connection's calls are executed some at a time, and lists one or two. A call is
//! refused that finds too many others before it, once its request has come: nothing was decoded, and nothing was written.

use std::future::poll_fn;
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;

use http::{Request, Response};
use tonic::body::Body;

use super::super::call::Received;
use super::super::peer::{Peer, Turn};
use super::super::request::Message;
use super::passing::{Executed, Executing};

/// Requests of more bytes are decoded one at a time: the other processors have other work. Hundreds of requests may
/// lack only their last bytes, which then come together.
const LARGE_BYTES: usize = 4 * 1024;

pub(super) fn layer<B: Send + 'static, N: Executing<Request<Message<B>>>>(
    peer: &Arc<Peer>,
    Received { request, kind }: Received<B>,
    next: &mut N,
) -> impl Future<Output = Executed> + Send + use<B, N> {
    let (peer, mut next, bytes) = (peer.clone(), next.clone(), request.body().bytes());
    async move {
        let Ok(turn) = peer.turn(kind, bytes).await else { return Ok(peer.overloaded()) };
        let mut executed = pin!(next.call(request));
        if bytes > LARGE_BYTES {
            // The first poll decodes and validates the request.
            let _alone = peer.large_turn().await;
            if let Poll::Ready(answer) = poll_fn(|cx| Poll::Ready(executed.as_mut().poll(cx))).await {
                return Ok(ended(turn, answer));
            }
        }
        Ok(ended(turn, executed.await))
    }
}

/// Ends a turn. A refusal's status is in its headers.
fn ended(turn: Turn<'_>, Ok(answer): Executed) -> Response<Body> {
    turn.answered(answer.headers().contains_key("grpc-status"));
    answer
}

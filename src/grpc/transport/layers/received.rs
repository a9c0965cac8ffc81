//! Receives a call's request whole, within its bounds. Whoever sends what is none is refused: nothing was decoded, and
//! nothing was written. The requests of reflection are streams, which their service reads.

use std::sync::Arc;

use http::Request;
use runledger_proto::methods;

use super::super::call::{Execution, Received};
use super::super::peer::Peer;
use super::super::request::{self, Message, RequestBody};
use super::passing::{Executed, Executing};

pub(super) fn layer<B: RequestBody, N: Executing<Received<B>>>(
    peer: &Arc<Peer>,
    Execution { request, kind, .. }: Execution<B>,
    next: &mut N,
) -> impl Future<Output = Executed> + Send + use<B, N> {
    let (head, body) = request.into_parts();
    let (peer, mut next) = (peer.clone(), next.clone());
    let list_levels = methods::of(head.uri.path()).map_or(0, |method| method.list_levels);
    async move {
        let (message, _counted) = if head.uri.path().starts_with("/grpc.reflection.") {
            (Message::Stream(body), None)
        } else {
            match request::receive(body, list_levels, &peer).await {
                Ok((whole, counted)) => (Message::Whole(Some(whole)), Some(counted)),
                Err(refused) => return Ok(refused.into_http()),
            }
        };
        next.call(Received { request: Request::from_parts(head, message), kind }).await
    }
}

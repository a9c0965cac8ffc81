//! Refuses a call of a caller that makes more of them than the operator lets one caller make. Nothing was written.

use std::sync::Arc;

use super::super::begun::Begun;
use super::super::call::Entered;
use super::super::peer::Peer;
use super::passing::Answering;

pub(super) fn layer<B, N: Answering<Entered<B>, B>>(
    peer: &Arc<Peer>,
    Entered { mut call, admitted }: Entered<B>,
    next: &mut N,
) -> Begun<B> {
    match peer.admit(call.method.kind, &admitted.caller, &mut call.open) {
        Ok(()) => next.call(Entered { call, admitted }),
        Err(refused) => call.refused(peer.refusal(refused)),
    }
}

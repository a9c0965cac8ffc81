//! Counts a call for its connection, and sheds load: finds out whether there is room for one more. The refusal is told by
//! the layer of the rules, to a call that keeps them.

use std::sync::Arc;

use super::super::begun::Begun;
use super::super::call::{Arrived, Counted};
use super::super::peer::Peer;
use super::passing::Answering;

pub(super) fn layer<B, N: Answering<Counted<B>, B>>(peer: &Arc<Peer>, call: Arrived<B>, next: &mut N) -> Begun<B> {
    let open = peer.begin(call.method);
    next.call(Counted { call, open })
}

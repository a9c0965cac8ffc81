//! Counts a call for its connection, and sheds load: finds out whether there is room for one more. The refusal is told by
//! the layer of the rules, to a call that keeps them.

use std::sync::Arc;

use http::Response;

use super::super::answer::AnswerBody;
use super::super::begun::Begun;
use super::super::call::{Arrived, Counted};
use super::super::peer::Peer;
use super::super::request::RequestBody;
use super::passing::{Answering, Pass};

#[derive(Clone, Debug)]
pub(super) struct Counting(pub(super) Arc<Peer>);

impl<B: RequestBody, N: Answering<Counted<B>, B>> Pass<Arrived<B>, N> for Counting {
    type Answer = Response<AnswerBody>;
    type Future = Begun<B>;

    fn pass(&self, call: Arrived<B>, next: &mut N) -> Begun<B> {
        let open = self.0.begin(call.method);
        next.call(Counted { call, open })
    }
}

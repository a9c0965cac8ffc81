//! Refuses a call of a caller that makes more of them than the operator lets one caller make. Nothing was written.

use std::sync::Arc;

use http::Response;

use super::super::answer::AnswerBody;
use super::super::begun::Begun;
use super::super::call::Entered;
use super::super::peer::Peer;
use super::super::request::RequestBody;
use super::passing::{Answering, Pass};

#[derive(Clone, Debug)]
pub(super) struct Limiting(pub(super) Arc<Peer>);

impl<B: RequestBody, N: Answering<Entered<B>, B>> Pass<Entered<B>, N> for Limiting {
    type Answer = Response<AnswerBody>;
    type Future = Begun<B>;

    fn pass(&self, Entered { mut call, admitted }: Entered<B>, next: &mut N) -> Begun<B> {
        match self.0.admit(call.method.kind, &admitted.caller, &mut call.open) {
            Ok(()) => next.call(Entered { call, admitted }),
            Err(refused) => call.refused(self.0.refusal(refused)),
        }
    }
}

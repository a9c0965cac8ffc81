//! Has every call told of by metrics and traces once it is over. Refuses nothing.

use http::{Request, Response};
use tokio::time::Instant;

use super::super::answer::AnswerBody;
use super::super::begun::Begun;
use super::super::call::Arrived;
use super::super::measured::Measured;
use super::super::method::Method;
use super::super::request::RequestBody;
use super::passing::{Answering, Pass};

#[derive(Clone, Debug)]
pub(super) struct Measuring;

impl<B: RequestBody, N: Answering<Arrived<B>, B>> Pass<Request<B>, N> for Measuring {
    type Answer = Response<AnswerBody>;
    type Future = Begun<B>;

    fn pass(&self, request: Request<B>, next: &mut N) -> Begun<B> {
        // Deadlines count from here: the headers have just been read.
        let at = Instant::now();
        let method = Method::of(request.uri().path());
        let measured = Measured::of(method, request.headers(), at);
        next.call(Arrived { request, method, at, measured })
    }
}

//! Has every call told of by metrics and traces once it is over. Refuses nothing.

use http::Request;
use tokio::time::Instant;

use super::super::begun::Begun;
use super::super::call::Arrived;
use super::super::measured::Measured;
use super::super::method::Method;
use super::passing::{Answering, Nothing};

pub(super) fn layer<B, N: Answering<Arrived<B>, B>>(_: &Nothing, request: Request<B>, next: &mut N) -> Begun<B> {
    // Deadlines count from here: the headers have just been read.
    let at = Instant::now();
    let method = Method::of(request.uri().path());
    let measured = Measured::of(method, request.headers(), at);
    next.call(Arrived { request, method, at, measured })
}

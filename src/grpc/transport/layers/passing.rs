//! A layer that is one function.

use std::convert::Infallible;
use std::task::{Context, Poll};

use http::Response;
use tonic::body::Body;
use tower::{Layer, Service};

use super::super::answer::Answer;
use super::super::begun::Begun;

/// What takes a call by its headers, and refuses or begins it.
pub(in super::super) trait Answering<C, B>:
    Service<C, Response = Response<Answer>, Error = Infallible, Future = Begun<B>> + Clone + Send + 'static
{
}

impl<C, B, S> Answering<C, B> for S where
    S: Service<C, Response = Response<Answer>, Error = Infallible, Future = Begun<B>> + Clone + Send + 'static
{
}

/// What executes a call that was begun.
pub(in super::super) trait Executing<C>:
    Service<C, Response = Response<Body>, Error = Infallible, Future: Send + 'static> + Clone + Send + 'static
{
}

impl<C, S> Executing<C> for S where
    S: Service<C, Response = Response<Body>, Error = Infallible, Future: Send + 'static> + Clone + Send + 'static
{
}

/// What a layer behind the beginning of a call gives.
pub(super) type Executed = Result<Response<Body>, Infallible>;

/// The layer of a function that is told what the layer knows, a call, and the next layer.
pub(super) fn passing<K, F>(knows: K, pass: F) -> Passing<K, F> {
    Passing { knows, pass }
}

/// All that a layer knows that needs the call alone.
#[derive(Clone, Debug)]
pub(super) struct Nothing;

/// See [`passing`].
#[derive(Clone, Debug)]
pub(super) struct Passing<K, F> {
    knows: K,
    pass: F,
}

/// A layer around what is behind it.
#[derive(Clone, Debug)]
pub(super) struct Around<K, F, N> {
    layer: Passing<K, F>,
    next: N,
}

impl<K: Clone, F: Clone, N> Layer<N> for Passing<K, F> {
    type Service = Around<K, F, N>;

    fn layer(&self, next: N) -> Around<K, F, N> {
        Around { layer: self.clone(), next }
    }
}

impl<C, K, F, N, Fut, A> Service<C> for Around<K, F, N>
where
    F: Fn(&K, C, &mut N) -> Fut,
    Fut: Future<Output = Result<A, Infallible>>,
{
    type Response = A;
    type Error = Infallible;
    type Future = Fut;

    /// A layer that has to wait does so in its future: a call is answered or refused, and held up nowhere else.
    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, call: C) -> Fut {
        (self.layer.pass)(&self.layer.knows, call, &mut self.next)
    }
}

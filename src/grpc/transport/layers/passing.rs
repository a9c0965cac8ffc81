//! A layer that is one function.

use std::convert::Infallible;
use std::task::{Context, Poll};

use http::Response;
use tonic::body::Body;
use tower::{Layer, Service};

use super::super::answer::AnswerBody;
use super::super::begun::Begun;

/// What takes a call by its headers, and refuses or begins it.
pub(in super::super) trait Answering<C, B>:
    Service<C, Response = Response<AnswerBody>, Error = Infallible, Future = Begun<B>> + Clone + Send + 'static
{
}

impl<C, B, S> Answering<C, B> for S where
    S: Service<C, Response = Response<AnswerBody>, Error = Infallible, Future = Begun<B>> + Clone + Send + 'static
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

/// What one layer does with a call.
pub(super) trait Pass<C, N> {
    type Answer;
    type Future: Future<Output = Result<Self::Answer, Infallible>>;

    /// Refuses the call, or has what is behind this layer take it.
    fn pass(&self, call: C, next: &mut N) -> Self::Future;
}

/// All that a layer knows that needs the call alone.
#[derive(Clone, Debug)]
pub(super) struct Nothing;

/// A layer that is one function of what it knows, of a call, and of what is behind it.
#[derive(Clone, Debug)]
pub(super) struct ByFunction<K, F>(pub(super) K, pub(super) F);

impl<C, N, K, F, Fut, A> Pass<C, N> for ByFunction<K, F>
where
    F: Fn(&K, C, &mut N) -> Fut,
    Fut: Future<Output = Result<A, Infallible>>,
{
    type Answer = A;
    type Future = Fut;

    fn pass(&self, call: C, next: &mut N) -> Fut {
        (self.1)(&self.0, call, next)
    }
}

/// The layer of what passes a call.
#[derive(Clone, Debug)]
pub(super) struct Passing<P>(pub(super) P);

/// What passes a call, around what is behind it.
#[derive(Clone, Debug)]
pub(super) struct Around<P, N> {
    pass: P,
    next: N,
}

impl<P: Clone, N> Layer<N> for Passing<P> {
    type Service = Around<P, N>;

    fn layer(&self, next: N) -> Around<P, N> {
        Around { pass: self.0.clone(), next }
    }
}

impl<C, P: Pass<C, N>, N> Service<C> for Around<P, N> {
    type Response = P::Answer;
    type Error = Infallible;
    type Future = P::Future;

    /// A layer that has to wait does so in its future: a call is answered or refused, and held up nowhere else.
    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, call: C) -> P::Future {
        self.pass.pass(call, &mut self.next)
    }
}

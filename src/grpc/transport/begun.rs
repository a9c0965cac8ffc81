//! A call that was begun, from its headers to its answer.

use std::convert::Infallible;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use http::Response;
use hyper::body::Incoming;
use tokio::time::{Sleep, sleep};
use tonic::body::Body;

use super::answer::{self, AnswerBody};
use super::measured::Measured;
use super::request::RequestBody;

/// A call that was begun. A call that is refused by its headers costs no task's memory: so a flood can be refused.
pub(super) enum Begun<B = Incoming> {
    Refused(Box<Refused<B>>),
    Executed(Pin<Box<dyn Future<Output = Response<AnswerBody>> + Send>>),
    /// The call's signed token is being verified.
    Proving(Pin<Box<dyn Future<Output = Self> + Send>>),
}

impl<B> Begun<B> {
    /// A call that is refused. It is told of now, though its body may still come.
    pub(super) fn refused(answer: Response<Body>, measured: Measured, body: B) -> Self {
        measured.refused(answer.headers());
        let answer = Some(answer::refused(answer));
        Self::Refused(Box::new(Refused { answer, body, left: REFUSED_BYTES_MAX, until: None }))
    }
}

impl<B: RequestBody> Future for Begun<B> {
    type Output = Result<Response<AnswerBody>, Infallible>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        loop {
            match &mut *self {
                Self::Refused(refused) => return refused.poll(cx).map(Ok),
                Self::Executed(call) => return call.as_mut().poll(cx).map(Ok),
                Self::Proving(proving) => *self = ready!(proving.as_mut().poll(cx)),
            }
        }
    }
}

/// A call that is refused. The body is dropped as it comes, and the answer is sent after it: HTTP/2 takes frames for a
/// stream that was answered and forgotten as a fault of their sender, and many such faults end the connection.
pub(super) struct Refused<B> {
    answer: Option<Response<AnswerBody>>,
    body: B,
    left: usize,
    until: Option<Pin<Box<Sleep>>>,
}

/// The bytes of a refused call's body that are waited for, and the time for which they are.
const REFUSED_BYTES_MAX: usize = 64 * 1024;
const REFUSED_WAIT_MAX: Duration = Duration::from_secs(1);

impl<B: RequestBody> Refused<B> {
    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Response<AnswerBody>> {
        loop {
            match Pin::new(&mut self.body).poll_frame(cx) {
                Poll::Ready(Some(Ok(frame))) => {
                    let bytes = frame.data_ref().map_or(0, Bytes::len);
                    match self.left.checked_sub(bytes) {
                        Some(left) => self.left = left,
                        None => break,
                    }
                }
                Poll::Ready(None | Some(Err(_))) => break,
                Poll::Pending => {
                    let until = self.until.get_or_insert_with(|| Box::pin(sleep(REFUSED_WAIT_MAX)));
                    ready!(until.as_mut().poll(cx));
                    break;
                }
            }
        }
        Poll::Ready(self.answer.take().expect("a future is not polled after its end"))
    }
}

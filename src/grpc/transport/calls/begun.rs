//! A call that was begun, from its headers to its answer.

use std::convert::Infallible;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use http::Response;
use http_body::Body as _;
use hyper::body::Incoming;
use tokio::time::{Sleep, sleep};
use tonic::body::Body;

use super::super::answer::{self, Answer};
use super::super::measured::Measured;

/// A call that was begun. A call that is refused by its headers costs no task's memory: so a flood can be refused.
pub(in super::super) enum Begun {
    Refused(Box<Refused>),
    Executed(Pin<Box<dyn Future<Output = Response<Answer>> + Send>>),
    /// The call's signed token is being verified.
    Proving(Pin<Box<dyn Future<Output = Self> + Send>>),
}

impl Begun {
    pub(super) fn refused(answer: Response<Body>, measured: Measured, body: Incoming) -> Self {
        measured.refused(answer.headers());
        Self::Refused(Refused::of(answer, body))
    }
}

impl Future for Begun {
    type Output = Result<Response<Answer>, Infallible>;

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
pub(in super::super) struct Refused {
    answer: Option<Response<Answer>>,
    body: Incoming,
    left: usize,
    until: Option<Pin<Box<Sleep>>>,
}

/// The bytes of a refused call's body that are waited for, and the time for which they are.
const REFUSED_BYTES_MAX: usize = 64 * 1024;
const REFUSED_WAIT_MAX: Duration = Duration::from_secs(1);

impl Refused {
    fn of(answer: Response<Body>, body: Incoming) -> Box<Self> {
        Box::new(Self { answer: Some(answer::refused(answer)), body, left: REFUSED_BYTES_MAX, until: None })
    }

    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Response<Answer>> {
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

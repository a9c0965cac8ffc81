//! The body of an answer, in parts that the peer takes one after the other.
//!
//! hyper takes a part from the body before there is room for it at the peer, and then hands it over whole, however
//! large it is. So parts are small, and every unsent byte is counted for its connection.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use http::{HeaderMap, Response};
use http_body::{Body as _, Frame};
use tonic::Status;
use tonic::body::Body;

use super::peer::{Open, Peer, Unsent};
use super::stall::Sending;

const PART_BYTES_MAX: usize = 16 * 1024;

/// Answers that are not counted: HTTP/2's bound of streams bounds them.
const UNCOUNTED_BYTES: usize = 1024;

/// The body of an answer. The call is open until the body is dropped.
pub(super) struct AnswerBody {
    /// Bytes that were taken from the source, and not yet from here.
    data: Bytes,
    unsent: Option<Unsent>,
    trailers: Option<HeaderMap>,
    source: Option<(Body, Arc<Peer>)>,
    /// Whether the source was asked for its next bytes and may be at work. Such a source is polled however much is
    /// unsent, as it may hold a turn that others wait for.
    asked: bool,
    /// Ends once the peer has taken enough for the source to be asked again.
    until_sent: Option<Pin<Box<dyn Future<Output = ()> + Send>>>,
    sending: Option<Arc<Sending>>,
    open: Option<Open>,
}

/// A refusal, which has no body.
pub(super) fn refused(answer: Response<Body>) -> Response<AnswerBody> {
    answer.map(|_empty| AnswerBody::new(Bytes::new()))
}

/// Makes one answer's body out of what the service gave.
pub(super) async fn whole(
    answer: Response<Body>,
    peer: &Arc<Peer>,
    mut open: Open,
    sending: Arc<Sending>,
) -> Response<AnswerBody> {
    let (head, mut body) = answer.into_parts();
    let (mut data, mut trailers) = (Bytes::new(), None);
    // The service's answer is one message, which is encoded when it is asked for. Asking here lets only its bytes,
    // which are counted, wait for the peer, and not the values that they are made of.
    while let Some(frame) = std::future::poll_fn(|cx| Pin::new(&mut body).poll_frame(cx)).await {
        match frame.map(Frame::into_data) {
            Ok(Ok(bytes)) => data = bytes,
            Ok(Err(frame)) => trailers = frame.into_trailers().ok(),
            Err(status) => {
                trailers = Some(status.into_http::<()>().into_parts().0.headers);
                break;
            }
        }
    }
    let unsent = (data.len() > UNCOUNTED_BYTES).then(|| peer.hold_unsent(data.len()));
    open.measured().told(trailers.as_ref().unwrap_or(&head.headers));
    let answer = AnswerBody { unsent, trailers, sending: Some(sending), open: Some(open), ..AnswerBody::new(data) };
    Response::from_parts(head, answer)
}

/// Makes an answer's body out of a stream.
pub(super) fn stream(
    answer: Response<Body>,
    peer: Arc<Peer>,
    mut open: Open,
    sending: Arc<Sending>,
) -> Response<AnswerBody> {
    let (head, body) = answer.into_parts();
    open.measured().told(&head.headers);
    let source = (!body.is_end_stream()).then_some((body, peer));
    let answer = AnswerBody { source, sending: Some(sending), open: Some(open), ..AnswerBody::new(Bytes::new()) };
    Response::from_parts(head, answer)
}

impl AnswerBody {
    fn new(data: Bytes) -> Self {
        Self {
            data,
            unsent: None,
            trailers: None,
            source: None,
            asked: false,
            until_sent: None,
            sending: None,
            open: None,
        }
    }
}

impl http_body::Body for AnswerBody {
    type Data = Bytes;
    type Error = Status;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
        let me = &mut *self;
        if let Some(sending) = &me.sending {
            sending.asked();
        }
        if me.data.is_empty()
            && let Some((source, peer)) = &mut me.source
        {
            if !me.asked && me.until_sent.is_none() && peer.has_much_unsent() {
                let peer = peer.clone();
                me.until_sent = Some(Box::pin(async move { peer.until_sent().await }));
            }
            if let Some(until_sent) = &mut me.until_sent {
                ready!(until_sent.as_mut().poll(cx));
                me.until_sent = None;
            }
            let polled = Pin::new(source).poll_frame(cx);
            me.asked = polled.is_pending();
            match ready!(polled) {
                None => me.source = None,
                // hyper resets the stream.
                Some(Err(status)) => {
                    if let Some(open) = &mut me.open {
                        open.measured().failed(status.code());
                    }
                    return Poll::Ready(Some(Err(status)));
                }
                Some(Ok(frame)) => match frame.into_data() {
                    // Small parts are counted too: a stream may have many of them unsent.
                    Ok(data) => {
                        me.unsent = Some(peer.hold_unsent(data.len()));
                        me.data = data;
                    }
                    Err(frame) => {
                        me.trailers = frame.into_trailers().ok();
                        if let Some((open, trailers)) = me.open.as_mut().zip(me.trailers.as_ref()) {
                            open.measured().told(trailers);
                        }
                        me.source = None;
                    }
                },
            }
        }
        if !me.data.is_empty() {
            if let Some(sending) = &me.sending {
                sending.handed_over();
            }
            let bytes = me.data.split_to(me.data.len().min(PART_BYTES_MAX));
            let part = match &mut me.unsent {
                Some(unsent) => Bytes::from_owner(CountedBytes { _unsent: unsent.split(bytes.len()), bytes }),
                None => bytes,
            };
            return Poll::Ready(Some(Ok(Frame::data(part))));
        }
        Poll::Ready(me.trailers.take().map(|trailers| Ok(Frame::trailers(trailers))))
    }

    fn is_end_stream(&self) -> bool {
        self.data.is_empty() && self.trailers.is_none() && self.source.is_none()
    }
}

/// A part, counted until h2 has written or dropped it.
struct CountedBytes {
    bytes: Bytes,
    _unsent: Unsent,
}

impl AsRef<[u8]> for CountedBytes {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

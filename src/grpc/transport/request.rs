//! A call's request: received whole, within its bounds, before anything is decoded.
//!
//! Every method of ours takes one message. The message stands in the body behind a flag and its length (gRPC's
//! length-prefixed message), and nothing follows it.

use std::error::Error;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::{Buf as _, Bytes, BytesMut};
use http_body::{Body, Frame};
use hyper::body::Incoming;
use tokio::time::timeout;
use tonic::Status;

use super::peer::{Peer, RequestBytes};
use crate::domain::Violation;
use crate::wire::problem;

/// Bytes of a message. The largest legal one is smaller, as a test holds that builds it from the limits.
pub(in crate::grpc) const MESSAGE_BYTES_MAX: usize = 1024 * 1024;

/// Fields of a message, those inside of others not counted. The longest legal request has some hundreds, and each
/// costs more to decode than the two bytes that it may have on the wire.
const FIELDS_MAX: usize = 1_024;

/// Fields of a list of commands, or of other requests, with those of what it lists. A thousand commands have room for 30
/// each.
const LIST_FIELDS_MAX: usize = 32 * FIELDS_MAX;

/// The flag and the length in front of a message.
const PREFIX_BYTES: usize = 5;

/// Time that a request may take to arrive.
const ARRIVAL_WAIT_MAX: Duration = Duration::from_mins(1);

/// The body of a request, as it comes.
pub(in crate::grpc) trait RequestBody:
    Body<Data = Bytes, Error: Error + Send + Sync + 'static> + Send + Unpin + 'static
{
}

impl<B: Body<Data = Bytes, Error: Error + Send + Sync + 'static> + Send + Unpin + 'static> RequestBody for B {}

/// A request's body, as handlers read it.
#[derive(Debug)]
pub(in crate::grpc) enum Message<B = Incoming> {
    /// One message, received whole; none once it was read.
    Whole(Option<Bytes>),
    /// Messages as they come.
    Stream(B),
}

impl<B> Message<B> {
    /// The bytes that were received of it.
    pub(super) fn bytes(&self) -> usize {
        match self {
            Self::Whole(body) => body.as_ref().map_or(0, Bytes::len),
            Self::Stream(_) => 0,
        }
    }
}

impl<B: RequestBody> Body for Message<B> {
    type Data = Bytes;
    type Error = B::Error;

    fn poll_frame(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, B::Error>>> {
        match self.get_mut() {
            Self::Whole(body) => Poll::Ready(body.take().map(|body| Ok(Frame::data(body)))),
            Self::Stream(body) => Pin::new(body).poll_frame(cx),
        }
    }

    fn is_end_stream(&self) -> bool {
        match self {
            Self::Whole(body) => body.is_none(),
            Self::Stream(body) => body.is_end_stream(),
        }
    }
}

/// Receives a request, and counts its bytes for as long as the second value lives.
///
/// # Errors
///
/// The body is not one message, is too large, or does not come. Where a body breaks off, nobody reads the answer.
pub(super) async fn receive(
    body: impl RequestBody,
    list_levels: usize,
    peer: &Arc<Peer>,
) -> Result<(Bytes, RequestBytes), Status> {
    let arriving = Arriving { body: BytesMut::new(), held: peer.hold_request(), whole_bytes: None, list_levels };
    match timeout(ARRIVAL_WAIT_MAX, arriving.rest(body)).await {
        Ok(received) => received,
        Err(_elapsed) => Err(problem::arrived_too_slowly(ARRIVAL_WAIT_MAX).into()),
    }
}

/// A request of which some has come.
#[derive(Debug)]
struct Arriving {
    body: BytesMut,
    held: RequestBytes,
    /// Known once the prefix has come.
    whole_bytes: Option<usize>,
    /// Whether the message is a list of other methods' requests.
    list_levels: usize,
}

impl Arriving {
    async fn rest(mut self, mut body: impl RequestBody) -> Result<(Bytes, RequestBytes), Status> {
        while let Some(frame) = std::future::poll_fn(|cx| Pin::new(&mut body).poll_frame(cx)).await {
            let frame = frame.map_err(|error| malformed(format!("the body broke off: {error}")))?;
            // Trailers of a request say nothing.
            if let Ok(data) = frame.into_data() {
                self.add(&data)?;
            }
        }
        let Self { body, held, whole_bytes, list_levels } = self;
        match whole_bytes {
            None => Err(malformed("the body has no message")),
            Some(whole) if body.len() < whole => {
                Err(malformed(format!("the body ends after {} of its message's {whole} bytes", body.len())))
            }
            Some(_) => match excess(&body[PREFIX_BYTES..], list_levels) {
                Some(excess) => Err(malformed(excess)),
                None => Ok((body.freeze(), held)),
            },
        }
    }

    /// Copies the data: a slice of a buffer that was read from the socket would keep the whole buffer in memory.
    fn add(&mut self, data: &[u8]) -> Result<(), Status> {
        if !self.held.add(data.len()) {
            return Err(problem::overloaded().into());
        }
        self.body.extend_from_slice(data);
        if self.whole_bytes.is_none() && self.body.len() >= PREFIX_BYTES {
            let mut prefix = &self.body[..];
            let _flag = prefix.get_u8();
            let length = prefix.get_u32() as usize;
            if length > MESSAGE_BYTES_MAX {
                return Err(malformed(format!("is {length} bytes; the limit is {MESSAGE_BYTES_MAX}")));
            }
            self.whole_bytes = Some(PREFIX_BYTES + length);
        }
        match self.whole_bytes {
            Some(whole) if self.body.len() > whole => Err(malformed("something follows the message: a call takes one")),
            Some(_) | None => Ok(()),
        }
    }
}

/// What a message has too much of. Bytes that are no message have no fields: the decoder refuses them.
fn excess(message: &[u8], list_levels: usize) -> Option<String> {
    let (mut left, mut left_of_all) = (FIELDS_MAX, LIST_FIELDS_MAX);
    if !count(message, 0, &mut left) {
        return Some(format!("has more than {FIELDS_MAX} fields"));
    }
    (list_levels > 0 && !count(message, list_levels, &mut left_of_all))
        .then(|| format!("has more than {LIST_FIELDS_MAX} fields, with those of what it lists"))
}

/// Counts the fields of a message, and of the messages that are so many levels within it. False where there are more than
/// are `left`.
fn count(mut message: &[u8], levels: usize, left: &mut usize) -> bool {
    while let Some(inside) = field(&mut message) {
        if *left == 0 {
            return false;
        }
        *left -= 1;
        if levels > 0 && !count(inside, levels - 1, left) {
            return false;
        }
    }
    true
}

/// Goes past one field, whose tag says how its end is found, and gives what is within it.
fn field<'a>(message: &mut &'a [u8]) -> Option<&'a [u8]> {
    let tag = varint(message)?;
    let passed = match tag & 7 {
        0 => return varint(message).map(|_number| [].as_slice()),
        1 => 8,
        2 => usize::try_from(varint(message)?).ok()?,
        5 => 4,
        // The beginning and the end of a group count as fields.
        3 | 4 => 0,
        _ => return None,
    };
    let (within, rest) = message.split_at_checked(passed)?;
    *message = rest;
    Some(if tag & 7 == 2 { within } else { &[] })
}

fn varint(message: &mut &[u8]) -> Option<u64> {
    let mut value = 0;
    for place in 0..10 {
        let byte = *message.split_off_first()?;
        value |= u64::from(byte & 0x7f) << (7 * place);
        if byte < 0x80 {
            return Some(value);
        }
    }
    None
}

fn malformed(description: impl Into<String>) -> Status {
    problem::invalid(vec![Violation::new("request", description.into())]).into()
}

#[cfg(test)]
mod tests {
    use prost::Message as _;

    use super::*;
    use runledger_proto::methods;
    use runledger_proto::v1::{self, StartRunRequest, UpdateRunRequest};

    #[test]
    fn a_message_of_too_many_fields_is_known_before_it_is_decoded() {
        let with = |count: usize| {
            UpdateRunRequest { remove_labels: vec!["k".into(); count], ..UpdateRunRequest::default() }.encode_to_vec()
        };
        assert_eq!(excess(&with(FIELDS_MAX), 0), None);
        assert!(excess(&with(FIELDS_MAX + 1), 0).is_some());
        let mixed = StartRunRequest {
            task_thread_id: "t".repeat(300),
            expected_revision: Some(u64::MAX),
            labels: (0..FIELDS_MAX).map(|n| (n.to_string(), String::new())).collect(),
            ..StartRunRequest::default()
        };
        assert!(excess(&mixed.encode_to_vec(), 0).is_some());
        for noise in [&[][..], &[0xff; 20], &[0x0a, 0xff], &[7; 4_000], &[0x09; 4]] {
            assert_eq!((excess(noise, 0), excess(noise, 2)), (None, None), "{noise:?}");
        }
    }

    #[test]
    fn the_fields_of_what_a_list_has_count_as_those_of_the_list() {
        let update = |fields: usize| v1::RunCommand {
            command: Some(v1::run_command::Command::Update(UpdateRunRequest {
                remove_labels: vec!["k".into(); fields],
                ..UpdateRunRequest::default()
            })),
        };
        let of = |commands: usize, fields: usize| {
            v1::ApplyCommandsRequest { commands: vec![update(fields); commands], view: None }.encode_to_vec()
        };
        let most = LIST_FIELDS_MAX / 1_000 - 2;
        assert_eq!(excess(&of(1_000, most), 2), None);
        assert!(excess(&of(1_000, most + 1), 2).is_some());
        assert!(excess(&of(FIELDS_MAX + 1, 0), 2).is_some());
        // The same field of a command many times over, each of them empty: the last one counts, and all are decoded.
        let repeated = [10, 240, 2].into_iter().chain([10, 0].repeat(184)).collect::<Vec<u8>>();
        let all = repeated.repeat(200);
        assert!(excess(&all, 2).is_some(), "{} bytes", all.len());
    }

    #[test]
    fn what_stands_in_the_texts_of_a_list_counts_as_nothing() {
        let levels = |path: &str| methods::of(path).unwrap().list_levels;
        assert_eq!(levels("/runledger.v1.RunService/ApplyCommands"), 2);
        let of_heartbeats = levels("/runledger.v1.RunService/HeartbeatRuns");
        let lists = methods::METHODS.iter().filter(|method| method.list_levels > 0).count();
        assert_eq!((of_heartbeats, lists), (1, 2), "a list that is new here has texts as well");
        let of = |run_id: String| {
            let progress = Some(v1::Progress { message: run_id.clone(), ..v1::Progress::default() });
            let heartbeat = v1::HeartbeatRunRequest { run_id, lease_epoch: 1, progress };
            v1::HeartbeatRunsRequest { heartbeats: vec![heartbeat; 500] }.encode_to_vec()
        };
        for text in ["h".repeat(128), "80".repeat(64), "\n\0".repeat(64)] {
            assert_eq!(excess(&of(text), of_heartbeats), None);
        }
        let many = [10, 200, 1].into_iter().chain([16, 1].repeat(100)).collect::<Vec<u8>>();
        assert_eq!(excess(&many.repeat(300), of_heartbeats), None);
        assert!(excess(&many.repeat(500), of_heartbeats).is_some());
    }
}

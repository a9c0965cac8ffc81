//! HTTP/2 spoken frame by frame, for what no well-behaved client sends.

use std::net::SocketAddr;
use std::time::Duration;

use bytes::{Buf as _, BytesMut};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::time::timeout;

pub(crate) const MAGIC: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

pub(crate) const DATA: u8 = 0;
pub(crate) const HEADERS: u8 = 1;
pub(crate) const PRIORITY: u8 = 2;
pub(crate) const RST_STREAM: u8 = 3;
pub(crate) const SETTINGS: u8 = 4;
pub(crate) const PING: u8 = 6;
pub(crate) const GOAWAY: u8 = 7;
pub(crate) const WINDOW_UPDATE: u8 = 8;
pub(crate) const CONTINUATION: u8 = 9;

pub(crate) const ACK: u8 = 1;
pub(crate) const END_STREAM: u8 = 1;
pub(crate) const END_HEADERS: u8 = 4;

/// The setting `INITIAL_WINDOW_SIZE` and its greatest value, which is also a window's.
pub(crate) const INITIAL_WINDOW_SIZE: u16 = 4;
pub(crate) const WINDOW_MAX: u32 = 0x7fff_ffff;

/// A frame that was received.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Frame {
    pub(crate) kind: u8,
    pub(crate) flags: u8,
    pub(crate) stream: u32,
    pub(crate) payload: Vec<u8>,
}

/// A frame's bytes.
pub(crate) fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let length = u32::try_from(payload.len()).unwrap().to_be_bytes();
    [&length[1..], &[kind, flags], &stream.to_be_bytes(), payload].concat()
}

/// SETTINGS with these values.
pub(crate) fn settings(values: &[(u16, u32)]) -> Vec<u8> {
    let bytes: Vec<u8> = values
        .iter()
        .flat_map(|(name, value)| [name.to_be_bytes().as_slice(), &value.to_be_bytes()].concat())
        .collect();
    frame(SETTINGS, 0, 0, &bytes)
}

pub(crate) fn window_update(stream: u32, increment: u32) -> Vec<u8> {
    frame(WINDOW_UPDATE, 0, stream, &increment.to_be_bytes())
}

/// The block of a call's headers, all of it literal.
pub(crate) fn header_block(path: &str, more: &[(&str, &str)]) -> Vec<u8> {
    let text = |text: &str| {
        let length = u8::try_from(text.len()).unwrap();
        assert!(length < 127, "one byte says how long it is");
        [&[length], text.as_bytes()].concat()
    };
    // POST and http from the static table, then :path by its number there.
    let mut block = [vec![0x83, 0x86, 0x04], text(path)].concat();
    let usual = [("content-type", "application/grpc"), ("te", "trailers")];
    let given = |name: &str| more.iter().any(|(other, _)| *other == name);
    for (name, value) in usual.iter().filter(|(name, _)| !given(name)).chain(more) {
        block.push(0);
        block.extend([text(name), text(value)].concat());
    }
    block
}

/// The headers of a call.
pub(crate) fn headers(stream: u32, path: &str) -> Vec<u8> {
    frame(HEADERS, END_HEADERS, stream, &header_block(path, &[]))
}

/// A message as the body has it: uncompressed, after its length.
pub(crate) fn body(message: &[u8]) -> Vec<u8> {
    let length = u32::try_from(message.len()).unwrap().to_be_bytes();
    [&[0], length.as_slice(), message].concat()
}

/// A whole call: its headers and its one message, encoded.
pub(crate) fn call(stream: u32, path: &str, message: &[u8]) -> Vec<u8> {
    let mut bytes = headers(stream, path);
    let body = body(message);
    let mut parts = body.chunks(16_384).peekable();
    while let Some(part) = parts.next() {
        bytes.extend(frame(DATA, if parts.peek().is_none() { END_STREAM } else { 0 }, stream, part));
    }
    bytes
}

/// A connection.
pub(crate) struct Connection {
    pub(crate) reader: Reader,
    pub(crate) writer: OwnedWriteHalf,
}

/// The reader of a connection's frames, as they come.
pub(crate) struct Reader {
    stream: OwnedReadHalf,
    read: BytesMut,
}

impl Connection {
    /// Connects and says the preface, with these settings and a window of all there is.
    pub(crate) async fn open(address: SocketAddr, values: &[(u16, u32)]) -> Self {
        let stream = TcpStream::connect(address).await.unwrap();
        stream.set_nodelay(true).unwrap();
        let (reader, mut writer) = stream.into_split();
        let opening = [MAGIC, &settings(values), &window_update(0, WINDOW_MAX - 65_535)].concat();
        let (mut reader, _sent) = (Reader { stream: reader, read: BytesMut::new() }, writer.write_all(&opening).await);
        // The client's windows are in force once its settings were acknowledged.
        let _theirs = reader.until(Duration::from_secs(5), |frame| frame.kind == SETTINGS).await;
        let _sent = writer.write_all(&frame(SETTINGS, ACK, 0, &[])).await;
        Self { reader, writer }
    }

    /// Sends bytes. False once the connection is closed.
    pub(crate) async fn send(&mut self, bytes: &[u8]) -> bool {
        self.writer.write_all(bytes).await.is_ok()
    }
}

impl Reader {
    /// The next frame; none once the connection is closed. Bytes that were read are kept when the future is dropped.
    pub(crate) async fn next(&mut self) -> Option<Frame> {
        loop {
            if let [l0, l1, l2, kind, flags, s0, s1, s2, s3, rest @ ..] = &self.read[..] {
                let length = usize::try_from(u32::from_be_bytes([0, *l0, *l1, *l2])).unwrap();
                if rest.len() >= length {
                    let (kind, flags, stream) = (*kind, *flags, u32::from_be_bytes([*s0, *s1, *s2, *s3]));
                    self.read.advance(9);
                    return Some(Frame { kind, flags, stream, payload: self.read.split_to(length).into() });
                }
            }
            if self.stream.read_buf(&mut self.read).await.ok()? == 0 {
                return None;
            }
        }
    }

    /// The next frame that `wanted` likes, within a time.
    pub(crate) async fn until(&mut self, wait_max: Duration, wanted: impl Fn(&Frame) -> bool) -> Option<Frame> {
        let found = async {
            loop {
                let frame = self.next().await?;
                if wanted(&frame) {
                    return Some(frame);
                }
            }
        };
        timeout(wait_max, found).await.ok().flatten()
    }
}

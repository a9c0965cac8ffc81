//! The beginning of a connection: HTTP/2's preface and the head of the client's first SETTINGS frame (RFC 9113, section
//! 3.4).
//!
//! hyper waits for them without a bound, so they are read before hyper sees the connection, and replayed to it.

use std::io;

use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite};

use super::rejection;

/// The first bytes that every HTTP/2 client sends.
const MAGIC: &[u8; 24] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// The head of a frame: length, type, flags, stream.
const HEAD_BYTES: usize = 9;

/// The number of the type SETTINGS.
const SETTINGS: u8 = 4;

/// The bytes that a connection began with.
pub(super) type Preface = [u8; MAGIC.len() + HEAD_BYTES];

/// Reads the preface. An error says what came instead.
pub(super) async fn read(socket: &mut (impl AsyncRead + AsyncWrite + Unpin)) -> io::Result<Preface> {
    let mut preface: Preface = [0; _];
    let mut filled = 0;
    while filled < preface.len() {
        match socket.read(&mut preface[filled..]).await? {
            0 => return Err(wrong("the connection was closed before HTTP/2's preface")),
            read => filled += read,
        }
        let magic = filled.min(MAGIC.len());
        if preface[..magic] != MAGIC[..magic] {
            if preface[0].is_ascii_uppercase() {
                // Such as a browser or a probe.
                rejection::http_1(socket, "This port speaks gRPC, over HTTP/2 without an upgrade from HTTP/1.").await?;
            }
            return Err(wrong("it does not begin with HTTP/2's preface"));
        }
    }
    let [_, _, _, kind, _, stream @ ..]: &[u8; HEAD_BYTES] = preface.last_chunk().expect("the head comes last");
    if *kind != SETTINGS || *stream != [0; 4] {
        return Err(wrong("its first frame is not SETTINGS"));
    }
    Ok(preface)
}

fn wrong(what: &'static str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, what)
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncWriteExt as _, duplex};

    use super::*;

    /// The result of reading these bytes, and the answer to them.
    async fn sent(bytes: &[u8]) -> (io::Result<Preface>, String) {
        let (mut client, mut server) = duplex(1024);
        client.write_all(bytes).await.unwrap();
        client.shutdown().await.unwrap();
        let read = read(&mut server).await;
        drop(server);
        let mut answer = String::new();
        client.read_to_string(&mut answer).await.unwrap();
        (read, answer)
    }

    #[tokio::test]
    async fn a_preface_with_its_settings_is_read_and_kept() {
        let whole = [MAGIC.as_slice(), &[0, 0, 0, SETTINGS, 0, 0, 0, 0, 0]].concat();
        let (read, answer) = sent(&whole).await;
        assert_eq!((read.unwrap().as_slice(), answer.as_str()), (whole.as_slice(), ""));
    }

    #[tokio::test]
    async fn what_is_not_http_2_is_refused_by_name() {
        let other = [MAGIC.as_slice(), &[0, 0, 8, 6, 0, 0, 0, 0, 0]].concat();
        for (bytes, reason) in [
            (MAGIC.as_slice(), "closed before"),
            (b"", "closed before"),
            (&other, "not SETTINGS"),
            (b"\x16\x03\x01\x02\x00", "does not begin"),
            (b"GET /livez HTTP/1.1\r\n\r\n", "does not begin"),
        ] {
            let (read, answer) = sent(bytes).await;
            assert!(read.unwrap_err().to_string().contains(reason), "{bytes:?}");
            assert_eq!(answer.starts_with("HTTP/1.1 505 "), bytes.starts_with(b"GET"), "{bytes:?}");
        }
    }
}

//! The last words to a peer whose connection is not taken, in a form that it can read.

use std::io;
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::time::timeout;

/// Time, and bytes of the peer's, for which the connection stays open after the last words.
const LINGER_MAX: Duration = Duration::from_secs(1);
const LINGER_BYTES_MAX: u64 = 64 * 1024;

/// HTTP/2's error code `INADEQUATE_SECURITY`.
const INADEQUATE_SECURITY: u32 = 0xc;

/// Says goodbye to a peer that speaks HTTP/1, or that waits for something else than HTTP/2 and shows what comes.
pub(super) async fn http_1(socket: &mut (impl AsyncRead + AsyncWrite + Unpin), sentence: &str) -> io::Result<()> {
    let head = "HTTP/1.1 505 HTTP Version Not Supported\r\ncontent-type: text/plain\r\nconnection: close\r\n\r\n";
    say(socket, format!("{head}{sentence}\n").as_bytes()).await
}

/// Says goodbye to a peer that should have begun with TLS, as every TLS server does: by an alert in plain text, which
/// HTTP/2 is not. So clients fail at once, and those who look at what came know why.
pub(super) async fn tls(socket: &mut (impl AsyncRead + AsyncWrite + Unpin)) -> io::Result<()> {
    const ALERT: u8 = 0x15;
    const FATAL: u8 = 2;
    const UNEXPECTED_MESSAGE: u8 = 10;
    say(socket, &[ALERT, 3, 3, 0, 2, FATAL, UNEXPECTED_MESSAGE]).await
}

/// Says goodbye to a peer that speaks HTTP/2, by SETTINGS and a GOAWAY that says why.
pub(super) async fn http_2(socket: &mut (impl AsyncRead + AsyncWrite + Unpin), sentence: &str) -> io::Result<()> {
    let settings = [0, 0, 0, 4, 0, 0, 0, 0, 0];
    let length = u32::try_from(8 + sentence.len()).expect("a sentence is short").to_be_bytes();
    let head = [length[1], length[2], length[3], 7, 0, 0, 0, 0, 0];
    let (last_stream, code) = ([0; 4], INADEQUATE_SECURITY.to_be_bytes());
    say(socket, &[&settings[..], &head, &last_stream, &code, sentence.as_bytes()].concat()).await
}

async fn say(socket: &mut (impl AsyncRead + AsyncWrite + Unpin), bytes: &[u8]) -> io::Result<()> {
    socket.write_all(bytes).await?;
    socket.shutdown().await?;
    linger(socket).await;
    Ok(())
}

/// Reads what the peer still sends, for a moment. A socket that is closed with bytes unread resets its connection, and
/// the peer may then lose what was said to it.
pub(super) async fn linger(socket: &mut (impl AsyncRead + Unpin)) {
    let mut left = socket.take(LINGER_BYTES_MAX);
    let _over = timeout(LINGER_MAX, tokio::io::copy(&mut left, &mut tokio::io::sink())).await;
}

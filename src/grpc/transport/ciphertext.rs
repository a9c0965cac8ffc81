//! A client's socket below TLS.
//!
//! TLS reads on for as long as what it reads makes no plaintext: empty records would keep one connection's turn for ever.
//! So the bytes of records count for the connection's quantum, as those of frames do.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;

use super::read_quantum::Quantum;

/// See the module.
#[derive(Debug)]
pub(super) struct Ciphertext {
    stream: TcpStream,
    quantum: Quantum,
}

impl Ciphertext {
    pub(super) fn new(stream: TcpStream, quantum: Quantum) -> Self {
        Self { stream, quantum }
    }

    pub(super) fn into_inner(self) -> TcpStream {
        self.stream
    }
}

impl AsyncRead for Ciphertext {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let left = self.quantum.left();
        if left == 0 {
            cx.waker().wake_by_ref();
            return Poll::Pending;
        }
        let mut part = ReadBuf::new(buffer.initialize_unfilled_to(left.min(buffer.remaining())));
        ready!(Pin::new(&mut self.stream).poll_read(cx, &mut part))?;
        let count = part.filled().len();
        self.quantum.take(count);
        buffer.advance(count);
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for Ciphertext {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(cx, bytes)
    }

    // Records are written together: they are no messages, whose ends `Socket` keeps together.
    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        parts: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write_vectored(cx, parts)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}

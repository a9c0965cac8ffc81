//! A client's socket, as hyper reads and writes it.

use std::io;
use std::mem::MaybeUninit;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Instant, Sleep, sleep};

use super::preface::Preface;
use super::rate_limit::{Frames, RateLimit};
use super::read_quantum::Quantum;

/// Time that a write may wait for a peer that takes nothing.
const WRITE_WAIT_MAX: Duration = Duration::from_mins(1);

/// Time for which a connection that was ended waits for the next bytes of its peer, and in all.
const LINGER_SILENT_MAX: Duration = Duration::from_secs(3);
const LINGER_MAX: Duration = Duration::from_secs(16);

/// Bytes that such a peer may say: it says how much it has taken, and nothing else is for anybody.
const LINGER_BYTES_MAX: usize = 256 * 1024;

/// See the module. The socket replays the preface, reads and writes by quanta, reads at a [`RateLimit`], and gives up
/// on a peer that takes nothing.
///
/// Writes go without scatter and gather. With it, h2 writes a message of 256 bytes or more by itself, and the answer's
/// trailers in a second write, which costs both sides a wake-up. Without it, messages below 1 KiB go out together with
/// the frames around them. Longer ones take a write more, for the nine bytes in front of them.
#[derive(Debug)]
pub(super) struct Socket<S> {
    stream: S,
    preface: Preface,
    replayed: usize,
    quantum: Quantum,
    rate_limit: RateLimit,
    pausing: Option<Pin<Box<Sleep>>>,
    stalled: Option<Pin<Box<Sleep>>>,
    lingering: Option<Lingering>,
}

/// The wait for the peer of a connection that was ended.
#[derive(Debug)]
struct Lingering {
    until: Instant,
    bytes_left: usize,
    silent: Pin<Box<Sleep>>,
}

impl<S> Socket<S> {
    /// A socket whose preface was read.
    pub(super) fn new(stream: S, preface: Preface, quantum: Quantum) -> Self {
        let head = preface.last_chunk().expect("the preface ends with a frame's head");
        let rate_limit = RateLimit::new(Frames::after_head(*head));
        let (pausing, stalled, lingering) = (None, None, None);
        Self { stream, preface, replayed: 0, quantum, rate_limit, pausing, stalled, lingering }
    }

    /// Passes on the result of a write, unless the write has waited for too long.
    fn written<T>(&mut self, cx: &mut Context<'_>, written: Poll<io::Result<T>>) -> Poll<io::Result<T>> {
        if written.is_ready() {
            self.stalled = None;
            return written;
        }
        let stalled = self.stalled.get_or_insert_with(|| Box::pin(sleep(WRITE_WAIT_MAX)));
        ready!(stalled.as_mut().poll(cx));
        Poll::Ready(Err(io::Error::new(io::ErrorKind::TimedOut, "the peer takes nothing")))
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Socket<S> {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let me = &mut *self;
        if me.replayed < me.preface.len() {
            let left = &me.preface[me.replayed..];
            let count = left.len().min(buffer.remaining());
            buffer.put_slice(&left[..count]);
            me.replayed += count;
            return Poll::Ready(Ok(()));
        }
        if let Some(pausing) = &mut me.pausing {
            ready!(pausing.as_mut().poll(cx));
            me.pausing = None;
        }
        let left = me.quantum.left();
        if left == 0 {
            cx.waker().wake_by_ref();
            return Poll::Pending;
        }
        let mut part = ReadBuf::new(buffer.initialize_unfilled_to(left.min(buffer.remaining())));
        ready!(Pin::new(&mut me.stream).poll_read(cx, &mut part))?;
        let count = part.filled().len();
        me.rate_limit.read(part.filled());
        me.quantum.take(count);
        buffer.advance(count);
        if let Some(pause) = me.rate_limit.pause() {
            me.pausing = Some(Box::pin(sleep(pause)));
        }
        Poll::Ready(Ok(()))
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> AsyncWrite for Socket<S> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let left = self.quantum.to_write();
        if left == 0 {
            cx.waker().wake_by_ref();
            return Poll::Pending;
        }
        let bytes = &bytes[..bytes.len().min(left)];
        let written = Pin::new(&mut self.stream).poll_write(cx, bytes);
        if let Poll::Ready(Ok(count)) = &written {
            self.rate_limit.wrote(&bytes[..*count]);
            self.quantum.wrote(*count);
        }
        self.written(cx, written)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let flushed = Pin::new(&mut self.stream).poll_flush(cx);
        self.written(cx, flushed)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let me = &mut *self;
        if me.lingering.is_none() {
            ready!(Pin::new(&mut me.stream).poll_shutdown(cx))?;
            me.quantum.ends();
            let until = Instant::now() + LINGER_MAX;
            let (bytes_left, silent) = (LINGER_BYTES_MAX, Box::pin(sleep(LINGER_SILENT_MAX)));
            me.lingering = Some(Lingering { until, bytes_left, silent });
        }
        me.poll_gone(cx).map(Ok)
    }
}

impl<S: AsyncRead + Unpin> Socket<S> {
    /// Waits until the peer has taken everything and gone, or takes nothing any more. What a peer says while it takes comes
    /// for nobody; but a socket that is closed before it came takes back what the kernel has still to send.
    fn poll_gone(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let Some(Lingering { until, bytes_left, silent }) = &mut self.lingering else { return Poll::Ready(()) };
        while *bytes_left > 0 && Instant::now() < *until {
            if self.quantum.left() == 0 {
                cx.waker().wake_by_ref();
                return Poll::Pending;
            }
            let mut bytes = [MaybeUninit::uninit(); 1024];
            let mut buffer = ReadBuf::uninit(&mut bytes);
            match Pin::new(&mut self.stream).poll_read(cx, &mut buffer) {
                Poll::Ready(Ok(())) if !buffer.filled().is_empty() => {
                    let count = buffer.filled().len();
                    self.quantum.take(count);
                    *bytes_left = bytes_left.saturating_sub(count);
                    silent.as_mut().reset((Instant::now() + LINGER_SILENT_MAX).min(*until));
                }
                Poll::Ready(_gone) => return Poll::Ready(()),
                Poll::Pending => return silent.as_mut().poll(cx),
            }
        }
        Poll::Ready(())
    }
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;
    use std::pin::pin;
    use std::sync::Arc;

    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, duplex};

    use super::*;

    const PREFACE: Preface = *b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0";

    #[tokio::test(start_paused = true)]
    async fn a_peer_that_takes_nothing_is_given_up_after_a_minute() {
        let (_peer, ours) = duplex(1_000);
        let mut socket = Socket::new(ours, PREFACE, Quantum::new(Arc::default()));
        let begun = Instant::now();
        let error = socket.write_all(&[7; 10_000]).await.unwrap_err();
        assert_eq!((error.kind(), begun.elapsed()), (io::ErrorKind::TimedOut, WRITE_WAIT_MAX));
    }

    #[tokio::test(start_paused = true)]
    async fn an_ended_connection_stays_while_its_peer_takes_something_and_not_for_ever() {
        for (says_for, stays) in [(0, 3), (8, 11), (60, 16)] {
            let (mut peer, ours) = duplex(1_000);
            let quantum = Quantum::new(Arc::default());
            let mut socket = Socket::new(ours, PREFACE, quantum.clone());
            let begun = Instant::now();
            let peer = async {
                for _ in 0..says_for {
                    sleep(Duration::from_secs(1)).await;
                    peer.write_all(&[0; 13]).await.unwrap();
                }
                std::future::pending::<()>().await;
            };
            let mut ending = pin!(socket.shutdown());
            tokio::select! {
                () = peer => {}
                ended = quantum.pace(ending.as_mut()) => ended.unwrap(),
            }
            assert_eq!(begun.elapsed().as_secs(), stays, "{says_for}");
            assert!(quantum.is_ended());
        }
    }

    #[tokio::test(start_paused = true)]
    async fn an_ended_connection_whose_peer_floods_is_read_for_a_moment() {
        let (mut peer, ours) = duplex(1_000);
        let quantum = Quantum::new(Arc::default());
        let mut socket = Socket::new(ours, PREFACE, quantum.clone());
        let (mut said, begun) = (0, Instant::now());
        let mut ending = pin!(socket.shutdown());
        tokio::select! {
            ended = quantum.pace(ending.as_mut()) => ended.unwrap(),
            () = async {
                while peer.write_all(&[0; 1_000]).await.is_ok() {
                    said += 1_000;
                }
            } => {}
        }
        assert!(said <= LINGER_BYTES_MAX + 4_000, "{said}");
        assert_eq!(begun.elapsed(), Duration::ZERO);
    }

    #[tokio::test(start_paused = true)]
    async fn an_ended_connection_whose_peer_goes_is_gone_at_once() {
        let (peer, ours) = duplex(1_000);
        let mut socket = Socket::new(ours, PREFACE, Quantum::new(Arc::default()));
        drop(peer);
        let begun = Instant::now();
        socket.shutdown().await.unwrap();
        assert_eq!(begun.elapsed(), Duration::ZERO);
    }

    #[tokio::test]
    async fn what_is_written_goes_out_whole_and_in_turns() {
        let (mut peer, ours) = duplex(1_000_000);
        let quantum = Quantum::new(Arc::default());
        let mut socket = Socket::new(ours, PREFACE, quantum.clone());
        let bytes: Vec<u8> = (0..500_000_u32).map(|nth| nth.to_le_bytes()[nth as usize % 4]).collect();
        let mut turns = 0;
        let mut writing = pin!(socket.write_all(&bytes));
        let mut in_turns = pin!(poll_fn(|cx| {
            turns += 1;
            writing.as_mut().poll(cx)
        }));
        quantum.pace(in_turns.as_mut()).await.unwrap();
        let mut taken = vec![0; bytes.len()];
        peer.read_exact(&mut taken).await.unwrap();
        assert!(taken == bytes);
        assert!(turns >= 7, "{turns}");
    }

    #[tokio::test]
    async fn the_preface_comes_first_and_all_that_follows_after_it() {
        let (mut peer, ours) = duplex(100_000);
        let quantum = Quantum::new(Arc::default());
        let mut socket = Socket::new(ours, PREFACE, quantum.clone());
        // One DATA frame after the other, each larger than a quantum.
        let frames = [&[0, 0x28, 0, 0, 0, 0, 0, 0, 1], [9; 0x2800].as_slice()].concat().repeat(5);
        peer.write_all(&frames).await.unwrap();
        drop(peer);
        let mut read = Vec::new();
        let mut turns = 0;
        let mut reading = pin!(socket.read_to_end(&mut read));
        let mut in_turns = pin!(poll_fn(|cx| {
            turns += 1;
            reading.as_mut().poll(cx)
        }));
        quantum.pace(in_turns.as_mut()).await.unwrap();
        assert!(read == [PREFACE.as_slice(), &frames].concat());
        assert!(turns >= 5, "{turns}");
    }
}

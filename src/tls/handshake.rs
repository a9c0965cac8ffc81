//! Handshakes, and their turns to compute.
//!
//! A handshake costs a signature and a key exchange: with an RSA key, as much as some dozens of calls. Thousands of
//! clients that come together, or that say hello and no more, would let every call wait for all of them. So a handshake
//! takes a turn each time that it has something to compute, and half of the processors have turns: a call waits for a
//! few handshakes, however many there are.
//!
//! A turn is held while bytes that have come are worked on, and not while more of them are waited for. So a client that
//! falls silent in the middle of its hello holds no turn: it holds its connection's place, until its time is over.

use std::future::poll_fn;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::Poll;

use thiserror::Error;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::Semaphore;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;

use super::certificate::Unnamed;
use super::offer::PROTOCOL;
use super::{ClientCertificate, Guard, Tls};

/// Bytes of records that are not written yet: above, a write waits.
const UNWRITTEN_BYTES_MAX: usize = 16 * 1024;

/// Bytes of a client's chain. The chain is kept for as long as the client is connected.
const CHAIN_BYTES_MAX: usize = 16 * 1024;

/// A connection that speaks TLS.
pub struct Secured<S> {
    /// The connection.
    pub stream: TlsStream<S>,
    /// The client, where it has shown a certificate.
    pub client: Option<Client>,
}

/// A client that has shown a certificate.
pub struct Client {
    /// Who it is.
    pub certificate: ClientCertificate,
    /// The end of the trust in it.
    pub guard: Guard,
}

/// The reason why a connection is not taken.
#[derive(Debug, Error)]
pub enum Refused<S> {
    /// The handshake failed. The peer was told so, where that was possible.
    #[error("the TLS handshake failed")]
    Handshake {
        /// The reason.
        source: io::Error,
        /// The connection below TLS.
        stream: S,
    },
    /// The client does not ask for HTTP/2.
    #[error("the client does not offer h2 (ALPN)")]
    NoProtocol(Box<TlsStream<S>>),
    /// The client's chain takes too much room.
    #[error("the client's chain of certificates is longer than 16 KiB")]
    LongChain(Box<TlsStream<S>>),
    /// The certificate verifies, and does not name a client.
    #[error("{why}")]
    Unnamed {
        /// The reason.
        why: String,
        /// The connection.
        stream: Box<TlsStream<S>>,
    },
}

/// The number of handshakes that may compute at once.
pub(super) fn turns() -> usize {
    std::thread::available_parallelism().map_or(1, |processors| (processors.get() / 2).max(1))
}

impl Tls {
    /// Makes the handshake on a new connection, by what is offered now. Takes as long as the client does.
    ///
    /// # Errors
    ///
    /// The reason why the connection is not taken.
    pub async fn accept<S: AsyncRead + AsyncWrite + Unpin>(&self, stream: S) -> Result<Secured<S>, Refused<S>> {
        let mut changes = self.offer.subscribe();
        let offer = changes.borrow_and_update().clone();
        let begun = self.clock.now();
        let acceptor = TlsAcceptor::from(offer.server.clone());
        let accept = acceptor.accept_with(stream, |session| session.set_buffer_limit(Some(UNWRITTEN_BYTES_MAX)));
        let accepted = in_turns(&self.turns, accept.into_fallible()).await;
        let stream = accepted.map_err(|(source, stream)| Refused::Handshake { source, stream })?;
        let (_, session) = stream.get_ref();
        if session.alpn_protocol() != Some(PROTOCOL) {
            return Err(Refused::NoProtocol(Box::new(stream)));
        }
        let Some(chain) = session.peer_certificates().filter(|chain| !chain.is_empty()) else {
            return Ok(Secured { stream, client: None });
        };
        if chain.iter().map(|certificate| certificate.len()).sum::<usize>() > CHAIN_BYTES_MAX {
            return Err(Refused::LongChain(Box::new(stream)));
        }
        let certificate = match ClientCertificate::read(&chain[0]) {
            Ok(certificate) => certificate,
            Err(why) => return Err(unnamed(why, stream)),
        };
        let guard = Guard::new(chain.to_vec(), begun, &offer, changes, self.turns.clone(), self.clock.clone());
        Ok(Secured { stream, client: Some(Client { certificate, guard }) })
    }
}

fn unnamed<S>(why: Unnamed, stream: TlsStream<S>) -> Refused<S> {
    Refused::Unnamed { why: why.to_string(), stream: Box::new(stream) }
}

/// Polls a future to its end, and takes a turn for each poll.
async fn in_turns<F: Future + Unpin>(turns: &Arc<Semaphore>, mut computing: F) -> F::Output {
    loop {
        let turn = turns.acquire().await.expect("never closed");
        let polled = poll_fn(|cx| Poll::Ready(Pin::new(&mut computing).poll(cx))).await;
        drop(turn);
        if let Poll::Ready(output) = polled {
            return output;
        }
        woken().await;
    }
}

/// Ends when the task is woken. What was polled before has this task's waker.
async fn woken() {
    let mut is_woken = false;
    poll_fn(|_| if std::mem::replace(&mut is_woken, true) { Poll::Ready(()) } else { Poll::Pending }).await;
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::task::{Context, Waker};

    use tokio::sync::oneshot;

    use super::*;

    #[test]
    fn a_handshake_that_waits_for_its_client_holds_no_turn() {
        let turns = Arc::new(Semaphore::new(1));
        let mut cx = Context::from_waker(Waker::noop());
        let (_silent, hello) = oneshot::channel::<()>();
        let mut silent = Box::pin(in_turns(&turns, hello));
        assert!(silent.as_mut().poll(&mut cx).is_pending());
        assert_eq!(turns.available_permits(), 1);
        let (honest, hello) = oneshot::channel();
        let mut other = Box::pin(in_turns(&turns, hello));
        assert!(other.as_mut().poll(&mut cx).is_pending());
        honest.send(()).unwrap();
        assert!(other.as_mut().poll(&mut cx).is_ready());
    }

    #[test]
    fn a_handshake_computes_only_in_its_turn() {
        let turns = Arc::new(Semaphore::new(1));
        let mut cx = Context::from_waker(Waker::noop());
        let polls = Cell::new(0);
        let mut handshake = Box::pin(in_turns(
            &turns,
            poll_fn(|_| {
                polls.set(polls.get() + 1);
                if polls.get() < 2 { Poll::Pending } else { Poll::Ready(()) }
            }),
        ));
        let busy = turns.try_acquire().unwrap();
        assert!(handshake.as_mut().poll(&mut cx).is_pending());
        assert!(handshake.as_mut().poll(&mut cx).is_pending());
        assert_eq!(polls.get(), 0);
        drop(busy);
        assert!(handshake.as_mut().poll(&mut cx).is_pending());
        assert_eq!(polls.get(), 1);
        assert!(handshake.as_mut().poll(&mut cx).is_ready());
    }
}

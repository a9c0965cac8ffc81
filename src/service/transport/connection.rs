//! One connection, from its preface to its end.

use std::error::Error as _;
use std::net::SocketAddr;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use hyper::server::conn::http2;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::net::TcpStream;
use tokio::sync::Notify;
use tokio::time::{Instant, sleep, sleep_until, timeout};
use tokio_util::sync::CancellationToken;

use super::super::routes::Routes;
use super::calls::Calls;
use super::peer::Peer;
use super::preface;
use super::progress::Streams;
use super::socket::Socket;
use super::usage::Usage;
use crate::telemetry::chain;

/// How long a connection may take to begin.
const BEGIN_WAIT_MAX: Duration = Duration::from_secs(10);

/// A connection that says nothing is asked this often whether it is still there.
const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(30);

/// A connection that does not answer is closed after this.
const KEEPALIVE_WAIT_MAX: Duration = Duration::from_secs(20);

/// Calls and watches on one connection at most; what is above waits for its turn at the client.
const STREAMS_MAX: u32 = 1024;

/// Streams that were given up before they were looked at: more of them at once end the connection. Clients that give up
/// many calls together have some hundreds.
const UNSEEN_RESETS_MAX: usize = 512;

/// Streams that this side had to reset because they broke HTTP/2's rules: more of them end the connection.
const FAULTS_MAX: usize = 1024;

/// Bytes of one stream that wait at the socket.
const SEND_BUFFER_BYTES: usize = 64 * 1024;

/// Bytes of a call's headers.
const HEADERS_BYTES_MAX: u32 = 16 * 1024;

/// How long a connection that was told to close may take.
pub(super) const GRACE: Duration = Duration::from_secs(60);

/// How long a connection without a call stays while others wait for its place.
const CROWDED_IDLE_MAX: Duration = Duration::from_secs(10);

/// How long connections last.
#[derive(Clone, Copy, Debug)]
pub struct Lifetime {
    /// Without a call.
    pub idle_max: Duration,
    /// In all, give or take a tenth.
    pub age_max: Duration,
}

/// A connection that was accepted.
pub(super) struct Accepted {
    pub(super) stream: TcpStream,
    pub(super) address: SocketAddr,
    pub(super) lifetime: Lifetime,
    /// Cancelled once the service stops.
    pub(super) stop: CancellationToken,
}

impl Accepted {
    /// Serves it to its end. `crowded` wakes when others wait for a place: then a connection that is idle leaves sooner.
    pub(super) async fn serve(self, routes: Routes, usage: Arc<Usage>, crowded: Arc<Notify>) {
        let Self { mut stream, address, lifetime, stop } = self;
        let begun = tokio::select! {
            biased;
            () = stop.cancelled() => return,
            begun = timeout(BEGIN_WAIT_MAX, preface::read(&mut stream)) => begun,
        };
        let preface = match begun {
            Ok(Ok(preface)) => preface,
            Ok(Err(error)) => return tracing::debug!(%address, %error, "a connection did not begin"),
            Err(_elapsed) => return tracing::debug!(%address, "a connection did not begin in time"),
        };
        let aged_at = Instant::now() + spread(lifetime.age_max, address);
        let peer = Peer::new(address, aged_at + GRACE / 2, usage);
        let streams = Streams::default();
        let calls = Calls { routes, peer: peer.clone(), streams: streams.clone() };
        let served = builder(streams).serve_connection(TokioIo::new(Socket::new(stream, preface)), calls);
        let mut served = pin!(served);
        let told_to_close = async {
            tokio::select! {
                biased;
                () = stop.cancelled() => {}
                () = sleep_until(aged_at) => {}
                () = idle(&peer, lifetime.idle_max, &crowded) => {}
            }
        };
        let ended = tokio::select! {
            biased;
            () = peer.until_cut() => return,
            ended = &mut served => ended,
            () = told_to_close => {
                served.as_mut().graceful_shutdown();
                tokio::select! {
                    biased;
                    () = peer.until_cut() => return,
                    () = sleep(GRACE) => return tracing::debug!(%address, "a connection that did not close is cut"),
                    ended = &mut served => ended,
                }
            }
        };
        if let Err(error) = ended {
            tell(address, &error);
        }
    }
}

/// A tenth more or less, so that connections that came together do not leave together. By the port, which is another one
/// for each of them.
fn spread(age: Duration, address: SocketAddr) -> Duration {
    age.mul_f64(0.9 + f64::from(address.port() % 201) / 1_000.0)
}

/// Ends once the connection had no call for as long as it may, or is idle while others wait for its place.
async fn idle(peer: &Peer, idle_max: Duration, crowded: &Notify) {
    loop {
        let before = peer.idle_after();
        let wait = sleep(idle_max);
        let others_wait = async {
            crowded.notified().await;
            sleep(CROWDED_IDLE_MAX.min(idle_max)).await;
        };
        tokio::select! {
            () = wait => {}
            () = others_wait => {}
        }
        if before.is_some() && peer.idle_after() == before {
            return;
        }
    }
}

fn builder(streams: Streams) -> http2::Builder<Streams> {
    let mut builder = http2::Builder::new(streams);
    builder
        .timer(TokioTimer::new())
        .auto_date_header(false)
        .keep_alive_interval(KEEPALIVE_INTERVAL)
        .keep_alive_timeout(KEEPALIVE_WAIT_MAX)
        .max_concurrent_streams(STREAMS_MAX)
        .max_pending_accept_reset_streams(UNSEEN_RESETS_MAX)
        .max_local_error_reset_streams(FAULTS_MAX)
        .max_send_buf_size(SEND_BUFFER_BYTES)
        .max_header_list_size(HEADERS_BYTES_MAX);
    builder
}

/// Says why a connection ended. That the network or the peer ended it is nothing to be told of; what this side ended it for
/// is, but a peer that comes back again and again is not to fill the log.
fn tell(address: SocketAddr, error: &hyper::Error) {
    let fault = error.source().and_then(|source| source.downcast_ref::<h2::Error>());
    match fault {
        Some(fault) if fault.is_library() && fault.is_go_away() => {
            tracing::debug!(%address, reason = ?fault.reason(), "a connection was closed: it broke HTTP/2's rules");
        }
        Some(_) | None => tracing::debug!(%address, error = chain(error), "a connection ended"),
    }
}

//! One connection, from its preface to its end.

use std::cell::RefCell;
use std::error::Error as _;
use std::future::pending;
use std::io;
use std::net::SocketAddr;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use http::Request;
use hyper::body::Incoming;
use hyper::server::conn::http2;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::net::TcpStream;
use tokio::sync::watch;
use tokio::time::{Instant, sleep, sleep_until};
use tokio_util::sync::CancellationToken;

use super::super::routes::Routes;
use super::handshake::{Begun, NotBegun, begin};
use super::layers::{self, Answering};
use super::peer::Peer;
use super::read_quantum::Quantum;
use super::socket::Socket;
use super::stall::StreamTasks;
use super::totals::Totals;
use crate::auth::Gate;
use crate::telemetry::{LogThrottle, chain};
use crate::tls::{Guard, Tls};

/// Time that a connection may take to begin.
const BEGIN_WAIT_MAX: Duration = Duration::from_secs(10);

/// Interval at which a silent connection is asked whether it is still there.
const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(30);

/// Time after which a connection that does not answer is closed.
const KEEPALIVE_WAIT_MAX: Duration = Duration::from_secs(20);

/// Calls and watches on one connection at most; more of them wait for their turn at the client.
const STREAMS_MAX: u32 = 1024;

/// Streams that were given up before they were looked at: more of them at once end the connection. Clients that give up
/// many calls together have some hundreds.
const UNSEEN_RESETS_MAX: usize = 512;

/// Streams that this side had to reset because they broke HTTP/2's rules: more of them end the connection.
const FAULTS_MAX: usize = 1024;

/// Bytes of one stream that wait at the socket.
const SEND_BUFFER_BYTES: usize = 64 * 1024;

/// Bytes of a call's headers: the longest signed token that is taken, and as much of others.
const HEADERS_BYTES_MAX: u32 = 16 * 1024;

/// Time that a connection may take to close once it was told to. After half of it, its streams end themselves.
const GRACE: Duration = Duration::from_mins(1);

/// The same for a connection without a call.
const IDLE_GRACE: Duration = Duration::from_secs(2);

/// The same where the client is trusted no more: its streams end themselves at once, and calls in execution get their
/// answers.
const WITHDRAWN_GRACE: Duration = Duration::from_secs(5);

/// Time that a connection may take to begin while others wait for its place: up to twice this.
const CROWDED_BEGIN_MAX: Duration = Duration::from_secs(1);

/// Time that a connection without a call stays while others wait for its place: up to twice this.
const CROWDED_IDLE_MAX: Duration = Duration::from_secs(10);

/// Time that a peer may take nothing of its unsent bytes.
const STUCK_WAIT_MAX: Duration = Duration::from_mins(2);

/// The same where the service stops.
const LEAVE_WAIT_MAX: Duration = Duration::from_secs(3);

/// The lifetime of connections.
#[derive(Clone, Copy, Debug)]
pub struct Lifetime {
    /// Without a call.
    pub idle_max: Duration,
    /// In all, give or take a tenth.
    pub age_max: Duration,
}

/// The calls of one connection, as hyper begins them: one after the other, by their headers.
struct Calls<S>(RefCell<S>);

impl<S: Answering<Request<Incoming>, Incoming>> hyper::service::Service<Request<Incoming>> for Calls<S> {
    type Response = S::Response;
    type Error = S::Error;
    type Future = S::Future;

    fn call(&self, request: Request<Incoming>) -> S::Future {
        self.0.borrow_mut().call(request)
    }
}

/// A connection that was accepted.
pub(super) struct Accepted {
    pub(super) stream: TcpStream,
    /// How the port speaks TLS, if it does.
    pub(super) tls: Option<Arc<Tls>>,
    pub(super) address: SocketAddr,
    pub(super) lifetime: Lifetime,
    /// Cancelled once the service stops.
    pub(super) stop: CancellationToken,
    /// Cancelled once a service that stops waits only for those who take what is sent to them.
    pub(super) leave: CancellationToken,
}

impl Accepted {
    /// Serves the connection to its end. While others wait for a place (`crowded`), a connection that does not begin or
    /// is idle is closed sooner.
    pub(super) async fn serve(
        self,
        routes: Routes,
        gate: Arc<Gate>,
        totals: Arc<Totals>,
        crowded: watch::Receiver<bool>,
    ) {
        let Self { stream, tls, address, lifetime, stop, leave } = self;
        let quantum = Quantum::new(totals.backlog.clone());
        let begun = tokio::select! {
            biased;
            () = stop.cancelled() => return,
            begun = begin(stream, tls.as_deref(), &quantum) => begun,
            () = sleep(BEGIN_WAIT_MAX) => Err(NotBegun::Io(io::ErrorKind::TimedOut.into())),
            () = crowded_for(CROWDED_BEGIN_MAX, address, crowded.clone()) => Err(NotBegun::Io(io::ErrorKind::TimedOut.into())),
        };
        let Begun { stream, preface, client } = match begun {
            Ok(begun) => begun,
            Err(error) => return totals.not_begun(address, &error),
        };
        let aged_at = Instant::now() + spread(lifetime.age_max, address);
        // Where connections are to be short, they are to close soon, too.
        let grace = GRACE.min(lifetime.age_max);
        let (certificate, guard) = client.map(|client| (client.certificate, client.guard)).unzip();
        let peer = Peer::new(address, certificate, aged_at + grace / 2, totals.clone());
        let streams = StreamTasks::default();
        let calls = Calls(RefCell::new(layers::around(routes, gate, &peer, streams.clone())));
        let socket = TokioIo::new(Socket::new(stream, preface, quantum.clone()));
        let mut served = pin!(builder(streams).serve_connection(socket, calls));
        let told_to_close = async {
            tokio::select! {
                biased;
                () = stop.cancelled() => {}
                () = peer.until_withdrawn() => {}
                () = sleep_until(aged_at) => {}
                // Calls may still be on their way.
                () = idle(&peer, lifetime.idle_max, crowded) => peer.end_streams_at(Instant::now() + grace / 2),
            }
        };
        let mut distrusted = pin!(distrusted(&peer, guard));
        let ended = tokio::select! {
            biased;
            () = peer.until_cut() => return,
            () = &mut distrusted => return,
            () = stuck(&peer) => return tracing::debug!(%address, "a connection is cut: it takes nothing"),
            ended = quantum.pace(served.as_mut()) => ended,
            () = told_to_close => {
                served.as_mut().graceful_shutdown();
                tokio::select! {
                    biased;
                    () = peer.until_cut() => return,
                    () = &mut distrusted => return,
                    () = closing(&peer, &quantum, grace) => return tracing::debug!(%address, "a connection that did not close is cut"),
                    () = left_behind(&peer, &quantum, &leave) => return,
                    ended = quantum.pace(served.as_mut()) => ended,
                }
            }
        };
        if let Err(error) = ended {
            tell(address, &error, &totals.fault_said);
        }
    }
}

/// A tenth more or less, so that connections that came together do not leave together. The share is taken from the
/// port, which differs between them.
fn spread(age: Duration, address: SocketAddr) -> Duration {
    age.mul_f64(0.9 + f64::from(address.port() % 201) / 1_000.0)
}

/// Ends once the connection had no call for as long as it may, or is idle while others wait for its place.
async fn idle(peer: &Peer, idle_max: Duration, crowded: watch::Receiver<bool>) {
    loop {
        let before = peer.idle_after();
        tokio::select! {
            () = sleep(idle_max) => {}
            () = crowded_for(CROWDED_IDLE_MAX.min(idle_max), peer.address, crowded.clone()) => {}
        }
        if before.is_some() && peer.idle_after() == before {
            return;
        }
    }
}

/// Ends when a connection whose client came to be trusted no more has had its time to close.
async fn distrusted(peer: &Peer, guard: Option<Guard>) {
    let Some(guard) = guard else { return pending().await };
    let why = guard.until_withdrawn().await;
    let name = peer.certificate().map(|certificate| certificate.name.as_str());
    tracing::info!(address = %peer.address, name, why, "a connection is closed: its client's certificate holds no more");
    peer.withdraw();
    sleep(WITHDRAWN_GRACE).await;
}

/// Ends when a connection that was told to close has had its time: little where no call is open, and nothing is taken.
async fn closing(peer: &Peer, quantum: &Quantum, grace: Duration) {
    let short = IDLE_GRACE.min(grace);
    sleep(short).await;
    if peer.idle_after().is_none() || quantum.is_ended() {
        sleep(grace.saturating_sub(short)).await;
    }
}

/// Ends once the service leaves (`leave`) and the peer takes nothing of what is unsent, or nothing is.
async fn left_behind(peer: &Peer, quantum: &Quantum, leave: &CancellationToken) {
    leave.cancelled().await;
    while peer.takes_within(LEAVE_WAIT_MAX) || quantum.is_ended() {
        sleep(LEAVE_WAIT_MAX / 4).await;
    }
}

/// Ends once the peer has taken nothing of its unsent bytes for long. No stream's task watches the bytes that h2 has to
/// send.
async fn stuck(peer: &Peer) {
    loop {
        sleep(STUCK_WAIT_MAX / 2).await;
        if peer.has_taken_nothing_for(STUCK_WAIT_MAX) {
            return;
        }
    }
}

/// Ends this time after others have begun to wait for a place, or up to twice this time after it: thousands of
/// connections that end in one moment would hold up the calls of others. The share is taken from the port.
async fn crowded_for(time: Duration, address: SocketAddr, mut crowded: watch::Receiver<bool>) {
    if crowded.wait_for(|crowded| *crowded).await.is_err() {
        pending::<()>().await;
    }
    sleep(time.mul_f64(1.0 + f64::from(address.port() % 1_024) / 1_024.0)).await;
}

fn builder(streams: StreamTasks) -> http2::Builder<StreamTasks> {
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

/// Logs why a connection ended. An end by the network or the peer is logged for debugging only. An end by this side is
/// a warning, but a peer that comes back again and again must not fill the log.
fn tell(address: SocketAddr, error: &hyper::Error, said: &LogThrottle) {
    let fault = error.source().and_then(|source| source.downcast_ref::<h2::Error>());
    match fault {
        Some(fault) if fault.is_library() && fault.is_go_away() => {
            if let Some(unsaid) = said.is_due() {
                let error = chain(fault);
                tracing::warn!(%address, error, unsaid, "a connection was closed: it broke HTTP/2's rules");
            }
        }
        Some(_) | None => tracing::debug!(%address, error = chain(error), "a connection ended"),
    }
}

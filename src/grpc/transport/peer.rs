//! One connection, as its calls see it.

mod reader;

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use http::{HeaderMap, Response};
use runledger_proto::methods::Kind;
use tokio::sync::{Notify, Semaphore, SemaphorePermit, watch};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tonic::Status;
use tonic::body::Body;

use super::caller_limits::{OpenCall, TooMany};
use super::measured::Measured;
use super::method::Method;
use super::totals::{REQUEST_BYTES_MAX, Totals};
use super::untaken::Untaken;
use crate::auth::Caller;
use crate::domain::Principal;
use crate::fairness::CallerKey;
use crate::telemetry::record;
use crate::tls::ClientCertificate;
use crate::wire::problem;

/// Calls of one connection that are executed at once; the others wait for their turn in the order of their arrival.
/// Watches and waits are not among them.
const CALLS_MAX: usize = 128;

/// Bytes of a request for which its call counts as one more: they take their time in a batch that others wait for.
const BYTES_PER_CALL: usize = 2 * 1024;

/// Pages of one connection that are read at once.
const PAGES_MAX: usize = 2;

/// Bytes of one connection's requests that are being received or executed.
const OWN_REQUEST_BYTES_MAX: usize = 8 * 1024 * 1024;

/// Bytes of requests that a connection may take although all others together have taken everything.
const GRANTED_REQUEST_BYTES: usize = 64 * 1024;

/// Bytes of one connection's unsent answers: its next calls wait until there are fewer.
const OWN_UNSENT_BYTES_MAX: usize = 8 * 1024 * 1024;

/// Bytes that a connection's watches have read from the store and not shown: above, they read nothing more.
const OWN_READ_BYTES_MAX: usize = 4 * 1024 * 1024;

/// See the module.
#[derive(Debug)]
pub(in crate::grpc) struct Peer {
    pub(super) address: SocketAddr,
    /// The connection's number among those of this process, from 1.
    number: u64,
    certificate: Option<ClientCertificate>,
    streams_end_at: watch::Sender<Instant>,
    totals: Arc<Totals>,
    open: AtomicUsize,
    unanswered: AtomicUsize,
    begun: AtomicU64,
    calls: Semaphore,
    pages: Semaphore,
    large: Semaphore,
    request_bytes: AtomicUsize,
    untaken: Arc<Untaken>,
    sent: Notify,
    withdrawn: CancellationToken,
}

impl Peer {
    pub(super) fn new(
        address: SocketAddr,
        certificate: Option<ClientCertificate>,
        streams_end_at: Instant,
        totals: Arc<Totals>,
    ) -> Arc<Self> {
        let peer = Arc::new(Self {
            address,
            number: totals.next_number(),
            certificate,
            streams_end_at: watch::Sender::new(streams_end_at),
            totals,
            open: AtomicUsize::new(0),
            unanswered: AtomicUsize::new(0),
            begun: AtomicU64::new(0),
            calls: Semaphore::new(CALLS_MAX),
            pages: Semaphore::new(PAGES_MAX),
            large: Semaphore::new(1),
            request_bytes: AtomicUsize::new(0),
            untaken: Arc::new(Untaken::new(address)),
            sent: Notify::new(),
            withdrawn: CancellationToken::new(),
        });
        peer.totals.add(&peer.untaken);
        peer
    }

    /// Whether the connection comes from this machine, a proxy on it included.
    pub(in crate::grpc) fn is_local(&self) -> bool {
        self.address.ip().to_canonical().is_loopback()
    }

    /// The key by which limits count a call of a caller on this connection.
    pub(in crate::grpc) fn key(&self, caller: &Caller) -> CallerKey {
        let Principal { agent_id, identity, .. } = &caller.principal;
        let agent = agent_id.as_deref().map(str::as_bytes);
        let key = CallerKey::new(self.number, agent).within(&caller.namespace);
        match identity {
            Some(identity) => key.proven(identity),
            None => key,
        }
    }

    /// The key of the connection itself, for calls whose caller is not known.
    pub(super) fn connection_key(&self) -> CallerKey {
        CallerKey::new(self.number, None)
    }

    /// The certificate by which the client has shown who it is, if it has.
    pub(in crate::grpc) fn certificate(&self) -> Option<&ClientCertificate> {
        self.certificate.as_ref()
    }

    /// The time at which the connection's streams end themselves. The connection is told to close before.
    pub(in crate::grpc) fn end_of_streams(&self) -> watch::Receiver<Instant> {
        self.streams_end_at.subscribe()
    }

    /// Lets streams end themselves at this time.
    pub(super) fn end_streams_at(&self, at: Instant) {
        self.streams_end_at.send_replace(at);
    }

    /// Takes back the trust in the client: its streams end themselves now, and it begins no more calls.
    pub(super) fn withdraw(&self) {
        self.withdrawn.cancel();
        self.end_streams_at(Instant::now());
    }

    /// Ends once the client is trusted no more.
    pub(super) async fn until_withdrawn(&self) {
        self.withdrawn.cancelled().await;
    }

    /// The number of calls that were begun; none while one is open.
    pub(super) fn idle_after(&self) -> Option<u64> {
        let begun = self.begun.load(Ordering::Acquire);
        (self.open.load(Ordering::Acquire) == 0).then_some(begun)
    }

    /// Counts a call until the value is dropped.
    pub(super) fn begin(self: &Arc<Self>, method: Method) -> Result<Open, Refused> {
        self.begun.fetch_add(1, Ordering::AcqRel);
        if self.withdrawn.is_cancelled() {
            return Err(Refused::Withdrawn);
        }
        if method.is_shed_at(self.totals.memory.pressure()) {
            return Err(Refused::MemoryShort);
        }
        if !self.totals.begin(self.open.load(Ordering::Acquire)) {
            return Err(Refused::Overloaded);
        }
        self.open.fetch_add(1, Ordering::AcqRel);
        let open = Open { peer: self.clone(), own: None, measured: Measured::default() };
        let is_admitted =
            !method.is_refused_in_need() || self.totals.load_shed.admit(self.unanswered.load(Ordering::Relaxed));
        is_admitted.then_some(open).ok_or(Refused::Overloaded)
    }

    /// Counts a call for its caller, where the operator set limits. A caller whose name was not proven yet would take
    /// what is another one's.
    pub(super) fn admit(&self, kind: Kind, caller: &Caller, open: &mut Open) -> Result<(), Refused> {
        let callers = self.totals.callers.load();
        if !callers.limits_none() && kind != Kind::Local {
            open.own = callers.admit(self.key(caller)).map_err(Refused::TooMany)?;
        }
        Ok(())
    }

    /// The answer to a call that cannot [begin](Self::begin).
    pub(super) fn refusal(&self, refused: Refused) -> Response<Body> {
        match refused {
            Refused::Overloaded => self.overloaded(),
            Refused::TooMany(TooMany { limit, wait }) => {
                // Spread upwards only: who came back earlier would be refused again.
                let wait = self.totals.refuse_limited(self.address, limit, wait.mul_f64(1.25));
                Status::from(problem::caller_limited(limit, wait)).into_http()
            }
            Refused::MemoryShort => {
                let wait = self.totals.refuse_limited(self.address, "memory", problem::MEMORY_RETRY);
                Status::from(problem::memory_short(wait)).into_http()
            }
            Refused::Withdrawn => Status::from(problem::connection_ends()).into_http(),
        }
    }

    /// Says now and then that calls do not pass the gate.
    pub(super) fn tell_denied(&self, method: &str, why: &str) {
        self.totals.tell_denied(self.address, method, why);
    }

    /// Says now and then that a call was refused after it had passed the gate, and whose it was.
    pub(super) fn tell_refused(&self, caller: &Caller) {
        self.totals.tell_refused(self.address, Some(caller));
    }

    /// The answer to a call where there are too many.
    pub(super) fn overloaded(&self) -> Response<Body> {
        record::refusal("OVERLOADED");
        self.totals.tell_refused(self.address, None);
        let mut answer = Response::new(Body::empty());
        *answer.headers_mut() = HeaderMap::clone(&self.totals.load_shed.refusal());
        answer
    }

    /// Waits for a call's turn to be executed. There may be too many calls by now: when this one [began](Self::begin),
    /// the requests of others had not come.
    pub(super) async fn turn(&self, kind: Kind, bytes: usize) -> Result<Turn<'_>, Overloaded> {
        Ok(match kind {
            Kind::Wait | Kind::Watch | Kind::Local => Turn { work: None, _permit: None },
            Kind::Page => {
                let turn = self.pages.acquire().await;
                self.until_unsent(if self.totals.is_unsent_much() { 0 } else { OWN_UNSENT_BYTES_MAX }).await;
                Turn { work: None, _permit: Some(turn.expect("never closed")) }
            }
            Kind::Call => {
                // A call that waits for its own peer is no work yet.
                self.until_sent().await;
                if !self.totals.load_shed.admit(self.unanswered.load(Ordering::Relaxed)) {
                    return Err(Overloaded);
                }
                let work = Some(self.begin_work());
                let calls = u32::try_from((1 + bytes / BYTES_PER_CALL).min(CALLS_MAX)).expect("a few");
                Turn { work, _permit: Some(self.calls.acquire_many(calls).await.expect("never closed")) }
            }
        })
    }

    /// Counts a call as work until the value is dropped: its request has come, and is to be executed.
    fn begin_work(&self) -> Work<'_> {
        self.totals.load_shed.add(self.unanswered.fetch_add(1, Ordering::AcqRel));
        Work(self)
    }

    /// Waits for the turn of a request that takes long to decode. Only one request of each connection waits for the
    /// turn that all connections share.
    pub(super) async fn large_turn(&self) -> (SemaphorePermit<'_>, SemaphorePermit<'_>) {
        let never_closed = "never closed";
        let own = self.large.acquire().await.expect(never_closed);
        (own, self.totals.large.acquire().await.expect(never_closed))
    }

    /// Whether so much is unsent that the connection's next answers wait.
    pub(super) fn has_much_unsent(&self) -> bool {
        self.unsent_bytes() > OWN_UNSENT_BYTES_MAX
    }

    /// Waits until the connection [has](Self::has_much_unsent) no longer too much unsent.
    pub(super) async fn until_sent(&self) {
        self.until_unsent(OWN_UNSENT_BYTES_MAX).await;
    }

    /// Waits until the peer has taken its answers but for so many bytes.
    async fn until_unsent(&self, unsent_max: usize) {
        while self.unsent_bytes() > unsent_max {
            let sent = self.sent.notified();
            if self.unsent_bytes() > unsent_max {
                sent.await;
            }
        }
    }

    /// Counts the bytes of a request, as they come.
    pub(super) fn hold_request(self: &Arc<Self>) -> RequestBytes {
        RequestBytes { peer: self.clone(), bytes: 0 }
    }

    /// Counts bytes of an answer as unsent until they were written or dropped.
    pub(super) fn hold_unsent(self: &Arc<Self>, bytes: usize) -> Unsent {
        if self.unsent_bytes() == 0 {
            self.untaken.taken_at_ms.store(self.totals.now_ms(), Ordering::Relaxed);
        }
        self.untaken.unsent_bytes.fetch_add(bytes, Ordering::Relaxed);
        self.totals.add_unsent(bytes);
        Unsent { peer: self.clone(), bytes }
    }

    pub(super) fn unsent_bytes(&self) -> usize {
        self.untaken.unsent_bytes()
    }

    /// Whether the connection's watches must read nothing more for now.
    fn has_much_untaken(&self) -> bool {
        self.has_much_unsent() || self.untaken.read_bytes() > OWN_READ_BYTES_MAX
    }

    /// Whether something is unsent, and the peer has taken nothing of it for this time.
    pub(super) fn has_taken_nothing_for(&self, time: Duration) -> bool {
        self.unsent_bytes() > 0 && !self.has_taken_within(time)
    }

    /// Whether something is unsent, and the peer has taken some of it within this time.
    pub(super) fn takes_within(&self, time: Duration) -> bool {
        self.unsent_bytes() > 0 && self.has_taken_within(time)
    }

    fn has_taken_within(&self, time: Duration) -> bool {
        // Another task may have taken note of a later time meanwhile.
        let since_ms = self.totals.now_ms().saturating_sub(self.untaken.taken_at_ms());
        u128::from(since_ms) <= time.as_millis()
    }

    /// Ends once the connection is to be cut.
    pub(super) async fn until_cut(&self) {
        self.untaken.until_cut().await;
    }
}

impl Drop for Peer {
    fn drop(&mut self) {
        self.totals.remove();
    }
}

/// The reason for which a call does not begin.
#[derive(Clone, Copy, Debug)]
pub(super) enum Refused {
    /// There are too many calls, and too many of them are this connection's.
    Overloaded,
    /// The caller makes more calls than the operator lets one caller make.
    TooMany(TooMany),
    /// Little memory is left.
    MemoryShort,
    /// The client's certificate holds no more.
    Withdrawn,
}

/// The refusal where there are too many calls, and too many of them are one connection's.
#[derive(Debug)]
pub(super) struct Overloaded;

/// A call that is open, until its answer was sent or its stream has gone.
#[derive(Debug)]
pub(super) struct Open {
    peer: Arc<Peer>,
    /// Counts the call for its caller, where the operator set a limit.
    own: Option<OpenCall>,
    /// Tells of the call.
    measured: Measured,
}

impl Open {
    /// Has the call told of once it is over.
    pub(super) fn measured_by(self, measured: Measured) -> Self {
        let mut open = self;
        open.measured = measured;
        open
    }

    /// The call, as metrics tell of it.
    pub(super) fn measured(&mut self) -> &mut Measured {
        &mut self.measured
    }

    /// Counts the call no more. Gives what tells of it.
    pub(super) fn over(mut self) -> Measured {
        std::mem::take(&mut self.measured)
    }
}

impl Drop for Open {
    fn drop(&mut self) {
        self.peer.totals.end();
        self.peer.open.fetch_sub(1, Ordering::AcqRel);
    }
}

/// A call's turn to be executed, until the value is dropped.
#[derive(Debug)]
pub(super) struct Turn<'a> {
    work: Option<Work<'a>>,
    _permit: Option<SemaphorePermit<'a>>,
}

impl Turn<'_> {
    /// Takes note that the call's answer is made, and whether it is a refusal.
    pub(super) fn answered(self, is_refused: bool) {
        if let Some(Work(peer)) = &self.work
            && !is_refused
        {
            peer.totals.load_shed.answered();
        }
    }
}

/// See [`Peer::begin_work`].
#[derive(Debug)]
struct Work<'a>(&'a Peer);

impl Drop for Work<'_> {
    fn drop(&mut self) {
        let left = self.0.unanswered.fetch_sub(1, Ordering::AcqRel) - 1;
        self.0.totals.load_shed.remove(left);
    }
}

/// See [`Peer::hold_request`].
#[derive(Debug)]
pub(super) struct RequestBytes {
    peer: Arc<Peer>,
    bytes: usize,
}

impl RequestBytes {
    /// Counts more bytes. False when there are too many.
    pub(super) fn add(&mut self, bytes: usize) -> bool {
        let Peer { totals, request_bytes, .. } = &*self.peer;
        self.bytes += bytes;
        let own = request_bytes.fetch_add(bytes, Ordering::Relaxed) + bytes;
        let all = totals.request_bytes.fetch_add(bytes, Ordering::Relaxed) + bytes;
        let share = (REQUEST_BYTES_MAX / totals.connections().max(1)).max(GRANTED_REQUEST_BYTES);
        own <= OWN_REQUEST_BYTES_MAX && (own <= share || all <= REQUEST_BYTES_MAX)
    }
}

impl Drop for RequestBytes {
    fn drop(&mut self) {
        self.peer.request_bytes.fetch_sub(self.bytes, Ordering::Relaxed);
        self.peer.totals.request_bytes.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

/// See [`Peer::hold_unsent`].
#[derive(Debug)]
pub(super) struct Unsent {
    peer: Arc<Peer>,
    bytes: usize,
}

impl Unsent {
    /// Splits off some of the bytes, to be counted on their own.
    pub(super) fn split(&mut self, bytes: usize) -> Self {
        self.bytes -= bytes;
        Self { peer: self.peer.clone(), bytes }
    }
}

impl Drop for Unsent {
    fn drop(&mut self) {
        if self.bytes > 0 {
            let Peer { totals, untaken, sent, .. } = &*self.peer;
            totals.take_unsent(self.bytes);
            untaken.taken_at_ms.store(totals.now_ms(), Ordering::Relaxed);
            let before = untaken.unsent_bytes.fetch_sub(self.bytes, Ordering::AcqRel);
            if before > OWN_UNSENT_BYTES_MAX || before == self.bytes {
                sent.notify_waiters();
            }
        }
    }
}

//! The memory and the calls that all connections together take of the process.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use arc_swap::ArcSwap;
use governor::clock::DefaultClock;
use parking_lot::Mutex;
use tokio::sync::Semaphore;
use tokio::time::{Instant, sleep};

use super::caller_limits::{CallerLimits, CallersLimited};
use super::handshake::NotBegun;
use super::load_shed::LoadShed;
use super::read_quantum::Backlog;
use super::untaken::Untaken;
use crate::auth::Caller;
use crate::fairness::spread;
use crate::memory::{Memory, MemoryUse};
use crate::telemetry::{LogThrottle, chain, record};

/// Bytes of requests that are being received or executed, in all. A connection that takes little is served beyond it.
pub(super) const REQUEST_BYTES_MAX: usize = 32 * 1024 * 1024;

/// Bytes of answers that were not sent yet, in all.
const UNSENT_BYTES_MAX: usize = 32 * 1024 * 1024;

/// A connection with fewer unsent bytes is not cut for the bound in all.
const MUCH_UNSENT_BYTES_MIN: usize = 256 * 1024;

/// The pause between two looks for a connection to cut.
const CUT_INTERVAL_MS: u64 = 2;

/// Calls, watches and waits that are open at once, in all.
const OPEN_MAX: usize = 12_288;

/// Calls, watches and waits that each connection may have open, however many connections there are.
const GRANTED_OPEN: usize = 16;

/// About what a connection without a call takes, measured on thousands.
const CONNECTION_BYTES: usize = 24 * 1024;

/// About what an open call takes beside its request and its answer, measured on thousands of waits.
const OPEN_CALL_BYTES: usize = 8 * 1024;

/// The time from one tidying of what is known of callers to the next.
const TIDY_EVERY: Duration = Duration::from_mins(1);

/// See the module.
#[derive(Debug)]
pub struct Totals {
    pub(super) request_bytes: AtomicUsize,
    unsent_bytes: AtomicUsize,
    /// The turn of a request that takes long to decode.
    pub(super) large: Semaphore,
    pub(super) load_shed: LoadShed,
    pub(super) callers: ArcSwap<CallersLimited>,
    pub(super) memory: Arc<Memory>,
    pub(super) backlog: Arc<Backlog>,
    peers: Mutex<Vec<Weak<Untaken>>>,
    connections: AtomicUsize,
    /// The connections that there have been.
    numbers: AtomicU64,
    open: AtomicUsize,
    begun: Instant,
    looked_at_ms: AtomicU64,
    cut_said: LogThrottle,
    pub(super) fault_said: LogThrottle,
    /// Connections whose clients did not agree with the port on TLS, or on who they are.
    disagreed: AtomicU64,
    disagreed_said: LogThrottle,
    denied_said: LogThrottle,
    refused_said: LogThrottle,
    /// Calls that were refused for a limit of their caller, or since little memory was left.
    limited: AtomicU64,
    limited_said: LogThrottle,
}

impl Totals {
    /// The totals of a process that has this memory, and lets each caller make so many calls.
    #[must_use]
    pub fn new(callers: CallerLimits, memory: Arc<Memory>) -> Self {
        Self {
            request_bytes: AtomicUsize::new(0),
            unsent_bytes: AtomicUsize::new(0),
            large: Semaphore::new(1),
            load_shed: LoadShed::default(),
            callers: ArcSwap::from_pointee(CallersLimited::new(callers, DefaultClock::default())),
            memory,
            backlog: Arc::default(),
            peers: Mutex::default(),
            connections: AtomicUsize::new(0),
            numbers: AtomicU64::new(0),
            open: AtomicUsize::new(0),
            begun: Instant::now(),
            looked_at_ms: AtomicU64::new(0),
            cut_said: LogThrottle::default(),
            fault_said: LogThrottle::default(),
            disagreed: AtomicU64::new(0),
            disagreed_said: LogThrottle::default(),
            denied_said: LogThrottle::default(),
            refused_said: LogThrottle::default(),
            limited: AtomicU64::new(0),
            limited_said: LogThrottle::default(),
        }
    }

    /// Lets each caller make so many calls from now on. Calls that are open count for the limit that they came under.
    pub fn limit_callers(&self, limits: CallerLimits) {
        if !self.callers.load().are(limits) {
            self.callers.store(Arc::new(CallersLimited::new(limits, DefaultClock::default())));
        }
    }

    /// The number of a new connection.
    pub(super) fn next_number(&self) -> u64 {
        self.numbers.fetch_add(1, Ordering::Relaxed) + 1
    }

    /// Counts a connection until it is [removed](Totals::remove).
    pub(super) fn add(&self, peer: &Arc<Untaken>) {
        self.connections.fetch_add(1, Ordering::Relaxed);
        let mut peers = self.peers.lock();
        // Places of connections that have gone are used again, so that the list does not grow without need.
        match peers.iter_mut().find(|place| place.strong_count() == 0) {
            Some(place) => *place = Arc::downgrade(peer),
            None => peers.push(Arc::downgrade(peer)),
        }
    }

    pub(super) fn remove(&self) {
        self.connections.fetch_sub(1, Ordering::Relaxed);
    }

    /// Takes note of a connection that did not begin.
    pub(super) fn not_begun(&self, address: SocketAddr, error: &NotBegun) {
        let why = chain(error);
        if matches!(error, NotBegun::Disagreed { .. }) {
            self.disagreed.fetch_add(1, Ordering::Relaxed);
            if let Some(unsaid) = self.disagreed_said.is_due() {
                return tracing::warn!(%address, error = why, unsaid, "a connection was refused");
            }
        }
        tracing::debug!(%address, error = why, "a connection did not begin");
    }

    /// Says now and then that calls do not pass the gate. Nothing in the line is a text that a caller chose.
    pub(super) fn tell_denied(&self, address: SocketAddr, method: &str, why: &str) {
        if let Some(unsaid) = self.denied_said.is_due() {
            tracing::warn!(%address, method, error = why, unsaid, "a call was denied");
        }
    }

    /// Says now and then that a call was refused because there are too many, and of whom: who calls most is named most.
    pub(super) fn tell_refused(&self, address: SocketAddr, caller: Option<&Caller>) {
        if let Some(unsaid) = self.refused_said.is_due() {
            let principal = caller.map(|caller| &caller.principal);
            let subject = principal.and_then(|principal| principal.identity.as_ref()).map(|proven| &*proven.subject);
            let agent = principal.and_then(|principal| principal.agent_id.as_deref());
            tracing::warn!(%address, subject, agent, unsaid, "a call was refused as RESOURCE_EXHAUSTED");
        }
    }

    /// Connections that were refused, because their clients did not agree with the port on TLS or on who they are.
    #[must_use]
    pub fn disagreed(&self) -> u64 {
        self.disagreed.load(Ordering::Relaxed)
    }

    /// The number of connections.
    #[must_use]
    pub fn connections(&self) -> usize {
        self.connections.load(Ordering::Relaxed)
    }

    /// The number of open calls, watches and waits.
    #[must_use]
    pub fn open(&self) -> usize {
        self.open.load(Ordering::Relaxed)
    }

    /// Follows the rate of answers and the memory, and forgets callers that have gone. Never ends by itself.
    pub(super) async fn follow(&self) {
        let tidy = async {
            loop {
                sleep(TIDY_EVERY).await;
                self.callers.load().tidy();
            }
        };
        tokio::join!(self.load_shed.follow(), self.memory.follow(), tidy);
    }

    /// Calls that are in execution or wait for it.
    #[must_use]
    pub fn calls(&self) -> usize {
        self.load_shed.calls()
    }

    /// Calls that were refused because there were too many.
    #[must_use]
    pub fn refused(&self) -> u64 {
        self.load_shed.refused() + self.limited.load(Ordering::Relaxed)
    }

    /// Takes note of a call that is refused for a limit. Returns the wait that its caller is told.
    pub(super) fn refuse_limited(&self, address: SocketAddr, limit: &'static str, wait: Duration) -> Duration {
        record::limited(limit);
        let nth = self.limited.fetch_add(1, Ordering::Relaxed);
        if let Some(unsaid) = self.limited_said.is_due() {
            tracing::warn!(%address, limit, unsaid, "a call was refused for a limit");
        }
        spread(wait, nth)
    }

    /// Counts a call until its [end](Totals::end). False, and not counted, when there are too many. `own`: other open
    /// calls of its connection.
    pub(super) fn begin(&self, own: usize) -> bool {
        let is_too_many = self.open() >= OPEN_MAX && own >= (OPEN_MAX / self.connections().max(1)).max(GRANTED_OPEN);
        if !is_too_many {
            self.open.fetch_add(1, Ordering::Relaxed);
        }
        !is_too_many
    }

    pub(super) fn end(&self) {
        self.open.fetch_sub(1, Ordering::Relaxed);
    }

    /// The time since the process began to serve.
    pub(super) fn now_ms(&self) -> u64 {
        u64::try_from(self.begun.elapsed().as_millis()).unwrap_or(u64::MAX)
    }

    /// Bytes of requests that are being received or executed.
    #[must_use]
    pub fn request_bytes(&self) -> usize {
        self.request_bytes.load(Ordering::Relaxed)
    }

    /// The memory of the process.
    #[must_use]
    pub fn memory(&self) -> &Memory {
        &self.memory
    }

    /// What the connections and their calls take, and may take.
    #[must_use]
    pub fn parts(&self) -> Vec<MemoryUse> {
        vec![
            MemoryUse { name: "requests", bytes: self.request_bytes(), bytes_max: Some(REQUEST_BYTES_MAX) },
            MemoryUse { name: "unsent_answers", bytes: self.unsent_bytes(), bytes_max: Some(UNSENT_BYTES_MAX) },
            MemoryUse { name: "connections", bytes: self.connections() * CONNECTION_BYTES, bytes_max: None },
            MemoryUse { name: "open_calls", bytes: self.open() * OPEN_CALL_BYTES, bytes_max: None },
        ]
    }

    /// Bytes of answers that were not sent yet.
    #[must_use]
    pub fn unsent_bytes(&self) -> usize {
        self.unsent_bytes.load(Ordering::Relaxed)
    }

    /// Adds to the unsent bytes. Above the bound, of the connections that hold much of them, the one is cut whose peer
    /// has taken nothing for the longest time: all others would pay for it.
    pub(super) fn add_unsent(&self, bytes: usize) {
        if self.unsent_bytes.fetch_add(bytes, Ordering::Relaxed) + bytes > UNSENT_BYTES_MAX {
            self.cut_slowest();
        }
    }

    /// Whether so much is unsent that a peer gets no other page before it has taken its last one.
    pub(super) fn is_unsent_much(&self) -> bool {
        self.unsent_bytes() > UNSENT_BYTES_MAX / 2
    }

    pub(super) fn take_unsent(&self, bytes: usize) {
        self.unsent_bytes.fetch_sub(bytes, Ordering::Relaxed);
    }

    fn cut_slowest(&self) {
        // Every part that is added above the bound asks for a cut, and a connection that was cut needs a moment to go.
        let (now, before) = (self.now_ms(), self.looked_at_ms.load(Ordering::Relaxed));
        if now < before + CUT_INTERVAL_MS || self.looked_at_ms.swap(now, Ordering::Relaxed) != before {
            return;
        }
        let peers: Vec<Arc<Untaken>> = self.peers.lock().iter().filter_map(Weak::upgrade).collect();
        let leaving: usize = peers.iter().filter(|peer| peer.is_cut()).map(|peer| peer.bytes()).sum();
        if self.unsent_bytes().saturating_sub(leaving) <= UNSENT_BYTES_MAX {
            return;
        }
        // A connection that holds little is not cut: its end would help nobody.
        let much = (UNSENT_BYTES_MAX / peers.len().max(1) / 2).max(MUCH_UNSENT_BYTES_MIN);
        let holders = peers.iter().filter(|peer| !peer.is_cut() && peer.bytes() >= much);
        if let Some(peer) = holders.min_by_key(|peer| peer.taken_at_ms()) {
            if let Some(unsaid) = self.cut_said.is_due() {
                let (address, unsent_bytes) = (peer.address, peer.bytes());
                tracing::warn!(%address, unsent_bytes, unsaid, "a connection is cut: it does not take its answers");
            }
            peer.cut();
        }
    }
}

//! What a peer has not taken yet, as the bound of all connections looks at it.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use tokio_util::sync::CancellationToken;

/// See the module.
#[derive(Debug)]
pub(super) struct Untaken {
    pub(super) address: SocketAddr,
    pub(super) unsent_bytes: AtomicUsize,
    /// Bytes that its watches have read from the store and not shown.
    pub(super) read_bytes: AtomicUsize,
    pub(super) taken_at_ms: AtomicU64,
    cut: CancellationToken,
}

impl Untaken {
    pub(super) fn new(address: SocketAddr) -> Self {
        Self {
            address,
            unsent_bytes: AtomicUsize::new(0),
            read_bytes: AtomicUsize::new(0),
            taken_at_ms: AtomicU64::new(0),
            cut: CancellationToken::new(),
        }
    }

    pub(super) fn unsent_bytes(&self) -> usize {
        self.unsent_bytes.load(Ordering::Relaxed)
    }

    pub(super) fn read_bytes(&self) -> usize {
        self.read_bytes.load(Ordering::Relaxed)
    }

    /// Bytes that are in memory because the peer does not take them.
    pub(super) fn bytes(&self) -> usize {
        self.unsent_bytes() + self.read_bytes()
    }

    /// The time since which the peer has taken nothing of its unsent bytes.
    pub(super) fn taken_at_ms(&self) -> u64 {
        self.taken_at_ms.load(Ordering::Relaxed)
    }

    pub(super) fn is_cut(&self) -> bool {
        self.cut.is_cancelled()
    }

    /// Ends the connection at once.
    pub(super) fn cut(&self) {
        self.cut.cancel();
    }

    /// Ends once the connection is to be cut.
    pub(super) async fn until_cut(&self) {
        self.cut.cancelled().await;
    }
}

//! What all connections together take of the process.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};

use tokio::sync::Semaphore;

use super::peer::Peer;

/// Bytes of requests that are being received or executed, in all. A connection that takes little is served beyond it.
pub(super) const REQUEST_BYTES_MAX: usize = 32 * 1024 * 1024;

/// Bytes of answers that were not sent yet, in all.
const UNSENT_BYTES_MAX: usize = 64 * 1024 * 1024;

/// Pages that are read at once: each may be the largest answer there is.
const PAGES_MAX: usize = 16;

/// See the module.
#[derive(Debug)]
pub struct Usage {
    pub(super) request_bytes: AtomicUsize,
    unsent_bytes: AtomicUsize,
    pub(super) pages: Semaphore,
    peers: Mutex<Vec<Weak<Peer>>>,
}

impl Default for Usage {
    fn default() -> Self {
        Self {
            request_bytes: AtomicUsize::new(0),
            unsent_bytes: AtomicUsize::new(0),
            pages: Semaphore::new(PAGES_MAX),
            peers: Mutex::default(),
        }
    }
}

impl Usage {
    /// Counts a connection for as long as it is there.
    pub(super) fn add(&self, peer: &Arc<Peer>) {
        let mut peers = self.peers();
        // Places of those that have gone are taken again, so that the list grows no longer than it has to.
        match peers.iter_mut().find(|place| place.strong_count() == 0) {
            Some(place) => *place = Arc::downgrade(peer),
            None => peers.push(Arc::downgrade(peer)),
        }
    }

    /// How many connections there are.
    #[must_use]
    pub fn connections(&self) -> usize {
        self.peers().iter().filter(|peer| peer.strong_count() > 0).count()
    }

    /// Bytes of requests that are being received or executed.
    #[must_use]
    pub fn request_bytes(&self) -> usize {
        self.request_bytes.load(Ordering::Relaxed)
    }

    /// Bytes of answers that were not sent yet.
    #[must_use]
    pub fn unsent_bytes(&self) -> usize {
        self.unsent_bytes.load(Ordering::Relaxed)
    }

    /// Adds to the unsent bytes. Above the bound, the connection that holds the most of them is cut: its peer takes less
    /// than it asks for, and all others would pay for it.
    pub(super) fn add_unsent(&self, bytes: usize) {
        if self.unsent_bytes.fetch_add(bytes, Ordering::Relaxed) + bytes > UNSENT_BYTES_MAX {
            self.cut_greatest();
        }
    }

    pub(super) fn take_unsent(&self, bytes: usize) {
        self.unsent_bytes.fetch_sub(bytes, Ordering::Relaxed);
    }

    fn cut_greatest(&self) {
        let peers = self.peers();
        let (mut leaving, mut greatest) = (0, None);
        for peer in peers.iter().filter_map(Weak::upgrade) {
            let unsent = peer.unsent_bytes();
            if peer.is_cut() {
                leaving += unsent;
            } else if greatest.as_ref().is_none_or(|(most, _)| *most < unsent) {
                greatest = Some((unsent, peer));
            }
        }
        if let Some((unsent_bytes, peer)) = greatest
            && self.unsent_bytes().saturating_sub(leaving) > UNSENT_BYTES_MAX
        {
            tracing::warn!(address = %peer.address, unsent_bytes, "a connection is cut: it does not take its answers");
            peer.cut();
        }
    }

    fn peers(&self) -> std::sync::MutexGuard<'_, Vec<Weak<Peer>>> {
        self.peers.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

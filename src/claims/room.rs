//! The memory that the queues of claimers take together, in bytes, and whether one of them may keep more.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use super::Limits;

/// The bytes of all queues.
#[derive(Debug)]
pub(super) struct AllRoom {
    bytes: AtomicUsize,
    bytes_max: usize,
    granted: usize,
}

impl AllRoom {
    pub(super) fn new(limits: &Limits) -> Arc<Self> {
        Arc::new(Self { bytes: AtomicUsize::new(0), bytes_max: limits.bytes_max, granted: limits.bytes_granted })
    }

    pub(super) fn bytes(&self) -> usize {
        self.bytes.load(Ordering::Relaxed)
    }
}

/// The bytes of one queue.
#[derive(Debug)]
pub(super) struct Room {
    all: Arc<AllRoom>,
    own: usize,
}

impl Room {
    pub(super) fn of(all: &Arc<AllRoom>) -> Self {
        Self { all: all.clone(), own: 0 }
    }

    /// Whether the queue may keep so much more: what is granted to each, or what all queues together leave.
    pub(super) fn fits(&self, more: usize) -> bool {
        self.own + more <= self.all.granted || self.all.bytes() + more <= self.all.bytes_max
    }

    pub(super) fn add(&mut self, bytes: usize) {
        self.own += bytes;
        self.all.bytes.fetch_add(bytes, Ordering::Relaxed);
    }

    pub(super) fn clear(&mut self) {
        self.take(self.own);
    }

    pub(super) fn take(&mut self, bytes: usize) {
        self.own -= bytes;
        self.all.bytes.fetch_sub(bytes, Ordering::Relaxed);
    }
}

impl Drop for Room {
    fn drop(&mut self) {
        self.clear();
    }
}

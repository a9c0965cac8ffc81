//! The memory that the queues of claimers take together, in bytes, and whether one of them may keep more.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use super::Limits;

/// The bytes of all queues.
#[derive(Debug)]
pub(super) struct AllRoom {
    bytes: AtomicUsize,
    /// The bytes of runs that count towards limits, beside the others.
    counted: AtomicUsize,
    bytes_max: usize,
    granted: usize,
}

impl AllRoom {
    pub(super) fn new(limits: &Limits) -> Arc<Self> {
        let (bytes, counted) = (AtomicUsize::new(0), AtomicUsize::new(0));
        Arc::new(Self { bytes, counted, bytes_max: limits.bytes_max, granted: limits.bytes_granted })
    }

    pub(super) fn counted(&self) -> usize {
        self.counted.load(Ordering::Relaxed)
    }

    pub(super) fn bytes(&self) -> usize {
        self.bytes.load(Ordering::Relaxed)
    }
}

/// The bytes of one queue's runs that count. They have no bound but the number of runs, and keep no room from runs that
/// wait.
#[derive(Debug)]
pub(super) struct CountedRoom {
    all: Arc<AllRoom>,
    own: usize,
}

impl CountedRoom {
    pub(super) fn new(all: &Arc<AllRoom>) -> Self {
        Self { all: all.clone(), own: 0 }
    }

    pub(super) fn add(&mut self, bytes: usize) {
        self.own += bytes;
        self.all.counted.fetch_add(bytes, Ordering::Relaxed);
    }

    pub(super) fn take(&mut self, bytes: usize) {
        self.own -= bytes;
        self.all.counted.fetch_sub(bytes, Ordering::Relaxed);
    }
}

impl Drop for CountedRoom {
    fn drop(&mut self) {
        self.take(self.own);
    }
}

/// The bytes of one queue.
#[derive(Debug)]
pub(super) struct Room {
    all: Arc<AllRoom>,
    own: usize,
}

impl Room {
    pub(super) fn new(all: &Arc<AllRoom>) -> Self {
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

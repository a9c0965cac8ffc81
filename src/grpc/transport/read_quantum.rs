//! The quantum: bytes that are read from one connection, and bytes that are written to it, before other connections have
//! their turn.
//!
//! hyper and h2 would read on for as long as there is something to read, before they look at what they have read.
//! With a quantum for each turn, a connection that floods is a few calls ahead of others and no more (deficit round
//! robin). The quanta of one round over all connections that flood are bounded together: their round is what any
//! other call waits for. What is written has a quantum of its own: large answers would go out one after the other for
//! as long as the kernel takes them.

use std::future::poll_fn;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

/// Bytes that one connection reads in its turn: some tens of calls.
const BYTES_MAX: usize = 4 * 1024;

/// The same while many connections have more to read than that: a call or two.
const BYTES_MIN: usize = 256;

/// Bytes of one round over all connections that have more to read.
const ROUND_BYTES: usize = 32 * 1024;

/// Bytes that one connection writes in its turn: a few parts of answers.
const WRITTEN_BYTES_MAX: usize = 64 * 1024;

/// The number of connections that have more to read than their last quantum.
#[derive(Debug, Default)]
pub(super) struct Backlog(AtomicUsize);

impl Backlog {
    /// Bytes that a connection may read in its turn.
    fn quantum(&self) -> usize {
        (ROUND_BYTES / self.0.load(Ordering::Relaxed).max(1)).clamp(BYTES_MIN, BYTES_MAX)
    }
}

/// One connection's quantum.
#[derive(Clone, Debug)]
pub(super) struct Quantum(Arc<Turn>);

#[derive(Debug)]
struct Turn {
    left: AtomicUsize,
    to_write: AtomicUsize,
    has_more: AtomicBool,
    is_ended: AtomicBool,
    backlog: Arc<Backlog>,
}

impl Quantum {
    pub(super) fn new(backlog: Arc<Backlog>) -> Self {
        let [left, to_write] = [BYTES_MAX, WRITTEN_BYTES_MAX].map(AtomicUsize::new);
        let [has_more, is_ended] = [false, false].map(AtomicBool::new);
        Self(Arc::new(Turn { left, to_write, has_more, is_ended, backlog }))
    }

    /// Bytes that may still be read in this turn.
    pub(super) fn left(&self) -> usize {
        self.0.left.load(Ordering::Relaxed)
    }

    /// Counts bytes that were read.
    pub(super) fn take(&self, bytes: usize) {
        // Over TLS, records and what was in them are counted both.
        let _before =
            self.0.left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| Some(left.saturating_sub(bytes)));
    }

    /// Bytes that may still be written in this turn.
    pub(super) fn to_write(&self) -> usize {
        self.0.to_write.load(Ordering::Relaxed)
    }

    /// Counts bytes that were written.
    pub(super) fn wrote(&self, bytes: usize) {
        self.0.to_write.fetch_sub(bytes, Ordering::Relaxed);
    }

    /// Takes note that all was written: the connection stays while its peer takes what the kernel has.
    pub(super) fn ends(&self) {
        self.0.is_ended.store(true, Ordering::Relaxed);
    }

    /// Whether all was written, and the peer may still take some of it.
    pub(super) fn is_ended(&self) -> bool {
        self.0.is_ended.load(Ordering::Relaxed)
    }

    /// Polls a connection to its end, a turn each time.
    pub(super) async fn pace<F: Future>(&self, mut served: Pin<&mut F>) -> F::Output {
        poll_fn(|cx| {
            self.0.left.store(self.0.backlog.quantum(), Ordering::Relaxed);
            self.0.to_write.store(WRITTEN_BYTES_MAX, Ordering::Relaxed);
            let polled = served.as_mut().poll(cx);
            self.0.ends(self.left() == 0);
            polled
        })
        .await
    }
}

impl Turn {
    /// Takes note that the connection's turn is over.
    fn ends(&self, has_more: bool) {
        match (self.has_more.swap(has_more, Ordering::Relaxed), has_more) {
            (false, true) => _ = self.backlog.0.fetch_add(1, Ordering::Relaxed),
            (true, false) => _ = self.backlog.0.fetch_sub(1, Ordering::Relaxed),
            (true, true) | (false, false) => {}
        }
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        self.ends(false);
    }
}

#[cfg(test)]
mod tests {
    use std::pin::pin;
    use std::task::{Context, Poll, Waker};

    use super::*;

    /// A connection that has more to read than any quantum, and one turn of it.
    fn turn(quantum: &Quantum) -> usize {
        let mut read = 0;
        let reads = poll_fn(|_| {
            read = quantum.left();
            quantum.take(read);
            Poll::<()>::Pending
        });
        let mut reads = pin!(reads);
        let paced = quantum.pace(reads.as_mut());
        assert!(pin!(paced).poll(&mut Context::from_waker(Waker::noop())).is_pending());
        read
    }

    #[test]
    fn the_quanta_of_all_connections_that_have_more_to_read_are_bounded_together() {
        let backlog = Arc::new(Backlog::default());
        let mut connections: Vec<Quantum> = (0..64).map(|_| Quantum::new(backlog.clone())).collect();
        assert!(connections.iter().all(|quantum| turn(quantum) >= ROUND_BYTES / 64));
        assert_eq!(connections.iter().map(turn).sum::<usize>(), ROUND_BYTES);
        let many: Vec<Quantum> = (0..1_000).map(|_| Quantum::new(backlog.clone())).collect();
        for quantum in &many {
            turn(quantum);
        }
        assert!(many.iter().all(|quantum| turn(quantum) == BYTES_MIN), "some calls of each");
        drop(many);
        connections.truncate(1);
        turn(&connections[0]);
        assert_eq!(turn(&connections[0]), BYTES_MAX, "alone again");
    }
}

//! What a connection's watches may read from the store before their peer has taken it.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use futures_util::future::BoxFuture;

use super::super::totals::Totals;
use super::{OWN_READ_BYTES_MAX, Peer};
use crate::feed::{Held, Reader, Turn};

impl Reader for Peer {
    fn turn(&self) -> BoxFuture<'_, Turn<'_>> {
        Box::pin(async {
            loop {
                let sent = self.sent.notified();
                if !self.has_much_untaken() {
                    let turn = self.pages.acquire().await.expect("never closed");
                    // The turn is not held during the wait: lists take the same turns.
                    if !self.has_much_untaken() {
                        return Box::new(turn) as Turn<'_>;
                    }
                    continue;
                }
                sent.await;
            }
        })
    }

    fn hold(self: Arc<Self>, bytes: usize) -> Held {
        self.untaken.read_bytes.fetch_add(bytes, Ordering::Relaxed);
        Box::new(ReadBytes { peer: self, bytes })
    }

    fn hold_in_all(&self, bytes: usize) -> Held {
        self.totals.add_unsent(bytes);
        Box::new(ReadInAll { totals: self.totals.clone(), bytes })
    }
}

/// See [`Reader::hold`].
#[derive(Debug)]
struct ReadBytes {
    peer: Arc<Peer>,
    bytes: usize,
}

impl Drop for ReadBytes {
    fn drop(&mut self) {
        let before = self.peer.untaken.read_bytes.fetch_sub(self.bytes, Ordering::AcqRel);
        if before > OWN_READ_BYTES_MAX {
            self.peer.sent.notify_waiters();
        }
    }
}

/// See [`Reader::hold_in_all`].
#[derive(Debug)]
struct ReadInAll {
    totals: Arc<Totals>,
    bytes: usize,
}

impl Drop for ReadInAll {
    fn drop(&mut self) {
        self.totals.take_unsent(self.bytes);
    }
}

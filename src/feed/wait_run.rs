//! Waiting for a run's end, or its suspension. The tailer tells a waiting caller, which sends no queries while the ring can answer.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use bytes::Bytes;
use tokio::sync::Mutex;
use tokio::time::{Instant, timeout_at};

use super::hub::Subscription;
use super::{Feed, WatchError};
use crate::domain::{RunKey, Status};

/// The end of a wait.
#[derive(Clone, Debug)]
pub struct Waited {
    /// The run.
    pub run: Bytes,
    /// The run is not in the state that was waited for.
    pub timed_out: bool,
}

/// What a caller waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WaitUntil {
    /// The run is terminal.
    Terminal,
    /// The run is terminal, or suspended and not ready to go on.
    Suspended,
}

impl Feed {
    /// Waits until a run is in the state that the caller waits for, but not longer than `wait_max`.
    ///
    /// # Errors
    ///
    /// The run does not exist, the server stops, or the store cannot be read.
    pub async fn wait_run(&self, key: &RunKey, wait_max: Duration, state: WaitUntil) -> Result<Waited, WatchError> {
        let until = Instant::now() + wait_max;
        // Subscribed before the run is read: an end in between is signalled.
        let mut subscription = self.hub.subscribe(key);
        let mut looked_at = *subscription.signal.borrow_and_update();
        let waited = self.look_together(&subscription, state).await?;
        if !waited.timed_out {
            return Ok(waited);
        }
        drop(waited);
        loop {
            tokio::select! {
                biased;
                () = self.stop.cancelled() => return Err(WatchError::Draining),
                changed = timeout_at(until, subscription.signal.changed()) => if changed.is_err() {
                    return self.look_together(&subscription, state).await;
                },
            }
            let signal = *subscription.signal.borrow_and_update();
            // A signal of a past that may be lost is not believed: the run is read.
            match subscription.recent(signal.revision, self.log.ledger().epoch) {
                Some(entry) if state.is_of(entry.change.status, entry.change.waits) => {
                    return Ok(Waited { run: entry.change.run.clone(), timed_out: false });
                }
                Some(_) if signal.begun == looked_at.begun => {}
                // The events since are in the history only.
                Some(_) | None => {
                    let waited = self.look_together(&subscription, state).await?;
                    if !waited.timed_out {
                        return Ok(waited);
                    }
                }
            }
            looked_at = signal;
        }
    }

    /// The run as it is. One read answers all callers that waited before it was sent.
    async fn look_together(&self, subscription: &Subscription, state: WaitUntil) -> Result<Waited, WatchError> {
        let looks = subscription.looks();
        let _looking = looks.looking();
        let begun = looks.begun.load(Ordering::Acquire);
        let mut last = looks.last.lock().await;
        if let Some(Last { number, waited, .. }) = &*last
            && *number > begun
        {
            return Ok(waited.until(state));
        }
        // The next read answers whoever the last one would have, so that no run is kept while it is under way.
        *last = None;
        let number = looks.begun.fetch_add(1, Ordering::AcqRel) + 1;
        let run = self.look(self.runs.run(subscription.key())).await?.ok_or(WatchError::RunNotFound)?;
        if run.purged_at.is_some() {
            return Err(WatchError::RunExpired(Box::new(run)));
        }
        let waits = run.suspension().is_some() && !run.is_ready();
        let waited = Looked { run: self.encode.run(&run), status: run.status, waits };
        let counted = Counted::new(&looks.bytes, waited.run.len());
        let answer = waited.until(state);
        *last = Some(Last { number, waited, _counted: counted });
        Ok(answer)
    }
}

/// The reads of one run for the callers that wait for it.
#[derive(Debug)]
pub(super) struct Looks {
    /// The callers that look: they read, or wait for a read.
    callers: AtomicUsize,
    /// The number of reads that were begun.
    begun: AtomicU64,
    /// The last read that succeeded, while callers look: a wait that goes on keeps no run.
    last: Mutex<Option<Last>>,
    /// The bytes of the runs that all `Looks` keep.
    bytes: Arc<AtomicUsize>,
}

#[derive(Debug)]
struct Last {
    number: u64,
    waited: Looked,
    _counted: Counted,
}

/// A run that was read for callers that wait.
#[derive(Clone, Debug)]
struct Looked {
    run: Bytes,
    status: Status,
    /// The run is suspended, and not ready.
    waits: bool,
}

impl Looked {
    fn until(&self, state: WaitUntil) -> Waited {
        Waited { run: self.run.clone(), timed_out: !state.is_of(self.status, self.waits) }
    }
}

impl WaitUntil {
    fn is_of(self, status: Status, waits: bool) -> bool {
        status.is_terminal() || (self == Self::Suspended && waits)
    }
}

/// Bytes that are counted until the value is dropped.
#[derive(Debug)]
struct Counted {
    all: Arc<AtomicUsize>,
    bytes: usize,
}

impl Counted {
    fn new(all: &Arc<AtomicUsize>, bytes: usize) -> Self {
        all.fetch_add(bytes, Ordering::Relaxed);
        Self { all: all.clone(), bytes }
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.all.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

impl Looks {
    /// `bytes` counts the runs that are kept.
    pub(super) fn new(bytes: Arc<AtomicUsize>) -> Self {
        Self { callers: AtomicUsize::new(0), begun: AtomicU64::new(0), last: Mutex::default(), bytes }
    }

    fn looking(&self) -> Looking<'_> {
        self.callers.fetch_add(1, Ordering::AcqRel);
        Looking(self)
    }
}

/// A caller that looks. The last one to leave forgets the run.
struct Looking<'a>(&'a Looks);

impl Drop for Looking<'_> {
    fn drop(&mut self) {
        if self.0.callers.fetch_sub(1, Ordering::AcqRel) == 1
            // Where the lock is held, another caller has come, and leaves later.
            && let Ok(mut last) = self.0.last.try_lock()
        {
            *last = None;
        }
    }
}

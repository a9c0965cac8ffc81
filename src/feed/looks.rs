//! The reads of one run that callers who wait for it share.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use bytes::Bytes;
use tokio::sync::Mutex;

use crate::domain::Status;

/// The end of a wait.
#[derive(Clone, Debug)]
pub struct Waited {
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

/// The reads of one run for the callers that wait for it.
#[derive(Debug)]
pub(super) struct Looks {
    /// The callers that look: they read, or wait for a read.
    callers: AtomicUsize,
    /// The number of reads that were begun.
    pub(super) begun: AtomicU64,
    /// The last read that succeeded, while callers look: a wait that goes on keeps no run.
    pub(super) last: Mutex<Option<Last>>,
    /// The bytes of the runs that all `Looks` keep.
    pub(super) bytes: Arc<AtomicUsize>,
}

/// The last read of a run.
#[derive(Debug)]
pub(super) struct Last {
    pub(super) number: u64,
    pub(super) waited: Looked,
    _counted: Counted,
}

/// A run that was read for callers that wait.
#[derive(Clone, Debug)]
pub(super) struct Looked {
    pub(super) run: Bytes,
    pub(super) status: Status,
    /// The run is suspended, and not ready.
    pub(super) waits: bool,
}

impl Last {
    pub(super) fn new(number: u64, waited: Looked, counted: Counted) -> Self {
        Self { number, waited, _counted: counted }
    }
}

impl Looked {
    pub(super) fn until(&self, state: WaitUntil) -> Waited {
        Waited { run: self.run.clone(), timed_out: !state.is_of(self.status, self.waits) }
    }
}

impl WaitUntil {
    pub(super) fn is_of(self, status: Status, waits: bool) -> bool {
        status.is_terminal() || (self == Self::Suspended && waits)
    }
}

/// Bytes that are counted until the value is dropped.
#[derive(Debug)]
pub(super) struct Counted {
    all: Arc<AtomicUsize>,
    bytes: usize,
}

impl Counted {
    pub(super) fn new(all: &Arc<AtomicUsize>, bytes: usize) -> Self {
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

    pub(super) fn looking(&self) -> Looking<'_> {
        self.callers.fetch_add(1, Ordering::AcqRel);
        Looking(self)
    }
}

/// A caller that looks. The last one to leave forgets the run.
pub(super) struct Looking<'a>(&'a Looks);

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

//! The watch path: history, then live, from one tailer a process.
//!
//! The log is the truth; commits, notifications and polls only wake the `tailer`. It reads the new events of all
//! shards in one statement, folds those of watched runs once, and puts the changes into a ring bounded in bytes. A
//! [`session`] holds no runs: it remembers the revision it has shown, takes what comes next from the ring, and goes
//! back to history when the ring no longer has it. So a slow reader costs a number, never a buffer.

pub mod hub;
pub mod session;
mod tailer;

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

use crate::domain::{Event, Run};
use crate::store::Store;
use crate::supervise::Supervisor;
use hub::Hub;

/// Sent when nothing else was for this long.
pub const CHECKPOINT_INTERVAL: Duration = Duration::from_secs(15);

/// One event and the run right after it.
#[derive(Clone, Debug, PartialEq)]
pub struct Change {
    /// What happened.
    pub event: Event,
    /// The run right after it.
    pub run: Arc<Run>,
}

/// What sessions read from. Cheap to clone.
#[derive(Clone)]
pub struct Feed {
    store: Arc<dyn Store>,
    hub: Arc<Hub>,
    stop: CancellationToken,
}

impl Feed {
    /// Starts the tailer. `committed` is notified when this process committed something.
    #[must_use]
    pub fn start(store: Arc<dyn Store>, supervisor: &Supervisor, committed: Arc<Notify>) -> Self {
        let hub = Arc::new(Hub::default());
        let stop = supervisor.stop();
        supervisor.vital("tailer", tailer::run(store.clone(), hub.clone(), committed, stop.clone()));
        Self { store, hub, stop }
    }

    /// What the tailer has done, for tests and metrics.
    #[must_use]
    pub fn hub(&self) -> &Hub {
        &self.hub
    }
}

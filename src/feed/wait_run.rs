//! Waiting for a run's end. Who waits asks the database nothing: the tailer tells.

use std::time::Duration;

use bytes::Bytes;
use tokio::time::{Instant, timeout_at};

use super::{Feed, WatchError};
use crate::domain::{Run, RunKey};

/// How a wait ended.
#[derive(Debug)]
pub struct Waited {
    /// The run.
    pub run: Bytes,
    /// It is not terminal.
    pub timed_out: bool,
}

impl Feed {
    /// Waits until a run is terminal, but not longer than `wait_max`.
    ///
    /// # Errors
    ///
    /// There is no such run, the server stops, or the store cannot be read.
    pub async fn wait_run(&self, key: &RunKey, wait_max: Duration) -> Result<Waited, WatchError> {
        let until = Instant::now() + wait_max;
        // Subscribed before the run is read: an end in between is signalled.
        let mut subscription = self.hub.subscribe(key);
        let mut looked_at = *subscription.signal.borrow_and_update();
        let run = self.current(key).await?;
        if run.status.is_terminal() {
            return Ok(self.waited(&run));
        }
        drop(run);
        loop {
            tokio::select! {
                biased;
                () = self.stop.cancelled() => return Err(WatchError::Draining),
                changed = timeout_at(until, subscription.signal.changed()) => if changed.is_err() {
                    return Ok(self.waited(&self.current(key).await?));
                },
            }
            let signal = *subscription.signal.borrow_and_update();
            match subscription.recent(signal.revision) {
                Some(entry) if entry.change.status.is_terminal() => {
                    return Ok(Waited { run: entry.change.run.clone(), timed_out: false });
                }
                Some(_) if signal.begun == looked_at.begun => {}
                // What happened is in the history only.
                Some(_) | None => {
                    let run = self.current(key).await?;
                    if run.status.is_terminal() {
                        return Ok(self.waited(&run));
                    }
                }
            }
            looked_at = signal;
        }
    }

    async fn current(&self, key: &RunKey) -> Result<Run, WatchError> {
        self.read(self.store.run(key)).await?.ok_or(WatchError::RunNotFound)
    }

    fn waited(&self, run: &Run) -> Waited {
        Waited { run: self.encode.run(run), timed_out: !run.status.is_terminal() }
    }
}

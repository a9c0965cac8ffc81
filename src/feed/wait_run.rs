//! Waiting for a run's end, or its suspension. The tailer tells a waiting caller, which sends no queries while the ring can answer.

use std::sync::atomic::Ordering;
use std::time::Duration;

use tokio::time::{Instant, timeout_at};

use super::hub::Subscription;
use super::looks::{Counted, Last, Looked, WaitUntil, Waited};
use super::{Feed, WatchError};
use crate::domain::RunKey;

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
        *last = Some(Last::new(number, waited, counted));
        Ok(answer)
    }
}

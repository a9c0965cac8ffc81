//! One watch of one run: subscribe, read the history, then follow; back to history whenever the ring has moved on.

use std::collections::VecDeque;
use std::sync::Arc;

use async_stream::try_stream;
use futures_util::Stream;
use tokio::time::{Instant, timeout_at};

use super::hub::Signal;
use super::{CHECKPOINT_INTERVAL, Change, Feed};
use crate::domain::evolve::evolve;
use crate::domain::{Event, Run, RunKey, Time};
use crate::store::{Store, StoreError};

/// What one read of the history takes at most. A session keeps its page, decoded, for as long as its reader sleeps.
const PAGE_EVENTS_MAX: usize = 100;
const PAGE_BYTES_MAX: usize = 64 * 1024;

/// One frame of a watch of one run.
#[derive(Clone, Debug, PartialEq)]
pub enum Frame {
    /// The run as it was when the watch began.
    Snapshot(Arc<Run>),
    /// One event and the run right after it.
    Change(Arc<Change>),
    /// Everything up to this revision, the run's when the watch began, was delivered.
    CaughtUp {
        /// The revision.
        revision: u64,
    },
    /// Nothing else happened for a while; everything up to this revision was delivered.
    Checkpoint {
        /// The revision.
        revision: u64,
        /// The store's clock when the log was last read to its end.
        at: Time,
    },
    /// The run is terminal and everything was delivered.
    End(Arc<Run>),
}

/// Why a watch cannot begin, or was cut.
#[derive(Debug, thiserror::Error)]
pub enum WatchError {
    /// There is no such run.
    #[error("there is no such run")]
    RunNotFound,
    /// The watch is to begin after a revision that the run has not reached.
    #[error("the run is at revision {revision}")]
    RevisionAhead {
        /// The run's revision.
        revision: u64,
    },
    /// The process stops: resume elsewhere.
    #[error("the server stops")]
    Draining,
    /// The store cannot be read.
    #[error(transparent)]
    Store(#[from] StoreError),
}

impl Feed {
    /// Watches one run: from its state as it is, or from every event after a revision.
    ///
    /// # Errors
    ///
    /// See [`WatchError`]; the stream ends with one when it is cut, and without one only after [`Frame::End`].
    pub async fn watch_run(
        &self,
        key: RunKey,
        after_revision: Option<u64>,
    ) -> Result<impl Stream<Item = Result<Frame, WatchError>> + Send + use<>, WatchError> {
        if self.stop.is_cancelled() {
            return Err(WatchError::Draining);
        }
        // Subscribed before the run is read: what happens in between is signalled, and skipped as shown.
        let mut subscription = self.hub.subscribe(&key);
        // A beginning of the tailer's before this one is no cause to look: what it missed, the run read below has.
        let begun = subscription.signal.borrow().begun;
        let run = Arc::new(self.store.run(&key).await?.ok_or(WatchError::RunNotFound)?);
        let revision = run.revision;
        let after = after_revision.unwrap_or(revision);
        if after > revision {
            return Err(WatchError::RevisionAhead { revision });
        }
        let Self { store, hub, stop } = self.clone();
        Ok(try_stream! {
            let mut shown = after;
            let mut ended = run.status.is_terminal().then(|| run.clone());
            if after_revision.is_none() {
                yield Frame::Snapshot(run);
            } else {
                drop(run);
            }
            let mut history = History::after(key.clone(), shown);
            while shown < revision {
                let change = history.next(&*store).await?.ok_or_else(|| gap(&key, shown))?;
                shown = change.event.revision;
                ended = change.run.status.is_terminal().then(|| change.run.clone());
                yield Frame::Change(change);
                if stop.is_cancelled() && ended.is_none() {
                    Err(WatchError::Draining)?;
                }
            }
            drop(history);
            if ended.is_none() {
                yield Frame::CaughtUp { revision: shown };
            }
            let mut looked_at = Signal { begun, ..Signal::default() };
            let mut quiet = Quiet::since(hub.as_of());
            while ended.is_none() {
                if stop.is_cancelled() {
                    Err(WatchError::Draining)?;
                }
                let signal = *subscription.signal.borrow_and_update();
                if let Some(change) = subscription.recent(shown + 1) {
                    shown = change.event.revision;
                    ended = change.run.status.is_terminal().then(|| change.run.clone());
                    yield Frame::Change(change);
                    quiet = Quiet::since(hub.as_of());
                } else if signal != looked_at && (signal.revision > shown || signal.begun > looked_at.begun) {
                    looked_at = signal;
                    let mut history = History::after(key.clone(), shown);
                    while ended.is_none() && !stop.is_cancelled() {
                        let Some(change) = history.next(&*store).await? else { break };
                        shown = change.event.revision;
                        ended = change.run.status.is_terminal().then(|| change.run.clone());
                        yield Frame::Change(change);
                        quiet = Quiet::since(hub.as_of());
                    }
                } else {
                    tokio::select! {
                        biased;
                        () = stop.cancelled() => {}
                        changed = timeout_at(quiet.until, subscription.signal.changed()) => {
                            // The time is taken before the signal is looked at: what happened up to it is shown first.
                            let as_of = hub.as_of();
                            let nothing_new = changed.is_err() && *subscription.signal.borrow() == signal;
                            let checkpoint = nothing_new.then(|| quiet.over(as_of)).flatten();
                            if let Some(at) = checkpoint {
                                yield Frame::Checkpoint { revision: shown, at };
                            }
                        }
                    }
                }
            }
            if let Some(run) = ended {
                yield Frame::End(run);
            }
        })
    }
}

/// Reads a run's changes from the log, one after the other. Holds one page of events and one run.
struct History {
    key: RunKey,
    after: u64,
    run: Option<Arc<Run>>,
    events: VecDeque<Event>,
}

impl History {
    fn after(key: RunKey, revision: u64) -> Self {
        Self { key, after: revision, run: None, events: VecDeque::new() }
    }

    async fn next(&mut self, store: &dyn Store) -> Result<Option<Arc<Change>>, StoreError> {
        if self.events.is_empty() {
            self.events = store.run_events(&self.key, self.after, PAGE_EVENTS_MAX, PAGE_BYTES_MAX).await?.into();
        }
        let Some(event) = self.events.pop_front() else { return Ok(None) };
        if self.run.is_none() && self.after > 0 {
            let run = store.run_at(&self.key, self.after).await?;
            self.run = Some(Arc::new(run.ok_or_else(|| gap(&self.key, self.after - 1))?));
        }
        if event.revision != self.after + 1 {
            return Err(gap(&self.key, self.after));
        }
        let run = Arc::new(evolve(self.run.take().map(Arc::unwrap_or_clone), &event));
        self.after = event.revision;
        self.run = Some(run.clone());
        Ok(Some(Arc::new(Change { event, run })))
    }
}

fn gap(key: &RunKey, revision: u64) -> StoreError {
    StoreError::Corrupt {
        table: "run_events",
        column: "revision",
        key: format!("{}/{}", key.namespace, key.run_id),
        source: format!("revision {} is missing, and the run is further", revision + 1).into(),
    }
}

/// When the next checkpoint is due, and since when the log must have been read for it to be true.
struct Quiet {
    until: Instant,
    since: Option<Time>,
}

impl Quiet {
    fn since(as_of: Option<Time>) -> Self {
        Self { until: Instant::now() + CHECKPOINT_INTERVAL, since: as_of }
    }

    /// The checkpoint's time, if the log was read since the last frame; begins the next interval then. While it was
    /// not, a checkpoint would claim what nobody has looked at: its absence tells the client so.
    fn over(&mut self, as_of: Option<Time>) -> Option<Time> {
        if as_of.is_some() && as_of != self.since {
            *self = Self::since(as_of);
            as_of
        } else {
            self.until = Instant::now() + std::time::Duration::from_secs(1);
            None
        }
    }
}

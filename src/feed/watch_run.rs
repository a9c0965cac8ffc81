//! One watch of one run: subscribe, read the history, then follow; back to history whenever the ring has moved on.

use std::collections::VecDeque;
use std::sync::Arc;

use async_stream::try_stream;
use bytes::Bytes;
use futures_util::Stream;
use tokio::time::timeout_at;

use super::checkpoints::Quiet;
use super::fold::{Folded, missing};
use super::hub::Signal;
use super::{Change, Feed, Held, WatchError};
use crate::domain::evolve::evolve;
use crate::domain::{Event, LedgerEpoch, Revision, Run, RunKey, Time};
use crate::store::{StoreError, run_at};

/// One frame of a watch of one run.
#[derive(Clone, Debug)]
pub enum Frame {
    /// The run as it was when the watch began.
    Snapshot {
        run: Bytes,
        /// Whether a worker may hold a lease on the run.
        held: bool,
    },
    /// One event and the run right after it.
    Change {
        /// The event's revision.
        revision: Revision,
        event: Bytes,
        run: Bytes,
        /// Whether a worker may hold a lease on the run.
        held: bool,
    },
    /// All events up to this revision, the run's when the watch began, were delivered.
    CaughtUp { revision: Revision },
    /// No event came for a while; all events up to this revision were delivered.
    Checkpoint {
        revision: Revision,
        /// The store's clock when the log was last read to its end.
        at: Time,
    },
    /// The run is terminal and all its events were delivered.
    End(Bytes),
}

impl Feed {
    /// Watches one run: from its state as it is, or from every event after a revision. Also returns the ledger's epoch
    /// of all frames, which is `of_epoch` where that is given.
    ///
    /// # Errors
    ///
    /// See [`WatchError`]; the stream ends with one when it is cut, and without one only after [`Frame::End`].
    pub async fn watch_run(
        &self,
        key: RunKey,
        after_revision: Option<Revision>,
        of_epoch: Option<LedgerEpoch>,
    ) -> Result<(LedgerEpoch, impl Stream<Item = Result<Frame, WatchError>> + Send + use<>), WatchError> {
        if self.stop.is_cancelled() {
            return Err(WatchError::Draining);
        }
        let epoch = self.epoch();
        if of_epoch.is_some_and(|of_epoch| of_epoch != epoch) {
            return Err(WatchError::LedgerRestored);
        }
        // Subscribed before the run is read: events in between are signalled, and skipped as shown.
        let mut subscription = self.hub.subscribe(&key);
        // An earlier beginning of the tailer is no cause to look: the run that is read below has all events that the
        // tailer missed.
        let begun = subscription.signal.borrow().begun;
        let asked = key.clone();
        let weight = |run: &Option<Run>| run.as_ref().map_or(0, Run::weight);
        let (run, kept) =
            self.page(self.looks.clone(), weight, |feed| async move { feed.runs.run(&asked).await }).await?;
        self.is_still(epoch)?;
        let run = run.ok_or(WatchError::RunNotFound)?;
        if run.purged_at.is_some() {
            return Err(WatchError::RunExpired(Box::new(run)));
        }
        let revision = run.revision;
        let after = after_revision.unwrap_or(revision);
        if after > revision {
            return Err(WatchError::RevisionAhead { revision });
        }
        let feed = self.clone();
        let frames = try_stream! {
            let Self { hub, stop, .. } = &feed;
            let mut shown = ShownRevision { revision: after, ended: None };
            let encoded = feed.encode.run(&run);
            if run.status.is_terminal() {
                shown.ended = Some(encoded.clone());
            }
            let held = run.is_held();
            drop(run);
            if after_revision.is_none() {
                yield Frame::Snapshot { run: encoded, held };
            } else {
                drop(encoded);
            }
            drop(kept);
            let mut history = History::after(key.clone(), shown.revision);
            while shown.revision < revision {
                let change = feed.unless_stopped(history.next(&feed)).await?;
                feed.is_still(epoch)?;
                let change = change?.ok_or_else(|| missing(&key, shown.revision.next()))?;
                yield shown.frame(&change);
                if stop.is_cancelled() && (shown.ended.is_none() || shown.revision < revision) {
                    Err(WatchError::Draining)?;
                }
            }
            drop(history);
            if shown.ended.is_none() {
                yield Frame::CaughtUp { revision: shown.revision };
            }
            let mut looked_at = Signal { begun, ..Signal::default() };
            let mut quiet = Quiet::since(hub.as_of());
            while shown.ended.is_none() {
                if stop.is_cancelled() {
                    Err(WatchError::Draining)?;
                }
                feed.is_still(epoch)?;
                let signal = *subscription.signal.borrow_and_update();
                if let Some(entry) = subscription.recent(shown.revision.next(), epoch) {
                    feed.is_still(epoch)?;
                    yield shown.frame(entry.change.shown());
                    quiet = Quiet::since(hub.as_of());
                } else if signal != looked_at && (signal.revision > shown.revision || signal.begun > looked_at.begun) {
                    looked_at = signal;
                    let mut history = History::after(key.clone(), shown.revision);
                    while shown.ended.is_none() && !stop.is_cancelled() {
                        let change = feed.unless_stopped(history.next(&feed)).await?;
                        feed.is_still(epoch)?;
                        let Some(change) = change? else { break };
                        yield shown.frame(change.shown());
                        quiet = Quiet::since(hub.as_of());
                    }
                } else {
                    tokio::select! {
                        biased;
                        () = stop.cancelled() => {}
                        changed = timeout_at(quiet.until, subscription.signal.changed()) => {
                            // The time is taken before the signal is looked at: events up to it are shown first.
                            let as_of = hub.as_of();
                            let nothing_new = changed.is_err() && *subscription.signal.borrow() == signal;
                            let checkpoint = nothing_new.then(|| quiet.over(as_of)).flatten();
                            if let Some(at) = checkpoint
                                && feed.is_still(epoch).is_ok()
                            {
                                yield Frame::Checkpoint { revision: shown.revision, at };
                            }
                        }
                    }
                }
            }
            if let Some(run) = shown.ended {
                yield Frame::End(run);
            }
        };
        Ok((epoch, frames))
    }
}

/// The revision that a watch has shown.
struct ShownRevision {
    revision: Revision,
    /// The run, once it is terminal.
    ended: Option<Bytes>,
}

impl ShownRevision {
    fn frame(&mut self, change: &Change) -> Frame {
        self.revision = change.revision;
        self.ended = change.status.is_terminal().then(|| change.run.clone());
        let Change { revision, event, run, held, .. } = change;
        Frame::Change { revision: *revision, event: event.clone(), run: run.clone(), held: *held }
    }
}

/// Reads a run's changes from the log, one after the other. Holds one page of events and one run.
struct History {
    key: RunKey,
    after: Revision,
    run: Option<Run>,
    events: VecDeque<Event>,
    /// Counts the page and the run.
    held: Option<Held>,
    /// The [cleanings](super::Hub::cleanings) that the page and the run have seen.
    cleanings: u64,
}

impl History {
    fn after(key: RunKey, revision: Revision) -> Self {
        Self { key, after: revision, run: None, events: VecDeque::new(), held: None, cleanings: 0 }
    }

    async fn next(&mut self, feed: &Feed) -> Result<Option<Change>, WatchError> {
        let change = self.read(feed).await;
        if matches!(change, Ok(None) | Err(StoreError::Corrupt { .. })) {
            // A reader may be so slow that the run was purged meanwhile.
            let key = self.key.clone();
            let run = feed.read(move |feed| async move { feed.runs.run(&key).await }).await?;
            if let Some(run) = run.filter(|run| run.purged_at.is_some()) {
                return Err(WatchError::RunExpired(Box::new(run)));
            }
        }
        change.map_err(|error| match error {
            error @ StoreError::Corrupt { .. } if error.may_be_of_one_run() => {
                feed.hub.log_unreadable(&self.key, self.after.next(), &error);
                WatchError::Unreadable(error)
            }
            error @ (StoreError::Corrupt { .. }
            | StoreError::Refused(_)
            | StoreError::Unavailable(_)
            | StoreError::Lost(_)) => error.into(),
        })
    }

    async fn read(&mut self, feed: &Feed) -> Result<Option<Change>, StoreError> {
        let cleanings = feed.hub.cleanings();
        if std::mem::replace(&mut self.cleanings, cleanings) != cleanings {
            // They may show what was taken out since.
            (self.run, self.events) = (None, VecDeque::new());
        }
        if self.events.is_empty() {
            self.held = None;
            let (key, after, run) = (self.key.clone(), self.after, self.run.as_ref().map_or(0, Run::weight));
            let read = move |Feed { log, limits, .. }: Feed| async move {
                match log.run_events(&key, after, limits.run_page_events_max, limits.page_bytes_max).await {
                    // The events before one that cannot be read are shown all the same.
                    Err(StoreError::Corrupt { .. }) => log.run_events(&key, after, 1, limits.page_bytes_max).await,
                    page => page,
                }
            };
            let weight = move |page: &Vec<Event>| run + page.iter().map(Event::weight).sum::<usize>();
            let (page, held) = feed.page(feed.reads.clone(), weight, read).await?;
            (self.events, self.held) = (page.into(), held);
        }
        let Some(event) = self.events.pop_front() else { return Ok(None) };
        if event.revision != self.after.next() {
            return Err(missing(&self.key, self.after.next()));
        }
        if self.run.is_none() && self.after >= Revision::FIRST {
            let (key, after) = (self.key.clone(), self.after);
            let run = feed.read(move |feed| async move { run_at(&*feed.runs, &key, after).await }).await?;
            self.run = Some(run.ok_or_else(|| missing(&self.key, self.after))?);
        }
        let run = Arc::new(evolve(self.run.take(), &event));
        let change = Change::new(&event, &Folded { before: None, after: run.clone() }, &*feed.encode);
        self.after = event.revision;
        self.run = Some(Arc::unwrap_or_clone(run));
        Ok(Some(change))
    }
}

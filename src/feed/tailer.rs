//! The tailer: the one reader of the log's end. Parks while there are no sessions.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

use super::cursor::Cursor;
use super::fold::{self, Cache, Folder};
use super::hub::Hub;
use super::ring::Entry;
use super::{Change, Encode};
use crate::domain::{EventType, LedgerEpoch, Positions};
use crate::store::{LoggedEvent, PAGE_BYTES_MAX, Page, RunLog, Runs, StoreError, Unreadable};
use crate::telemetry::chain;

/// Events that one read takes from a shard at most.
const PAGE_EVENTS_MAX: usize = 256;

/// Bytes of changes that are published at once. The changes of one page of the log may be many times as much: they
/// contain whole runs.
const PUBLISHED_BYTES_MAX: usize = 2 * 1024 * 1024;

/// The time that the tailer waits to be woken before it looks by itself.
const POLL_INTERVAL: Duration = Duration::from_millis(100);

/// The pause after a failed read, doubled up to the maximum.
const PAUSE: Duration = Duration::from_millis(50);
const PAUSE_MAX: Duration = Duration::from_secs(1);

pub(super) async fn run(
    log: Arc<dyn RunLog>,
    runs: Arc<dyn Runs>,
    hub: Arc<Hub>,
    encode: Arc<dyn Encode>,
    committed: Arc<Notify>,
    stop: CancellationToken,
) {
    let tail = async {
        loop {
            while hub.is_deserted() {
                hub.visited().await;
            }
            let epoch = log.ledger().epoch;
            let (cache, reached) = (Arc::new(fold::cache()), None);
            hub.folds_on(Some(cache.clone()));
            let mut tailer = Tailer { log: &*log, runs: &runs, hub: &hub, encode: &*encode, epoch, cache, reached };
            tailer.follow(&committed).await;
            hub.folds_on(None);
            // No session is left that could take the ring's entries; or all of them are of a past that may be lost.
            hub.begin(log.ledger().epoch);
        }
    };
    tokio::select! {
        () = tail => {}
        () = stop.cancelled() => {}
    }
}

/// Follows the log from its end for as long as there are sessions, and the ledger's epoch stays the same.
struct Tailer<'a> {
    log: &'a dyn RunLog,
    runs: &'a Arc<dyn Runs>,
    hub: &'a Hub,
    encode: &'a dyn Encode,
    /// The ledger's epoch of all that the tailer reads.
    epoch: LedgerEpoch,
    /// The watched runs as the log's end left them.
    cache: Arc<Cache>,
    reached: Option<Positions>,
}

impl Tailer<'_> {
    async fn follow(&mut self, committed: &Notify) {
        let mut pause = PAUSE;
        while !self.hub.is_deserted() && self.is_of_this_past() {
            let begins = self.reached.is_none();
            match self.step().await {
                Ok(true) if begins => {}
                Ok(true) => pause = PAUSE,
                Ok(false) => {
                    pause = PAUSE;
                    tokio::select! {
                        () = committed.notified() => {}
                        () = self.log.foreign_commit() => {}
                        // A new session of many runs waits until every event is kept.
                        () = self.hub.visited() => {}
                        // Somebody has to know all that is acknowledged by now.
                        () = self.hub.asked() => {}
                        () = tokio::time::sleep(POLL_INTERVAL) => {}
                    }
                }
                Err(error) => {
                    if pause == PAUSE {
                        tracing::warn!(error = chain(&error), "the log cannot be read: watches wait");
                    }
                    match error {
                        StoreError::Unavailable(_) | StoreError::Lost(_) => {}
                        // The page has an event that can never be read, nor its run be named. Such an event must not
                        // stop the watches of other runs. The tailer goes on from the log's end, and the sessions read
                        // the events before it themselves.
                        StoreError::Refused(_) | StoreError::Corrupt { .. } => self.reached = None,
                    }
                    tokio::time::sleep(pause).await;
                    pause = (pause * 2).min(PAUSE_MAX);
                }
            }
        }
    }

    /// Whether all reads up to now are of one past.
    fn is_of_this_past(&self) -> bool {
        self.log.ledger().epoch == self.epoch
    }

    /// Reads and publishes one page. True when more may follow right away, or when the ledger is of another past.
    async fn step(&mut self) -> Result<bool, StoreError> {
        let Some(reached) = &mut self.reached else {
            let reached = self.log.ends().await?;
            if !self.is_of_this_past() {
                return Ok(true);
            }
            // A redaction may be among the events that are passed over.
            self.hub.clean(self.epoch);
            self.reached = Some(reached);
            return Ok(true);
        };
        let wants_all = self.hub.wants_all(reached);
        let number = self.hub.begin_read();
        let Page { as_of, events, cut, ends: _ } = self.log.changes(reached, PAGE_EVENTS_MAX, PAGE_BYTES_MAX).await?;
        if self.log.ledger().epoch != self.epoch {
            return Ok(true);
        }
        if events.iter().flatten().any(|logged| logged.event.event_type == EventType::Redacted) {
            // What is remembered of the run, and of others, is read again as the redaction has left it.
            self.cache = Arc::new(fold::cache());
            self.hub.folds_on(Some(self.cache.clone()));
            self.hub.clean(self.epoch);
            self.reached = None;
            return Ok(true);
        }
        let runs = Folder { runs: self.runs, cache: &self.cache, turns: None };
        let mut page: Vec<Entry> = Vec::new();
        let mut bytes = 0;
        let mut end = reached.clone();
        for (number, read) in events.iter().enumerate() {
            let (shard, position, key, revision) = match read {
                Ok(LoggedEvent { shard, position, event }) => (*shard, *position, &event.key, event.revision),
                Err(Unreadable { shard, position, key, revision, .. }) => (*shard, *position, key, *revision),
            };
            end.set(shard, position);
            if !wants_all && !self.hub.is_watched(key) {
                if let Some(before) = revision.before() {
                    self.cache.remove(&(key.clone(), before));
                }
                continue;
            }
            let folded = match read {
                Ok(LoggedEvent { event, .. }) => {
                    let following = events[number + 1..].iter().flatten().map(|logged| &logged.event);
                    let following = following.filter(|event| wants_all || self.hub.is_watched(&event.key));
                    runs.fold(event, following).await.map(|folded| (event, folded))
                }
                Err(Unreadable { error, .. }) => Err(StoreError::Refused(chain(error).into())),
            };
            match folded {
                Ok((event, folded)) => {
                    let cursor = Cursor { epoch: self.epoch, positions: end, view: None };
                    let entry = Entry {
                        change: Change::new(event, &folded, self.encode),
                        place: (shard, position),
                        positions: cursor.positions.to_vec().into(),
                        cursor: self.encode.cursor(&event.key.namespace, &cursor),
                    };
                    end = cursor.positions;
                    bytes += entry.weight();
                    page.push(entry);
                    if bytes > PUBLISHED_BYTES_MAX {
                        self.hub.publish(std::mem::take(&mut page), &end, None);
                        reached.clone_from(&end);
                        bytes = 0;
                        // Sessions take their changes before the next ones evict them from the ring.
                        tokio::task::yield_now().await;
                    }
                }
                Err(error @ (StoreError::Corrupt { .. } | StoreError::Refused(_))) => {
                    // An unreadable event of one run must not stop the watches of all others.
                    self.hub.log_unreadable(key, revision, &error);
                    let before = page.last().map_or_else(|| reached.clone(), |entry| entry.positions.to_vec().into());
                    self.hub.publish(std::mem::take(&mut page), &before, None);
                    self.hub.interrupt(key, revision);
                    reached.clone_from(&end);
                    bytes = 0;
                    if wants_all {
                        self.hub.wants_all(&end);
                    }
                }
                Err(error @ (StoreError::Unavailable(_) | StoreError::Lost(_))) => return Err(error),
            }
        }
        self.hub.publish(page, &end, (!cut).then_some(as_of));
        *reached = end;
        if !cut {
            self.hub.end_read(number);
        }
        Ok(cut)
    }
}

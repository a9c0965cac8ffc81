//! The one reader of the log's end. Parks while nobody watches.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

use super::cursor::Cursor;
use super::fold::{self, Cache, Folder};
use super::hub::Hub;
use super::ring::Entry;
use super::{Change, Encode};
use crate::domain::Position;
use crate::store::{PAGE_BYTES_MAX, Page, Store, StoreError};
use crate::telemetry::chain;

/// Events that one read takes from a shard at most.
const PAGE_EVENTS_MAX: usize = 256;

/// Bytes of changes that are published at once. What a page of the log becomes may be many times as much: the runs are in
/// it, whole.
const PUBLISHED_BYTES_MAX: usize = 2 * 1024 * 1024;

/// How long the tailer waits to be woken before it looks by itself.
const POLL_INTERVAL: Duration = Duration::from_millis(100);

/// The pause after a failed read, doubled up to the maximum.
const PAUSE: Duration = Duration::from_millis(50);
const PAUSE_MAX: Duration = Duration::from_secs(1);

pub(super) async fn run(
    store: Arc<dyn Store>,
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
            let mut tailer = Tailer { store: &*store, hub: &hub, encode: &*encode, cache: fold::cache(), heads: None };
            tailer.follow(&committed).await;
            // Nobody is left who could take what is in the ring.
            hub.begin();
        }
    };
    tokio::select! {
        () = tail => {}
        () = stop.cancelled() => {}
    }
}

/// Follows the log from its end for as long as somebody watches.
struct Tailer<'a> {
    store: &'a dyn Store,
    hub: &'a Hub,
    encode: &'a dyn Encode,
    /// The watched runs as the log's end left them.
    cache: Cache,
    heads: Option<Vec<Position>>,
}

impl Tailer<'_> {
    async fn follow(&mut self, committed: &Notify) {
        let mut pause = PAUSE;
        while !self.hub.is_deserted() {
            let begins = self.heads.is_none();
            match self.step().await {
                Ok(true) if begins => {}
                Ok(true) => pause = PAUSE,
                Ok(false) => {
                    pause = PAUSE;
                    tokio::select! {
                        () = committed.notified() => {}
                        () = self.store.foreign_commit() => {}
                        // Who comes to watch all runs waits for every event to be kept from now on.
                        () = self.hub.visited() => {}
                        () = tokio::time::sleep(POLL_INTERVAL) => {}
                    }
                }
                Err(error) => {
                    if pause == PAUSE {
                        tracing::warn!(error = chain(&error), "the log cannot be read: watches wait");
                    }
                    match error {
                        StoreError::Unavailable(_) => {}
                        // Some event on the page cannot be read, and never will be: one run's trouble must not stop the
                        // watches of all others. They go on from the log's end, and look themselves for what is before
                        // it.
                        StoreError::Refused(_) | StoreError::Corrupt { .. } => self.heads = None,
                    }
                    tokio::time::sleep(pause).await;
                    pause = (pause * 2).min(PAUSE_MAX);
                }
            }
        }
    }

    /// Reads and publishes one page. True when there may be more right away.
    async fn step(&mut self) -> Result<bool, StoreError> {
        let Some(heads) = &mut self.heads else {
            let heads = self.store.heads().await?;
            self.hub.begin();
            self.heads = Some(heads);
            return Ok(true);
        };
        let wants_all = self.hub.wants_all(heads);
        let Page { as_of, events, cut } = self.store.changes(heads, PAGE_EVENTS_MAX, PAGE_BYTES_MAX).await?;
        let runs = Folder { store: self.store, cache: &self.cache, turns: None };
        let mut page: Vec<Entry> = Vec::new();
        let mut bytes = 0;
        let mut end = heads.clone();
        for (number, logged) in events.iter().enumerate() {
            end[usize::from(logged.shard.0)] = logged.position;
            let event = &logged.event;
            if !wants_all && !self.hub.is_watched(&event.key) {
                self.cache.remove(&(event.key.clone(), event.revision.saturating_sub(1)));
                continue;
            }
            let following = events[number + 1..].iter().map(|logged| &logged.event);
            let following = following.filter(|event| wants_all || self.hub.is_watched(&event.key));
            match runs.fold(event, following).await {
                Ok(folded) => {
                    let cursor = Cursor { positions: end, view: None };
                    let entry = Entry {
                        change: Change::new(event, &folded, self.encode),
                        place: (logged.shard, logged.position),
                        positions: cursor.positions.clone().into(),
                        cursor: self.encode.cursor(&event.key.namespace, &cursor),
                    };
                    end = cursor.positions;
                    bytes += entry.weight();
                    page.push(entry);
                    if bytes > PUBLISHED_BYTES_MAX {
                        self.hub.publish(std::mem::take(&mut page), &end, None);
                        heads.clone_from(&end);
                        bytes = 0;
                        // Sessions take theirs before the next ones push them out of the ring.
                        tokio::task::yield_now().await;
                    }
                }
                Err(error @ (StoreError::Corrupt { .. } | StoreError::Refused(_))) => {
                    // One run's trouble must not stop the watches of all others.
                    tracing::error!(error = chain(&error), "a run cannot be folded: its watches look for themselves");
                    let before = page.last().map_or_else(|| heads.clone(), |entry| entry.positions.to_vec());
                    self.hub.publish(std::mem::take(&mut page), &before, None);
                    self.hub.interrupt(&event.key, event.revision);
                    heads.clone_from(&end);
                    bytes = 0;
                    if wants_all {
                        self.hub.wants_all(&end);
                    }
                }
                Err(error @ StoreError::Unavailable(_)) => return Err(error),
            }
        }
        self.hub.publish(page, &end, (!cut).then_some(as_of));
        *heads = end;
        Ok(cut)
    }
}

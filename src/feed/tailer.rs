//! The one reader of the log's end. Parks while nobody watches.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

use super::Change;
use super::hub::Hub;
use crate::domain::evolve::evolve;
use crate::domain::{Event, Position, Run, RunKey};
use crate::store::{PAGE_BYTES_MAX, Page, Store, StoreError};
use crate::telemetry::chain;

/// Events that one read takes from a shard at most.
const PAGE_EVENTS_MAX: usize = 256;

/// How long the tailer waits to be woken before it looks by itself.
const POLL_INTERVAL: Duration = Duration::from_millis(100);

/// The pause after a failed read, doubled up to the maximum.
const PAUSE: Duration = Duration::from_millis(50);
const PAUSE_MAX: Duration = Duration::from_secs(1);

/// Bytes of runs kept to fold the next event on; what does not fit is read back from the log.
const CACHE_BYTES_MAX: usize = 32 * 1024 * 1024;

pub(super) async fn run(store: Arc<dyn Store>, hub: Arc<Hub>, committed: Arc<Notify>, stop: CancellationToken) {
    let tail = async {
        loop {
            hub.until_watched().await;
            follow(&*store, &hub, &committed).await;
        }
    };
    tokio::select! {
        () = tail => {}
        () = stop.cancelled() => {}
    }
}

/// Follows the log from its end for as long as somebody watches.
async fn follow(store: &dyn Store, hub: &Hub, committed: &Notify) {
    let mut pause = PAUSE;
    let mut cache = Cache::default();
    let mut heads: Option<Vec<Position>> = None;
    while hub.watched_runs() > 0 {
        let begins = heads.is_none();
        match step(store, hub, &mut cache, &mut heads).await {
            Ok(true) if begins => {}
            Ok(true) => pause = PAUSE,
            Ok(false) => {
                pause = PAUSE;
                tokio::select! {
                    () = committed.notified() => {}
                    () = store.foreign_commit() => {}
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
                    // watches of all others. They go on from the log's end, and look themselves for what is before it.
                    StoreError::Refused(_) | StoreError::Corrupt { .. } => heads = None,
                }
                tokio::time::sleep(pause).await;
                pause = (pause * 2).min(PAUSE_MAX);
            }
        }
    }
}

/// Reads and publishes one page. True when there may be more right away.
async fn step(
    store: &dyn Store,
    hub: &Hub,
    cache: &mut Cache,
    heads: &mut Option<Vec<Position>>,
) -> Result<bool, StoreError> {
    let Some(after) = heads else {
        *heads = Some(store.heads().await?);
        hub.begin();
        return Ok(true);
    };
    let Page { as_of, events, cut } = store.changes(after, PAGE_EVENTS_MAX, PAGE_BYTES_MAX).await?;
    hub.read_page();
    for logged in events {
        if hub.is_watched(&logged.event.key) {
            match cache.fold(store, &logged.event).await {
                Ok(run) => hub.publish(Arc::new(Change { event: logged.event, run })),
                Err(error @ (StoreError::Corrupt { .. } | StoreError::Refused(_))) => {
                    // One run's trouble must not stop the watches of all others.
                    tracing::error!(error = chain(&error), "a run cannot be folded: its watches look for themselves");
                    hub.signal(&logged.event.key, logged.event.revision);
                }
                Err(error @ StoreError::Unavailable(_)) => return Err(error),
            }
        } else {
            cache.forget(&logged.event.key);
        }
        after[usize::from(logged.shard.0)] = logged.position;
    }
    if !cut {
        hub.read_to_end(as_of);
    }
    Ok(cut)
}

/// The watched runs as the log's end left them.
#[derive(Default)]
struct Cache {
    runs: HashMap<RunKey, Arc<Run>>,
    bytes: usize,
}

impl Cache {
    /// The run right after an event.
    async fn fold(&mut self, store: &dyn Store, event: &Event) -> Result<Arc<Run>, StoreError> {
        let before = self.forget(&event.key);
        let run = match before {
            None if event.revision == 1 => Arc::new(evolve(None, event)),
            Some(run) if run.revision + 1 == event.revision => Arc::new(evolve(Some(Arc::unwrap_or_clone(run)), event)),
            None | Some(_) => {
                let run = store.run_at(&event.key, event.revision).await?;
                Arc::new(run.ok_or_else(|| missing(event))?)
            }
        };
        if !run.status.is_terminal() {
            self.keep(run.clone());
        }
        Ok(run)
    }

    fn keep(&mut self, run: Arc<Run>) {
        if self.bytes > CACHE_BYTES_MAX {
            self.runs.clear();
            self.bytes = 0;
        }
        self.bytes += run.weight();
        self.runs.insert(run.key(), run);
    }

    fn forget(&mut self, key: &RunKey) -> Option<Arc<Run>> {
        let run = self.runs.remove(key)?;
        self.bytes = self.bytes.saturating_sub(run.weight());
        Some(run)
    }
}

fn missing(event: &Event) -> StoreError {
    StoreError::Corrupt {
        table: "run_events",
        column: "revision",
        key: format!("{}/{}", event.key.namespace, event.key.run_id),
        source: format!("revision {} is in the log's end and not in the run's history", event.revision).into(),
    }
}

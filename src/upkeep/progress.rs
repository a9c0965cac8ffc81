//! The progress of watched runs, for their watchers: best effort.
//!
//! Workers report to any replica, so the board reads the reports from the leases' rows: once a second, for all runs
//! that are watched here, and only while there are watchers.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::{Mutex, MutexGuard};
use tokio::sync::{Notify, watch};
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;

use crate::domain::{Progress, RunKey, Time};
use crate::store::Upkeep;
use crate::tasks::Supervisor;

/// The time from one look to the next. Watchers of a run are not told more often.
const EVERY: Duration = Duration::from_secs(1);

/// Runs that one query is about at most.
const RUNS_MAX: usize = 512;

/// A worker's last report of progress, and its time.
type Said = Option<(Progress, Time)>;

/// See the module.
pub struct ProgressBoard {
    watched: Mutex<HashMap<RunKey, Watched>>,
    somebody: Notify,
}

struct Watched {
    said: watch::Sender<Said>,
    /// Whether the run was looked up since its first watcher came. Reports from before are not told.
    known: bool,
    watchers: usize,
}

impl ProgressBoard {
    /// Starts the task that looks while there are watchers.
    #[must_use]
    pub fn start(store: Arc<dyn Upkeep>, supervisor: &Supervisor) -> Arc<Self> {
        let board = Arc::new(Self { watched: Mutex::default(), somebody: Notify::new() });
        supervisor.vital("progress", look(board.clone(), store, supervisor.stop()));
        board
    }

    /// Watches a run that has a lease.
    #[must_use]
    pub fn watch(self: &Arc<Self>, key: &RunKey) -> ProgressWatch {
        let mut watched = self.watched();
        let entry = watched.entry(key.clone());
        let run = entry.or_insert_with(|| Watched { said: watch::channel(None).0, known: false, watchers: 0 });
        run.watchers += 1;
        let mut said = run.said.subscribe();
        said.mark_unchanged();
        drop(watched);
        self.somebody.notify_one();
        ProgressWatch { board: self.clone(), key: key.clone(), said }
    }

    fn watched(&self) -> MutexGuard<'_, HashMap<RunKey, Watched>> {
        self.watched.lock()
    }

    fn tell(&self, key: &RunKey, found: Said) {
        if let Some(run) = self.watched().get_mut(key) {
            let known = std::mem::replace(&mut run.known, true);
            run.said.send_if_modified(|said| {
                let differs = *said != found;
                *said = found;
                differs && known && said.is_some()
            });
        }
    }
}

async fn look(board: Arc<ProgressBoard>, store: Arc<dyn Upkeep>, stop: CancellationToken) {
    loop {
        let keys: Vec<RunKey> = board.watched().keys().cloned().collect();
        if keys.is_empty() {
            tokio::select! {
                () = stop.cancelled() => return,
                () = board.somebody.notified() => {}
            }
            continue;
        }
        for keys in keys.chunks(RUNS_MAX) {
            // Other tasks report a store that does not answer. Watchers are told nothing meanwhile.
            if let Ok(leases) = store.leases(keys).await {
                for (key, lease) in keys.iter().zip(leases) {
                    board.tell(key, lease.and_then(|lease| lease.progress));
                }
            }
        }
        tokio::select! {
            () = stop.cancelled() => return,
            () = sleep(EVERY) => {}
        }
    }
}

/// One watcher's view of a run's progress.
pub struct ProgressWatch {
    board: Arc<ProgressBoard>,
    key: RunKey,
    said: watch::Receiver<Said>,
}

impl ProgressWatch {
    /// The worker's next report. The future may be dropped and the call repeated.
    pub async fn next(&mut self) -> (Progress, Time) {
        loop {
            // The board keeps the sender for as long as this watcher exists.
            self.said.changed().await.expect("the board keeps it");
            if let Some(said) = self.said.borrow_and_update().clone() {
                return said;
            }
        }
    }
}

impl Drop for ProgressWatch {
    fn drop(&mut self) {
        let mut watched = self.board.watched();
        if let Some(run) = watched.get_mut(&self.key) {
            run.watchers -= 1;
            if run.watchers == 0 {
                watched.remove(&self.key);
            }
        }
    }
}

//! Tasks that are all waited for, and the stop of the process.
//!
//! No task is detached. A vital task that ends before the stop was asked for, even by a panic, stops the service, and
//! the process ends with an error.

pub mod file_poll;
pub mod signals;

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

/// Starts tasks, stops them, and knows whether a vital one failed. Clones share one state.
#[derive(Clone, Debug, Default)]
pub struct Supervisor {
    stop: CancellationToken,
    tasks: TaskTracker,
    failed: Arc<OnceLock<&'static str>>,
}

impl Supervisor {
    /// A supervisor with nothing to do yet.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Cancelled once the service is to stop.
    #[must_use]
    pub fn stop(&self) -> CancellationToken {
        self.stop.clone()
    }

    /// The vital part that failed, if one did.
    #[must_use]
    pub fn failed(&self) -> Option<&'static str> {
        self.failed.get().copied()
    }

    /// Stops the service when it is dropped before the stop, also by a panic: for a vital task that is waited for
    /// apart.
    #[must_use]
    pub fn guard(&self, name: &'static str) -> Vital {
        Vital { name, supervisor: self.clone() }
    }

    /// Starts a task that the service cannot do without. The task may end only after the stop.
    pub fn vital(&self, name: &'static str, task: impl Future<Output = ()> + Send + 'static) {
        let guard = self.guard(name);
        self.spawn(async move {
            let _guard = guard;
            task.await;
        });
    }

    /// Stops the service because a vital part of it failed.
    pub fn fail(&self, name: &'static str) {
        if !self.stop.is_cancelled() {
            tracing::error!(part = name, "a vital part failed: the service stops");
            let _first = self.failed.set(name);
            self.stop.cancel();
        }
    }

    /// Starts a task that may end when it likes.
    pub fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) {
        drop(self.tasks.spawn(task));
    }

    /// Waits until every task has ended, but not longer than `wait_max`. Says whether they all did.
    pub async fn finished(&self, wait_max: Duration) -> bool {
        self.tasks.close();
        tokio::time::timeout(wait_max, self.tasks.wait()).await.is_ok()
    }
}

/// See [`Supervisor::guard`].
#[derive(Debug)]
pub struct Vital {
    name: &'static str,
    supervisor: Supervisor,
}

impl Drop for Vital {
    fn drop(&mut self) {
        self.supervisor.fail(self.name);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_vital_task_that_panics_stops_the_service() {
        let supervisor = Supervisor::new();
        supervisor.vital("doomed", async { panic!("on purpose") });
        supervisor.stop().cancelled().await;
        assert_eq!(supervisor.failed(), Some("doomed"));
    }

    #[tokio::test]
    async fn a_vital_task_that_ends_after_the_stop_is_no_failure() {
        let supervisor = Supervisor::new();
        let stop = supervisor.stop();
        supervisor.vital("good", async move { stop.cancelled().await });
        supervisor.stop().cancel();
        assert!(supervisor.finished(Duration::from_secs(5)).await);
        assert_eq!(supervisor.failed(), None);
    }
}

//! Wake-ups between processes: `NOTIFY` and `LISTEN` on a connection of their own.
//!
//! Both are outside the write transaction, because a `NOTIFY` in it takes a lock that all of the database's
//! transactions share. A wake-up may be lost without harm, as the log is also read without one.

use std::future::poll_fn;
use std::sync::Arc;
use std::sync::atomic::{AtomicI32, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use runledger_postgres::{Connected, Connector};
use tokio::sync::Notify;
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};
use tokio_postgres::AsyncMessage;

use super::defaults::put_right;
use super::errors::TimedOut;
use super::sessions::CREATE_MAX;
use crate::store::error::Source;
use crate::tasks::Supervisor;
use crate::telemetry::chain;

/// The shortest time between two `NOTIFY`.
const PACE: Duration = Duration::from_millis(5);
const BACKOFF_MIN: Duration = Duration::from_millis(100);
const BACKOFF_MAX: Duration = Duration::from_secs(5);

/// A `NOTIFY` writes to the log of the database: no caller waits until that is on disk.
const SETTINGS: &str = concat!(
    "-- announce.listen",
    put_right!(),
    ";
set synchronous_commit = off;
set lock_timeout = '2s';
set statement_timeout = '10s';
listen runledger"
);
const WHO: &str = "-- announce.who
select pg_backend_pid()";
const NOTIFY: &str = "-- announce.notify
notify runledger";

/// The listener, for as long as this lives.
pub(super) struct Announcer {
    signals: Arc<Signals>,
    tasks: Mutex<JoinSet<()>>,
}

#[derive(Default)]
struct Signals {
    ours: Notify,
    theirs: Notify,
}

impl Announcer {
    /// Starts to listen; while the database does not answer, the task goes on trying. The task is vital, and goes on
    /// after the stop of the service, until this announcer is told to stop: the last commits are announced as well.
    pub(super) fn start(connector: Connector, supervisor: &Supervisor) -> Self {
        Self::new(supervisor, |signals| keep_listening(connector, signals))
    }

    fn new<T>(supervisor: &Supervisor, task: impl FnOnce(Arc<Signals>) -> T) -> Self
    where
        T: Future<Output = ()> + Send + 'static,
    {
        let signals = Arc::new(Signals::default());
        let (guard, task) = (supervisor.guard("announcer"), task(signals.clone()));
        let mut tasks = JoinSet::new();
        tasks.spawn(async move {
            let _guard = guard;
            task.await;
        });
        Self { signals, tasks: Mutex::new(tasks) }
    }

    /// An announcer that neither listens nor tells.
    pub(super) fn silent() -> Self {
        Self { signals: Arc::default(), tasks: Mutex::default() }
    }

    /// Tells the other processes, soon. Several calls in a row become one `NOTIFY`.
    pub(super) fn announce(&self) {
        self.signals.ours.notify_one();
    }

    /// Resolves when another process has told of a commit, also if that was before the call. Wakes one waiter.
    pub(super) async fn heard(&self) {
        self.signals.theirs.notified().await;
    }

    pub(super) fn stop(&self) {
        self.tasks.lock().abort_all();
    }
}

async fn keep_listening(connector: Connector, signals: Arc<Signals>) {
    let mut backoff = BACKOFF_MIN;
    let mut silent = false;
    loop {
        let mut listened = false;
        let end = listen(&connector, &signals, || {
            listened = true;
            if silent {
                tracing::info!("the listener has a connection again");
            }
        })
        .await;
        if listened {
            backoff = BACKOFF_MIN;
        }
        silent = true;
        let error = end.err().map(|error| chain(&*error));
        tracing::warn!(error, "the listener has no connection: commits of other replicas are seen later");
        sleep(backoff).await;
        backoff = (backoff * 2).min(BACKOFF_MAX);
    }
}

/// Listens until the connection ends.
async fn listen(connector: &Connector, signals: &Signals, listens: impl FnOnce()) -> Result<(), Source> {
    let connected = timeout(CREATE_MAX, connector.connect()).await.map_err(|_| TimedOut)??;
    let Connected { client, mut connection, .. } = connected;
    // The own process id is known once the connection is polled; 0 is no process's.
    let own = AtomicI32::new(0);
    let hear = async {
        while let Some(message) = poll_fn(|cx| connection.poll_message(cx)).await {
            // Notices, and other messages of the driver, say nothing about commits; nor do this process's own
            // notifications.
            if let AsyncMessage::Notification(told) = message?
                && told.process_id() != own.load(Ordering::Relaxed)
            {
                signals.theirs.notify_one();
            }
        }
        Ok(())
    };
    let speak = async {
        timeout(CREATE_MAX, client.batch_execute(SETTINGS)).await.map_err(|_| TimedOut)??;
        let pid: i32 = client.query_one(WHO, &[]).await?.try_get(0)?;
        own.store(pid, Ordering::Relaxed);
        listens();
        // Another process may have told of a commit while this one did not listen.
        signals.theirs.notify_one();
        loop {
            signals.ours.notified().await;
            client.batch_execute(NOTIFY).await?;
            sleep(PACE).await;
        }
    };
    tokio::select! {
        end = hear => end,
        end = speak => end,
    }
}

#[cfg(test)]
mod tests {
    use std::future::pending;

    use super::*;

    #[tokio::test]
    async fn a_listener_that_panics_stops_the_service() {
        let supervisor = Supervisor::new();
        let _announcer = Announcer::new(&supervisor, |_signals| async { panic!("on purpose") });
        supervisor.stop().cancelled().await;
        assert_eq!(supervisor.failed(), Some("announcer"));
    }

    #[tokio::test]
    async fn a_listener_that_ends_after_the_stop_is_no_failure() {
        let supervisor = Supervisor::new();
        let announcer = Announcer::new(&supervisor, |_signals| pending());
        supervisor.stop().cancel();
        announcer.stop();
        while announcer.tasks.lock().try_join_next().is_none() {
            tokio::task::yield_now().await;
        }
        assert_eq!(supervisor.failed(), None);
    }
}

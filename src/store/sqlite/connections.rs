//! The connections of one store: one that writes, a few that read. In memory, the one that writes reads as well.
//!
//! A job waits for its connection in the async world and then holds a blocking thread for as long as it runs, so that
//! waiting callers use up no threads. The connection goes back when the job ends, however it ends. A read whose caller
//! goes away is interrupted: the next caller does not wait for an answer that nobody reads.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use rusqlite::{Connection, InterruptHandle};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::{Instant, MissedTickBehavior, interval};

use super::generation::{self, Turns};
use super::identity::{Identity, LOOK_EVERY};
use super::{errors, open};
use crate::store::metrics::{POOL_COMMIT, POOL_READ};
use crate::store::{PoolUse, StoreError};
use crate::telemetry::{chain, record, traces};

/// All connections, and the identity of the file that they are to, with the locks that they work under: the locks are
/// released after the last connection.
pub(super) struct Connections {
    // Dropped from top to bottom: the writer, which syncs as it should, is the last to close the file.
    readers: Option<Pool>,
    writer: Pool,
    identity: Option<Arc<Identity>>,
    turns: Option<Arc<Turns>>,
}

/// The time that the closing of a lost database waits for other users of its file.
const LOST_CLOSE_WAIT: Duration = Duration::from_secs(1);

/// Idle connections and as many permits to take one.
struct Pool {
    idle: Mutex<Vec<Connection>>,
    permits: Arc<Semaphore>,
    size: u32,
}

#[derive(Clone, Copy)]
enum Use {
    Write,
    Read,
}

impl Connections {
    /// The connections of a store. Without readers, the writer reads.
    pub(super) fn new(
        writer: Connection,
        readers: Vec<Connection>,
        file: Option<(Arc<Identity>, Arc<Turns>)>,
    ) -> Arc<Self> {
        let (identity, turns) = file.unzip();
        Arc::new(Self {
            turns,
            writer: Pool::new(vec![writer]),
            readers: (!readers.is_empty()).then(|| Pool::new(readers)),
            identity,
        })
    }

    /// Connections for reading only: nothing is ever written, and no order of closing matters.
    pub(super) fn reading(readers: Vec<Connection>) -> Arc<Self> {
        Arc::new(Self { writer: Pool::new(Vec::new()), readers: Some(Pool::new(readers)), identity: None, turns: None })
    }

    /// Runs a job on the connection that writes. An error means that the job did not run or panicked, and then it has
    /// rolled back; or that the file which it wrote to is not the ledger's any more, and then its result does not
    /// count.
    pub(super) async fn write<T: Send + 'static>(
        self: &Arc<Self>,
        job: impl FnOnce(&mut Connection) -> T + Send + 'static,
    ) -> Result<T, StoreError> {
        let (done, looked) = self.write_and_look(job).await?;
        looked.map(|()| done)
    }

    /// The same for a job whose result tells by itself whether it counts: beside the result comes whether the file
    /// that it wrote to is still the ledger's.
    pub(super) async fn write_and_look<T: Send + 'static>(
        self: &Arc<Self>,
        job: impl FnOnce(&mut Connection) -> T + Send + 'static,
    ) -> Result<(T, Result<(), StoreError>), StoreError> {
        let (identity, turns) = (self.identity.clone(), self.turns.clone());
        let then_look = move |connection: &mut Connection| {
            let done = job(connection);
            if let Some(turns) = turns {
                turns.follow(connection, || identity.as_ref().is_none_or(|identity| identity.has_all()));
            }
            (done, identity.map_or(Ok(()), |identity| identity.look()))
        };
        self.run(Use::Write, then_look).await
    }

    /// Writes the log into the file and cuts it. False where somebody reads.
    pub(super) async fn cut_log(self: &Arc<Self>) -> Result<bool, StoreError> {
        let (identity, turns) = (self.identity.clone(), self.turns.clone());
        let cut = move |connection: &mut Connection| match turns {
            Some(_) if !identity.is_none_or(|identity| identity.has_all()) => Ok(false),
            Some(turns) => turns.cut(connection).map_err(errors::statement),
            None => Ok(true),
        };
        self.write(cut).await?
    }

    /// Runs a job on a connection that reads. The statement that the job executes when its caller goes away is
    /// interrupted, and a job that has not begun then never does.
    pub(super) async fn read<T: Send + 'static>(
        self: &Arc<Self>,
        job: impl FnOnce(&mut Connection) -> T + Send + 'static,
    ) -> Result<T, StoreError> {
        let awaited = Awaited::default();
        let progress = awaited.0.clone();
        let interruptible = move |connection: &mut Connection| {
            let _ended = Ended::of(&progress, connection)?;
            Some(job(connection))
        };
        self.run(Use::Read, interruptible).await?.ok_or_else(errors::closed)
    }

    async fn run<T: Send + 'static>(
        self: &Arc<Self>,
        purpose: Use,
        job: impl FnOnce(&mut Connection) -> T + Send + 'static,
    ) -> Result<T, StoreError> {
        if let Some(identity) = &self.identity {
            identity.known()?;
        }
        let permits = self.pool(purpose).permits.clone();
        let began = Instant::now();
        let waits = traces::part("store.wait_for_connection");
        let permit = permits.acquire_owned().await.map_err(|_closed| errors::closed())?;
        drop(waits);
        let pool = match purpose {
            Use::Write => POOL_COMMIT,
            Use::Read => POOL_READ,
        };
        record::pool_wait(pool, began.elapsed());
        let connections = self.clone();
        let _works = traces::part("store.work");
        tokio::task::spawn_blocking(move || Borrowed::take(connections, purpose, permit).run(job))
            .await
            .map_err(errors::job)
    }

    /// The connections in use, and how many there are.
    pub(super) fn pools(&self) -> Vec<PoolUse> {
        let used = |(_, name): record::Value, pool: &Pool| {
            let max = usize::try_from(pool.size).unwrap_or(usize::MAX);
            PoolUse { name, in_use: max.saturating_sub(pool.permits.available_permits()), max }
        };
        let readers = self.readers.as_ref().map(|readers| used(POOL_READ, readers));
        std::iter::once(used(POOL_COMMIT, &self.writer)).chain(readers).collect()
    }

    /// Resolves once the file is not the ledger's any more; never where there is no file.
    pub(super) async fn lost(self: &Arc<Self>) -> String {
        let Some(identity) = &self.identity else { return std::future::pending().await };
        let looks = async {
            let mut tick = interval(LOOK_EVERY);
            tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
            loop {
                tick.tick().await;
                let looking = identity.clone();
                let look = move || {
                    looking.look_around();
                    looking.seems_cut()
                };
                // A file system that hangs holds this thread and nothing else.
                if tokio::task::spawn_blocking(look).await.unwrap_or_default() {
                    self.ask_the_writer().await;
                }
            }
        };
        tokio::select! {
            sentence = identity.lost() => sentence,
            never = looks => never,
        }
    }

    /// Looks at the parts that seem to be cut between two jobs of the writer, who writes to none meanwhile.
    async fn ask_the_writer(self: &Arc<Self>) {
        let Some(identity) = self.identity.clone() else { return };
        if let Err(error) = self.write(move |_writer| identity.has_all()).await {
            tracing::debug!(error = chain(&error), "the parts of the ledger were looked at");
        }
    }

    fn pool(&self, purpose: Use) -> &Pool {
        match purpose {
            Use::Write => &self.writer,
            Use::Read => self.readers.as_ref().unwrap_or(&self.writer),
        }
    }

    /// Waits for the jobs that came before, empties the write-ahead log into the file as far as it can, closes, and
    /// releases the locks. Later jobs are refused.
    ///
    /// Where the names mean other files by now, the log is emptied too, which writes to the files that are open; but
    /// nothing is removed by its name, as SQLite would remove the log.
    pub(super) async fn close(self: &Arc<Self>) {
        let mut readers = Vec::new();
        if let Some(pool) = &self.readers {
            readers = pool.drain().await;
        }
        let writers = self.writer.drain().await;
        let connections = self.clone();
        let close = move || {
            drop(readers);
            let lost = connections.identity.as_ref().is_some_and(|identity| !identity.has_all());
            for mut writer in writers {
                if connections.turns.is_some()
                    && !lost
                    && let Err(error) = generation::close(&mut writer)
                {
                    tracing::debug!(%error, "the write-ahead log was not stamped");
                }
                if connections.identity.as_ref().is_some_and(|identity| identity.stays()) {
                    // What is left of the parts is for whoever mends it.
                    if let Err(error) = open::keep_log(&writer, true) {
                        tracing::warn!(%error, "the write-ahead log may be written into the file");
                    }
                    if let Some(identity) = &connections.identity {
                        identity.forget_frames();
                    }
                    continue;
                }
                if lost {
                    // A process that has the file open under another name may hold a lock for as long as it likes.
                    let _as_before = writer.busy_timeout(LOST_CLOSE_WAIT);
                }
                match writer.query_row("pragma wal_checkpoint(truncate)", [], |row| row.get::<_, i64>(0)) {
                    Ok(0) => {}
                    Ok(_busy) => tracing::warn!(
                        lost,
                        "the write-ahead log was not emptied, since somebody else uses the database{}",
                        if lost { ": what is in it may be missing from the file" } else { "; the next open does it" }
                    ),
                    Err(error) => {
                        tracing::warn!(error = %error, lost, "the write-ahead log was not emptied");
                    }
                }
                if lost && let Err(error) = open::keep_log(&writer, true) {
                    tracing::warn!(error = %error, "what stands in place of the write-ahead log may be removed");
                }
                if let Err((_writer, error)) = writer.close() {
                    tracing::warn!(error = %error, "the database was not closed cleanly");
                }
            }
            if let Some(identity) = &connections.identity {
                identity.release();
            }
        };
        if let Err(error) = tokio::task::spawn_blocking(close).await {
            tracing::warn!(error = %error, "the store was not closed cleanly");
        }
    }
}

impl Pool {
    fn new(connections: Vec<Connection>) -> Self {
        let size = connections.len();
        Self {
            idle: Mutex::new(connections),
            permits: Arc::new(Semaphore::new(size)),
            size: u32::try_from(size).expect("a handful of connections"),
        }
    }

    /// Every connection, once all are idle; none when it was drained before.
    async fn drain(&self) -> Vec<Connection> {
        let Ok(_all) = self.permits.acquire_many(self.size).await else { return Vec::new() };
        self.permits.close();
        std::mem::take(&mut *self.idle.lock())
    }
}

/// How far the job of a read has come.
#[derive(Default)]
enum Progress {
    #[default]
    Queued,
    Begun(InterruptHandle),
    Ended,
    /// The caller went away before the job began.
    Abandoned,
}

/// Kept by the caller of a read: dropping it interrupts the job.
#[derive(Default)]
struct Awaited(Arc<Mutex<Progress>>);

impl Drop for Awaited {
    fn drop(&mut self) {
        let mut progress = self.0.lock();
        match &*progress {
            Progress::Queued => *progress = Progress::Abandoned,
            // The job cannot end meanwhile, and so no other job's statement is interrupted.
            Progress::Begun(job) => job.interrupt(),
            Progress::Ended | Progress::Abandoned => {}
        }
    }
}

/// Kept by the job of a read: dropping it, even by a panic, tells that the job is over before the connection goes back.
struct Ended<'a>(&'a Mutex<Progress>);

impl<'a> Ended<'a> {
    /// Begins a job; none where its caller has gone.
    fn of(job: &'a Mutex<Progress>, connection: &Connection) -> Option<Self> {
        let mut progress = job.lock();
        match &*progress {
            Progress::Queued => *progress = Progress::Begun(connection.get_interrupt_handle()),
            Progress::Begun(_) | Progress::Ended | Progress::Abandoned => return None,
        }
        Some(Self(job))
    }
}

impl Drop for Ended<'_> {
    fn drop(&mut self) {
        *self.0.lock() = Progress::Ended;
    }
}

/// A connection on its way through a job. Dropping it, even by a panic, gives it back before the permit is freed.
struct Borrowed {
    connection: Option<Connection>,
    connections: Arc<Connections>,
    purpose: Use,
    _permit: OwnedSemaphorePermit,
}

impl Borrowed {
    fn take(connections: Arc<Connections>, purpose: Use, permit: OwnedSemaphorePermit) -> Self {
        let connection = connections.pool(purpose).idle.lock().pop();
        Self { connection, connections, purpose, _permit: permit }
    }

    fn run<T>(mut self, job: impl FnOnce(&mut Connection) -> T) -> T {
        job(self.connection.as_mut().expect("there are as many connections as permits"))
    }
}

impl Drop for Borrowed {
    fn drop(&mut self) {
        self.connections.pool(self.purpose).idle.lock().extend(self.connection.take());
    }
}

#[cfg(test)]
mod tests {
    use std::ops::ControlFlow;

    use tokio::sync::oneshot;

    use super::*;
    use crate::store::sqlite::rows::each;

    const ENDLESS: &str = "with recursive n (i) as (select 1 union all select i + 1 from n) select i from n";

    #[tokio::test]
    async fn a_read_whose_caller_goes_away_is_interrupted_and_the_next_one_is_not() {
        let connections = Connections::reading(vec![Connection::open_in_memory().unwrap()]);
        for _ in 0..3 {
            let (begun, begins) = oneshot::channel();
            let mut begun = Some(begun);
            let endless = connections.read(move |connection| {
                each(connection, ENDLESS, [], |_row| {
                    begun.take().map(|begun| begun.send(()));
                    Ok(ControlFlow::Continue(()))
                })
            });
            tokio::select! {
                answer = endless => panic!("it has no end: {:?}", answer.is_ok()),
                begun = begins => begun.unwrap(),
            }
            let counted = "with recursive n (i) as (select 1 union all select i + 1 from n where i < 10000)
                           select count(*) from n";
            let count = connections.read(|connection| connection.query_row(counted, [], |row| row.get::<_, i64>(0)));
            assert_eq!(count.await.unwrap().unwrap(), 10_000);
        }
    }

    #[tokio::test]
    async fn a_read_whose_caller_went_away_before_it_began_never_begins() {
        let connections = Connections::reading(vec![Connection::open_in_memory().unwrap()]);
        let (abandoned, queued) = (Awaited::default(), Awaited::default());
        let (abandoned_job, queued_job) = (abandoned.0.clone(), queued.0.clone());
        drop(abandoned);
        let begin = move |connection: &mut Connection| {
            (Ended::of(&abandoned_job, connection).is_some(), Ended::of(&queued_job, connection).is_some())
        };
        assert_eq!(connections.run(Use::Read, begin).await.unwrap(), (false, true));
    }
}

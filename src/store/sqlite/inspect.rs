//! The file, read beside the server that has it, or while no server has it.
//!
//! The directory's lock is the server's, so it is not taken: readers of the write-ahead log need none. Each page is a
//! short snapshot, so that the log can be emptied between two of them.

mod condition;
mod links;
mod pages;

use std::fs;
use std::future::pending;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use async_trait::async_trait;
use parking_lot::Mutex;
use rusqlite::Connection;

use super::connections::Connections;
use super::upkeep::retention;
use super::{changes, diagnosis, errors, migrate, open, read, rows, whole};
use crate::clock::Clock;
use crate::domain::ids::shard_of;
use crate::domain::{ContentRow, ContentTable, Event, Namespace, Position, Positions, Revision, RunKey, Shard, Time};
use crate::store::contents::Beside;
use crate::store::finding::Diagnosis;
use crate::store::inspect::{
    BesideRow, Condition, EventRow, Extent, Inspect, Link, Links, OfRuns, Past, PlaceRow, RunRow, ShardRows, Tombstones,
};
use crate::store::{Description, Ledger, OfLedger, OpenError, PAGE_BYTES_MAX, Page, RunLog, StoreError};

/// The number of connections, and so of pages at once.
const READERS: usize = 2;

/// The time in which a file system answers a look that is for faults: the doctor names them within 3 s.
const DIAGNOSIS_MAX: Duration = Duration::from_millis(2_500);

/// The same for whoever wants what is in the file: a disk that spins up, or a mount that is made when it is asked for, takes some
/// seconds.
pub(super) const ANSWER_MAX: Duration = Duration::from_secs(20);

/// A file that is only read.
pub struct SqliteInspect {
    opened: Mutex<Opened>,
    clock: Arc<dyn Clock>,
    ledger: Ledger,
    path: PathBuf,
}

#[derive(Clone)]
struct Opened {
    connections: Arc<Connections>,
    /// The file's stamp when it was opened as one that nobody writes.
    frozen: Option<Stamp>,
}

/// The size and time of a file: they change when it is written to.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Stamp {
    bytes: u64,
    modified: Option<SystemTime>,
}

impl SqliteInspect {
    /// Opens a file that is there, for reading.
    ///
    /// # Errors
    ///
    /// [`OpenError::NoLedger`] when there is none, [`OpenError::NeedsMigration`], [`OpenError::NeedsNewerRelease`].
    pub async fn open(path: PathBuf, clock: Arc<dyn Clock>) -> Result<Self, OpenError> {
        let path = answering(&path, ANSWER_MAX).await?;
        let location = path.display().to_string();
        errors::opening(&location, move || {
            whole::look(&path)?;
            let path = resolved(&path)?;
            let (opened, ledger) = Opened::at(&path)?;
            Ok(Self { opened: Mutex::new(opened), clock, ledger, path })
        })
        .await
    }

    /// What can be told of a file's faults before it is opened.
    ///
    /// # Errors
    ///
    /// The file cannot be read.
    pub async fn diagnose(path: PathBuf) -> Result<Diagnosis, OpenError> {
        let path = answering(&path, DIAGNOSIS_MAX).await?;
        let location = path.display().to_string();
        errors::opening(&location, move || diagnosis::diagnose(&path)).await
    }

    /// Runs a job on a connection. Where the file was opened as one that nobody writes, the result counts only if
    /// nobody has written; else the file is opened anew, for a caller that tries again.
    async fn read<T: Send + 'static>(
        &self,
        job: impl FnOnce(&mut Connection) -> Result<T, StoreError> + Send + 'static,
    ) -> Result<T, StoreError> {
        let Opened { connections, frozen } = self.opened.lock().clone();
        let found = connections.read(job).await?;
        let Some(stamp) = frozen else { return found };
        let path = self.path.clone();
        let location = path.display().to_string();
        let look = move || {
            let untouched = wal_bytes(&path).unwrap_or(0) == 0 && Stamp::of(&path).is_ok_and(|now| now == stamp);
            if untouched { Ok(None) } else { Opened::at(&path).map(Some) }
        };
        match errors::opening(&location, look).await {
            Ok(None) => found,
            Ok(Some((anew, _))) => {
                *self.opened.lock() = anew;
                Err(StoreError::Unavailable("a server has begun to write meanwhile".into()))
            }
            Err(error) => Err(StoreError::Unavailable(error.into())),
        }
    }

    fn shard_of(&self, key: &RunKey) -> Shard {
        shard_of(self.ledger.id, self.ledger.shard_count, key)
    }
}

impl Opened {
    fn at(path: &Path) -> Result<(Self, Ledger), OpenError> {
        let (first, frozen) = connect(path)?;
        migrate::reads(&first, path)?;
        let ledger = open::ledger(&first, path)?;
        let mut readers = vec![first];
        while readers.len() < READERS {
            readers.push(open::reading(path, frozen.is_some()).map_err(|error| errors::reading(path, error))?);
        }
        Ok((Self { connections: Connections::reading(readers), frozen }, ledger))
    }
}

impl Stamp {
    fn of(path: &Path) -> std::io::Result<Self> {
        let file = fs::metadata(path)?;
        Ok(Self { bytes: file.len(), modified: file.modified().ok() })
    }
}

/// The absolute path, where its file system answers in time.
pub(super) async fn answering(path: &Path, wait_max: Duration) -> Result<PathBuf, OpenError> {
    let path = open::absolute(path)?;
    let asked = path.clone();
    errors::answered(&path, wait_max, move || whole::touch(&asked)).await?;
    Ok(path)
}

/// A connection for one look at a file that is there.
pub(super) fn alone(path: &Path) -> Result<Connection, OpenError> {
    whole::look(path)?;
    connect(&resolved(path)?).map(|(connection, _)| connection)
}

/// The path with links resolved: the log is beside the file itself.
fn resolved(path: &Path) -> Result<PathBuf, OpenError> {
    fs::canonicalize(path).map_err(|error| missing(path, error))
}

/// The first connection. Where there is no write-ahead log, no server has the file, and SQLite would make the log: a
/// file of this process's user, which a server of another user cannot write. So the file is then read as one that
/// nobody changes, as also where SQLite has no place for its locks.
fn connect(path: &Path) -> Result<(Connection, Option<Stamp>), OpenError> {
    let stamp = Stamp::of(path).map_err(|error| missing(path, error))?;
    let tried = |connection: Connection| {
        connection.query_row("-- inspect.try\nselect count(*) from sqlite_schema", [], |_| Ok(()))?;
        Ok(connection)
    };
    let wal = wal_bytes(path);
    if wal.is_some() {
        match open::reading(path, false).and_then(tried) {
            Ok(connection) => return Ok((connection, None)),
            Err(error) if wal != Some(0) => return Err(errors::reading(path, error)),
            Err(_) => {}
        }
    }
    let frozen = open::reading(path, true).and_then(tried).map_err(|error| errors::reading(path, error))?;
    Ok((frozen, Some(stamp)))
}

fn missing(path: &Path, error: std::io::Error) -> OpenError {
    if error.kind() != std::io::ErrorKind::NotFound {
        return errors::read_system(path, error);
    }
    let why = "there is no such file: name it with --store or RUNLEDGER_STORE; `runledger serve` makes a new one";
    OpenError::NoLedger { location: path.display().to_string(), why }
}

/// The size of the write-ahead log; none when there is none.
fn wal_bytes(path: &Path) -> Option<u64> {
    let mut wal = path.as_os_str().to_owned();
    wal.push("-wal");
    fs::metadata(wal).ok().map(|file| file.len())
}

impl OfLedger for SqliteInspect {
    fn ledger(&self) -> Ledger {
        self.ledger
    }
}

#[async_trait]
impl RunLog for SqliteInspect {
    async fn ends(&self) -> Result<Positions, StoreError> {
        let shard_count = self.ledger.shard_count;
        self.read(move |connection| read::ends(connection, shard_count)).await
    }

    async fn changes(&self, after: &Positions, limit: usize, bytes_max: usize) -> Result<Page, StoreError> {
        let (after, clock, shard_count) = (after.clone(), self.clock.clone(), self.ledger.shard_count);
        self.read(move |connection| changes::page(connection, shard_count, &after, limit, bytes_max, clock.now())).await
    }

    /// The tools read the events of a namespace among all.
    async fn changes_of(
        &self,
        _: &Namespace,
        after: &Positions,
        limit: usize,
        bytes_max: usize,
    ) -> Result<Page, StoreError> {
        self.changes(after, limit, bytes_max).await
    }

    async fn foreign_commit(&self) {
        pending::<()>().await;
    }

    async fn forgotten(&self, namespace: &Namespace) -> Result<Positions, StoreError> {
        let (namespace, shard_count) = (namespace.clone(), self.ledger.shard_count);
        self.read(move |connection| retention::forgotten(connection, &namespace, shard_count)).await
    }

    async fn run_events(
        &self,
        key: &RunKey,
        after: Revision,
        limit: usize,
        bytes_max: usize,
    ) -> Result<Vec<Event>, StoreError> {
        let (shard, key) = (self.shard_of(key), key.clone());
        self.read(move |connection| read::run_events(connection, shard, &key, after, limit, bytes_max)).await
    }

    async fn revisions_as_of(&self, keys: &[RunKey], ends: &Positions) -> Result<Vec<Revision>, StoreError> {
        let asked = read::as_of(keys, ends, |key| self.shard_of(key));
        self.read(move |connection| read::revisions_as_of(connection, &asked)).await
    }
}

#[async_trait]
impl Inspect for SqliteInspect {
    fn describe(&self) -> Description {
        let location = format!("sqlite:{}", self.path.display());
        Description { kind: "sqlite", location, connection: None, not_durable: None }
    }

    /// A file has no timelines.
    async fn past(&self) -> Result<Past, StoreError> {
        let ledger = self.read(|connection| rows::ledger(connection)).await?;
        Ok(Past { epoch: ledger.epoch, timeline: None })
    }

    async fn time_of(&self, shard: Shard, position: Position) -> Result<Option<Time>, StoreError> {
        self.read(move |connection| links::time_of(connection, shard, position)).await
    }

    async fn has_namespace(&self, namespace: &Namespace) -> Result<bool, StoreError> {
        let namespace = namespace.clone();
        self.read(move |connection| links::has_namespace(connection, &namespace)).await
    }

    async fn steady_ahead(&self) -> Result<i64, StoreError> {
        self.read(|connection| links::steady_ahead(connection)).await
    }

    async fn extent(&self, link: &Link) -> Result<Extent, StoreError> {
        let (shard_count, link) = (self.ledger.shard_count, link.clone());
        self.read(move |connection| links::extent(connection, shard_count, &link)).await
    }

    async fn links(&self, asked: &[(RunKey, Revision)]) -> Result<Vec<Links>, StoreError> {
        let asked: Vec<_> = asked.iter().map(|(key, revision)| (self.shard_of(key), key.clone(), *revision)).collect();
        self.read(move |connection| asked.iter().map(|asked| links::links(connection, asked)).collect()).await
    }

    async fn run_rows(&self, shard: Shard, after: &RunKey) -> Result<Vec<RunRow>, StoreError> {
        let after = after.clone();
        self.read(move |connection| pages::runs(connection, shard, &after)).await
    }

    async fn event_rows(
        &self,
        shard: Shard,
        after: (&RunKey, i64),
        last: &RunKey,
    ) -> Result<Vec<EventRow>, StoreError> {
        let (after, last) = ((after.0.clone(), after.1), last.clone());
        self.read(move |connection| pages::events(connection, shard, &after, &last)).await
    }

    async fn place_rows(&self, shard: Shard, after: i64) -> Result<Vec<PlaceRow>, StoreError> {
        self.read(move |connection| pages::places(connection, shard, after)).await
    }

    async fn content_rows(
        &self,
        table: ContentTable,
        shard: Shard,
        after: (&RunKey, i64),
        last: &RunKey,
    ) -> Result<Vec<BesideRow>, StoreError> {
        let (after, last) = ((after.0.clone(), after.1), last.clone());
        self.read(move |connection| pages::contents(connection, table, shard, &after, &last)).await
    }

    async fn beside(&self, key: &RunKey, asked: &Beside) -> Result<Vec<ContentRow>, StoreError> {
        let (shard, key, asked) = (self.shard_of(key), key.clone(), *asked);
        self.read(move |connection| read::beside(connection, shard, &key, &asked)).await
    }

    async fn keys_of(&self, table: OfRuns, shard: Shard, after: &RunKey) -> Result<Vec<(RunKey, bool)>, StoreError> {
        let after = after.clone();
        self.read(move |connection| pages::keys(connection, table, shard, &after)).await
    }

    async fn tombstones(&self, shard: Shard) -> Result<Tombstones, StoreError> {
        self.read(move |connection| pages::tombstones(connection, shard)).await
    }

    async fn shard_rows(&self) -> Result<ShardRows, StoreError> {
        let shard_count = self.ledger.shard_count;
        self.read(move |connection| pages::shards(connection, shard_count)).await
    }

    async fn faults(&self) -> Result<Vec<String>, StoreError> {
        self.read(|connection| {
            rows::all(connection, "-- inspect.integrity_check\npragma integrity_check", (), |row| {
                row.get::<_, String>(0).map_err(errors::statement)
            })
        })
        .await
        .map(|found| found.into_iter().filter(|line| line != "ok").collect())
    }

    async fn condition(&self) -> Result<Condition, StoreError> {
        let (shard_count, now, wal) = (self.ledger.shard_count, self.clock.now(), wal_bytes(&self.path).unwrap_or(0));
        let space = diagnosis::space(&self.path);
        self.read(move |connection| condition::condition(connection, shard_count, now, (wal, space))).await
    }
}

/// A statement's rows, each made into a value, until a page has as many rows or bytes as it may. `weight` gives the
/// bytes of one.
fn page<T>(
    connection: &Connection,
    sql: &str,
    values: impl rusqlite::Params,
    read: impl Fn(&rusqlite::Row<'_>) -> Result<T, StoreError>,
    weight: impl Fn(&T) -> usize,
) -> Result<Vec<T>, StoreError> {
    let (mut page, mut bytes) = (Vec::new(), 0);
    rows::each(connection, sql, values, |row| {
        let value = read(row)?;
        bytes += weight(&value);
        page.push(value);
        Ok(if bytes < PAGE_BYTES_MAX { ControlFlow::Continue(()) } else { ControlFlow::Break(()) })
    })?;
    Ok(page)
}

//! The identity of the ledger's file: by inode, since a name may come to mean another file.
//!
//! On SQLite the ledger is one file with one name, its write-ahead log, and the log's index, which has the locks.
//!
//! SQLite goes on writing into a file that was deleted or renamed, and into such a write-ahead log, as if nothing had
//! happened; a process that opens the name next finds none of these writes. So after each write, before it is answered,
//! their names must still mean the files that were opened, and once a second where nobody writes. So must that of the
//! log's index: beside another one, no other program sees that there is a server.
//!
//! Nor does SQLite see that a part was cut: it goes on behind the hole. So before each commit the log must be as long
//! as what was written into it, and before all of it is written into the file, and once a second, both must have all
//! that they had. No commit is written behind a log's end, and no log with a hole into the file.
//!
//! When that does not hold, the store is lost: for this process, for good. The outcome of open commits stays unknown,
//! no more commits are acknowledged, and the service stops.

use std::ffi::OsString;
use std::fs::{self, Metadata};
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::SetOnce;

use super::errors;
use super::lock::FileLock;
use super::log_index::LogIndex;
use crate::store::{OpenError, StoreError};

/// The time from one look to the next while nobody writes.
pub(super) const LOOK_EVERY: Duration = Duration::from_secs(1);

/// A file, whatever its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Inode {
    device: u64,
    number: u64,
}

impl Inode {
    pub(super) fn new(file: &Metadata) -> Self {
        Self { device: file.dev(), number: file.ino() }
    }

    /// The file that a name means. Asks Linux for nothing else: a question for a file's times makes the next write
    /// note a new one, which the next sync has to wait for.
    #[cfg(target_os = "linux")]
    fn at(path: &Path) -> io::Result<Self> {
        use rustix::fs::{AtFlags, CWD, StatxFlags, makedev, statx};
        let file = statx(CWD, path, AtFlags::empty(), StatxFlags::INO)?;
        Ok(Self { device: makedev(file.stx_dev_major, file.stx_dev_minor), number: file.stx_ino })
    }

    #[cfg(not(target_os = "linux"))]
    fn at(path: &Path) -> io::Result<Self> {
        fs::metadata(path).map(|file| Self::new(&file))
    }
}

/// The ledger's files as they were opened, and the locks on them.
pub(super) struct Identity {
    database: Named,
    log: Named,
    index: Named,
    frames: LogIndex,
    lock: Mutex<Option<FileLock>>,
    lost: SetOnce<String>,
    /// The bytes of the file when it last had all its pages, or more that were seen since.
    longest: AtomicU64,
    /// Whether it is lost since a part was cut, or others do not see the server: then what is left stays as it is.
    stays: AtomicBool,
    /// Whether a second name was logged.
    linked: AtomicBool,
}

/// A part of the ledger.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum LedgerFile {
    Database,
    Log,
}

/// A name, and the file that it must mean.
struct Named {
    path: PathBuf,
    inode: Inode,
}

/// The file that a name means now, against the one that was opened.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Meaning {
    Same,
    Other,
    Nothing,
}

impl Identity {
    /// The files at `path`, which SQLite has opened under the lock, so that the log is there.
    pub(super) fn of(path: &Path, lock: FileLock) -> Result<Self, OpenError> {
        let failed = |error| errors::open_system(path, error);
        let database = Named { path: path.to_owned(), inode: lock.inode().map_err(failed)? };
        // SQLite resolves links, and finds the log and its index beside the file itself.
        let file = fs::canonicalize(path).map_err(failed)?;
        let [log, index] = ["-wal", "-shm"].map(|ending| {
            let mut beside = OsString::from(&file);
            beside.push(ending);
            PathBuf::from(beside)
        });
        let frames = LogIndex::open(&log, &index).map_err(failed)?;
        let inodes = frames.inodes().map_err(failed)?;
        let (log, index) = (Named { path: log, inode: inodes.0 }, Named { path: index, inode: inodes.1 });
        let longest = AtomicU64::new(lock.size().map_err(failed)?.0);
        let lock = Mutex::new(Some(lock));
        let identity = Self {
            database,
            log,
            index,
            frames,
            lock,
            lost: SetOnce::new(),
            longest,
            stays: AtomicBool::new(false),
            linked: AtomicBool::new(false),
        };
        match identity.look() {
            Ok(()) => Ok(identity),
            Err(error) => Err(OpenError::Failed { location: path.display().to_string(), source: error.into() }),
        }
    }

    /// Fails at once when the store is known to be lost.
    pub(super) fn known(&self) -> Result<(), StoreError> {
        match self.lost.get() {
            None => Ok(()),
            Some(sentence) => Err(StoreError::Lost(sentence.as_str().into())),
        }
    }

    /// Looks whether the names still mean the files that were opened. A file that cannot be looked at is not judged.
    pub(super) fn look(&self) -> Result<(), StoreError> {
        self.known()?;
        let sentence = match (self.database.means(), self.log.means()) {
            (Meaning::Same, Meaning::Same) if self.index.means() == Meaning::Same => return Ok(()),
            // Closed: SQLite has removed the log itself.
            (_, _) if self.lock().is_none() => return Ok(()),
            // Of a file without a page, SQLite removes the log.
            (Meaning::Same, _) if self.is_short() => {
                self.cut(LedgerFile::Database);
                return self.known();
            }
            (Meaning::Same, Meaning::Same) => {
                self.stays.store(true, Ordering::Relaxed);
                self.without_index()
            }
            (Meaning::Same, log) => self.without_log(log),
            (database @ (Meaning::Other | Meaning::Nothing), _) => self.without_database(database),
        };
        // The first sentence stays.
        let _first = self.lost.set(sentence);
        self.known()
    }

    /// Whether a commit may be written now: the log has all that was written before, and others see the server. Called by
    /// the writer under SQLite's lock, and costs three calls of the system.
    pub(super) fn may_commit(&self) -> bool {
        if self.index.means() != Meaning::Same {
            return self.look().is_ok();
        }
        if self.frames.is_cut() {
            self.cut(LedgerFile::Log);
        }
        !self.stays()
    }

    /// Looks whether the names still mean the files that were opened, and both parts have all that they had: before the log
    /// is written into the file. Called between two jobs of the writer.
    pub(super) fn has_all(&self) -> bool {
        if self.is_short() {
            self.cut(LedgerFile::Database);
        } else if self.has_hole() {
            self.cut(LedgerFile::Log);
        }
        self.look().is_ok()
    }

    /// Whether the log lacks a part of what was written into it. Of a log whose index is another, nobody here knows.
    fn has_hole(&self) -> bool {
        self.index.means() == Meaning::Same && self.frames.has_hole()
    }

    /// Gives the reason once the store is lost.
    pub(super) async fn lost(&self) -> String {
        self.lost.wait().await.clone()
    }

    /// Whether a part lacks what was written into it, as it seems: a checkpoint may be on its way.
    pub(super) fn seems_cut(&self) -> bool {
        self.is_short() || self.frames.has_hole()
    }

    /// Whether the file lost what it had, as it seems: it is shorter than its header says, and than it was. A checkpoint
    /// beside a reader writes a header that counts pages which only the log has yet. A file that cannot be looked at is not
    /// judged.
    fn is_short(&self) -> bool {
        // Held throughout: whoever has measured before another one is to note it before.
        let lock = self.lock();
        match lock.as_ref().map(FileLock::size) {
            Some(Ok((_, Some(counted)))) => {
                self.longest.store(counted, Ordering::Relaxed);
                false
            }
            Some(Ok((bytes, None))) => bytes < self.longest.fetch_max(bytes, Ordering::Relaxed),
            Some(Err(_)) | None => false,
        }
    }

    /// Notes that a part was cut: the store is lost. Called by the writer.
    fn cut(&self, part: LedgerFile) {
        if part == LedgerFile::Log
            && !self.stays()
            && let Err(error) = self.frames.mark_hole()
        {
            tracing::warn!(%error, "the hole in the write-ahead log was not marked: the next start may not see it");
        }
        if !self.stays.swap(true, Ordering::Relaxed)
            && let Some(Err(error)) = self.lock().as_ref().map(FileLock::note_a_cut)
        {
            tracing::warn!(%error, "the cut was not noted beside the file: the next start may not look through it");
        }
        // The first sentence stays.
        let _first = self.lost.set(self.without_all(part));
    }

    /// Whether what is left of the parts stays as it is.
    pub(super) fn stays(&self) -> bool {
        self.stays.load(Ordering::Relaxed)
    }

    /// Keeps other programs that have the ledger open from writing holes of its log into the file, as the last one of them
    /// would when it closes it: without an index they read the log anew, by its check sums. Called while a connection of this
    /// process is open, beside which none is the last one.
    pub(super) fn forget_frames(&self) {
        if self.index.means() == Meaning::Same
            && let Err(error) = self.frames.forget()
        {
            tracing::warn!(%error, "the index of the write-ahead log may still be used by other programs");
        }
    }

    /// Releases the locks, after SQLite has closed its connections.
    pub(super) fn release(&self) {
        drop(self.lock().take());
    }

    pub(super) fn look_around(&self) {
        if self.look().is_err() {
            return;
        }
        let names = self.names();
        if !self.linked.swap(names > 1, Ordering::Relaxed) && names > 1 {
            tracing::warn!(
                file = %self.database.path.display(),
                names,
                "the ledger's file has another name (a hard link): no server starts on a file with two names, and a \
                 link is no backup: the newest calls are in the write-ahead log"
            );
        }
    }

    fn without_database(&self, means: Meaning) -> String {
        let path = self.database.path.display();
        let what = match (means, self.names()) {
            (Meaning::Other, _) => "replaced",
            (Meaning::Same | Meaning::Nothing, 0) => "deleted",
            (Meaning::Same | Meaning::Nothing, _) => "renamed",
        };
        let rest = if self.names() == 0 && means == Meaning::Other && self.log.means() == Meaning::Same {
            "the calls that were acknowledged until then went with it: before the next start, put a copy in its place \
             and remove the write-ahead log beside it, which belongs to neither"
        } else if self.names() == 0 {
            "the calls that were acknowledged until then went with it: put a copy in its place before the next start"
        } else {
            "the calls that were acknowledged until then are in the file that was moved: put it back before the next \
             start"
        };
        format!("the ledger's file {path} was {what} while it was served; {rest}")
    }

    fn without_log(&self, means: Meaning) -> String {
        let (database, log) = (self.database.path.display(), self.log.path.display());
        match means {
            Meaning::Other => format!(
                "the ledger's write-ahead log {log} was replaced while it was served; the calls that were acknowledged \
                 until then are brought into {database}: remove the log that stands there before the next start"
            ),
            Meaning::Same | Meaning::Nothing => format!(
                "the ledger's write-ahead log {log} was deleted or renamed while it was served; the calls that were \
                 acknowledged until then are brought into {database}: leave the log away and start again"
            ),
        }
    }

    fn without_index(&self) -> String {
        let (database, index) = (self.database.path.display(), self.index.path.display());
        format!(
            "the index of the ledger's write-ahead log, {index}, was deleted, renamed or replaced while it was served, so that \
             other programs did not see the server; the calls that were acknowledged until then are in {database} and its \
             log, and neither was touched since: close every program that has the ledger open, and start again"
        )
    }

    fn without_all(&self, part: LedgerFile) -> String {
        let (database, log) = (self.database.path.display(), self.log.path.display());
        let cut = match part {
            LedgerFile::Database => format!("file {database}"),
            LedgerFile::Log => format!("write-ahead log {log}"),
        };
        format!(
            "the ledger's {cut} was cut while it was served, and calls that were acknowledged until then went with it; what is \
             left was not touched: move {database}, its log and its lock away, and put a backup in their place before the next \
             start"
        )
    }

    /// The number of names of the database file; 1 where that cannot be told.
    fn names(&self) -> u64 {
        self.lock().as_ref().and_then(|lock| lock.names().ok()).unwrap_or(1)
    }

    fn lock(&self) -> parking_lot::MutexGuard<'_, Option<FileLock>> {
        self.lock.lock()
    }
}

impl Named {
    fn means(&self) -> Meaning {
        match Inode::at(&self.path) {
            Ok(inode) if inode == self.inode => Meaning::Same,
            Ok(_) => Meaning::Other,
            Err(error) if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => {
                Meaning::Nothing
            }
            // The system does not say: a directory that may not be read, a network that is down.
            Err(_) => Meaning::Same,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs::File;

    use rusqlite::Connection;

    use super::*;

    #[test]
    fn a_file_is_cut_where_it_lost_what_it_had_and_not_where_only_the_log_has_its_last_page() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("runs.db");
        let lock = FileLock::take(&path).unwrap();
        let (writer, reader) = (Connection::open(&path).unwrap(), Connection::open(&path).unwrap());
        let whole = "pragma journal_mode = wal; pragma wal_autocheckpoint = 0; create table runs (id integer primary key, text);
                     insert into runs values (1, hex(randomblob(20000))); pragma wal_checkpoint(truncate)";
        writer.execute_batch(whole).unwrap();
        let identity = Identity::of(&path, lock).unwrap();
        let size = || identity.lock().as_ref().unwrap().size().unwrap();
        assert_eq!((identity.seems_cut(), size().1.is_some()), (false, true));
        // A reader keeps a checkpoint from the newest frame of the last page, and not from the header that counts it.
        writer.execute_batch("insert into runs values (2, hex(randomblob(20000)))").unwrap();
        reader.execute_batch("begin; select count(*) from runs").unwrap();
        writer.execute_batch("update runs set text = hex(randomblob(20000)) where id = 2").unwrap();
        writer.execute_batch("pragma wal_checkpoint(passive)").unwrap();
        assert_eq!((size().1.is_some(), identity.seems_cut()), (false, false));
        reader.execute_batch("commit").unwrap();
        writer.execute_batch("pragma wal_checkpoint(passive)").unwrap();
        assert_eq!((size().1.is_some(), identity.seems_cut()), (true, false));
        for bytes in [size().0 - 4_096, 8_192, 0] {
            File::options().write(true).open(&path).unwrap().set_len(bytes).unwrap();
            assert!(identity.seems_cut(), "{bytes}");
        }
    }
}

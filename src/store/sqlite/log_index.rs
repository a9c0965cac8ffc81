//! How many frames of a write-ahead log count, by the log's index (`-shm`), and whether the log has them all.
//!
//! SQLite has the index in its memory and never looks back: where the log is cut under it, it goes on behind the hole, and
//! a checkpoint copies zeros into the file. The index says at every moment what must stand in the log, also after another
//! program has emptied it: whoever empties it says so in the index first.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt as _;
use std::path::Path;

use parking_lot::Mutex;

use super::identity::Inode;
use super::log;
use crate::private;

/// The log and its index, as SQLite has them open. The index may be closed only after SQLite has closed its own descriptors
/// of it: with any descriptor of a file that a process closes, the system drops all POSIX locks of this process on it, and
/// so SQLite's.
pub(super) struct LogIndex {
    log: File,
    index: File,
    /// The frames that were looked at. Whatever is cut, the log's last frame goes with it: so none of those before the last one
    /// has gone since.
    walked: Mutex<Option<Frames>>,
    /// What counted before the last commit of this process.
    before: Mutex<Option<Frames>>,
}

/// What the index says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Frames {
    pub(super) count: u32,
    pub(super) page_bytes: u32,
    /// Drawn anew whenever the log begins anew: its header has them, and each frame that counts.
    pub(super) salts: [u8; 8],
}

/// The index begins with what it says, twice, in the order of the machine's bytes.
const COPY_BYTES: usize = 48;

/// The only version of an index that there is.
const VERSION: u32 = 3_007_000;

/// The times that the index is read again which a writer changes meanwhile.
const LOOKS_MAX: usize = 20;

impl LogIndex {
    pub(super) fn open(log: &Path, index: &Path) -> io::Result<Self> {
        Ok(Self {
            log: private::open_existing(log)?,
            index: private::open_existing(index)?,
            walked: Mutex::new(None),
            before: Mutex::new(None),
        })
    }

    /// The inodes of the log and of its index.
    pub(super) fn inodes(&self) -> io::Result<(Inode, Inode)> {
        Ok((Inode::new(&self.log.metadata()?), Inode::new(&self.index.metadata()?)))
    }

    /// Whether the log ends before the last frame that counts, or was cut while the last commit was written, which made it
    /// as long as it must be: asked before each commit, by a few calls of the system. Nobody else may write meanwhile. A part
    /// that cannot be looked at is not judged.
    pub(super) fn is_cut(&self) -> bool {
        let Some(frames) = self.frames() else { return false };
        let before = self.before.lock().replace(frames);
        let before = before.filter(|before| before.salts == frames.salts && before.count <= frames.count);
        let has_last = |before: Frames| self.has(&before, before.count.saturating_sub(1));
        [self.reaches(&frames), before.map_or(Ok(true), has_last)]
            .into_iter()
            .any(|found| Ok(false) == found.map_err(drop))
    }

    /// [Marks](log::mark_hole) that the log was cut. Nobody else may write meanwhile.
    pub(super) fn mark_hole(&self) -> io::Result<()> {
        self.frames().map_or(Ok(()), |frames| log::mark_hole(&self.log, &frames))
    }

    /// Makes the index say nothing, for whoever has it in memory.
    pub(super) fn forget(&self) -> io::Result<()> {
        self.index.write_all_at(&[0; 2 * COPY_BYTES], 0)
    }

    /// Whether the log lacks any frame that counts. Others may write meanwhile.
    pub(super) fn has_hole(&self) -> bool {
        for _look in 0..LOOKS_MAX {
            let Some(frames) = self.frames() else { return false };
            let walked =
                self.walked.lock().filter(|walked| walked.salts == frames.salts && walked.count <= frames.count);
            let first = walked.map_or(0, |walked| walked.count.saturating_sub(1));
            let Ok(has_all) = self.has(&frames, first) else { return false };
            if has_all {
                *self.walked.lock() = Some(frames);
                return false;
            }
            // Who begins the log anew, or empties it, says so in the index before.
            if self.frames() == Some(frames) {
                return true;
            }
        }
        false
    }

    fn has(&self, frames: &Frames, first: u32) -> io::Result<bool> {
        Ok(frames.count == 0 || self.reaches(frames)? && log::has_frames(&self.log, frames, first)?)
    }

    fn reaches(&self, frames: &Frames) -> io::Result<bool> {
        Ok(frames.count == 0 || bytes_of(&self.log)? >= log::frame_at(frames.count, frames.page_bytes))
    }

    /// What the index says now; none of one that is not understood.
    fn frames(&self) -> Option<Frames> {
        let mut copies = [0; 2 * COPY_BYTES];
        for _look in 0..LOOKS_MAX {
            self.index.read_exact_at(&mut copies, 0).ok()?;
            let (one, other) = copies.split_at(COPY_BYTES);
            // A writer changes one after the other.
            if one == other {
                return Frames::of(one);
            }
        }
        None
    }
}

impl Frames {
    fn of(copy: &[u8]) -> Option<Self> {
        let number = |at: usize| copy[at..].first_chunk().map(|four| u32::from_ne_bytes(*four));
        let page_bytes = match u16::from_ne_bytes(*copy[14..].first_chunk()?) {
            1 => 65_536,
            bytes => u32::from(bytes),
        };
        let is_one = number(0)? == VERSION && copy[12] != 0 && page_bytes.is_power_of_two();
        is_one.then_some(Self { count: number(16)?, page_bytes, salts: *copy[32..].first_chunk()? })
    }
}

/// The length of a file. Asks Linux for nothing else: see [`Inode`].
#[cfg(target_os = "linux")]
fn bytes_of(file: &File) -> io::Result<u64> {
    use rustix::fs::{AtFlags, StatxFlags, statx};
    Ok(statx(file, c"", AtFlags::EMPTY_PATH, StatxFlags::SIZE)?.stx_size)
}

#[cfg(not(target_os = "linux"))]
fn bytes_of(file: &File) -> io::Result<u64> {
    file.metadata().map(|file| file.len())
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::time::Duration;

    use rusqlite::Connection;
    use tempfile::TempDir;

    use super::*;

    /// A file with its writer. The index is closed last.
    struct Ledger {
        writer: Connection,
        parts: Arc<LogIndex>,
        log: File,
        directory: TempDir,
    }

    impl Ledger {
        fn new() -> Self {
            let directory = tempfile::tempdir().unwrap();
            let [file, log, index] =
                ["ledger.db", "ledger.db-wal", "ledger.db-shm"].map(|name| directory.path().join(name));
            let writer = Connection::open(file).unwrap();
            let settings = "pragma journal_mode = wal; pragma wal_autocheckpoint = 0; pragma synchronous = off;
                            create table runs (run_id integer primary key, record blob)";
            writer.execute_batch(settings).unwrap();
            let parts = Arc::new(LogIndex::open(&log, &index).unwrap());
            let log = File::options().write(true).open(log).unwrap();
            Self { writer, parts, log, directory }
        }

        fn writes(&self) {
            self.writer.execute("insert into runs (record) values (randomblob(9000))", ()).unwrap();
        }

        fn other(&self) -> Connection {
            let other = Connection::open(self.directory.path().join("ledger.db")).unwrap();
            other.busy_timeout(Duration::from_secs(5)).unwrap();
            other
        }
    }

    #[test]
    fn a_log_that_is_cut_anywhere_is_seen_before_the_next_commit_and_behind_it_as_well() {
        let frame = 24 + 4_096;
        for cut in [0, 20, 32, 5_000, 32 + frame, 32 + 2 * frame, 32 + 9 * frame + 2_000, u64::MAX] {
            let ledger = Ledger::new();
            for _commit in 0..8 {
                ledger.writes();
            }
            assert!(!ledger.parts.is_cut() && !ledger.parts.has_hole());
            let bytes = bytes_of(&ledger.log).unwrap();
            ledger.log.set_len(cut.min(bytes - 1)).unwrap();
            assert!(ledger.parts.is_cut() && ledger.parts.has_hole(), "{cut}");
            // As in the middle of a commit: no frame but the last is cut then, where a byte is missing.
            if cut < bytes - frame {
                ledger.writes();
                assert!(ledger.parts.is_cut() && ledger.parts.has_hole(), "{cut}: though it is as long as it must be");
            }
        }
    }

    #[test]
    fn a_log_that_was_cut_anywhere_is_marked_for_whoever_opens_it_next() {
        for cut in [0, 8, 20, 32, 5_000, 32 + (24 + 4_096), 50_000, u64::MAX] {
            let ledger = Ledger::new();
            for _commit in 0..8 {
                ledger.writes();
            }
            let bytes = bytes_of(&ledger.log).unwrap();
            ledger.log.set_len(cut.min(bytes - 1)).unwrap();
            ledger.parts.mark_hole().unwrap();
            let path = ledger.directory.path().join("ledger.db");
            let header = *std::fs::read(&path).unwrap().first_chunk().unwrap();
            assert_eq!(log::mismatch(&path, &header).unwrap(), Some(log::Mismatch::Damaged), "{cut}");
        }
    }

    #[test]
    fn a_log_that_others_empty_begin_anew_and_write_is_never_taken_for_a_cut_one() {
        let ledger = Ledger::new();
        let (ends, parts) = (Arc::new(AtomicBool::new(false)), ledger.parts.clone());
        let (ending, looking) = (ends.clone(), parts.clone());
        let looks = std::thread::spawn(move || {
            let mut looks = 0;
            while !ending.load(Ordering::Relaxed) {
                assert!(!looking.has_hole());
                looks += 1;
            }
            looks
        });
        let asked = parts.clone();
        ledger.writer.busy_timeout(Duration::from_secs(5)).unwrap();
        let Ledger { mut writer, directory, .. } = ledger;
        writer.commit_hook(Some(move || asked.is_cut())).unwrap();
        let ledger = Ledger { writer, directory, parts, log: ledger.log };
        let other = ledger.other();
        for round in 0..40 {
            let reader = ledger.other();
            reader.execute_batch("begin").unwrap();
            let _rows: i64 = reader.query_row("select count(*) from runs", [], |row| row.get(0)).unwrap();
            for _commit in 0..5 {
                ledger.writes();
            }
            if round % 2 == 0 {
                drop(reader);
                for mode in ["passive", "full", "restart", "truncate"] {
                    let emptied = format!("pragma wal_checkpoint({mode})");
                    let _busy = other.query_row(&emptied, [], |row| row.get::<_, i64>(0)).unwrap();
                    ledger.writes();
                }
                other.execute("insert into runs (record) values (randomblob(90000))", ()).unwrap();
                other.execute_batch("vacuum").unwrap();
            } else {
                let _busy = other.query_row("pragma wal_checkpoint(passive)", [], |row| row.get::<_, i64>(0)).unwrap();
            }
            ledger.writes();
        }
        ends.store(true, Ordering::Relaxed);
        assert!(looks.join().unwrap() > 10);
    }
}

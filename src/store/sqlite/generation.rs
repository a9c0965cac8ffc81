//! Generations: what a file and its write-ahead log have in common, so that a log is not replayed into a file that it
//! was not begun on, such as a backup that was put in place beside it.
//!
//! A generation is a number in the header of the file's first page, drawn at random, with the number before it: of the
//! two numbers that SQLite keeps there for applications, and changes in a transaction like any row. A log is stamped
//! twice: with its last transaction before all of it is written into the file, and with its first one after it was
//! begun anew. So the file is of the generation that the log was begun on, or of one that is in the log: any other file
//! would become a mixture of two. [`log`](super::log) reads that.
//!
//! The stamp before the log is written into the file is an even number, the others are odd. So a file whose first page has an
//! even number lacks what was committed since, and is nothing without its log; what SQLite makes of the two together, such
//! as a backup, and what a server leaves that was stopped, has an odd one.
//!
//! SQLite begins the log anew by itself, and a tool beside the server may empty it. So the stamps follow what the log is
//! seen to do, after each commit, and a log without one proves nothing.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI32, Ordering};

use rusqlite::{Connection, TransactionBehavior};

use crate::clock;

/// The pages of 4 KiB in the write-ahead log at which a checkpoint writes them to the file. Runs are found by keys in no
/// order, so a commit of 256 changes some 500 pages, each written to the log whole. Beside the usual 1,000 pages, and the
/// usual cache: a third more commits, for 32 MB of log and 16 MB of memory.
const CHECKPOINT_PAGES: i32 = 8_000;

/// The log, as the one writer sees it.
#[derive(Debug)]
pub(super) struct Turns {
    /// The pages in the log at which it is written into the file.
    pages_max: i32,
    /// The pages that were in the log after the last commit.
    pages: AtomicI32,
    /// The pages at which it is written into the file next: some more than there were at the last try where somebody read, who
    /// kept the log from being begun anew. Each try makes two commits, so not every commit is followed by one.
    due_at: AtomicI32,
    /// SQLite has begun the log anew, and it bears no stamp yet.
    begun_anew: AtomicBool,
}

impl Turns {
    /// Follows the commits of the one connection that writes, in place of SQLite's own checkpoints.
    pub(super) fn of(writer: &mut Connection) -> rusqlite::Result<Arc<Self>> {
        Self::at(writer, CHECKPOINT_PAGES)
    }

    fn at(writer: &mut Connection, pages_max: i32) -> rusqlite::Result<Arc<Self>> {
        let (pages, due_at) = (AtomicI32::new(0), AtomicI32::new(pages_max));
        let turns = Arc::new(Self { pages_max, pages, due_at, begun_anew: AtomicBool::new(false) });
        let told = turns.clone();
        writer.wal_hook(Some(move |_: &mut rusqlite::hooks::Wal, pages| {
            if pages < told.pages.swap(pages, Ordering::Relaxed) {
                told.begun_anew.store(true, Ordering::Relaxed);
                told.due_at.store(pages_max, Ordering::Relaxed);
            }
            Ok(())
        }))?;
        Ok(turns)
    }

    /// Writes the log into the file where it has grown, and stamps it where it was begun anew; not into a file that has lost
    /// what it had, which would seem to be whole. Called after each job of the writer. What fails is tried again after the
    /// next one.
    pub(super) fn follow(&self, writer: &mut Connection, has_all: impl FnOnce() -> bool) {
        let due_at = self.due_at.load(Ordering::Relaxed);
        let is_due = self.pages.load(Ordering::Relaxed) >= due_at || self.begun_anew.load(Ordering::Relaxed);
        if is_due && has_all() {
            self.turn(writer);
            let left = self.pages.load(Ordering::Relaxed);
            // The step is the same however long the log is: readers that come one after the other keep it from being begun anew
            // at most tries, and it must not grow by a part of itself each time.
            let due_at = if left < self.pages_max { self.pages_max } else { left.saturating_add(self.pages_max / 8) };
            self.due_at.store(due_at, Ordering::Relaxed);
        }
    }

    /// Brings the log to its end: stamps it, writes it into the file, and stamps the next one. Where somebody reads, the
    /// log goes on.
    pub(super) fn turn(&self, writer: &mut Connection) {
        // A full disk keeps no page from the file whose place is there already.
        let sealed = stamp(writer, Stamp::End);
        let written = sealed.and_then(|()| {
            let checkpoint = "-- generation.checkpoint\npragma wal_checkpoint(passive)";
            writer.query_row(checkpoint, [], |row| row.get::<_, i64>(0))
        });
        // Also where not all of it was written: what SQLite reads is whole.
        let begun = stamp(writer, Stamp::Begin);
        self.note(&written.and(begun));
    }

    /// Writes the log into the file and cuts it, so that nothing of it is left. False where somebody reads; nobody waits
    /// for the reader.
    pub(super) fn cut(&self, writer: &mut Connection) -> rusqlite::Result<bool> {
        // The file lacks nothing while there is no log.
        let stamped = stamp(writer, Stamp::Begin);
        let wait = writer.query_row("pragma busy_timeout = 0", [], |row| row.get::<_, i64>(0));
        let busy = writer.query_row("pragma wal_checkpoint(truncate)", [], |row| row.get::<_, i64>(0));
        writer.busy_timeout(super::open::BUSY_WAIT)?;
        let is_cut = wait.and(busy)? == 0;
        if is_cut {
            self.turn(writer);
        } else {
            self.note(&stamped);
        }
        Ok(is_cut)
    }

    /// Notes whether the log bears a stamp.
    fn note(&self, stamped: &rusqlite::Result<()>) {
        if let Err(error) = stamped {
            tracing::debug!(%error, "the write-ahead log was not stamped");
        }
        self.begun_anew.store(stamped.is_err(), Ordering::Relaxed);
    }
}

/// What a stamp is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stamp {
    /// The log is at its end, and is written into the file next: what comes after it is in the log alone.
    End,
    /// The log begins; or SQLite itself writes all of it into the file next.
    Begin,
}

/// Stamps the log before SQLite writes all of it into the file and removes it.
pub(super) fn close(writer: &mut Connection) -> rusqlite::Result<()> {
    stamp(writer, Stamp::Begin)
}

/// Stamps the log with a generation of its own. Nobody waits until it is on the disk: it lies before whatever is waited
/// for next, in the same log.
fn stamp(writer: &mut Connection, what: Stamp) -> rusqlite::Result<()> {
    writer.pragma_update(None, "synchronous", "normal")?;
    let stamped = write(writer, what);
    // Without it, no later commit would be on the disk when it is answered.
    writer.pragma_update(None, "synchronous", "full").expect("a setting of the connection needs no disk");
    stamped
}

fn write(writer: &mut Connection, what: Stamp) -> rusqlite::Result<()> {
    let transaction = writer.transaction_with_behavior(TransactionBehavior::Immediate)?;
    let before: i32 = transaction.pragma_query_value(None, OWN, |row| row.get(0))?;
    transaction.pragma_update(None, BEFORE, before)?;
    transaction.pragma_update(None, OWN, draw(what))?;
    transaction.commit()
}

/// The number that has the generation: 0 in a file that was never stamped.
const OWN: &str = "application_id";

/// The mark of a file that is being made, in the place of a generation. A log begins after it: without a log, nothing was
/// ever written, as where the disk was full. No generation is drawn with it.
pub(super) const BEGUN: u32 = 0x0052_4c01;

/// Marks a file that is empty, before it has a log.
pub(super) fn begin(writer: &Connection) -> rusqlite::Result<()> {
    let pages: i64 = writer.pragma_query_value(None, "page_count", |row| row.get(0))?;
    if pages == 0 { writer.pragma_update(None, OWN, BEGUN) } else { Ok(()) }
}

/// The number that has the generation before. Releases before 0.8, and probes, count with it: it has a meaning in a stamp
/// alone.
const BEFORE: &str = "user_version";

fn draw(what: Stamp) -> i32 {
    let [a, b, c, d, ..] = clock::draw_key();
    // Neither is 0.
    let drawn = i32::from_be_bytes([a | 1, b, c, d]);
    match what {
        Stamp::End => drawn & !1,
        Stamp::Begin => drawn | 1,
    }
}

/// Whether a file of this generation is nothing without its log.
pub(super) fn lacks_its_log(own: u32) -> bool {
    own != 0 && own.is_multiple_of(2)
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::{Path, PathBuf};

    use rusqlite::config::DbConfig;
    use tempfile::TempDir;

    use super::*;
    use crate::store::sqlite::log::{HEADER_BYTES, Mismatch, beside, mismatch};

    /// A file with its one writer, followed as a server's.
    struct Ledger {
        directory: TempDir,
        writer: Connection,
        turns: Arc<Turns>,
        copies: usize,
    }

    impl Ledger {
        fn new() -> Self {
            let directory = tempfile::tempdir().unwrap();
            let (writer, turns) = opened(&directory.path().join("ledger.db"));
            writer.execute_batch("create table runs (run_id integer primary key, record blob)").unwrap();
            let mut ledger = Self { directory, writer, turns, copies: 0 };
            assert!(ledger.turns.cut(&mut ledger.writer).unwrap());
            ledger
        }

        fn path(&self) -> PathBuf {
            self.directory.path().join("ledger.db")
        }

        fn writes(&mut self, bytes: i64) {
            self.writer.execute("insert into runs (record) values (randomblob(?1))", [bytes]).unwrap();
            self.turns.follow(&mut self.writer, || true);
        }

        /// So much that the log is begun anew.
        fn turns(&mut self) {
            self.writes(200_000);
        }

        /// The file and the log as they are on the disk now.
        fn image(&mut self) -> Image {
            self.copies += 1;
            let file = self.directory.path().join(format!("copy-{}.db", self.copies));
            fs::copy(self.path(), &file).unwrap();
            fs::copy(beside(&self.path()), beside(&file)).unwrap();
            Image(file)
        }

        /// By SQLite itself, while it is written.
        fn backup(&mut self) -> PathBuf {
            self.copies += 1;
            let file = self.directory.path().join(format!("backup-{}.db", self.copies));
            self.writer.execute("vacuum into ?1", [file.to_str()]).unwrap();
            file
        }
    }

    fn opened(path: &Path) -> (Connection, Arc<Turns>) {
        let mut writer = Connection::open(path).unwrap();
        writer.pragma_update(None, "journal_mode", "wal").unwrap();
        let turns = Turns::at(&mut writer, 40).unwrap();
        (writer, turns)
    }

    struct Image(PathBuf);

    impl Image {
        fn is_whole(&self) -> bool {
            found(&self.0).is_none()
        }

        /// Whether its log is taken for that of another file.
        fn takes(&self, file: &Path) -> bool {
            let log = fs::read(beside(&self.0)).unwrap();
            let place = file.with_extension("taken");
            fs::copy(file, &place).unwrap();
            fs::write(beside(&place), log).unwrap();
            found(&place) != Some(Mismatch::Stranger)
        }
    }

    fn found(file: &Path) -> Option<Mismatch> {
        let header: [u8; HEADER_BYTES] = *fs::read(file).unwrap().first_chunk().unwrap();
        mismatch(file, &header).unwrap()
    }

    #[test]
    fn a_log_is_taken_for_its_own_file_and_for_no_older_or_newer_copy_of_it() {
        let mut ledger = Ledger::new();
        let mut before: Vec<PathBuf> = Vec::new();
        for _generation in 0..3 {
            ledger.writes(100);
            let in_between = ledger.backup();
            ledger.writes(100);
            let at = ledger.image();
            assert!(at.is_whole());
            assert!(at.takes(&in_between), "it is a part of what the log has, which brings it to the end");
            for older in &before {
                assert!(!at.takes(older), "{older:?} is older than the log");
            }
            ledger.turns();
            let after = ledger.image();
            assert!(after.is_whole());
            assert!(!at.takes(&after.0), "the file has moved on from the log");
            for older in [&in_between, &at.0] {
                assert!(!after.takes(older), "the log was begun after {older:?}");
            }
            before.extend([in_between, at.0]);
        }
    }

    #[test]
    fn a_file_and_its_log_are_whole_at_every_moment_whatever_reads_and_empties_the_log() {
        let mut ledger = Ledger::new();
        let other = Connection::open(ledger.path()).unwrap();
        for round in 0..4 {
            // A reader keeps the log from being begun anew; a tool empties it; the server does it itself.
            let reader = Connection::open(ledger.path()).unwrap();
            if round % 2 == 0 {
                reader.execute_batch("begin; select count(*) from runs").unwrap();
                let _rows: i64 = reader.query_row("select count(*) from runs", [], |row| row.get(0)).unwrap();
            }
            for mode in ["passive", "restart", "truncate"] {
                ledger.writes(5_000);
                assert!(ledger.image().is_whole());
                other.busy_timeout(std::time::Duration::ZERO).unwrap();
                let emptied = format!("pragma wal_checkpoint({mode})");
                let _busy = other.query_row(&emptied, [], |row| row.get::<_, i64>(0));
                assert!(ledger.image().is_whole());
                ledger.writer.execute("insert into runs (record) values (x'00')", ()).unwrap();
                assert!(ledger.image().is_whole(), "also before it is stamped");
                ledger.turns.follow(&mut ledger.writer, || true);
                assert!(ledger.image().is_whole());
            }
            ledger.turns();
            assert!(ledger.image().is_whole());
            drop(reader);
            let _cut_or_not = ledger.turns.cut(&mut ledger.writer).unwrap();
            assert!(ledger.image().is_whole());
        }
    }

    #[test]
    fn a_log_that_readers_keep_grows_by_a_step_for_each_try_and_is_begun_anew_at_the_first_without_one() {
        let mut ledger = Ledger::new();
        let log = beside(&ledger.path());
        let bytes = || fs::metadata(&log).unwrap().len();
        ledger.writes(200_000);
        // Readers that overlap: there is one at each try.
        let mut readers: Vec<Connection> = Vec::new();
        let (mut before, step) = (bytes(), (40 / 8 + 8) * 4_120);
        for _try in 0..40 {
            let reader = Connection::open(ledger.path()).unwrap();
            reader.execute_batch("begin; select count(*) from runs").unwrap();
            let _rows: i64 = reader.query_row("select count(*) from runs", [], |row| row.get(0)).unwrap();
            readers.push(reader);
            readers.drain(..readers.len().saturating_sub(2));
            let due_at = ledger.turns.due_at.load(Ordering::Relaxed);
            while ledger.turns.due_at.load(Ordering::Relaxed) == due_at {
                ledger.writes(3_000);
            }
            assert!(bytes() - before <= step, "{} after {before}", bytes());
            before = bytes();
        }
        drop(readers);
        let long = ledger.turns.pages.load(Ordering::Relaxed);
        for _few in 0..10 {
            ledger.writes(3_000);
        }
        assert!(ledger.turns.pages.load(Ordering::Relaxed) < long, "it is begun anew");
        assert_eq!(ledger.turns.due_at.load(Ordering::Relaxed), 40);
    }

    #[test]
    fn a_log_that_was_cut_or_emptied_is_tried_again_when_it_is_as_long_as_any() {
        let mut ledger = Ledger::new();
        let reader = Connection::open(ledger.path()).unwrap();
        reader.execute_batch("begin; select count(*) from runs").unwrap();
        let _rows: i64 = reader.query_row("select count(*) from runs", [], |row| row.get(0)).unwrap();
        ledger.writes(400_000);
        assert!(ledger.turns.due_at.load(Ordering::Relaxed) > 40);
        drop(reader);
        assert!(ledger.turns.cut(&mut ledger.writer).unwrap());
        ledger.writer.execute("insert into runs (record) values (x'00')", ()).unwrap();
        assert_eq!(ledger.turns.due_at.load(Ordering::Relaxed), 40);
    }

    #[test]
    fn a_log_of_before_there_were_stamps_is_taken_and_a_stamped_one_beside_such_a_file_is_not() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("ledger.db");
        let writer = Connection::open(&path).unwrap();
        writer.pragma_update(None, "journal_mode", "wal").unwrap();
        writer.execute_batch("create table runs (run_id integer primary key, record blob)").unwrap();
        let _all = writer.query_row("pragma wal_checkpoint(restart)", [], |row| row.get::<_, i64>(0)).unwrap();
        // As a probe counts.
        for number in 1..4 {
            writer.pragma_update(None, "user_version", number).unwrap();
        }
        writer.execute("insert into runs (record) values (randomblob(9000))", ()).unwrap();
        let unstamped = directory.path().join("unstamped.db");
        fs::copy(&path, &unstamped).unwrap();
        fs::copy(beside(&path), beside(&unstamped)).unwrap();
        assert_eq!(found(&unstamped), None);
        writer.set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, true).unwrap();
        drop(writer);
        let (mut writer, turns) = opened(&path);
        assert_eq!(found(&path), None);
        assert!(turns.cut(&mut writer).unwrap());
        assert_eq!(found(&path), None);
        fs::copy(beside(&path), beside(&unstamped)).unwrap();
        assert_eq!(found(&unstamped), Some(Mismatch::Stranger));
    }

    #[test]
    fn what_is_no_log_is_told_from_one_that_was_being_made() {
        let mut ledger = Ledger::new();
        ledger.writes(100);
        let image = ledger.image();
        let log = fs::read(beside(&image.0)).unwrap();
        for (bytes, wanted) in [
            (&b"milk, bread, and thirty-two bytes and more"[..], Some(Mismatch::NoLog)),
            (&[0; 64], Some(Mismatch::Gone)),
            (b"", Some(Mismatch::Gone)),
            (&log[..20], Some(Mismatch::Gone)),
            (&log[..32], Some(Mismatch::Gone)),
            (&log[..log.len() - 1], None),
        ] {
            fs::write(beside(&image.0), bytes).unwrap();
            assert_eq!(found(&image.0), wanted, "{} bytes", bytes.len());
        }
        fs::remove_file(beside(&image.0)).unwrap();
        assert_eq!(found(&image.0), Some(Mismatch::Gone));
        let backup = ledger.backup();
        assert_eq!(found(&backup), None, "it is whole by itself");
        let whole = fs::read(&backup).unwrap();
        fs::write(&backup, &whole[..whole.len() - 4096]).unwrap();
        assert_eq!(found(&backup), Some(Mismatch::Cut));
    }

    #[test]
    fn a_damaged_log_is_told_from_one_that_ends_in_the_middle_of_a_commit() {
        let mut ledger = Ledger::new();
        for _commit in 0..6 {
            ledger.writes(9_000);
        }
        let image = ledger.image();
        let log = fs::read(beside(&image.0)).unwrap();
        let damaged = |at: usize| {
            let mut bytes = log.clone();
            bytes[at] ^= 0x40;
            fs::write(beside(&image.0), bytes).unwrap();
            found(&image.0)
        };
        for at in [5, 16, 24, 32 + 10, 32 + 24 + 100, log.len() / 2] {
            assert_eq!(damaged(at), Some(Mismatch::Damaged), "byte {at}");
        }
        // Of the last commit a part may be missing: nobody was answered.
        assert_eq!(damaged(log.len() - 1), None);
        fs::write(beside(&image.0), &log[..log.len() - 4_096]).unwrap();
        assert_eq!(found(&image.0), None);
        // What SQLite makes of it after it was told so is whole, and served.
        let mut bytes = log;
        let middle = bytes.len() / 2;
        bytes[middle] ^= 0x40;
        fs::write(beside(&image.0), bytes).unwrap();
        let shell = Connection::open(&image.0).unwrap();
        shell.pragma_update(None, OWN, 0).unwrap();
        let kept: i64 = shell.query_row("select count(*) from runs", [], |row| row.get(0)).unwrap();
        assert!((1..6).contains(&kept), "{kept} rows");
        shell.close().unwrap();
        assert_eq!(found(&image.0), None);
    }

    #[test]
    fn a_file_whose_server_was_stopped_or_whose_log_a_tool_has_emptied_needs_no_log() {
        let mut ledger = Ledger::new();
        ledger.writes(100);
        let other = Connection::open(ledger.path()).unwrap();
        let _all = other.query_row("pragma wal_checkpoint(truncate)", [], |row| row.get::<_, i64>(0)).unwrap();
        drop(other);
        assert_eq!(found(&ledger.path()), None);
        ledger.writes(100);
        ledger.turns();
        let path = ledger.path();
        let header = fs::read(&path).unwrap();
        assert!(lacks_its_log(u32::from_be_bytes(header[68..72].try_into().unwrap())));
        close(&mut ledger.writer).unwrap();
        let Ledger { directory, writer, .. } = ledger;
        writer.close().unwrap();
        assert!(!beside(&path).exists());
        assert_eq!(found(&path), None);
        drop(directory);
    }

    #[test]
    fn a_server_that_is_killed_between_any_two_writes_to_its_log_leaves_a_whole_ledger() {
        let mut ledger = Ledger::new();
        for round in 0..3 {
            ledger.writes(100);
            let before = ledger.image();
            // The end: stamped, written into the file, and begun anew, of which the header is written first.
            stamp(&mut ledger.writer, Stamp::End).unwrap();
            assert!(ledger.image().is_whole(), "{round}");
            let _all =
                ledger.writer.query_row("pragma wal_checkpoint(passive)", [], |row| row.get::<_, i64>(0)).unwrap();
            let sealed = ledger.image();
            assert!(sealed.is_whole(), "{round}");
            let log = fs::read(beside(&sealed.0)).unwrap();
            stamp(&mut ledger.writer, Stamp::Begin).unwrap();
            let begun = fs::read(beside(&ledger.path())).unwrap();
            let torn = [0, 32, 32 + 24, 32 + 24 + 2_000, 32 + 24 + 4_096].map(|bytes| {
                let mut torn = begun.clone();
                torn[bytes..].copy_from_slice(&log[bytes..begun.len()]);
                torn
            });
            for (at, torn) in torn.into_iter().enumerate() {
                fs::write(beside(&sealed.0), torn).unwrap();
                assert!(sealed.is_whole(), "{round} {at}");
            }
            drop(before);
        }
    }
}

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
    let kept_pages = ledger.turns.pages.load(Ordering::Relaxed);
    for _few in 0..10 {
        ledger.writes(3_000);
    }
    assert!(ledger.turns.pages.load(Ordering::Relaxed) < kept_pages, "it is begun anew");
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
    let number = |at: usize| u32::from_be_bytes(header[at..at + 4].try_into().unwrap());
    assert!(lacks_its_log(number(68), number(40)));
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
        let _all = ledger.writer.query_row("pragma wal_checkpoint(passive)", [], |row| row.get::<_, i64>(0)).unwrap();
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

#[test]
fn a_backup_that_sqlite_makes_between_two_stamps_is_whole_and_a_copy_of_the_file_is_not() {
    let mut ledger = Ledger::new();
    let directory = tempfile::tempdir().unwrap();
    let nightly = directory.path().join("nightly.db");
    for night in 0..100 {
        ledger.writes(100);
        let [vacuumed, copied] = ["vacuumed", "copied"].map(|name| directory.path().join(format!("{name}-{night}.db")));
        let passive = "pragma wal_checkpoint(passive)";
        stamp(&mut ledger.writer, Stamp::End).unwrap();
        let _all = ledger.writer.query_row(passive, [], |row| row.get::<_, i64>(0)).unwrap();
        ledger.writer.execute("vacuum into ?1", [vacuumed.to_str()]).unwrap();
        for place in [&copied, &nightly] {
            let mut copy = Connection::open(place).unwrap();
            let backup = rusqlite::backup::Backup::new(&ledger.writer, &mut copy).unwrap();
            backup.run_to_completion(100, std::time::Duration::ZERO, None).unwrap();
        }
        for copy in [&vacuumed, &copied, &nightly] {
            let header = fs::read(copy).unwrap();
            assert_eq!(header[71] % 2, 0, "{night} {copy:?} has the stamp of the end");
            assert_eq!(found(copy), None, "{night} {copy:?}");
        }
        let bare = directory.path().join("bare.db");
        fs::copy(ledger.path(), &bare).unwrap();
        assert_eq!(found(&bare), Some(Mismatch::Gone), "{night}");
        stamp(&mut ledger.writer, Stamp::Begin).unwrap();
        if night % 30 == 29 {
            // The copy is put back, and copied in turn.
            let (mut writer, turns) = opened(&copied);
            stamp(&mut writer, Stamp::Begin).unwrap();
            ledger = Ledger { writer, turns, copies: 0, directory: tempfile::tempdir().unwrap() };
            let place = ledger.path();
            ledger.writer.execute("vacuum into ?1", [place.to_str()]).unwrap();
            (ledger.writer, ledger.turns) = opened(&place);
            assert!(ledger.turns.cut(&mut ledger.writer).unwrap());
        }
    }
}

#[test]
fn a_copy_of_the_file_that_was_read_while_its_server_started_is_nothing_without_its_log_soon_after() {
    let mut ledger = Ledger::new();
    let place = ledger.path();
    close(&mut ledger.writer).unwrap();
    drop(ledger.writer);
    let reader = Connection::open(&place).unwrap();
    reader.execute_batch("begin; select count(*) from runs").unwrap();
    let _rows: i64 = reader.query_row("select count(*) from runs", [], |row| row.get(0)).unwrap();
    let (mut writer, turns) = opened(&place);
    assert!(!turns.cut(&mut writer).unwrap(), "somebody reads");
    let mut ledger = Ledger { writer, turns, ..ledger };
    ledger.writes(100);
    drop(reader);
    for _few in 0..3 {
        ledger.writes(3_000);
    }
    let bare = ledger.directory.path().join("bare.db");
    fs::copy(ledger.path(), &bare).unwrap();
    assert_eq!(found(&bare), Some(Mismatch::Gone));
    assert!(ledger.image().is_whole());
}

#[test]
fn a_number_of_the_schema_that_is_the_greatest_or_was_counted_past_it_is_drawn_anew() {
    for found in [i32::MAX, i32::MIN, -1 << 12, 0] {
        let mut ledger = Ledger::new();
        ledger.writer.pragma_update(None, SCHEMA, found & !SCHEMA_OWN.cast_signed()).unwrap();
        stamp(&mut ledger.writer, Stamp::End).unwrap();
        let drawn: i32 = ledger.writer.pragma_query_value(None, SCHEMA, |row| row.get(0)).unwrap();
        assert!(drawn > 0 && drawn.cast_unsigned() & (SCHEMA_OWN | SCHEMA_ROOM) == SCHEMA_OWN, "{found}: {drawn}");
    }
}

#[test]
fn a_file_that_was_cut_beside_a_whole_log_is_told_from_one_that_the_log_makes_whole() {
    let (mut ledger, page_bytes) = (Ledger::new(), 4_096);
    // The file's last page is the end of a record, and none of a table: zeros in its place look sound.
    loop {
        ledger.writes(5_000);
        assert!(ledger.turns.cut(&mut ledger.writer).unwrap());
        let file = fs::read(ledger.path()).unwrap();
        if file[file.len() - page_bytes] != 13 {
            break;
        }
    }
    let whole = fs::metadata(ledger.path()).unwrap().len();
    ledger.writes(10);
    for (bytes, is_cut) in [(0, false), (1, true), (page_bytes, true), (2 * page_bytes, true)] {
        let image = ledger.image();
        fs::File::options().write(true).open(&image.0).unwrap().set_len(whole - bytes as u64).unwrap();
        assert_eq!(found(&image.0), is_cut.then_some(Mismatch::Cut), "{bytes}");
    }
    for _record in 0..4 {
        ledger.writes(5_000);
    }
    let image = ledger.image();
    assert_eq!(fs::metadata(&image.0).unwrap().len(), whole, "the log alone has what came since");
    assert!(image.is_whole());
}

#[test]
fn a_log_has_each_page_that_its_file_lacks_whatever_is_made_freed_and_shrunk() {
    let mut ledger = Ledger::new();
    let steps = [
        "insert into runs (record) values (randomblob(70000)); delete from runs",
        "create table gone (x); insert into gone values (randomblob(90000)); drop table gone",
        "insert into runs (record) select randomblob(900) from json_each('[1, 2, 3, 4, 5, 6, 7, 8, 9]')",
        "delete from runs where run_id % 3 = 0",
        "create table kept (x); insert into kept select randomblob(9000) from runs; drop table kept",
        "insert into runs (record) values (zeroblob(200000))",
        "update runs set record = null where length(record) > 1000",
        "vacuum",
    ];
    for round in 0..6 {
        for (nth, step) in steps.iter().cycle().skip(round).take(steps.len()).enumerate() {
            let text = if *step == "vacuum" { (*step).to_owned() } else { format!("begin; {step}; commit") };
            ledger.writer.execute_batch(&text).unwrap();
            assert!(ledger.image().is_whole(), "{round} {step}");
            // All of it is in the log for as long as the round is.
            if nth % 5 == round {
                ledger.turns.follow(&mut ledger.writer, || true);
                assert!(ledger.image().is_whole(), "{round} {step}: followed");
            }
        }
        let _cut_or_not = ledger.turns.cut(&mut ledger.writer).unwrap();
    }
}

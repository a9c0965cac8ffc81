//! The parts of an SQLite ledger that are on the disk: its file, and its write-ahead log. What belongs together is
//! served, and what does not is refused and left as it is.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use tempfile::TempDir;

use super::calls::{Step, ask};
use super::data::Data;
use super::older_schema::older;
use super::server::{SOON, Server, run};

/// A folder with a ledger.
struct Folder(TempDir);

impl Folder {
    fn new() -> Self {
        Self(TempDir::new().unwrap())
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn file(&self) -> PathBuf {
        self.path("ledger.db")
    }

    fn log(&self) -> PathBuf {
        self.path("ledger.db-wal")
    }

    fn store(&self) -> String {
        Data::Sqlite(self.file()).store()
    }

    async fn served(&self) -> Server {
        let server = Server::start(&self.store()).await;
        server.is_ready().await;
        server
    }

    /// The names and contents of all files but the lock, which has the number of the process that looked last.
    fn contents(&self) -> BTreeMap<String, Vec<u8>> {
        let entries = fs::read_dir(self.0.path()).unwrap().map(|entry| entry.unwrap());
        let named = entries.map(|entry| (entry.file_name().into_string().unwrap(), fs::read(entry.path()).unwrap()));
        named.filter(|(name, _)| name.strip_suffix(".lock").is_none()).collect()
    }

    /// Every command that opens the ledger refuses it with these words, and changes nothing.
    async fn is_refused(&self, words: &str) {
        let before = self.contents();
        for (command, wanted) in [
            (&["serve", "--listen", "127.0.0.1:0"][..], 1),
            (&["migrate"], 1),
            (&["migrate", "--dry-run"], 1),
            (&["doctor"], 1),
            (&["verify"], 3),
            (&["export"], 3),
            (&["retention", "preview"], 3),
        ] {
            let (code, said) = run(&[command, &["--store", &self.store()]].concat()).await;
            // The doctor's remedy stands on a line of its own.
            let one_line = said.replace(".\n         ", ": ").to_lowercase();
            assert_eq!((code, one_line.contains(&words.to_lowercase())), (wanted, true), "{command:?}: {said}");
            assert!(self.contents() == before, "{command:?} has changed something: {said}");
        }
    }
}

async fn starts(server: &Server, run_ids: &[&str]) {
    let mut client = server.client();
    for run_id in run_ids {
        ask(&mut client, run_id, Step::Start, "request").await.unwrap();
    }
}

async fn stops(mut server: Server) {
    server.process.signal("TERM");
    let (code, said) = server.process.exited(SOON).await;
    assert_eq!(code, 0, "{said}");
}

async fn has(path: &Path, run_ids: &[&str]) {
    let contents = Data::Sqlite(path.to_owned()).sound().await;
    let found: Vec<_> = contents.runs.keys().map(|key| key.run_id.to_string()).collect();
    assert_eq!(found, run_ids);
}

/// The refusal of a log that is not the file's.
pub(super) const STRANGER: &str =
    "was begun on another file, or on another state of this one: to go on with the file as it is";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_backup_beside_a_forgotten_log_is_refused_and_neither_is_touched() {
    let folder = Folder::new();
    let server = folder.served().await;
    starts(&server, &["before"]).await;
    stops(server).await;
    fs::copy(folder.file(), folder.path("stopped.db")).unwrap();
    let server = folder.served().await;
    starts(&server, &["meanwhile"]).await;
    let beside = rusqlite::Connection::open(folder.file()).unwrap();
    beside.execute("vacuum into ?1", [folder.path("served.db").to_str()]).unwrap();
    drop(beside);
    stops(server).await;
    let mut server = folder.served().await;
    starts(&server, &["last"]).await;
    server.process.kill();
    let (file, log) = (fs::read(folder.file()).unwrap(), fs::read(folder.log()).unwrap());
    let _index = fs::remove_file(folder.path("ledger.db-shm"));
    for backup in ["stopped.db", "served.db"] {
        let into = fs::read(folder.path(backup)).unwrap();
        // Written into the file as it is, and put in its place.
        fs::write(folder.file(), &into).unwrap();
        folder.is_refused(STRANGER).await;
        fs::write(folder.path("moved"), &into).unwrap();
        fs::rename(folder.path("moved"), folder.file()).unwrap();
        folder.is_refused(STRANGER).await;
    }
    // As the sentence says: without the log, the backup is served; with its own file, the log is.
    fs::write(folder.file(), &file).unwrap();
    fs::write(folder.log(), &log).unwrap();
    stops(folder.served().await).await;
    has(&folder.file(), &["before", "last", "meanwhile"]).await;
    fs::copy(folder.path("stopped.db"), folder.file()).unwrap();
    stops(folder.served().await).await;
    has(&folder.file(), &["before"]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_file_and_its_log_are_served_wherever_they_are_brought_together() {
    let (folder, elsewhere) = (Folder::new(), Folder::new());
    let mut server = folder.served().await;
    starts(&server, &["first"]).await;
    server.process.kill();
    for _again in 0..2 {
        server = folder.served().await;
        starts(&server, &["second"]).await;
        server.process.kill();
    }
    for name in ["ledger.db", "ledger.db-wal"] {
        fs::copy(folder.path(name), elsewhere.path(name)).unwrap();
    }
    stops(elsewhere.served().await).await;
    has(&elsewhere.file(), &["first", "second"]).await;
    let (code, said) = run(&["verify", "--store", &elsewhere.store()]).await;
    assert_eq!(code, 0, "{said}");
    stops(folder.served().await).await;
    has(&folder.file(), &["first", "second"]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_the_release_before_this_one_left_in_its_log_is_served_and_a_log_of_this_one_is_not_put_into_its_backup() {
    let folder = Folder::new();
    let mut server = older(&Data::Sqlite(folder.file())).await;
    server.is_ready().await;
    starts(&server, &["older"]).await;
    server.process.kill();
    fs::copy(folder.file(), folder.path("older.db")).unwrap();
    fs::copy(folder.log(), folder.path("older.db-wal")).unwrap();
    let mut server = folder.served().await;
    starts(&server, &["newer"]).await;
    server.process.kill();
    let log = fs::read(folder.log()).unwrap();
    stops(folder.served().await).await;
    has(&folder.file(), &["newer", "older"]).await;
    for (from, to) in [("older.db", "ledger.db"), ("older.db-wal", "ledger.db-wal")] {
        fs::copy(folder.path(from), folder.path(to)).unwrap();
    }
    stops(folder.served().await).await;
    has(&folder.file(), &["older"]).await;
    fs::copy(folder.path("older.db"), folder.file()).unwrap();
    fs::write(folder.log(), log).unwrap();
    folder.is_refused(STRANGER).await;
}

/// Changes bytes in the middle of a file's pages.
fn damage(path: &Path) {
    let mut bytes = fs::read(path).unwrap();
    for page in bytes.chunks_mut(4096).skip(1) {
        page[..64].fill(0x5a);
    }
    fs::write(path, bytes).unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn after_an_end_that_was_none_a_damaged_file_is_refused_and_its_log_stays() {
    let folder = Folder::new();
    let server = folder.served().await;
    starts(&server, &["first"]).await;
    stops(server).await;
    let mut server = folder.served().await;
    starts(&server, &["second"]).await;
    server.process.kill();
    damage(&folder.file());
    let (file, log) = (fs::read(folder.file()).unwrap(), fs::read(folder.log()).unwrap());
    for command in [&["serve", "--listen", "127.0.0.1:0"][..], &["migrate"]] {
        let (code, said) = run(&[command, &["--store", &folder.store()]].concat()).await;
        assert_eq!((code, said.contains("damaged, or do not belong together")), (1, true), "{said}");
        assert!(fs::read(folder.file()).unwrap() == file && fs::read(folder.log()).unwrap() == log, "{command:?}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn verify_asks_sqlite_for_its_own_file() {
    let folder = Folder::new();
    let server = folder.served().await;
    starts(&server, &["first", "second"]).await;
    stops(server).await;
    let connection = rusqlite::Connection::open(folder.file()).unwrap();
    // An index that lacks the rows of its table: no run is read by it.
    connection
        .execute_batch(
            "create table spare (number integer); create index spare_at on spare (number);
             create table other (number integer); create index other_at on other (number);
             insert into spare values (1), (2); pragma writable_schema = on",
        )
        .unwrap();
    connection
        .execute_batch(
            "update sqlite_schema set rootpage = (select rootpage from sqlite_schema where name = 'other_at')
              where name = 'spare_at'",
        )
        .unwrap();
    drop(connection);
    let (code, said) = run(&["verify", "--store", &folder.store()]).await;
    assert_eq!((code, said.contains("integrity_check: expected ok")), (1, true), "{said}");
}

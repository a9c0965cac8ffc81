//! The database's file gets a second name, or its name comes to mean another file, while it is served.

use std::fs::{self, File};
use std::io::Read as _;
use std::path::{Path, PathBuf};

use prost_types::value::Kind;
use prost_types::{Struct, Value};
use runledger_proto::v1;
use tempfile::TempDir;
use tokio::sync::watch;
use tokio::time::{Duration, sleep};

use super::calls::{Step, ask};
use super::data::Data;
use super::load::Load;
use super::server::{SOON, Server, run};

/// A mishap to the files.
#[derive(Clone, Copy, Debug)]
enum Mishap {
    Deleted,
    Renamed,
    Replaced,
    LogDeleted,
    LogReplaced,
    IndexDeleted,
    IndexRenamed,
    IndexReplaced,
}

impl Mishap {
    const ALL: [Self; 8] = [
        Self::Deleted,
        Self::Renamed,
        Self::Replaced,
        Self::LogDeleted,
        Self::LogReplaced,
        Self::IndexDeleted,
        Self::IndexRenamed,
        Self::IndexReplaced,
    ];

    fn happens(self, files: &Files) {
        let [database, log, index, other] =
            ["ledger.db", "ledger.db-wal", "ledger.db-shm", "other.db"].map(|name| files.path(name));
        match self {
            Self::Deleted => fs::remove_file(&database).unwrap(),
            Self::Renamed => fs::rename(&database, files.path("renamed.db")).unwrap(),
            Self::Replaced => fs::rename(&other, &database).unwrap(),
            Self::LogDeleted => fs::remove_file(&log).unwrap(),
            Self::LogReplaced => fs::rename(&other, &log).unwrap(),
            Self::IndexDeleted => fs::remove_file(&index).unwrap(),
            Self::IndexRenamed => fs::rename(&index, files.path("renamed.db-shm")).unwrap(),
            Self::IndexReplaced => fs::rename(&other, &index).unwrap(),
        }
    }

    fn sentence(self) -> &'static str {
        match self {
            Self::Deleted => "ledger.db was deleted while it was served",
            Self::Renamed => "ledger.db was renamed while it was served",
            Self::Replaced => "ledger.db was replaced while it was served",
            Self::LogDeleted => "ledger.db-wal was deleted or renamed while it was served",
            Self::LogReplaced => "ledger.db-wal was replaced while it was served",
            Self::IndexDeleted | Self::IndexRenamed | Self::IndexReplaced => {
                "ledger.db-shm, was deleted, renamed or replaced while it was served"
            }
        }
    }

    /// The name under which another file then stands, which must not be touched.
    fn of_others(self) -> Option<&'static str> {
        match self {
            Self::Replaced => Some("ledger.db"),
            Self::LogReplaced => Some("ledger.db-wal"),
            Self::IndexReplaced => Some("ledger.db-shm"),
            Self::Deleted | Self::Renamed | Self::LogDeleted | Self::IndexDeleted | Self::IndexRenamed => None,
        }
    }

    /// Whether file and log are in their places, and stay as they are.
    fn leaves_the_ledger(self) -> bool {
        matches!(self, Self::IndexDeleted | Self::IndexRenamed | Self::IndexReplaced)
    }
}

const OTHER: &[u8] = b"of somebody else";

/// A directory with a ledger that is served, and with a file of another program.
struct Files(TempDir);

impl Files {
    fn new() -> Self {
        let files = Self(TempDir::new().unwrap());
        fs::write(files.path("other.db"), OTHER).unwrap();
        files
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    async fn served(&self) -> Server {
        let server = Server::start(&Data::Sqlite(self.path("ledger.db")).store()).await;
        server.is_ready().await;
        server
    }

    fn untouched(&self, mishap: Mishap) {
        let Some(name) = mishap.of_others() else { return };
        assert_eq!(fs::read(self.path(name)).unwrap(), OTHER, "{mishap:?}");
    }

    /// The data of a file that may have no name any more.
    fn held(&self, mishap: Mishap, mut file: File) -> Data {
        if mishap.leaves_the_ledger() {
            return Data::Sqlite(self.path("ledger.db"));
        }
        let mut bytes = Vec::new();
        file.read_to_end(&mut bytes).unwrap();
        let copy = self.path("copy.db");
        fs::write(&copy, bytes).unwrap();
        Data::Sqlite(copy)
    }
}

async fn ends_with_the_sentence(server: &mut Server, mishap: Mishap) {
    let (code, said) = server.process.exited(SOON).await;
    assert_eq!(code, 1, "{mishap:?}: {said}");
    let last = said.lines().rfind(|line| line.starts_with("runledger: ")).unwrap_or_default();
    assert!(last.contains(mishap.sentence()) && last.contains("acknowledged until then"), "{mishap:?}: {said}");
    assert!(!said.contains("were not settled in time"), "{mishap:?}: nothing holds up the stop: {said}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_idle_server_whose_file_is_not_the_ledgers_any_more_stops_and_says_so() {
    for mishap in Mishap::ALL {
        let files = Files::new();
        let mut server = files.served().await;
        ask(&mut server.client(), "run-1", Step::Start, "request").await.unwrap();
        let file = File::open(files.path("ledger.db")).unwrap();
        mishap.happens(&files);
        ends_with_the_sentence(&mut server, mishap).await;
        files.untouched(mishap);
        let contents = files.held(mishap, file).sound().await;
        assert_eq!(contents.made_by("run-1", "request"), [1], "{mishap:?}: it is in the file that was the ledger's");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_is_acknowledged_into_a_file_that_is_not_the_ledgers_any_more() {
    for mishap in Mishap::ALL {
        let files = Files::new();
        let mut server = files.served().await;
        let (_servers, targets) = watch::channel(vec![server.address]);
        let mut load = Load::one_by_one("run", 16, &targets);
        load.progresses(100).await;
        let file = File::open(files.path("ledger.db")).unwrap();
        mishap.happens(&files);
        let at_most_then = load.acknowledged();
        ends_with_the_sentence(&mut server, mishap).await;
        files.untouched(mishap);
        // A call of each caller was on its way, and its commit may have been looked after just before.
        let more = load.acknowledged() - at_most_then;
        assert!(more <= 2 * 16, "{mishap:?}: {more} calls were acknowledged after that");
        let calls = load.give_up().await;
        files.held(mishap, file).sound().await.agree_with(&calls);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_file_that_was_renamed_is_served_again_once_it_has_its_name_back() {
    let files = Files::new();
    let mut server = files.served().await;
    ask(&mut server.client(), "run-1", Step::Start, "request").await.unwrap();
    Mishap::Renamed.happens(&files);
    ends_with_the_sentence(&mut server, Mishap::Renamed).await;
    fs::rename(files.path("renamed.db"), files.path("ledger.db")).unwrap();
    let server = files.served().await;
    let answer = ask(&mut server.client(), "run-1", Step::Start, "request").await.unwrap();
    assert_eq!(answer.0, v1::Disposition::Replayed);
}

/// Checks that commands which would write do not open the ledger.
async fn is_refused(path: &Path) {
    let store = Data::Sqlite(path.to_owned()).store();
    for args in [&["serve", "--listen", "127.0.0.1:0"][..], &["migrate"]] {
        let (code, said) = run(&[args, &["--store", &store]].concat()).await;
        assert_eq!(code, 1, "{args:?}: {said}");
        assert!(said.contains("has 2 names (hard links)") && said.contains("remove the other names"), "{said}");
        assert!(!said.contains("listens on"), "{said}");
    }
}

async fn is_read(path: &Path) {
    for command in ["verify", "export"] {
        let (code, said) = run(&[command, "--store", &Data::Sqlite(path.to_owned()).store()]).await;
        assert_eq!(code, 0, "{command}: {said}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_file_with_two_names_is_served_under_neither_and_read_under_both() {
    let files = Files::new();
    let (code, said) = run(&["migrate", "--store", &Data::Sqlite(files.path("ledger.db")).store()]).await;
    assert_eq!(code, 0, "{said}");
    fs::hard_link(files.path("ledger.db"), files.path("second.db")).unwrap();
    for name in ["ledger.db", "second.db"] {
        is_refused(&files.path(name)).await;
        is_read(&files.path(name)).await;
    }
    fs::remove_file(files.path("second.db")).unwrap();
    files.served().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_second_name_under_a_server_lets_no_second_server_in_and_is_told_once() {
    let files = Files::new();
    let server = files.served().await;
    let mut client = server.client();
    ask(&mut client, "run-1", Step::Start, "request").await.unwrap();
    fs::hard_link(files.path("ledger.db"), files.path("second.db")).unwrap();
    server.process.says("has another name").await;
    is_refused(&files.path("second.db")).await;
    ask(&mut client, "run-2", Step::Start, "request").await.unwrap();
    is_read(&files.path("ledger.db")).await;
    assert_eq!(server.process.said().matches("has another name").count(), 1, "{}", server.process.said());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_part_that_is_cut_under_a_server_ends_it_and_what_is_left_stays() {
    for (name, left) in [("ledger.db", 0), ("ledger.db", 8_192), ("ledger.db-wal", 0), ("ledger.db-wal", 5_000)] {
        let files = Files::new();
        let mut server = files.served().await;
        for run_id in ["run-1", "run-2", "run-3"] {
            ask(&mut server.client(), run_id, Step::Start, "request").await.unwrap();
        }
        let path = files.path(name);
        assert!(fs::metadata(&path).unwrap().len() > left, "{name}");
        File::options().write(true).open(&path).unwrap().set_len(left).unwrap();
        let (code, said) = server.process.exited(SOON).await;
        let last = said.lines().rfind(|line| line.starts_with("runledger: ")).unwrap_or_default();
        let wanted = format!("{} was cut while it was served", path.display());
        assert!(
            code == 1 && last.contains(&wanted) && last.contains("put a backup in their place"),
            "{left}: {code}: {said}"
        );
        let bytes = fs::metadata(files.path("ledger.db")).unwrap().len();
        if name == "ledger.db" {
            assert_eq!(bytes, left, "nothing was written into what is left");
        }
        let (code, said) = run(&["serve", "--listen", "127.0.0.1:0", "--store", &store_of(&files)]).await;
        assert!(code == 1 && !said.contains("listens on"), "{name} {left}: nothing begins anew there: {said}");
        let (code, said) = run(&["doctor", "--store", &store_of(&files), "--output", "json"]).await;
        let is_named = ["parts", "damaged"].iter().any(|fault| said.contains(&format!("\"name\":\"{fault}\"")));
        assert!(code == 1 && is_named, "{name} {left}: {said}");
    }
}

fn store_of(files: &Files) -> String {
    Data::Sqlite(files.path("ledger.db")).store()
}

/// Checks that a server whose log was cut has ended, and that nothing of the hole came into the file; nor does a server begin
/// on it.
async fn ended_by_a_cut_log(server: &mut Server, files: &Files) {
    let (code, said) = server.process.exited(SOON).await;
    assert!(code == 1 && said.contains("ledger.db-wal was cut while it was served"), "{code}: {said}");
    let (code, said) = run(&["serve", "--listen", "127.0.0.1:0", "--store", &store_of(files)]).await;
    assert!(code == 1 && !said.contains("listens on"), "nothing begins anew there: {said}");
    let alone = files.path("alone.db");
    fs::copy(files.path("ledger.db"), &alone).unwrap();
    let file = rusqlite::Connection::open(alone).unwrap();
    let found: String = file.query_row("pragma integrity_check(1)", [], |row| row.get(0)).unwrap();
    assert_eq!(found, "ok");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_log_that_is_cut_under_load_ends_the_server_and_is_not_written_into_the_file() {
    for left in [0, 5_000, 50_000] {
        let files = Files::new();
        let mut server = files.served().await;
        let (_servers, targets) = watch::channel(vec![server.address]);
        let mut load = Load::one_by_one("run", 16, &targets);
        load.progresses(300).await;
        let log = File::options().write(true).open(files.path("ledger.db-wal")).unwrap();
        assert!(log.metadata().unwrap().len() > left);
        log.set_len(left).unwrap();
        let at_most_then = load.acknowledged();
        ended_by_a_cut_log(&mut server, &files).await;
        let more = load.acknowledged() - at_most_then;
        assert!(more <= 2 * 16, "{left}: {more} calls were acknowledged after that");
        load.give_up().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_log_that_is_cut_right_before_it_is_written_into_the_file_ends_the_server() {
    let files = Files::new();
    let mut server = files.served().await;
    let log = files.path("ledger.db-wal");
    let mut client = server.client();
    let mut numbers = 0..;
    let value = Value { kind: Some(Kind::StringValue("x".repeat(60_000))) };
    let mut grows = async || {
        let number: u64 = numbers.next().unwrap();
        let request = v1::StartRunRequest {
            task_thread_id: "thread".to_owned(),
            run_id: format!("run-{number}"),
            input: Some(Struct { fields: [("text".to_owned(), value.clone())].into() }),
            ..v1::StartRunRequest::default()
        };
        client.start_run(request).await
    };
    // It is written into the file when it has 8,000 pages.
    while fs::metadata(&log).unwrap().len() < 31_500_000 {
        grows().await.unwrap();
    }
    File::options().write(true).open(&log).unwrap().set_len(0).unwrap();
    for _more in 0..20 {
        if grows().await.is_err() {
            break;
        }
    }
    ended_by_a_cut_log(&mut server, &files).await;
}

/// It is the last one that has the ledger open then, and would write what its index counts into the file: it writes what is
/// before the hole, and removes the log with its mark.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_program_that_closes_the_ledger_after_a_cut_writes_no_hole_into_the_file_and_hides_none() {
    for part_of_it in [0, 2] {
        let files = Files::new();
        let mut server = files.served().await;
        let other = rusqlite::Connection::open(files.path("ledger.db")).unwrap();
        let (_servers, targets) = watch::channel(vec![server.address]);
        let mut load = Load::start("run", 16, &targets);
        load.progresses(300).await;
        let _runs: i64 = other.query_row("select count(*) from runs", [], |row| row.get(0)).unwrap();
        let log = File::options().write(true).open(files.path("ledger.db-wal")).unwrap();
        log.set_len(log.metadata().unwrap().len().checked_div(part_of_it).unwrap_or(0)).unwrap();
        let (code, said) = server.process.exited(SOON).await;
        assert_eq!(code, 1, "{said}");
        load.give_up().await;
        drop(other);
        assert!(!files.path("ledger.db-wal").exists(), "the last program has removed it");
        let file = rusqlite::Connection::open(files.path("ledger.db")).unwrap();
        let sound: String = file.query_row("pragma integrity_check", [], |row| row.get(0)).unwrap();
        assert_eq!(sound, "ok");
        drop(file);
        for _start in 0..2 {
            let (code, said) = run(&["serve", "--listen", "127.0.0.1:0", "--store", &store_of(&files)]).await;
            let wanted = match part_of_it {
                0 => "its write-ahead log (`-wal`) is missing or empty",
                _ => "its lock (`.lock`) says that the file or its log was cut while it was served",
            };
            assert!(code == 1 && said.contains(wanted), "{code}: {said}");
        }
        let (code, said) = run(&["doctor", "--store", &store_of(&files), "--output", "json"]).await;
        assert!(code == 1 && said.contains("\"name\":\"parts\""), "{said}");
        // As the sentences have it.
        match part_of_it {
            0 => {
                let file = rusqlite::Connection::open(files.path("ledger.db")).unwrap();
                file.pragma_update(None, "application_id", 0).unwrap();
            }
            _ => fs::remove_file(files.path("ledger.db.lock")).unwrap(),
        }
        let again = files.served().await;
        ask(&mut again.client(), "goes-on", Step::Start, "request").await.unwrap();
        let lock = fs::read_to_string(files.path("ledger.db.lock")).unwrap();
        assert!(lock.ends_with("\nledger\n"), "{lock}");
    }
}

/// What stands in the place of a last page that is not there is zeros to SQLite, which look sound.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_file_that_was_cut_beside_the_log_of_a_server_that_was_killed_is_not_served() {
    let files = Files::new();
    let mut server = files.served().await;
    let store = store_of(&files);
    ask(&mut server.client(), "run-1", Step::Start, "request").await.unwrap();
    server.process.signal("TERM");
    assert_eq!(server.process.exited(SOON).await.0, 0);
    let mut server = files.served().await;
    ask(&mut server.client(), "run-2", Step::Start, "request").await.unwrap();
    server.process.kill();
    let file = File::options().write(true).open(files.path("ledger.db")).unwrap();
    let bytes = file.metadata().unwrap().len();
    // Pages that the log has are no loss; some that it has not are among these.
    file.set_len(bytes / 2).unwrap();
    for command in [&["serve", "--listen", "127.0.0.1:0"][..], &["doctor"], &["verify"]] {
        let (code, said) = run(&[command, &["--store", &store]].concat()).await;
        assert!(code != 0 && said.contains("the file ends before its last page"), "{command:?}: {code}: {said}");
    }
    assert_eq!(file.metadata().unwrap().len(), bytes / 2, "it stays as it is");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_program_that_does_not_see_the_server_since_the_index_is_gone_destroys_nothing() {
    for mode in ["passive", "truncate"] {
        let files = Files::new();
        let mut server = files.served().await;
        let (_servers, targets) = watch::channel(vec![server.address]);
        let mut load = Load::start("run", 16, &targets);
        load.progresses(200).await;
        fs::remove_file(files.path("ledger.db-shm")).unwrap();
        let other = rusqlite::Connection::open(files.path("ledger.db")).unwrap();
        let _busy: i64 = other.query_row(&format!("pragma wal_checkpoint({mode})"), [], |row| row.get(0)).unwrap();
        ends_with_the_sentence(&mut server, Mishap::IndexDeleted).await;
        drop(other);
        let calls = load.give_up().await;
        let again = files.served().await;
        Data::Sqlite(files.path("ledger.db")).sound().await.agree_with(&calls);
        drop(again);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_log_that_another_program_has_written_into_the_file_is_not_cut() {
    let files = Files::new();
    let mut server = files.served().await;
    for run_id in ["run-1", "run-2", "run-3"] {
        ask(&mut server.client(), run_id, Step::Start, "request").await.unwrap();
    }
    let log = files.path("ledger.db-wal");
    let other = rusqlite::Connection::open(files.path("ledger.db")).unwrap();
    let busy: i64 = other.query_row("pragma wal_checkpoint(truncate)", [], |row| row.get(0)).unwrap();
    assert_eq!((busy, fs::metadata(&log).unwrap().len()), (0, 0));
    // The server looks at it twice, a second apart.
    sleep(Duration::from_secs(3)).await;
    ask(&mut server.client(), "run-4", Step::Start, "request").await.unwrap();
    server.process.kill();
    drop(other);
    let contents = Data::Sqlite(files.path("ledger.db")).sound().await;
    for run_id in ["run-1", "run-2", "run-3", "run-4"] {
        assert_eq!(contents.made_by(run_id, "request"), [1], "{run_id}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_part_beside_the_file_that_has_another_name_is_served_by_nobody() {
    for ending in ["-wal", "-shm", "-journal", ".lock"] {
        let files = Files::new();
        let mut server = files.served().await;
        ask(&mut server.client(), "run-1", Step::Start, "request").await.unwrap();
        server.process.kill();
        let part = files.path(&format!("ledger.db{ending}"));
        if !part.exists() {
            fs::write(&part, OTHER).unwrap();
        }
        fs::hard_link(&part, files.path("second")).unwrap();
        let before = fs::read(&part).unwrap();
        let (code, said) = run(&["serve", "--listen", "127.0.0.1:0", "--store", &store_of(&files)]).await;
        assert!(code == 1 && said.contains("is another file as well, by a hard link"), "{ending}: {code}: {said}");
        assert_eq!(fs::read(&part).unwrap(), before, "{ending}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_migration_that_makes_a_ledger_says_so_and_who_is_refused_beside_a_server_is_told_the_way_to_it() {
    let files = Files::new();
    let store = store_of(&files);
    for wanted in [true, false] {
        let (code, said) = run(&["migrate", "--store", &store]).await;
        assert_eq!((code, said.contains("had no ledger: a new one was made")), (0, wanted), "{said}");
    }
    let _server = files.served().await;
    for (command, wanted) in [("preview", "--server HOST:PORT asks that server"), ("run", "it purges by itself")] {
        let (code, said) = run(&["retention", command, "--store", &store]).await;
        assert!(code == 3 && said.contains("is in use by another server") && said.contains(wanted), "{code}: {said}");
    }
}

//! Disks that cannot be written, and disks that are full.

use std::fs::{self, Permissions};
use std::io::Write as _;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use runledger_client::Health;
use runledger_proto::v1::{Disposition, GetRunRequest};
use tempfile::TempDir;

use super::calls::{Answer, Step, ask, meaning};
use super::data::Data;
use super::server::{Process, SOON, Server};
use crate::support::mount::Mount;

/// A directory that no user can write, not even root.
enum ReadOnly {
    Mounted(Mount),
    Forbidden(TempDir),
}

impl ReadOnly {
    fn new() -> Self {
        if let Some(mount) = Mount::tmpfs("ro,size=1m") {
            return Self::Mounted(mount);
        }
        let directory = TempDir::new().unwrap();
        fs::set_permissions(directory.path(), Permissions::from_mode(0o555)).unwrap();
        Self::Forbidden(directory)
    }

    fn path(&self) -> &Path {
        match self {
            Self::Mounted(mount) => mount.path(),
            Self::Forbidden(directory) => directory.path(),
        }
    }
}

/// Starts a server that must end, and gives what it said last.
async fn refused(args: &[&str], environment: &[(&str, &str)], wanted: i32) -> String {
    let args = [&["serve", "--listen", "127.0.0.1:0"], args].concat();
    let (code, said) = Process::spawn_with(&args, environment).exited(SOON).await;
    assert_eq!(code, wanted, "{args:?}: {said}");
    assert!(!said.contains("listens on") && !said.contains("memory"), "it never serves anything: {said}");
    said.lines().rfind(|line| line.starts_with("runledger: ")).unwrap_or_default().to_owned()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn with_no_store_asked_for_a_data_directory_that_is_read_only_is_the_error_that_store_gets() {
    let directory = ReadOnly::new();
    let home = directory.path().to_str().unwrap();
    let path = directory.path().join("runledger/ledger.db");
    let store = Data::Sqlite(path.clone()).store();
    let by_default = refused(&[], &[("XDG_DATA_HOME", home)], 1).await;
    assert!(by_default.contains(&format!("{} cannot be written", path.display())), "{by_default}");
    assert_eq!(by_default, refused(&["--store", &store], &[], 1).await);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_a_home_no_ledger_is_made_in_the_working_directory() {
    for environment in [&[][..], &[("HOME", "home")], &[("HOME", "home"), ("XDG_DATA_HOME", "data")], &[("HOME", "")]] {
        let sentence = refused(&[], environment, 2).await;
        assert!(sentence.contains("--store or RUNLEDGER_STORE"), "{environment:?}: {sentence}");
        for command in ["migrate", "doctor", "verify", "export"] {
            let (code, said) = Process::spawn_with(&[command], environment).exited(SOON).await;
            assert_eq!((code, said.contains("--store or RUNLEDGER_STORE")), (2, true), "{command}: {said}");
        }
    }
    for made in ["runledger/ledger.db", "home", "data"] {
        assert!(!Path::new(made).exists(), "{made}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_store_that_was_asked_for_and_is_read_only_is_an_error() {
    let directory = ReadOnly::new();
    let store = Data::Sqlite(directory.path().join("ledger.db")).store();
    let mut process = Process::spawn(&["serve", "--listen", "127.0.0.1:0", "--store", &store]);
    let (code, said) = process.exited(SOON).await;
    assert_eq!(code, 1, "{said}");
    assert!(said.contains("ledger.db cannot be written"), "{said}");
    assert!(!said.contains("listens on"), "{said}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn with_no_store_asked_for_a_writable_data_directory_is_durable() {
    let directory = TempDir::new().unwrap();
    let home = directory.path().to_str().unwrap();
    let server = Process::spawn_with(&["serve", "--listen", "127.0.0.1:0"], &[("XDG_DATA_HOME", home)]);
    let server = Server::of(server).await;
    server.is_ready().await;
    server.becomes("durability", Health::Serving, SOON).await;
    ask(&mut server.client(), "run-1", Step::Start, "").await.unwrap();
    let path = directory.path().join("runledger/ledger.db");
    server.process.says(path.to_str().unwrap()).await;
    assert!(Data::Sqlite(path).sound().await.run("run-1").is_some());
}

/// Writes until nothing fits any more.
fn fill(path: &Path) {
    let mut file = fs::File::create(path).unwrap();
    for size in [65536, 4096, 1] {
        while file.write_all(&vec![0; size]).is_ok() {}
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_full_disk_refuses_calls_for_now_and_loses_nothing() {
    let Some(mount) = Mount::tmpfs("size=8m") else { return };
    let data = Data::Sqlite(mount.path().join("ledger.db"));
    let server = Server::start(&data.store()).await;
    server.is_ready().await;
    let mut client = server.hasty();
    let mut acknowledged = Vec::new();
    for number in 0..20 {
        let run_id = format!("before-{number}");
        ask(&mut client, &run_id, Step::Start, "request").await.unwrap();
        acknowledged.push(run_id);
    }

    let filler: PathBuf = mount.path().join("filler");
    fill(&filler);
    // The log has room of its own for a while: what fits is kept.
    let mut refused = Vec::new();
    for number in 0..2000 {
        let run_id = format!("full-{number}");
        match ask(&mut client, &run_id, Step::Start, "request").await {
            Ok(_) => acknowledged.push(run_id),
            Err(status) => {
                assert_eq!(meaning(&status), Answer::NothingWritten("STORE_UNAVAILABLE".to_owned()));
                refused.push(run_id);
            }
        }
        if refused.len() == 5 {
            break;
        }
    }
    assert_eq!(refused.len(), 5, "the disk was never full");
    let request = GetRunRequest { run_id: "before-0".to_owned(), ..GetRunRequest::default() };
    assert!(client.get_run(request).await.is_ok(), "what is there can be read");

    fs::remove_file(&filler).unwrap();
    for run_id in &refused {
        let answer = ask(&mut client, run_id, Step::Start, "request").await.unwrap();
        assert_eq!(answer, (Disposition::Applied, 1, 1), "nothing was written of {run_id}, and it works again");
    }
    let contents = data.sound().await;
    for run_id in acknowledged.iter().chain(&refused) {
        assert_eq!(contents.made_by(run_id, "request"), [1], "{run_id}");
    }
    assert_eq!(contents.events.len(), acknowledged.len() + refused.len());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn while_the_disk_is_full_the_service_says_that_it_does_not_serve_and_finds_out_by_itself_when_it_is_not() {
    let Some(mount) = Mount::tmpfs("size=8m") else { return };
    let server = Server::start(&Data::Sqlite(mount.path().join("ledger.db")).store()).await;
    server.is_ready().await;
    server.becomes("", Health::Serving, SOON).await;
    let filler: PathBuf = mount.path().join("filler");
    fill(&filler);
    let mut client = server.hasty();
    let mut number = 0;
    while ask(&mut client, &format!("run-{number}"), Step::Start, "request").await.is_ok() {
        number += 1;
        assert!(number < 2000, "the disk was never full");
    }
    for service in ["", "runledger.v1.RunService"] {
        server.becomes(service, Health::NotServing, SOON).await;
    }
    server.process.says("commits fail: not serving until one succeeds").await;
    assert_eq!(server.health("liveness").await, Some(Health::Serving), "a full disk restarts nobody");
    assert!(!server.process.said().contains("commits succeed again"), "nothing fits: {}", server.process.said());

    fs::remove_file(&filler).unwrap();
    for service in ["", "runledger.v1.RunService", "readiness"] {
        server.becomes(service, Health::Serving, SOON).await;
    }
    server.process.says("commits succeed again").await;
    ask(&mut client, "last", Step::Start, "request").await.unwrap();
}

//! A ledger that cannot be opened is reported, and left as it is.

use std::fs;

use tempfile::TempDir;

use super::ledger::Ledger;
use super::on_both_stores;
use crate::process::data::Data;
use crate::process::server::{Server, run};

const COMMANDS: [&str; 3] = ["verify", "export", "doctor"];

/// The exit code of a command on a ledger that is there and cannot be opened: that is what the doctor is asked for.
fn refused(command: &str) -> i32 {
    if command == "doctor" { 1 } else { 3 }
}

on_both_stores! {
    an_empty_database_is_not_made_a_ledger
    a_newer_release_is_named
}

async fn an_empty_database_is_not_made_a_ledger(ledger: Ledger) {
    if let Data::Sqlite(path) = &ledger.data {
        fs::write(path, "").unwrap();
    }
    for command in COMMANDS {
        let (code, said) = ledger.run(&[command]).await;
        assert_eq!((code, said.contains("at migration 0 and this release needs ")), (3, true), "{said}");
    }
    let tables = match ledger.data {
        Data::Sqlite(_) => "select count(*) from sqlite_schema",
        Data::Postgres(_) => "select count(*) from pg_tables where schemaname = 'public'",
    };
    assert_eq!(ledger.data.sql(tables).await, [[Some("0".to_owned())]]);
}

async fn a_newer_release_is_named(ledger: Ledger) {
    ledger.fill().await;
    ledger.data.sql("update ledger set min_release = '98.7.6'").await;
    for command in COMMANDS {
        let (code, said) = ledger.run(&[command]).await;
        assert_eq!((code, said.contains("wants Runledger 98.7.6 or later")), (refused(command), true), "{said}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_file_that_is_missing_is_not_made() {
    let directory = TempDir::new().unwrap();
    let store = format!("sqlite:{}", directory.path().join("ledger.db").display());
    for command in COMMANDS {
        let (code, said) = run(&[command, "--store", &store]).await;
        assert_eq!((code, said.contains("there is no such file")), (3, true), "{said}");
    }
    assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_database_server_that_is_not_there_is_unreachable_and_its_password_is_not_shown() {
    for command in COMMANDS {
        let (code, said) = run(&[command, "--store", "postgres://u:s3cret@127.0.0.1:1/runs"]).await;
        let seen = (code, said.contains("does not answer"), said.contains("s3cret"));
        assert_eq!(seen, (refused(command), true, false), "{said}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_file_without_a_server_is_read_and_nothing_is_made_beside_it() {
    let ledger = Ledger::sqlite();
    ledger.fill().await;
    let Data::Sqlite(path) = &ledger.data else { panic!("it is SQLite") };
    let names = || {
        let mut names: Vec<_> =
            fs::read_dir(path.parent().unwrap()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        names.sort();
        names
    };
    let (before, bytes) = (names(), fs::read(path).unwrap());
    for command in COMMANDS {
        let (code, said) = ledger.run(&[command]).await;
        assert_eq!(code, 0, "{said}");
    }
    assert_eq!(names(), before);
    assert_eq!(fs::read(path).unwrap(), bytes, "not a byte is written");
    // Through a link, it is the same file.
    let link = path.with_file_name("link.db");
    std::os::unix::fs::symlink(path, &link).unwrap();
    let store = format!("sqlite:{}", link.display());
    let server = Server::start(&ledger.store()).await;
    server.is_ready().await;
    let (code, said) = run(&["verify", "--store", &store]).await;
    assert_eq!(code, 0, "{said}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_a_killed_server_left_in_its_log_is_seen() {
    let ledger = Ledger::sqlite();
    let mut server = Server::start(&ledger.store()).await;
    server.is_ready().await;
    let mut client = server.client();
    let start = runledger_proto::v1::StartRunRequest {
        task_thread_id: "thread".to_owned(),
        run_id: "run".to_owned(),
        ..Default::default()
    };
    client.start_run(start).await.unwrap();
    server.process.kill();
    let (code, said) = ledger.run(&["verify"]).await;
    assert_eq!((code, said.contains("1 run, 1 event, 1 shard in ")), (0, true), "{said}");
}

//! A database that was put back from a copy: what was given out after the copy leads nowhere.

use std::fs;
use std::io::Write as _;
use std::path::Path;
use std::process::{Command, Stdio};

use runledger_proto::v1::watch_runs_request::Initial;
use runledger_proto::v1::watch_runs_response::Frame;
use runledger_proto::v1::{WatchRunsRequest, WatchRunsResponse};
use tempfile::TempDir;
use tokio::time::timeout;
use tonic::{Code, Status, Streaming};

use super::calls::{Step, ask, reason};
use super::data::Data;
use super::oracle::cursor_of;
use super::server::{Client, SOON, Server};
use crate::support::postgres::{Database, direct, program};

async fn watch(client: &mut Client, cursor: &str) -> Result<Streaming<WatchRunsResponse>, Status> {
    let asked =
        WatchRunsRequest { initial: Initial::None.into(), cursor: cursor.to_owned(), ..WatchRunsRequest::default() };
    Ok(client.watch_runs(asked).await?.into_inner())
}

async fn next(frames: &mut Streaming<WatchRunsResponse>) -> Frame {
    timeout(SOON, frames.message()).await.expect("a frame in time").unwrap().unwrap().frame.unwrap()
}

/// A cursor from now.
async fn cursor(client: &mut Client) -> String {
    cursor_of(&next(&mut watch(client, "").await.unwrap()).await).to_owned()
}

/// Cursors from before and after the copy.
struct Copied {
    kept: String,
    lost: String,
}

async fn write(client: &mut Client, run_id: &str) {
    for step in [Step::Start, Step::Update(1), Step::Complete] {
        ask(client, run_id, step, "").await.unwrap();
    }
}

async fn is_refused(client: &mut Client, cursor: &str) {
    let refused = watch(client, cursor).await.unwrap_err();
    assert_eq!((refused.code(), reason(&refused).as_str()), (Code::InvalidArgument, "CURSOR_INVALID"));
}

/// On what was put back, the old cursor goes on, and the later one is refused.
async fn leads_nowhere(store: &str, Copied { kept, lost }: Copied) {
    let server = Server::start(store).await;
    server.is_ready().await;
    let mut client = server.client();
    is_refused(&mut client, &lost).await;
    let mut frames = watch(&mut client, &kept).await.unwrap();
    assert!(matches!(next(&mut frames).await, Frame::CaughtUp(_)));
    write(&mut client, "other").await;
    for revision in 1..=3 {
        match next(&mut frames).await {
            Frame::Change(change) => assert_eq!(change.event.unwrap().revision, revision),
            other @ (Frame::Snapshot(_) | Frame::CaughtUp(_) | Frame::Checkpoint(_)) => {
                panic!("not a change: {other:?}")
            }
        }
    }
}

fn copy(from: &Path, to: &Path) {
    for name in ["ledger.db", "ledger.db-wal"] {
        if from.join(name).exists() {
            fs::copy(from.join(name), to.join(name)).unwrap();
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cursor_from_after_the_copy_is_invalid_on_sqlite() {
    let (directory, aside) = (TempDir::new().unwrap(), TempDir::new().unwrap());
    let store = Data::Sqlite(directory.path().join("ledger.db")).store();
    let mut server = Server::start(&store).await;
    server.is_ready().await;
    let mut client = server.client();
    write(&mut client, "first").await;
    let kept = cursor(&mut client).await;
    server.process.kill();
    copy(directory.path(), aside.path());
    let mut server = Server::start(&store).await;
    server.is_ready().await;
    let mut client = server.client();
    write(&mut client, "second").await;
    let lost = cursor(&mut client).await;
    server.process.kill();
    for file in fs::read_dir(directory.path()).unwrap() {
        fs::remove_file(file.unwrap().path()).unwrap();
    }
    copy(aside.path(), directory.path());
    leads_nowhere(&store, Copied { kept, lost }).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cursor_from_after_the_copy_is_invalid_on_postgres() {
    let database = Database::fresh().await;
    let mut server = Server::start(&database.dsn()).await;
    server.is_ready().await;
    let mut client = server.client();
    write(&mut client, "first").await;
    let kept = cursor(&mut client).await;
    // No session may be connected to the database that is copied.
    server.process.kill();
    let admin = direct(&database.dsn().replace(database.name(), "postgres")).await;
    let copied = format!("create database {0}_copy template {0}", database.name());
    admin.batch_execute(&copied).await.unwrap();
    let mut server = Server::start(&database.dsn()).await;
    server.is_ready().await;
    let mut client = server.client();
    write(&mut client, "second").await;
    let lost = cursor(&mut client).await;
    server.process.kill();
    let store = database.dsn().replace(database.name(), &format!("{}_copy", database.name()));
    let server = Server::start(&store).await;
    server.is_ready().await;
    let mut client = server.client();
    // By the database's own identity: also when the copy has passed what the cursors say.
    for run_id in ["other", "another", "third", "fourth"] {
        for cursor in [&kept, &lost] {
            is_refused(&mut client, cursor).await;
        }
        write(&mut client, run_id).await;
    }
    let anew = cursor(&mut client).await;
    watch(&mut client, &anew).await.unwrap();
}

/// By `pg_dump`, as SQL.
fn dumped(dsn: &str) -> String {
    let dumped = Command::new(program("pg_dump")).arg(dsn).output().unwrap();
    assert!(dumped.status.success(), "{}", String::from_utf8_lossy(&dumped.stderr));
    String::from_utf8(dumped.stdout).unwrap()
}

fn put_back(dsn: &str, dump: &str) {
    let mut psql = Command::new(program("psql"));
    psql.args(["--quiet", "--set", "ON_ERROR_STOP=1", dsn]).stdin(Stdio::piped()).stdout(Stdio::null());
    let mut psql = psql.spawn().unwrap();
    psql.stdin.take().unwrap().write_all(dump.as_bytes()).unwrap();
    assert!(psql.wait().unwrap().success());
}

/// The usual way back: the database is dropped, made anew under its name, and filled from a dump.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cursor_from_before_a_dump_was_put_back_is_invalid() {
    let database = Database::fresh().await;
    let mut server = Server::start(&database.dsn()).await;
    server.is_ready().await;
    let mut client = server.client();
    write(&mut client, "first").await;
    let dump = dumped(&database.dsn());
    write(&mut client, "second").await;
    let lost = cursor(&mut client).await;
    server.process.kill();
    let admin = direct(&database.dsn().replace(database.name(), "postgres")).await;
    for statement in ["drop database {} with (force)", "create database {}"] {
        admin.batch_execute(&statement.replace("{}", database.name())).await.unwrap();
    }
    put_back(&database.dsn(), &dump);
    let server = Server::start(&database.dsn()).await;
    server.is_ready().await;
    let mut client = server.client();
    // The ledger passes the cursor's positions.
    for run_id in ["third", "fourth", "fifth"] {
        write(&mut client, run_id).await;
    }
    is_refused(&mut client, &lost).await;
}

/// The epoch of a ledger that was put back from a dump while no server ran.
async fn epoch_after_a_restore(database: &Database, dump: &str) -> u64 {
    let admin = direct(&database.dsn().replace(database.name(), "postgres")).await;
    for statement in ["drop database {} with (force)", "create database {}"] {
        admin.batch_execute(&statement.replace("{}", database.name())).await.unwrap();
    }
    put_back(&database.dsn(), dump);
    let server = Server::start(&database.dsn()).await;
    server.is_ready().await;
    let rows = Data::Postgres(database.dsn()).sql("select epoch from ledger").await;
    rows[0][0].as_ref().unwrap().parse().unwrap()
}

/// Whoever puts back the wrong dump puts back the right one right after it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_two_restores_give_out_one_epoch_however_soon_they_come() {
    let database = Database::fresh().await;
    let mut server = Server::start(&database.dsn()).await;
    server.is_ready().await;
    write(&mut server.client(), "first").await;
    let dump = dumped(&database.dsn());
    server.process.kill();
    // Releases before 0.8.0 counted minutes.
    let mut last = 10_000_000;
    for _ in 0..3 {
        let epoch = epoch_after_a_restore(&database, &dump).await;
        assert!(epoch > last, "{epoch} is not above {last}");
        assert!(epoch << 24 < 1 << 53, "{epoch}");
        last = epoch;
    }
}

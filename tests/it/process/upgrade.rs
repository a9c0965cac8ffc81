//! A database of an older release, with runs in it, is brought to this release's schema.

use runledger::store::migrations::{MIN_RELEASE, POSTGRES, RELEASE, SQLITE};
use runledger_proto::v1::{ListRunsRequest, RunFilter, RunStatus};
use tempfile::TempDir;
use tonic::Code;

use super::calls::{Step, ask, reason};
use super::data::Data;
use super::server::{Process, SOON, Server, run};
use crate::support::postgres::Database;

/// Runs of which one has ended.
pub(super) async fn some_runs(server: &Server, ids: [&str; 3]) {
    server.is_ready().await;
    for id in ids {
        ask(&mut server.client(), id, Step::Start, "start").await.unwrap();
    }
    ask(&mut server.client(), ids[1], Step::Complete, "end").await.unwrap();
}

/// Takes back what later migrations brought: the schema as the first release left it, but for the columns that the
/// stand-in for an older replica looks at.
async fn as_the_first_release_left_it(data: &Data) {
    data.sql("drop index active_by_start").await;
    data.sql("drop index run_events_by_namespace").await;
    for table in [
        "leases",
        "uptime",
        "max_running",
        "suspended",
        "claims",
        "namespaces",
        "stored_bytes",
        "purged",
        "retention_walks",
        "exported",
    ] {
        data.sql(&format!("drop table {table}")).await;
    }
    data.sql("drop index active_by_due").await;
    data.sql("alter table active drop column due_at").await;
    data.sql("alter table ledger add column alive_at integer").await;
    data.sql("alter table ledger drop column seal_key").await;
    if let Data::Sqlite(_) = data {
        data.sql("alter table ledger drop column cleaning_owed").await;
        for column in ["archived_at", "purged_at"] {
            data.sql(&format!("alter table runs drop column {column}")).await;
        }
    }
    data.sql("delete from ledger_migrations where number > 1").await;
}

async fn active(server: &Server) -> Vec<String> {
    server.is_ready().await;
    let filter = RunFilter { statuses: vec![RunStatus::Running.into()], ..RunFilter::default() };
    let asked = ListRunsRequest { filter: Some(filter), ..ListRunsRequest::default() };
    let listed = server.client().list_runs(asked).await.unwrap().into_inner();
    listed.runs.into_iter().map(|run| run.run_id).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_sqlite_file_of_the_first_release_is_migrated_by_serving_it() {
    let directory = TempDir::new().unwrap();
    let data = Data::Sqlite(directory.path().join("ledger.db"));
    let mut server = Server::start(&data.store()).await;
    some_runs(&server, ["run-1", "run-2", "run-3"]).await;
    server.process.kill();
    as_the_first_release_left_it(&data).await;
    let server = Server::start(&data.store()).await;
    assert_eq!(active(&server).await, ["run-3", "run-1"]);
    assert_eq!(data.sql("select max(number) from ledger_migrations").await, [[Some(SQLITE.len().to_string())]]);
    data.sound().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_postgres_of_the_first_release_is_migrated_while_a_replica_of_it_serves() {
    let database = Database::fresh().await;
    let data = Data::Postgres(database.dsn());
    let older = Server::start(&data.store()).await;
    some_runs(&older, ["run-1", "run-2", "run-3"]).await;
    as_the_first_release_left_it(&data).await;
    let newer = Server::start(&data.store()).await;
    newer.process.says(&format!("is at migration 1 and this release needs {}", POSTGRES.len())).await;
    some_runs(&older, ["run-4", "run-5", "run-6"]).await;
    let (code, said) = run(&["migrate", "--store", &data.store()]).await;
    assert_eq!(code, 0, "{said}");
    assert!(said.contains("applied active_by_start") && !said.contains("applied ledger"), "{said}");
    some_runs(&older, ["run-7", "run-8", "run-9"]).await;
    let running = ["run-9", "run-7", "run-6", "run-4", "run-3", "run-1"];
    assert_eq!(active(&newer).await, running);
    assert_eq!(active(&older).await, running);
    data.sound().await;
}

/// The release before this one refuses to serve what this release has made its own.
async fn the_release_before_is_refused_by_name(data: &Data) {
    let (code, said) = run(&["migrate", "--store", &data.store()]).await;
    assert_eq!(code, 0, "{said}");
    let args = ["serve", "--listen", "127.0.0.1:0", "--store", &data.store()];
    let (code, said) = Process::spawn_older(&args).exited(SOON).await;
    let wanted = format!("wants Runledger {MIN_RELEASE} or later; this is ");
    assert!(code == 1 && said.contains(&wanted) && !said.contains(&format!("this is {RELEASE}")), "{code}: {said}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_release_before_refuses_an_sqlite_file_of_this_one_by_name() {
    let directory = TempDir::new().unwrap();
    the_release_before_is_refused_by_name(&Data::Sqlite(directory.path().join("ledger.db"))).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_release_before_refuses_a_postgres_of_this_one_by_name() {
    let database = Database::fresh().await;
    the_release_before_is_refused_by_name(&Data::Postgres(database.dsn())).await;
}

/// The old replica's events stay and are understood; from the migration on it writes no more.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_replica_of_the_release_before_writes_nothing_after_the_migration() {
    let database = Database::fresh().await;
    let data = Data::Postgres(database.dsn());
    let older = Process::spawn_older(&["serve", "--listen", "127.0.0.1:0", "--store", &data.store()]);
    let older = Server::of(older).await;
    some_runs(&older, ["run-1", "run-2", "run-3"]).await;
    let (code, said) = run(&["migrate", "--store", &data.store()]).await;
    assert_eq!(code, 0, "{said}");
    let status = ask(&mut older.client(), "run-4", Step::Start, "start").await.unwrap_err();
    assert_eq!((status.code(), reason(&status).as_str()), (Code::Unavailable, "STORE_UNAVAILABLE"));
    older.process.says("this replica is too old for its database and writes no more").await;
    let newer = Server::start(&data.store()).await;
    assert_eq!(active(&newer).await, ["run-3", "run-1"]);
    let (code, said) = run(&["verify", "--store", &data.store()]).await;
    assert_eq!(code, 0, "{said}");
    data.sound().await;
}

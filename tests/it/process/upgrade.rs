//! A database of an older release, with runs in it, is brought to this release's schema.

use runledger::proto::v1::{ListRunsRequest, RunFilter, RunStatus};
use runledger::store::migrations::{POSTGRES, SQLITE};
use tempfile::TempDir;

use super::calls::{Step, ask};
use super::data::Data;
use super::server::{Server, run};
use crate::support::postgres::Database;

/// Runs of which one has ended.
async fn some_runs(server: &Server, ids: [&str; 3]) {
    server.is_ready().await;
    for id in ids {
        ask(&mut server.client(), id, Step::Start, "start").await.unwrap();
    }
    ask(&mut server.client(), ids[1], Step::Complete, "end").await.unwrap();
}

/// Takes back what later migrations brought: the schema as the first release left it.
async fn as_the_first_release_left_it(data: &Data) {
    data.sql("drop index active_by_start").await;
    for table in ["leases", "uptime", "max_running"] {
        data.sql(&format!("drop table {table}")).await;
    }
    data.sql("drop index active_by_due").await;
    data.sql("alter table active drop column due_at").await;
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

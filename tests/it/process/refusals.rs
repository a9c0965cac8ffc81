//! A command that the store refuses does not take its neighbours with it.

use futures_util::future::join_all;
use runledger::proto::v1::{Disposition, GetRunRequest};
use tempfile::TempDir;
use tokio_postgres::Client;
use tonic::Code;

use super::calls::{Step, ask, reason};
use super::data::Data;
use super::server::{Server, run};
use crate::support::postgres::{Database, direct};

const COMMANDS: usize = 50;
const GUILTY: &str = "run-23";

/// Keeps every commit waiting, from outside.
enum Hold {
    Sqlite(rusqlite::Connection),
    Postgres(Client),
}

impl Hold {
    async fn take(data: &Data) -> Self {
        match data {
            Data::Sqlite(path) => {
                let connection = rusqlite::Connection::open(path).unwrap();
                connection.execute_batch("begin immediate").unwrap();
                Self::Sqlite(connection)
            }
            Data::Postgres(dsn) => {
                let client = direct(dsn).await;
                client.batch_execute("begin; select shard from shards for update").await.unwrap();
                Self::Postgres(client)
            }
        }
    }

    async fn release(self) {
        match self {
            Self::Sqlite(connection) => connection.execute_batch("rollback").unwrap(),
            Self::Postgres(client) => client.batch_execute("rollback").await.unwrap(),
        }
    }
}

/// The guilty command comes in a batch with others.
async fn only_the_guilty_one_is_refused(data: Data, refuse: &str) {
    let (code, said) = run(&["migrate", "--store", &data.store(), "--shards", "1"]).await;
    assert_eq!(code, 0, "{said}");
    match &data {
        Data::Sqlite(path) => rusqlite::Connection::open(path).unwrap().execute_batch(refuse).unwrap(),
        Data::Postgres(dsn) => direct(dsn).await.batch_execute(refuse).await.unwrap(),
    }
    let server = Server::start(&data.store()).await;
    server.is_ready().await;
    let client = server.client();
    let hold = Hold::take(&data).await;
    let starts = join_all((0..COMMANDS).map(|number| {
        let mut client = client.clone();
        async move { ask(&mut client, &format!("run-{number}"), Step::Start, "request").await }
    }));
    let released = async {
        // Sent behind them on the same connection: when it is answered, they have arrived.
        let unknown = GetRunRequest { run_id: "unknown".to_owned() };
        assert_eq!(client.clone().get_run(unknown).await.unwrap_err().code(), Code::NotFound);
        hold.release().await;
    };
    let (answers, ()) = tokio::join!(biased; starts, released);

    for (number, answer) in answers.into_iter().enumerate() {
        let run_id = format!("run-{number}");
        match answer {
            Err(status) => {
                assert_eq!((status.code(), reason(&status).as_str()), (Code::Internal, "STORE_REFUSED"), "{run_id}");
                assert_eq!(run_id, GUILTY, "an innocent one");
                assert!(!status.message().contains("refused by the test"), "causes are for the log: {status:?}");
            }
            Ok(answer) => {
                assert_ne!(run_id, GUILTY);
                assert_eq!(answer, (Disposition::Applied, 1, 1), "{run_id}");
            }
        }
    }
    let contents = data.sound().await;
    assert_eq!(contents.events.len(), COMMANDS - 1);
    assert_eq!(contents.run(GUILTY), None);
    let commits: usize =
        data.sql("select count(distinct commit_id) from run_events").await[0][0].as_ref().unwrap().parse().unwrap();
    assert!(commits < COMMANDS / 2, "they came in batches: {commits} commits");
    let said = server.process.said();
    let log = said.lines().find(|line| line.contains("the store refused a statement")).unwrap_or_default();
    assert!(log.contains("refused"), "the log says why: {said}");
    assert!(log.contains(&format!("run_id=\"{GUILTY}\"")), "the log names the run: {said}");
    assert!(!log.contains("Failing row"), "the log shows no row: {said}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_command_that_sqlite_refuses_leaves_its_49_neighbours_applied() {
    let directory = TempDir::new().unwrap();
    let trigger = format!(
        "create trigger refuse before insert on runs when new.run_id = '{GUILTY}'
          begin select raise(abort, 'refused by the test'); end"
    );
    only_the_guilty_one_is_refused(Data::Sqlite(directory.path().join("ledger.db")), &trigger).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_command_that_postgres_refuses_leaves_its_49_neighbours_applied() {
    let database = Database::fresh().await;
    let constraint = format!("alter table runs add constraint refused_by_the_test check (run_id <> '{GUILTY}')");
    only_the_guilty_one_is_refused(Data::Postgres(database.dsn()), &constraint).await;
}

//! A command that the store refuses does not take its neighbours with it.

use futures_util::future::join_all;
use runledger_proto::v1::{
    CheckTransitionRequest, Disposition, GetRunRequest, ListRunEventsRequest, RunStatus, WatchRunRequest,
};
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
    let server = Server::start(&data.store()).await;
    server.is_ready().await;
    match &data {
        Data::Sqlite(path) => rusqlite::Connection::open(path).unwrap().execute_batch(refuse).unwrap(),
        Data::Postgres(dsn) => direct(dsn).await.batch_execute(refuse).await.unwrap(),
    }
    let client = server.client();
    let hold = Hold::take(&data).await;
    let starts = join_all((0..COMMANDS).map(|number| {
        let mut client = client.clone();
        async move { ask(&mut client, &format!("run-{number}"), Step::Start, "request").await }
    }));
    let released = async {
        // Sent behind them on the same connection: when it is answered, they have arrived.
        let unknown = GetRunRequest { run_id: "unknown".to_owned(), ..GetRunRequest::default() };
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
    server.process.says(&format!("run_id=\"{GUILTY}\"")).await;
    let said = server.process.said();
    let log = said.lines().find(|line| line.contains("the store refused a statement")).unwrap_or_default();
    assert!(log.contains("refused"), "the log says why: {said}");
    assert!(log.contains(&format!("run_id=\"{GUILTY}\"")), "the log names the run: {said}");
    assert!(!log.contains("Failing row"), "the log shows no row: {said}");
}

/// Each call that meets a record that cannot be read says so in the log once: which call, which run, where it is.
async fn what_cannot_be_read_is_named(data: Data) {
    let server = Server::start(&data.store()).await;
    server.is_ready().await;
    let mut client = server.client();
    ask(&mut client, "spoilt", Step::Start, "request").await.unwrap();
    // JSON, so that the column takes it, and no run.
    let spoilt = "update runs set record = '[]' where run_id = 'spoilt' returning run_id";
    assert_eq!(data.sql(spoilt).await, [[Some("spoilt".to_owned())]]);
    let run_id = "spoilt".to_owned();
    let get = client.get_run(GetRunRequest { run_id: run_id.clone(), ..GetRunRequest::default() }).await.map(drop);
    let to = RunStatus::Completed.into();
    let check = CheckTransitionRequest { run_id: run_id.clone(), to, from: None, to_phase: String::new() };
    let check = client.check_transition(check).await.map(drop);
    let history = ListRunEventsRequest { run_id: run_id.clone(), ..ListRunEventsRequest::default() };
    let history = client.list_run_events(history).await.map(drop);
    let watch = client.watch_run(WatchRunRequest { run_id, after_revision: None, ledger_epoch: None }).await.map(drop);
    for (rpc, answer) in [("GetRun", get), ("CheckTransition", check), ("ListRunEvents", history), ("WatchRun", watch)]
    {
        let status = answer.unwrap_err();
        assert_eq!((status.code(), reason(&status).as_str()), (Code::Internal, "STORE_CORRUPT"), "{rpc}");
        server.process.says(&format!("rpc=\"{rpc}\"")).await;
        let said = server.process.said();
        let lines: Vec<_> = said.lines().filter(|line| line.contains(&format!("rpc=\"{rpc}\""))).collect();
        assert_eq!(lines.len(), 1, "{rpc}: {said}");
        for word in ["ERROR", "namespace=\"default\"", "run_id=\"spoilt\"", "runs.record"] {
            assert!(lines[0].contains(word), "{rpc} names {word}: {}", lines[0]);
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_record_that_cannot_be_read_from_sqlite_is_named_in_the_log() {
    let directory = TempDir::new().unwrap();
    what_cannot_be_read_is_named(Data::Sqlite(directory.path().join("ledger.db"))).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_record_that_cannot_be_read_from_postgres_is_named_in_the_log() {
    let database = Database::fresh().await;
    what_cannot_be_read_is_named(Data::Postgres(database.dsn())).await;
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

//! A client of several servers goes on with the next where one does not serve.

use std::pin::pin;

use futures_util::StreamExt as _;
use runledger_client::{Client, Kind, News, RunsWatch, follow};
use runledger_proto::v1::watch_runs_response::Frame;
use runledger_proto::v1::{GetRunRequest, StartRunRequest, UpdateRunRequest, WatchRunsRequest};
use tokio::time::{Instant, timeout};

use crate::support::postgres::Database;
use crate::support::server::{PATIENCE, Server};

fn soon() -> Instant {
    Instant::now() + PATIENCE
}

fn get() -> GetRunRequest {
    GetRunRequest { run_id: "run-1".to_owned(), ..GetRunRequest::default() }
}

async fn two() -> (Database, Server, Server, String) {
    let database = Database::fresh().await;
    let (one, other) = (Server::start(&database.dsn()).await, Server::start(&database.dsn()).await);
    let both = format!("{},{}", one.address(), other.address());
    let start = StartRunRequest {
        task_thread_id: "thread-1".to_owned(),
        run_id: "run-1".to_owned(),
        ..StartRunRequest::default()
    };
    one.client().await.start_run(start).await.unwrap();
    (database, one, other, both)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn calls_go_on_at_the_next_server_where_one_is_gone() {
    let (_database, one, other, both) = two().await;
    let mut client = Client::new(&both, None).unwrap();
    client.ask(&get(), soon()).await.unwrap();
    one.kill();
    // The call that is lost with its server may have been applied: it is not silently made again.
    let _cut = client.ask(&get(), soon()).await;
    client.ask(&get(), soon()).await.unwrap();
    other.kill();
    let _cut = client.ask(&get(), soon()).await;
    let failure = client.ask(&get(), soon()).await.unwrap_err();
    assert_eq!(failure.kind, Kind::Unreachable, "{failure}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_never_was_there_costs_no_call() {
    let (_database, one, _other, _) = two().await;
    let mut client = Client::new(&format!("127.0.0.1:1,{}", one.address()), None).unwrap();
    client.ask(&get(), soon()).await.unwrap();
    let labels = [("a".to_owned(), "b".to_owned())].into();
    let update = UpdateRunRequest { run_id: "run-1".to_owned(), labels, ..UpdateRunRequest::default() };
    client.ask(&update, soon()).await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_watch_goes_on_at_the_next_server_and_misses_nothing() {
    let (_database, one, other, both) = two().await;
    let client = Client::new(&both, None).unwrap();
    let mut news = pin!(follow(client, RunsWatch::new(WatchRunsRequest::default()), true));
    let mut one = Some(one);
    let mut revisions = Vec::new();
    while revisions.last() != Some(&4) {
        let told = timeout(PATIENCE, news.next()).await.unwrap().unwrap().unwrap();
        let News::Frame(frame) = told else { continue };
        match frame.frame.unwrap() {
            Frame::CaughtUp(_) => {
                one.take().unwrap().kill();
                for step in ["b", "c", "d"] {
                    let labels = [("step".to_owned(), step.to_owned())].into();
                    let update = UpdateRunRequest { run_id: "run-1".to_owned(), labels, ..UpdateRunRequest::default() };
                    other.client().await.update_run(update).await.unwrap();
                }
            }
            Frame::Change(change) => revisions.push(change.run.unwrap().revision),
            Frame::Snapshot(_) | Frame::Checkpoint(_) => {}
        }
    }
    assert_eq!(revisions, [2, 3, 4]);
}

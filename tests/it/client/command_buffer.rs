//! The buffer that sends commands together.

use std::time::Duration;

use futures_util::future::join_all;
use runledger_client::{Client, CommandBuffer, Kind};
use runledger_proto::v1::run_command::Command;
use runledger_proto::v1::{CompleteRunRequest, Disposition, RunCommand, StartRunRequest, UpdateRunRequest};
use serde_json::json;

use crate::support::server::{PATIENCE, Server};

/// The commands of a run's life, each with an id of its own.
fn life(run_id: &str) -> [RunCommand; 3] {
    let run_id = || run_id.to_owned();
    let metadata = json!({"step": 1}).as_object().map(runledger_proto::json::structure);
    [
        Command::Start(StartRunRequest {
            run_id: run_id(),
            task_thread_id: "thread-1".to_owned(),
            request_id: "start".to_owned(),
            ..StartRunRequest::default()
        }),
        Command::Update(UpdateRunRequest {
            run_id: run_id(),
            metadata,
            request_id: "update".to_owned(),
            ..UpdateRunRequest::default()
        }),
        Command::Complete(CompleteRunRequest {
            run_id: run_id(),
            request_id: "complete".to_owned(),
            ..CompleteRunRequest::default()
        }),
    ]
    .map(|command| RunCommand { command: Some(command) })
}

#[tokio::test]
async fn a_buffer_keeps_the_order_of_each_run_and_answers_every_command() {
    let server = Server::start("memory").await;
    let client = Client::new(server.address(), None).unwrap();
    let (buffer, sends) = CommandBuffer::new(client, PATIENCE);
    let lives: Vec<_> = (0..700)
        .map(|n| {
            let buffer = buffer.clone();
            async move {
                let mut queued = Vec::new();
                for command in life(&format!("run-{n}")) {
                    queued.push(buffer.queue(command).await);
                }
                for (revision, queued) in (1..).zip(queued) {
                    let result = queued.result().await.unwrap();
                    assert_eq!((result.disposition(), result.revision), (Disposition::Applied, revision), "{result:?}");
                }
            }
        })
        .collect();
    let all = async move {
        join_all(lives).await;
        let again = life("run-0").map(|command| buffer.apply(command));
        assert!(join_all(again).await.iter().all(|it| it.as_ref().unwrap().disposition() == Disposition::Replayed));
        drop(buffer);
    };
    tokio::join!(all, sends);
}

#[tokio::test]
async fn what_a_call_without_an_answer_was_to_do_is_told_to_each_who_queued_it() {
    let server = Server::start("memory").await;
    let address = server.address().to_owned();
    server.kill();
    let (buffer, sends) = CommandBuffer::new(Client::new(&address, None).unwrap(), Duration::from_millis(300));
    let asked = async move {
        let results = join_all(life("run-1").map(|command| buffer.apply(command))).await;
        assert!(results.iter().all(|result| result.as_ref().unwrap_err().kind == Kind::Unreachable), "{results:?}");
    };
    tokio::join!(asked, sends);
}

#[tokio::test]
async fn a_command_whose_buffer_sends_no_more_is_not_waited_for() {
    let server = Server::start("memory").await;
    let (buffer, sends) = CommandBuffer::new(Client::new(server.address(), None).unwrap(), PATIENCE);
    drop(sends);
    let [start, ..] = life("run-1");
    assert_eq!(buffer.apply(start).await.unwrap_err().kind, Kind::Cut);
}

#[tokio::test]
async fn what_wrote_nothing_while_the_store_was_held_up_is_sent_again_in_its_order() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("ledger.db");
    let server = Server::start(&format!("sqlite:{}", path.display())).await;
    let holder = rusqlite::Connection::open(&path).unwrap();
    holder.execute_batch("begin immediate").unwrap();
    let (buffer, sends) = CommandBuffer::new(Client::new(server.address(), None).unwrap(), PATIENCE);
    let asked = async move {
        let results = join_all(life("run-1").map(|command| buffer.apply(command))).await;
        for (revision, result) in (1..).zip(results) {
            let result = result.unwrap();
            assert_eq!((result.disposition(), result.revision), (Disposition::Applied, revision), "{result:?}");
        }
    };
    let released = async {
        while !server.log().contains("commit failed") {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        holder.execute_batch("rollback").unwrap();
    };
    tokio::join!(asked, sends, released);
}

//! A call whose answer is lost on its way.

use runledger_client::{Client, Kind};
use runledger_proto::v1::{ClaimNextRunRequest, HeartbeatRunRequest, Progress, Run};
use serde_json::json;
use tokio::time::Instant;

use super::{pending, run};
use crate::support::lossy::{is, is_running, lossy};
use crate::support::server::{PATIENCE, Server};

fn soon() -> Instant {
    Instant::now() + PATIENCE
}

fn claim(request_id: &str) -> ClaimNextRunRequest {
    let lease_ttl = Some(prost_types::Duration { seconds: 60, nanos: 0 });
    ClaimNextRunRequest { lease_ttl, request_id: request_id.to_owned(), ..ClaimNextRunRequest::default() }
}

/// The run was granted by its first claim; or by the second one of the same call, where the server has seen that the connection
/// was cut before the first was answered, and has given it back.
async fn assert_held(server: &Server, granted: Option<Run>) {
    let granted = granted.expect("a run was claimed");
    assert_eq!(granted.run_id, "run-1");
    let epoch = granted.lease.expect("it has a lease").epoch;
    assert_eq!(epoch, run(server, "run-1").await.lease.unwrap().epoch);
    // The claim that was given back took one, and its end the next.
    assert!([1, 3].contains(&epoch), "{epoch}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_claim_with_a_request_id_is_sent_again_until_it_is_answered() {
    let server = Server::start("memory").await;
    pending(&server, "run-1", json!({})).await;
    let (address, _task) = lossy(server.address(), is_running(&server, "run-1")).await;
    let answer = Client::new(&address, None).unwrap().ask(&claim("claim-1"), soon()).await.unwrap();
    assert_held(&server, answer.run).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_caller_with_a_pace_of_its_own_is_told_of_a_claim_whose_answer_was_lost() {
    let server = Server::start("memory").await;
    pending(&server, "run-1", json!({})).await;
    let (address, _task) = lossy(server.address(), is_running(&server, "run-1")).await;
    let mut client = Client::new(&address, None).unwrap();
    let failure = client.attempt(&claim("claim-1"), soon()).await.unwrap_err();
    assert!(failure.kind == Kind::Cut && failure.is_open(), "{failure:?}");
    let answer = client.attempt(&claim("claim-1"), soon()).await.unwrap();
    assert_held(&server, answer.run).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_claim_without_a_request_id_and_a_heartbeat_are_not_sent_again() {
    let server = Server::start("memory").await;
    pending(&server, "run-1", json!({})).await;
    let (address, _task) = lossy(server.address(), is_running(&server, "run-1")).await;
    let failure = Client::new(&address, None).unwrap().ask(&claim(""), soon()).await.unwrap_err();
    assert_eq!(failure.kind, Kind::Cut);
    let heard = |run: Run| run.progress.is_some();
    let (address, _task) = lossy(server.address(), is(&server, "run-1", heard)).await;
    let progress = Some(Progress { message: "half".to_owned(), ..Progress::default() });
    let beat = HeartbeatRunRequest { run_id: "run-1".to_owned(), lease_epoch: 1, progress };
    let failure = Client::new(&address, None).unwrap().ask(&beat, soon()).await.unwrap_err();
    assert_eq!(failure.kind, Kind::Cut);
    assert!(run(&server, "run-1").await.lease.is_some(), "the heartbeat was heard");
}

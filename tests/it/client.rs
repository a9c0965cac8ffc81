//! The client crate against the real server: a worker's loop, several servers, TLS and tokens, and the example that its
//! README shows.

mod command_buffer;
mod fail_over;
mod failure;
mod goaway;
mod lost_answers;
mod tls;
mod token;
mod worker;

use runledger_proto::v1::{GetRunRequest, Run, StartRunRequest};

use crate::support::server::Server;

/// The example of the crate's README.
#[expect(dead_code, clippy::print_stderr, reason = "its main is not run here")]
#[path = "../../crates/runledger-client/examples/worker.rs"]
mod example;

/// A pending run, that a worker may claim.
async fn pending(server: &Server, run_id: &str, metadata: serde_json::Value) {
    let request = StartRunRequest {
        task_thread_id: "thread-1".to_owned(),
        run_id: run_id.to_owned(),
        deferred: true,
        metadata: metadata.as_object().map(runledger_proto::json::structure),
        ..StartRunRequest::default()
    };
    server.client().await.start_run(request).await.unwrap();
}

async fn run(server: &Server, run_id: &str) -> Run {
    let request = GetRunRequest { run_id: run_id.to_owned(), ..GetRunRequest::default() };
    server.client().await.get_run(request).await.unwrap().into_inner().run.unwrap()
}

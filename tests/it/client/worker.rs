//! A worker's loop as a library.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use runledger_client::worker::{Cancellation, Claiming, Job, Options, Outcome, Started, Worker};
use runledger_client::{Client, Failure};
use runledger_proto::v1::{RequestAbortRequest, RunStatus, StartRunRequest};
use serde_json::json;
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

use super::{example, pending, run};
use crate::support::lossy::{counted, is_running, lossy_from};
use crate::support::server::Server;

fn worker(server: &Server, options: Options) -> Worker {
    Worker::new(Client::new(server.address(), Some("agent-1")).unwrap(), options)
}

/// A lease of a worker that is to live, on however busy a machine.
fn living() -> Options {
    Options { lease_ttl: Duration::from_secs(9), ..Options::default() }
}

async fn started(worker: &mut Worker) -> runledger_client::worker::Held {
    let request = StartRunRequest {
        task_thread_id: "thread-1".to_owned(),
        run_id: "run-1".to_owned(),
        ..StartRunRequest::default()
    };
    let Started::Held(held) = worker.start(request).await.unwrap() else { panic!("it was running") };
    held
}

async fn asked_to_abort(server: &Server) {
    let request = RequestAbortRequest {
        run_id: "run-1".to_owned(),
        reason: "enough".to_owned(),
        ..RequestAbortRequest::default()
    };
    server.client().await.request_abort(request).await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_worker_claims_each_run_once_and_ends_it_as_its_work_ends() {
    let server = Server::start("memory").await;
    for run_id in ["run-1", "run-2", "run-3"] {
        pending(&server, run_id, json!({"fails": run_id == "run-2"})).await;
    }
    let claiming = Claiming { idle: Some(Duration::ZERO), ..Claiming::default() };
    let mut seen = Vec::new();
    let work = |job: Job| {
        seen.push(job.run().run_id.clone());
        async move {
            let fails = job.run().run_id == "run-2";
            if fails {
                return Outcome::Failed { reason: "x".repeat(10_000), code: "BAD".to_owned() };
            }
            let made = json!({"made": true});
            Outcome::Completed(made.as_object().map(runledger_proto::json::structure))
        }
    };
    worker(&server, living()).run(&claiming, &CancellationToken::new(), work).await.unwrap();
    assert_eq!(seen, ["run-1", "run-2", "run-3"]);
    let failed = run(&server, "run-2").await;
    assert_eq!((failed.status(), failed.failure_reason.len(), &*failed.reason_code), (RunStatus::Failed, 4096, "BAD"));
    let completed = run(&server, "run-3").await;
    assert_eq!((completed.status(), completed.agent_id.as_str()), (RunStatus::Completed, "agent-1"));
    assert!(completed.metadata.unwrap().fields.contains_key("made"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_run_that_is_claimed_with_the_report_of_the_one_before_is_claimed_once_where_the_answer_is_lost() {
    let server = Server::start("memory").await;
    let mut wanted = ["run-1", "run-2", "run-3"];
    for run_id in wanted {
        pending(&server, run_id, json!({})).await;
    }
    let (begun, claimed) = (Arc::new(Notify::new()), CancellationToken::new());
    // No answer comes from the first report until the next run is claimed: so it is the report that claims it.
    let (running, told) = (is_running(&server, "run-2"), claimed.clone());
    let came = async move {
        running.await;
        told.cancel();
    };
    let (address, _task) = lossy_from(server.address(), begun.clone().notified_owned(), came).await;
    let mut worker = Worker::new(Client::new(&address, Some("agent-1")).unwrap(), living());
    let claiming = Claiming { idle: Some(Duration::ZERO), ..Claiming::default() };
    let mut seen = Vec::new();
    let work = |job: Job| {
        seen.push(job.run().run_id.clone());
        begun.notify_one();
        async { Outcome::Completed(None) }
    };
    worker.run(&claiming, &CancellationToken::new(), work).await.unwrap();
    assert!(claimed.is_cancelled(), "the report claimed no run");
    for run_id in &seen {
        assert_eq!(run(&server, run_id).await.status(), RunStatus::Completed);
    }
    // A run whose claimer's connection was cut may come again behind the others.
    seen.sort_unstable();
    wanted.sort_unstable();
    assert_eq!(seen, wanted);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_worker_whose_server_has_gone_goes_on_at_another_one_for_good() {
    let server = Server::start("memory").await;
    for nth in 0..20 {
        pending(&server, &format!("run-{nth:02}"), json!({})).await;
    }
    let (first, _, task) = counted(server.address()).await;
    let (second, connections, _task) = counted(server.address()).await;
    let mut worker = Worker::new(Client::new(&format!("{first},{second}"), Some("agent-1")).unwrap(), living());
    let claiming = Claiming { idle: Some(Duration::ZERO), ..Claiming::default() };
    let (mut done, mut way) = (0, Some(task));
    let work = |_job| {
        drop(way.take());
        done += 1;
        async { Outcome::Completed(None) }
    };
    worker.run(&claiming, &CancellationToken::new(), work).await.unwrap();
    // The first run's heartbeats may have had to find the other server themselves.
    assert!(done == 20 && connections.load(Ordering::Relaxed) <= 2, "{done} runs, {connections:?} connections");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_run_that_was_claimed_with_a_report_while_the_stop_came_is_given_back() {
    let server = Server::start("memory").await;
    for run_id in ["run-1", "run-2"] {
        pending(&server, run_id, json!({})).await;
    }
    let (begun, stop) = (Arc::new(Notify::new()), CancellationToken::new());
    // The report is on its way when the stop comes, and is answered after it.
    let (running, stops) = (is_running(&server, "run-2"), stop.clone());
    let came = async move {
        running.await;
        stops.cancel();
    };
    let (address, _task) = lossy_from(server.address(), begun.clone().notified_owned(), came).await;
    let mut worker = Worker::new(Client::new(&address, Some("agent-1")).unwrap(), living());
    let mut seen = Vec::new();
    let work = |job: Job| {
        seen.push(job.run().run_id.clone());
        begun.notify_one();
        async { Outcome::Completed(None) }
    };
    worker.run(&Claiming::default(), &stop, work).await.unwrap();
    assert_eq!(seen, ["run-1"]);
    assert_eq!(run(&server, "run-1").await.status(), RunStatus::Completed);
    let waits = run(&server, "run-2").await;
    assert!(waits.lease.is_none() || waits.ready.is_some(), "it waits for the next claim: {waits:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn work_is_told_of_a_request_to_abort_its_run_and_ends_it_so() {
    let server = Server::start("memory").await;
    let mut worker = worker(&server, Options { lease_ttl: Duration::from_secs(3), ..Options::default() });
    let held = started(&mut worker).await;
    asked_to_abort(&server).await;
    let work = |job: Job| async move {
        let Cancellation::AbortRequested { reason, left: None } = job.cancelled().await else { panic!("it was lost") };
        Outcome::abort_requested(reason)
    };
    worker.work(held, work).await.unwrap();
    let ended = run(&server, "run-1").await;
    assert_eq!((ended.status(), ended.failure_reason.as_str()), (RunStatus::Aborted, "enough"));
    assert_eq!(ended.reason_code, "ABORT_REQUESTED");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn work_that_does_not_listen_is_dropped_when_its_grace_is_over() {
    let server = Server::start("memory").await;
    let options =
        Options { lease_ttl: Duration::from_secs(3), cancel_grace: Duration::from_millis(10), ..Options::default() };
    let mut worker = worker(&server, options);
    let held = started(&mut worker).await;
    asked_to_abort(&server).await;
    worker.work(held, |_job| std::future::pending()).await.unwrap();
    assert_eq!(run(&server, "run-1").await.status(), RunStatus::Aborted);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stop_waits_for_the_work_in_hand_and_takes_no_more() {
    let server = Server::start("memory").await;
    for run_id in ["run-1", "run-2"] {
        pending(&server, run_id, json!({})).await;
    }
    let (stop, begun) = (CancellationToken::new(), Arc::new(Notify::new()));
    let mut worker = worker(&server, living());
    let stopped = async {
        begun.notified().await;
        stop.cancel();
    };
    let work = |job: Job| {
        let (begun, stop) = (begun.clone(), stop.clone());
        async move {
            begun.notify_one();
            stop.cancelled().await;
            job.progress(1, 1, "done");
            Outcome::Completed(None)
        }
    };
    let claiming = Claiming::default();
    let (ended, ()) = tokio::join!(worker.run(&claiming, &stop, work), stopped);
    let ended: Result<(), Failure> = ended;
    ended.unwrap();
    assert_eq!(run(&server, "run-1").await.status(), RunStatus::Completed);
    assert_eq!(run(&server, "run-2").await.status(), RunStatus::Pending);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_worker_that_waits_ends_at_its_stop_and_leaves_no_claim_behind() {
    let server = Server::start("memory").await;
    let stop = CancellationToken::new();
    let mut worker = worker(&server, living());
    let claiming = Claiming::default();
    let waiting = worker.claim(&claiming, &stop);
    let stopped = async {
        tokio::task::yield_now().await;
        stop.cancel();
    };
    let (claimed, ()) = tokio::join!(waiting, stopped);
    assert_eq!(claimed.unwrap(), None);
    pending(&server, "run-1", json!({})).await;
    assert_eq!(run(&server, "run-1").await.status(), RunStatus::Pending);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stop_that_came_with_an_answer_hands_no_run_out() {
    let server = Server::start("memory").await;
    for n in 0..30 {
        let run_id = format!("run-{n}");
        pending(&server, &run_id, json!({})).await;
        let stop = CancellationToken::new();
        let mut worker = worker(&server, living());
        let claiming = Claiming::default();
        let stopped = async {
            while run(&server, &run_id).await.status() == RunStatus::Pending {}
            stop.cancel();
        };
        let (granted, ()) = tokio::join!(worker.claim(&claiming, &stop), stopped);
        let granted = granted.unwrap();
        if let Some(held) = granted {
            assert_eq!(held.run.run_id, run_id);
        } else {
            let given_back = run(&server, &run_id).await;
            assert!(given_back.status() == RunStatus::Pending || given_back.ready.is_some(), "{given_back:?}");
        }
        let end = runledger_proto::v1::AbortRunRequest { run_id, ..Default::default() };
        server.client().await.abort_run(end).await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_example_of_the_readme_does_what_it_shows() {
    let readme = include_str!("../../../crates/runledger-client/README.md");
    let code = include_str!("../../../crates/runledger-client/examples/worker.rs");
    let (_, code) = code.split_once("\n\n").unwrap();
    assert!(readme.contains(code), "README shows another example");

    let server = Server::start("memory").await;
    pending(&server, "run-1", json!({"words": ["a", "bb", "ü"]})).await;
    pending(&server, "run-2", json!({})).await;
    let stop = CancellationToken::new();
    let ended = async {
        let wait = runledger_proto::v1::WaitRunRequest { run_id: "run-2".to_owned(), ..Default::default() };
        server.client().await.wait_run(wait).await.unwrap();
        stop.cancel();
    };
    let (counted, ()) = tokio::join!(example::count_words(server.address(), &stop), ended);
    counted.unwrap();
    let completed = run(&server, "run-1").await;
    assert_eq!(completed.status(), RunStatus::Completed);
    let metadata = runledger_proto::json::map(&completed.metadata.unwrap());
    assert_eq!(metadata["letters"].as_f64(), Some(4.0));
    assert_eq!(run(&server, "run-2").await.reason_code, "NO_WORDS");
}

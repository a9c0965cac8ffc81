//! Callers that share a replica: the limits that an operator sets, and memory that runs short, on the real binary.

use std::time::Duration;

use runledger_proto::v1::{CompleteRunRequest, GetRunRequest, StartRunRequest, WaitRunRequest, WatchRunsRequest};
use tokio::task::JoinSet;
use tonic::{Code, Status};
use tonic_types::StatusExt as _;

use super::calls::{Step, ask, reason};
use super::replica::replica;
use super::server::{SOON, Server, eventually};

async fn serve(args: &[&str]) -> Server {
    let server = Server::start_with(&[&["--store", "memory"], args].concat()).await;
    server.is_ready().await;
    server
}

/// Checks that a call was refused for a limit, and says after which time it may come again.
fn retry_after(status: &Status, limit: &str) -> Duration {
    assert_eq!((status.code(), reason(status).as_str()), (Code::ResourceExhausted, "OVERLOADED"), "{status:?}");
    let details = status.get_error_details();
    let told = details.error_info().and_then(|info| info.metadata.get("limit").cloned());
    assert_eq!(told.as_deref(), Some(limit));
    details.retry_info().and_then(|retry| retry.retry_delay).expect("the time to wait")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_caller_that_calls_too_often_is_told_when_to_come_back_and_wrote_nothing() {
    let server = serve(&["--caller-calls-per-second", "20"]).await;
    let (mut greedy, mut honest) = (server.hasty(), server.hasty());
    let mut starts = JoinSet::new();
    for nth in 0..200 {
        let (mut greedy, run_id) = (greedy.clone(), format!("run-{nth}"));
        let asked =
            StartRunRequest { run_id: run_id.clone(), task_thread_id: "t".into(), ..StartRunRequest::default() };
        starts.spawn(async move { (run_id, greedy.start_run(asked).await) });
    }
    let started = starts.join_all().await;
    let mut refused = started.into_iter().filter_map(|(run_id, answer)| Some((run_id, answer.err()?)));
    let (run_id, status) = refused.next().expect("20 a second were let in");
    let wait = retry_after(&status, "calls_per_second");
    assert!(wait <= Duration::from_secs(1), "{wait:?}");
    let asked = GetRunRequest { run_id, ..GetRunRequest::default() };
    assert_eq!(honest.get_run(asked).await.unwrap_err().code(), Code::NotFound, "another caller is not held up");
    tokio::time::sleep(wait + Duration::from_millis(50)).await;
    ask(&mut greedy, "after", Step::Start, "").await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_caller_has_no_more_calls_open_than_it_may() {
    let server = serve(&["--caller-open-calls", "3"]).await;
    let (mut greedy, mut honest) = (server.hasty(), server.hasty());
    ask(&mut honest, "run-1", Step::Start, "").await.unwrap();
    let wait = || WaitRunRequest { run_id: "run-1".into(), timeout: Some(SOON.try_into().unwrap()), until: 0 };
    let mut waits = JoinSet::new();
    for _ in 0..3 {
        let mut client = greedy.clone();
        waits.spawn(async move { client.wait_run(wait()).await });
    }
    let open = eventually(SOON, async || (replica(&server).await.watches_of_one_run == 3).then_some(()));
    open.await.expect("three wait");
    let another = WaitRunRequest { timeout: Some(Duration::ZERO.try_into().unwrap()), ..wait() };
    let refused = greedy.wait_run(another).await.expect_err("three are open");
    retry_after(&refused, "open_calls");
    ask(&mut honest, "run-1", Step::Complete, "").await.unwrap();
    while let Some(waited) = waits.join_next().await {
        assert!(!waited.unwrap().unwrap().into_inner().timed_out);
    }
    ask(&mut greedy, "run-2", Step::Start, "").await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn where_memory_is_short_new_watches_and_writes_are_refused_and_what_ends_work_is_not() {
    let plain = serve(&[]).await;
    ask(&mut plain.hasty(), "run-1", Step::Start, "").await.unwrap();
    let taken = replica(&plain).await.resident_bytes;
    if taken == 0 {
        return; // The system does not tell.
    }
    // Less than any server takes: memory is short from the first look on.
    let server = serve(&["--memory-limit", &(taken / 2).to_string()]).await;
    let mut client = server.hasty();
    let watch = eventually(SOON, async || client.watch_runs(WatchRunsRequest::default()).await.err());
    let wait = retry_after(&watch.await.expect("it is refused"), "memory");
    assert!((Duration::from_millis(500)..Duration::from_secs(5)).contains(&wait), "{wait:?}");
    let start = StartRunRequest { run_id: "run-1".into(), task_thread_id: "t".into(), ..StartRunRequest::default() };
    retry_after(&client.start_run(start).await.unwrap_err(), "memory");
    let read = GetRunRequest { run_id: "run-1".into(), ..GetRunRequest::default() };
    assert_eq!(client.get_run(read).await.unwrap_err().code(), Code::NotFound, "reads go on, and nothing was written");
    let end = CompleteRunRequest { run_id: "run-1".into(), ..CompleteRunRequest::default() };
    assert_eq!(client.complete_run(end).await.unwrap_err().code(), Code::NotFound, "what ends a run is taken");
    let told = replica(&server).await;
    assert!(told.resident_bytes * 100 > told.memory_limit_bytes * 92, "{told:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_parts_of_a_replicas_memory_add_up_to_what_the_process_takes() {
    let server = serve(&[]).await;
    let clients: Vec<_> = (0..4).map(|_| server.hasty()).collect();
    for nth in 0..50 {
        let run_id = format!("run-{nth}");
        ask(&mut clients[0].clone(), &run_id, Step::Start, "").await.unwrap();
        ask(&mut clients[0].clone(), &run_id, Step::Bulk, "").await.unwrap();
    }
    let mut waits = JoinSet::new();
    for nth in 0..2_000 {
        let mut client = clients[nth % 4].clone();
        let timeout = Some(SOON.try_into().unwrap());
        let asked = WaitRunRequest { run_id: format!("run-{}", nth % 50), timeout, until: 0 };
        waits.spawn(async move { client.wait_run(asked).await });
    }
    let open = eventually(SOON, async || {
        let told = replica(&server).await;
        (told.watches_of_one_run == 2_000).then_some(told)
    });
    let told = open.await.expect("2,000 wait");
    let part = |name: &str| told.memory.iter().find(|part| part.name == name).map_or(0, |part| part.bytes);
    assert!(part("open_calls") > 2_000 * 4096, "{:?}", told.memory);
    assert!(part("watches") < 2_000 * 1024, "no wait keeps a run of 60 KB: {:?}", told.memory);
    assert!(part("not_counted") * 4 <= told.resident_bytes, "{:?}", told.memory);
    let parts: u64 = told.memory.iter().map(|part| part.bytes).sum();
    let resident = told.resident_bytes;
    assert!(parts.abs_diff(resident) * 5 <= resident, "{parts} and {resident}: {:?}", told.memory);
    drop(waits);
}

//! Runs that wait without a process, on real servers: a worker that asks for help and ends, the server that is killed,
//! and the worker elsewhere that goes on.

use std::collections::BTreeSet;

use futures_util::future::join_all;
use prost_types::Duration;
use runledger_proto::v1::{
    ClaimNextRunRequest, ClaimTake, CompleteRunRequest, ResumeRunRequest, Run, RunFilter, RunStatus, StartRunRequest,
    SuspendRunRequest, WaitRunRequest, WaitUntil,
};
use tempfile::TempDir;
use tokio::task::JoinSet;
use tokio::time::timeout;

use super::data::Data;
use super::server::{Client, Process, SOON, Server, run};
use crate::support::postgres::Database;

/// Runs of three priorities, of which two replicas hand out each once: nearly three pages of a queue for each priority.
const RUNS: usize = 2_000;

fn labels(pool: &str) -> std::collections::HashMap<String, String> {
    [("pool".to_owned(), pool.to_owned())].into()
}

fn started(run_id: &str, pool: &str) -> StartRunRequest {
    let (run_id, task_thread_id) = (run_id.to_owned(), "thread".to_owned());
    StartRunRequest { run_id, task_thread_id, labels: labels(pool), ..StartRunRequest::default() }
}

fn next(pool: &str, take: ClaimTake) -> ClaimNextRunRequest {
    ClaimNextRunRequest {
        filter: Some(RunFilter { labels: labels(pool), ..RunFilter::default() }),
        lease_ttl: Some(Duration { seconds: 60, nanos: 0 }),
        take: take.into(),
        ..ClaimNextRunRequest::default()
    }
}

async fn claimed(client: &mut Client, asked: ClaimNextRunRequest) -> Option<Run> {
    client.claim_next_run(asked).await.unwrap().into_inner().run
}

async fn ready(data: &Data) -> Server {
    let server = Server::start(&data.store()).await;
    server.is_ready().await;
    server
}

/// Makes a run ready that had a lease.
async fn made_ready(client: &mut Client, run_id: &str, pool: &str) {
    let lease_ttl = Some(Duration { seconds: 60, nanos: 0 });
    client.start_run(StartRunRequest { lease_ttl, ..started(run_id, pool) }).await.unwrap();
    let (kind, reason) = ("HELP".to_owned(), "which account?".to_owned());
    let asked = SuspendRunRequest { run_id: run_id.to_owned(), kind, reason, ..SuspendRunRequest::default() };
    client.suspend_run(asked).await.unwrap();
    let (run_id, reason) = (run_id.to_owned(), "that one".to_owned());
    client.resume_run(ResumeRunRequest { run_id, reason, ..ResumeRunRequest::default() }).await.unwrap();
}

fn worker(server: &Server, flags: &[&str], script: &str) -> Process {
    let address = server.address.to_string();
    let mut args = vec!["run", "worker", "--server", &address];
    args.extend(flags);
    args.extend(["--", "bash", "-c", script]);
    Process::spawn_with(&args, &[("PATH", "/usr/local/bin:/usr/bin:/bin")])
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_run_whose_worker_asked_for_help_outlives_the_worker_and_its_server() {
    let database = Database::fresh().await;
    let data = Data::Postgres(database.dsn());
    let (mut here, there) = (ready(&data).await, ready(&data).await);
    let flags = ["--task-thread-id", "thread", "--run-id", "run-1", "--label", "pool=p"];
    let script = "echo '{\"half\": 1}' > $RUNLEDGER_RESULT; echo first >&2; echo 'which account?' >&2; exit 75";
    let (code, said) = worker(&here, &flags, script).exited(SOON).await;
    assert_eq!(code, 75, "{said}");
    assert!(said.contains("run run-1 is suspended: HELP: which account?"), "{said}");
    here.process.kill();

    let wait = WaitRunRequest { run_id: "run-1".to_owned(), until: WaitUntil::Suspended.into(), timeout: None };
    let waiting = there.client().wait_run(wait).await.unwrap().into_inner().run.unwrap();
    assert_eq!((waiting.status(), waiting.suspension.unwrap().lease_epoch), (RunStatus::Running, 1));
    assert!(waiting.result.is_some(), "what it came to is kept");
    let address = there.address.to_string();
    let server = ["--server", &address];
    let (code, said) = run(&[&["run", "resume", "run-1", "--reason", "account 7"], &server[..]].concat()).await;
    assert!(code == 0 && said.contains("the next claim that takes ready runs has it"), "{said}");
    let flags = ["--claim", "--resumable", "--label", "pool=p", "--runs", "1", "--idle", "10s"];
    let script = "echo left: $RUNLEDGER_SUSPENSION, epoch $RUNLEDGER_LEASE_EPOCH";
    let (code, said) = worker(&there, &flags, script).exited(SOON).await;
    assert_eq!(code, 0, "{said}");
    let left = r#"left: {"kind":"HELP","reason":"which account?","resumeReason":"account 7"}, epoch 2"#;
    assert!(said.contains(left), "{said}");
    let (code, said) = run(&["verify", "--store", &data.store()]).await;
    assert!(code == 0 && said.contains("SOUND"), "{said}");
    let contents = data.sound().await;
    assert_eq!(contents.runs.values().map(|run| run.status.name()).collect::<Vec<_>>(), ["completed"]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_program_that_leaves_its_run_to_be_taken_up_again_when_its_worker_is_told_to_end_loses_nothing() {
    let directory = TempDir::new().unwrap();
    let server = ready(&Data::Sqlite(directory.path().join("ledger.db"))).await;
    let script = "trap 'echo at page 3 >&2; exit 75' TERM; echo begun; while :; do sleep 0.05; done";
    let mut process = worker(&server, &["--task-thread-id", "thread", "--run-id", "run-1"], script);
    process.says("begun").await;
    process.signal("TERM");
    let (code, said) = process.exited(SOON).await;
    assert_eq!(code, 143, "{said}");
    let wait = WaitRunRequest { run_id: "run-1".to_owned(), until: WaitUntil::Suspended.into(), timeout: None };
    let waiting = server.client().wait_run(wait).await.unwrap().into_inner().run.unwrap();
    let suspension = waiting.suspension.expect("it is suspended");
    assert_eq!((suspension.kind.as_str(), suspension.reason.as_str()), ("INTERRUPTED", "at page 3"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_program_that_ends_with_0_after_it_suspended_its_run_has_not_completed_it() {
    let directory = TempDir::new().unwrap();
    let server = ready(&Data::Sqlite(directory.path().join("ledger.db"))).await;
    let suspends =
        concat!(env!("CARGO_BIN_EXE_runledger"), " run suspend run-1 --kind HELP --reason '?' --lease-epoch 1 --quiet");
    let (code, said) =
        worker(&server, &["--task-thread-id", "thread", "--run-id", "run-1"], suspends).exited(SOON).await;
    assert!(said.contains("run run-1 is suspended: HELP: ?"), "{code}: {said}");
    let wait = WaitRunRequest { run_id: "run-1".to_owned(), until: WaitUntil::Suspended.into(), timeout: None };
    let waiting = server.client().wait_run(wait).await.unwrap().into_inner().run.unwrap();
    assert!(waiting.suspension.is_some(), "{waiting:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_a_program_says_of_its_suspension_itself_is_not_said_anew_by_its_worker() {
    let directory = TempDir::new().unwrap();
    let server = ready(&Data::Sqlite(directory.path().join("ledger.db"))).await;
    let suspends = concat!(
        env!("CARGO_BIN_EXE_runledger"),
        " run suspend run-1 --kind FEEDBACK --reason look --resume-hint 'page 3' --lease-epoch 1 --quiet; exit 75"
    );
    let (code, said) =
        worker(&server, &["--task-thread-id", "thread", "--run-id", "run-1"], suspends).exited(SOON).await;
    assert!(code == 75 && said.contains("run run-1 is suspended: FEEDBACK: look"), "{code}: {said}");
    let wait = WaitRunRequest { run_id: "run-1".to_owned(), until: WaitUntil::Suspended.into(), timeout: None };
    let waiting = server.client().wait_run(wait).await.unwrap().into_inner().run.unwrap();
    let suspension = waiting.suspension.unwrap();
    assert_eq!((suspension.kind.as_str(), suspension.resume_hint.as_str()), ("FEEDBACK", "page 3"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_worker_whose_run_is_suspended_ends_its_program_and_reports_nothing() {
    let directory = TempDir::new().unwrap();
    let server = ready(&Data::Sqlite(directory.path().join("ledger.db"))).await;
    let flags = ["--task-thread-id", "thread", "--run-id", "run-1", "--lease-ttl", "3s"];
    let script = "trap 'exit 3' TERM; echo begun; while :; do sleep 0.05; done";
    let mut process = worker(&server, &flags, script);
    process.says("begun").await;
    let asked = SuspendRunRequest {
        run_id: "run-1".to_owned(),
        kind: "PAUSED".to_owned(),
        reason: "not now".to_owned(),
        ..SuspendRunRequest::default()
    };
    server.client().suspend_run(asked).await.unwrap();
    let (code, said) = process.exited(SOON).await;
    assert!(code == 3 && said.contains("run run-1 was suspended: PAUSED: not now"), "{code}: {said}");
    let wait = WaitRunRequest { run_id: "run-1".to_owned(), until: WaitUntil::Suspended.into(), timeout: None };
    let waiting = server.client().wait_run(wait).await.unwrap().into_inner().run.unwrap();
    assert_eq!((waiting.status(), waiting.revision), (RunStatus::Running, 2), "nothing else was said of it");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_50_claims_of_a_ready_run_after_the_death_of_the_replica_that_made_it_ready_one_is_granted() {
    let database = Database::fresh().await;
    let data = Data::Postgres(database.dsn());
    let (mut here, there) = (ready(&data).await, ready(&data).await);
    made_ready(&mut here.client(), "run-1", "p").await;
    here.process.kill();
    let claims = (0..50).map(|_| {
        let mut client = there.client();
        async move { claimed(&mut client, next("p", ClaimTake::Both)).await }
    });
    let granted: Vec<Run> = join_all(claims).await.into_iter().flatten().collect();
    assert_eq!(granted.len(), 1);
    assert_eq!(granted[0].lease.as_ref().unwrap().epoch, 2);
    data.sound().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_2000_runs_with_three_priorities_two_replicas_hand_out_each_once_and_the_higher_first() {
    let database = Database::fresh().await;
    let data = Data::Postgres(database.dsn());
    let servers = [ready(&data).await, ready(&data).await];
    let mut makers = JoinSet::new();
    for maker in 0..64 {
        let mut client = servers[maker % 2].client();
        makers.spawn(async move {
            for n in (maker..RUNS).step_by(64) {
                let priority = [-5, 0, 7][n % 3];
                let asked = StartRunRequest { deferred: true, priority, ..started(&format!("run-{n}"), "many") };
                client.start_run(asked).await.unwrap();
            }
        });
    }
    makers.join_all().await;
    let mut claimers = JoinSet::new();
    for claimer in 0..32 {
        let mut client = servers[claimer % 2].client();
        claimers.spawn(async move {
            let mut got = Vec::new();
            while let Some(run) = claimed(&mut client, next("many", ClaimTake::Pending)).await {
                let asked = CompleteRunRequest { run_id: run.run_id.clone(), lease_epoch: 1, ..Default::default() };
                client.complete_run(asked).await.unwrap();
                got.push(run.run_id);
            }
            got
        });
    }
    let got = timeout(SOON * 5, claimers.join_all()).await.expect("it hangs");
    let all: Vec<String> = got.into_iter().flatten().collect();
    assert_eq!((all.len(), all.iter().collect::<BTreeSet<_>>().len()), (RUNS, RUNS), "none is handed out twice");

    // On one replica, of those that were answered before, none before a higher one.
    let mut client = servers[0].client();
    let priorities = [0, 3, -2, 3, 100, 0, -100, 50, -2];
    for (n, priority) in priorities.into_iter().enumerate() {
        let asked = StartRunRequest { deferred: true, priority, ..started(&format!("few-{n}"), "few") };
        client.start_run(asked).await.unwrap();
    }
    let mut order = Vec::new();
    while let Some(run) = claimed(&mut client, next("few", ClaimTake::Pending)).await {
        order.push(run.priority);
    }
    let mut wanted = priorities.to_vec();
    wanted.sort_unstable_by(|one, other| other.cmp(one));
    assert_eq!(order, wanted);
}

//! Workers that look for work at the same time, on one replica and on two.

use std::collections::{BTreeSet, VecDeque};
use std::time::Duration;

use futures_util::poll;
use prost_types::Duration as WireDuration;
use runledger_proto::v1::{
    ClaimNextRunRequest, CompleteRunRequest, GetRunRequest, MaxRunning, Run, RunFilter, RunStatus, StartRunRequest,
};
use tempfile::TempDir;
use tokio::task::JoinSet;
use tokio::time::timeout;
use tonic::{Code, Request, Status};

use super::calls::reason;
use super::data::Data;
use super::server::{Client, SOON, Server};
use crate::support::postgres::{Database, direct};

const RUNS: usize = 1_000;
const CLAIMERS: usize = 100;

fn seconds(seconds: i64) -> WireDuration {
    WireDuration { seconds, nanos: 0 }
}

fn labelled(team: &str) -> RunFilter {
    RunFilter { labels: [("team".to_owned(), team.to_owned())].into(), ..RunFilter::default() }
}

fn ask(team: &str, ttl: i64, wait: i64) -> ClaimNextRunRequest {
    ClaimNextRunRequest {
        filter: Some(labelled(team)),
        lease_ttl: Some(seconds(ttl)),
        wait: Some(seconds(wait)),
        max_running: None,
        request_id: String::new(),
        take: 0,
        max_runs: 1,
    }
}

async fn ready(data: &Data) -> Server {
    let server = Server::start(&data.store()).await;
    server.is_ready().await;
    server
}

async fn pending(client: &mut Client, run_id: &str, team: &str) {
    let asked = StartRunRequest {
        task_thread_id: "queue".to_owned(),
        run_id: run_id.to_owned(),
        deferred: true,
        labels: [("team".to_owned(), team.to_owned())].into(),
        ..StartRunRequest::default()
    };
    client.start_run(asked).await.unwrap();
}

async fn claim(client: &mut Client, team: &str, wait: i64, agent: &str) -> Option<Run> {
    let asked = ask(team, 60, wait);
    let mut asked = Request::new(asked);
    asked.metadata_mut().insert("runledger-agent-id", agent.parse().unwrap());
    client.claim_next_run(asked).await.unwrap().into_inner().run
}

/// A claim that the server has begun when this returns: a call that came after it, on the same connection, is answered.
async fn waiting(client: &Client, asked: ClaimNextRunRequest) -> JoinSet<Result<Option<Run>, Status>> {
    let mut claimer = client.clone();
    let mut claim = Box::pin(async move { Ok(claimer.claim_next_run(asked).await?.into_inner().run) });
    assert!(poll!(&mut claim).is_pending());
    let mut waiting = JoinSet::new();
    waiting.spawn(claim);
    let unknown = GetRunRequest { run_id: "unknown".to_owned(), ..GetRunRequest::default() };
    assert_eq!(client.clone().get_run(unknown).await.unwrap_err().code(), Code::NotFound);
    assert!(waiting.try_join_next().is_none(), "it waits");
    waiting
}

/// Claims and completes until there is nothing left, so many runs at once; what it got, in its order.
async fn drain(mut client: Client, agent: String, max_runs: u32) -> Vec<String> {
    let mut got = Vec::new();
    let mut claimed = VecDeque::new();
    loop {
        if claimed.is_empty() {
            let mut asked = Request::new(ClaimNextRunRequest { max_runs, ..ask("blue", 60, 0) });
            asked.metadata_mut().insert("runledger-agent-id", agent.parse().unwrap());
            let answer = client.claim_next_run(asked).await.unwrap().into_inner();
            assert!(answer.more_runs.len() < max_runs as usize);
            claimed.extend(answer.run.into_iter().chain(answer.more_runs));
        }
        let Some(run) = claimed.pop_front() else { return got };
        assert_eq!((run.status(), run.agent_id.as_str()), (RunStatus::Running, agent.as_str()));
        let lease_epoch = run.lease.unwrap().epoch;
        let mut done = Request::new(CompleteRunRequest {
            run_id: run.run_id.clone(),
            lease_epoch,
            ..CompleteRunRequest::default()
        });
        done.metadata_mut().insert("runledger-agent-id", agent.parse().unwrap());
        client.complete_run(done).await.unwrap();
        got.push(run.run_id);
    }
}

async fn each_is_taken_once(data: &Data, servers: &[&Server]) {
    let mut makers = JoinSet::new();
    for maker in 0..4 {
        let mut client = servers[0].client();
        makers.spawn(async move {
            for n in 0..RUNS / 4 {
                pending(&mut client, &format!("run-{maker}-{n}"), "blue").await;
            }
        });
    }
    makers.join_all().await;
    pending(&mut servers[0].client(), "other", "red").await;
    let mut claimers = JoinSet::new();
    for (n, max_runs) in (0..CLAIMERS).zip((1..=7).cycle()) {
        claimers.spawn(drain(servers[n % servers.len()].client(), format!("worker-{n}"), max_runs));
    }
    let got = timeout(SOON * 2, claimers.join_all()).await.expect("it hangs");
    let all: Vec<&String> = got.iter().flatten().collect();
    assert_eq!(all.len(), RUNS, "each is taken by one");
    assert_eq!(all.iter().collect::<BTreeSet<_>>().len(), RUNS, "and none by two");
    let contents = data.sound().await;
    assert!(contents.runs.values().filter(|run| run.run_id != "other").all(|run| run.revision == 3));
    assert_eq!(data.sql("select count(*) from leases").await, [[Some("0".to_owned())]]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_100_claimers_on_two_replicas_each_of_1000_pending_runs_is_taken_by_one() {
    let database = Database::fresh().await;
    let data = Data::Postgres(database.dsn());
    let (here, there) = (ready(&data).await, ready(&data).await);
    each_is_taken_once(&data, &[&here, &there]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_100_claimers_each_of_1000_pending_runs_on_sqlite_is_taken_by_one() {
    let directory = TempDir::new().unwrap();
    let data = Data::Sqlite(directory.path().join("ledger.db"));
    let server = Server::start(&data.store()).await;
    server.is_ready().await;
    each_is_taken_once(&data, &[&server]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_claimer_waits_for_a_run_of_another_replica_and_the_oldest_comes_first() {
    let database = Database::fresh().await;
    let data = Data::Postgres(database.dsn());
    let (here, there) = (ready(&data).await, ready(&data).await);
    let (mut client, mut maker) = (here.client(), there.client());
    assert_eq!(claim(&mut client, "blue", 0, "worker").await, None);
    let mut waiting = waiting(&here.client(), ask("blue", 60, 60)).await;
    pending(&mut maker, "red-1", "red").await;
    pending(&mut maker, "blue-1", "blue").await;
    let run = timeout(SOON, waiting.join_next()).await.expect("it hangs").unwrap().unwrap().unwrap().unwrap();
    assert_eq!(run.run_id, "blue-1");
    for n in 2..6 {
        pending(&mut maker, &format!("blue-{n}"), "blue").await;
    }
    for n in 2..6 {
        let run = claim(&mut client, "blue", 0, "worker").await.expect("an acknowledged run is seen by every replica");
        assert_eq!(run.run_id, format!("blue-{n}"), "first in, first out");
    }
    assert_eq!(claim(&mut client, "blue", 0, "worker").await, None);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_run_with_an_owner_is_for_its_owner_and_a_stop_ends_the_waits() {
    let server = Server::start("memory").await;
    server.is_ready().await;
    let mut client = server.client();
    let mine = StartRunRequest {
        task_thread_id: "queue".to_owned(),
        run_id: "mine".to_owned(),
        deferred: true,
        agent_id: "owner".to_owned(),
        labels: [("team".to_owned(), "blue".to_owned())].into(),
        ..StartRunRequest::default()
    };
    client.start_run(mine).await.unwrap();
    assert_eq!(claim(&mut client, "blue", 0, "stranger").await, None);
    pending(&mut client, "anybodys", "blue").await;
    assert_eq!(claim(&mut client, "blue", 0, "stranger").await.unwrap().run_id, "anybodys");
    assert_eq!(claim(&mut client, "blue", 0, "owner").await.unwrap().run_id, "mine");

    let mut waiting = waiting(&client, ask("blue", 1, 60)).await;
    server.process.signal("TERM");
    let status = timeout(SOON, waiting.join_next()).await.expect("it hangs").unwrap().unwrap().unwrap_err();
    assert_eq!((status.code(), reason(&status).as_str()), (Code::Unavailable, "DRAINING"));
}

/// A claimer sees every acknowledged commit: also the end of a run, on a replica that did not make it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_next_run_of_an_instance_is_had_on_any_replica_as_soon_as_the_one_before_it_has_ended() {
    let database = Database::fresh().await;
    let data = Data::Postgres(database.dsn());
    let servers = [ready(&data).await, ready(&data).await];
    for n in 0..40 {
        pending(&mut servers[0].client(), &format!("run-{n}"), "blue").await;
    }
    for n in 0..40 {
        let mut client = servers[n % 2].client();
        let max_running = Some(MaxRunning { label: "team".to_owned(), limit: 1 });
        let asked = ClaimNextRunRequest { max_running, ..ask("blue", 60, 0) };
        let run = client.claim_next_run(asked.clone()).await.unwrap().into_inner().run.expect("there is room");
        assert_eq!(run.run_id, format!("run-{n}"), "first in, first out");
        assert_eq!(servers[1 - n % 2].client().claim_next_run(asked).await.unwrap().into_inner().run, None);
        let done = CompleteRunRequest { run_id: run.run_id, lease_epoch: 1, ..CompleteRunRequest::default() };
        client.complete_run(done).await.unwrap();
    }
    data.sound().await;
}

/// The claim waits for a row that somebody else holds, longer than the caller waits for its answer.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_completion_is_told_in_time_whatever_its_claim_waits_for() {
    let database = Database::fresh().await;
    let server = Server::start(&database.dsn()).await;
    server.is_ready().await;
    let (mut client, holder) = (server.hasty(), direct(&database.dsn()).await);
    for n in 0..2 {
        pending(&mut client, &format!("run-{n}"), "blue").await;
    }
    let first = client.claim_next_run(ask("blue", 60, 0)).await.unwrap().into_inner().run.unwrap();
    assert_eq!(first.run_id, "run-0");
    holder.batch_execute("begin; lock table claims in access exclusive mode").await.unwrap();
    let claim_next = ClaimNextRunRequest { request_id: "next".to_owned(), wait: None, ..ask("blue", 60, 0) };
    let mut done = Request::new(CompleteRunRequest {
        run_id: first.run_id,
        lease_epoch: 1,
        claim_next: Some(Box::new(claim_next)),
        ..CompleteRunRequest::default()
    });
    done.set_timeout(Duration::from_secs(8));
    let answer = client.complete_run(done).await.unwrap().into_inner();
    assert_eq!(answer.run.unwrap().status(), RunStatus::Completed);
    assert_eq!(answer.claimed, None);
    let error = answer.claim_error.expect("the claim is late");
    assert!([Code::ResourceExhausted, Code::Unavailable].contains(&error.code.into()), "{error:?}");
    holder.batch_execute("rollback").await.unwrap();
    let next = client.claim_next_run(ask("blue", 60, 30)).await.unwrap().into_inner().run.unwrap();
    assert_eq!(next.run_id, "run-1", "given back, or never claimed");
}

//! A reporter writes runs of its own agents, and no others, by any call.

use runledger_proto::v1::lifecycle_service_client::LifecycleServiceClient;
use runledger_proto::v1::run_service_client::RunServiceClient;
use runledger_proto::v1::{
    AbortRunRequest, ClaimNextRunRequest, ClaimRunRequest, CompleteRunRequest, FailRunRequest, GetRunRequest,
    HeartbeatRunRequest, ListRunEventsRequest, PrincipalKind, PutLifecycleRequest, ReleaseRunRequest,
    RequestAbortRequest, StartRunRequest, SuspendRunRequest, UpdateRunRequest,
};
use tonic::Status;
use tonic::transport::Endpoint;

use super::callers::{Caller, Client, Place, entry, grant, reason};
use crate::process::server::Server;

const TTL: Option<prost_types::Duration> = Some(prost_types::Duration { seconds: 60, nanos: 0 });

async fn place() -> Place {
    let access = [
        entry("a", &grant("*", "reporter", "\"a-*\"")),
        entry("b", &grant("*", "reporter", "\"b\"")),
        entry("any", &grant("*", "reporter", "\"*\"")),
        entry("operator", &grant("*", "operator", "\"*\"")),
        entry("second", &grant("*", "operator", "\"*\"")),
        entry("admin", &grant("*", "admin", "\"*\"")),
    ];
    Place::start(&access.concat()).await
}

fn start(run_id: &str) -> StartRunRequest {
    StartRunRequest { run_id: run_id.into(), task_thread_id: "thread".into(), ..StartRunRequest::default() }
}

fn told<T>(answer: Result<T, Status>) -> String {
    answer.err().map_or_else(|| "OK".to_owned(), |status| reason(&status))
}

/// What becomes of every write of a run by a caller. The calls that succeed leave the run as it is.
async fn writes(client: &mut Client, run_id: &str) -> Vec<(&'static str, String)> {
    let run_id = || run_id.to_owned();
    vec![
        ("UpdateRun", told(client.update_run(UpdateRunRequest { run_id: run_id(), ..Default::default() }).await)),
        ("StartRun", told(client.start_run(start(&run_id())).await)),
        (
            "HeartbeatRun",
            told(
                client
                    .heartbeat_run(HeartbeatRunRequest { run_id: run_id(), lease_epoch: 1, ..Default::default() })
                    .await,
            ),
        ),
        (
            "ClaimRun",
            told(client.claim_run(ClaimRunRequest { run_id: run_id(), lease_ttl: TTL, ..Default::default() }).await),
        ),
        (
            "ReleaseRun",
            told(
                client.release_run(ReleaseRunRequest { run_id: run_id(), lease_epoch: 1, ..Default::default() }).await,
            ),
        ),
        (
            "RequestAbort",
            told(client.request_abort(RequestAbortRequest { run_id: run_id(), ..Default::default() }).await),
        ),
        ("CompleteRun", told(client.complete_run(CompleteRunRequest { run_id: run_id(), ..Default::default() }).await)),
        (
            "FailRun",
            told(
                client
                    .fail_run(FailRunRequest {
                        run_id: run_id(),
                        failure_reason: "broken".into(),
                        ..Default::default()
                    })
                    .await,
            ),
        ),
        ("AbortRun", told(client.abort_run(AbortRunRequest { run_id: run_id(), ..Default::default() }).await)),
    ]
}

#[tokio::test]
async fn a_reporter_writes_no_run_of_another_agent_by_any_call() {
    let place = place().await;
    let mut a = place.client(Caller::of("a").acting("a-1"));
    a.start_run(StartRunRequest { lease_ttl: TTL, ..start("run-a") }).await.unwrap();
    a.start_run(start("run-a-free")).await.unwrap();
    let mut b = place.client(Caller::of("b"));
    for run_id in ["run-a", "run-a-free"] {
        for (rpc, told) in writes(&mut b, run_id).await {
            let lease = ["LEASE_LOST", "LEASE_HELD"].contains(&told.as_str());
            assert!(told == "NOT_OWNER" || lease, "{rpc} of {run_id}: {told}");
        }
        let run = a.get_run(GetRunRequest { run_id: run_id.into(), ..Default::default() }).await.unwrap().into_inner();
        assert_eq!(run.run.unwrap().revision, 1, "{run_id} is as it was");
    }
    let abort = AbortRunRequest { run_id: "run-a".into(), ..Default::default() };
    assert_eq!(told(b.abort_run(abort.clone()).await), "NOT_OWNER");
    let mut a_2 = place.client(Caller::of("a").acting("a-2"));
    assert_eq!(told(a_2.abort_run(abort).await), "OK", "another agent of the same caller");
}

#[tokio::test]
async fn a_run_without_an_owner_is_taken_before_a_reporter_writes_it() {
    let place = place().await;
    let mut any = place.client(Caller::of("any"));
    any.start_run(StartRunRequest { lease_ttl: TTL, ..start("nobodys") }).await.unwrap();
    let mut b = place.client(Caller::of("b"));
    for (rpc, told) in writes(&mut b, "nobodys").await {
        let is_refused = ["NOT_OWNER", "LEASE_LOST", "LEASE_HELD"].contains(&told.as_str());
        assert!(is_refused && (rpc != "StartRun" || told == "NOT_OWNER"), "{rpc}: {told}");
    }
    for run_id in ["waiting", "started"] {
        any.start_run(StartRunRequest { deferred: true, ..start(run_id) }).await.unwrap();
        let again = b.start_run(StartRunRequest { deferred: true, ..start(run_id) }).await;
        assert_eq!(told(again), "NOT_OWNER", "such a start takes nothing");
    }
    let started = b.start_run(start("started")).await.unwrap().into_inner().run.unwrap();
    assert_eq!(started.agent_id, "b", "it waited for a start");
    let abort = AbortRunRequest { run_id: "waiting".into(), ..Default::default() };
    assert_eq!(told(b.abort_run(abort.clone()).await), "NOT_OWNER");
    let claim = ClaimNextRunRequest { lease_ttl: TTL, ..Default::default() };
    let claimed = b.claim_next_run(claim).await.unwrap().into_inner().run.unwrap();
    assert_eq!((claimed.run_id.as_str(), claimed.agent_id.as_str()), ("waiting", "b"));
    assert_eq!(told(b.abort_run(abort).await), "OK", "it is its own now");
}

#[tokio::test]
async fn a_run_that_another_holds_is_suspended_and_approved_by_an_operator_alone() {
    let place = place().await;
    let mut admin = LifecycleServiceClient::with_interceptor(place.channel(), Caller::of("admin"));
    let declaration = "name: task\nphases:\n  acting: {initial: true, next: [awaiting]}\n  awaiting: {suspends: FEEDBACK, may_complete: true, next: [acting]}\n";
    admin.put_lifecycle(PutLifecycleRequest { declaration: declaration.into() }).await.unwrap();
    let started = |run_id: &str| StartRunRequest { lifecycle: "task".into(), lease_ttl: TTL, ..start(run_id) };
    let complete = |run_id: &str| CompleteRunRequest { run_id: run_id.into(), ..Default::default() };
    let suspend = |run_id: &str| SuspendRunRequest {
        run_id: run_id.into(),
        kind: "PAUSED".into(),
        reason: "not now".into(),
        ..Default::default()
    };
    // Whoever operates and executes is one caller, whatever it calls itself.
    let executed = [("a", Some("a-1")), ("operator", None), ("operator", Some("x")), ("admin", Some("x"))];
    for (nth, (token, agent)) in executed.into_iter().enumerate() {
        let run_id = &format!("run-{nth}");
        let as_agent = |agent: Option<&str>| place.client(Caller { agent: agent.map(Into::into), ..Caller::of(token) });
        let mut worker = as_agent(agent);
        worker.start_run(started(run_id)).await.unwrap();
        for other in ["any", "b", "a"] {
            let mut other = place.client(Caller { agent: (other == "a").then(|| "a-2".into()), ..Caller::of(other) });
            assert_eq!(told(other.suspend_run(suspend(run_id)).await), "LEASE_LOST");
        }
        let awaits =
            UpdateRunRequest { run_id: run_id.into(), phase: "awaiting".into(), lease_epoch: 1, ..Default::default() };
        worker.update_run(awaits).await.unwrap();
        for agent in [None, Some("x"), Some("y"), Some("a-1")] {
            for approves in ["any", token] {
                if approves == "a" && agent != Some("a-1") {
                    continue;
                }
                let mut own = place.client(Caller { agent: agent.map(Into::into), ..Caller::of(approves) });
                assert_eq!(told(own.complete_run(complete(run_id)).await), "LEASE_LOST", "{approves} as {agent:?}");
            }
        }
        let mut second = place.client(Caller::of("second"));
        assert_eq!(told(second.suspend_run(suspend("run-0")).await), if nth == 0 { "OK" } else { "RUN_NOT_RUNNING" });
        if nth > 0 {
            assert_eq!(told(second.complete_run(complete(run_id)).await), "OK", "{token} as {agent:?}");
        } else {
            assert_eq!(
                told(second.abort_run(AbortRunRequest { run_id: run_id.into(), ..Default::default() }).await),
                "OK"
            );
        }
    }
}

#[tokio::test]
async fn a_request_id_of_a_claim_is_an_identitys_own() {
    let place = place().await;
    let mut operator = place.client(Caller::of("operator"));
    let claim = || ClaimNextRunRequest { lease_ttl: TTL, request_id: "1".into(), ..Default::default() };
    for run_id in ["first", "second"] {
        operator.start_run(StartRunRequest { deferred: true, ..start(run_id) }).await.unwrap();
    }
    let mut claimed = Vec::new();
    for (token, agent) in [("any", "x"), ("second", "x"), ("any", "x"), ("second", "x")] {
        let mut client = place.client(Caller::of(token).acting(agent));
        claimed.push(client.claim_next_run(claim()).await.unwrap().into_inner().run.unwrap().run_id);
    }
    assert_eq!(claimed, ["first", "second", "first", "second"], "each asks again for its own");
    // One identity says one thing under an id.
    let other =
        ClaimNextRunRequest { lease_ttl: TTL.map(|ttl| prost_types::Duration { seconds: 9, ..ttl }), ..claim() };
    let status = place.client(Caller::of("any").acting("x")).claim_next_run(other).await.unwrap_err();
    assert_eq!(reason(&status), "REQUEST_ID_REUSED");
}

/// As an older release kept every claim, and this one those of callers that are believed.
#[tokio::test]
async fn a_claim_that_was_kept_without_an_identity_is_still_found() {
    let directory = tempfile::tempdir().unwrap();
    let store = format!("sqlite:{}", directory.path().join("ledger.db").display());
    let access = directory.path().join("access.toml");
    std::fs::write(&access, entry("b", &grant("*", "reporter", "\"b\""))).unwrap();
    let claim = || ClaimNextRunRequest { lease_ttl: TTL, request_id: "1".into(), ..Default::default() };
    let client = |server: &Server, caller| {
        let channel = Endpoint::from_shared(format!("http://{}", server.address)).unwrap().connect_lazy();
        RunServiceClient::with_interceptor(channel, caller)
    };
    let mut believing = Server::start(&store).await;
    believing.is_ready().await;
    let mut believed = client(&believing, Caller::default().acting("b"));
    for run_id in ["first", "second"] {
        believed.start_run(StartRunRequest { deferred: true, ..start(run_id) }).await.unwrap();
    }
    assert_eq!(believed.claim_next_run(claim()).await.unwrap().into_inner().run.unwrap().run_id, "first");
    believing.process.kill();
    let proving = Server::start_with(&["--store", &store, "--access-file", access.to_str().unwrap()]).await;
    proving.is_ready().await;
    let mut proven = client(&proving, Caller::of("b"));
    assert_eq!(proven.claim_next_run(claim()).await.unwrap().into_inner().run.unwrap().run_id, "first");
}

#[tokio::test]
async fn an_agent_that_was_not_granted_becomes_no_owner() {
    let place = place().await;
    let mut b = place.client(Caller::of("b"));
    let status = b.start_run(StartRunRequest { agent_id: "a-1".into(), ..start("run") }).await.unwrap_err();
    assert_eq!(reason(&status), "AGENT_DENIED");
    let mut as_a = place.client(Caller::of("b").acting("a-1"));
    assert_eq!(told(as_a.start_run(start("run")).await), "AGENT_DENIED");
    assert_eq!(told(b.get_run(GetRunRequest { run_id: "run".into(), ..Default::default() }).await), "RUN_NOT_FOUND");
    let run = b.start_run(StartRunRequest { agent_id: "b".into(), ..start("run") }).await.unwrap().into_inner().run;
    assert_eq!(run.unwrap().agent_id, "b");
}

#[tokio::test]
async fn an_operator_ends_what_it_wants_and_every_event_names_who_did_it() {
    let place = place().await;
    let mut b = place.client(Caller::of("b"));
    b.start_run(start("run")).await.unwrap();
    let mut operator = place.client(Caller::of("operator"));
    operator.complete_run(CompleteRunRequest { run_id: "run".into(), ..Default::default() }).await.unwrap();
    let events = ListRunEventsRequest { run_id: "run".into(), ..Default::default() };
    let events = operator.list_run_events(events).await.unwrap().into_inner().events;
    let by: Vec<_> = events
        .into_iter()
        .map(|event| event.principal.unwrap())
        .map(|by| (by.kind(), by.subject, by.issuer, by.agent_id))
        .collect();
    let proven = |subject: &str, agent: &str| {
        (PrincipalKind::Authenticated, subject.to_owned(), "runledger".to_owned(), agent.to_owned())
    };
    assert_eq!(by, [proven("b", "b"), proven("operator", "")]);
}

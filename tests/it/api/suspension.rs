//! Runs that wait without a process, on the wire: suspended, met by every call, ready, claimed, found and counted.

use std::collections::{BTreeMap, BTreeSet};

use futures_util::future::join_all;
use prost_reflect::DescriptorPool;
use prost_types::Duration;
use runledger_proto::FILE_DESCRIPTOR_SET;
use runledger_proto::v1::watch_run_response::Frame;
use runledger_proto::v1::{
    self, ClaimNextRunRequest, ClaimRunRequest, ClaimTake, CompleteRunRequest, Disposition, GetRunRequest,
    HeartbeatRunRequest, ListRunsRequest, MaxRunning, ReleaseRunRequest, RequestAbortRequest, ResumeRunRequest, Run,
    RunEventType, RunFilter, RunStatus, RunSuspendedError, StartRunRequest, SuspendRunRequest, UpdateRunRequest,
    WaitRunRequest, WaitUntil,
};
use tokio::time::timeout;
use tonic::{Code, Status};

use super::caller::{Caller, abort, complete, deferred, fail, fresh, start, update, update_something};
use super::place::Place;
use super::refused::Refused;
use crate::support::server::PATIENCE;

fn seconds(seconds: i64) -> Duration {
    Duration { seconds, nanos: 0 }
}

fn leased(run_id: &str) -> StartRunRequest {
    StartRunRequest { lease_ttl: Some(seconds(60)), ..start(run_id) }
}

fn suspending(run_id: &str, kind: &str) -> SuspendRunRequest {
    let (run_id, kind, reason) = (run_id.to_owned(), kind.to_owned(), "which account?".to_owned());
    SuspendRunRequest { run_id, kind, reason, ..SuspendRunRequest::default() }
}

fn resuming(run_id: &str) -> ResumeRunRequest {
    let (run_id, reason) = (run_id.to_owned(), "that one".to_owned());
    ResumeRunRequest { run_id, reason, ..ResumeRunRequest::default() }
}

async fn suspend(caller: &Caller, asked: SuspendRunRequest) -> Result<Run, Status> {
    Ok(caller.grpc.clone().suspend_run(caller.request(asked)).await?.into_inner().run.unwrap())
}

async fn resume(caller: &Caller, asked: ResumeRunRequest) -> Result<Run, Status> {
    Ok(caller.grpc.clone().resume_run(caller.request(asked)).await?.into_inner().run.unwrap())
}

async fn claim(caller: &Caller, run_id: &str) -> Result<Run, Status> {
    let asked = ClaimRunRequest { run_id: run_id.to_owned(), lease_ttl: Some(seconds(60)), ..Default::default() };
    Ok(caller.grpc.clone().claim_run(caller.request(asked)).await?.into_inner().run.unwrap())
}

fn pool(pool: &str) -> RunFilter {
    RunFilter { labels: labels(pool), ..RunFilter::default() }
}

fn labels(pool: &str) -> std::collections::HashMap<String, String> {
    [("pool".to_owned(), pool.to_owned())].into()
}

async fn next(caller: &Caller, pool_name: &str, take: ClaimTake, limit: Option<u32>) -> Option<Run> {
    let asked = ClaimNextRunRequest {
        filter: Some(pool(pool_name)),
        lease_ttl: Some(seconds(60)),
        take: take.into(),
        max_running: limit.map(|limit| MaxRunning { label: "pool".to_owned(), limit }),
        ..ClaimNextRunRequest::default()
    };
    caller.grpc.clone().claim_next_run(caller.request(asked)).await.unwrap().into_inner().run
}

fn epoch(run: &Run) -> u64 {
    run.lease.as_ref().map_or(0, |lease| lease.epoch)
}

pub(crate) async fn a_run_is_suspended_by_its_holder_and_goes_on_under_another_one(place: Place) {
    let (caller, other) = (place.caller().await, place.other().await);
    let run_id = fresh("suspended");
    caller.agent("agent-1").apply(StartRunRequest { labels: labels(&run_id), ..leased(&run_id) }).await;
    let asked = SuspendRunRequest {
        lease_epoch: 1,
        resume_hint: "say which".to_owned(),
        timeout: Some(seconds(3_600)),
        ready_timeout: Some(seconds(60)),
        ..suspending(&run_id, "HELP")
    };
    let run = suspend(&caller.agent("agent-1"), asked.clone()).await.unwrap();
    let suspension = run.suspension.clone().unwrap();
    let by = suspension.by.clone().unwrap().agent_id;
    assert_eq!(
        (suspension.kind.as_str(), suspension.reason.as_str(), by.as_str()),
        ("HELP", "which account?", "agent-1")
    );
    assert_eq!((suspension.lease_epoch, suspension.resume_hint.as_str()), (1, "say which"));
    assert_eq!(suspension.deadline.unwrap().seconds - suspension.at.unwrap().seconds, 3_600);
    assert_eq!((run.status(), epoch(&run), run.lease.as_ref().unwrap().resting), (RunStatus::Running, 1, true));
    let again = caller.grpc.clone().suspend_run(caller.request(asked)).await.unwrap().into_inner();
    assert_eq!((again.disposition(), again.run), (Disposition::Unchanged, Some(run.clone())));
    let beat = HeartbeatRunRequest { run_id: run_id.clone(), lease_epoch: 1, progress: None };
    let refused = Refused::from(other.grpc.clone().heartbeat_run(beat).await.unwrap_err());
    let error: RunSuspendedError =
        refused.is(Code::FailedPrecondition, "RUN_SUSPENDED").detail("runledger.v1.RunSuspendedError");
    assert_eq!((error.suspension.unwrap().kind.as_str(), error.ready), ("HELP", false));
    assert_eq!(other.get(&run_id).await, run, "the other server shows it so");

    assert_eq!(next(&other, &run_id, ClaimTake::Both, None).await, None, "it is not ready");
    let ready = resume(&other, resuming(&run_id)).await.unwrap();
    assert!(ready.ready.as_ref().is_some_and(|ready| !ready.not_begun && ready.deadline.is_some()));
    assert_eq!(ready.suspension.as_ref().unwrap().resumption.as_ref().unwrap().reason, "that one");
    assert_eq!(next(&other, &run_id, ClaimTake::Pending, None).await, None, "who takes pending runs does not take it");
    let claimed = next(&other.agent("agent-2"), &run_id, ClaimTake::Ready, None).await.expect("the run that is ready");
    assert_eq!(claimed.agent_id, "agent-2", "whose worker goes on with it");
    assert_eq!((epoch(&claimed), claimed.suspension.is_none(), claimed.ready.is_none()), (2, true, true));
    assert_eq!(claimed.resumed_from.unwrap().resume_hint, "say which", "how it was left");
    caller
        .refused(CompleteRunRequest { lease_epoch: 1, ..complete(&run_id) })
        .await
        .is(Code::FailedPrecondition, "LEASE_LOST");
    let done = other.apply(CompleteRunRequest { lease_epoch: 2, ..complete(&run_id) }).await;
    assert_eq!((done.status(), done.resumed_from), (RunStatus::Completed, None));
    let types: Vec<RunEventType> = caller.events(&run_id).await.iter().map(v1::RunEvent::r#type).collect();
    let wanted = [
        RunEventType::Created,
        RunEventType::Suspended,
        RunEventType::Ready,
        RunEventType::Resumed,
        RunEventType::Completed,
    ];
    assert_eq!(types, wanted);
}

/// What becomes of a call of the run's last holder, while the run is suspended and while it is ready: by hand.
const ANSWERS: &[(&str, &str, &str)] = &[
    ("StartRun", "UNCHANGED", "UNCHANGED"),
    ("UpdateRun", "RUN_SUSPENDED", "RUN_SUSPENDED"),
    ("CompleteRun", "COMPLETED", "COMPLETED"),
    ("AbortRun", "ABORTED", "ABORTED"),
    ("FailRun", "FAILED", "FAILED"),
    ("ClaimRun", "RUN_SUSPENDED", "RESUMED"),
    ("ClaimNextRun", "nothing", "RESUMED"),
    ("ReleaseRun", "RUN_SUSPENDED", "RUN_SUSPENDED"),
    ("HeartbeatRun", "RUN_SUSPENDED", "RUN_SUSPENDED"),
    ("HeartbeatRuns", "RUN_SUSPENDED", "RUN_SUSPENDED"),
    ("RequestAbort", "ABORTED", "ABORTED"),
    ("ApplyCommands", "ABORTED", "ABORTED"),
    ("SuspendRun", "UNCHANGED", "SUSPENDED"),
    ("ResumeRun", "READY", "UNCHANGED"),
    ("ArchiveRun", "RUN_NOT_TERMINAL", "RUN_NOT_TERMINAL"),
    ("RestoreRun", "UNCHANGED", "UNCHANGED"),
    ("RedactRun", "REDACTED", "REDACTED"),
    ("GetRun", "shown", "shown"),
    ("ListLinks", "shown", "shown"),
    ("CheckTransition", "RUN_SUSPENDED", "RUN_SUSPENDED"),
    ("ListRunEvents", "shown", "shown"),
    ("WatchRun", "shown", "shown"),
    ("WatchRuns", "shown", "shown"),
    ("WaitRun", "shown", "timed out"),
    ("ListRuns", "shown", "shown"),
    ("CountRuns", "shown", "shown"),
];

/// How many runs a list or a count finds that wait for help.
async fn found(caller: &Caller, method: &str, run_id: &str) -> Result<u64, Status> {
    let mut grpc = caller.grpc.clone();
    let filter = Some(RunFilter { suspension_kind: "HELP".to_owned(), ..pool(run_id) });
    if method == "ListRuns" {
        let asked = ListRunsRequest { filter, ..Default::default() };
        return Ok(grpc.list_runs(asked).await?.into_inner().runs.len() as u64);
    }
    let asked = v1::CountRunsRequest { filter, by_phase: false, by_suspension: true };
    Ok(grpc.count_runs(asked).await?.into_inner().suspensions.iter().map(|it| it.count).sum())
}

/// Why a heartbeat is refused that comes with others.
async fn refused_of_many(caller: &Caller, run_id: &str) -> String {
    let heartbeats = vec![HeartbeatRunRequest { run_id: run_id.to_owned(), lease_epoch: 1, progress: None }];
    let answer = caller.grpc.clone().heartbeat_runs(v1::HeartbeatRunsRequest { heartbeats }).await.unwrap();
    let error = answer.into_inner().results.remove(0).error;
    Refused::from(error.expect("no lease is renewed")).reason
}

/// Makes a call on a run, and says what became of it.
async fn met(caller: &Caller, method: &str, run_id: &str) -> Result<String, Status> {
    let mut grpc = caller.grpc.clone();
    let (id, lease_ttl) = (run_id.to_owned(), Some(seconds(60)));
    let unchanged = |disposition: Disposition| disposition == Disposition::Unchanged;
    let is_unchanged = match method {
        "StartRun" => unchanged(grpc.start_run(leased(run_id)).await?.into_inner().disposition()),
        "UpdateRun" => {
            let asked = UpdateRunRequest { lease_epoch: 1, ..update_something(run_id) };
            unchanged(grpc.update_run(asked).await?.into_inner().disposition())
        }
        "CompleteRun" => {
            let asked = CompleteRunRequest { lease_epoch: 1, ..complete(run_id) };
            unchanged(grpc.complete_run(asked).await?.into_inner().disposition())
        }
        "AbortRun" => unchanged(grpc.abort_run(abort(run_id)).await?.into_inner().disposition()),
        "FailRun" => {
            let asked = v1::FailRunRequest { lease_epoch: 1, ..fail(run_id) };
            unchanged(grpc.fail_run(asked).await?.into_inner().disposition())
        }
        "ClaimRun" => {
            let asked = ClaimRunRequest { run_id: id, lease_ttl, ..Default::default() };
            unchanged(grpc.claim_run(asked).await?.into_inner().disposition())
        }
        "ClaimNextRun" => {
            if next(caller, run_id, ClaimTake::Both, None).await.is_none() {
                return Ok("nothing".to_owned());
            }
            false
        }
        "ReleaseRun" => {
            let asked = ReleaseRunRequest { run_id: id, lease_epoch: 1, ..Default::default() };
            unchanged(grpc.release_run(asked).await?.into_inner().disposition())
        }
        "HeartbeatRun" => {
            grpc.heartbeat_run(HeartbeatRunRequest { run_id: id, lease_epoch: 1, progress: None }).await?;
            return Ok("renewed".to_owned());
        }
        "HeartbeatRuns" => return Ok(refused_of_many(caller, run_id).await),
        "RequestAbort" => {
            let asked = RequestAbortRequest { run_id: id, ..Default::default() };
            unchanged(grpc.request_abort(asked).await?.into_inner().disposition())
        }
        "ApplyCommands" => {
            let asked = RequestAbortRequest { run_id: id, ..Default::default() };
            let command = v1::RunCommand { command: Some(v1::run_command::Command::RequestAbort(asked)) };
            unchanged(caller.apply_commands([command], None).await?.results[0].disposition())
        }
        "SuspendRun" => unchanged(grpc.suspend_run(suspending(run_id, "HELP")).await?.into_inner().disposition()),
        "ResumeRun" => unchanged(grpc.resume_run(resuming(run_id)).await?.into_inner().disposition()),
        "ArchiveRun" => {
            let asked = v1::ArchiveRunRequest { run_id: id, ..Default::default() };
            unchanged(grpc.archive_run(asked).await?.into_inner().disposition())
        }
        "RestoreRun" => {
            let asked = v1::RestoreRunRequest { run_id: id, ..Default::default() };
            unchanged(grpc.restore_run(asked).await?.into_inner().disposition())
        }
        "RedactRun" => {
            let paths = vec!["/reason".to_owned()];
            let asked = v1::RedactRunRequest { run_id: id, paths, ..Default::default() };
            unchanged(grpc.redact_run(asked).await?.into_inner().disposition())
        }
        "CheckTransition" => {
            let asked = v1::CheckTransitionRequest { run_id: id, to_phase: "acting".to_owned(), ..Default::default() };
            return Ok(grpc.check_transition(asked).await?.into_inner().reason);
        }
        "WaitRun" => {
            let asked = WaitRunRequest { run_id: id, timeout: Some(seconds(0)), until: WaitUntil::Suspended.into() };
            let timed_out = grpc.wait_run(asked).await?.into_inner().timed_out;
            return Ok(if timed_out { "timed out" } else { "shown" }.to_owned());
        }
        "WatchRun" => {
            let asked = v1::WatchRunRequest { run_id: id, ..Default::default() };
            let first = grpc.watch_run(asked).await?.into_inner().message().await?.and_then(|frame| frame.frame);
            let Some(Frame::Snapshot(run)) = first else { panic!("{first:?}") };
            return Ok(if format!("{run:?}").contains("which account?") { "shown" } else { "" }.to_owned());
        }
        "WatchRuns" => {
            let initial = v1::watch_runs_request::Initial::All.into();
            let filter = Some(RunFilter { suspended: Some(true), ..pool(run_id) });
            let asked = v1::WatchRunsRequest { filter, initial, ..Default::default() };
            let first = grpc.watch_runs(asked).await?.into_inner().message().await?;
            return Ok(if format!("{first:?}").contains("which account?") { "shown" } else { "" }.to_owned());
        }
        "ListRuns" | "CountRuns" => {
            return Ok(if found(caller, method, run_id).await? == 1 { "shown" } else { "" }.to_owned());
        }
        "GetRun" | "ListLinks" | "ListRunEvents" => {
            grpc.list_links(v1::ListLinksRequest { run_id: id.clone(), ..Default::default() }).await?;
            caller.events(&id).await;
            return Ok(if caller.get(&id).await.suspension.is_some() { "shown" } else { "" }.to_owned());
        }
        other => panic!("{other} is not made"),
    };
    if is_unchanged {
        return Ok("UNCHANGED".to_owned());
    }
    let last = caller.events(run_id).await.pop().unwrap();
    Ok(last.r#type().as_str_name().trim_start_matches("RUN_EVENT_TYPE_").to_owned())
}

pub(crate) async fn a_suspended_run_and_a_ready_one_meet_every_call_as_the_table_says(place: Place) {
    let caller = place.caller().await;
    let descriptors = DescriptorPool::decode(FILE_DESCRIPTOR_SET).unwrap();
    let service = descriptors.get_service_by_name("runledger.v1.RunService").unwrap();
    let methods: BTreeSet<String> = service.methods().map(|method| method.name().to_owned()).collect();
    let listed: BTreeSet<String> = ANSWERS.iter().map(|(method, ..)| (*method).to_owned()).collect();
    assert_eq!(methods, listed, "every call there is");
    for (method, suspended, ready) in ANSWERS {
        for (is_ready, wanted) in [(false, suspended), (true, ready)] {
            let run_id = fresh("met");
            caller.apply(StartRunRequest { labels: labels(&run_id), ..leased(&run_id) }).await;
            suspend(&caller, SuspendRunRequest { lease_epoch: 1, ..suspending(&run_id, "HELP") }).await.unwrap();
            if is_ready {
                resume(&caller, resuming(&run_id)).await.unwrap();
            }
            let found = match met(&caller, method, &run_id).await {
                Ok(found) => found,
                Err(status) => Refused::from(status).reason,
            };
            assert_eq!(found, *wanted, "{method}, ready: {is_ready}");
        }
    }
}

pub(crate) async fn a_run_at_rest_leaves_its_slot_unless_it_keeps_it(place: Place) {
    let caller = place.caller().await;
    for keep_slot in [false, true] {
        let name = fresh("slots");
        let ids: Vec<String> = (0..2).map(|n| format!("{name}-{n}")).collect();
        for id in &ids {
            caller.apply(StartRunRequest { labels: labels(&name), ..deferred(id) }).await;
        }
        let take = || next(&caller, &name, ClaimTake::Both, Some(1));
        assert_eq!(take().await.unwrap().run_id, ids[0]);
        let asked = SuspendRunRequest { lease_epoch: 1, keep_slot, ..suspending(&ids[0], "HELP") };
        suspend(&caller, asked).await.unwrap();
        if keep_slot {
            assert_eq!(take().await, None, "the slot is kept");
            resume(&caller, resuming(&ids[0])).await.unwrap();
            let claimed = take().await.expect("it has its own slot");
            assert_eq!(claimed.run_id, ids[0]);
            assert_eq!(take().await, None);
            continue;
        }
        assert_eq!(take().await.unwrap().run_id, ids[1], "the next one is taken");
        resume(&caller, resuming(&ids[0])).await.unwrap();
        assert_eq!(take().await, None, "the first waits for room");
        let limited = ResumeRunRequest {
            lease_ttl: Some(seconds(60)),
            max_running: Some(MaxRunning { label: "pool".to_owned(), limit: 1 }),
            ..resuming(&ids[0])
        };
        let refused = Refused::from(resume(&caller, limited).await.unwrap_err());
        refused.is(Code::FailedPrecondition, "LEASE_HELD");
        caller.apply(CompleteRunRequest { lease_epoch: 1, ..complete(&ids[1]) }).await;
        assert_eq!(take().await.unwrap().run_id, ids[0]);
    }
}

pub(crate) async fn a_run_that_keeps_its_slot_waits_where_others_have_filled_its_value(place: Place) {
    let caller = place.caller().await;
    let name = fresh("full");
    let (kept, other) = (format!("{name}-0"), format!("{name}-1"));
    // It was claimed under no limit, so the slot that it keeps is none of those that count.
    caller.apply(StartRunRequest { labels: labels(&name), ..leased(&kept) }).await;
    let asked = SuspendRunRequest { lease_epoch: 1, keep_slot: true, ..suspending(&kept, "HELP") };
    suspend(&caller, asked).await.unwrap();
    caller.apply(StartRunRequest { labels: labels(&name), ..deferred(&other) }).await;
    let take = || next(&caller, &name, ClaimTake::Both, Some(1));
    assert_eq!(take().await.unwrap().run_id, other);
    resume(&caller, resuming(&kept)).await.unwrap();
    assert_eq!(timeout(PATIENCE, take()).await.expect("it is answered"), None);
    caller.apply(CompleteRunRequest { lease_epoch: 1, ..complete(&other) }).await;
    assert_eq!(timeout(PATIENCE, take()).await.expect("it is answered").unwrap().run_id, kept);
}

pub(crate) async fn of_the_runs_that_wait_the_higher_priority_comes_first(place: Place) {
    let (caller, other) = (place.caller().await, place.other().await);
    let name = fresh("queue");
    let id = |n: i32| format!("{name}-{n}");
    for (n, priority) in (0..).zip([0, -3, 0, 5, 5]) {
        caller.apply(StartRunRequest { labels: labels(&name), priority, ..deferred(&id(n)) }).await;
    }
    // One that was suspended has its own place among them.
    let asked = StartRunRequest { labels: labels(&name), priority: 1, ..leased(&id(5)) };
    caller.apply(asked).await;
    suspend(&caller, suspending(&id(5), "HELP")).await.unwrap();
    resume(&caller, resuming(&id(5))).await.unwrap();
    let position = async |n: i32| {
        let asked = GetRunRequest { run_id: id(n), queue_label: Some("pool".to_owned()), view: None };
        caller.grpc.clone().get_run(caller.request(asked)).await.unwrap().into_inner().queue.unwrap().position
    };
    let mut positions = Vec::new();
    for n in [3, 4, 5, 0, 2, 1] {
        positions.push(position(n).await);
    }
    assert_eq!(positions, [1, 2, 3, 4, 5, 6]);
    // The priority of a pending run changes, and nothing else of it does.
    let raised = caller.apply(UpdateRunRequest { priority: Some(9), ..update(&id(2)) }).await;
    assert_eq!((raised.priority, raised.status(), raised.revision), (9, RunStatus::Pending, 2));
    caller.unchanged(UpdateRunRequest { priority: Some(9), ..update(&id(2)) }).await;
    let both = UpdateRunRequest { priority: Some(1), ..update_something(&id(2)) };
    caller.refused(both).await.is(Code::FailedPrecondition, "RUN_NOT_RUNNING");
    let running = caller.apply(start(&fresh("running"))).await.run_id;
    let refused = caller.refused(UpdateRunRequest { priority: Some(1), ..update(&running) }).await;
    refused.is(Code::FailedPrecondition, "RUN_NOT_PENDING");
    let wrong = caller.refused(UpdateRunRequest { priority: Some(101), ..update(&id(2)) }).await;
    assert_eq!(wrong.fields(), ["priority"]);
    let again = caller.unchanged(StartRunRequest { priority: 2, ..deferred(&id(0)) }).await;
    assert_eq!(again.priority, 0, "a start that is sent again changes no priority, and is not refused for it");
    let vain = ClaimNextRunRequest {
        filter: Some(RunFilter { suspension_kind: "HELP".to_owned(), ..pool(&name) }),
        lease_ttl: Some(seconds(60)),
        ..ClaimNextRunRequest::default()
    };
    let vain = caller.grpc.clone().claim_next_run(vain).await.unwrap_err();
    assert_eq!(Refused::from(vain).fields(), ["filter.suspension_kind"]);
    let mut claimed = Vec::new();
    for _ in 0..6 {
        claimed.push(next(&other, &name, ClaimTake::Both, None).await.expect("one waits").run_id);
    }
    assert_eq!(claimed, [2, 3, 4, 5, 0, 1].map(id));
}

pub(crate) async fn suspended_runs_are_listed_counted_and_waited_for(place: Place) {
    let (caller, other) = (place.caller().await, place.other().await);
    let name = fresh("found");
    for (n, kind) in ["HELP", "HELP", "PAUSED", ""].into_iter().enumerate() {
        let run_id = format!("{name}-{n}");
        caller.apply(StartRunRequest { labels: labels(&name), ..leased(&run_id) }).await;
        if !kind.is_empty() {
            suspend(&caller, suspending(&run_id, kind)).await.unwrap();
        }
    }
    resume(&caller, resuming(&format!("{name}-1"))).await.unwrap();
    let listed = async |suspended, ready, kind: &str| {
        let filter = RunFilter { suspended, ready, suspension_kind: kind.to_owned(), ..pool(&name) };
        let asked = ListRunsRequest { filter: Some(filter.clone()), ..Default::default() };
        let runs = other.grpc.clone().list_runs(other.request(asked)).await.unwrap().into_inner().runs;
        let asked = v1::CountRunsRequest { filter: Some(filter), by_phase: false, by_suspension: true };
        let counted = other.grpc.clone().count_runs(other.request(asked)).await.unwrap().into_inner();
        assert_eq!(counted.counts.iter().map(|it| it.count).sum::<u64>(), runs.len() as u64);
        let kinds: BTreeMap<String, u64> = counted.suspensions.into_iter().map(|it| (it.kind, it.count)).collect();
        let ids = runs.into_iter().map(|run| run.run_id.rsplit('-').next().unwrap().to_owned());
        (ids.collect::<Vec<_>>().join(" "), kinds)
    };
    let kinds = |of: &[(&str, u64)]| of.iter().map(|(kind, count)| ((*kind).to_owned(), *count)).collect();
    assert_eq!(listed(None, None, "").await, ("3 2 1 0".to_owned(), kinds(&[("HELP", 2), ("PAUSED", 1)])));
    assert_eq!(listed(Some(true), None, "").await, ("2 1 0".to_owned(), kinds(&[("HELP", 2), ("PAUSED", 1)])));
    assert_eq!(listed(Some(false), None, "").await, ("3".to_owned(), kinds(&[])));
    assert_eq!(listed(Some(true), Some(false), "").await, ("2 0".to_owned(), kinds(&[("HELP", 1), ("PAUSED", 1)])));
    assert_eq!(listed(None, Some(true), "").await, ("1".to_owned(), kinds(&[("HELP", 1)])));
    assert_eq!(listed(None, None, "HELP").await, ("1 0".to_owned(), kinds(&[("HELP", 2)])));

    let run_id = format!("{name}-3");
    let asked =
        WaitRunRequest { run_id: run_id.clone(), timeout: Some(seconds(60)), until: WaitUntil::Suspended.into() };
    let waits = async { other.grpc.clone().wait_run(other.request(asked)).await.unwrap().into_inner() };
    let suspends = async { suspend(&caller, suspending(&run_id, "BLOCKED")).await.unwrap() };
    let (waited, suspended) = timeout(PATIENCE, async { tokio::join!(waits, suspends) }).await.expect("it is told");
    assert_eq!((waited.timed_out, waited.run), (false, Some(suspended)));
}

pub(crate) async fn what_is_wrong_with_a_suspension_is_named_field_by_field(place: Place) {
    let caller = place.caller().await;
    let run_id = fresh("wrong");
    caller.apply(leased(&run_id)).await;
    let asked = SuspendRunRequest {
        run_id: run_id.clone(),
        kind: "help".to_owned(),
        resume_hint: "x".repeat(1_025),
        timeout: Some(seconds(0)),
        ready_timeout: Some(seconds(-1)),
        phase: "A".to_owned(),
        request_id: "x".repeat(129),
        expected_revision: Some(0),
        ..SuspendRunRequest::default()
    };
    let mut fields = Refused::from(suspend(&caller, asked).await.unwrap_err()).fields();
    fields.sort_unstable();
    let wanted =
        ["expected_revision", "kind", "phase", "ready_timeout", "reason", "request_id", "resume_hint", "timeout"];
    assert_eq!(fields, wanted);
    let asked = ResumeRunRequest {
        run_id: run_id.clone(),
        reason: "x".repeat(1_025),
        max_running: Some(MaxRunning { label: String::new(), limit: 0 }),
        ..ResumeRunRequest::default()
    };
    let fields: BTreeSet<String> =
        Refused::from(resume(&caller, asked).await.unwrap_err()).fields().into_iter().collect();
    assert_eq!(fields, ["max_running", "max_running.label", "max_running.limit", "reason"].map(str::to_owned).into());
    let asked = UpdateRunRequest {
        lease_epoch: 1,
        suspension: Some(v1::SuspensionTerms { reason: "why".to_owned(), ..Default::default() }),
        ..update(&run_id)
    };
    assert_eq!(caller.refused(asked).await.fields(), ["suspension"], "no phase suspends the run");
    assert_eq!(caller.get(&run_id).await.revision, 1, "nothing was changed");
    // The largest refusal there is stays within its bound, which is checked where it is taken apart.
    let agent = "a".repeat(256);
    let run_id = format!("{}-{}", fresh("long"), "r".repeat(100));
    let started = StartRunRequest { task_thread_id: "t".repeat(256), ..leased(&run_id) };
    caller.agent(&agent).apply(started).await;
    let asked = SuspendRunRequest {
        lease_epoch: 1,
        kind: "K".repeat(64),
        reason: "é".repeat(512),
        resume_hint: "é".repeat(512),
        run_id: run_id.clone(),
        ..SuspendRunRequest::default()
    };
    suspend(&caller.agent(&agent), asked).await.unwrap();
    Refused::from(claim(&caller, &run_id).await.unwrap_err()).is(Code::FailedPrecondition, "RUN_SUSPENDED");
}

/// A heartbeat, and an update that brings progress alone, write past the run's log: who comes second finds a run at rest.
pub(crate) async fn a_heartbeat_and_progress_that_meet_a_suspension_are_taken_or_told_of_it(place: Place) {
    let (caller, other) = (place.caller().await, place.other().await);
    for round in 0..20 {
        let run_id = fresh("race");
        caller.apply(leased(&run_id)).await;
        let suspends = suspend(&caller, SuspendRunRequest { lease_epoch: 1, ..suspending(&run_id, "HELP") });
        let meets = async {
            if round % 2 == 0 {
                let heartbeat = HeartbeatRunRequest { run_id: run_id.clone(), lease_epoch: 1, progress: None };
                return other.grpc.clone().heartbeat_run(heartbeat).await.map(drop);
            }
            let progress = Some(v1::Progress { done: 3, ..Default::default() });
            other.call(UpdateRunRequest { lease_epoch: 1, progress, ..update(&run_id) }).await.map(drop)
        };
        let (suspended, met) = tokio::join!(suspends, meets);
        let run = suspended.unwrap();
        assert!(run.suspension.is_some(), "{run:?}");
        if let Err(status) = met {
            Refused::from(status).is(Code::FailedPrecondition, "RUN_SUSPENDED");
        }
    }
}

pub(crate) async fn a_run_that_is_ready_is_had_by_one_of_many_who_ask(place: Place) {
    let (caller, other) = (place.caller().await, place.other().await);
    let run_id = fresh("wanted");
    caller.apply(StartRunRequest { labels: labels(&run_id), ..leased(&run_id) }).await;
    suspend(&caller, suspending(&run_id, "HELP")).await.unwrap();
    resume(&caller, resuming(&run_id)).await.unwrap();
    let callers = [&caller, &other];
    let claims = (0..50).map(|n| next(callers[n % 2], &run_id, ClaimTake::Ready, None));
    assert_eq!(join_all(claims).await.into_iter().flatten().count(), 1);
}

//! Leases, requests to abort and claims, on the wire.

use prost_types::Duration;
use runledger_proto::v1::watch_run_response::Frame;
use runledger_proto::v1::{
    CheckTransitionRequest, ClaimNextRunRequest, ClaimRunRequest, CompleteRunRequest, CompleteRunResponse, Disposition,
    GetRunRequest, HeartbeatRunRequest, HeartbeatRunsRequest, LeaseHeldError, LeaseLostError, MaxRunning,
    MaxRunningError, Progress, QueuePlace, ReleaseRunRequest, RequestAbortRequest, Run, RunCommand, RunEventType,
    RunFilter, RunStatus, StartRunRequest, UpdateRunRequest, run_command,
};
use serde_json::json;
use tokio::time::timeout;
use tonic::{Code, Status};

use super::caller::{Ask, Caller, abort, complete, deferred, fresh, start, update};
use super::place::Place;
use super::refused::Refused;
use super::values::structure;
use crate::support::server::PATIENCE;

fn seconds(seconds: i64) -> Duration {
    Duration { seconds, nanos: 0 }
}

fn leased(run_id: &str) -> StartRunRequest {
    StartRunRequest { lease_ttl: Some(seconds(60)), ..start(run_id) }
}

fn beat(run_id: &str, lease_epoch: u64) -> HeartbeatRunRequest {
    HeartbeatRunRequest { run_id: run_id.to_owned(), lease_epoch, progress: None }
}

fn claiming(run_id: &str) -> ClaimRunRequest {
    ClaimRunRequest { run_id: run_id.to_owned(), lease_ttl: Some(seconds(60)), ..ClaimRunRequest::default() }
}

fn limited(label: &str, limit: u32) -> MaxRunning {
    MaxRunning { label: label.to_owned(), limit }
}

/// Claims what a pool has.
fn next(pool: &str) -> ClaimNextRunRequest {
    let filter = RunFilter { labels: [("pool".to_owned(), pool.to_owned())].into(), ..RunFilter::default() };
    ClaimNextRunRequest { filter: Some(filter), lease_ttl: Some(seconds(60)), ..ClaimNextRunRequest::default() }
}

fn progress(done: u64, total: u64, message: &str) -> Progress {
    Progress { done, total, message: message.to_owned(), at: None }
}

async fn claim(caller: &Caller, asked: ClaimRunRequest) -> Result<Run, Status> {
    let answer = caller.grpc.clone().claim_run(caller.request(asked)).await?.into_inner();
    Ok(answer.run.expect("a mutation answers with the run"))
}

fn epoch(run: &Run) -> u64 {
    run.lease.as_ref().map_or(0, |lease| lease.epoch)
}

pub(crate) async fn a_lease_is_shown_renewed_and_handed_over(place: Place) {
    let caller = place.caller().await;
    let run_id = fresh("lease");
    let run = caller.apply(leased(&run_id)).await;
    let lease = run.lease.unwrap();
    assert_eq!((lease.epoch, lease.ttl, lease.expires_at, lease.released), (1, Some(seconds(60)), None, false));
    let before = caller.get(&run_id).await.lease.unwrap().expires_at.unwrap();
    let asked = HeartbeatRunRequest { progress: Some(progress(3, 10, "é")), ..beat(&run_id, 1) };
    let told = caller.grpc.clone().heartbeat_run(asked).await.unwrap().into_inner();
    assert_eq!((told.revision, told.abort_request), (1, None));
    assert_eq!(told.expires_at.unwrap().seconds - told.now.unwrap().seconds, 60);
    let shown = caller.get(&run_id).await;
    assert_eq!(shown.lease.as_ref().unwrap().expires_at, told.expires_at);
    let after = told.expires_at.unwrap();
    assert!((after.seconds, after.nanos) > (before.seconds, before.nanos));
    let said = shown.progress.unwrap();
    assert_eq!((said.done, said.total, said.message.as_str(), said.at.is_some()), (3, 10, "é", true));

    let asked = UpdateRunRequest { lease_epoch: 1, progress: Some(progress(4, 0, "")), ..update(&run_id) };
    caller.unchanged(asked).await;
    // A moment after the answer, which does not wait for it.
    let said = async {
        loop {
            let shown = caller.get(&run_id).await;
            if shown.progress.as_ref().is_some_and(|progress| progress.done == 4) {
                return shown;
            }
        }
    };
    let shown = timeout(PATIENCE, said).await.expect("what an update says of the work is shown");
    assert_eq!(shown.revision, 1, "progress makes no event");

    let released = ReleaseRunRequest { run_id: run_id.clone(), lease_epoch: 1, ..ReleaseRunRequest::default() };
    let run = caller.grpc.clone().release_run(released).await.unwrap().into_inner().run.unwrap();
    assert!(run.lease.unwrap().released);
    let status = caller.grpc.clone().heartbeat_run(beat(&run_id, 2)).await.unwrap_err();
    Refused::from(status).is(Code::FailedPrecondition, "LEASE_LOST");
    let run = claim(&caller.agent("new"), claiming(&run_id)).await.unwrap();
    assert_eq!((epoch(&run), run.agent_id.as_str(), run.status()), (3, "new", RunStatus::Running));
    let done = caller.apply(CompleteRunRequest { lease_epoch: 3, ..complete(&run_id) }).await;
    let lease = done.lease.unwrap();
    assert_eq!((lease.epoch, lease.expires_at, done.outcome), (3, None, RunStatus::Completed.into()));
    assert_eq!(caller.get(&run_id).await.progress, None);
}

pub(crate) async fn who_does_not_hold_the_lease_is_told_who_does(place: Place) {
    let caller = place.caller().await;
    let run_id = fresh("fenced");
    let run = caller.apply(leased(&run_id)).await;
    for (asked, lease_epoch) in
        [(complete(&run_id), 0), (CompleteRunRequest { lease_epoch: 7, ..complete(&run_id) }, 7)]
    {
        let refused = caller.refused(asked).await.is(Code::FailedPrecondition, "LEASE_LOST");
        let lost: LeaseLostError = refused.detail("runledger.v1.LeaseLostError");
        assert_eq!((lost.run_id, lost.lease_epoch, lost.current_epoch), (run_id.clone(), lease_epoch, 1));
        assert_eq!(lost.run.unwrap(), super::refused::summary(&run));
    }
    let status = caller.grpc.clone().heartbeat_run(beat(&run_id, 2)).await.unwrap_err();
    Refused::from(status).is(Code::FailedPrecondition, "LEASE_LOST");
    let status = claim(&caller, claiming(&run_id)).await.unwrap_err();
    let refused = Refused::from(status).is(Code::FailedPrecondition, "LEASE_HELD");
    let held: LeaseHeldError = refused.detail("runledger.v1.LeaseHeldError");
    assert_eq!((held.current_epoch, held.expires_at.is_some()), (1, true));
    let status = claim(&caller, claiming(&caller.apply(start(&fresh("bare"))).await.run_id)).await.unwrap_err();
    let held: LeaseHeldError = Refused::from(status).detail("runledger.v1.LeaseHeldError");
    assert_eq!((held.current_epoch, held.expires_at), (0, None));

    let ended = caller.apply(abort(&run_id)).await;
    let status = caller.grpc.clone().heartbeat_run(beat(&run_id, 1)).await.unwrap_err();
    Refused::from(status).is(Code::FailedPrecondition, "RUN_NOT_RUNNING");
    let status = claim(&caller, claiming(&run_id)).await.unwrap_err();
    Refused::from(status).is(Code::FailedPrecondition, "INVALID_TRANSITION");
    assert_eq!(caller.get(&run_id).await, ended, "nothing of it changed anything");
    let status = caller.grpc.clone().heartbeat_run(beat(&fresh("unknown"), 1)).await.unwrap_err();
    Refused::from(status).is(Code::NotFound, "RUN_NOT_FOUND");
}

pub(crate) async fn a_start_with_a_lease_is_replayed_with_it_and_another_grants_nothing(place: Place) {
    let caller = place.caller().await;
    let run_id = fresh("again");
    let asked = Ask::from(leased(&run_id)).request_id("once");
    let run = caller.apply(asked.clone()).await;
    let again = caller.must(asked).await;
    assert_eq!((again.disposition, again.run), (Disposition::Replayed, run.clone()));
    assert_eq!(caller.unchanged(leased(&run_id)).await, run);
    let longer = Ask::from(StartRunRequest { lease_ttl: Some(seconds(61)), ..start(&run_id) }).request_id("once");
    caller.refused(longer).await.is(Code::InvalidArgument, "REQUEST_ID_REUSED");
}

pub(crate) async fn a_request_to_abort_is_told_to_everyone(place: Place) {
    let caller = place.caller().await;
    let run_id = fresh("abort");
    caller.apply(leased(&run_id)).await;
    let mut watch = caller.watch(&run_id, None).await;
    watch.snapshot().await;
    watch.caught_up().await;
    let ask = async |run_id: &str| {
        let asked = RequestAbortRequest {
            run_id: run_id.to_owned(),
            reason: "enough".to_owned(),
            grace: Some(seconds(3_600)),
            ..RequestAbortRequest::default()
        };
        let operator = caller.agent("operator");
        operator.grpc.clone().request_abort(operator.request(asked)).await.unwrap().into_inner()
    };
    let answer = ask(&run_id).await;
    assert_eq!(answer.disposition(), Disposition::Applied);
    let request = answer.run.unwrap().abort_request.unwrap();
    assert_eq!((request.reason.as_str(), request.by.clone().unwrap().agent_id.as_str()), ("enough", "operator"));
    assert!(request.deadline.is_some());
    assert_eq!(watch.change().await.event.unwrap().changes.unwrap().abort_request.as_ref(), Some(&request));
    assert_eq!(ask(&run_id).await.disposition(), Disposition::Unchanged);
    let told = caller.grpc.clone().heartbeat_run(beat(&run_id, 1)).await.unwrap().into_inner();
    assert_eq!(told.abort_request.as_ref(), Some(&request));
    let asked = CompleteRunRequest { lease_epoch: 1, ..complete(&run_id) };
    let answer = caller.grpc.clone().complete_run(asked).await.unwrap().into_inner();
    assert!(answer.abort_requested);
    let run = answer.run.unwrap();
    assert_eq!((run.status(), run.abort_request.as_ref()), (RunStatus::Completed, Some(&request)));

    let pending = fresh("pending");
    caller.apply(deferred(&pending)).await;
    let run = ask(&pending).await.run.unwrap();
    assert_eq!((run.status(), run.reason_code.as_str(), run.revision), (RunStatus::Aborted, "ABORT_REQUESTED", 2));
    assert_eq!((run.failure_reason.as_str(), run.abort_request.is_some(), run.presumed), ("enough", true, false));
}

pub(crate) async fn a_watch_shows_progress_and_a_new_watch_does_not_repeat_it(place: Place) {
    let caller = place.caller().await;
    let run_id = fresh("progress");
    caller.apply(leased(&run_id)).await;
    let say = async |done: u64| {
        let asked = HeartbeatRunRequest { progress: Some(progress(done, 0, "")), ..beat(&run_id, 1) };
        caller.grpc.clone().heartbeat_run(asked).await.unwrap();
    };
    say(1).await;
    let mut watch = caller.watch(&run_id, None).await;
    watch.snapshot().await;
    watch.caught_up().await;
    // Progress is looked up once a second: reports until then may be passed over, and all come in their order.
    let mut done = 1;
    let mut shown = Vec::new();
    while shown.len() < 2 {
        done += 1;
        say(done).await;
        let soon = std::time::Duration::from_millis(100);
        if let Ok(frame) = tokio::time::timeout(soon, watch.try_next()).await {
            match frame.unwrap() {
                Some(Frame::Progressed(progressed)) => shown.push(progressed.progress.unwrap().done),
                Some(Frame::Checkpoint(_)) => {}
                other => panic!("{other:?}"),
            }
        }
    }
    assert!(shown[0] > 1 && shown.is_sorted(), "{shown:?}");
    caller.apply(CompleteRunRequest { lease_epoch: 1, ..complete(&run_id) }).await;
    let rest = watch.rest().await;
    assert!(matches!(rest.last(), Some(Frame::End(_))), "{rest:?}");
}

pub(crate) async fn what_is_reported_late_is_shown_by_every_new_watch(place: Place) {
    let caller = place.caller().await;
    let run_id = fresh("late");
    caller.apply(start(&run_id)).await;
    let mut live = caller.watch(&run_id, Some(1)).await;
    live.caught_up().await;
    let asked =
        RequestAbortRequest { run_id: run_id.clone(), grace: Some(seconds(0)), ..RequestAbortRequest::default() };
    caller.grpc.clone().request_abort(asked).await.unwrap();
    // The authority ends it by itself at its next look.
    assert_eq!(live.change().await.event.unwrap().revision, 2);
    let ended = live.change().await.run.unwrap();
    assert_eq!((ended.status(), ended.reason_code.as_str()), (RunStatus::Aborted, "ABORT_GRACE_EXPIRED"));
    assert!(ended.presumed);
    assert_eq!(live.end().await, ended, "a watch that ended has ended");

    let check = CheckTransitionRequest {
        run_id: run_id.clone(),
        to: RunStatus::Completed.into(),
        ..CheckTransitionRequest::default()
    };
    assert_eq!(caller.check(check.clone()).await.unwrap().disposition(), Disposition::RecordedLate);
    assert_eq!(caller.unchanged(abort(&run_id)).await, ended);
    let late = caller.must(complete(&run_id)).await;
    assert_eq!((late.disposition, late.run.revision), (Disposition::RecordedLate, 4));
    assert_eq!((late.run.status(), late.run.outcome()), (RunStatus::Aborted, RunStatus::Completed));
    assert_eq!(caller.check(check).await.unwrap().disposition(), Disposition::Unchanged);
    assert_eq!(caller.unchanged(complete(&run_id)).await, late.run);
    for after in 0..=4 {
        let mut watch = caller.watch(&run_id, Some(after)).await;
        for revision in after + 1..=4 {
            let change = watch.change().await;
            assert_eq!(change.run.unwrap().revision, revision);
        }
        assert_eq!(watch.end().await, late.run);
    }
    let events = caller.events(&run_id).await;
    assert_eq!((events[3].r#type(), events[3].from, events[3].to), (RunEventType::LateReported, 4, 4));
}

pub(crate) async fn what_is_wrong_with_leases_is_named_field_by_field(place: Place) {
    let caller = place.caller().await;
    let run_id = fresh("wrong");
    let wrong = [
        (
            StartRunRequest { lease_ttl: Some(Duration { seconds: 0, nanos: 999_000_000 }), ..start(&run_id) },
            "lease_ttl",
        ),
        (StartRunRequest { lease_ttl: Some(seconds(86_401)), ..start(&run_id) }, "lease_ttl"),
        (StartRunRequest { lease_ttl: Some(seconds(-1)), ..start(&run_id) }, "lease_ttl"),
        (StartRunRequest { lease_ttl: Some(seconds(1)), ..deferred(&run_id) }, "lease_ttl"),
        (StartRunRequest { start_timeout: Some(seconds(1)), ..start(&run_id) }, "start_timeout"),
        (StartRunRequest { run_timeout: Some(seconds(0)), ..start(&run_id) }, "run_timeout"),
        (StartRunRequest { run_timeout: Some(seconds(367 * 86_400)), ..start(&run_id) }, "run_timeout"),
    ];
    for (asked, field) in wrong {
        assert_eq!(caller.refused(asked.clone()).await.fields(), [field], "{asked:?}");
    }
    let heartbeat = HeartbeatRunRequest {
        run_id: "no/id".to_owned(),
        lease_epoch: 0,
        progress: Some(progress(2, 1, &"x".repeat(257))),
    };
    let status = caller.grpc.clone().heartbeat_run(heartbeat).await.unwrap_err();
    let mut fields = Refused::from(status).fields();
    fields.sort();
    assert_eq!(fields, ["lease_epoch", "progress.done", "progress.message", "run_id"]);
    let asked = UpdateRunRequest { progress: Some(progress(1, 1, "")), ..update(&run_id) };
    assert_eq!(caller.refused(asked).await.fields(), ["progress"]);
    let asked = ReleaseRunRequest { run_id: run_id.clone(), ..Default::default() };
    let status = caller.grpc.clone().release_run(asked).await.unwrap_err();
    assert_eq!(Refused::from(status).fields(), ["lease_epoch"]);
    let status = claim(&caller, ClaimRunRequest { run_id: run_id.clone(), ..Default::default() }).await.unwrap_err();
    assert_eq!(Refused::from(status).fields(), ["lease_ttl"]);
    let filter = RunFilter { statuses: vec![RunStatus::Running.into()], ..RunFilter::default() };
    let asked =
        ClaimNextRunRequest { filter: Some(filter), wait: Some(seconds(86_401)), max_runs: 101, ..Default::default() };
    let mut fields = Refused::from(caller.grpc.clone().claim_next_run(asked).await.unwrap_err()).fields();
    fields.sort();
    assert_eq!(fields, ["filter.statuses", "lease_ttl", "max_runs", "wait"]);
    for (label, limit, wrong) in [
        ("", 1, &["max_running.label"][..]),
        ("instance", 0, &["max_running.limit"]),
        (&"x".repeat(64), 101, &["max_running.label", "max_running.limit"]),
    ] {
        let claim_run = ClaimRunRequest { max_running: Some(limited(label, limit)), ..claiming(&run_id) };
        assert_eq!(Refused::from(claim(&caller, claim_run).await.unwrap_err()).fields(), wrong);
        let asked = ClaimNextRunRequest { max_running: Some(limited(label, limit)), ..next("nobody's") };
        assert_eq!(Refused::from(caller.grpc.clone().claim_next_run(asked).await.unwrap_err()).fields(), wrong);
    }
    let asked = GetRunRequest { run_id: run_id.clone(), queue_label: Some("x".repeat(64)), ..Default::default() };
    let status = caller.grpc.clone().get_run(asked).await.unwrap_err();
    assert_eq!(Refused::from(status).fields(), ["queue_label"]);
    let asked = RequestAbortRequest { run_id, grace: Some(seconds(-1)), ..RequestAbortRequest::default() };
    let status = caller.grpc.clone().request_abort(asked).await.unwrap_err();
    assert_eq!(Refused::from(status).fields(), ["grace"]);
}

pub(crate) async fn a_queue_is_served_first_in_first_out_and_shows_each_runs_place(place: Place) {
    let caller = place.caller().await;
    let pool = fresh("pool");
    let label = |key: &str, value: &str| (key.to_owned(), value.to_owned());
    let mut ids = Vec::new();
    for _ in 0..3 {
        let labels = [label("pool", &pool), label("instance", &format!("é-{pool}"))].into();
        ids.push(caller.apply(StartRunRequest { labels, ..deferred(&fresh("queued")) }).await.run_id);
    }
    let bare = caller.apply(StartRunRequest { labels: [label("other", "x")].into(), ..deferred(&fresh("bare")) }).await;
    let queue = async |run_id: &str| {
        let asked =
            GetRunRequest { run_id: run_id.to_owned(), queue_label: Some("instance".to_owned()), ..Default::default() };
        caller.grpc.clone().get_run(caller.request(asked)).await.unwrap().into_inner().queue
    };
    let at = |position: u64, running: &[&str]| {
        Some(QueuePlace {
            label: "instance".to_owned(),
            value: format!("é-{pool}"),
            position,
            truncated: false,
            running_run_ids: running.iter().map(|&id| id.to_owned()).collect(),
        })
    };
    for (id, position) in ids.iter().zip(1..) {
        assert_eq!(queue(id).await, at(position, &[]));
    }
    assert_eq!(queue(&bare.run_id).await, None, "it does not have the label");
    let claimed = async || {
        let asked = ClaimNextRunRequest { max_running: Some(limited("instance", 1)), ..next(&pool) };
        caller.grpc.clone().claim_next_run(caller.request(asked)).await.unwrap().into_inner().run
    };
    assert_eq!(claimed().await.unwrap().run_id, ids[0]);
    assert_eq!(claimed().await, None);
    assert_eq!((queue(&ids[0]).await, queue(&ids[1]).await), (None, at(1, &[&ids[0]])), "who runs is in no queue");
    assert_eq!(queue(&ids[2]).await, at(2, &[&ids[0]]));

    let asked = ClaimRunRequest { max_running: Some(limited("instance", 1)), ..claiming(&ids[2]) };
    let refused = Refused::from(claim(&caller, asked.clone()).await.unwrap_err());
    let refused = refused.is(Code::FailedPrecondition, "MAX_RUNNING");
    let told: MaxRunningError = refused.detail("runledger.v1.MaxRunningError");
    assert_eq!((told.run_id, told.label, told.value), (ids[2].clone(), "instance".to_owned(), format!("é-{pool}")));
    assert_eq!((told.limit, told.running, told.running_run_ids), (1, 1, vec![ids[0].clone()]));
    assert_eq!(told.run.unwrap().status(), RunStatus::Pending);

    caller.apply(CompleteRunRequest { lease_epoch: 1, ..complete(&ids[0]) }).await;
    assert_eq!(claimed().await.unwrap().run_id, ids[1]);
    caller.apply(abort(&ids[1])).await;
    assert_eq!(claim(&caller, asked).await.unwrap().status(), RunStatus::Running);
    assert_eq!(claimed().await, None);
}

/// Claims several; the disposition, and the ids and epochs of what was granted.
async fn several(caller: &Caller, asked: ClaimNextRunRequest) -> Result<(Disposition, Vec<(String, u64)>), Status> {
    let answer = caller.grpc.clone().claim_next_run(caller.request(asked)).await?.into_inner();
    let disposition = answer.disposition();
    let runs = answer.run.into_iter().chain(answer.more_runs);
    let runs = runs.map(|run| {
        assert_eq!(run.status(), RunStatus::Running);
        (run.run_id.clone(), epoch(&run))
    });
    Ok((disposition, runs.collect()))
}

pub(crate) async fn several_runs_are_claimed_in_one_call_and_come_again_with_its_request_id(place: Place) {
    let caller = place.caller().await;
    let made = async |pool: &str, instance: &str, count: usize| {
        let mut ids = Vec::new();
        for _ in 0..count {
            let labels = [("pool", pool), ("instance", instance)];
            let labels = labels.map(|(key, value)| (key.to_owned(), value.to_owned())).into();
            ids.push((caller.apply(StartRunRequest { labels, ..deferred(&fresh("one")) }).await.run_id, 1));
        }
        ids
    };
    // Who is granted one gets the others that there are, as far as a busy server has the time: so it is tried anew.
    let mut tries = 0;
    let (pool, ids) = loop {
        tries += 1;
        assert!(tries <= 20, "of five runs that wait, three are never had at once");
        let pool = fresh("several");
        let ids = made(&pool, "a", 5).await;
        let first = ClaimNextRunRequest { max_runs: 3, request_id: format!("once-{pool}"), ..next(&pool) };
        let (disposition, granted) = several(&caller, first).await.unwrap();
        assert_eq!((disposition, &granted[..]), (Disposition::Applied, &ids[..granted.len()]));
        if granted.len() == 3 {
            break (pool, ids);
        }
    };
    let asked = |max_runs: u32, request_id: &str| ClaimNextRunRequest {
        max_runs,
        request_id: request_id.to_owned(),
        ..next(&pool)
    };
    let all = async |asked: &ClaimNextRunRequest| {
        let mut all = Vec::new();
        for _ in 0..20 {
            match several(&caller, asked.clone()).await.unwrap() {
                (Disposition::Applied, granted) => all.extend(granted),
                none => return (none, all),
            }
        }
        panic!("there is no end of {all:?}");
    };
    let mut first = asked(3, &format!("once-{pool}"));
    let none = (Disposition::Unspecified, vec![]);
    assert_eq!(all(&asked(100, "")).await, (none.clone(), ids[3..].to_vec()));

    assert_eq!(several(&caller, first.clone()).await.unwrap(), (Disposition::Replayed, ids[..3].to_vec()));
    caller.apply(CompleteRunRequest { lease_epoch: 1, ..complete(&ids[1].0) }).await;
    let left = vec![ids[0].clone(), ids[2].clone()];
    assert_eq!(several(&caller, first.clone()).await.unwrap(), (Disposition::Replayed, left), "what is still its own");
    first.max_runs = 4;
    let refused = Refused::from(several(&caller, first.clone()).await.unwrap_err());
    refused.is(Code::InvalidArgument, "REQUEST_ID_REUSED");
    first.max_runs = 3;
    caller.apply(CompleteRunRequest { lease_epoch: 1, ..complete(&ids[0].0) }).await;
    let left = vec![ids[2].clone()];
    assert_eq!(several(&caller, first.clone()).await.unwrap(), (Disposition::Replayed, left), "one of the others");
    caller.apply(CompleteRunRequest { lease_epoch: 1, ..complete(&ids[2].0) }).await;
    let refused = Refused::from(several(&caller, first).await.unwrap_err());
    refused.is(Code::FailedPrecondition, "LEASE_LOST");

    let (of_a, of_b) = (made(&pool, "a", 2).await, made(&pool, "b", 2).await);
    let limited = ClaimNextRunRequest { max_running: Some(limited("instance", 1)), ..asked(10, "") };
    assert_eq!(all(&limited).await, (none, vec![of_a[0].clone(), of_b[0].clone()]), "one of each instance");
    assert_eq!(several(&caller, asked(0, "")).await.unwrap().1, [of_a[1].clone()], "0 is 1");
}

pub(crate) async fn many_leases_are_renewed_in_one_call_each_with_an_answer_of_its_own(place: Place) {
    let caller = place.caller().await;
    let all = async |heartbeats: Vec<HeartbeatRunRequest>| {
        let asked = caller.request(HeartbeatRunsRequest { heartbeats });
        caller.grpc.clone().heartbeat_runs(asked).await.map(|answer| answer.into_inner().results)
    };
    let ids: Vec<String> = (0..500).map(|_| fresh("many-leases")).collect();
    let starts = ids.iter().map(|run_id| RunCommand { command: Some(run_command::Command::Start(leased(run_id))) });
    let started = caller.apply_commands(starts, None).await.unwrap();
    assert!(started.results.iter().all(|result| result.lease_epoch == 1));
    let before = caller.get(&ids[499]).await.lease.unwrap().expires_at.unwrap();
    let results = all(ids.iter().map(|run_id| beat(run_id, 1)).collect()).await.unwrap();
    assert!(results.iter().map(|result| &result.run_id).eq(&ids), "in their order");
    assert!(results.iter().all(|result| result.error.is_none() && result.renewed.as_ref().unwrap().revision == 1));
    let renewed = results[499].renewed.as_ref().unwrap().expires_at.unwrap();
    assert!((renewed.seconds, renewed.nanos) > (before.seconds, before.nanos));

    let asked = RequestAbortRequest { run_id: ids[2].clone(), ..RequestAbortRequest::default() };
    caller.grpc.clone().request_abort(caller.request(asked)).await.unwrap();
    let worked = HeartbeatRunRequest { progress: Some(progress(1, 2, "half")), ..beat(&ids[0], 1) };
    let unknown = fresh("unknown");
    let mixed = vec![worked, beat(&ids[1], 2), beat(&ids[2], 1), beat(&unknown, 1), beat(&ids[0], 0), beat(&ids[0], 1)];
    let results = all(mixed).await.unwrap();
    let reason = |error: tonic_types::pb::Status| Refused::from(error).reason;
    let reasons = results.iter().map(|result| result.error.clone().map_or_else(String::new, reason));
    let expected = ["", "LEASE_LOST", "", "RUN_NOT_FOUND", "INVALID_FIELD", ""];
    assert!(reasons.eq(expected), "{results:?}");
    assert!(results.iter().all(|result| result.renewed.is_some() == result.error.is_none()));
    assert_eq!((results[3].run_id.as_str(), results[4].run_id.as_str()), (unknown.as_str(), ""), "what cannot be one");
    assert!(results[2].renewed.as_ref().unwrap().abort_request.is_some(), "{results:?}");
    let shown = caller.get(&ids[0]).await.progress.unwrap();
    assert_eq!((shown.done, shown.total, shown.message.as_str()), (1, 2, "half"));

    for heartbeats in [vec![], vec![beat(&ids[0], 1); 501]] {
        let refused = Refused::from(all(heartbeats).await.unwrap_err());
        assert_eq!(refused.fields(), ["heartbeats"]);
    }
}

async fn completed(caller: &Caller, asked: CompleteRunRequest) -> Result<CompleteRunResponse, Status> {
    Ok(caller.grpc.clone().complete_run(caller.request(asked)).await?.into_inner())
}

/// The disposition and the run of the claim that came with a completion.
fn claimed_next(answer: &CompleteRunResponse) -> (Disposition, Option<&str>) {
    assert_eq!(answer.claim_error, None);
    let claimed = answer.claimed.as_ref().unwrap();
    assert_eq!(claimed.more_runs, []);
    (claimed.disposition(), claimed.run.as_ref().map(|run| run.run_id.as_str()))
}

pub(crate) async fn a_completion_claims_the_next_run_and_stands_whatever_becomes_of_the_claim(place: Place) {
    let caller = place.caller().await;
    let (pool, mut ids) = (fresh("one-after-the-other"), Vec::new());
    for _ in 0..3 {
        let labels = [("pool".to_owned(), pool.clone())].into();
        ids.push(caller.apply(StartRunRequest { labels, ..deferred(&fresh("one")) }).await.run_id);
    }
    let by = |id: &str| ClaimNextRunRequest { request_id: format!("{id}-{pool}"), ..next(&pool) };
    let once = by("once");
    let ending = |run: usize, lease_epoch, claim_next: &ClaimNextRunRequest| CompleteRunRequest {
        lease_epoch,
        claim_next: Some(Box::new(claim_next.clone())),
        ..complete(&ids[run])
    };
    assert_eq!(several(&caller, next(&pool)).await.unwrap().1, [(ids[0].clone(), 1)]);

    let wrong = ClaimNextRunRequest { wait: Some(seconds(0)), max_runs: 101, ..ClaimNextRunRequest::default() };
    let wrong = CompleteRunRequest { expected_revision: Some(0), ..ending(0, 1, &wrong) };
    let mut fields = Refused::from(completed(&caller, wrong).await.unwrap_err()).fields();
    fields.sort();
    let of_claim = ["claim_next.lease_ttl", "claim_next.max_runs", "claim_next.request_id", "claim_next.wait"];
    assert_eq!(fields, [&of_claim[..], &["expected_revision"]].concat());
    assert_eq!(caller.get(&ids[0]).await.status(), RunStatus::Running, "nothing was written");
    let refused = Refused::from(completed(&caller, ending(0, 2, &by("a"))).await.unwrap_err());
    refused.is(Code::FailedPrecondition, "LEASE_LOST");
    assert_eq!(caller.get(&ids[1]).await.status(), RunStatus::Pending, "nothing was claimed");
    let command = Some(run_command::Command::Complete(ending(0, 1, &by("a"))));
    let answer = caller.apply_commands(vec![RunCommand { command }], None).await.unwrap();
    assert!(answer.results[0].error.as_ref().unwrap().message.contains("claim_next"), "{answer:?}");

    let answer = completed(&caller, ending(0, 1, &once)).await.unwrap();
    assert_eq!(
        (answer.disposition(), answer.run.as_ref().unwrap().status()),
        (Disposition::Applied, RunStatus::Completed)
    );
    assert_eq!(claimed_next(&answer), (Disposition::Applied, Some(ids[1].as_str())));
    assert_eq!(epoch(answer.claimed.as_ref().unwrap().run.as_ref().unwrap()), 1);
    let answer = completed(&caller, ending(0, 1, &once)).await.unwrap();
    assert_eq!(answer.disposition(), Disposition::Unchanged);
    assert_eq!(claimed_next(&answer), (Disposition::Replayed, Some(ids[1].as_str())), "by the claim's own request id");

    let other = ClaimNextRunRequest { lease_ttl: Some(seconds(61)), ..once };
    let answer = completed(&caller, ending(1, 1, &other)).await.unwrap();
    assert_eq!((answer.disposition(), answer.claimed), (Disposition::Applied, None), "it stands");
    Refused::from(*answer.claim_error.unwrap()).is(Code::InvalidArgument, "REQUEST_ID_REUSED");
    let answer = completed(&caller, ending(1, 1, &by("b"))).await.unwrap();
    assert_eq!(claimed_next(&answer), (Disposition::Applied, Some(ids[2].as_str())));
    let answer = completed(&caller, ending(2, 1, &by("c"))).await.unwrap();
    assert_eq!((answer.disposition(), claimed_next(&answer)), (Disposition::Applied, (Disposition::Unspecified, None)));
    let answer = completed(&caller, CompleteRunRequest { lease_epoch: 1, ..complete(&ids[2]) }).await.unwrap();
    assert_eq!((answer.claimed, answer.claim_error), (None, None), "nobody asked for a claim");
}

pub(crate) async fn a_claim_of_several_runs_takes_what_an_answer_has_room_for(place: Place) {
    let caller = place.caller().await;
    let pool = fresh("large");
    let mut ids = Vec::new();
    for _ in 0..80 {
        let labels = [("pool".to_owned(), pool.clone())].into();
        let metadata = structure(json!({"large": "x".repeat(60_000)}));
        ids.push(caller.apply(StartRunRequest { labels, metadata, ..deferred(&fresh("large")) }).await.run_id);
    }
    let asked = ClaimNextRunRequest { max_runs: 100, wait: Some(seconds(60)), ..next(&pool) };
    let (_, granted) = several(&caller, asked.clone()).await.unwrap();
    assert!((1..60).contains(&granted.len()), "{}", granted.len());
    let (_, left) = several(&caller, ClaimNextRunRequest { max_runs: 1, ..asked.clone() }).await.unwrap();
    let mut all: Vec<(String, u64)> = granted.into_iter().chain(left).collect();
    while all.len() < ids.len() {
        all.extend(several(&caller, asked.clone()).await.unwrap().1);
    }
    // What was given back was granted under one epoch, and given back under the next.
    assert!(all.iter().all(|(_, epoch)| *epoch == 1 || *epoch == 3), "{all:?}");
    let mut all: Vec<String> = all.into_iter().map(|(run_id, _)| run_id).collect();
    all.sort();
    ids.sort();
    assert_eq!(all, ids, "each is granted, and none twice");
}

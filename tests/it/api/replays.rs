//! `request_id`: an applied call is recognised, for ever and everywhere; nothing else is.

use runledger_proto::v1::{AbortRunRequest, Disposition, Run, RunStatus, StartRunRequest, UpdateRunRequest};
use serde_json::json;
use tonic::Code;

use super::caller::{Ask, Caller, THREAD, abort, complete, deferred, fail, fresh, start, update, update_something};
use super::place::{Kind, Own, Place};
use super::values::structure;

/// A call and what it must be answered with ever after.
type Applied = (Ask, Run);

/// Takes a run through its life with a `request_id` on every call.
async fn lived(caller: &Caller, run_id: &str, end: impl Into<Ask>) -> Vec<Applied> {
    let metadata = structure(json!({"a": 1, "b": {"c": 2}}));
    let asks = [
        Ask::from(StartRunRequest { metadata, agent_id: "owner".into(), ..deferred(run_id) }),
        StartRunRequest { workflow_id: "flow".into(), ..start(run_id) }.into(),
        UpdateRunRequest { metadata: structure(json!({"a": null, "d": [1]})), ..update(run_id) }.into(),
        Ask::from(update_something(run_id)).expecting(3),
        end.into().run_id(run_id),
    ];
    let mut applied = Vec::new();
    for (revision, ask) in (1..).zip(asks) {
        let ask = ask.request_id(&format!("request {revision} – é"));
        let run = caller.apply(ask.clone()).await;
        assert_eq!(run.revision, revision);
        applied.push((ask, run));
    }
    applied
}

async fn replayed(caller: &Caller, (ask, run): &Applied, current_revision: u64) {
    let again = caller.must(ask.clone()).await;
    assert_eq!(again.disposition, Disposition::Replayed, "{ask:?}");
    assert_eq!((&again.run, again.current_revision), (run, current_revision), "{ask:?}");
}

pub(crate) async fn an_applied_call_is_replayed_with_the_run_as_then(place: Place) {
    let (caller, other) = (place.caller().await, place.other().await);
    for end in [Ask::from(complete("")), abort("").into(), fail("").into()] {
        let run_id = fresh("replay");
        let applied = lived(&caller, &run_id, end).await;
        for call in &applied {
            replayed(&caller, call, 5).await;
            replayed(&other, call, 5).await;
        }
        assert_eq!(caller.get(&run_id).await, applied[4].1, "a replay changes nothing");
        assert_eq!(other.events(&run_id).await.len(), 5);
    }
}

pub(crate) async fn a_call_is_replayed_while_others_follow(place: Place) {
    let (caller, other) = (place.caller().await, place.other().await);
    let run_id = caller.apply(start(&fresh("between"))).await.run_id;
    let asked = Ask::from(update_something(&run_id)).request_id("r").expecting(1);
    let first = (asked.clone(), caller.apply(asked).await);
    // Past the second keyframe, so that the run as then is folded, not found.
    for step in 0..70 {
        replayed(if step % 2 == 0 { &other } else { &caller }, &first, 2 + step).await;
        caller.apply(UpdateRunRequest { metadata: structure(json!({ "step": step })), ..update(&run_id) }).await;
    }
}

pub(crate) async fn a_call_is_replayed_after_a_crash(place: Place) {
    let mut own = Own::start(if place.kind == Kind::Sqlite { Kind::Sqlite } else { Kind::Replicas }).await;
    let run_id = fresh("crash");
    let applied = lived(&own.caller().await, &run_id, complete("")).await;
    let nameless =
        StartRunRequest { task_thread_id: THREAD.into(), request_id: "s".into(), ..StartRunRequest::default() };
    let nameless = (nameless.clone().into(), own.caller().await.apply(nameless).await);
    own.crash_and_restart().await;
    for caller in [own.caller().await, own.other().await] {
        for call in &applied {
            replayed(&caller, call, 5).await;
        }
        replayed(&caller, &nameless, 1).await;
    }
}

pub(crate) async fn the_same_id_for_another_request_is_refused(place: Place) {
    let caller = place.caller().await;
    let run_id = fresh("reused");
    let applied = lived(&caller, &run_id, abort("")).await;
    let before = caller.get(&run_id).await;
    let mine = |ask: &Ask| ask.clone().request_id("request 3 – é");
    let others = [
        mine(&applied[0].0),
        mine(&applied[3].0),
        mine(&applied[4].0),
        mine(&update(&run_id).into()),
        mine(&applied[2].0.clone().expecting(2)),
        Ask::from(AbortRunRequest { failure_reason: "why".into(), ..abort(&run_id) }).request_id("request 5 – é"),
    ];
    for ask in others {
        for caller in [&caller, &place.other().await] {
            let refused = caller.refused(ask.clone()).await.is(Code::InvalidArgument, "REQUEST_ID_REUSED");
            assert_eq!(refused.info["run_id"], run_id);
        }
    }
    // Another acting agent is another request.
    caller.agent("owner").refused(applied[2].0.clone()).await.is(Code::InvalidArgument, "REQUEST_ID_REUSED");
    assert_eq!(caller.get(&run_id).await, before);
}

pub(crate) async fn an_unchanged_call_is_not_remembered(place: Place) {
    let caller = place.caller().await;
    let running = caller.run_in(RunStatus::Running).await;
    caller.unchanged(Ask::from(start(&running.run_id)).request_id("r")).await;
    caller.unchanged(Ask::from(start(&running.run_id)).request_id("r")).await;
    caller.unchanged(Ask::from(update(&running.run_id)).request_id("r")).await;
    let applied = Ask::from(update_something(&running.run_id)).request_id("r");
    let run = caller.apply(applied.clone()).await;
    replayed(&caller, &(applied, run), 2).await;
}

pub(crate) async fn a_refused_call_is_not_remembered(place: Place) {
    let caller = place.caller().await;
    let run_id = fresh("refused");
    let asked = Ask::from(update_something(&run_id)).request_id("r");
    caller.refused(asked.clone()).await.is(Code::NotFound, "RUN_NOT_FOUND");
    caller.apply(deferred(&run_id)).await;
    caller.refused(asked.clone()).await.is(Code::FailedPrecondition, "RUN_NOT_RUNNING");
    caller.apply(start(&run_id)).await;
    caller.refused(asked.clone().expecting(9)).await.is(Code::Aborted, "REVISION_MISMATCH");
    let run = caller.apply(asked.clone()).await;
    assert_eq!(run.revision, 3);
    replayed(&caller, &(asked, run), 3).await;
}

pub(crate) async fn one_id_serves_one_run_only(place: Place) {
    let caller = place.caller().await;
    for _ in 0..2 {
        let run = caller.run_in(RunStatus::Running).await;
        caller.apply(Ask::from(update_something(&run.run_id)).request_id("the same")).await;
    }
}

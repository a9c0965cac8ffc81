//! The owners of runs, and the callers that made events.

use runledger_proto::v1::{AbortRunRequest, OwnershipError, Principal, PrincipalKind, Run, RunStatus, StartRunRequest};
use tonic::Code;

use super::caller::{Ask, Caller, abort, complete, deferred, fail, fresh, start, update_something};
use super::place::Place;

async fn owned(caller: &Caller) -> Run {
    let asked = StartRunRequest { agent_id: "owner".into(), tab_group_id: "tabs".into(), ..start(&fresh("owned")) };
    caller.apply(asked).await
}

pub(crate) async fn another_agent_may_not_update_complete_or_fail(place: Place) {
    let caller = place.caller().await;
    let run = owned(&caller).await;
    let other = place.other().await.agent("other");
    for (action, ask) in [
        ("UpdateRun", Ask::from(update_something(&run.run_id))),
        ("CompleteRun", complete(&run.run_id).into()),
        ("FailRun", fail(&run.run_id).into()),
    ] {
        let refused = other.refused(ask).await.is(Code::PermissionDenied, "NOT_OWNER");
        let wanted = OwnershipError {
            run_id: run.run_id.clone(),
            agent_id: "other".into(),
            owner_agent_id: "owner".into(),
            tab_group_id: "tabs".into(),
            action: action.into(),
        };
        assert_eq!(refused.detail::<OwnershipError>("runledger.v1.OwnershipError"), wanted);
    }
    assert_eq!(caller.get(&run.run_id).await, run);
}

pub(crate) async fn the_owner_and_who_names_no_agent_may_do_everything(place: Place) {
    let caller = place.caller().await;
    for by in [caller.clone(), caller.agent("owner")] {
        for end in [Ask::from(complete("")), fail("").into(), abort("").into()] {
            let run = owned(&caller).await;
            by.apply(update_something(&run.run_id)).await;
            assert_eq!(by.apply(end.run_id(&run.run_id)).await.revision, 3);
        }
    }
}

pub(crate) async fn an_ownerless_run_is_open_to_every_agent(place: Place) {
    let caller = place.caller().await;
    let run = caller.run_in(RunStatus::Running).await;
    caller.agent("somebody").apply(update_something(&run.run_id)).await;
    let after = caller.agent("another").apply(complete(&run.run_id)).await;
    assert_eq!(after.agent_id, "", "an update and a complete make no owner");
}

pub(crate) async fn an_abort_is_open_to_every_agent(place: Place) {
    let caller = place.caller().await;
    let run = owned(&caller).await;
    let asked = AbortRunRequest { reason_code: "OWNERSHIP_VIOLATION".into(), ..abort(&run.run_id) };
    let aborted = caller.agent("other").apply(asked).await;
    assert_eq!((aborted.status(), aborted.reason_code.as_str()), (RunStatus::Aborted, "OWNERSHIP_VIOLATION"));
    assert_eq!(aborted.agent_id, "owner");
}

pub(crate) async fn every_event_tells_who_made_it(place: Place) {
    let caller = place.caller().await;
    let run_id = caller.apply(deferred(&fresh("principals"))).await.run_id;
    caller.agent("agent-1").apply(start(&run_id)).await;
    caller.apply(update_something(&run_id)).await;
    caller.agent("somebody/else@2").apply(abort(&run_id)).await;
    let principals: Vec<_> = caller.events(&run_id).await.into_iter().map(|event| event.principal.unwrap()).collect();
    let anonymous = Principal { kind: PrincipalKind::Anonymous.into(), ..Principal::default() };
    let claimed = |agent_id: &str| Principal {
        kind: PrincipalKind::Claimed.into(),
        agent_id: agent_id.into(),
        ..Principal::default()
    };
    assert_eq!(principals, [anonymous.clone(), claimed("agent-1"), anonymous, claimed("somebody/else@2")]);
}

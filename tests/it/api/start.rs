//! `StartRun`: once, twice, on a pending run, and whose run it is.

use prost_types::Timestamp;
use runledger_proto::v1::{Route, Run, RunIdConflictError, RunStatus, StartRunRequest};
use serde_json::json;
use tonic::Code;
use uuid::{Uuid, Version};

use super::caller::{THREAD, deferred, fresh, start};
use super::place::Place;
use super::refused::summary;
use super::values::{labels, structure};

fn full(run_id: &str) -> StartRunRequest {
    StartRunRequest {
        route: Route::Mcp.into(),
        fallback_used: true,
        agent_id: "agent".into(),
        tab_group_id: "tabs".into(),
        audit_session_id: "audit".into(),
        workflow_id: "workflow".into(),
        metadata: structure(json!({"a": 1, "b": {"c": [true, null, "x"]}})),
        labels: labels([("team", "blue"), ("tier", "")]),
        ..start(run_id)
    }
}

pub(crate) async fn a_start_creates_the_run_as_it_was_asked_for(place: Place) {
    let caller = place.caller().await;
    let run_id = fresh("full");
    let run = caller.apply(full(&run_id)).await;
    let now = run.started_at;
    assert!(now.as_ref().is_some_and(|at| at.seconds > 1_600_000_000 && at.nanos % 1_000 == 0), "microseconds");
    let wanted = Run {
        task_thread_id: THREAD.into(),
        run_id,
        status: RunStatus::Running.into(),
        started_at: now,
        route: Route::Mcp.into(),
        fallback_used: true,
        agent_id: "agent".into(),
        tab_group_id: "tabs".into(),
        audit_session_id: "audit".into(),
        workflow_id: "workflow".into(),
        completed_at: None,
        failure_reason: String::new(),
        metadata: structure(json!({"a": 1, "b": {"c": [true, null, "x"]}})),
        revision: 1,
        running_at: now,
        updated_at: now,
        reason_code: String::new(),
        labels: labels([("team", "blue"), ("tier", "")]),
        namespace: "default".into(),
        ..Run::default()
    };
    assert_eq!(run, wanted);
    assert_eq!(caller.get(&run.run_id).await, wanted);
}

pub(crate) async fn a_second_start_changes_nothing(place: Place) {
    let caller = place.caller().await;
    let run = caller.apply(full(&fresh("twice"))).await;
    let other = StartRunRequest {
        workflow_id: "another".into(),
        route: Route::Http.into(),
        labels: labels([("new", "label")]),
        metadata: structure(json!({"new": "key"})),
        agent_id: String::new(),
        ..full(&run.run_id)
    };
    for ask in [full(&run.run_id), other.clone(), StartRunRequest { deferred: true, ..other }, start(&run.run_id)] {
        assert_eq!(place.other().await.unchanged(ask).await, run);
    }
    assert_eq!(caller.events(&run.run_id).await.len(), 1);
}

pub(crate) async fn another_identity_is_a_conflict(place: Place) {
    let caller = place.caller().await;
    let run = caller.apply(full(&fresh("identity"))).await;
    for (field, requested, actual, ask) in [
        ("task_thread_id", "else", THREAD, StartRunRequest { task_thread_id: "else".into(), ..full(&run.run_id) }),
        ("agent_id", "else", "agent", StartRunRequest { agent_id: "else".into(), ..full(&run.run_id) }),
        (
            "task_thread_id",
            "else",
            THREAD,
            StartRunRequest { task_thread_id: "else".into(), deferred: true, ..start(&run.run_id) },
        ),
    ] {
        let refused = caller.refused(ask).await.is(Code::AlreadyExists, "RUN_ID_CONFLICT");
        let detail: RunIdConflictError = refused.detail("runledger.v1.RunIdConflictError");
        let wanted = RunIdConflictError {
            field: field.into(),
            requested: requested.into(),
            actual: actual.into(),
            run: Some(summary(&run)),
        };
        assert_eq!(detail, wanted);
        assert_eq!(refused.info["field"], field);
    }
    assert_eq!(caller.get(&run.run_id).await, run);
}

pub(crate) async fn an_agent_named_on_one_side_only_is_no_conflict(place: Place) {
    let caller = place.caller().await;
    let owned = caller.apply(full(&fresh("owned"))).await;
    assert_eq!(caller.unchanged(start(&owned.run_id)).await, owned);
    let ownerless = caller.apply(start(&fresh("ownerless"))).await;
    let claimed = StartRunRequest { agent_id: "agent".into(), ..start(&ownerless.run_id) };
    assert_eq!(caller.unchanged(claimed).await, ownerless);
}

pub(crate) async fn a_deferred_start_waits_in_pending(place: Place) {
    let caller = place.caller().await;
    let pending = caller.apply(deferred(&fresh("deferred"))).await;
    assert_eq!((pending.status(), pending.revision, pending.running_at), (RunStatus::Pending, 1, None));
    assert_eq!(caller.unchanged(deferred(&pending.run_id)).await, pending);
    let running = place.other().await.apply(start(&pending.run_id)).await;
    assert_eq!((running.status(), running.revision), (RunStatus::Running, 2));
    assert_eq!(running.started_at, pending.started_at);
    assert!(running.running_at.is_some() && running.running_at == running.updated_at);
    assert!(micros(running.running_at.as_ref()) >= micros(pending.started_at.as_ref()));
}

fn micros(at: Option<&Timestamp>) -> i64 {
    let at = at.unwrap();
    at.seconds * 1_000_000 + i64::from(at.nanos) / 1_000
}

pub(crate) async fn a_start_of_a_pending_run_takes_over_what_it_names(place: Place) {
    let caller = place.caller().await;
    let pending = caller.apply(StartRunRequest { agent_id: String::new(), deferred: true, ..full(&fresh("p")) }).await;
    let asked = StartRunRequest {
        route: Route::Cli.into(),
        agent_id: "late owner".into(),
        tab_group_id: "other tabs".into(),
        metadata: structure(json!({"a": null, "b": {"d": 2}, "e": "new"})),
        labels: labels([("team", "red"), ("new", "one")]),
        ..start(&pending.run_id)
    };
    let running = caller.apply(asked).await;
    let wanted = Run {
        status: RunStatus::Running.into(),
        revision: 2,
        running_at: running.running_at,
        updated_at: running.updated_at,
        route: Route::Cli.into(),
        agent_id: "late owner".into(),
        tab_group_id: "other tabs".into(),
        metadata: structure(json!({"b": {"c": [true, null, "x"], "d": 2}, "e": "new"})),
        labels: labels([("team", "red"), ("tier", ""), ("new", "one")]),
        ..pending
    };
    assert_eq!(running, wanted, "absent fields stay: audit, workflow and fallback_used");
}

pub(crate) async fn a_bare_start_of_a_pending_run_keeps_everything(place: Place) {
    let caller = place.caller().await;
    let pending = caller.apply(StartRunRequest { deferred: true, ..full(&fresh("bare")) }).await;
    let running = caller.apply(start(&pending.run_id)).await;
    let wanted = Run {
        status: RunStatus::Running.into(),
        revision: 2,
        running_at: running.running_at,
        updated_at: running.updated_at,
        ..pending
    };
    assert_eq!(running, wanted);
}

pub(crate) async fn the_acting_agent_becomes_the_owner(place: Place) {
    let caller = place.caller().await;
    let acting = caller.agent("acting");
    assert_eq!(acting.apply(start(&fresh("acting"))).await.agent_id, "acting");
    let named = StartRunRequest { agent_id: "named".into(), ..start(&fresh("named")) };
    assert_eq!(acting.apply(named).await.agent_id, "named");
    let pending = caller.apply(deferred(&fresh("later"))).await;
    assert_eq!(pending.agent_id, "");
    assert_eq!(acting.apply(start(&pending.run_id)).await.agent_id, "acting");
    let owned = caller.apply(StartRunRequest { agent_id: "first".into(), ..deferred(&fresh("kept")) }).await;
    assert_eq!(acting.apply(start(&owned.run_id)).await.agent_id, "first");
}

pub(crate) async fn without_any_id_every_start_is_a_run_of_its_own(place: Place) {
    let caller = place.caller().await;
    let asked = StartRunRequest { task_thread_id: THREAD.into(), ..StartRunRequest::default() };
    let ids = [caller.apply(asked.clone()).await.run_id, place.other().await.apply(asked).await.run_id];
    assert_ne!(ids[0], ids[1]);
    for id in ids {
        assert_eq!(Uuid::parse_str(&id).unwrap().get_version(), Some(Version::SortRand), "{id}");
    }
}

pub(crate) async fn a_request_id_without_a_run_id_makes_one_run_on_any_replica(place: Place) {
    let caller = place.caller().await;
    let request_id = fresh("request");
    let asked = StartRunRequest { task_thread_id: THREAD.into(), request_id, ..StartRunRequest::default() };
    let first = caller.apply(asked.clone()).await;
    assert_eq!(Uuid::parse_str(&first.run_id).unwrap().get_version(), Some(Version::Custom));
    let again = place.other().await.must(asked.clone()).await;
    assert_eq!((again.run, again.disposition.as_str_name()), (first.clone(), "DISPOSITION_REPLAYED"));
    let another = caller.apply(StartRunRequest { request_id: fresh("request"), ..asked }).await;
    assert_ne!(another.run_id, first.run_id);
}

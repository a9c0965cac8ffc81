//! `UpdateRun`, and the last patch of `CompleteRun`.

use runledger_proto::v1::{CompleteRunRequest, Route, Run, RunEventType, RunStatus, StartRunRequest, UpdateRunRequest};
use serde_json::{Value, json};

use super::caller::{complete, fresh, start, update};
use super::place::Place;
use super::values::{labels, structure};

pub(crate) async fn metadata_is_a_merge_patch(place: Place) {
    let caller = place.caller().await;
    let run_id = caller.apply(start(&fresh("patch"))).await.run_id;
    // After RFC 7396, appendix A, where the patch is an object.
    let steps: [(Value, Value); 9] = [
        (json!({"a": "b"}), json!({"a": "b"})),
        (json!({"a": "c", "n": {"x": {"y": 1}}}), json!({"a": "c", "n": {"x": {"y": 1}}})),
        (
            json!({"n": {"x": {"z": [1, null, {"q": null}]}}}),
            json!({"a": "c", "n": {"x": {"y": 1, "z": [1, null, {"q": null}]}}}),
        ),
        (json!({"n": {"x": {"y": null}}}), json!({"a": "c", "n": {"x": {"z": [1, null, {"q": null}]}}})),
        (json!({"n": {"x": {"z": [2]}}}), json!({"a": "c", "n": {"x": {"z": [2]}}})),
        (json!({"n": {"x": {"z": {"now": "an object"}}}}), json!({"a": "c", "n": {"x": {"z": {"now": "an object"}}}})),
        (json!({"n": "a string"}), json!({"a": "c", "n": "a string"})),
        (json!({"a": null, "n": {"new": {"deep": null, "kept": false}}}), json!({"n": {"new": {"kept": false}}})),
        (json!({"n": {"new": {"kept": null}}}), json!({"n": {"new": {}}})),
    ];
    for (revision, (patch, wanted)) in (2..).zip(steps) {
        let run = caller.apply(UpdateRunRequest { metadata: structure(patch.clone()), ..update(&run_id) }).await;
        assert_eq!((run.metadata, run.revision), (structure(wanted.clone()), revision), "{patch}");
        assert_eq!(caller.get(&run_id).await.metadata, structure(wanted), "{patch}");
    }
}

pub(crate) async fn absent_fields_stay_and_empty_ones_clear(place: Place) {
    let caller = place.caller().await;
    let asked = StartRunRequest { tab_group_id: "tabs".into(), workflow_id: "flow".into(), ..start(&fresh("links")) };
    let run = caller.apply(StartRunRequest { audit_session_id: "audit".into(), ..asked }).await;
    let asked = UpdateRunRequest { workflow_id: Some(String::new()), ..update(&run.run_id) };
    let after = caller.apply(UpdateRunRequest { tab_group_id: Some("other".into()), ..asked }).await;
    let wanted = Run {
        workflow_id: String::new(),
        tab_group_id: "other".into(),
        revision: 2,
        updated_at: after.updated_at,
        ..run
    };
    assert_eq!(after, wanted);
    let asked = UpdateRunRequest { audit_session_id: Some(String::new()), ..update(&wanted.run_id) };
    assert_eq!(caller.apply(asked).await.audit_session_id, "");
}

pub(crate) async fn labels_merge_key_by_key(place: Place) {
    let caller = place.caller().await;
    let asked = StartRunRequest { labels: labels([("a", "1"), ("b", "2"), ("c", "")]), ..start(&fresh("labels")) };
    let run_id = caller.apply(asked).await.run_id;
    let asked = UpdateRunRequest {
        labels: labels([("a", "one"), ("d", "4")]),
        remove_labels: vec!["b".into(), "unknown".into(), "b".into()],
        ..update(&run_id)
    };
    assert_eq!(caller.apply(asked).await.labels, labels([("a", "one"), ("c", ""), ("d", "4")]));
    let both = UpdateRunRequest { labels: labels([("x", "y")]), remove_labels: vec!["x".into()], ..update(&run_id) };
    assert_eq!(caller.refused(both).await.fields(), ["remove_labels[0]"]);
}

pub(crate) async fn a_fallback_never_goes_back(place: Place) {
    let caller = place.caller().await;
    let run_id = caller.apply(StartRunRequest { route: Route::Mcp.into(), ..start(&fresh("route")) }).await.run_id;
    let fell = UpdateRunRequest { route: Route::Cli.into(), fallback_used: true, ..update(&run_id) };
    let run = caller.apply(fell).await;
    assert_eq!((run.route(), run.fallback_used), (Route::Cli, true));
    assert_eq!(caller.unchanged(UpdateRunRequest { fallback_used: false, ..update(&run_id) }).await, run);
    let run = caller.apply(UpdateRunRequest { route: Route::Http.into(), ..update(&run_id) }).await;
    assert_eq!((run.route(), run.fallback_used), (Route::Http, true));
}

pub(crate) async fn an_update_that_changes_nothing_makes_no_event(place: Place) {
    let caller = place.caller().await;
    let asked = StartRunRequest {
        route: Route::Mcp.into(),
        fallback_used: true,
        workflow_id: "flow".into(),
        metadata: structure(json!({"a": {"b": [1.5, "x"]}, "n": 1})),
        labels: labels([("k", "v")]),
        ..start(&fresh("nothing"))
    };
    let run = caller.apply(asked).await;
    let nothing = UpdateRunRequest {
        route: Route::Mcp.into(),
        fallback_used: true,
        workflow_id: Some("flow".into()),
        audit_session_id: Some(String::new()),
        metadata: structure(json!({"a": {"b": [1.5, "x"]}, "unknown": null, "n": 1.0})),
        labels: labels([("k", "v")]),
        remove_labels: vec!["unknown".into()],
        ..update(&run.run_id)
    };
    for ask in [nothing.clone(), update(&run.run_id), UpdateRunRequest { metadata: structure(json!({})), ..nothing }] {
        assert_eq!(caller.unchanged(ask).await, run);
    }
    assert_eq!(caller.events(&run.run_id).await.len(), 1);
}

pub(crate) async fn a_complete_may_carry_a_last_patch(place: Place) {
    let caller = place.caller().await;
    let asked = StartRunRequest { metadata: structure(json!({"a": 1, "b": 2})), ..start(&fresh("last")) };
    let run_id = caller.apply(asked).await.run_id;
    let patch = structure(json!({"a": null, "result": {"ok": true}}));
    let last = CompleteRunRequest { metadata: patch.clone(), ..complete(&run_id) };
    let run = caller.apply(last.clone()).await;
    assert_eq!((run.status(), run.revision), (RunStatus::Completed, 2));
    assert_eq!(run.metadata, structure(json!({"b": 2, "result": {"ok": true}})));
    let events = caller.events(&run_id).await;
    assert_eq!((events.len(), events[1].r#type()), (2, RunEventType::Completed));
    assert_eq!(events[1].changes.as_ref().unwrap().metadata, patch);
    let late = CompleteRunRequest { metadata: structure(json!({"late": 1})), ..last };
    assert_eq!(caller.unchanged(late).await, run);
}

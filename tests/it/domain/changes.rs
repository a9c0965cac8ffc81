//! The fields of an event: those that changed, and no others.

use runledger::domain::decide::Decision;
use runledger::domain::limits::{LABELS_MAX, METADATA_BYTES_MAX};
use runledger::domain::{Bindings, BindingsChange, Changes, Command, LabelsChange, Refusal, Route, Run, Status};
use serde_json::json;

use super::{applied, decided, now, run_in};
use crate::support::commands::{Asking as _, abort, complete, fail, metadata, start, update};

fn rich() -> Run {
    let labels = [("kept", "yes"), ("team", "a")].map(|(key, value)| (key.to_owned(), value.to_owned()));
    let bindings = Bindings {
        route: Some(Route::Mcp),
        fallback_used: true,
        workflow_id: Some("workflow-1".into()),
        audit_session_id: Some("audit-1".into()),
        ..Bindings::default()
    };
    Run {
        bindings,
        labels: labels.into(),
        metadata: metadata(&json!({"n": 1, "deep": {"er": [1, 2]}})),
        ..run_in(Status::Running)
    }
}

#[test]
fn an_update_that_changes_nothing_makes_no_event() {
    for same in [
        update("run-1"),
        update("run-1").workflow("workflow-1"),
        update("run-1").changing(|changes| changes.tab_group_id = Some(String::new())),
        update("run-1").changing(|changes| changes.route = Some(Route::Mcp)),
        update("run-1").changing(|changes| changes.fallback_used = true),
        update("run-1").label("team", "a"),
        update("run-1").without_label("unknown"),
        update("run-1").metadata(&json!({"n": 1.0})),
        update("run-1").metadata(&json!({"unknown": null})),
        update("run-1").metadata(&json!({"deep": {"er": [1, 2]}})),
    ] {
        assert_eq!(decided(Some(&rich()), &same), Ok(Decision::Unchanged), "{same:?}");
    }
}

#[test]
fn an_event_carries_only_what_changed() {
    let asked = update("run-1")
        .workflow("workflow-2")
        .label("team", "b")
        .label("kept", "yes")
        .without_label("unknown")
        .metadata(&json!({"n": 1}))
        .changing(|changes| {
            changes.audit_session_id = Some("audit-1".into());
            changes.route = Some(Route::Mcp);
            changes.fallback_used = true;
        });
    let (event, after) = applied(Some(&rich()), &asked);
    let changed = Changes {
        bindings: BindingsChange { workflow_id: Some("workflow-2".into()), ..BindingsChange::default() },
        labels: LabelsChange { set: [("team".to_owned(), "b".to_owned())].into(), ..LabelsChange::default() },
        ..Changes::default()
    };
    assert_eq!(event.changes, changed);
    let mut expected = rich();
    expected.bindings.workflow_id = Some("workflow-2".into());
    expected.labels.insert("team".into(), "b".into());
    expected.revision = expected.revision.next();
    expected.updated_at = now();
    assert_eq!(after, expected);
}

#[test]
fn an_empty_link_clears_and_an_absent_one_stays() {
    let (event, after) = applied(Some(&rich()), &update("run-1").workflow(""));
    assert_eq!(event.changes.bindings.workflow_id.as_deref(), Some(""));
    assert_eq!((after.bindings.workflow_id, after.bindings.audit_session_id.as_deref()), (None, Some("audit-1")));
}

#[test]
fn the_fallback_flag_never_goes_back() {
    assert!(rich().bindings.fallback_used);
    assert!(applied(Some(&rich()), &update("run-1").workflow("w")).1.bindings.fallback_used);
}

#[test]
fn a_removed_label_is_gone_and_its_neighbours_stay() {
    let (event, after) = applied(Some(&rich()), &update("run-1").without_label("team").label("new", ""));
    assert_eq!(event.changes.labels.remove, ["team".to_owned()].into());
    assert_eq!(after.labels.keys().collect::<Vec<_>>(), ["kept", "new"]);
    assert_eq!(after.labels["new"], "");
}

#[test]
fn a_pending_run_takes_over_what_its_start_brings_and_keeps_the_rest() {
    let pending = Run { status: Status::Pending, running_at: None, ..rich() };
    let asked = start("run-1")
        .owner("owner")
        .workflow("workflow-2")
        .label("team", "b")
        .metadata(&json!({"deep": {"er": null, "new": true}}));
    let (event, after) = applied(Some(&pending), &asked);
    assert_eq!((&event.changes.task_thread_id, &event.changes.agent_id), (&None, &None));
    let mut expected = pending;
    expected.status = Status::Running;
    expected.bindings.workflow_id = Some("workflow-2".into());
    expected.labels.insert("team".into(), "b".into());
    expected.metadata = metadata(&json!({"n": 1, "deep": {"new": true}}));
    expected.revision = expected.revision.next();
    expected.updated_at = now();
    expected.running_at = Some(now());
    assert_eq!(after, expected);
}

#[test]
fn a_completion_may_bring_a_last_patch_in_its_one_event() {
    let (event, after) = applied(Some(&rich()), &complete("run-1").metadata(&json!({"n": null, "result": "ok"})));
    assert_eq!((event.revision, event.to), (rich().revision.next(), Status::Completed));
    assert_eq!(after.metadata, metadata(&json!({"deep": {"er": [1, 2]}, "result": "ok"})));
}

#[test]
fn a_late_end_changes_no_field_of_the_winners_record() {
    for status in [Status::Completed, Status::Aborted, Status::Failed] {
        let late = |command: Command| command.reason("late").changing(|c| c.reason_code = Some("TIMEOUT".into()));
        for command in [late(abort("run-1")), late(fail("run-1"))] {
            assert_eq!(decided(Some(&run_in(status)), &command), Ok(Decision::Unchanged));
        }
    }
    let late = complete("run-1").metadata(&json!({"late": true}));
    assert_eq!(decided(Some(&run_in(Status::Completed)), &late), Ok(Decision::Unchanged));
}

#[test]
fn an_abort_or_failure_keeps_its_reason_and_code() {
    for command in [abort("run-1"), fail("run-1")] {
        let command = command.reason("because").changing(|c| c.reason_code = Some("USER_CANCELLED".into()));
        let after = applied(Some(&rich()), &command).1;
        assert_eq!(after.ending.failure_reason.as_deref(), Some("because"));
        assert_eq!(after.ending.reason_code.as_deref(), Some("USER_CANCELLED"));
    }
}

#[test]
fn times_in_a_run_never_fall_though_the_clock_does() {
    let run = Run { updated_at: runledger::domain::Time::from_micros(9_000_000), ..rich() };
    let (event, after) = applied(Some(&run), &complete("run-1"));
    assert_eq!(
        (event.at, after.completed_at, after.updated_at),
        (run.updated_at, Some(run.updated_at), run.updated_at)
    );
}

#[test]
fn labels_are_limited_after_the_merge() {
    let full = Run { labels: (0..LABELS_MAX).map(|n| (format!("key-{n}"), String::new())).collect(), ..rich() };
    let one_more = update("run-1").label("one-more", "");
    let Err(Refusal::InvalidFields(violations)) = decided(Some(&full), &one_more) else { panic!("33 labels") };
    assert_eq!(violations[0].field, "labels");
    assert_eq!(applied(Some(&full), &one_more.without_label("key-0")).1.labels.len(), LABELS_MAX);
    assert_eq!(applied(Some(&full), &update("run-1").label("key-0", "new")).1.labels.len(), LABELS_MAX);
}

#[test]
fn metadata_is_limited_after_the_merge_to_the_byte() {
    let room = METADATA_BYTES_MAX - rich().metadata.bytes() - r#","fill":"""#.len();
    let at_the_edge = update("run-1").metadata(&json!({"fill": "x".repeat(room)}));
    assert_eq!(applied(Some(&rich()), &at_the_edge).1.metadata.bytes(), METADATA_BYTES_MAX);
    let above = update("run-1").metadata(&json!({"fill": "x".repeat(room + 1)}));
    let Err(Refusal::InvalidFields(violations)) = decided(Some(&rich()), &above) else { panic!("one byte above") };
    assert_eq!(violations[0].field, "metadata");
    let makes_room = update("run-1").metadata(&json!({"fill": "x".repeat(room + 1), "n": null}));
    assert!(applied(Some(&rich()), &makes_room).1.metadata.bytes() < METADATA_BYTES_MAX);
}

#[test]
fn a_digest_covers_every_field_but_the_request_id() {
    let base = || update("run-1").workflow("w");
    assert_eq!(base().digest(), base().request("request-1").digest());
    for other in [
        base().workflow("v"),
        base().by("agent"),
        base().revision(1),
        base().label("a", "b"),
        base().without_label("a"),
        base().metadata(&json!({"a": 1})),
        base().changing(|changes| changes.tab_group_id = Some(String::new())),
        base().changing(|changes| changes.fallback_used = true),
        base().changing(|changes| changes.route = Some(Route::Cli)),
        update("run-2").workflow("w"),
        complete("run-1").workflow("w"),
        start("run-1").workflow("w"),
    ] {
        assert_ne!(base().digest(), other.digest(), "{other:?}");
    }
    let deferred = crate::support::commands::deferred("run-1");
    assert_ne!(deferred.digest(), start("run-1").digest());
}

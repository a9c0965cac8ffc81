//! The largest legal run arrives, whichever way it goes.

use prost::Message as _;
use runledger_proto::v1::{
    FailRunRequest, LifecycleTransitionError, OwnershipError, RevisionMismatchError, Route, Run, RunIdConflictError,
    RunStatus, StartRunRequest, UpdateRunRequest,
};
use serde_json::json;
use tonic::Code;

use super::caller::{Ask, complete, fail, fresh, start};
use super::place::Place;
use super::refused::summary;
use super::values::structure;

/// Every field as long as it may be. The metadata is many small values, which take the most room on the wire.
fn largest() -> StartRunRequest {
    let wide = || "🦀".repeat(64);
    let numbers = "0,".repeat(32_763) + "0";
    let metadata = json!({ "n": serde_json::from_str::<serde_json::Value>(&format!("[{numbers}]")).unwrap() });
    assert!((65_530..=65_536).contains(&metadata.to_string().len()), "{}", metadata.to_string().len());
    StartRunRequest {
        task_thread_id: wide(),
        route: Route::Http.into(),
        fallback_used: true,
        agent_id: "a".repeat(256),
        tab_group_id: wide(),
        audit_session_id: wide(),
        workflow_id: wide(),
        metadata: structure(metadata),
        labels: (0..32).map(|n| (format!("{n:0>2}{:é<30}k", ""), wide())).collect(),
        request_id: "🦀".repeat(32),
        ..start(&format!("{:~<128}", fresh("largest")))
    }
}

/// The largest legal change: a patch may be twice as long as what is kept, so that it deletes all there was.
fn largest_change(run_id: &str) -> UpdateRunRequest {
    let numbers = "0,".repeat(65_531) + "0";
    let metadata = json!({ "n": serde_json::from_str::<serde_json::Value>(&format!("[{numbers}]")).unwrap() });
    assert!((131_060..=131_072).contains(&metadata.to_string().len()), "{}", metadata.to_string().len());
    let largest = largest();
    UpdateRunRequest {
        run_id: run_id.to_owned(),
        audit_session_id: Some(largest.audit_session_id),
        tab_group_id: Some(largest.tab_group_id),
        workflow_id: Some(largest.workflow_id),
        metadata: structure(metadata),
        labels: largest.labels,
        remove_labels: (0..32).map(|n| format!("{n:0>2}{:é<30}r", "")).collect(),
        request_id: "🐢".repeat(32),
        ..UpdateRunRequest::default()
    }
}

pub(crate) async fn the_largest_request_is_received(place: Place) {
    let caller = place.caller().await;
    let run_id = caller.apply(start(&fresh("largest-change"))).await.run_id;
    let asked = largest_change(&run_id);
    let bytes = asked.encoded_len();
    assert!((700_000..1 << 20).contains(&bytes), "{bytes} bytes, of 1 MiB that are taken");
    // The request is received, decoded and checked: the metadata after the merge would be too long.
    let refused = caller.refused(asked).await.is(Code::InvalidArgument, "INVALID_FIELD");
    assert_eq!(refused.fields(), ["metadata"]);
}

pub(crate) async fn the_largest_run_goes_through_everything(place: Place) {
    let caller = place.caller().await;
    let asked = largest();
    let running = caller.apply(asked.clone()).await;
    let run_id = running.run_id.clone();
    assert_eq!((&running.metadata, &running.labels), (&asked.metadata, &asked.labels));
    assert_eq!(caller.get(&run_id).await, running);
    let mut watch = place.other().await.watch(&run_id, Some(0)).await;
    assert_eq!(watch.change().await.run.unwrap(), running);
    assert_eq!(watch.caught_up().await, 1);

    let other = caller.agent(&"b".repeat(256));
    let refused = other.refused(complete(&run_id)).await.is(Code::PermissionDenied, "NOT_OWNER");
    let ownership: OwnershipError = refused.detail("runledger.v1.OwnershipError");
    assert_eq!(
        (ownership.agent_id.len(), ownership.owner_agent_id.len(), ownership.tab_group_id.len()),
        (256, 256, 256)
    );

    let failing = FailRunRequest { failure_reason: "é".repeat(2048), reason_code: "R".repeat(64), ..fail(&run_id) };
    let failed = caller.apply(Ask::from(failing).request_id(&"🐢".repeat(32))).await;
    let wanted = Run {
        status: RunStatus::Failed.into(),
        revision: 2,
        updated_at: failed.updated_at,
        completed_at: failed.completed_at,
        failure_reason: "é".repeat(2048),
        reason_code: "R".repeat(64),
        outcome: RunStatus::Failed.into(),
        ..running.clone()
    };
    assert_eq!(failed, wanted);
    assert!(failed.encoded_len() > 300_000, "{}", failed.encoded_len());
    let change = watch.change().await;
    assert_eq!((change.run.unwrap(), change.event.unwrap().revision), (failed.clone(), 2));
    assert_eq!(watch.end().await, failed);
    assert_eq!(caller.watch(&run_id, None).await.snapshot().await, failed);
    assert_eq!(caller.must(asked.clone()).await.run, running, "a replay shows the run as then");

    let refused = caller.refused(complete(&run_id)).await.is(Code::FailedPrecondition, "INVALID_TRANSITION");
    let detail: LifecycleTransitionError = refused.detail("runledger.v1.LifecycleTransitionError");
    assert_eq!(detail.run, Some(summary(&failed)));
    assert_eq!(detail.run.unwrap().failure_reason, "é".repeat(256), "the first 512 bytes");
    let refused = caller.refused(Ask::from(complete(&run_id)).expecting(u64::MAX)).await;
    let detail: RevisionMismatchError = refused.detail("runledger.v1.RevisionMismatchError");
    assert_eq!(detail.run, Some(summary(&failed)));
    for (field, ask) in [
        (
            "task_thread_id",
            StartRunRequest { task_thread_id: "🐢".repeat(64), request_id: String::new(), ..asked.clone() },
        ),
        ("agent_id", StartRunRequest { agent_id: "🐢".repeat(64), request_id: String::new(), ..asked }),
    ] {
        let refused = caller.refused(ask).await.is(Code::AlreadyExists, "RUN_ID_CONFLICT");
        let detail: RunIdConflictError = refused.detail("runledger.v1.RunIdConflictError");
        assert_eq!((detail.field.as_str(), detail.requested.len(), detail.actual.len()), (field, 256, 256));
        assert_eq!(detail.run, Some(summary(&failed)));
    }
}

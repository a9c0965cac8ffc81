//! What the program finds of its run in its environment.

use std::collections::BTreeMap;
use std::ffi::OsString;

use runledger_client::worker::Held;
use runledger_proto::{json, v1};
use serde_json::Value;

/// The variables that the worker sets or unsets in the program's environment: of the run, and of the servers that are
/// called.
pub(super) fn environment(
    held: &Held,
    called: &[(&'static str, Option<OsString>)],
) -> Vec<(&'static str, Option<OsString>)> {
    let run = &held.run;
    let labels: BTreeMap<&String, &String> = run.labels.iter().collect();
    let of_the_run = [
        ("RUNLEDGER_RUN_ID", run.run_id.clone()),
        ("RUNLEDGER_TASK_THREAD_ID", run.task_thread_id.clone()),
        ("RUNLEDGER_LEASE_EPOCH", held.epoch.to_string()),
        ("RUNLEDGER_LABELS", serde_json::to_string(&labels).expect("texts are JSON")),
        ("RUNLEDGER_PHASE", run.phase.clone()),
        ("RUNLEDGER_SUSPENSION", run.resumed_from.as_deref().map(left).unwrap_or_default()),
        ("RUNLEDGER_ATTEMPT", run.attempt.max(1).to_string()),
        ("RUNLEDGER_LAST_FAILURE", run.last_failure.as_deref().map(last_failure).unwrap_or_default()),
        ("RUNLEDGER_METADATA", run.metadata.as_ref().map_or_else(|| "{}".to_owned(), json::object)),
    ];
    let of_the_run = of_the_run.into_iter().map(|(name, value)| (name, Some(OsString::from(value))));
    of_the_run.chain(called.iter().cloned()).collect()
}

/// How a run was left that the program takes up again, as JSON.
fn left(suspension: &v1::Suspension) -> String {
    let resumed = suspension.resumption.as_ref().map(|resumption| resumption.reason.as_str());
    let left = [
        ("kind", Some(suspension.kind.as_str())),
        ("reason", Some(suspension.reason.as_str())),
        ("resumeHint", Some(suspension.resume_hint.as_str())),
        ("resumeReason", resumed),
    ];
    let left: BTreeMap<&str, &str> =
        left.into_iter().filter_map(|(name, text)| Some((name, text.filter(|text| !text.is_empty())?))).collect();
    serde_json::to_string(&left).expect("texts are JSON")
}

/// How the attempt before this one failed, as JSON.
fn last_failure(failure: &v1::AttemptFailure) -> String {
    let texts = [("reasonCode", &failure.reason_code), ("failureReason", &failure.failure_reason)];
    let texts = texts.into_iter().filter(|(_, text)| !text.is_empty()).map(|(name, text)| (name, text.as_str().into()));
    let said: BTreeMap<&str, Value> = [("attempt", failure.attempt.into())].into_iter().chain(texts).collect();
    serde_json::to_string(&said).expect("texts and numbers are JSON")
}

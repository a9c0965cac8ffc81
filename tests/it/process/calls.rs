//! A call over real gRPC, and what its answer says of the ledger.

use prost_types::Struct;
use prost_types::value::Kind;
use runledger_proto::v1;
use tonic::{Code, Status};
use tonic_types::StatusExt as _;

use super::server::Client;

/// The ask of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    Defer,
    Start,
    /// Writes this number into the metadata, and moves the run to one of two workflows.
    Update(usize),
    /// Leaves this number as the run's result, and a link.
    Leave(usize),
    /// Makes the metadata nearly as large as it may be.
    Bulk,
    Suspend,
    Resume,
    Complete,
    Abort,
    Fail,
}

/// The meaning of an answer for the ledger.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Answer {
    /// The call made this revision.
    Applied(u64),
    /// The call had made this revision before.
    Replayed(u64),
    /// The service does not serve now, for this reason, and the call wrote nothing.
    NothingWritten(String),
    /// The call may have been applied, says the service.
    Unknown(String),
    /// The service said nothing: the connection was cut, or could not be made.
    Cut(String),
}

/// Sends the call. Panics when a refusal comes back that has no place in a sound life of a run.
pub(crate) async fn send(client: &mut Client, run_id: &str, step: Step, request_id: &str) -> Answer {
    match ask(client, run_id, step, request_id).await {
        Ok((disposition, made, current)) => {
            assert!(made <= current, "{run_id} {step:?}");
            match disposition {
                v1::Disposition::Applied => Answer::Applied(made),
                v1::Disposition::Replayed => Answer::Replayed(made),
                other @ (v1::Disposition::Unchanged | v1::Disposition::RecordedLate | v1::Disposition::Unspecified) => {
                    panic!("{run_id} {step:?} {request_id}: {other:?} at {made}")
                }
            }
        }
        Err(status) => meaning(&status),
    }
}

/// The meaning of a status for the ledger, after a check of the details that must come with it.
pub(crate) fn meaning(status: &Status) -> Answer {
    let reason = reason(status);
    match (reason.as_str(), status.code()) {
        ("STORE_UNAVAILABLE" | "DRAINING", Code::Unavailable) | ("OVERLOADED", Code::ResourceExhausted) => {
            let retry = status.get_details_retry_info().and_then(|retry| retry.retry_delay);
            assert!(retry.is_some(), "{reason} says when to come back: {status:?}");
            Answer::NothingWritten(reason)
        }
        ("OUTCOME_UNKNOWN", Code::Unavailable | Code::Unknown) => Answer::Unknown(reason),
        ("", Code::Unavailable | Code::Unknown | Code::Cancelled | Code::Internal) => {
            Answer::Cut(status.message().to_owned())
        }
        _ => panic!("a plain failure: {status:?}"),
    }
}

/// The `ErrorInfo`'s reason; empty when the status is not the service's own.
pub(crate) fn reason(status: &Status) -> String {
    status.get_details_error_info().map(|info| info.reason).unwrap_or_default()
}

/// Sends it: disposition, the revision that it made, the run's revision now.
pub(crate) async fn ask(
    client: &mut Client,
    run_id: &str,
    step: Step,
    request_id: &str,
) -> Result<(v1::Disposition, u64, u64), Status> {
    let (run_id, request_id) = (run_id.to_owned(), request_id.to_owned());
    macro_rules! outcome {
        ($answer:expr) => {{
            let answer = $answer.await?.into_inner();
            let revision = answer.run.as_ref().map_or(0, |run| run.revision);
            Ok((answer.disposition(), revision, answer.current_revision))
        }};
    }
    match step {
        Step::Defer | Step::Start => outcome!(client.start_run(v1::StartRunRequest {
            task_thread_id: "thread".to_owned(),
            deferred: step == Step::Defer,
            run_id,
            request_id,
            ..v1::StartRunRequest::default()
        })),
        Step::Update(number) => outcome!(client.update_run(v1::UpdateRunRequest {
            metadata: Some(numbered(number)),
            workflow_id: Some(format!("workflow-{}", number % 2)),
            run_id,
            request_id,
            ..v1::UpdateRunRequest::default()
        })),
        Step::Leave(number) => outcome!(client.update_run(v1::UpdateRunRequest {
            result: Some(numbered(number)),
            links: vec![v1::Link {
                rel: "artifact".to_owned(),
                // A run has 64 at most.
                target: format!("place-{}", number % 60),
                ..v1::Link::default()
            }],
            run_id,
            request_id,
            ..v1::UpdateRunRequest::default()
        })),
        Step::Bulk => outcome!(client.update_run(v1::UpdateRunRequest {
            metadata: Some(bulk()),
            run_id,
            request_id,
            ..v1::UpdateRunRequest::default()
        })),
        Step::Suspend => outcome!(client.suspend_run(v1::SuspendRunRequest {
            kind: "HELP".to_owned(),
            reason: "which one?".to_owned(),
            run_id,
            request_id,
            ..v1::SuspendRunRequest::default()
        })),
        Step::Resume => outcome!(client.resume_run(v1::ResumeRunRequest {
            reason: "that one".to_owned(),
            run_id,
            request_id,
            ..v1::ResumeRunRequest::default()
        })),
        Step::Complete => outcome!(client.complete_run(v1::CompleteRunRequest {
            run_id,
            request_id,
            ..v1::CompleteRunRequest::default()
        })),
        Step::Abort => {
            outcome!(client.abort_run(v1::AbortRunRequest { run_id, request_id, ..v1::AbortRunRequest::default() }))
        }
        Step::Fail => outcome!(client.fail_run(v1::FailRunRequest {
            failure_reason: "it failed".to_owned(),
            run_id,
            request_id,
            ..v1::FailRunRequest::default()
        })),
    }
}

fn numbered(number: usize) -> Struct {
    one("number", Kind::NumberValue(f64::from(u32::try_from(number).unwrap())))
}

/// Metadata of nearly 64 KiB.
pub(crate) fn bulk() -> Struct {
    one("bulk", Kind::StringValue("x".repeat(65_000)))
}

fn one(field: &str, kind: Kind) -> Struct {
    Struct { fields: [(field.to_owned(), prost_types::Value { kind: Some(kind) })].into() }
}

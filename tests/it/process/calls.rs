//! A call over real gRPC, and what its answer says of the ledger.

use prost_types::Struct;
use prost_types::value::Kind;
use runledger_proto::v1;
use runledger_proto::v1::run_command::Command;
use tonic::{Code, Status};
use tonic_types::{RpcStatusExt as _, StatusExt as _};

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
        Ok(done) => done_as(&format!("{run_id} {step:?} {request_id}"), done),
        Err(status) => meaning(&status),
    }
}

/// The meaning of an answer that is no refusal.
fn done_as(call: &str, (disposition, made, current): (v1::Disposition, u64, u64)) -> Answer {
    assert!(made <= current, "{call}");
    match disposition {
        v1::Disposition::Applied => Answer::Applied(made),
        v1::Disposition::Replayed => Answer::Replayed(made),
        other @ (v1::Disposition::Unchanged | v1::Disposition::RecordedLate | v1::Disposition::Unspecified) => {
            panic!("{call}: {other:?} at {made}")
        }
    }
}

/// Sends calls in one list, each the step of a run under its id.
pub(crate) async fn send_all(client: &mut Client, calls: &[(&str, Step, &str)]) -> Vec<Answer> {
    let commands = calls
        .iter()
        .map(|(run_id, step, request_id)| v1::RunCommand { command: Some(command(run_id, *step, request_id)) });
    let asked = v1::ApplyCommandsRequest { commands: commands.collect(), view: None };
    let results = match client.apply_commands(asked).await {
        Ok(answer) => answer.into_inner().results,
        Err(status) => return vec![meaning(&status); calls.len()],
    };
    assert_eq!(results.len(), calls.len(), "each has a result");
    let meanings = results.into_iter().zip(calls).map(|(result, call)| match &result.error {
        Some(error) => {
            let details = error.get_error_details();
            let reason = details.error_info().map(|info| info.reason.clone()).unwrap_or_default();
            let is_told_when = details.retry_info().is_some_and(|retry| retry.retry_delay.is_some());
            meant(&reason, error.code.into(), &error.message, is_told_when)
        }
        None => done_as(&format!("{call:?}"), (result.disposition(), result.revision, result.current_revision)),
    });
    meanings.collect()
}

/// The meaning of a status for the ledger, after a check of the details that must come with it.
pub(crate) fn meaning(status: &Status) -> Answer {
    let is_told_when = status.get_details_retry_info().is_some_and(|retry| retry.retry_delay.is_some());
    meant(&reason(status), status.code(), status.message(), is_told_when)
}

fn meant(reason: &str, code: Code, message: &str, is_told_when: bool) -> Answer {
    match (reason, code) {
        ("STORE_UNAVAILABLE" | "DRAINING", Code::Unavailable) | ("OVERLOADED", Code::ResourceExhausted) => {
            assert!(is_told_when, "{reason} says when to come back: {message}");
            Answer::NothingWritten(reason.to_owned())
        }
        ("OUTCOME_UNKNOWN", Code::Unavailable | Code::Unknown) => Answer::Unknown(reason.to_owned()),
        ("", Code::Unavailable | Code::Unknown | Code::Cancelled | Code::Internal) => Answer::Cut(message.to_owned()),
        _ => panic!("a plain failure: {reason} {code:?} {message}"),
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
    macro_rules! outcome {
        ($answer:expr) => {{
            let answer = $answer.await?.into_inner();
            let revision = answer.run.as_ref().map_or(0, |run| run.revision);
            Ok((answer.disposition(), revision, answer.current_revision))
        }};
    }
    if step == Step::Resume {
        let (run_id, request_id) = (run_id.to_owned(), request_id.to_owned());
        let reason = "that one".to_owned();
        let asked = v1::ResumeRunRequest { reason, run_id, request_id, ..v1::ResumeRunRequest::default() };
        return outcome!(client.resume_run(asked));
    }
    match command(run_id, step, request_id) {
        Command::Start(asked) => outcome!(client.start_run(asked)),
        Command::Update(asked) => outcome!(client.update_run(asked)),
        Command::Suspend(asked) => outcome!(client.suspend_run(asked)),
        Command::Complete(asked) => outcome!(client.complete_run(asked)),
        Command::Abort(asked) => outcome!(client.abort_run(asked)),
        Command::Fail(asked) => outcome!(client.fail_run(asked)),
        Command::Claim(_) | Command::Release(_) | Command::RequestAbort(_) => unreachable!("no step is one"),
    }
}

/// The step as a command of a list.
fn command(run_id: &str, step: Step, request_id: &str) -> Command {
    let (run_id, request_id) = (run_id.to_owned(), request_id.to_owned());
    match step {
        Step::Defer | Step::Start => Command::Start(v1::StartRunRequest {
            task_thread_id: "thread".to_owned(),
            deferred: step == Step::Defer,
            run_id,
            request_id,
            ..v1::StartRunRequest::default()
        }),
        Step::Update(number) => Command::Update(v1::UpdateRunRequest {
            metadata: Some(numbered(number)),
            workflow_id: Some(format!("workflow-{}", number % 2)),
            run_id,
            request_id,
            ..v1::UpdateRunRequest::default()
        }),
        Step::Leave(number) => Command::Update(v1::UpdateRunRequest {
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
        }),
        Step::Bulk => Command::Update(v1::UpdateRunRequest {
            metadata: Some(bulk()),
            run_id,
            request_id,
            ..v1::UpdateRunRequest::default()
        }),
        Step::Suspend => Command::Suspend(v1::SuspendRunRequest {
            kind: "HELP".to_owned(),
            reason: "which one?".to_owned(),
            run_id,
            request_id,
            ..v1::SuspendRunRequest::default()
        }),
        Step::Resume => unreachable!("no command of a list resumes a run"),
        Step::Complete => {
            Command::Complete(v1::CompleteRunRequest { run_id, request_id, ..v1::CompleteRunRequest::default() })
        }
        Step::Abort => Command::Abort(v1::AbortRunRequest { run_id, request_id, ..v1::AbortRunRequest::default() }),
        Step::Fail => Command::Fail(v1::FailRunRequest {
            failure_reason: "it failed".to_owned(),
            run_id,
            request_id,
            ..v1::FailRunRequest::default()
        }),
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

//! What a failure shows of a refusal's details.

use prost::Message as _;
use prost_reflect::{DescriptorPool, DynamicMessage, Value};
use runledger_client::Failure;
use runledger_proto::{FILE_DESCRIPTOR_SET, v1};
use tonic::{Code, Status};

/// The lines that a refusal with this detail shows.
#[expect(clippy::disallowed_methods, reason = "the server's own maker knows no bare detail")]
fn lines(name: &str, detail: Vec<u8>) -> Vec<String> {
    let detail = prost_types::Any { type_url: format!("type.googleapis.com/{name}"), value: detail };
    let status = tonic_types::pb::Status { details: vec![detail], ..Default::default() };
    Failure::from(&Status::with_details(Code::FailedPrecondition, "refused", status.encode_to_vec().into())).details
}

/// Who made a call that was refused is told how the run stands, by whatever error.
#[test]
fn every_error_that_carries_its_run_shows_it() {
    let pool = DescriptorPool::decode(FILE_DESCRIPTOR_SET).unwrap();
    let errors = pool.get_file_by_name("runledger/v1/error.proto").unwrap();
    let mut shown = 0;
    for message in errors.messages() {
        let Some(field) = message.get_field_by_name("run") else { continue };
        let mut run = DynamicMessage::new(field.kind().as_message().unwrap().clone());
        run.set_field_by_name("run_id", Value::String("run-9".to_owned()));
        let mut error = DynamicMessage::new(message.clone());
        error.set_field(&field, Value::Message(run));
        let lines = lines(message.full_name(), error.encode_to_vec());
        assert!(lines.iter().any(|line| line.starts_with("run run-9 is ")), "{}: {lines:?}", message.name());
        shown += 1;
    }
    assert!(shown > 8, "{shown} errors carry a run");
}

#[test]
fn a_suspended_runs_refusal_says_what_the_run_waits_for_and_who_said_so() {
    let by = v1::Principal { agent_id: "agent-1".to_owned(), ..Default::default() };
    let suspension = v1::Suspension {
        kind: "HELP".to_owned(),
        reason: "a person must sign in".to_owned(),
        resume_hint: "open the tab".to_owned(),
        at: Some(prost_types::Timestamp { seconds: 60, nanos: 0 }),
        by: Some(by),
        ..Default::default()
    };
    let error = v1::RunSuspendedError { suspension: Some(suspension), ..Default::default() };
    let wanted =
        "suspended (HELP) since 1970-01-01T00:01:00Z by agent-1: a person must sign in; to go on: open the tab";
    assert_eq!(lines("runledger.v1.RunSuspendedError", error.encode_to_vec()), [wanted]);
}

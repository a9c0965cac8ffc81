use prost::Message;
use runledger_proto::v1;
use tonic_types::pb::{BadRequest, ErrorInfo, ResourceInfo};

use tonic::{Code, Status};

use super::sealed::{DETAILS_BYTES_MAX, MESSAGE_BYTES_MAX};
use super::*;
use crate::auth::gate::Denied;
use crate::domain::limits::{
    LABEL_KEY_BYTES_MAX, LABEL_VALUE_BYTES_MAX, LIFECYCLE_NAME_BYTES_MAX, LINK_BYTES_MAX, PHASES_MAX,
    REASON_CODE_BYTES_MAX, REQUEST_ID_BYTES_MAX, RUN_ID_BYTES_MAX, SUMMARY_REASON_BYTES_MAX,
};
use crate::domain::{
    Ask, LeaseEpoch, LifecycleId, LifecycleName, MaxRunning, Refusal, Requirement, Status as RunStatus, Summary, Time,
};
use crate::wire::from_domain::FromDomain as _;
use crate::wire::validate::VIOLATIONS_MAX;

/// The longest text of a limit, of one-byte or of four-byte characters.
type Fill = fn(usize) -> String;

const FILLS: [Fill; 3] = [|max| "x".repeat(max), |max| "🦀".repeat(max / 4), |max| "\u{1}".repeat(max)];

/// A refusal, its code and the names of its details.
type Shown = (Refusal, Code, &'static [&'static str]);

fn key() -> RunKey {
    RunKey { namespace: "default".into(), run_id: "r".repeat(RUN_ID_BYTES_MAX).into() }
}

fn summary(fill: Fill) -> Summary {
    let latest = Time::from_micros(i64::MAX);
    Summary {
        namespace: fill(64).into(),
        run_id: key().run_id,
        task_thread_id: fill(LINK_BYTES_MAX),
        agent_id: Some(fill(LINK_BYTES_MAX)),
        status: RunStatus::Completed,
        revision: u64::MAX.into(),
        started_at: latest,
        running_at: Some(latest),
        updated_at: latest,
        completed_at: Some(latest),
        presumed: true,
        reason_code: Some("R".repeat(REASON_CODE_BYTES_MAX)),
        failure_reason: Some(fill(SUMMARY_REASON_BYTES_MAX)),
    }
}

fn lifecycle() -> LifecycleId {
    LifecycleId { name: "l".repeat(LIFECYCLE_NAME_BYTES_MAX), version: u32::MAX }
}

/// The longest name of a phase.
fn phase() -> String {
    "p".repeat(REASON_CODE_BYTES_MAX)
}

fn refusals(fill: Fill) -> Vec<Shown> {
    let link = fill(LINK_BYTES_MAX);
    let run = summary(fill);
    vec![
        (
            Refusal::RequestIdReused { key: key(), request_id: fill(REQUEST_ID_BYTES_MAX) },
            Code::InvalidArgument,
            &["google.rpc.ErrorInfo"],
        ),
        (Refusal::RunNotFound { key: key() }, Code::NotFound, &["google.rpc.ErrorInfo", "google.rpc.ResourceInfo"]),
        (
            Refusal::RunIdConflict {
                field: "task_thread_id",
                requested: link.clone(),
                actual: link.clone(),
                run: run.clone(),
            },
            Code::AlreadyExists,
            &["google.rpc.ErrorInfo", "runledger.v1.RunIdConflictError"],
        ),
        (
            Refusal::NotOwner {
                agent_id: link.clone(),
                owner_agent_id: link.clone(),
                tab_group_id: Some(link),
                rpc: "CompleteRun",
                key: key(),
            },
            Code::PermissionDenied,
            &["google.rpc.ErrorInfo", "runledger.v1.OwnershipError"],
        ),
        (
            Refusal::LeaseLost {
                rpc: "HeartbeatRun",
                asked: u64::MAX.into(),
                epoch: u64::MAX.into(),
                released: false,
                suspended: false,
                ready: false,
                attempt_failed: false,
                run: run.clone(),
            },
            Code::FailedPrecondition,
            &["google.rpc.ErrorInfo", "runledger.v1.LeaseLostError"],
        ),
        (
            Refusal::LeaseHeld {
                epoch: u64::MAX.into(),
                expires_at: Some(run.updated_at),
                ready: false,
                run: run.clone(),
            },
            Code::FailedPrecondition,
            &["google.rpc.ErrorInfo", "runledger.v1.LeaseHeldError"],
        ),
        (
            Refusal::MaxRunning {
                max: MaxRunning { label: fill(LABEL_KEY_BYTES_MAX), limit: u32::MAX },
                value: fill(LABEL_VALUE_BYTES_MAX),
                running: vec![key().run_id; 100],
                run: run.clone(),
            },
            Code::FailedPrecondition,
            &["google.rpc.ErrorInfo", "runledger.v1.MaxRunningError"],
        ),
        (
            Refusal::RevisionMismatch { key: key(), expected: u64::MAX.into(), run: Some(run.clone()) },
            Code::Aborted,
            &["google.rpc.ErrorInfo", "runledger.v1.RevisionMismatchError"],
        ),
        (
            Refusal::RevisionMismatch { key: key(), expected: 7.into(), run: None },
            Code::Aborted,
            &["google.rpc.ErrorInfo", "runledger.v1.RevisionMismatchError"],
        ),
        (
            Refusal::InvalidTransition { run: run.clone(), to: RunStatus::Pending },
            Code::FailedPrecondition,
            &["google.rpc.ErrorInfo", "runledger.v1.LifecycleTransitionError"],
        ),
        (
            Refusal::RunNotRunning { run },
            Code::FailedPrecondition,
            &["google.rpc.ErrorInfo", "runledger.v1.RunSummary"],
        ),
        (
            Refusal::InvalidFields(vec![Violation::new("labels", "too many")]),
            Code::InvalidArgument,
            &["google.rpc.ErrorInfo", "google.rpc.BadRequest"],
        ),
    ]
}

fn refusals_of_lifecycles(fill: Fill) -> Vec<Shown> {
    let run = summary(fill);
    vec![
        (
            Refusal::LifecycleNotFound {
                key: key(),
                lifecycle: LifecycleName { name: lifecycle().name, version: Some(u32::MAX) },
                is_pinned: true,
            },
            Code::NotFound,
            &["google.rpc.ErrorInfo", "google.rpc.ResourceInfo"],
        ),
        (
            Refusal::LifecycleUnsupported { lifecycle: lifecycle(), fields: vec!["max_iterations_then"; 32] },
            Code::FailedPrecondition,
            &["google.rpc.ErrorInfo"],
        ),
        (
            Refusal::InvalidPhase {
                key: key(),
                lifecycle: lifecycle(),
                from: Some(phase()),
                to: phase(),
                completes: false,
                resumes: false,
                allowed: vec![phase(); PHASES_MAX],
                run: Some(run.clone()),
            },
            Code::FailedPrecondition,
            &["google.rpc.ErrorInfo", "runledger.v1.PhaseError"],
        ),
        (
            Refusal::IterationLimit { iteration: u32::MAX, max_iterations: u32::MAX, run: run.clone() },
            Code::FailedPrecondition,
            &["google.rpc.ErrorInfo", "runledger.v1.IterationLimitError"],
        ),
        (
            Refusal::CompletionIncomplete {
                lifecycle: lifecycle(),
                missing: vec![Requirement::Link(phase()); 16],
                went_on: true,
                run,
            },
            Code::FailedPrecondition,
            &["google.rpc.ErrorInfo", "runledger.v1.CompletionIncompleteError"],
        ),
    ]
}

fn refusal(refused: &Refusal) -> Status {
    super::refusal(refused).into()
}

fn invalid(violations: Vec<Violation>) -> Status {
    super::invalid(violations).into()
}

fn rpc(status: &Status) -> tonic_types::pb::Status {
    let rpc = tonic_types::pb::Status::decode(status.details()).unwrap();
    assert!(status.details().len() <= DETAILS_BYTES_MAX, "{} bytes: {status:?}", status.details().len());
    assert!(status.message().len() <= MESSAGE_BYTES_MAX, "{}", status.message());
    assert_eq!((rpc.code, rpc.message.as_str()), (status.code().into(), status.message()));
    rpc
}

fn detail<T: Message + Default>(status: &Status, name: &str) -> T {
    let url = format!("type.googleapis.com/{name}");
    let any = rpc(status).details.into_iter().find(|any| any.type_url == url).unwrap();
    T::decode(any.value.as_slice()).unwrap()
}

/// Many entries, so that an order by chance would show.
#[test]
fn equal_refusals_are_equal_bytes() {
    let made = |numbers: &mut dyn Iterator<Item = u32>| {
        let problem = Problem::new(super::Code::PermissionDenied, "ROLE_DENIED", "no");
        numbers.fold(problem, |problem, number| problem.info(&format!("key-{number}"), &number.to_string())).encoded()
    };
    let (first, backwards) = (made(&mut (0..32)), made(&mut (0..32).rev()));
    assert_eq!(first, backwards);
    for (refusal, ..) in FILLS.into_iter().flat_map(refusals) {
        assert_eq!(super::refusal(&refusal).encoded(), super::refusal(&refusal).encoded());
    }
}

fn info(status: &Status) -> ErrorInfo {
    let info: ErrorInfo = detail(status, "google.rpc.ErrorInfo");
    assert_eq!(info.domain, "runledger");
    info
}

fn names(status: &Status) -> Vec<String> {
    let urls = rpc(status).details.into_iter().map(|any| any.type_url);
    urls.map(|url| url.strip_prefix("type.googleapis.com/").unwrap().to_owned()).collect()
}

#[test]
fn every_refusal_keeps_all_its_details_within_4_kib_whatever_it_holds() {
    for fill in FILLS {
        for (refused, code, details) in refusals(fill).into_iter().chain(refusals_of_lifecycles(fill)) {
            let status = refusal(&refused);
            assert_eq!(status.code(), code, "{refused:?}");
            assert_eq!(info(&status).reason, refused.reason());
            assert_eq!(names(&status), details, "{refused:?}");
            assert!(!info(&status).metadata.is_empty());
        }
    }
}

#[test]
fn the_transition_error_has_the_message_that_bridges_know() {
    let run = Summary { run_id: "run-1".into(), ..summary(FILLS[0]) };
    let status = refusal(&Refusal::InvalidTransition { run: run.clone(), to: RunStatus::Running });
    let error: v1::LifecycleTransitionError = detail(&status, "runledger.v1.LifecycleTransitionError");
    assert_eq!(status.message(), "Invalid lifecycle transition for run run-1: completed → running");
    assert_eq!(error.message, status.message());
    assert_eq!(error.name, "LifecycleTransitionError");
    assert_eq!((error.from(), error.to()), (v1::RunStatus::Completed, v1::RunStatus::Running));
    assert_eq!(error.run, Some(v1::RunSummary::from_domain(&run)));
    let metadata = info(&status).metadata;
    assert_eq!(
        (metadata["run_id"].as_str(), metadata["from"].as_str(), metadata["to"].as_str()),
        ("run-1", "completed", "running")
    );
}

#[test]
fn details_name_what_was_asked_and_what_was_found() {
    let run = summary(FILLS[0]);
    let status = refusal(&Refusal::RevisionMismatch { key: key(), expected: 7.into(), run: Some(run.clone()) });
    let error: v1::RevisionMismatchError = detail(&status, "runledger.v1.RevisionMismatchError");
    assert_eq!((error.expected_revision, error.actual_revision, error.run.is_some()), (7, u64::MAX, true));

    let missing = ResourceInfo {
        resource_type: "runledger.v1.Run".into(),
        resource_name: key().run_id.into(),
        ..ResourceInfo::default()
    };
    let status = refusal(&Refusal::RunNotFound { key: key() });
    assert_eq!(detail::<ResourceInfo>(&status, "google.rpc.ResourceInfo"), missing);

    let status = refusal(&Refusal::RunNotRunning { run: run.clone() });
    assert_eq!(detail::<v1::RunSummary>(&status, "runledger.v1.RunSummary"), v1::RunSummary::from_domain(&run));
}

#[test]
fn who_holds_no_lease_of_a_suspended_run_is_told_what_it_waits_for() {
    let said = |ready| {
        let (rpc, asked, epoch) = ("UpdateRun", LeaseEpoch::NONE, 2.into());
        let run = Summary { run_id: "run-1".into(), status: RunStatus::Running, ..summary(FILLS[0]) };
        let refused = Refusal::LeaseLost {
            rpc,
            asked,
            epoch,
            released: false,
            suspended: true,
            ready,
            attempt_failed: false,
            run,
        };
        refusal(&refused).message().to_owned()
    };
    let rests = "Run run-1 is suspended, and its lease of epoch 2 rests: UpdateRun is its last holder's, who names it.";
    let ready = "Run run-1 was suspended and is ready to go on: claim it, and name the epoch that you get.";
    assert_eq!((said(false).as_str(), said(true).as_str()), (rests, ready));
}

#[test]
fn who_does_not_hold_a_lease_is_told_what_is_so() {
    let said = |rpc, asked: u64, epoch: u64, released, status| {
        let run = Summary { run_id: "run-1".into(), status, ..summary(FILLS[0]) };
        let (asked, epoch) = (asked.into(), epoch.into());
        refusal(&Refusal::LeaseLost {
            rpc,
            asked,
            epoch,
            released,
            suspended: false,
            ready: false,
            attempt_failed: false,
            run,
        })
        .message()
        .to_owned()
    };
    let (running, failed, pending) = (RunStatus::Running, RunStatus::Failed, RunStatus::Pending);
    for rpc in ["HeartbeatRun", "ReleaseRun"] {
        for asked in [0, 1] {
            let none = format!("Run run-1 has no lease: {rpc} is for a run that has one.");
            assert_eq!(said(rpc, asked, 0, false, running), none);
            assert_eq!(said(rpc, asked, 0, false, pending), none);
        }
    }
    for (rpc, asked, epoch, released, status, sentence) in [
        ("CompleteRun", 3, 0, false, running, "Run run-1 has no lease, and CompleteRun named epoch 3: name none."),
        (
            "CompleteRun",
            0,
            2,
            false,
            running,
            "Run run-1 has a lease, of epoch 2: CompleteRun is its holder's, who names the epoch.",
        ),
        (
            "CompleteRun",
            1,
            2,
            false,
            running,
            "Run run-1 is at epoch 2, not 1: its lease is another one by now, stop working on it.",
        ),
        (
            "UpdateRun",
            3,
            2,
            false,
            running,
            "Run run-1 is at epoch 2: the ledger does not know of epoch 3, stop working on it.",
        ),
        (
            "HeartbeatRun",
            2,
            2,
            false,
            running,
            "The lease of epoch 2 of run run-1 is over, and nobody has claimed the run since: finish and report its end, \
             or claim it again.",
        ),
        (
            "HeartbeatRun",
            1,
            2,
            true,
            running,
            "The lease of run run-1 was released, and nobody has claimed it since: claim the run.",
        ),
        ("HeartbeatRun", 1, 2, false, failed, "Run run-1 ended as failed under epoch 2, not 1: stop working on it."),
        ("FailRun", 1, 2, true, failed, "Run run-1 ended as failed, and nobody held it any more: stop working on it."),
        ("ClaimRun", 1, 2, false, running, "Run run-1 is at epoch 2, and the claim expected 1: look at the run again."),
    ] {
        assert_eq!(said(rpc, asked, epoch, released, status), sentence);
    }
}

#[test]
fn what_cannot_simply_be_sent_again_is_named_where_people_look() {
    let message = Status::from(outcome_unknown(false)).message().to_owned();
    assert!(message.contains("applied twice") && message.contains("because of itself"), "{message}");
    let page = include_str!("../../../docs/errors.md");
    let header = include_str!("../../../proto/runledger/v1/run_service.proto");
    let advice = page.split_once("Send the same call again, unless").unwrap().1.split_once("\n## ").unwrap().0;
    let comment = header.split_once("UNKNOWN / OUTCOME_UNKNOWN: it may have been applied, and sent").unwrap().1;
    let comment = comment.split_once("INVALID_ARGUMENT").unwrap().0;
    for ask in Ask::each() {
        let is_named = !ask.is_idempotent() || matches!(ask, Ask::Start(_));
        for text in [advice, comment] {
            assert_eq!(text.contains(ask.facts().rpc), is_named, "{ask:?} in {text}");
        }
    }
}

#[test]
fn every_other_status_has_its_code_and_reason() {
    let source = || "the password is hunter2".into();
    let corrupt =
        StoreError::Corrupt { table: "run_events", column: "event", key: "default/x".into(), source: source() };
    for (problem, code, reason, retry) in [
        (overloaded(), Code::ResourceExhausted, "OVERLOADED", true),
        (store_unavailable(), Code::Unavailable, "STORE_UNAVAILABLE", true),
        (store(&StoreError::Unavailable(source())), Code::Unavailable, "STORE_UNAVAILABLE", true),
        (store(&StoreError::Refused(source())), Code::Internal, "STORE_REFUSED", false),
        (store(&corrupt), Code::Internal, "STORE_CORRUPT", false),
        (denied(Denied::KeysUnavailable), Code::Unavailable, "CREDENTIAL_UNVERIFIED", true),
        (denied(Denied::Busy), Code::ResourceExhausted, "OVERLOADED", true),
        (draining(), Code::Unavailable, "DRAINING", true),
        (outcome_unknown(true), Code::Unavailable, "OUTCOME_UNKNOWN", false),
        (outcome_unknown(false), Code::Unknown, "OUTCOME_UNKNOWN", false),
        (deadline(), Code::DeadlineExceeded, "DEADLINE", false),
        (revision_ahead(&key(), u64::MAX.into(), u64::MAX.into()), Code::OutOfRange, "REVISION_AHEAD", false),
        (page_token_invalid(PageTokenInvalid), Code::InvalidArgument, "PAGE_TOKEN_INVALID", false),
    ] {
        let status = Status::from(problem);
        assert_eq!((status.code(), info(&status).reason.as_str()), (code, reason));
        assert_eq!(names(&status).contains(&RETRY.to_owned()), retry, "{reason}");
        for hidden in ["hunter2", "run_events", "default/x"] {
            assert!(!status.message().contains(hidden) && !String::from_utf8_lossy(status.details()).contains(hidden));
        }
    }
}

#[test]
fn a_few_violations_are_all_listed() {
    let status = invalid((0..3).map(|n| Violation::new(format!("field_{n}"), "is required")).collect());
    let listed: BadRequest = detail(&status, "google.rpc.BadRequest");
    assert_eq!(listed.field_violations.len(), 3);
    assert_eq!(listed.field_violations[2].field, "field_2");
    assert_eq!(status.message(), "Correct 3 fields; all are in the details, the first is field_0: is required");
    let metadata = info(&status).metadata;
    assert_eq!((metadata["violations"].as_str(), metadata["more"].as_str()), ("3", "0"));
}

#[test]
fn of_many_violations_20_are_listed_and_the_rest_is_counted() {
    let status = invalid((0..25).map(|n| Violation::new(format!("field_{n}"), "is required")).collect());
    assert_eq!(detail::<BadRequest>(&status, "google.rpc.BadRequest").field_violations.len(), 20);
    assert!(status.message().contains("25 fields") && status.message().contains("5 more"), "{}", status.message());
    let metadata = info(&status).metadata;
    assert_eq!((metadata["violations"].as_str(), metadata["more"].as_str()), ("25", "5"));
}

#[test]
fn violations_however_long_never_exceed_4_kib_and_never_vanish() {
    for fill in FILLS {
        for count in [1, 2, 20, VIOLATIONS_MAX] {
            for length in [100, 300, 5_000, 100_000] {
                let status = invalid(vec![Violation::new(fill(length), fill(length)); count]);
                let listed = detail::<BadRequest>(&status, "google.rpc.BadRequest").field_violations.len();
                assert!((1..=20).contains(&listed), "{listed} of {count} with {length} bytes");
                let metadata = info(&status).metadata;
                assert_eq!(metadata["violations"], count.to_string());
                assert_eq!(metadata["more"], (count - listed).to_string());
            }
        }
    }
    assert!(invalid(vec![Violation::new("a", "b"); VIOLATIONS_MAX]).message().contains("at least 100 fields"));
}

#[test]
fn a_draft_that_does_not_fit_keeps_its_reason() {
    let huge = "x".repeat(10_000);
    let status = Status::from(Problem::new(super::Code::Aborted, "REASON", huge.as_str()).info("huge", &huge));
    assert_eq!(names(&status), ["google.rpc.ErrorInfo"]);
    assert_eq!(info(&status).reason, "REASON");
    let summary = v1::RunSummary { run_id: huge.clone(), ..v1::RunSummary::default() };
    let problem = Problem::new(super::Code::Aborted, "REASON", "short").info("kept", "1");
    let status = Status::from(problem.detail("runledger.v1.RunSummary", &summary));
    assert_eq!(info(&status).metadata["kept"], "1");
}

#[test]
fn what_cannot_be_decoded_is_an_invalid_field() {
    let error = v1::GetRunRequest::decode([0x0a, 0x02, 0xff, 0xff].as_slice()).unwrap_err();
    let status = Status::from(undecodable(&error));
    assert_eq!((status.code(), info(&status).reason.as_str()), (Code::InvalidArgument, "INVALID_FIELD"));
    let listed: BadRequest = detail(&status, "google.rpc.BadRequest");
    assert_eq!(listed.field_violations[0].field, "request");
    assert!(listed.field_violations[0].description.contains("run_id"), "{listed:?}");
}

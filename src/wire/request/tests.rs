use prost_types::value::Kind;
use prost_types::{Struct, Value};

use super::super::query;
use super::*;
use crate::auth::Rights;
use crate::domain::limits::{
    FAILURE_REASON_BYTES_MAX, LABEL_KEY_BYTES_MAX, LABEL_VALUE_BYTES_MAX, LABELS_MAX, REASON_CODE_BYTES_MAX,
    REQUEST_ID_BYTES_MAX, RUN_ID_BYTES_MAX, UNMASKED_BYTES_MAX,
};
use crate::domain::{Agents, BindingsChange, End, Principal, Request};

const LEDGER: Uuid = Uuid::from_u128(0x0102_0304_0506_0708_090a_0b0c_0d0e_0f10);

fn caller() -> Caller {
    Caller {
        namespace: "default".into(),
        principal: Principal::claimed("agent".into()),
        agents: Agents::All,
        rights: Rights::all(),
    }
}

fn started() -> v1::StartRunRequest {
    v1::StartRunRequest { task_thread_id: "task".into(), run_id: "run".into(), ..v1::StartRunRequest::default() }
}

fn updated() -> v1::UpdateRunRequest {
    v1::UpdateRunRequest { run_id: "run".into(), ..v1::UpdateRunRequest::default() }
}

fn failed() -> v1::FailRunRequest {
    v1::FailRunRequest { run_id: "run".into(), failure_reason: "because".into(), ..v1::FailRunRequest::default() }
}

fn start(change: impl FnOnce(&mut v1::StartRunRequest)) -> Result<Command, Vec<Violation>> {
    let mut request = started();
    change(&mut request);
    start_run(request, &caller(), LEDGER)
}

fn update(change: impl FnOnce(&mut v1::UpdateRunRequest)) -> Result<Command, Vec<Violation>> {
    let mut request = updated();
    change(&mut request);
    update_run(request, &caller())
}

fn fail(change: impl FnOnce(&mut v1::FailRunRequest)) -> Result<Command, Vec<Violation>> {
    let mut request = failed();
    change(&mut request);
    fail_run(request, &caller())
}

fn fields<T>(result: Result<T, Vec<Violation>>) -> Vec<String> {
    result.err().unwrap_or_default().into_iter().map(|violation| violation.field).collect()
}

/// Metadata of exactly so many bytes as compact JSON.
fn metadata_of(bytes: usize) -> Struct {
    let text = "x".repeat(bytes - r#"{"a":""}"#.len());
    Struct { fields: [("a".to_owned(), Value { kind: Some(Kind::StringValue(text)) })].into() }
}

fn labels_of(count: usize) -> std::collections::HashMap<String, String> {
    (0..count).map(|n| (format!("key-{n}"), String::new())).collect()
}

#[test]
fn a_text_is_counted_in_bytes_and_refused_above_its_limit() {
    type Set = fn(&mut v1::StartRunRequest) -> &mut String;
    let cases: [(&str, usize, Set); 6] = [
        ("task_thread_id", LINK_BYTES_MAX, |request| &mut request.task_thread_id),
        ("agent_id", LINK_BYTES_MAX, |request| &mut request.agent_id),
        ("tab_group_id", LINK_BYTES_MAX, |request| &mut request.tab_group_id),
        ("audit_session_id", LINK_BYTES_MAX, |request| &mut request.audit_session_id),
        ("workflow_id", LINK_BYTES_MAX, |request| &mut request.workflow_id),
        ("request_id", REQUEST_ID_BYTES_MAX, |request| &mut request.request_id),
    ];
    for (field, max, set) in cases {
        for (text, sound) in [
            ("x".repeat(max - 1), true),
            ("x".repeat(max), true),
            ("é".repeat(max / 2), true),
            ("x".repeat(max + 1), false),
            ("é".repeat(max / 2 + 1), false),
            ("\u{202e}\u{1b}[31m\n".to_owned(), true),
            ("a\0b".to_owned(), false),
        ] {
            let result = start(|request| text.clone_into(set(request)));
            assert_eq!(fields(result), if sound { vec![] } else { vec![field.to_owned()] }, "{field}: {text:?}");
        }
    }
}

#[test]
fn a_run_id_is_of_its_characters_and_length() {
    for (run_id, sound) in [
        ("a".to_owned(), true),
        ("AZaz09._:~-".to_owned(), true),
        ("r".repeat(RUN_ID_BYTES_MAX), true),
        ("r".repeat(RUN_ID_BYTES_MAX + 1), false),
        ("a b".to_owned(), false),
        ("a/b".to_owned(), false),
        ("é".to_owned(), false),
        ("a\0".to_owned(), false),
        ("a\n".to_owned(), false),
    ] {
        assert_eq!(run_key(run_id.clone(), &caller()).is_ok(), sound, "{run_id:?}");
        assert_eq!(start(|request| run_id.clone_into(&mut request.run_id)).is_ok(), sound, "{run_id:?}");
    }
    assert_eq!(fields(run_key(String::new(), &caller())), ["run_id"]);
    assert_eq!(fields(update_run(v1::UpdateRunRequest::default(), &caller())), ["run_id"]);
}

#[test]
fn a_start_without_a_run_id_gets_one_that_its_retry_meets_again() {
    let key = |request_id: &str| {
        let unnamed = |request: &mut v1::StartRunRequest| {
            request.run_id.clear();
            request_id.clone_into(&mut request.request_id);
        };
        start(unnamed).unwrap().key.run_id
    };
    assert_eq!(key("request-1"), derived_run_id(LEDGER, "default", "request-1"));
    assert_eq!(key("request-1"), key("request-1"));
    assert_ne!(key(""), key(""));
    assert_eq!(Uuid::parse_str(&key("")).unwrap().get_version_num(), 7);
}

#[test]
fn an_empty_text_is_absent_in_a_start_and_clears_in_an_update() {
    let started = start(|_| ()).unwrap().ask;
    assert_eq!(started, Ask::Start(Start { task_thread_id: "task".into(), ..Start::default() }));
    let updated = update(|request| request.workflow_id = Some(String::new())).unwrap().ask;
    let bindings = BindingsChange { workflow_id: Some(String::new()), ..BindingsChange::default() };
    assert_eq!(updated, Ask::Update(Update { bindings, ..Update::default() }));
    let link = "x".repeat(LINK_BYTES_MAX + 1);
    assert_eq!(fields(update(|request| request.tab_group_id = Some(link))), ["tab_group_id"]);
}

#[test]
fn a_request_id_brings_the_digest_of_the_command() {
    let command = start(|request| "request-1".clone_into(&mut request.request_id)).unwrap();
    assert_eq!(command.request, Some(Request { id: "request-1".into(), digest: command.digest() }));
    assert_eq!(start(|_| ()).unwrap().request, None);
    let other = start(|request| "request-2".clone_into(&mut request.request_id)).unwrap();
    assert_eq!(other.digest(), command.digest(), "the digest is of the request without its id");
}

#[test]
fn only_a_start_may_expect_that_no_run_exists() {
    assert_eq!(start(|request| request.expected_revision = Some(0)).unwrap().expected_revision, Some(0.into()));
    assert_eq!(fields(update(|request| request.expected_revision = Some(0))), ["expected_revision"]);
    assert_eq!(fields(fail(|request| request.expected_revision = Some(0))), ["expected_revision"]);
    assert_eq!(
        fail(|request| request.expected_revision = Some(u64::MAX)).unwrap().expected_revision,
        Some(u64::MAX.into())
    );
}

#[test]
fn reasons_are_within_their_rules() {
    for (reason, sound) in [
        ("x".repeat(FAILURE_REASON_BYTES_MAX), true),
        ("x".repeat(FAILURE_REASON_BYTES_MAX + 1), false),
        (String::new(), false),
        ("\0".to_owned(), false),
    ] {
        let expected: &[&str] = if sound { &[] } else { &["failure_reason"] };
        assert_eq!(fields(fail(|request| request.failure_reason = reason)), expected);
    }
    for (code, sound) in [
        (String::new(), true),
        ("A".to_owned(), true),
        ("USER_CANCELLED_2".to_owned(), true),
        ("R".repeat(REASON_CODE_BYTES_MAX), true),
        ("R".repeat(REASON_CODE_BYTES_MAX + 1), false),
        ("_A".to_owned(), false),
        ("1A".to_owned(), false),
        ("a".to_owned(), false),
        ("A-B".to_owned(), false),
        ("A\0".to_owned(), false),
    ] {
        let expected: &[&str] = if sound { &[] } else { &["reason_code"] };
        assert_eq!(fields(fail(|request| code.clone_into(&mut request.reason_code))), expected, "{code:?}");
    }
    let abort = abort_run(v1::AbortRunRequest { run_id: "run".into(), ..v1::AbortRunRequest::default() }, &caller());
    assert_eq!(abort.unwrap().ask, Ask::Abort(End::default()));
}

#[test]
fn labels_are_within_their_rules() {
    let label = |key: &str, value: &str| start(|request| request.labels = [(key.to_owned(), value.to_owned())].into());
    assert!(label(&"k".repeat(LABEL_KEY_BYTES_MAX), &"v".repeat(LABEL_VALUE_BYTES_MAX)).is_ok());
    assert_eq!(fields(label("", "v")), [r#"labels[""]"#]);
    assert_eq!(fields(label("k", &"v".repeat(LABEL_VALUE_BYTES_MAX + 1))), [r#"labels["k"]"#]);
    assert_eq!(fields(label("k\0\n", "v\0")), [r#"labels["k\0\n"]"#; 2]);
    let long = fields(label(&"k".repeat(LABEL_KEY_BYTES_MAX + 2), "v"));
    assert_eq!(long, [format!("labels[\"{}…\"]", "k".repeat(64))]);
    assert!(start(|request| request.labels = labels_of(LABELS_MAX)).is_ok());
    assert_eq!(fields(start(|request| request.labels = labels_of(LABELS_MAX + 1))), ["labels"]);
}

#[test]
fn labels_to_remove_are_within_their_rules() {
    let remove = |keys: Vec<String>| update(|request| request.remove_labels = keys);
    let keys = |count: usize| (0..count).map(|n| format!("key-{n}")).collect::<Vec<_>>();
    let Ask::Update(most) = remove(keys(LABELS_MAX)).unwrap().ask else { panic!("an update") };
    assert_eq!(most.labels.remove.len(), LABELS_MAX);
    assert_eq!(fields(remove(keys(LABELS_MAX + 1))), ["remove_labels"]);
    let wrong = vec![String::new(), "ok".into(), "k".repeat(64), "\0".into()];
    assert_eq!(fields(remove(wrong)), ["remove_labels[0]", "remove_labels[2]", "remove_labels[3]"]);
    let both = update(|request| {
        request.labels = [("k".to_owned(), "v".to_owned())].into();
        request.remove_labels = vec!["k".into()];
    });
    assert_eq!(fields(both), ["remove_labels[0]"]);
}

/// The fields that are too large unless masking makes them small enough, which `decide` knows.
fn oversize(result: Result<Command, Vec<Violation>>) -> Vec<String> {
    result.unwrap().oversize.into_iter().map(|violation| violation.field).collect()
}

#[test]
fn metadata_is_within_its_bytes() {
    let metadata = |bytes| start(|request| request.metadata = Some(metadata_of(bytes)));
    let patch = |bytes| update(|request| request.metadata = Some(metadata_of(bytes)));
    let complete = |bytes| {
        let metadata = Some(metadata_of(bytes));
        complete_run(v1::CompleteRunRequest { run_id: "run".into(), metadata, ..Default::default() }, &caller())
    };
    assert_eq!(oversize(metadata(METADATA_BYTES_MAX)), [""; 0]);
    assert_eq!(oversize(metadata(METADATA_BYTES_MAX + 1)), ["metadata"]);
    for patched in [oversize(patch(METADATA_PATCH_BYTES_MAX)), oversize(complete(METADATA_PATCH_BYTES_MAX))] {
        assert_eq!(patched, [""; 0]);
    }
    for patched in [oversize(patch(METADATA_PATCH_BYTES_MAX + 1)), oversize(complete(METADATA_PATCH_BYTES_MAX + 1))] {
        assert_eq!(patched, ["metadata"]);
    }
    for unmasked in [metadata(UNMASKED_BYTES_MAX + 1), patch(UNMASKED_BYTES_MAX + 1), complete(UNMASKED_BYTES_MAX + 1)]
    {
        assert_eq!(fields(unmasked), ["metadata"], "nothing is masked that is larger than this");
    }
}

#[test]
fn enum_numbers_that_nobody_knows_are_refused() {
    for number in [-1, 4, 99, i32::MAX] {
        assert_eq!(fields(start(|request| request.route = number)), ["route"]);
        assert_eq!(fields(update(|request| request.route = number)), ["route"]);
    }
    let check = |from, to| {
        let request =
            v1::CheckTransitionRequest { from: Some(from), to, run_id: String::new(), to_phase: String::new() };
        check_transition(request, &caller())
    };
    assert_eq!(fields(check(42, -3)), ["from", "to"]);
    assert_eq!(fields(check(0, 0)), ["to"]);
}

#[test]
fn a_transition_is_asked_of_the_matrix_or_of_a_run() {
    let check = |from, to, run_id: &str| {
        check_transition(
            v1::CheckTransitionRequest { from, to, run_id: run_id.into(), to_phase: String::new() },
            &caller(),
        )
    };
    assert_eq!(check(Some(0), 1, ""), Ok(TransitionQuestion::Matrix { from: None, to: Status::Pending }));
    let from = Some(Status::Completed);
    assert_eq!(check(Some(3), 3, ""), Ok(TransitionQuestion::Matrix { from, to: Status::Completed }));
    let key = RunKey { namespace: "default".into(), run_id: "run".into() };
    assert_eq!(
        check(None, 5, "run"),
        Ok(TransitionQuestion::Run { key, transition: Transition { to: Some(Status::Failed), phase: None } })
    );
    assert_eq!(fields(check(None, 5, "a b")), ["run_id"]);
    assert_eq!(fields(check(None, 5, "")), ["from", "run_id"], "a forgotten `from` is no question");
    for from in [0, 1] {
        assert_eq!(fields(check(Some(from), 0, "run")), ["to", "from", "run_id"]);
    }
}

#[test]
fn a_page_size_is_bounded() {
    let list = |page_size| {
        let request = v1::ListRunEventsRequest { run_id: "run".into(), page_size, page_token: String::new() };
        query::list_run_events(&request, &caller()).map(|(_, page_size)| page_size)
    };
    for (asked, given) in [(0, 100), (1, 1), (100, 100), (1000, 1000), (1001, 1000), (i32::MAX, 1000)] {
        assert_eq!(list(asked), Ok(given));
    }
    assert_eq!(fields(list(-1)), ["page_size"]);
}

#[test]
fn one_answer_names_every_violation() {
    let request = v1::StartRunRequest {
        task_thread_id: String::new(),
        run_id: "a b".into(),
        route: 99,
        agent_id: "\0".into(),
        workflow_id: "x".repeat(LINK_BYTES_MAX + 1),
        labels: [(String::new(), "v".repeat(LABEL_VALUE_BYTES_MAX + 1))].into(),
        metadata: Some(Struct { fields: [("n".to_owned(), Value { kind: Some(Kind::NumberValue(f64::NAN)) })].into() }),
        request_id: "x".repeat(REQUEST_ID_BYTES_MAX + 1),
        ..v1::StartRunRequest::default()
    };
    let label = r#"labels[""]"#;
    let expected =
        ["task_thread_id", "agent_id", "route", "workflow_id", label, label, "metadata.n", "run_id", "request_id"];
    assert_eq!(fields(start_run(request, &caller(), LEDGER)), expected);
}

#[test]
fn no_violation_repeats_much_of_what_was_sent() {
    let huge = "🦀\u{7}".repeat(20_000);
    let request = v1::UpdateRunRequest {
        run_id: huge.clone(),
        audit_session_id: Some(huge.clone()),
        request_id: huge.clone(),
        labels: [(huge.clone(), huge.clone())].into(),
        remove_labels: vec![huge.clone()],
        metadata: Some(Struct { fields: [(huge, Value { kind: None })].into() }),
        ..v1::UpdateRunRequest::default()
    };
    for violation in update_run(request, &caller()).unwrap_err() {
        assert!(violation.field.len() <= 110 && violation.description.len() <= 160, "{violation:?}");
        assert!(!violation.field.contains('\u{7}') && !violation.description.contains('\u{7}'));
    }
}

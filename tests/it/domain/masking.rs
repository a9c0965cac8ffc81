//! Masking: what a lifecycle says is never written down.

use runledger::domain::limits::METADATA_BYTES_MAX;
use runledger::domain::{Command, Disposition, Verdict, Violation};
use serde_json::{Value, json};

use super::desk::{Desk, refined};
use crate::support::commands::{Asking as _, TTL_MS, complete, start, sweep, update};
use crate::support::lifecycles::{Standing as _, declared, shipped};

#[test]
fn what_is_masked_is_no_part_of_the_call() {
    let mut desk = Desk::with(&shipped("openchrome.task"));
    let id = "run-1";
    let asked = |secret: Value| {
        let metadata = json!({"url": "a", "userPassword": secret, "list": [[{"Cookie": secret}]]});
        start(id).with("openchrome.task").input(&json!({"TOKEN": secret, "n": 1})).metadata(&metadata).request("r-1")
    };
    let run = desk.apply(asked(json!("hunter2")));
    let text = serde_json::to_string(run.metadata.as_map()).unwrap();
    assert_eq!(text, r#"{"list":[[{"Cookie":"[redacted]"}]],"url":"a","userPassword":"[redacted]"}"#);
    assert!(!format!("{:?}", desk.events).contains("hunter2"));
    for same in [json!("hunter2"), json!("other"), json!({"deep": [1, 2]}), json!("[redacted]")] {
        let again = desk.ask(asked(same));
        assert!(matches!(again, Ok(Verdict::Replayed { .. })), "{again:?}");
    }
    let other =
        asked(json!("hunter2")).changing(|fields| fields.metadata = crate::support::commands::metadata(&json!({})));
    let other = Command { request: None, ..other }.request("r-1");
    assert_eq!(desk.refused(other).reason(), "REQUEST_ID_REUSED", "what is not masked is part of it");
    // A null in a patch deletes what was masked.
    let run =
        desk.apply(update(id).metadata(&json!({"userPassword": null, "api_key": "k"})).result(&json!({"secret": 1})));
    assert_eq!(run.metadata.as_map().get("userPassword"), None);
    assert_eq!(run.metadata.as_map()["api_key"], json!("[redacted]"));
    let digest = runledger::domain::ContentDigest::new(r#"{"secret":"[redacted]"}"#);
    assert_eq!(refined(&run).attachments.result.unwrap().content, digest);
}

#[test]
fn a_retry_is_masked_by_the_version_that_the_run_is_pinned_to() {
    let mut desk = Desk::with("name: a\nphases: {p: {initial: true}}\nredact_keys: [secret]\n");
    let asked = || start("run-1").with("a").metadata(&json!({"secret": 1, "open": 2})).request("r-1");
    desk.apply(asked());
    desk.lifecycles.push(declared("name: a\nphases: {p: {initial: true}}\nredact_keys: [open]\n", 2));
    assert!(matches!(desk.ask(asked()), Ok(Verdict::Replayed { .. })));
    let run = desk.apply(start("run-2").with("a").metadata(&json!({"secret": 1, "open": 2})));
    assert_eq!(run.metadata.as_map()["open"], json!("[redacted]"));
}

#[test]
fn a_late_reports_values_are_masked() {
    let mut desk = Desk::with(&shipped("openchrome.task"));
    desk.apply(start("run-1").with("openchrome.task").lease_ttl_ms(TTL_MS));
    desk.now += 3_600_000_000;
    desk.apply(sweep("run-1"));
    let late =
        complete("run-1").epoch(1).metadata(&json!({"password": "hunter2"})).result(&json!({"token": "hunter2"}));
    let answer = desk.ask(late.phase("work"));
    assert!(matches!(answer, Ok(Verdict::Done(Disposition::RecordedLate, _))), "{answer:?}");
    let report = desk.last().changes.supervision.late_report.clone().unwrap();
    assert_eq!(report.metadata.as_map()["password"], json!("[redacted]"));
    assert_eq!(report.phase.as_deref(), Some("work"));
    assert!(!format!("{:?}", desk.events).contains("hunter2"));
}

/// Nothing looks at a value that is masked, and no refusal names what is in it.
#[test]
fn what_no_json_has_is_refused_only_where_it_is_kept() {
    let mut desk = Desk::with(&shipped("openchrome.task"));
    let with = |run_id: &str, within: &[&str]| {
        let within = Some(within.iter().map(|key| (*key).to_owned()).collect());
        let violation = Violation { within, ..Violation::new("metadata.x", "must be a finite number") };
        let begin = start(run_id).with("openchrome.task").metadata(&json!({"password": {"n": false}, "page": false}));
        Command { oversize: vec![violation], ..begin }
    };
    assert_eq!(desk.apply(with("run-1", &["password", "n"])).metadata.as_map()["password"], json!("[redacted]"));
    for kept in [&["page"][..], &[]] {
        assert_eq!(desk.refused(with("run-2", kept)).reason(), "INVALID_FIELD", "{kept:?}");
    }
    let plain = start("run-3").metadata(&json!({"password": {"n": false}}));
    let plain = Command { oversize: with("run-3", &["password", "n"]).oversize, ..plain };
    assert_eq!(desk.refused(plain).reason(), "INVALID_FIELD", "nothing is masked");
}

#[test]
fn limits_count_what_is_kept() {
    let mut desk = Desk::with(&shipped("openchrome.task"));
    let large = "x".repeat(METADATA_BYTES_MAX);
    let oversize = |command: Command| {
        let violation = runledger::domain::Violation::new("metadata", "is too large");
        Command { oversize: vec![violation], ..command }
    };
    let masked = oversize(start("run-1").with("openchrome.task").metadata(&json!({"password": large})));
    assert_eq!(desk.apply(masked).metadata.as_map()["password"], json!("[redacted]"));
    let open = oversize(start("run-2").with("openchrome.task").metadata(&json!({"page": large, "password": "x"})));
    assert_eq!(desk.refused(open).reason(), "INVALID_FIELD");
    let plain = oversize(start("run-3").metadata(&json!({"password": large})));
    assert_eq!(desk.refused(plain).reason(), "INVALID_FIELD");
}

#[test]
fn who_may_not_write_is_refused_before_any_value_is_looked_at() {
    let mut desk = Desk::with(&shipped("openchrome.task"));
    desk.apply(start("run-1").with("openchrome.task").lease_ttl_ms(TTL_MS));
    let large = |epoch: u64| {
        let command = update("run-1").epoch(epoch).metadata(&json!({"page": "x".repeat(METADATA_BYTES_MAX)}));
        Command { oversize: vec![runledger::domain::Violation::new("metadata", "is too large")], ..command }
    };
    assert_eq!(desk.refused(large(7)).reason(), "LEASE_LOST");
    assert_eq!(desk.refused(Command { expected_revision: Some(9.into()), ..large(1) }).reason(), "REVISION_MISMATCH");
    assert_eq!(desk.refused(large(1)).reason(), "INVALID_FIELD");
}

/// As values of many keys are: before the command is queued.
#[test]
fn what_was_masked_before_is_decided_as_what_is_masked_now() {
    let other = declared("name: openchrome.task\nphases: {p: {initial: true}}\nredact_keys: ['n*']\n", 9);
    let asked = || {
        let metadata = json!({"url": "a", "userPassword": "hunter2", "list": [[{"Cookie": 1}]]});
        start("run-1").with("openchrome.task").input(&json!({"TOKEN": 1, "n": 1})).metadata(&metadata).request("r-1")
    };
    let events = [None, Some(true), Some(false)].map(|is_of_the_same| {
        let mut desk = Desk::with(&shipped("openchrome.task"));
        let mut command = asked();
        match is_of_the_same {
            Some(true) => command.mask_by(&desk.lifecycles[0]),
            Some(false) => command.mask_by(&other),
            None => {}
        }
        desk.apply(command);
        assert!(matches!(desk.ask(asked()), Ok(Verdict::Replayed { .. })), "{is_of_the_same:?}");
        desk.events
    });
    assert_eq!(events[0], events[1]);
    assert_eq!(events[0], events[2], "what another version masks is not believed");
    assert!(!format!("{events:?}").contains("hunter2"));
}

//! Texts of callers come back as they were written, or are refused: the same on every store.

use std::collections::HashMap;

use prost_types::value::Kind;
use runledger_proto::v1::{AbortRunRequest, FailRunRequest, Run, StartRunRequest, UpdateRunRequest};
use serde_json::json;

use super::caller::{Ask, abort, fail, fresh, start, update};
use super::place::Place;
use super::values::{one, structure};

/// Texts that stores, quotes, formats and terminals trip over. Each has at most 63 bytes, so that it can be a label's
/// key.
const HOSTILE: [&str; 24] = [
    " ",
    " a ",
    "\t\r\n",
    "\u{1}\u{2}\u{1f}\u{7f}",
    "\u{80}\u{9f}\u{a0}\u{ad}",
    "'; drop table runs; --",
    "\" or \"\"=\"",
    "\\",
    "\\0 \\u0000 \\x00 \\N \\.",
    "$1 ${x} $$ %s %n {} {0}",
    "null",
    "{\"a\": [1]}",
    "<script>alert(1)</script>",
    "../../etc/passwd",
    "é",
    "e\u{301}",
    "ﬁ Å Å",
    "🦀👩‍👩‍👧",
    "\u{202e}txet\u{200b}\u{feff}",
    "\u{fffd}\u{fffe}\u{ffff}",
    "\u{d7ff}\u{e000}\u{10ffff}",
    "\u{2028}\u{2029}\u{85}",
    "İıßſΣς",
    "a,b;c=d&e#f?g:h@i|j",
];

fn everywhere(run_id: &str, text: &str) -> StartRunRequest {
    let text = text.to_owned();
    StartRunRequest {
        task_thread_id: text.clone(),
        agent_id: text.clone(),
        tab_group_id: text.clone(),
        audit_session_id: text.clone(),
        workflow_id: text.clone(),
        metadata: structure(json!({ &text: &text, "nested": { &text: [&text, { &text: null, "x": &text }] } })),
        labels: HashMap::from([(text.clone(), text.clone()), ("plain".to_owned(), text.clone())]),
        request_id: text,
        ..start(run_id)
    }
}

pub(crate) async fn every_text_comes_back_as_it_was(place: Place) {
    let (caller, other) = (place.caller().await, place.other().await);
    for text in HOSTILE {
        assert!(text.len() <= 63, "{text:?}");
        let asked = everywhere(&fresh("hostile"), text);
        let run = caller.apply(asked.clone()).await;
        // A null member of a patch names nothing in a new run; one in a list is a value like any other.
        let metadata = structure(json!({ text: text, "nested": { text: [text, { text: null, "x": text }] } }));
        let wanted = Run { metadata: metadata.clone(), labels: asked.labels.clone(), ..run.clone() };
        assert_eq!(run, wanted, "{text:?}");
        let texts = [&run.task_thread_id, &run.agent_id, &run.tab_group_id, &run.audit_session_id, &run.workflow_id];
        assert_eq!(texts.map(String::as_str), [text; 5]);
        assert_eq!(other.get(&run.run_id).await, run, "{text:?}");
        assert_eq!(other.must(asked).await.run, run, "its retry is recognised: {text:?}");

        let again = UpdateRunRequest { tab_group_id: Some(String::new()), ..update(&run.run_id) };
        caller.apply(UpdateRunRequest { remove_labels: vec![text.to_owned()], ..again }).await;
        let ended = caller.apply(FailRunRequest { failure_reason: text.into(), ..fail(&run.run_id) }).await;
        assert_eq!((ended.failure_reason.as_str(), ended.tab_group_id.as_str(), ended.labels.len()), (text, "", 1));
        assert_eq!(other.get(&run.run_id).await, ended);
        let events = other.events(&run.run_id).await;
        let changes = events[0].changes.as_ref().unwrap();
        assert_eq!((events[0].request_id.as_str(), &changes.metadata), (text, &metadata), "{text:?}");
        assert_eq!(events[1].changes.as_ref().unwrap().remove_labels, [text]);
        assert_eq!(events[2].changes.as_ref().unwrap().failure_reason.as_deref(), Some(text));
        other.refused(everywhere(&run.run_id, "another")).await;
    }
}

pub(crate) async fn u_0000_is_refused_in_every_place(place: Place) {
    let caller = place.caller().await;
    let run_id = caller.apply(start(&fresh("nul"))).await.run_id;
    let nul = || "a\0b".to_owned();
    let label = |key: String, value: String| HashMap::from([(key, value)]);
    let cases: Vec<(&str, Ask)> = vec![
        ("run_id", start("a\0b").into()),
        ("task_thread_id", StartRunRequest { task_thread_id: nul(), ..start(&run_id) }.into()),
        ("agent_id", StartRunRequest { agent_id: nul(), ..start(&run_id) }.into()),
        ("tab_group_id", StartRunRequest { tab_group_id: nul(), ..start(&run_id) }.into()),
        ("audit_session_id", UpdateRunRequest { audit_session_id: Some(nul()), ..update(&run_id) }.into()),
        ("workflow_id", UpdateRunRequest { workflow_id: Some(nul()), ..update(&run_id) }.into()),
        ("request_id", UpdateRunRequest { request_id: nul(), ..update(&run_id) }.into()),
        ("labels[\"a\\0b\"]", UpdateRunRequest { labels: label(nul(), "v".into()), ..update(&run_id) }.into()),
        ("labels[\"k\"]", UpdateRunRequest { labels: label("k".into(), nul()), ..update(&run_id) }.into()),
        ("remove_labels[0]", UpdateRunRequest { remove_labels: vec![nul()], ..update(&run_id) }.into()),
        ("metadata.k", UpdateRunRequest { metadata: structure(json!({"k": nul()})), ..update(&run_id) }.into()),
        (
            "metadata[\"a\\0b\"]",
            UpdateRunRequest { metadata: structure(json!({ nul(): 1 })), ..update(&run_id) }.into(),
        ),
        (
            "metadata.k.l[1]",
            UpdateRunRequest { metadata: structure(json!({"k": {"l": [1, nul()]}})), ..update(&run_id) }.into(),
        ),
        ("failure_reason", AbortRunRequest { failure_reason: nul(), ..abort(&run_id) }.into()),
        ("failure_reason", FailRunRequest { failure_reason: nul(), ..fail(&run_id) }.into()),
        ("reason_code", FailRunRequest { reason_code: "A\0".into(), ..fail(&run_id) }.into()),
    ];
    for (field, ask) in cases {
        assert_eq!(caller.refused(ask.clone()).await.fields(), [field], "{ask:?}");
    }
    assert_eq!(caller.get(&run_id).await.revision, 1);
}

pub(crate) async fn numbers_come_back_as_doubles(place: Place) {
    let (caller, other) = (place.caller().await, place.other().await);
    let run_id = caller.apply(start(&fresh("numbers"))).await.run_id;
    for (asked, shown) in [
        (1e308, 1e308),
        (f64::MAX, f64::MAX),
        (f64::MIN, f64::MIN),
        (5e-324, 5e-324),
        (9_007_199_254_740_993.0, 9_007_199_254_740_992.0),
        (-9_007_199_254_740_991.0, -9_007_199_254_740_991.0),
        (9_223_372_036_854_775_807.0, 9_223_372_036_854_775_808.0),
        (18_446_744_073_709_551_616.0, 18_446_744_073_709_551_616.0),
        (0.1, 0.1),
        (1.0 / 3.0, 1.0 / 3.0),
        (-0.0, 0.0),
        (1e21, 1e21),
        (123_456_789.012_345_67, 123_456_789.012_345_67),
    ] {
        caller.apply(UpdateRunRequest { metadata: one("n", Kind::NumberValue(asked)), ..update(&run_id) }).await;
        for caller in [&caller, &other] {
            assert_eq!(caller.get(&run_id).await.metadata, one("n", Kind::NumberValue(shown)), "{asked:e}");
        }
    }
    let before = caller.get(&run_id).await;
    for number in [f64::NAN, f64::INFINITY, f64::NEG_INFINITY] {
        let ask = UpdateRunRequest { metadata: one("n", Kind::NumberValue(number)), ..update(&run_id) };
        assert_eq!(caller.refused(ask).await.fields(), ["metadata.n"]);
    }
    assert_eq!(caller.get(&run_id).await, before);
}

//! Values come out as they went in, on every store the same.

use runledger::domain::limits::{
    FAILURE_REASON_BYTES_MAX, LABEL_KEY_BYTES_MAX, LABEL_VALUE_BYTES_MAX, LABELS_MAX, LINK_BYTES_MAX,
    METADATA_BYTES_MAX, METADATA_DEPTH_MAX, REQUEST_ID_BYTES_MAX, RUN_ID_BYTES_MAX,
};
use runledger::domain::{Command, Metadata, Run};
use runledger::store::{PAGE_BYTES_MAX, Store, run_at};
use serde_json::{Value, json};

use super::asking::{apply, ask, ask_all, stored, word, words};
use super::fixture::Fixture;
use super::sound::sound;
use crate::support::commands::{Asking as _, Fields, complete, fail, key, metadata, start, update};

pub(crate) const HOSTILE: [&str; 24] = [
    "'; drop table runs; --",
    "\" or \"\"=\"",
    "\\",
    "\\\\'\\",
    "\\u0000",
    "\\u0000\\uD800",
    "$1 %s {} ${x}",
    "E'\\n' $$ $tag$",
    "{\"json\": null}",
    "{a,b,\"c\",NULL}",
    "NULL",
    "null",
    " leading and trailing ",
    "\t\n\r\u{8}\u{c}\u{1}\u{1f}\u{7f}",
    "\u{ffff}\u{fffe}\u{fffd}",
    "\u{10ffff}\u{10000}",
    "\u{feff}bom",
    "\u{202e}gnp.exe\u{202c}",
    "שלום العربية",
    "👩‍👩‍👧‍👦🏳️‍🌈",
    "e\u{301} é \u{212b} Å",
    "İıſß",
    "\u{80}\u{9f}\u{a0}\u{2028}\u{2029}",
    "日本語テキスト",
];

/// A command on a new run that carries the text wherever one fits.
fn carrying(run_id: &str, text: &str) -> Command {
    let nested = json!({
        "text": text,
        (text): {"list": [text, {(text): text}]},
        "bytes": [0.5, true, null, text],
    });
    start(run_id)
        .thread(text)
        .owner(text)
        .workflow(text)
        .label(text, text)
        .metadata(&nested)
        .by(text)
        .changing(|changes| {
            changes.tab_group_id = Some(text.to_owned());
            changes.audit_session_id = Some(text.to_owned());
        })
        .request(text)
}

fn ending(run_id: &str, text: &str) -> Command {
    fail(run_id).reason(text).changing(|changes| changes.reason_code = Some(text.to_owned())).by(text)
}

/// Whether a run carries the text at each of those places.
fn assert_carries(run: &Run, text: &str) {
    assert_eq!(run.task_thread_id, text);
    for link in [&run.agent_id, &run.bindings.workflow_id, &run.bindings.tab_group_id, &run.bindings.audit_session_id] {
        assert_eq!(link.as_deref(), Some(text));
    }
    assert_eq!(run.labels, [(text.to_owned(), text.to_owned())].into());
    let map = run.metadata.as_map();
    assert_eq!(map["text"], json!(text));
    assert_eq!(map[text]["list"], json!([text, {(text): text}]));
}

pub(crate) async fn hostile_strings_read_back_equal<F: Fixture>(mut fixture: F) {
    for (n, text) in HOSTILE.into_iter().enumerate() {
        let id = format!("run-{n}");
        let created = apply(fixture.store(), carrying(&id, text)).await;
        assert_carries(&created, text);
        assert_eq!(stored(fixture.store(), &key(&id)).await, created, "{text:?}");
        assert_eq!(word(&ask(fixture.store(), carrying(&id, text)).await), "replayed", "{text:?}");
        let ended = apply(fixture.store(), ending(&id, text)).await;
        assert_eq!(
            (ended.ending.failure_reason.as_deref(), ended.ending.reason_code.as_deref()),
            (Some(text), Some(text))
        );
    }
    fixture.reopen().await;
    let contents = sound(fixture.store()).await;
    assert_eq!(contents.runs.len(), HOSTILE.len());
    for (n, text) in HOSTILE.into_iter().enumerate() {
        let key = key(&format!("run-{n}"));
        assert_carries(&contents.runs[&key], text);
        let events = fixture.store().run_events(&key, 0.into(), 10, PAGE_BYTES_MAX).await.unwrap();
        assert_eq!(
            (events[0].request_id.as_deref(), events[0].principal.agent_id.as_deref()),
            (Some(text), Some(text))
        );
    }
}

pub(crate) async fn strings_of_full_length_read_back_equal<F: Fixture>(fixture: F) {
    let full = |bytes: usize| "\u{10ffff}".repeat(bytes / 4) + &"'".repeat(bytes % 4);
    let id = "~".repeat(RUN_ID_BYTES_MAX);
    let link = full(LINK_BYTES_MAX);
    let labels = (0..LABELS_MAX).map(|n| {
        let unique = format!("{n:02}");
        (unique.clone() + &full(LABEL_KEY_BYTES_MAX - 2), unique + &full(LABEL_VALUE_BYTES_MAX - 2))
    });
    let changes = Fields {
        task_thread_id: Some(link.clone()),
        agent_id: Some(link.clone()),
        workflow_id: Some(link.clone()),
        tab_group_id: Some(link.clone()),
        audit_session_id: Some(link.clone()),
        labels: labels.collect(),
        ..Fields::default()
    };
    let begin = || start(&id).changing(|all| *all = changes.clone()).by(&link).request(&full(REQUEST_ID_BYTES_MAX));
    let created = apply(fixture.store(), begin()).await;
    assert_eq!((&created.labels, created.labels.len()), (&changes.labels, LABELS_MAX));
    assert_eq!(stored(fixture.store(), &key(&id)).await, created);
    let end = fail(&id).reason(&full(FAILURE_REASON_BYTES_MAX)).by(&link);
    let ended = apply(fixture.store(), end).await;
    assert_eq!(ended.ending.failure_reason, Some(full(FAILURE_REASON_BYTES_MAX)));
    assert_eq!(word(&ask(fixture.store(), begin()).await), "replayed");
    sound(fixture.store()).await;
}

pub(crate) async fn numbers_read_back_equal<F: Fixture>(fixture: F) {
    let given = r#"{"big":1e308,"neg":-1.7976931348623157e308,"odd":9007199254740993,"even":9007199254740992,
        "tiny":5e-324,"least":2.2250738585072014e-308,"zero":-0.0,"ten":1e19,"i64":9223372036854775807,"tenth":0.1,
        "third":0.3333333333333333,"one":1.0,"u64":18446744073709551615,"list":[1e21,1e-7,123456789012345680000]}"#;
    // Every number the one form of its double, whichever store it comes from.
    let kept = r#"{"big":1e+308,"even":9007199254740992,"i64":9.223372036854776e+18,"least":2.2250738585072014e-308,"#
        .to_owned()
        + r#""list":[1e+21,1e-7,1.2345678901234568e+20],"neg":-1.7976931348623157e+308,"odd":9007199254740992,"#
        + r#""one":1,"ten":1e+19,"tenth":0.1,"third":0.3333333333333333,"tiny":5e-324,"u64":1.8446744073709552e+19,"#
        + r#""zero":0}"#;
    let patch: Metadata = serde_json::from_str(given).unwrap();
    apply(fixture.store(), start("run-1").changing(|changes| changes.metadata = patch.clone())).await;
    let text = |run: Run| serde_json::to_string(&run.metadata).unwrap();
    assert_eq!(text(stored(fixture.store(), &key("run-1")).await), kept);
    assert_eq!(text(run_at(fixture.store(), &key("run-1"), 1.into()).await.unwrap().unwrap()), kept);
    let event = fixture.store().run_events(&key("run-1"), 0.into(), 1, PAGE_BYTES_MAX).await.unwrap().remove(0);
    assert_eq!(serde_json::to_string(&event.changes.metadata).unwrap(), kept);
    // The value that was read back is the one that was given: the same patch changes nothing, and a keyframe keeps it.
    let again = update("run-1").changing(|changes| changes.metadata = patch);
    assert_eq!(word(&ask(fixture.store(), again).await), "unchanged");
    for n in 0..35 {
        apply(fixture.store(), update("run-1").workflow(&n.to_string())).await;
    }
    assert_eq!(text(run_at(fixture.store(), &key("run-1"), 33.into()).await.unwrap().unwrap()), kept);
    sound(fixture.store()).await;
}

pub(crate) async fn deep_and_odd_metadata_reads_back_equal<F: Fixture>(fixture: F) {
    let deepest = (1..METADATA_DEPTH_MAX)
        .fold(json!([]), |inner, n| if n % 2 == 0 { json!([inner]) } else { json!({"d": inner}) });
    let odd = json!({
        "": {"": ""}, "empty": {}, "none": [], "nulls": [null, [null]], "Case": 1, "case": 2, "é": 1, "e\u{301}": 2,
        "z": 1, "a": 2, "aa": 3, "B": 4, "deepest": deepest, "true": true,
    });
    let created = apply(fixture.store(), start("run-1").metadata(&odd)).await;
    assert_eq!(created.metadata, metadata(&odd), "nothing in it is a deletion");
    let read = stored(fixture.store(), &key("run-1")).await;
    assert_eq!(read, created);
    let text = |run: &Run| serde_json::to_string(&run.metadata).unwrap();
    assert_eq!(text(&read), text(&created), "to the byte");
    let patched =
        apply(fixture.store(), update("run-1").metadata(&json!({"": {"": null}, "none": {"now": null}}))).await;
    assert_eq!((&patched.metadata.as_map()[""], &patched.metadata.as_map()["none"]), (&json!({}), &json!({})));
    sound(fixture.store()).await;
}

/// Metadata of exactly this many bytes, most of it in characters of several bytes.
fn of_bytes(bytes: usize) -> Value {
    let frame = r#"{"text":""}"#.len();
    let room = bytes - frame;
    json!({"text": "é".repeat(room / 2) + &"x".repeat(room % 2)})
}

pub(crate) async fn metadata_of_65536_bytes_is_kept_and_a_byte_more_changes_nothing<F: Fixture>(fixture: F) {
    let (edge, above) = (of_bytes(METADATA_BYTES_MAX), of_bytes(METADATA_BYTES_MAX + 1));
    let created = apply(fixture.store(), start("run-1").metadata(&edge)).await;
    assert_eq!(created.metadata.bytes(), METADATA_BYTES_MAX);
    assert_eq!(stored(fixture.store(), &key("run-1")).await, created);
    apply(fixture.store(), start("run-2").metadata(&of_bytes(METADATA_BYTES_MAX - 6))).await;
    let before = sound(fixture.store()).await.runs;
    for refused in [
        start("run-3").metadata(&above),
        update("run-1").metadata(&above),
        update("run-1").metadata(&json!({"a": 1})).workflow("w"),
        complete("run-1").metadata(&json!({"a": 1})),
        update("run-2").metadata(&json!({"a": 10})),
    ] {
        assert_eq!(word(&ask(fixture.store(), refused).await), "INVALID_FIELD");
    }
    assert_eq!(sound(fixture.store()).await.runs, before, "nothing changed");
    assert_eq!(
        apply(fixture.store(), update("run-2").metadata(&json!({"a": 1}))).await.metadata.bytes(),
        METADATA_BYTES_MAX
    );
    assert_eq!(word(&ask(fixture.store(), update("run-1").metadata(&json!({"text": null, "a": 1}))).await), "applied");
    sound(fixture.store()).await;
}

pub(crate) async fn thirty_two_labels_are_kept_and_one_more_changes_nothing<F: Fixture>(fixture: F) {
    let labelled = |command: Command, range: std::ops::Range<usize>| {
        range.fold(command, |command, n| command.label(&format!("key-{n}"), &n.to_string()))
    };
    assert_eq!(word(&ask(fixture.store(), labelled(start("run-1"), 0..33)).await), "INVALID_FIELD");
    apply(fixture.store(), labelled(start("run-1"), 0..20)).await;
    let full = apply(fixture.store(), labelled(update("run-1"), 20..32)).await;
    assert_eq!(full.labels.len(), LABELS_MAX);
    let refused = update("run-1").label("key-32", "").workflow("w");
    let swapped = update("run-1").label("key-32", "").without_label("key-0");
    let answers = ask_all(fixture.store(), vec![refused, swapped.clone(), swapped]).await;
    assert_eq!(words(&answers), ["INVALID_FIELD", "applied", "unchanged"]);
    let run = stored(fixture.store(), &key("run-1")).await;
    assert_eq!((run.labels.len(), run.bindings.workflow_id, run.labels.get("key-0")), (LABELS_MAX, None, None));
    // All of them at once.
    let none = (1..33).fold(update("run-1"), |command, n| command.without_label(&format!("key-{n}")));
    assert!(apply(fixture.store(), none).await.labels.is_empty());
    assert!(stored(fixture.store(), &key("run-1")).await.labels.is_empty());
    sound(fixture.store()).await;
}

/// The metadata's column is left alone by most changes, and emptied by a patch that deletes everything.
pub(crate) async fn metadata_survives_changes_that_do_not_touch_it<F: Fixture>(fixture: F) {
    let store: &dyn Store = fixture.store();
    apply(store, start("run-1").metadata(&json!({"a": 1}))).await;
    apply(store, start("run-2")).await;
    apply(store, update("run-1").workflow("w")).await;
    // In one batch: touched, then not touched.
    ask_all(
        store,
        vec![update("run-2").metadata(&json!({"b": [2]})), update("run-2").workflow("w"), complete("run-2")],
    )
    .await;
    assert_eq!(stored(store, &key("run-1")).await.metadata, metadata(&json!({"a": 1})));
    assert_eq!(stored(store, &key("run-2")).await.metadata, metadata(&json!({"b": [2]})));
    apply(store, update("run-1").metadata(&json!({"a": null}))).await;
    assert!(stored(store, &key("run-1")).await.metadata.is_empty());
    apply(store, complete("run-1").metadata(&json!({"last": "word"}))).await;
    assert_eq!(stored(store, &key("run-1")).await.metadata, metadata(&json!({"last": "word"})));
    sound(store).await;
}

//! Every field's limit, in bytes: at it, below it, above it.

use std::collections::HashMap;

use runledger_proto::v1::{
    AbortRunRequest, CompleteRunRequest, FailRunRequest, Run, StartRunRequest, UpdateRunRequest,
};
use serde_json::json;

use super::caller::{Ask, abort, complete, fail, fresh, start, update};
use super::place::Place;
use super::values::{metadata_of, nested, structure};

/// A text field: its name, its limit, a call that sets it, and where the run shows it.
type TextField = (&'static str, usize, fn(&str, String) -> Ask, fn(&Run) -> &str);

const TEXTS_AT_START: [TextField; 5] = [
    (
        "task_thread_id",
        256,
        |id, text| StartRunRequest { task_thread_id: text, ..start(id) }.into(),
        |run| &run.task_thread_id,
    ),
    ("agent_id", 256, |id, text| StartRunRequest { agent_id: text, ..start(id) }.into(), |run| &run.agent_id),
    (
        "tab_group_id",
        256,
        |id, text| StartRunRequest { tab_group_id: text, ..start(id) }.into(),
        |run| &run.tab_group_id,
    ),
    (
        "audit_session_id",
        256,
        |id, text| StartRunRequest { audit_session_id: text, ..start(id) }.into(),
        |run| &run.audit_session_id,
    ),
    ("workflow_id", 256, |id, text| StartRunRequest { workflow_id: text, ..start(id) }.into(), |run| &run.workflow_id),
];

const TEXTS_LATER: [TextField; 5] = [
    (
        "tab_group_id",
        256,
        |id, text| UpdateRunRequest { tab_group_id: Some(text), ..update(id) }.into(),
        |run| &run.tab_group_id,
    ),
    (
        "audit_session_id",
        256,
        |id, text| UpdateRunRequest { audit_session_id: Some(text), ..update(id) }.into(),
        |run| &run.audit_session_id,
    ),
    (
        "workflow_id",
        256,
        |id, text| UpdateRunRequest { workflow_id: Some(text), ..update(id) }.into(),
        |run| &run.workflow_id,
    ),
    (
        "failure_reason",
        4096,
        |id, text| AbortRunRequest { failure_reason: text, ..abort(id) }.into(),
        |run| &run.failure_reason,
    ),
    (
        "failure_reason",
        4096,
        |id, text| FailRunRequest { failure_reason: text, ..fail(id) }.into(),
        |run| &run.failure_reason,
    ),
];

pub(crate) async fn texts_are_limited_in_bytes(place: Place) {
    let caller = place.caller().await;
    for (begun, fields) in [(false, TEXTS_AT_START), (true, TEXTS_LATER)] {
        for (field, max, ask, shown) in fields {
            for text in ["x".repeat(max - 1), "x".repeat(max), "é".repeat(max / 2), "🦀".repeat(max / 4)] {
                let run_id = fresh("limit");
                if begun {
                    caller.apply(start(&run_id)).await;
                }
                let above = [text.clone() + &"y".repeat(max + 1 - text.len()), text.clone() + "🦀"];
                for above in above {
                    assert_eq!(caller.refused(ask(&run_id, above)).await.fields(), [field]);
                }
                let run = caller.apply(ask(&run_id, text.clone())).await;
                assert_eq!(shown(&run), text, "{field}");
                assert_eq!(shown(&caller.get(&run_id).await), text, "{field}");
            }
        }
    }
}

pub(crate) async fn ids_and_codes_have_their_alphabet(place: Place) {
    let caller = place.caller().await;
    let longest = format!("{:a<128}", fresh("AZaz09._:~-"));
    assert_eq!(caller.apply(start(&longest)).await.run_id, longest);
    for noise in [&*format!("{longest}a"), "a b", "a/b", "é", "a\0", "a\n", "%41", "a,b"] {
        for ask in Ask::each("").into_iter().map(|ask| ask.run_id(noise)) {
            assert_eq!(caller.refused(ask).await.fields(), ["run_id"], "{noise:?}");
        }
    }
    let run_id = caller.apply(start(&fresh("code"))).await.run_id;
    for noise in ["lower", "_A", "1A", "A-B", "A B", "É", "A\0", &"A".repeat(65)] {
        let ask = AbortRunRequest { reason_code: noise.into(), ..abort(&run_id) };
        assert_eq!(caller.refused(ask).await.fields(), ["reason_code"], "{noise:?}");
        let ask = FailRunRequest { reason_code: noise.into(), ..fail(&run_id) };
        assert_eq!(caller.refused(ask).await.fields(), ["reason_code"], "{noise:?}");
    }
    let code = "A1_".repeat(21) + "Z";
    assert_eq!(caller.apply(FailRunRequest { reason_code: code.clone(), ..fail(&run_id) }).await.reason_code, code);
}

pub(crate) async fn a_request_id_is_at_most_128_bytes(place: Place) {
    let caller = place.caller().await;
    let run_id = fresh("request");
    for id in ["r".repeat(127), "é".repeat(64), "🦀".repeat(32)] {
        let run_id = caller.apply(Ask::from(start(&fresh("request"))).request_id(&id)).await.run_id;
        assert_eq!(caller.events(&run_id).await[0].request_id, id);
    }
    for ask in Ask::each(&run_id) {
        for id in ["r".repeat(129), "é".repeat(64) + "x", "a\0".to_owned()] {
            assert_eq!(caller.refused(ask.clone().request_id(&id)).await.fields(), ["request_id"]);
        }
    }
}

fn many(count: usize) -> HashMap<String, String> {
    (0..count).map(|n| (format!("key-{n}"), "v".to_owned())).collect()
}

pub(crate) async fn labels_are_limited_in_number_and_size(place: Place) {
    let caller = place.caller().await;
    for (key, value) in [("k".repeat(63), "v".repeat(256)), ("é".repeat(31), "🦀".repeat(64))] {
        let labels = HashMap::from([(key.clone(), value.clone())]);
        let run = caller.apply(StartRunRequest { labels: labels.clone(), ..start(&fresh("label")) }).await;
        assert_eq!(run.labels, labels);
        for (key, value) in [(key.clone() + "é", "v".to_owned()), (key.clone(), value + "v")] {
            let ask = UpdateRunRequest { labels: [(key.clone(), value)].into(), ..update(&run.run_id) };
            let fields = caller.refused(ask).await.fields();
            assert!(fields.len() == 1 && fields[0].starts_with("labels[\""), "{fields:?}");
        }
        let drop = UpdateRunRequest { remove_labels: vec![key], ..update(&run.run_id) };
        assert_eq!(caller.apply(drop).await.labels, HashMap::new());
    }
    let nameless = StartRunRequest { labels: [(String::new(), "v".to_owned())].into(), ..start(&fresh("label")) };
    assert_eq!(caller.refused(nameless).await.fields(), ["labels[\"\"]"]);
    assert_eq!(caller.refused(StartRunRequest { labels: many(33), ..start(&fresh("l")) }).await.fields(), ["labels"]);
    let run = caller.apply(StartRunRequest { labels: many(32), ..start(&fresh("labels")) }).await;
    assert_eq!(run.labels, many(32));
    let one_more = UpdateRunRequest { labels: [("new".to_owned(), "v".to_owned())].into(), ..update(&run.run_id) };
    assert_eq!(caller.refused(one_more.clone()).await.fields(), ["labels"], "after the merge");
    let instead = UpdateRunRequest { remove_labels: vec!["key-0".into()], ..one_more };
    assert_eq!(caller.apply(instead).await.labels.len(), 32);
    let keys = |count| (0..count).map(|n| format!("key-{n}")).collect::<Vec<_>>();
    let too_many = UpdateRunRequest { remove_labels: keys(33), ..update(&run.run_id) };
    assert_eq!(caller.refused(too_many).await.fields(), ["remove_labels"]);
    let all = UpdateRunRequest { remove_labels: keys(32), ..update(&run.run_id) };
    assert_eq!(caller.apply(all).await.labels.len(), 1);
}

pub(crate) async fn metadata_is_limited_in_bytes_after_the_merge(place: Place) {
    let caller = place.caller().await;
    let too_much = StartRunRequest { metadata: metadata_of(65_537), ..start(&fresh("metadata")) };
    assert_eq!(caller.refused(too_much).await.fields(), ["metadata"]);
    for bytes in [65_535, 65_536] {
        let asked = StartRunRequest { metadata: metadata_of(bytes), ..start(&fresh("metadata")) };
        let run = caller.apply(asked).await;
        assert_eq!(caller.get(&run.run_id).await.metadata, metadata_of(bytes));
        // `,"a":1` is six bytes, and a patch of what is there already none.
        let more = UpdateRunRequest { metadata: structure(json!({"a": 1})), ..update(&run.run_id) };
        assert_eq!(caller.refused(more).await.fields(), ["metadata"]);
        let last = CompleteRunRequest { metadata: structure(json!({"a": 1})), ..complete(&run.run_id) };
        assert_eq!(caller.refused(last).await.fields(), ["metadata"]);
        caller.unchanged(UpdateRunRequest { metadata: metadata_of(bytes), ..update(&run.run_id) }).await;
        assert_eq!(caller.get(&run.run_id).await, run);
    }
    let asked = StartRunRequest { metadata: metadata_of(65_530), ..start(&fresh("metadata")) };
    let run_id = caller.apply(asked).await.run_id;
    let exact = UpdateRunRequest { metadata: structure(json!({"a": 1})), ..update(&run_id) };
    assert_eq!(caller.apply(exact).await.revision, 2, "65,536 bytes after the merge");
    let wider = UpdateRunRequest { metadata: structure(json!({"a": 12})), ..update(&run_id) };
    assert_eq!(caller.refused(wider).await.fields(), ["metadata"]);
}

pub(crate) async fn a_patch_may_delete_as_much_as_it_brings(place: Place) {
    let caller = place.caller().await;
    let (old, new) = ("o".repeat(65_000), "n".repeat(65_000));
    let asked = StartRunRequest { metadata: structure(json!({ &old: 1 })), ..start(&fresh("patch")) };
    let run_id = caller.apply(asked).await.run_id;
    let swap = UpdateRunRequest { metadata: structure(json!({ &old: null, &new: 2 })), ..update(&run_id) };
    assert_eq!(caller.apply(swap).await.metadata, structure(json!({ &new: 2 })));
    let too_much = UpdateRunRequest { metadata: metadata_of(131_073), ..update(&run_id) };
    assert_eq!(caller.refused(too_much).await.fields(), ["metadata"]);
}

pub(crate) async fn metadata_is_at_most_32_deep(place: Place) {
    let caller = place.caller().await;
    let asked = |levels| StartRunRequest { metadata: nested(levels), ..start(&fresh("deep")) };
    for levels in [31, 32] {
        let run = caller.apply(asked(levels)).await;
        assert_eq!(place.other().await.get(&run.run_id).await.metadata, nested(levels));
        let mut watch = caller.watch(&run.run_id, Some(0)).await;
        assert_eq!(watch.change().await.event.unwrap().changes.unwrap().metadata, nested(levels));
    }
    let fields = caller.refused(asked(33)).await.fields();
    assert!(fields.len() == 1 && fields[0].starts_with("metadata.a"), "{fields:?}");
    // A message that is deeper than a decoder goes is not decoded: the same answer, for another field.
    for levels in [40, 1_000] {
        assert_eq!(caller.refused(asked(levels)).await.fields(), ["request"]);
    }
}

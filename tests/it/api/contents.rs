//! What a run is given and what it leaves: its input, its results, its links, and the runs that it comes from.

use futures_util::future::join_all;
use prost_types::{Duration, Struct};
use runledger_proto::v1::{
    self, AbortRunRequest, CompleteRunRequest, CountRunsRequest, Disposition, FailRunRequest, GetRunRequest,
    GetRunResponse, Link, ListLinksRequest, ListRunsRequest, RequestAbortRequest, RunFilter, RunStatus, RunView,
    StartRunRequest, UpdateRunRequest, WatchRunsRequest, watch_runs_response,
};
use serde_json::{Value, json};
use tonic::Code;

use super::caller::{Ask, Caller, abort, complete, deferred, fail, fresh, start, update};
use super::place::Place;
use super::refused::Refused;
use super::values::structure;

async fn whole(caller: &Caller, run_id: &str) -> GetRunResponse {
    let view = Some(RunView::Whole.into());
    let asked = GetRunRequest { run_id: run_id.to_owned(), view, ..GetRunRequest::default() };
    caller.grpc.clone().get_run(caller.request(asked)).await.unwrap().into_inner()
}

async fn links(caller: &Caller, run_id: &str, rel: &str) -> Vec<Link> {
    let asked = ListLinksRequest { run_id: run_id.to_owned(), rel: rel.to_owned() };
    caller.grpc.clone().list_links(caller.request(asked)).await.unwrap().into_inner().links
}

fn link(rel: &str, target: &str) -> Link {
    Link { rel: rel.to_owned(), target: target.to_owned(), ..Link::default() }
}

fn resulting(run_id: &str, result: Value) -> UpdateRunRequest {
    UpdateRunRequest { result: structure(result), ..update(run_id) }
}

/// An object of numbers whose compact JSON has so many bytes: the form that is longest on the wire.
fn numbers(bytes: usize) -> Option<Struct> {
    let fixed = r#"{"n":[]}"#.len();
    let (mut list, mut left) = (Vec::new(), bytes - fixed);
    while left > 0 {
        // A digit and, but for the first, a comma; what is left over goes into one longer number.
        let comma = usize::from(!list.is_empty());
        let digits = if left - comma == 2 { 2 } else { 1 };
        list.push(if digits == 2 { 10 } else { 1 });
        left -= comma + digits;
    }
    structure(json!({ "n": list }))
}

pub(crate) async fn an_input_stands_beside_the_run_and_never_changes(place: Place) {
    let caller = place.caller().await;
    let run_id = fresh("input");
    let input = json!({"url": "https://example.com", "n": [1, 0.5], "a": null});
    let asked = StartRunRequest { input: structure(input.clone()), ..deferred(&run_id) };
    let run = caller.apply(asked.clone()).await;
    let content = run.input.clone().unwrap();
    let text = r#"{"a":null,"n":[1,0.5],"url":"https://example.com"}"#;
    assert_eq!((content.bytes, content.sha256.len()), (text.len() as u64, 64));
    let shown = whole(&caller, &run_id).await;
    assert_eq!((shown.input, shown.run.as_ref()), (structure(input), Some(&run)));
    assert_eq!(caller.get(&run_id).await, run);

    // Equal or absent is taken; another one is not.
    assert_eq!(caller.unchanged(asked.clone()).await, run);
    assert_eq!(caller.unchanged(deferred(&run_id)).await, run);
    let other = StartRunRequest { input: structure(json!({"url": "elsewhere"})), ..start(&run_id) };
    let refused = caller.refused(other.clone()).await.is(Code::AlreadyExists, "RUN_ID_CONFLICT");
    let conflict = refused.detail::<v1::RunIdConflictError>("runledger.v1.RunIdConflictError");
    assert_eq!((conflict.field.as_str(), &conflict.actual), ("input", &content.sha256));
    for parents in [
        StartRunRequest { parent_run_id: "another".to_owned(), ..start(&run_id) },
        StartRunRequest { continues_run_id: "another".to_owned(), ..start(&run_id) },
    ] {
        caller.refused(parents).await.is(Code::AlreadyExists, "RUN_ID_CONFLICT");
    }
    let running = caller.apply(StartRunRequest { deferred: false, ..asked }).await;
    assert_eq!(running.input, Some(content));
    assert_eq!(caller.unchanged(other).await, running, "once it runs, nothing rests on it");
    let event = &caller.events(&run_id).await[1];
    assert_eq!(event.changes.as_ref().unwrap().input, None);
}

pub(crate) async fn of_two_results_the_later_stands_and_it_outlives_an_abort(place: Place) {
    let (caller, other) = (place.caller().await, place.other().await);
    let run_id = fresh("result");
    caller.apply(start(&run_id)).await;
    let (one, two) = (json!({"by": "one"}), json!({"by": "two"}));
    let both = [caller.call(resulting(&run_id, one.clone())), other.call(resulting(&run_id, two.clone()))];
    let both: Vec<_> = join_all(both).await.into_iter().map(Result::unwrap).collect();
    assert!(both.iter().all(|done| done.disposition == Disposition::Applied));
    let last = if both[0].run.revision > both[1].run.revision { one } else { two };
    let now = caller.get(&run_id).await;
    assert_eq!(now.revision, 3);
    assert_eq!(whole(&other, &run_id).await.result, structure(last.clone()));
    // The same once more is no event.
    assert_eq!(caller.unchanged(resulting(&run_id, last.clone())).await, now);
    // Each event says what it brought, and nothing of the content itself.
    let events = caller.events(&run_id).await;
    let digests = [1, 2].map(|nth: usize| events[nth].changes.as_ref().unwrap().result.clone().unwrap());
    assert_ne!(digests[0], digests[1]);
    assert_eq!(now.result.as_ref(), Some(&digests[1]));
    let ended = caller.apply(abort(&run_id)).await;
    assert_eq!(ended.result, now.result, "what was there stays");
    assert_eq!(whole(&caller, &run_id).await.result, structure(last));
    // Each end may bring one.
    let result = structure(json!({"at": "the end"}));
    let ends: [fn(&str, Option<Struct>) -> Ask; 3] = [
        |run_id, result| CompleteRunRequest { result, ..complete(run_id) }.into(),
        |run_id, result| FailRunRequest { result, ..fail(run_id) }.into(),
        |run_id, result| AbortRunRequest { result, ..abort(run_id) }.into(),
    ];
    for end in ends {
        let run_id = fresh("end");
        caller.apply(start(&run_id)).await;
        let ended = caller.apply(end(&run_id, result.clone())).await;
        assert!(ended.result.is_some());
        assert_eq!(whole(&caller, &run_id).await.result, result);
    }
}

pub(crate) async fn a_link_is_added_once_whoever_adds_it_and_the_65th_is_refused(place: Place) {
    let (caller, other) = (place.caller().await, place.other().await);
    let run_id = fresh("links");
    caller.apply(start(&run_id)).await;
    let receipt = Link {
        sha256: "0123456789abcdef".repeat(4),
        media_type: "application/pdf".to_owned(),
        summary: "paid".to_owned(),
        ..link("receipt", "s3://receipts/1")
    };
    let add = |links: Vec<Link>| UpdateRunRequest { links, ..update(&run_id) };
    let both = [caller.call(add(vec![receipt.clone()])), other.call(add(vec![receipt.clone()]))];
    let both: Vec<_> = join_all(both).await.into_iter().map(|done| done.unwrap().disposition).collect();
    assert!(both.contains(&Disposition::Applied) && both.contains(&Disposition::Unchanged), "{both:?}");
    let shown = links(&other, &run_id, "").await;
    assert_eq!(shown, [Link { revision: 2, ..receipt.clone() }]);
    // The first stays as it is; of one call with two alike, one is added.
    let again = vec![link("receipt", "s3://receipts/1"), link("url", "a"), link("url", "a"), link("url", "b")];
    assert_eq!(caller.apply(add(again)).await.link_count, 3);
    let more: Vec<Link> = (0..61).map(|nth| link("artifact", &nth.to_string())).collect();
    let full = caller.apply(add(more)).await;
    assert_eq!(full.link_count, 64);
    let refused = caller.refused(add(vec![link("artifact", "one too many")])).await;
    assert_eq!(refused.fields(), ["links"]);
    assert!(refused.message.contains("64"), "{}", refused.message);
    assert_eq!(caller.unchanged(add(vec![link("url", "a")])).await, full, "one that is there is no 65th");
    assert_eq!(links(&caller, &run_id, "url").await.len(), 2);
    let all = whole(&caller, &run_id).await.links;
    assert_eq!(all.len(), 64);
    assert!(all.iter().map(|link| link.revision).is_sorted());
    // The event has the links.
    let events = caller.events(&run_id).await;
    assert_eq!(events[1].changes.as_ref().unwrap().links, [receipt]);
    assert_eq!(events[2].changes.as_ref().unwrap().links.len(), 2);
}

pub(crate) async fn what_comes_late_is_kept_beside_the_presumed_end(place: Place) {
    let caller = place.caller().await;
    let run_id = fresh("late");
    caller.apply(start(&run_id)).await;
    let mut live = caller.watch(&run_id, Some(1)).await;
    live.caught_up().await;
    caller
        .apply(UpdateRunRequest { links: vec![link("url", "early")], ..resulting(&run_id, json!({"part": 1})) })
        .await;
    let grace = Some(Duration { seconds: 0, nanos: 0 });
    let asked = RequestAbortRequest { run_id: run_id.clone(), grace, ..RequestAbortRequest::default() };
    caller.grpc.clone().request_abort(caller.request(asked)).await.unwrap();
    // What was left, the request, and the authority's own end of it at its next look.
    for revision in 2..=4 {
        assert_eq!(live.change().await.run.unwrap().revision, revision);
    }
    let ended = live.end().await;
    assert!(ended.presumed);
    let asked = CompleteRunRequest {
        result: structure(json!({"all": true})),
        links: vec![link("url", "late"), link("url", "early")],
        ..complete(&run_id)
    };
    let late = caller.must(asked).await;
    assert_eq!(late.disposition, Disposition::RecordedLate);
    let report = late.run.late_report.clone().unwrap();
    assert_eq!((report.link_count, late.run.link_count, late.run.result.as_ref()), (1, 2, ended.result.as_ref()));
    assert_ne!(report.result, ended.result);
    let shown = whole(&caller, &run_id).await;
    assert_eq!(shown.result, structure(json!({"part": 1})));
    assert_eq!(shown.late_result, structure(json!({"all": true})));
    let of_links: Vec<_> = shown.links.iter().map(|link| (link.target.as_str(), link.late)).collect();
    assert_eq!(of_links, [("early", false), ("late", true)]);
    assert_eq!(shown.run.unwrap(), late.run);
}

pub(crate) async fn runs_are_found_by_the_runs_that_they_come_from(place: Place) {
    let caller = place.caller().await;
    let (parent, before) = (fresh("parent"), fresh("before"));
    let asked = |run_id: &str| StartRunRequest {
        parent_run_id: parent.clone(),
        continues_run_id: if run_id.starts_with("again") { before.clone() } else { String::new() },
        ..start(run_id)
    };
    let (child, again) = (fresh("child"), fresh("again"));
    let runs = [caller.apply(asked(&child)).await, caller.apply(asked(&again)).await];
    caller.apply(start(&fresh("orphan"))).await;
    caller.apply(complete(&child)).await;
    let of_parent = RunFilter { parent_run_id: parent.clone(), ..RunFilter::default() };
    let of_before = RunFilter { continues_run_id: before.clone(), ..RunFilter::default() };
    let both = RunFilter { continues_run_id: before.clone(), ..of_parent.clone() };
    let active = RunFilter { statuses: vec![RunStatus::Running.into()], ..of_parent.clone() };
    for (filter, wanted) in [
        (&of_parent, vec![again.as_str(), child.as_str()]),
        (&of_before, vec![again.as_str()]),
        (&both, vec![again.as_str()]),
        (&active, vec![again.as_str()]),
    ] {
        let listed = ListRunsRequest { filter: Some(filter.clone()), ..ListRunsRequest::default() };
        let listed = caller.grpc.clone().list_runs(caller.request(listed)).await.unwrap().into_inner().runs;
        assert_eq!(listed.iter().map(|run| run.run_id.as_str()).collect::<Vec<_>>(), wanted, "{filter:?}");
        let counted = CountRunsRequest { filter: Some(filter.clone()), by_phase: false, by_suspension: false };
        let counted = caller.grpc.clone().count_runs(caller.request(counted)).await.unwrap().into_inner().counts;
        assert_eq!(counted.iter().map(|count| count.count).sum::<u64>(), wanted.len() as u64, "{filter:?}");
    }
    assert_eq!((runs[1].parent_run_id.as_str(), runs[1].continues_run_id.as_str()), (&*parent, &*before));
    // A watch begins with those that are active, and shows what follows.
    let asked_watch = WatchRunsRequest { filter: Some(of_parent), ..WatchRunsRequest::default() };
    let mut frames = caller.grpc.clone().watch_runs(caller.request(asked_watch)).await.unwrap().into_inner();
    let mut shown = Vec::new();
    while shown.len() < 2 {
        match frames.message().await.unwrap().unwrap().frame {
            Some(watch_runs_response::Frame::Snapshot(of)) => shown.push(of.run.unwrap().run_id),
            Some(watch_runs_response::Frame::CaughtUp(_)) => {
                caller.apply(asked(&fresh("next"))).await;
                caller.apply(start(&fresh("none"))).await;
            }
            Some(watch_runs_response::Frame::Change(change)) => shown.push(change.run.unwrap().run_id),
            Some(watch_runs_response::Frame::Checkpoint(_)) | None => {}
        }
    }
    assert_eq!(shown[0], again);
    assert!(shown[1].starts_with("next"), "{shown:?}");
}

pub(crate) async fn contents_are_limited_in_bytes_on_the_wire_and_as_json(place: Place) {
    let caller = place.caller().await;
    let run_id = fresh("limits");
    let begin = |input, metadata| StartRunRequest { input, metadata, ..start(&run_id) };
    assert_eq!(caller.refused(begin(numbers(65_537), None)).await.fields(), ["input"]);
    let run = caller.apply(begin(numbers(65_536), numbers(65_536))).await;
    assert_eq!(run.input.unwrap().bytes, 65_536);
    let result = |result, metadata| UpdateRunRequest { result, metadata, ..update(&run_id) };
    assert_eq!(caller.refused(result(numbers(65_537), None)).await.fields(), ["result"]);
    assert_eq!(caller.refused(result(numbers(65_536), numbers(65_537))).await.fields(), ["result"], "together");
    let mut largest = result(numbers(65_536), numbers(65_536));
    largest.links = (0..28)
        .map(|nth| Link {
            rel: format!("r{}", "x".repeat(63)),
            sha256: "f".repeat(64),
            media_type: "m".repeat(128),
            summary: "é".repeat(256),
            ..link("", &format!("{nth:0>1024}"))
        })
        .collect();
    let run = caller.apply(largest.clone()).await;
    assert_eq!((run.result.unwrap().bytes, run.link_count), (65_536, 28));
    largest.links.push(Link { summary: "more".repeat(100), ..link("artifact", &"t".repeat(1_000)) });
    assert_eq!(caller.refused(largest).await.fields(), ["links"]);
    let deep = (0..32).fold(json!(1), |inner, _| json!({ "a": inner }));
    let refused = caller.refused(resulting(&run_id, json!({ "deep": deep }))).await;
    assert!(refused.fields()[0].starts_with("result.deep"), "{refused:?}");
    let wrong = vec![
        link("", "x"),
        link("Upper", "x"),
        link("a", ""),
        Link { sha256: "F".repeat(64), media_type: "m".repeat(129), summary: "s".repeat(513), ..link("a", "b\0") },
    ];
    let mut fields = caller.refused(UpdateRunRequest { links: wrong, ..update(&run_id) }).await.fields();
    fields.sort();
    assert_eq!(
        fields,
        [
            "links[0].rel",
            "links[1].rel",
            "links[2].target",
            "links[3].media_type",
            "links[3].sha256",
            "links[3].summary",
            "links[3].target",
        ]
    );
    let asked = GetRunRequest { run_id: run_id.clone(), view: Some(9), ..GetRunRequest::default() };
    let refused = Refused::from(caller.grpc.clone().get_run(caller.request(asked)).await.unwrap_err());
    assert_eq!(refused.fields(), ["view"]);
    let asked = ListRunsRequest { view: RunView::Whole.into(), ..ListRunsRequest::default() };
    let refused = Refused::from(caller.grpc.clone().list_runs(caller.request(asked)).await.unwrap_err());
    assert_eq!(refused.fields(), ["view"]);
    // Everything wrong at once: the refusal stays small, which `refused` looks at.
    let wrong = Link {
        rel: "É".repeat(40),
        sha256: "F".repeat(64),
        media_type: "m".repeat(129),
        summary: "s".repeat(513),
        ..link("", &"é".repeat(600))
    };
    let asked = UpdateRunRequest { links: vec![wrong; 64], ..result(numbers(65_537), numbers(131_073)) };
    assert!(!caller.refused(asked).await.fields().is_empty());
    for path in ["/links/", "/links/Upper", "/links/a/b", "/input/a", "/result/"] {
        let paths = vec![path.to_owned()];
        let asked = v1::RedactRunRequest { run_id: run_id.clone(), paths, ..v1::RedactRunRequest::default() };
        let refused = Refused::from(caller.grpc.clone().redact_run(caller.request(asked)).await.unwrap_err());
        assert_eq!(refused.fields(), ["paths[0]"], "{path}");
    }
    let wrong = StartRunRequest { parent_run_id: "a b".into(), continues_run_id: "x".repeat(129), ..start(&run_id) };
    let mut fields = caller.refused(wrong).await.fields();
    fields.sort();
    assert_eq!(fields, ["continues_run_id", "parent_run_id"]);
}

/// The longest on the wire that each end may be, of numbers.
pub(crate) async fn the_largest_end_of_each_kind_is_received_and_watched(place: Place) {
    let caller = place.caller().await;
    let links: Vec<Link> = (0..28)
        .map(|nth| Link {
            rel: format!("r{}", "x".repeat(63)),
            sha256: "f".repeat(64),
            media_type: "m".repeat(128),
            summary: "é".repeat(256),
            ..link("", &format!("{nth:0>1024}"))
        })
        .collect();
    let result = || numbers(65_536);
    let ends: [&dyn Fn(&str) -> Ask; 3] = [
        &|run_id| {
            let metadata = numbers(65_536);
            CompleteRunRequest { result: result(), metadata, links: links.clone(), ..complete(run_id) }.into()
        },
        &|run_id| FailRunRequest { result: result(), failure_reason: "é".repeat(2_048), ..fail(run_id) }.into(),
        &|run_id| AbortRunRequest { result: result(), failure_reason: "é".repeat(2_048), ..abort(run_id) }.into(),
    ];
    for end in ends {
        let run_id = fresh("largest-end");
        caller.apply(start(&run_id)).await;
        let mut live = caller.watch(&run_id, Some(1)).await;
        live.caught_up().await;
        let ended = caller.apply(end(&run_id)).await;
        assert_eq!(ended.result.as_ref().unwrap().bytes, 65_536);
        assert_eq!(live.change().await.run.as_ref(), Some(&ended));
        assert_eq!(live.end().await, ended);
        assert_eq!(whole(&caller, &run_id).await.result, result());
    }
}

pub(crate) async fn a_retry_shows_the_run_as_then_and_writes_nothing_twice(place: Place) {
    let caller = place.caller().await;
    let run_id = fresh("replay");
    let input = structure(json!({"given": 1}));
    let ask = Ask::from(StartRunRequest { input: input.clone(), ..start(&run_id) }).request_id("begin");
    let begun = caller.apply(ask.clone()).await;
    let asked = UpdateRunRequest { links: vec![link("url", "a")], ..resulting(&run_id, json!({"n": 1})) };
    let first = Ask::from(asked.clone()).request_id("first");
    let one = caller.apply(first.clone()).await;
    caller.apply(resulting(&run_id, json!({"n": 2}))).await;
    for (ask, then) in [(ask, &begun), (first, &one)] {
        let done = caller.must(ask).await;
        assert_eq!((done.disposition, &done.run, done.current_revision), (Disposition::Replayed, then, 3));
    }
    let other = Ask::from(UpdateRunRequest { links: vec![link("url", "b")], ..asked }).request_id("first");
    caller.refused(other).await.is(Code::InvalidArgument, "REQUEST_ID_REUSED");
    let shown = whole(&caller, &run_id).await;
    assert_eq!((shown.input, shown.result, shown.links.len()), (input, structure(json!({"n": 2})), 1));
}

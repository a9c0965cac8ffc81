//! `RedactRun`: what should never have been written is gone from every answer, past and present.

use prost::Message;
use runledger_proto::json;
use runledger_proto::v1::{
    self, Disposition, ListRunsRequest, RedactRunRequest, RequestAbortRequest, Run, RunEventType, RunFilter, RunStatus,
    WatchRunsRequest, watch_runs_response,
};
use serde_json::json as value;
use tonic::{Code, Status};

use super::caller::{Caller, complete, fail, fresh, start, update};
use super::place::Place;
use super::refused::Refused;

/// Found in no other text.
const SECRET: &str = "hunter2-correct-horse";

fn redact(run_id: &str, paths: &[&str]) -> RedactRunRequest {
    let paths = paths.iter().map(|path| (*path).to_owned()).collect();
    RedactRunRequest {
        run_id: run_id.to_owned(),
        paths,
        reason: "a password".to_owned(),
        ..RedactRunRequest::default()
    }
}

async fn redacted(caller: &Caller, asked: RedactRunRequest) -> Result<(Disposition, Run), Status> {
    let answer = caller.grpc.clone().redact_run(caller.request(asked)).await?.into_inner();
    Ok((answer.disposition(), answer.run.unwrap()))
}

fn shown(run: &Run) -> serde_json::Value {
    serde_json::from_str(&json::object(run.metadata.as_ref().unwrap())).unwrap()
}

fn shows(message: &impl Message) -> bool {
    let bytes = message.encode_to_vec();
    bytes.windows(SECRET.len()).any(|part| part == SECRET.as_bytes())
}

/// An input, results and links that have the secret.
fn spoilt_contents(run_id: &str) -> v1::UpdateRunRequest {
    let link = |rel: &str, target: &str| v1::Link {
        rel: rel.to_owned(),
        target: target.to_owned(),
        media_type: SECRET.to_owned(),
        summary: format!("of {SECRET}"),
        ..v1::Link::default()
    };
    v1::UpdateRunRequest {
        result: value!({ "token": SECRET }).as_object().map(json::structure),
        links: vec![link("url", &format!("https://example.com/?{SECRET}")), link("receipt", "kept")],
        ..update(run_id)
    }
}

pub(crate) async fn what_stands_beside_a_run_is_taken_out_as_well(place: Place) {
    let (caller, other) = (place.caller().await, place.other().await);
    let run_id = fresh("beside");
    let input = value!({ "password": SECRET }).as_object().map(json::structure);
    caller.apply(v1::StartRunRequest { input, ..start(&run_id) }).await;
    let before = caller.apply(spoilt_contents(&run_id)).await;
    let whole = async |caller: &Caller| {
        let view = Some(v1::RunView::Whole.into());
        let asked = v1::GetRunRequest { run_id: run_id.clone(), view, ..v1::GetRunRequest::default() };
        caller.grpc.clone().get_run(caller.request(asked)).await.unwrap().into_inner()
    };
    assert!(shows(&whole(&caller).await));
    let (_, run) = redacted(&caller, redact(&run_id, &["/input", "/result", "/links/url"])).await.unwrap();
    assert_eq!((&run.input, &run.result, run.link_count), (&None, &None, before.link_count));
    let shown = whole(&other).await;
    assert_eq!((&shown.input, &shown.result), (&None, &None));
    assert_eq!((shown.links[0].target.as_str(), shown.links[0].summary.as_str()), ("[redacted]", "[redacted]"));
    assert_eq!(shown.links[1].target, "kept");
    redacted(&caller, redact(&run_id, &["/links"])).await.unwrap();
    let digests = [before.input.unwrap().sha256, before.result.unwrap().sha256];
    for shown in [&whole(&caller).await, &whole(&other).await] {
        assert!(!shows(shown));
    }
    for event in other.events(&run_id).await {
        assert!(!shows(&event), "{event:?}");
        let text = format!("{event:?}");
        assert!(digests.iter().all(|digest| !text.contains(digest)), "{event:?}");
    }
    // It goes on as before: the same link is another one, and a new result stands.
    let after = caller.apply(spoilt_contents(&run_id)).await;
    assert_eq!((after.link_count, after.result.is_some()), (4, true));
}

/// A run whose history has the secret in several events, one of them with a keyframe, and in its reasons.
async fn spoilt(caller: &Caller) -> String {
    let run_id = fresh("redacted");
    let metadata = |value: serde_json::Value| value.as_object().map(json::structure);
    let begin = v1::StartRunRequest {
        request_id: "begin".to_owned(),
        metadata: metadata(value!({"customer": {"email": SECRET, "name": "Ann"}, "keys": [1, SECRET]})),
        ..start(&run_id)
    };
    caller.apply(begin).await;
    for nth in 0..40 {
        let patch = match nth {
            7 => value!({"customer": {"email": {"old": SECRET}}}),
            20 => value!({"customer": {"email": format!("{SECRET}@example.org")}}),
            nth => value!({"step": nth}),
        };
        let patched = v1::UpdateRunRequest { metadata: metadata(patch), ..update(&run_id) };
        caller.apply(patched).await;
    }
    let abort = RequestAbortRequest {
        run_id: run_id.clone(),
        reason: format!("because of {SECRET}"),
        ..RequestAbortRequest::default()
    };
    caller.grpc.clone().request_abort(caller.request(abort)).await.unwrap();
    run_id
}

async fn cursor_of_now(caller: &Caller) -> String {
    let mut all = caller.grpc.clone().watch_runs(WatchRunsRequest::default()).await.unwrap().into_inner();
    loop {
        if let watch_runs_response::Frame::CaughtUp(it) = all.message().await.unwrap().unwrap().frame.unwrap() {
            return it.cursor;
        }
    }
}

/// All changes of a run that a watch of many shows after a cursor, up to a revision.
async fn watched(caller: &Caller, cursor: &str, run_id: &str, last: u64) -> Vec<watch_runs_response::Change> {
    let asked = WatchRunsRequest { cursor: cursor.to_owned(), ..WatchRunsRequest::default() };
    let mut all = caller.grpc.clone().watch_runs(asked).await.unwrap().into_inner();
    let mut seen = Vec::new();
    loop {
        let frame = all.message().await.unwrap().unwrap().frame.unwrap();
        let watch_runs_response::Frame::Change(change) = frame else { continue };
        let event = change.event.as_ref().unwrap();
        if event.run_id == run_id {
            let is_last = event.revision == last;
            seen.push(change);
            if is_last {
                return seen;
            }
        }
    }
}

pub(crate) async fn what_is_redacted_is_gone_from_every_answer_of_every_replica(place: Place) {
    let caller = place.caller().await;
    let other = place.other().await;
    let before = cursor_of_now(&caller).await;
    let run_id = spoilt(&caller).await;
    caller.apply(fail_with_the_secret(&run_id)).await;
    // Both replicas have the run in what they remember for watches.
    for caller in [&caller, &other] {
        assert!(watched(caller, &before, &run_id, 43).await.iter().any(shows));
    }

    let live = async { watched(&other, &before, &run_id, 44).await };
    let asked = RedactRunRequest {
        request_id: "take-it-out".to_owned(),
        ..redact(&run_id, &["/metadata/customer/email", "/metadata/keys/1", "/reason", "/metadata/nothing"])
    };
    // The replica has read of it once a watch shows it.
    let (answer, _seen) = tokio::join!(redacted(&caller, asked.clone()), live);
    let (disposition, run) = answer.unwrap();
    assert_eq!((disposition, run.status(), run.revision), (Disposition::Applied, RunStatus::Failed, 44));
    assert!(!shows(&run));
    let metadata = shown(&run);
    let mark = "[redacted]";
    assert_eq!(
        metadata,
        value!({"customer": {"email": mark, "name": "Ann"}, "keys": [1, mark], "step": 39}),
        "the rest is as it was"
    );
    assert_eq!(
        (run.failure_reason.as_str(), run.abort_request.as_ref().unwrap().reason.as_str()),
        ("[redacted]", "[redacted]")
    );

    for caller in [&caller, &other] {
        assert_eq!(caller.get(&run_id).await, run);
        let events = caller.events(&run_id).await;
        assert_eq!(events.len(), 44);
        assert!(!events.iter().any(shows), "the history");
        let last = events.last().unwrap();
        assert_eq!(
            (last.r#type(), last.from(), last.to()),
            (RunEventType::Redacted, RunStatus::Failed, RunStatus::Failed)
        );
        let said = last.changes.as_ref().unwrap().redaction.clone().unwrap();
        assert_eq!((said.paths, said.reason.as_str()), (asked.paths.clone(), "a password"));
        let many = watched(caller, &before, &run_id, 44).await;
        assert_eq!(many.len(), 44);
        assert!(!many.iter().any(shows), "a watch of many from before");
        let mut one = caller.watch(&run_id, Some(0)).await;
        for _ in 0..44 {
            assert!(!shows(&one.change().await), "a watch of one from its beginning");
        }
        assert_eq!(one.end().await, run);
        let filter = RunFilter { started_from: run.started_at, started_before: None, ..RunFilter::default() };
        let ask = ListRunsRequest { filter: Some(filter), page_size: 1_000, ..ListRunsRequest::default() };
        let listed = caller.grpc.clone().list_runs(caller.request(ask)).await.unwrap().into_inner();
        assert!(listed.runs.iter().filter(|listed| listed.run_id == run_id).all(|listed| !shows(listed)));
    }
    assert_eq!(redacted(&other, asked).await.unwrap(), (Disposition::Replayed, run));
    let again = v1::StartRunRequest { request_id: "begin".to_owned(), ..start(&run_id) };
    assert_eq!(caller.refused(again).await.reason, "REQUEST_ID_REUSED", "what was asked then is not known any more");
}

fn fail_with_the_secret(run_id: &str) -> v1::FailRunRequest {
    v1::FailRunRequest { failure_reason: format!("{SECRET} was refused"), ..fail(run_id) }
}

pub(crate) async fn a_run_goes_on_after_a_redaction_as_before(place: Place) {
    let caller = place.caller().await;
    let run_id = spoilt(&caller).await;
    let (_, run) = redacted(&caller, redact(&run_id, &["/metadata"])).await.unwrap();
    assert_eq!(run.metadata, None, "there are none left");
    assert_eq!((run.status(), run.revision), (RunStatus::Running, 43));
    let patched = v1::UpdateRunRequest {
        metadata: value!({"email": SECRET}).as_object().map(json::structure),
        ..update(&run_id)
    };
    let run = caller.apply(patched).await;
    assert!(shows(&run), "what is written later stays");
    // Taken out once more, under any other path as well.
    let (_, run) = redacted(&caller, redact(&run_id, &["/metadata/email", "/reason", "/progress"])).await.unwrap();
    assert!(!shows(&run) && !caller.events(&run_id).await.iter().any(shows));
    let run = caller.apply(complete(&run_id)).await;
    assert_eq!((run.status(), run.revision), (RunStatus::Completed, 46));
}

pub(crate) async fn a_redaction_that_cannot_be_made_names_every_mistake_and_changes_nothing(place: Place) {
    let caller = place.caller().await;
    let run = caller.run_in(RunStatus::Running).await;
    let long = format!("/metadata/{}", "x".repeat(600));
    let wrong = RedactRunRequest {
        request_id: "x".repeat(129),
        reason: "y".repeat(5_000),
        ..redact("no/id", &["metadata", "/labels/a", &long, "/metadata/~2", "/reason/x", ""])
    };
    let mut fields = Refused::from(redacted(&caller, wrong).await.unwrap_err()).fields();
    fields.sort();
    let wanted =
        ["paths[0]", "paths[1]", "paths[2]", "paths[3]", "paths[4]", "paths[5]", "reason", "request_id", "run_id"];
    assert_eq!(fields, wanted);
    for paths in [vec![], vec!["/reason"; 33]] {
        let refused = Refused::from(redacted(&caller, redact(&run.run_id, &paths)).await.unwrap_err());
        assert_eq!((refused.code, refused.fields()), (Code::InvalidArgument, vec!["paths".to_owned()]));
    }
    let unknown = Refused::from(redacted(&caller, redact("nobody", &["/reason"])).await.unwrap_err());
    assert_eq!(unknown.reason, "RUN_NOT_FOUND");
    let stale = RedactRunRequest { expected_revision: Some(9), ..redact(&run.run_id, &["/reason"]) };
    assert_eq!(Refused::from(redacted(&caller, stale).await.unwrap_err()).reason, "REVISION_MISMATCH");
    assert_eq!(caller.get(&run.run_id).await, run);
}

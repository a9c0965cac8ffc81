//! `ListRunEvents`: what happened, page by page.

use futures_util::future::join_all;
use prost::Message as _;
use runledger_proto::v1::{
    AbortRunRequest, Route, RunChanges, RunEvent, RunEventType, RunStatus, StartRunRequest, UpdateRunRequest,
};
use serde_json::json;
use tonic::Code;

use super::caller::{Ask, Caller, THREAD, abort, deferred, fresh, start, update};
use super::place::Place;
use super::refused::Refused;
use super::values::{labels, metadata_of, structure};

pub(crate) async fn the_history_tells_what_each_call_set(place: Place) {
    let caller = place.caller().await;
    let run_id = fresh("history");
    let asked = StartRunRequest { workflow_id: "flow".into(), labels: labels([("k", "v")]), ..deferred(&run_id) };
    let created = caller.apply(asked).await;
    let started = caller.apply(StartRunRequest { route: Route::Mcp.into(), ..start(&run_id) }).await;
    let updated = caller
        .apply(
            Ask::from(UpdateRunRequest {
                workflow_id: Some(String::new()),
                fallback_used: true,
                metadata: structure(json!({"a": {"b": 1}, "gone": null})),
                labels: labels([("k", "v"), ("new", "1")]),
                remove_labels: vec!["unknown".into()],
                ..update(&run_id)
            })
            .request_id("r"),
        )
        .await;
    let ending = AbortRunRequest { reason_code: "TIMEOUT".into(), failure_reason: "late".into(), ..abort(&run_id) };
    let aborted = caller.apply(ending).await;

    let event = |revision, at, r#type: RunEventType, from: RunStatus, to: RunStatus, changes| RunEvent {
        run_id: run_id.clone(),
        revision,
        at,
        r#type: r#type.into(),
        from: from.into(),
        to: to.into(),
        principal: Some(runledger_proto::v1::Principal { kind: 1, ..runledger_proto::v1::Principal::default() }),
        changes: Some(changes),
        request_id: if revision == 3 { "r".into() } else { String::new() },
        traceparent: String::new(),
    };
    let text = |text: &str| Some(text.to_owned());
    let wanted = [
        event(
            1,
            created.updated_at,
            RunEventType::Created,
            RunStatus::Unspecified,
            RunStatus::Pending,
            RunChanges {
                task_thread_id: text(THREAD),
                workflow_id: text("flow"),
                labels: labels([("k", "v")]),
                ..RunChanges::default()
            },
        ),
        event(
            2,
            started.updated_at,
            RunEventType::Started,
            RunStatus::Pending,
            RunStatus::Running,
            RunChanges { route: Some(Route::Mcp.into()), ..RunChanges::default() },
        ),
        event(
            3,
            updated.updated_at,
            RunEventType::Updated,
            RunStatus::Running,
            RunStatus::Running,
            RunChanges {
                workflow_id: text(""),
                fallback_used: true,
                metadata: structure(json!({"a": {"b": 1}, "gone": null})),
                labels: labels([("new", "1")]),
                ..RunChanges::default()
            },
        ),
        event(
            4,
            aborted.updated_at,
            RunEventType::Aborted,
            RunStatus::Running,
            RunStatus::Aborted,
            RunChanges { failure_reason: text("late"), reason_code: text("TIMEOUT"), ..RunChanges::default() },
        ),
    ];
    assert_eq!(place.other().await.events(&run_id).await, wanted);
    let times: Vec<_> = wanted.iter().map(|event| event.at.as_ref().map(|at| (at.seconds, at.nanos))).collect();
    assert!(times.is_sorted(), "times in a run never fall");
}

/// A run with so many events.
async fn long(caller: &Caller, events: u64) -> String {
    let run_id = caller.apply(start(&fresh("long"))).await.run_id;
    let mut revision = 1;
    while revision < events {
        let calls = (revision..events.min(revision + 200)).map(|n| {
            let caller = caller.clone();
            let ask = UpdateRunRequest { metadata: structure(json!({ "n": n })), ..update(&run_id) };
            async move { caller.apply(ask).await }
        });
        revision += join_all(calls).await.len() as u64;
    }
    run_id
}

pub(crate) async fn a_page_is_as_long_as_it_was_asked_for(place: Place) {
    let caller = place.caller().await;
    let run_id = long(&caller, 1_003).await;
    for (size, wanted) in [(0, 100), (1, 1), (99, 99), (1_000, 1_000), (1_001, 1_000), (i32::MAX, 1_000)] {
        let page = caller.page(&run_id, size, "").await.unwrap();
        assert!(page.events.iter().map(|event| event.revision).eq(1..=wanted), "{size}: {}", page.events.len());
        let next = caller.page(&run_id, size, &page.next_page_token).await.unwrap();
        assert_eq!(next.events[0].revision, wanted + 1);
        if wanted == 1_000 {
            assert_eq!((next.events.len(), next.next_page_token.as_str()), (3, ""));
        }
    }
    for size in [-1, i32::MIN] {
        assert_eq!(Refused::from(caller.page(&run_id, size, "").await.unwrap_err()).fields(), ["page_size"]);
    }
}

pub(crate) async fn pages_follow_one_another_over_servers_and_while_the_run_goes_on(place: Place) {
    let callers = [place.caller().await, place.other().await];
    let run_id = long(&callers[0], 10).await;
    let mut seen = Vec::new();
    let mut token = String::new();
    for turn in 0.. {
        let page = callers[turn % 2].page(&run_id, 3, &token).await.unwrap();
        seen.extend(page.events.iter().map(|event| event.revision));
        token = page.next_page_token;
        if turn == 1 {
            callers[0].apply(abort(&run_id)).await;
        }
        if token.is_empty() {
            break;
        }
    }
    assert!(seen.iter().copied().eq(1..=11), "{seen:?}");
}

pub(crate) async fn a_token_that_was_not_given_out_for_this_run_is_refused(place: Place) {
    let caller = place.caller().await;
    let (run_id, another) = (long(&caller, 3).await, long(&caller, 3).await);
    let token = caller.page(&another, 1, "").await.unwrap().next_page_token;
    let (shorter, longer) = (&token[1..], token.clone() + "A");
    for noise in [&token, shorter, &longer, "noise", " ", "1", "🦀", &"A".repeat(10_000)] {
        let refused = Refused::from(caller.page(&run_id, 1, noise).await.unwrap_err());
        refused.is(Code::InvalidArgument, "PAGE_TOKEN_INVALID");
    }
    assert_eq!(caller.page(&another, 1, &token).await.unwrap().events[0].revision, 2);
}

pub(crate) async fn a_page_of_large_events_ends_early(place: Place) {
    let caller = place.caller().await;
    let run_id = caller.apply(start(&fresh("large"))).await.run_id;
    for n in 0..60_usize {
        caller.apply(UpdateRunRequest { metadata: metadata_of(65_000 + n), ..update(&run_id) }).await;
    }
    let page = caller.page(&run_id, 1_000, "").await.unwrap();
    assert!((2..60).contains(&page.events.len()), "{}", page.events.len());
    assert!(page.encoded_len() <= 3 * 1024 * 1024);
    assert_eq!(caller.events(&run_id).await.len(), 61);
}

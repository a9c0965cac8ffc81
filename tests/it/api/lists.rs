//! `ListRuns` and `CountRuns`: which runs, how much of them, page by page.

use std::collections::{BTreeSet, HashMap};

use futures_util::future::join_all;
use prost::Message as _;
use prost_types::Timestamp;
use runledger_proto::v1::{
    CountRunsRequest, CountRunsResponse, ListRunsRequest, ListRunsResponse, Route, Run, RunFilter, RunStatus, RunView,
    StartRunRequest, StatusCount,
};
use serde_json::json;
use tonic::{Code, Status};

use super::caller::{Caller, STATUSES, complete, deferred, fresh, start};
use super::place::{Kind, Place};
use super::refused::Refused;
use super::values::{labels, structure};

const ANSWER_BYTES_MAX: usize = 3 * 1024 * 1024;

async fn list(caller: &Caller, asked: ListRunsRequest) -> Result<ListRunsResponse, Status> {
    let answer = caller.grpc.clone().list_runs(caller.request(asked)).await?.into_inner();
    assert!(answer.encoded_len() <= ANSWER_BYTES_MAX, "{} bytes", answer.encoded_len());
    Ok(answer)
}

async fn count(caller: &Caller, filter: Option<RunFilter>) -> Result<CountRunsResponse, Status> {
    Ok(caller
        .grpc
        .clone()
        .count_runs(caller.request(CountRunsRequest { filter, by_phase: false, by_suspension: false }))
        .await?
        .into_inner())
}

fn of_thread(thread: &str) -> RunFilter {
    RunFilter { task_thread_id: thread.to_owned(), ..RunFilter::default() }
}

fn asked(filter: RunFilter) -> ListRunsRequest {
    ListRunsRequest { filter: Some(filter), ..ListRunsRequest::default() }
}

/// Every page, and what they hold.
async fn all(caller: &Caller, mut request: ListRunsRequest) -> Vec<Run> {
    let mut runs = Vec::new();
    loop {
        let page = list(caller, request.clone()).await.unwrap();
        runs.extend(page.runs);
        request.page_token = page.next_page_token;
        if request.page_token.is_empty() {
            return runs;
        }
    }
}

fn ids(runs: &[Run]) -> Vec<String> {
    runs.iter().map(|run| run.run_id.clone()).collect()
}

/// Creates runs of one fresh task; the newest comes first.
async fn runs_of(caller: &Caller, count: usize) -> (String, Vec<String>) {
    let thread = fresh("listed");
    let started = join_all((0..count).map(|n| {
        let (caller, asked) = (caller.clone(), start(&format!("{thread}-{n}")));
        let asked = StartRunRequest { task_thread_id: thread.clone(), ..asked };
        async move { caller.apply(asked).await }
    }));
    let mut places: Vec<_> =
        started.await.into_iter().map(|run| (run.started_at.map(|at| (at.seconds, at.nanos)), run.run_id)).collect();
    places.sort();
    (thread, places.into_iter().rev().map(|(_, run_id)| run_id).collect())
}

pub(crate) async fn every_field_of_a_filter_narrows_a_list_and_a_count(place: Place) {
    let caller = place.caller().await;
    let thread = fresh("fields");
    let of_thread = |asked| StartRunRequest { task_thread_id: thread.clone(), ..asked };
    let plain = caller.apply(of_thread(start(&fresh("run")))).await;
    let full = StartRunRequest {
        agent_id: "agent".into(),
        workflow_id: "workflow".into(),
        audit_session_id: "audit".into(),
        route: Route::Cli.into(),
        labels: labels([("team", "a"), ("é \"", "")]),
        ..of_thread(start(&fresh("run")))
    };
    let full = caller.apply(full).await;
    let pending = caller.apply(of_thread(deferred(&fresh("run")))).await;
    let ended = caller.apply(of_thread(start(&fresh("run")))).await;
    caller.apply(complete(&ended.run_id)).await;

    let base = || RunFilter { task_thread_id: thread.clone(), ..RunFilter::default() };
    for (filter, found) in [
        (base(), vec![&ended, &pending, &full, &plain]),
        (RunFilter { agent_id: "agent".into(), ..base() }, vec![&full]),
        (RunFilter { workflow_id: "workflow".into(), ..base() }, vec![&full]),
        (RunFilter { audit_session_id: "audit".into(), ..base() }, vec![&full]),
        (RunFilter { route: Route::Cli.into(), ..base() }, vec![&full]),
        (RunFilter { route: Route::Http.into(), ..base() }, vec![]),
        (RunFilter { labels: labels([("é \"", "")]), ..base() }, vec![&full]),
        (RunFilter { labels: labels([("team", "a"), ("é \"", "")]), ..base() }, vec![&full]),
        (RunFilter { labels: labels([("team", "b")]), ..base() }, vec![]),
        (RunFilter { statuses: vec![RunStatus::Pending.into()], ..base() }, vec![&pending]),
        (RunFilter { statuses: vec![3, 1, 3], ..base() }, vec![&ended, &pending]),
        (RunFilter { started_from: full.started_at, ..base() }, vec![&ended, &pending, &full]),
        (RunFilter { started_before: full.started_at, ..base() }, vec![&plain]),
        (RunFilter { started_from: plain.started_at, started_before: full.started_at, ..base() }, vec![&plain]),
    ] {
        let found: Vec<String> = found.into_iter().map(|run| run.run_id.clone()).collect();
        assert_eq!(ids(&all(&caller, asked(filter.clone())).await), found, "{filter:?}");
        let counted = count(&caller, Some(filter.clone())).await.unwrap();
        assert_eq!(counted.counts.iter().map(|count| count.count).sum::<u64>(), found.len() as u64, "{filter:?}");
    }
}

pub(crate) async fn a_page_of_runs_is_as_long_as_it_was_asked_for(place: Place) {
    let caller = place.caller().await;
    let (thread, runs) = runs_of(&caller, 1_003).await;
    for (page_size, wanted) in [(0, 50), (1, 1), (999, 999), (1_000, 1_000), (1_001, 1_000), (i32::MAX, 1_000)] {
        let request = ListRunsRequest { page_size, ..asked(of_thread(&thread)) };
        let page = list(&caller, request.clone()).await.unwrap();
        assert_eq!(ids(&page.runs), runs[..wanted], "{page_size}");
        let next = list(&caller, ListRunsRequest { page_token: page.next_page_token, ..request }).await.unwrap();
        assert_eq!(ids(&next.runs), runs[wanted..(wanted * 2).min(1_003)]);
        if wanted == 1_000 {
            assert_eq!(next.next_page_token, "", "the end is said");
        }
    }
    let (thread, runs) = runs_of(&caller, 4).await;
    let page = list(&caller, ListRunsRequest { page_size: 4, ..asked(of_thread(&thread)) }).await.unwrap();
    assert_eq!((ids(&page.runs), page.next_page_token.as_str()), (runs, ""), "a full page may be the last");
}

pub(crate) async fn what_lies_behind_many_runs_that_do_not_match_is_listed_and_counted_by_one_call(place: Place) {
    let caller = place.caller().await;
    let thread = fresh("behind");
    let oldest = StartRunRequest {
        task_thread_id: thread.clone(),
        labels: labels([("behind", &thread)]),
        ..start(&fresh("oldest"))
    };
    let oldest = caller.apply(oldest).await;
    join_all((0..700).map(|n| {
        let (caller, asked) = (caller.clone(), start(&format!("{thread}-{n}")));
        let asked = StartRunRequest { task_thread_id: thread.clone(), ..asked };
        async move { caller.apply(asked).await }
    }))
    .await;
    let filter = RunFilter { labels: labels([("behind", &thread)]), ..of_thread(&thread) };
    let page = list(&caller, asked(filter.clone())).await.unwrap();
    assert_eq!((ids(&page.runs), page.next_page_token.as_str()), (vec![oldest.run_id], ""));
    for (filter, counted) in [(filter, 1), (of_thread(&thread), 701)] {
        let CountRunsResponse { counts, truncated, .. } = count(&caller, Some(filter)).await.unwrap();
        assert_eq!((counts.iter().map(|count| count.count).sum::<u64>(), truncated), (counted, false));
    }
}

pub(crate) async fn pages_follow_one_another_over_servers_while_runs_start_and_end(place: Place) {
    let callers = [place.caller().await, place.other().await];
    let (thread, runs) = runs_of(&callers[0], 20).await;
    let mut request = ListRunsRequest { page_size: 3, ..asked(of_thread(&thread)) };
    let mut seen = Vec::new();
    for turn in 0.. {
        let page = list(&callers[turn % 2], request.clone()).await.unwrap();
        seen.extend(ids(&page.runs));
        request.page_token = page.next_page_token;
        if request.page_token.is_empty() {
            break;
        }
        let new = StartRunRequest { task_thread_id: thread.clone(), ..start(&fresh("new")) };
        callers[turn % 2].apply(new).await;
        callers[turn % 2].apply(complete(&runs[turn])).await;
        callers[turn % 2].apply(complete(&runs[19 - turn])).await;
    }
    assert_eq!(seen, runs);
}

pub(crate) async fn a_change_that_was_answered_is_listed_everywhere(place: Place) {
    let callers = [place.caller().await, place.other().await];
    let running = |thread: &str| RunFilter { statuses: vec![RunStatus::Running.into()], ..of_thread(thread) };
    for turn in 0..10 {
        let (here, there) = (&callers[turn % 2], &callers[1 - turn % 2]);
        let (thread, runs) = runs_of(here, 1).await;
        assert_eq!(ids(&all(there, asked(running(&thread))).await), runs);
        there.apply(complete(&runs[0])).await;
        assert_eq!(ids(&all(here, asked(running(&thread))).await), [""; 0]);
        assert_eq!(count(here, Some(running(&thread))).await.unwrap().counts[0].count, 0);
    }
}

pub(crate) async fn only_a_full_view_shows_metadata(place: Place) {
    let caller = place.caller().await;
    let thread = fresh("view");
    let metadata = structure(json!({"a": [1, {"b": null}], "text": "é"}));
    let asked_for = StartRunRequest {
        task_thread_id: thread.clone(),
        labels: labels([("k", "v")]),
        metadata,
        ..start(&fresh("view"))
    };
    let run = caller.apply(asked_for).await;
    let basic = Run { metadata: None, ..run.clone() };
    for (view, shown) in [(RunView::Unspecified, &basic), (RunView::Basic, &basic), (RunView::Full, &run)] {
        let request = ListRunsRequest { view: view.into(), ..asked(of_thread(&thread)) };
        assert_eq!(list(&caller, request).await.unwrap().runs, std::slice::from_ref(shown), "{view:?}");
    }
}

pub(crate) async fn a_page_token_is_for_its_filter_and_its_ledger(place: Place) {
    let caller = place.caller().await;
    let (thread, runs) = runs_of(&caller, 5).await;
    let filter = RunFilter {
        statuses: vec![RunStatus::Running.into(), RunStatus::Pending.into()],
        labels: HashMap::new(),
        ..of_thread(&thread)
    };
    let request = ListRunsRequest { page_size: 2, ..asked(filter.clone()) };
    let token = list(&caller, request.clone()).await.unwrap().next_page_token;
    // The same question in other words, another page size, another view.
    let same = RunFilter { statuses: vec![1, 2, 2, 1], ..filter.clone() };
    for (page_size, view) in [(2, RunView::Basic), (1_000, RunView::Full)] {
        let filter = Some(same.clone());
        let request = ListRunsRequest { filter, page_size, page_token: token.clone(), view: view.into() };
        assert_eq!(list(&caller, request).await.unwrap().runs[0].run_id, runs[2]);
    }

    let invalid = |status: Status| {
        let refused = Refused::from(status).is(Code::InvalidArgument, "PAGE_TOKEN_INVALID");
        assert!(refused.message.contains("begin again without it"), "{refused:?}");
    };
    for another in [
        RunFilter { task_thread_id: fresh("another"), ..filter.clone() },
        RunFilter { statuses: vec![1], ..filter.clone() },
        RunFilter { statuses: vec![], ..filter.clone() },
        RunFilter { route: Route::Mcp.into(), ..filter.clone() },
        RunFilter { labels: labels([("k", "v")]), ..filter.clone() },
        RunFilter { started_from: Some(Timestamp::default()), ..filter.clone() },
        RunFilter::default(),
    ] {
        let request = ListRunsRequest { page_token: token.clone(), ..asked(another) };
        invalid(list(&caller, request).await.unwrap_err());
    }
    let run_id = &runs[0];
    let (shorter, longer) = (&token[1..], token.clone() + "A");
    let history = list_events_token(&caller, run_id).await;
    for noise in [shorter, &longer, &history, "noise", " ", "1", "🦀", &"A".repeat(10_000)] {
        invalid(list(&caller, ListRunsRequest { page_token: noise.to_owned(), ..request.clone() }).await.unwrap_err());
    }
    invalid(caller.page(run_id, 1, &token).await.unwrap_err());
    let elsewhere = Place::of(if place.kind == Kind::Sqlite { Kind::Postgres } else { Kind::Sqlite }).await;
    let there = elsewhere.caller().await;
    invalid(list(&there, ListRunsRequest { page_token: token, ..request }).await.unwrap_err());
}

/// A token of a run's history.
async fn list_events_token(caller: &Caller, run_id: &str) -> String {
    caller.apply(complete(run_id)).await;
    caller.page(run_id, 1, "").await.unwrap().next_page_token
}

pub(crate) async fn everything_that_is_wrong_with_a_filter_is_named(place: Place) {
    let caller = place.caller().await;
    let wrong = RunFilter {
        task_thread_id: "x".repeat(257),
        statuses: vec![2, 0, 99],
        agent_id: "\0".into(),
        workflow_id: "é".repeat(129),
        audit_session_id: "a\0b".into(),
        route: -1,
        labels: labels([("", "v"), ("k", "\0")]),
        started_from: Some(Timestamp { seconds: i64::MAX, nanos: 0 }),
        started_before: Some(Timestamp { seconds: 0, nanos: -1 }),
        archived: 4,
        parent_run_id: "a b".into(),
        continues_run_id: "é".into(),
        phase: "A".into(),
        lifecycle: "a@1".into(),
        suspended: None,
        ready: None,
        suspension_kind: "help".into(),
    };
    let wanted: BTreeSet<&str> = [
        "filter.task_thread_id",
        "filter.statuses[1]",
        "filter.statuses[2]",
        "filter.agent_id",
        "filter.workflow_id",
        "filter.audit_session_id",
        "filter.route",
        "filter.labels[\"\"]",
        "filter.labels[\"k\"]",
        "filter.started_from",
        "filter.started_before",
        "filter.archived",
        "filter.parent_run_id",
        "filter.continues_run_id",
        "filter.suspension_kind",
        "filter.phase",
        "filter.lifecycle",
    ]
    .into();
    let named = |status: Status| Refused::from(status).fields().into_iter().collect::<BTreeSet<String>>();
    let of = |fields: &BTreeSet<&str>| fields.iter().map(|field| (*field).to_owned()).collect::<BTreeSet<String>>();
    assert_eq!(named(count(&caller, Some(wrong.clone())).await.unwrap_err()), of(&wanted));
    let request = ListRunsRequest { page_size: -1, view: 7, page_token: "noise".into(), ..asked(wrong) };
    let more: BTreeSet<&str> = wanted.into_iter().chain(["page_size", "view"]).collect();
    assert_eq!(named(list(&caller, request).await.unwrap_err()), of(&more), "the request, whole, before its token");

    let at = |seconds| Some(Timestamp { seconds, nanos: 0 });
    for (from, before) in [(1, 1), (2, 1)] {
        let empty = RunFilter { started_from: at(from), started_before: at(before), ..RunFilter::default() };
        assert_eq!(named(count(&caller, Some(empty)).await.unwrap_err()), of(&["filter.started_before"].into()));
    }
    for page_size in [-1, i32::MIN] {
        let request = ListRunsRequest { page_size, ..ListRunsRequest::default() };
        assert_eq!(named(list(&caller, request).await.unwrap_err()), of(&["page_size"].into()));
    }
}

pub(crate) async fn a_count_names_every_status_that_the_filter_lets_through(place: Place) {
    let caller = place.caller().await;
    let (thread, runs) = runs_of(&caller, 5).await;
    caller.apply(complete(&runs[0])).await;
    caller.apply(complete(&runs[3])).await;
    let counts = |counts: &[(RunStatus, u64)]| {
        let counts = counts.iter().map(|(status, count)| StatusCount { status: (*status).into(), count: *count });
        CountRunsResponse { counts: counts.collect(), ..CountRunsResponse::default() }
    };
    let counted = count(&caller, Some(of_thread(&thread))).await.unwrap();
    let of_status = |status| match status {
        RunStatus::Running => 3,
        RunStatus::Completed => 2,
        RunStatus::Unspecified | RunStatus::Pending | RunStatus::Aborted | RunStatus::Failed => 0,
    };
    assert_eq!(counted, counts(&STATUSES.map(|status| (status, of_status(status)))));
    let some = RunFilter { statuses: vec![3, 1, 3], ..of_thread(&thread) };
    let counted = count(&caller, Some(some)).await.unwrap();
    assert_eq!(counted, counts(&[(RunStatus::Pending, 0), (RunStatus::Completed, 2)]));
    // Without a filter, all runs, others' too.
    let all = count(&caller, None).await.unwrap().counts;
    assert!(all.len() == 5 && all[1].count >= 3 && all[2].count >= 2, "{all:?}");
}

pub(crate) async fn no_page_of_runs_is_above_3_mib(place: Place) {
    let caller = place.caller().await;
    let thread = fresh("large");
    // A number is two bytes as JSON and eleven on the wire: what the store shows as a MiB is more than five there.
    let numbers = structure(json!({ "k": vec![1; 32_000] }));
    for n in 0..20 {
        let asked = StartRunRequest { metadata: numbers.clone(), ..start(&format!("{thread}-{n}")) };
        caller.apply(StartRunRequest { task_thread_id: thread.clone(), ..asked }).await;
    }
    let request = ListRunsRequest { view: RunView::Full.into(), page_size: 1_000, ..asked(of_thread(&thread)) };
    let page = list(&caller, request.clone()).await.unwrap();
    assert!((5..20).contains(&page.runs.len()), "{}", page.runs.len());
    assert!(page.encoded_len() > 2 * 1024 * 1024, "{} bytes", page.encoded_len());
    let runs = all(&caller, request).await;
    assert_eq!(ids(&runs), (0..20).rev().map(|n| format!("{thread}-{n}")).collect::<Vec<_>>());
    assert!(runs.iter().all(|run| run.metadata == numbers));
}

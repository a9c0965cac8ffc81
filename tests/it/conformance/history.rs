//! One run's past.

use runledger::domain::evolve::evolve;
use runledger::domain::{Event, Run};
use runledger::store::{PAGE_BYTES_MAX, Store, json};
use serde_json::json;

use super::asking::{apply, ask};
use super::fixture::Fixture;
use super::sound::sound;
use crate::support::commands::{Asking as _, complete, fail, key, start, update};

/// A run with this many events, and its states, the first at index 0.
async fn long(store: &dyn Store, run_id: &str, events: u64) -> Vec<Run> {
    let mut states = vec![apply(store, start(run_id).label("n", "0").metadata(&json!({"n": 0}))).await];
    for n in 1..events {
        let command = match n % 3 {
            0 => update(run_id).metadata(&json!({"n": n, (format!("k{}", n % 7)): {"deep": [n]}})),
            1 => update(run_id).label("n", &n.to_string()),
            _ => update(run_id).workflow(&format!("w-{n}")),
        };
        states.push(apply(store, command).await);
    }
    states
}

pub(crate) async fn a_run_of_100_events_reads_right_at_every_revision<F: Fixture>(fixture: F) {
    let states = long(fixture.store(), "run-1", 100).await;
    // Other runs' events and keyframes stand among them.
    long(fixture.store(), "run-2", 40).await;
    for state in &states {
        let read = fixture.store().run_at(&key("run-1"), state.revision).await.unwrap();
        assert_eq!(read.as_ref(), Some(state), "revision {}", state.revision);
    }
    sound(fixture.store()).await;
}

pub(crate) async fn a_revision_that_no_event_made_has_no_state<F: Fixture>(fixture: F) {
    long(fixture.store(), "run-1", 33).await;
    for revision in [0, 34, 64, 65, u64::MAX] {
        assert_eq!(fixture.store().run_at(&key("run-1"), revision).await.unwrap(), None, "revision {revision}");
    }
    assert_eq!(fixture.store().run_at(&key("run-2"), 1).await.unwrap(), None);
}

pub(crate) async fn events_are_paged_by_revision<F: Fixture>(fixture: F) {
    let states = long(fixture.store(), "run-1", 40).await;
    long(fixture.store(), "run-2", 5).await;
    let all = fixture.store().run_events(&key("run-1"), 0, 1000, PAGE_BYTES_MAX).await.unwrap();
    assert!(all.iter().map(|event| event.revision).eq(1..=40));
    for limit in [1, 7, 39, 40, 41] {
        let mut read: Vec<Event> = Vec::new();
        loop {
            let after = read.last().map_or(0, |event| event.revision);
            let page = fixture.store().run_events(&key("run-1"), after, limit, PAGE_BYTES_MAX).await.unwrap();
            assert_eq!(page.len(), limit.min(40 - read.len()));
            if page.is_empty() {
                break;
            }
            read.extend(page);
        }
        assert_eq!(read, all, "limit {limit}");
    }
    let mut run = None;
    for (event, state) in all.iter().zip(&states) {
        run = Some(evolve(run, event));
        assert_eq!(run.as_ref(), Some(state));
    }
    assert_eq!(fixture.store().run_events(&key("run-1"), u64::MAX, 10, PAGE_BYTES_MAX).await.unwrap(), []);
}

pub(crate) async fn a_page_of_events_is_bounded_in_bytes<F: Fixture>(fixture: F) {
    apply(fixture.store(), start("run-1")).await;
    for n in 0..40 {
        let text = char::from(b'a' + n % 26).to_string().repeat(60_000);
        apply(fixture.store(), update("run-1").metadata(&json!({"text": text, "n": n}))).await;
    }
    let mut after = 0;
    let mut pages = 0;
    loop {
        let page = fixture.store().run_events(&key("run-1"), after, 1000, PAGE_BYTES_MAX).await.unwrap();
        let Some(last) = page.last() else { break };
        assert!(page.iter().map(|event| event.revision).eq(after + 1..=last.revision));
        let bytes: usize = page.iter().map(|event| json::event(event).len()).sum();
        assert!(bytes < PAGE_BYTES_MAX + 130_000, "a page of {bytes} bytes");
        after = last.revision;
        pages += 1;
    }
    assert_eq!(after, 41);
    assert!((3..=5).contains(&pages), "{pages} pages of about a MiB hold 2.4 MB");
}

pub(crate) async fn events_read_back_as_they_were_decided<F: Fixture>(fixture: F) {
    let begin = start("run-1").owner("agent-1").label("k", "v").by("acting").request("request-1");
    let change = update("run-1").without_label("k").metadata(&json!({"a": null, "b": [1, 2.5, {"c": null}]})).changing(
        |changes| {
            changes.fallback_used = true;
            changes.route = Some(runledger::domain::Route::Cli);
            changes.tab_group_id = Some("tabs".into());
            changes.audit_session_id = Some("audit".into());
        },
    );
    let end = fail("run-1").reason("late").changing(|changes| changes.reason_code = Some("TIMEOUT".into()));
    let mut model = crate::support::model::Model::default();
    for command in [begin, change, end] {
        let run = apply(fixture.store(), command.clone()).await;
        model.ask(&command, run.updated_at).unwrap();
    }
    assert_eq!(fixture.store().run_events(&key("run-1"), 0, 10, PAGE_BYTES_MAX).await.unwrap(), model.events);
    let logged = sound(fixture.store()).await.log.into_iter().map(|logged| logged.event);
    assert_eq!(logged.collect::<Vec<_>>(), model.events);
}

pub(crate) async fn an_unknown_run_has_no_record_and_no_history<F: Fixture>(fixture: F) {
    apply(fixture.store(), start("run-1")).await;
    let _refused = ask(fixture.store(), complete("run-2")).await.unwrap_err();
    for unknown in ["run-2", "run-", "RUN-1", "run-1 ", ""] {
        assert_eq!(fixture.store().run(&key(unknown)).await.unwrap(), None);
        assert_eq!(fixture.store().run_events(&key(unknown), 0, 10, PAGE_BYTES_MAX).await.unwrap(), []);
    }
}

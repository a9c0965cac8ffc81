//! One run's past.

use runledger::domain::evolve::evolve;
use runledger::domain::limits::{
    CONTENT_BYTES_MAX, KEYFRAME_EVENTS, LINK_REL_BYTES_MAX, LINK_TARGET_BYTES_MAX, LINKS_MAX, METADATA_BYTES_MAX,
};
use runledger::domain::{Event, Positions, Revision, Run};
use runledger::store::{PAGE_BYTES_MAX, Store, json, run_at};
use serde_json::json;

use super::asking::{apply, ask};
use super::fixture::Fixture;
use super::sound::{Whole, sound};
use crate::support::commands::{Asking as _, complete, fail, key, left, start, update};

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
        let read = run_at(fixture.store(), &key("run-1"), state.revision).await.unwrap();
        assert_eq!(read.as_ref(), Some(state), "revision {}", state.revision);
    }
    sound(fixture.store()).await;
}

pub(crate) async fn a_revision_that_no_event_made_has_no_state<F: Fixture>(fixture: F) {
    long(fixture.store(), "run-1", 33).await;
    for revision in [0, 34, 64, 65, u64::MAX] {
        assert_eq!(run_at(fixture.store(), &key("run-1"), revision.into()).await.unwrap(), None, "revision {revision}");
    }
    assert_eq!(run_at(fixture.store(), &key("run-2"), 1.into()).await.unwrap(), None);
}

/// The largest changes, from one keyframe to the next: what a read of a revision holds in memory.
pub(crate) async fn the_longest_way_from_a_keyframe_is_below_8_mib<F: Fixture>(fixture: F) {
    let store = fixture.store();
    apply(store, start("large")).await;
    let text = |bytes: usize, byte: &str| byte.repeat(bytes);
    for n in 2..KEYFRAME_EVENTS {
        // A patch takes out what the one before it brought.
        let fresh = text(METADATA_BYTES_MAX - 100, "x");
        let patch = json!({(format!("k{}", n - 1)): null, (format!("k{n}")): fresh});
        let links = (0..LINKS_MAX / usize::try_from(KEYFRAME_EVENTS).unwrap()).map(|of| {
            (text(LINK_REL_BYTES_MAX, "r"), format!("{:t>width$}", format!("{n}-{of}"), width = LINK_TARGET_BYTES_MAX))
        });
        let links: Vec<_> = links.collect();
        let links: Vec<_> = links.iter().map(|(rel, target)| (rel.as_str(), target.as_str())).collect();
        let result = json!({ "n": n, "text": text(CONTENT_BYTES_MAX - 100, "x") });
        apply(store, left("large", &result, &links).metadata(&patch)).await;
    }
    let last = store.run(&key("large")).await.unwrap().unwrap();
    assert_eq!(last.revision, KEYFRAME_EVENTS - 1);
    assert_eq!(run_at(store, &key("large"), last.revision).await.unwrap().as_ref(), Some(&last));
    let events = store.run_events(&key("large"), 0.into(), 1000, 64 << 20).await.unwrap();
    let bytes: usize = events.iter().map(Event::weight).sum();
    assert_eq!(events.len() as u64, KEYFRAME_EVENTS - 1);
    assert!((1 << 20..8 << 20).contains(&bytes), "{bytes} bytes");
}

pub(crate) async fn many_runs_are_read_as_of_their_revisions_and_as_of_the_heads<F: Fixture>(fixture: F) {
    let store = fixture.store();
    let (mut wanted, mut expected, mut heads) = (Vec::new(), Vec::new(), Vec::new());
    for (number, events) in [1, 31, 32, 33, 70].into_iter().enumerate() {
        heads.push(store.ends().await.unwrap());
        let run_id = format!("run-{number}");
        for state in long(store, &run_id, events).await {
            wanted.push((key(&run_id), state.revision));
            expected.push(Some(state));
        }
        wanted.push((key(&run_id), (events + 1).into()));
        expected.push(None);
    }
    wanted.reverse();
    expected.reverse();
    assert_eq!(store.runs_at(&wanted).await.unwrap(), expected);
    assert_eq!(store.runs_at(&[]).await.unwrap(), []);

    let keys: Vec<_> = ["run-4", "run-0", "nobody", "run-3", "run-0"].map(key).into();
    let as_of = async |heads: &Positions| store.revisions_as_of(&keys, heads).await.unwrap();
    assert_eq!(as_of(&store.ends().await.unwrap()).await, [70, 1, 0, 33, 1]);
    assert_eq!(as_of(&heads[4]).await, [0, 1, 0, 33, 1]);
    assert_eq!(as_of(&heads[3]).await, [0, 1, 0, 0, 1]);
    assert_eq!(as_of(&heads[0]).await, [0; 5]);
    for (number, (key, revision)) in wanted.iter().enumerate().filter(|(_, (_, revision))| revision.get() % 7 == 1) {
        let Some(run) = &expected[number] else { continue };
        // The log's positions when this run was this far: at its own event.
        let mut after = heads[0].clone();
        let page = Whole::of(store.changes(&after, 1000, usize::MAX).await.unwrap());
        for logged in page.events {
            after.set(logged.shard, logged.position);
            if (&logged.event.key, logged.event.revision) == (key, run.revision) {
                break;
            }
        }
        assert_eq!(store.revisions_as_of(std::slice::from_ref(key), &after).await.unwrap(), [*revision]);
    }
}

pub(crate) async fn events_are_paged_by_revision<F: Fixture>(fixture: F) {
    let states = long(fixture.store(), "run-1", 40).await;
    long(fixture.store(), "run-2", 5).await;
    let all = fixture.store().run_events(&key("run-1"), Revision::NONE, 1000, PAGE_BYTES_MAX).await.unwrap();
    assert!(all.iter().map(|event| event.revision).eq(1..=40));
    for limit in [1, 7, 39, 40, 41] {
        let mut read: Vec<Event> = Vec::new();
        loop {
            let after = read.last().map_or(Revision::NONE, |event| event.revision);
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
    assert_eq!(fixture.store().run_events(&key("run-1"), u64::MAX.into(), 10, PAGE_BYTES_MAX).await.unwrap(), []);
}

pub(crate) async fn a_page_of_events_is_bounded_in_bytes<F: Fixture>(fixture: F) {
    apply(fixture.store(), start("run-1")).await;
    for n in 0..40 {
        let text = char::from(b'a' + n % 26).to_string().repeat(60_000);
        apply(fixture.store(), update("run-1").metadata(&json!({"text": text, "n": n}))).await;
    }
    let mut after = Revision::NONE;
    let mut pages = 0;
    loop {
        let page = fixture.store().run_events(&key("run-1"), after, 1000, PAGE_BYTES_MAX).await.unwrap();
        let Some(last) = page.last() else { break };
        assert!(page.iter().map(|event| event.revision).eq(after.get() + 1..=last.revision.get()));
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
    assert_eq!(
        fixture.store().run_events(&key("run-1"), Revision::NONE, 10, PAGE_BYTES_MAX).await.unwrap(),
        model.events
    );
    let logged = sound(fixture.store()).await.log.into_iter().map(|logged| logged.event);
    assert_eq!(logged.collect::<Vec<_>>(), model.events);
}

pub(crate) async fn an_unknown_run_has_no_record_and_no_history<F: Fixture>(fixture: F) {
    apply(fixture.store(), start("run-1")).await;
    let _refused = ask(fixture.store(), complete("run-2")).await.unwrap_err();
    for unknown in ["run-2", "run-", "RUN-1", "run-1 ", ""] {
        assert_eq!(fixture.store().run(&key(unknown)).await.unwrap(), None);
        assert_eq!(fixture.store().run_events(&key(unknown), Revision::NONE, 10, PAGE_BYTES_MAX).await.unwrap(), []);
    }
}

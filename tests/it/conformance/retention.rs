//! Retention: what is due is purged whole, nothing else goes, and whoever asks is told.

use std::ops::ControlFlow;

use runledger::domain::{
    Ask, Command, Ending, NamespaceAsk, NamespaceRefusal, Position, RedactedPath, Redaction, Refusal, Retention,
    Revision, Run, RunKey, Shard, Status,
};
use runledger::retention::{GRACE, Mode, Quiets, walk};
use runledger::store::contents::Beside;
use runledger::store::retention::{PURGE_RUNS_MAX, Purged, Walk, Walked};
use runledger::store::{PAGE_BYTES_MAX, Store, StoreError};

use super::asking::{apply, ask, ask_all, beginning, home, neighbours, stored, word};
use super::fixture::Fixture;
use super::namespaces::{change, make, within};
use crate::support::commands::{
    Asking as _, Operation, abort, archive, command, complete, fail, given, key, left, start, suspend, update,
};
use crate::support::wrapped::Wrapped;

const HOUR_MS: u64 = 3_600_000;

/// Keeps completed runs for an hour, failed ones for three, and aborted ones for ever.
fn kept() -> Retention {
    Retention { completed_ms: Some(HOUR_MS), failed_ms: Some(3 * HOUR_MS), ..Retention::default() }
}

async fn keeps(store: &dyn Store, namespace: &str, retention: Retention) {
    let ask = NamespaceAsk::Update {
        description: None,
        max_active_runs: None,
        max_stored_bytes: None,
        retention: Some(retention),
    };
    change(store, namespace, ask).await.unwrap();
}

async fn purge(store: &dyn Store) -> Purged {
    walk(store, None, Mode::Purge, &mut Quiets::default(), |_| ControlFlow::Continue(())).await.unwrap()
}

/// The same by a server, which leaves alone what was changed lately. What it knows is its own, and goes with it.
async fn purge_as_servers_do(store: &dyn Store) -> Purged {
    walk(store, None, Mode::Purge, &mut Quiets::with_grace(GRACE), |_| ControlFlow::Continue(())).await.unwrap()
}

/// An event in every shard, of runs that go on: a shard's newest event is never purged.
async fn newest(store: &dyn Store, name: &str) {
    let mut shards: Vec<Shard> = (0..store.ledger().shard_count).map(Shard).collect();
    let mut number = 0;
    while !shards.is_empty() {
        let command = start(&format!("{name}-{number}"));
        number += 1;
        if let Some(place) = shards.iter().position(|shard| *shard == home(store, &command.key)) {
            shards.remove(place);
            apply(store, command).await;
        }
    }
}

async fn events(store: &dyn Store, key: &RunKey) -> usize {
    store.run_events(key, Revision::NONE, 1_000, PAGE_BYTES_MAX).await.unwrap().len()
}

async fn is_gone(store: &dyn Store, before: &Run) {
    let key = before.key();
    assert_eq!(events(store, &key).await, 0, "{}", key.run_id);
    let left = stored(store, &key).await;
    assert!(left.purged_at.is_some_and(|at| at > before.updated_at));
    assert_eq!((left.status, left.revision), (before.status, before.revision));
    assert_eq!((left.completed_at, left.updated_at), (before.completed_at, before.updated_at));
    assert!(
        left.metadata.is_empty()
            && left.labels.is_empty()
            && left.agent_id.is_none()
            && left.ending == Ending::default()
    );
    let calls: Vec<Command> = vec![
        start(&key.run_id),
        update(&key.run_id),
        complete(&key.run_id),
        abort(&key.run_id),
        fail(&key.run_id),
        archive(&key.run_id),
        start(&key.run_id).request("start"),
    ];
    for command in calls {
        let command = Command { key: key.clone(), ..command };
        let refused = ask(store, command).await.unwrap_err();
        let Refusal::RunExpired { run, purged_at } = refused else { panic!("{refused:?}") };
        assert_eq!((run.status, Some(purged_at)), (before.status, left.purged_at));
    }
}

async fn is_there(store: &dyn Store, before: &Run) {
    assert_eq!(stored(store, &before.key()).await, *before);
    assert_eq!(events(store, &before.key()).await as u64, before.revision.get());
}

pub(crate) async fn what_is_due_is_purged_whole_and_nothing_else_goes<F: Fixture>(fixture: F) {
    let store = fixture.store();
    keeps(store, "default", kept()).await;
    let of = |id: &str| start(id).label("team", "a").metadata(&serde_json::json!({"secret": 1})).request("start");
    for id in ["completed", "aborted", "failed", "running", "archived", "late"] {
        apply(store, of(id)).await;
    }
    // What a run waited for goes with it; a run that waits is not due.
    apply(store, suspend("completed", "HELP", "which account?")).await;
    apply(store, suspend("running", "PAUSED", "not now")).await;
    apply(store, complete("completed")).await;
    apply(store, abort("aborted")).await;
    apply(store, fail("failed")).await;
    apply(store, complete("archived")).await;
    apply(store, complete("late")).await;
    newest(store, "early").await;
    assert_eq!(purge(store).await, Purged::default(), "nothing is due yet");
    let of_completed = Walk { namespace: "default".into(), keep_ms: HOUR_MS, statuses: vec![Status::Completed] };
    let shard = home(store, &key("completed"));
    let quiet_for = store.due(shard, &of_completed, 0, Position::MAX).await.unwrap().quiet_for.as_millis();
    assert!((1..=u128::from(HOUR_MS)).contains(&quiet_for), "nor for {quiet_for} ms");
    fixture.pass_hours(&[], HOUR_MS - 60_000).await;
    // Its last event is younger than its end.
    apply(store, archive("late")).await;
    fixture.pass_hours(&[], 60_000).await;
    newest(store, "later").await;
    let before = async |id: &str| stored(store, &key(id)).await;
    let (completed, archived) = (before("completed").await, before("archived").await);
    let (aborted, failed, running, late) =
        (before("aborted").await, before("failed").await, before("running").await, before("late").await);
    assert_eq!(purge(store).await, Purged { runs: 2, events: 5 });
    for run in [&completed, &archived] {
        is_gone(store, run).await;
    }
    for run in [&aborted, &failed, &running, &late] {
        is_there(store, run).await;
    }
    assert_eq!(purge(store).await, Purged::default());
    fixture.pass_hours(&[], 2 * HOUR_MS).await;
    newest(store, "last").await;
    assert_eq!(purge(store).await, Purged { runs: 2, events: 5 });
    is_gone(store, &late).await;
    is_gone(store, &failed).await;
    is_there(store, &aborted).await;
}

pub(crate) async fn what_stands_beside_a_run_is_counted_and_goes_with_it<F: Fixture>(fixture: F) {
    let store = fixture.store();
    make(store, "team-a", None).await;
    keeps(store, "team-a", kept()).await;
    let quota = NamespaceAsk::Update {
        description: None,
        max_active_runs: None,
        max_stored_bytes: Some(Some(1 << 40)),
        retention: None,
    };
    change(store, "team-a", quota).await.unwrap();
    let measured = async || {
        while store.measure().await.unwrap() {}
        store.namespaces(&["team-a".into()]).await.unwrap().pop().unwrap().stored_bytes.unwrap()
    };
    let text = |bytes: usize| serde_json::json!({ "text": "x".repeat(bytes) });
    let bare = apply(store, within("team-a", start("bare"))).await;
    apply(store, within("team-a", given("full", &text(30_000), "bare"))).await;
    let before = measured().await;
    assert!((30_000..40_000).contains(&before), "{before}");
    let links = [("artifact", "a"), ("url", &*"t".repeat(1_000))];
    let full = apply(store, within("team-a", left("full", &text(20_000), &links))).await;
    apply(store, within("team-a", left("full", &text(10_000), &[("url", "b")]))).await;
    let most = measured().await;
    assert!((before + 31_000..before + 40_000).contains(&most), "{before}, {most}");
    // Of what is taken out, nothing is counted any more.
    let mut redaction = within("team-a", command("full", Operation::Redact));
    let paths = ["/result", "/links"].map(|path| RedactedPath::parse(path).unwrap()).into();
    redaction.ask = Ask::Redact(Redaction { paths, reason: None });
    apply(store, redaction).await;
    let less = measured().await;
    assert!((before..before + 5_000).contains(&less), "{before}, {less}");
    let run = apply(store, within("team-a", complete("full"))).await;
    let all = Beside { input: true, results: [Some(2.into()), Some(3.into())], links: 64 };
    let rows = store.beside(&full.key(), &all).await.unwrap();
    assert_eq!(rows.len(), 4, "the input and three links, of which nothing is told: {rows:?}");
    apply(store, within("team-a", complete("bare"))).await;
    fixture.pass_hours(&[], HOUR_MS).await;
    for shard in (0..store.ledger().shard_count).map(Shard) {
        let lives_there =
            |id: &String| home(store, &RunKey { namespace: "team-a".into(), run_id: id.as_str().into() }) == shard;
        let id = (0..1_000).map(|n| format!("later-{n}")).find(lives_there).unwrap();
        apply(store, within("team-a", start(&id))).await;
    }
    assert_eq!(purge(store).await, Purged { runs: 2, events: 7 });
    assert!(store.beside(&full.key(), &all).await.unwrap().is_empty());
    assert!(measured().await < 30_000);
    let gone = stored(store, &run.key()).await;
    assert!(gone.purged_at.is_some() && gone.refinements.is_none(), "{gone:?}");
    assert!(stored(store, &bare.key()).await.purged_at.is_some());
}

pub(crate) async fn the_newest_event_of_a_shard_stays_until_another_follows<F: Fixture>(fixture: F) {
    let store = fixture.store();
    keeps(store, "default", kept()).await;
    let run = apply(store, start("run")).await;
    let shard = home(store, &run.key());
    apply(store, complete("run")).await;
    fixture.pass_hours(&[], 2 * HOUR_MS).await;
    assert_eq!(purge(store).await, Purged::default());
    let ends = store.ends().await.unwrap();
    newest(store, "next").await;
    assert_eq!(purge(store).await, Purged { runs: 1, events: 2 });
    let next = store.ends().await.unwrap();
    assert_eq!(next.of(shard), ends.of(shard) + 1, "no position is given out again");
}

/// The last position of which an event may be gone does not tell it: an earlier run may be purged later.
pub(crate) async fn whoever_looked_before_a_purge_is_told_of_it<F: Fixture>(fixture: F) {
    let store = fixture.store();
    let namespace = "default".into();
    keeps(store, "default", kept()).await;
    assert_eq!(store.walked_all(&namespace).await.unwrap().0, Walked::default());
    let failed = key("failed");
    apply(store, start("failed")).await;
    let failed = apply(store, fail(&failed.run_id)).await;
    let beside = |id: &String| home(store, &key(id)) == home(store, &failed.key());
    let completed = (0..1_000).map(|n| format!("completed-{n}")).find(beside).unwrap();
    apply(store, start(&completed)).await;
    apply(store, complete(&completed)).await;
    newest(store, "early").await;
    fixture.pass_hours(&[], HOUR_MS).await;
    newest(store, "later").await;
    assert_eq!(purge(store).await, Purged { runs: 1, events: 2 });
    let (looked, now) = store.walked_all(&namespace).await.unwrap();
    assert_eq!(Walked::default().purged_before(&looked, now), Some(now.minus_ms(HOUR_MS)));
    let forgotten = store.forgotten(&namespace).await.unwrap();
    assert_eq!(purge(store).await, Purged::default());
    let (later, now) = store.walked_all(&namespace).await.unwrap();
    assert_eq!(looked.purged_before(&later, now), None);
    fixture.pass_hours(&[], 2 * HOUR_MS).await;
    newest(store, "last").await;
    let ended_at = stored(store, &failed.key()).await.updated_at;
    assert_eq!(purge(store).await, Purged { runs: 1, events: 2 });
    assert_eq!(store.forgotten(&namespace).await.unwrap(), forgotten);
    let (later, now) = store.walked_all(&namespace).await.unwrap();
    assert!(looked.purged_before(&later, now).is_some_and(|before| before >= ended_at));
    assert_eq!(later.purged_before(&Walked::default(), now), Some(now), "walks that are gone were forgotten with all");
}

pub(crate) async fn a_namespaces_retention_is_its_own<F: Fixture>(fixture: F) {
    let store = fixture.store();
    for name in ["team-a", "team-b"] {
        make(store, name, None).await;
        for id in ["one", "two"] {
            apply(store, within(name, start(id))).await;
            apply(store, within(name, complete(id))).await;
        }
    }
    apply(store, start("one")).await;
    apply(store, complete("one")).await;
    keeps(store, "team-a", kept()).await;
    newest(store, "early").await;
    fixture.pass_hours(&[], HOUR_MS).await;
    newest(store, "later").await;
    assert_eq!(purge(store).await, Purged { runs: 2, events: 4 });
    let of = |name: &str, id: &str| RunKey { namespace: name.into(), run_id: id.into() };
    assert!(stored(store, &of("team-a", "one")).await.purged_at.is_some());
    for there in [of("team-b", "one"), of("team-b", "two"), of("default", "one")] {
        assert!(stored(store, &there).await.purged_at.is_none());
    }
    // Events of others lie between: only a namespace's own are forgotten.
    assert_ne!(store.forgotten(&"team-a".into()).await.unwrap(), beginning(store));
    for other in ["team-b", "default"] {
        assert_eq!(store.forgotten(&other.into()).await.unwrap(), beginning(store));
    }
    assert_eq!(change(store, "team-a", NamespaceAsk::Delete).await, Err(NamespaceRefusal::NotEmpty));
}

pub(crate) async fn a_run_is_kept_until_its_events_were_exported_where_its_namespace_wants_it<F: Fixture>(fixture: F) {
    let store = fixture.store();
    make(store, "team-a", None).await;
    for name in ["team-a", "default"] {
        keeps(store, name, Retention { until_exported: name == "team-a", ..kept() }).await;
    }
    let finish = async |name: &str, id: &str| {
        apply(store, within(name, start(id))).await;
        apply(store, within(name, complete(id))).await;
    };
    finish("team-a", "one").await;
    finish("default", "one").await;
    let exported = store.ends().await.unwrap();
    finish("team-a", "two").await;
    newest(store, "early").await;
    fixture.pass_hours(&[], HOUR_MS).await;
    newest(store, "later").await;
    assert_eq!(purge(store).await.runs, 1, "nobody has exported anything of team-a");
    assert_eq!(store.exported(&"team-a".into()).await.unwrap(), beginning(store));
    store.note_exported(&"team-a".into(), &exported).await.unwrap();
    assert_eq!(store.exported(&"default".into()).await.unwrap(), beginning(store));
    assert_eq!(purge(store).await, Purged { runs: 1, events: 2 });
    let of = |id: &str| RunKey { namespace: "team-a".into(), run_id: id.into() };
    assert!(stored(store, &of("one")).await.purged_at.is_some());
    assert!(stored(store, &of("two")).await.purged_at.is_none());
    // An exporter that is told to begin anew takes nothing back.
    store.note_exported(&"team-a".into(), &beginning(store)).await.unwrap();
    assert_eq!(store.exported(&"team-a".into()).await.unwrap(), exported);
    store.note_exported(&"team-a".into(), &store.ends().await.unwrap()).await.unwrap();
    assert_eq!(purge(store).await.runs, 1);
    // Whoever demands it no more waits no more.
    finish("team-a", "three").await;
    newest(store, "more").await;
    fixture.pass_hours(&[], HOUR_MS).await;
    newest(store, "last").await;
    assert_eq!(purge(store).await.runs, 0);
    keeps(store, "team-a", kept()).await;
    assert_eq!(purge(store).await.runs, 1);
}

pub(crate) async fn what_was_found_by_settings_that_hold_no_more_stays<F: Fixture>(fixture: F) {
    let store = fixture.store();
    keeps(store, "default", kept()).await;
    apply(store, start("run")).await;
    apply(store, complete("run")).await;
    let shard = home(store, &key("run"));
    newest(store, "early").await;
    fixture.pass_hours(&[], HOUR_MS).await;
    newest(store, "later").await;
    let walk = Walk { namespace: "default".into(), keep_ms: HOUR_MS, statuses: vec![Status::Completed] };
    let due = store.due(shard, &walk, 0, Position::MAX).await.unwrap();
    assert_eq!(due.runs, [("run".into(), Revision::from(2))]);
    for otherwise in [
        Retention::default(),
        Retention { completed_ms: Some(2 * HOUR_MS), ..kept() },
        Retention { until_exported: true, ..kept() },
    ] {
        keeps(store, "default", otherwise).await;
        assert_eq!(store.purge(shard, &walk, &due).await.unwrap(), None, "{otherwise:?}");
        assert!(stored(store, &key("run")).await.purged_at.is_none());
        assert_eq!(store.walked(shard, &walk).await.unwrap(), 0);
    }
    keeps(store, "default", kept()).await;
    assert_eq!(store.purge(shard, &walk, &due).await.unwrap(), Some(Purged { runs: 1, events: 2 }));
}

pub(crate) async fn another_retention_is_looked_for_from_the_beginning<F: Fixture>(fixture: F) {
    let store = fixture.store();
    keeps(store, "default", Retention { completed_ms: Some(HOUR_MS), ..Retention::default() }).await;
    for id in ["completed", "failed"] {
        apply(store, start(id)).await;
    }
    apply(store, fail("failed")).await;
    apply(store, complete("completed")).await;
    newest(store, "early").await;
    fixture.pass_hours(&[], HOUR_MS).await;
    newest(store, "later").await;
    assert_eq!(purge(store).await.runs, 1);
    // The walk has passed the end of the failed run, of which it was not asked.
    let both = Retention { completed_ms: Some(HOUR_MS), failed_ms: Some(HOUR_MS), ..Retention::default() };
    keeps(store, "default", both).await;
    assert_eq!(purge(store).await.runs, 1);
    assert!(stored(store, &key("failed")).await.purged_at.is_some());
}

pub(crate) async fn what_cannot_be_read_in_one_shard_keeps_no_other_from_being_purged<F: Fixture>(fixture: F) {
    let store = Wrapped::around(fixture.replica().await);
    if fixture.store().ledger().shard_count == 1 {
        return; // It has no other.
    }
    keeps(&store, "default", kept()).await;
    let mut ids: Vec<String> = (0..100).map(|number| format!("run-{number}")).collect();
    ids.sort_by_key(|id| home(&store, &key(id)));
    let ids = [ids.swap_remove(0), ids.pop().expect("of a hundred")];
    let [spoilt, other] = ids.each_ref().map(|id| home(&store, &key(id)));
    assert!(spoilt < other, "the walk comes to the other after it");
    for id in &ids {
        apply(&store, start(id)).await;
        apply(&store, complete(id)).await;
    }
    newest(&store, "early").await;
    fixture.pass_hours(&[&store], HOUR_MS).await;
    newest(&store, "later").await;
    *store.unwalkable.lock().unwrap() = Some(spoilt);
    let walked = walk(&store, None, Mode::Purge, &mut Quiets::default(), |_| ControlFlow::Continue(())).await;
    assert!(matches!(walked, Err(StoreError::Corrupt { .. })), "{walked:?}");
    assert!(stored(&store, &key(&ids[0])).await.purged_at.is_none());
    assert!(stored(&store, &key(&ids[1])).await.purged_at.is_some());
    *store.unwalkable.lock().unwrap() = None;
    assert_eq!(purge(&store).await.runs, 1);
}

pub(crate) async fn a_run_that_is_written_meanwhile_is_left_alone<F: Fixture>(fixture: F) {
    let store = fixture.store();
    keeps(store, "default", kept()).await;
    apply(store, start("run")).await;
    apply(store, complete("run")).await;
    let shard = home(store, &key("run"));
    newest(store, "early").await;
    fixture.pass_hours(&[], HOUR_MS).await;
    newest(store, "later").await;
    let walk = Walk { namespace: "default".into(), keep_ms: HOUR_MS, statuses: vec![Status::Completed] };
    let due = store.due(shard, &walk, 0, Position::MAX).await.unwrap();
    assert_eq!(due.runs, [("run".into(), Revision::from(2))]);
    let archived = apply(store, archive("run")).await;
    assert_eq!(store.purge(shard, &walk, &due).await.unwrap(), Some(Purged::default()));
    is_there(store, &archived).await;
    let again = store.due(shard, &walk, store.walked(shard, &walk).await.unwrap(), Position::MAX).await.unwrap();
    assert_eq!(again.runs, [], "its newer event is not due");
}

pub(crate) async fn a_commit_that_knew_the_run_does_not_bring_it_back<F: Fixture>(fixture: F) {
    let (store, other) = (fixture.store(), fixture.replica().await);
    keeps(store, "default", kept()).await;
    let ids = neighbours(store, 3);
    for id in &ids[..2] {
        apply(&*other, start(id)).await;
        // The other replica has just seen the run, and may decide on what it remembers.
        apply(&*other, complete(id)).await;
    }
    fixture.pass_hours(&[&*other], HOUR_MS).await;
    newest(store, "later").await;
    assert_eq!(purge(store).await.runs, 2);
    let answers = ask_all(&*other, vec![archive(&ids[0]), start(&ids[1]), start(&ids[2]), complete(&ids[0])]).await;
    let words: Vec<_> = answers.iter().map(word).collect();
    assert_eq!(words, ["RUN_EXPIRED", "RUN_EXPIRED", "applied", "RUN_EXPIRED"]);
    assert!(stored(store, &key(&ids[0])).await.purged_at.is_some());
}

pub(crate) async fn more_runs_than_one_purge_takes_are_all_purged<F: Fixture>(fixture: F) {
    let store = fixture.store();
    keeps(store, "default", kept()).await;
    let ids = neighbours(store, PURGE_RUNS_MAX + 100);
    for some in ids.chunks(100) {
        ask_all(store, some.iter().map(|id| start(id)).collect()).await;
        ask_all(store, some.iter().map(|id| complete(id)).collect()).await;
    }
    newest(store, "early").await;
    fixture.pass_hours(&[], HOUR_MS).await;
    newest(store, "later").await;
    let mut steps = Vec::new();
    let found = walk(store, None, Mode::Preview, &mut Quiets::default(), |_| ControlFlow::Continue(())).await.unwrap();
    let mut quiets = Quiets::default();
    let purged = walk(store, None, Mode::Purge, &mut quiets, |step| {
        steps.push(step.purged.runs);
        ControlFlow::Continue(())
    });
    let all = Purged { runs: ids.len() as u64, events: 2 * ids.len() as u64 };
    assert_eq!((found, purged.await.unwrap()), (all, all));
    assert!(steps.iter().all(|runs| *runs <= PURGE_RUNS_MAX as u64) && steps.len() > 1, "{steps:?}");
    let page = store.changes(&beginning(store), 10_000, PAGE_BYTES_MAX).await.unwrap().whole().unwrap();
    assert!(page.iter().all(|logged| !ids.iter().any(|id| logged.event.key.run_id == id.as_str())));
}

pub(crate) async fn nothing_is_purged_within_an_hour_of_a_change<F: Fixture>(mut fixture: F) {
    let minutes = |minutes: u64| minutes * 60_000;
    let store = fixture.store();
    // The row of `default` was made by the machine's clock, and not by the test's.
    make(store, "team-a", None).await;
    apply(store, within("team-a", start("done"))).await;
    apply(store, within("team-a", complete("done"))).await;
    fixture.pass(minutes(200)).await;
    newest(store, "later").await;
    keeps(store, "team-a", Retention { completed_ms: Some(minutes(1)), ..Retention::default() }).await;
    assert_eq!(purge_as_servers_do(store).await, Purged::default(), "it was changed a moment ago");
    fixture.pass(minutes(59)).await;
    // Neither a restart nor another replica knows it otherwise.
    fixture.reopen().await;
    let replica = fixture.replica().await;
    for store in [fixture.store(), &*replica] {
        assert_eq!(purge_as_servers_do(store).await, Purged::default(), "it was changed within the hour");
    }
    let store = fixture.store();
    // It is taken back, and another change begins the hour anew.
    keeps(store, "team-a", Retention { completed_ms: Some(minutes(2)), ..Retention::default() }).await;
    fixture.pass(minutes(59)).await;
    assert_eq!(purge_as_servers_do(store).await, Purged::default());
    let mut quiets = Quiets::default();
    let previewed = walk(store, None, Mode::Preview, &mut quiets, |_| ControlFlow::Continue(())).await.unwrap();
    fixture.pass(minutes(2)).await;
    let purged = purge_as_servers_do(store).await;
    assert_eq!(purged, previewed, "a preview tells what the hour holds back");
    assert_eq!(purged, Purged { runs: 1, events: 2 });
}

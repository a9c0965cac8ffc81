//! One commit: what its commands come to, and what it leaves.

use std::sync::Arc;

use runledger::clock::draw_id;
use runledger::domain::{Command, Decided, Disposition, Rules, RunKey, Shard, Status, Verdict};
use runledger::store::{PAGE_BYTES_MAX, Unsettled};
use serde_json::json;

use super::asking::{apply, ask, ask_all, beginning, home, neighbours, stored, words};
use super::fixture::Fixture;
use super::namespaces::make;
use super::sound::sound;
use crate::support::commands::{Asking as _, abort, complete, deferred, fail, key, metadata, start, update};

pub(crate) async fn commands_on_one_run_are_decided_on_the_state_that_the_one_before_it_left<F: Fixture>(fixture: F) {
    let answers = ask_all(
        fixture.store(),
        vec![
            deferred("run-1"),
            update("run-1").workflow("too early"),
            start("run-1").revision(1),
            update("run-1").workflow("w").revision(2),
            update("run-1").workflow("w"),
            complete("run-1").revision(2),
            complete("run-1").revision(3),
            complete("run-1"),
            abort("run-1"),
            start("run-1"),
        ],
    )
    .await;
    let expected = [
        "applied",
        "RUN_NOT_RUNNING",
        "applied",
        "applied",
        "unchanged",
        "REVISION_MISMATCH",
        "applied",
        "unchanged",
        "unchanged",
        "INVALID_TRANSITION",
    ];
    assert_eq!(words(&answers), expected);
    let contents = sound(fixture.store()).await;
    let run = &contents.runs[&key("run-1")];
    assert_eq!(
        (run.status, run.revision, run.bindings.workflow_id.as_deref()),
        (Status::Completed, 4.into(), Some("w"))
    );
    assert_eq!(answers[6], Ok(Verdict::Done(Disposition::Applied, Arc::new(run.clone()))));
}

pub(crate) async fn a_refusal_leaves_its_neighbours_unharmed<F: Fixture>(fixture: F) {
    let ids = neighbours(fixture.store(), 4);
    let huge = json!({"text": "x".repeat(70_000)});
    let answers = ask_all(
        fixture.store(),
        vec![
            start(&ids[0]),
            complete(&ids[1]),
            start(&ids[2]).metadata(&huge),
            update(&ids[0]).metadata(&huge),
            update(&ids[0]).workflow("w"),
            start(&ids[0]).thread("another"),
            start(&ids[3]).revision(9),
            start(&ids[3]),
        ],
    )
    .await;
    let expected = [
        "applied",
        "RUN_NOT_FOUND",
        "INVALID_FIELD",
        "INVALID_FIELD",
        "applied",
        "RUN_ID_CONFLICT",
        "REVISION_MISMATCH",
        "applied",
    ];
    assert_eq!(words(&answers), expected);
    let contents = sound(fixture.store()).await;
    assert_eq!(contents.runs.len(), 2);
    assert_eq!(contents.runs[&key(&ids[0])].revision, 2);
    assert_eq!(fixture.store().run(&key(&ids[2])).await.unwrap(), None);
}

pub(crate) async fn a_batch_that_makes_no_event_writes_nothing<F: Fixture>(fixture: F) {
    let run = apply(fixture.store(), start("run-1")).await;
    let heads = fixture.store().ends().await.unwrap();
    let answers = ask_all(fixture.store(), vec![start("run-1"), update("run-1"), start("run-1").thread("other")]).await;
    assert_eq!(words(&answers), ["unchanged", "unchanged", "RUN_ID_CONFLICT"]);
    assert_eq!(answers[0], Ok(Verdict::Done(Disposition::Unchanged, Arc::new(run.clone()))));
    assert_eq!(fixture.store().ends().await.unwrap(), heads);
    assert_eq!(stored(fixture.store(), &key("run-1")).await, run);
}

pub(crate) async fn a_batch_of_512_commands_commits_whole<F: Fixture>(fixture: F) {
    let ids = neighbours(fixture.store(), 300);
    let starts = ids.iter().map(|id| start(id).request("start").label("batch", "1"));
    let updates = ids.iter().take(212).map(|id| update(id).workflow("w").request("update"));
    let answers = ask_all(fixture.store(), starts.chain(updates).collect()).await;
    assert_eq!(words(&answers), ["applied"; 512]);
    // The next batch inserts, updates and replays at once, the runs in another order.
    let mixed = ids.iter().rev().enumerate().map(|(n, id)| match n % 3 {
        0 => complete(id),
        1 => start(id).request("start").label("batch", "1"),
        _ => start(&format!("{id}-missing")).revision(9),
    });
    let mixed: Vec<Command> = mixed.filter(|command| home(fixture.store(), &command.key) == Shard(0)).collect();
    let expected: Vec<&str> = mixed
        .iter()
        .map(|command| match (&command.request, command.expected_revision) {
            (Some(_), _) => "replayed",
            (None, Some(_)) => "REVISION_MISMATCH",
            (None, None) => "applied",
        })
        .collect();
    assert_eq!(words(&ask_all(fixture.store(), mixed).await), expected);
    let contents = sound(fixture.store()).await;
    assert_eq!((contents.runs.len(), contents.log.len()), (300, 612));
}

pub(crate) async fn a_batch_of_4_mib_commits_whole<F: Fixture>(fixture: F) {
    let ids = neighbours(fixture.store(), 64);
    let text = json!({"text": "x".repeat(65_500)});
    let answers = ask_all(fixture.store(), ids.iter().map(|id| start(id).metadata(&text)).collect()).await;
    assert_eq!(words(&answers), ["applied"; 64]);
    let contents = sound(fixture.store()).await;
    assert!(contents.runs.values().all(|run| run.metadata == metadata(&text)));
}

pub(crate) async fn the_same_id_in_two_namespaces_is_two_runs<F: Fixture>(fixture: F) {
    let elsewhere = |id: &str| RunKey { namespace: "another".into(), run_id: id.into() };
    make(fixture.store(), "another", None).await;
    apply(fixture.store(), start("run-1").workflow("here").request("request-1")).await;
    let mut other = start("run-1").workflow("there");
    other.key = elsewhere("run-1");
    apply(fixture.store(), other.request("request-1")).await;
    assert_eq!(stored(fixture.store(), &key("run-1")).await.bindings.workflow_id.as_deref(), Some("here"));
    let there = stored(fixture.store(), &elsewhere("run-1")).await;
    assert_eq!((there.namespace.as_str(), there.bindings.workflow_id.as_deref()), ("another", Some("there")));
    assert_eq!(fixture.store().run(&elsewhere("run-2")).await.unwrap(), None);
    assert_eq!(sound(fixture.store()).await.runs.len(), 2);
}

pub(crate) async fn positions_are_dense_and_from_1<F: Fixture>(fixture: F) {
    for n in 0..20 {
        let id = format!("run-{n}");
        ask_all(fixture.store(), vec![start(&id), update(&id).workflow("w"), complete(&id), complete(&id)]).await;
    }
    let contents = sound(fixture.store()).await;
    assert_eq!(contents.log.len(), 60);
    assert_eq!(fixture.store().ends().await.unwrap().iter().sum::<u64>(), 60);
}

pub(crate) async fn times_never_fall_when_the_clock_is_set_back_a_minute<F: Fixture>(fixture: F) {
    let ids = neighbours(fixture.store(), 2);
    let first = apply(fixture.store(), start(&ids[0])).await;
    fixture.set_the_clock_back().await;
    let as_of = fixture.store().changes(&beginning(fixture.store()), 10, PAGE_BYTES_MAX).await.unwrap().as_of;
    assert!(as_of < first.updated_at, "the clock was set back: {as_of} is before {}", first.updated_at);
    let updated = apply(fixture.store(), update(&ids[0]).workflow("w")).await;
    let neighbour = apply(fixture.store(), start(&ids[1])).await;
    let ended = apply(fixture.store(), complete(&ids[0])).await;
    for time in [updated.updated_at, ended.completed_at.unwrap()] {
        assert_eq!(time, first.updated_at, "held at the run's last event");
    }
    assert!((as_of..first.updated_at).contains(&neighbour.started_at), "another run bears the time that it is");
    sound(fixture.store()).await;
}

pub(crate) async fn an_acknowledged_run_is_there_after_reopening<F: Fixture>(mut fixture: F) {
    let ledger = fixture.store().ledger();
    let mut expected = Vec::new();
    for n in 0..10 {
        let id = format!("run-{n}");
        apply(fixture.store(), start(&id).metadata(&json!({"n": n})).label("k", "v")).await;
        expected.push(apply(fixture.store(), if n % 2 == 0 { complete(&id) } else { fail(&id) }).await);
    }
    fixture.reopen().await;
    assert_eq!(fixture.store().ledger(), ledger);
    let contents = sound(fixture.store()).await;
    expected.sort_by_key(runledger::domain::Run::key);
    assert_eq!(contents.runs.into_values().collect::<Vec<_>>(), expected);
    apply(fixture.store(), start("one-more")).await;
    sound(fixture.store()).await;
}

pub(crate) async fn a_settled_commit_was_applied_exactly_if_its_events_are_there<F: Fixture>(fixture: F) {
    let store = fixture.store();
    let shard = home(store, &key("run-1"));
    let head = async || store.ends().await.unwrap()[usize::from(shard.0)];
    let unsettled =
        |commit_id, first_position| Unsettled { shard, commit_id, first_position, decided: Decided::default() };
    let (mine, next, never) = (draw_id(), draw_id(), draw_id());

    assert!(!store.settle(&unsettled(never, 1)).await.unwrap(), "an empty shard");
    let batch = || Arc::from([Arc::new(start("run-1")), Arc::new(update("run-1").workflow("w"))]);
    store.commit(shard, mine, batch(), &Rules::shared()).await.unwrap();
    assert!(store.settle(&unsettled(mine, 1)).await.unwrap());
    assert!(!store.settle(&unsettled(never, 1)).await.unwrap(), "another commit stands where it would");
    let after = head().await + 1;
    assert!(!store.settle(&unsettled(never, after)).await.unwrap(), "nothing stands where it would");
    store.commit(shard, next, Arc::from([Arc::new(complete("run-1"))]), &Rules::shared()).await.unwrap();
    assert!(store.settle(&unsettled(mine, 1)).await.unwrap(), "others came after it");
    assert!(store.settle(&unsettled(next, after)).await.unwrap());
    assert!(fixture.replica().await.settle(&unsettled(next, after)).await.unwrap());
    // Settling writes nothing.
    assert_eq!(sound(store).await.log.len(), 3);
    assert_eq!(super::asking::word(&ask(store, complete("run-1")).await), "unchanged");
}

pub(crate) async fn a_probe_that_writes_leaves_nothing_to_see<F: Fixture>(fixture: F) {
    let store = fixture.store();
    let shard = home(store, &key("run-1"));
    store.probe_write(shard).await.unwrap();
    apply(store, start("run-1")).await;
    for _ in 0..3 {
        let (one, another) = (store.probe_write(shard), store.probe_write(shard));
        let (one, another) = tokio::join!(one, another);
        one.and(another).unwrap();
    }
    assert_eq!(apply(store, complete("run-1")).await.revision, 2);
    assert_eq!(sound(store).await.log.len(), 2);
}

//! Many callers at once, over two replicas where the kind of store can have them.

use futures_util::future::{join, join_all};
use runledger::domain::{Command, Disposition, EventType, Status, Verdict};
use runledger::store::Store;
use serde_json::json;

use super::asking::{Answer, apply, ask, ask_all, neighbours, stored, word, words};
use super::fixture::Fixture;
use super::sound::sound;
use crate::support::commands::{Asking as _, abort, complete, deferred, fail, key, start, update};

pub(crate) async fn a_new_run_started_on_two_replicas_is_created_once<F: Fixture>(fixture: F) {
    let (here, there) = (fixture.store(), fixture.replica().await);
    let ids = neighbours(here, 50);
    for five in ids.chunks(5) {
        let shared = &five[0];
        let batch = |mine: &[String]| vec![start(&mine[0]), start(shared), update(shared), start(&mine[1])];
        let (one, other) = join(ask_all(here, batch(&five[1..3])), ask_all(&*there, batch(&five[3..5]))).await;
        let mut of_shared = [word(&one[1]), word(&other[1])];
        of_shared.sort_unstable();
        assert_eq!(of_shared, ["applied", "unchanged"]);
        for answers in [&one, &other] {
            assert_eq!((word(&answers[0]), word(&answers[2]), word(&answers[3])), ("applied", "unchanged", "applied"));
        }
        let created = stored(here, &key(shared)).await;
        for answer in [&one[1], &other[1]] {
            let Ok(Verdict::Done(Disposition::Applied | Disposition::Unchanged, run)) = answer else {
                panic!("{answer:?}")
            };
            assert_eq!(**run, created, "both callers get the one run");
        }
    }
    assert_eq!(sound(here).await.log.len(), 50);
}

pub(crate) async fn concurrent_ends_have_one_winner_and_one_terminal_event<F: Fixture>(fixture: F) {
    let replica = fixture.replica().await;
    let stores = [fixture.store(), &*replica];
    for round in 0..8 {
        let id = format!("run-{round}");
        apply(stores[0], start(&id).workflow("before")).await;
        let ends: Vec<Command> = (0..3)
            .flat_map(|n| {
                [
                    complete(&id).metadata(&json!({"by": n})),
                    abort(&id).reason(&format!("abort {n}")),
                    fail(&id).reason(&format!("failure {n}")),
                ]
            })
            .collect();
        let asked = ends.into_iter().enumerate().map(|(n, end)| ask(stores[n % 2], end));
        let answers: Vec<Answer> = join_all(asked).await;
        let winners: Vec<_> = answers.iter().filter(|answer| word(answer) == "applied").collect();
        let [Ok(Verdict::Done(Disposition::Applied, winner))] = winners[..] else {
            panic!("one winner: {:?}", words(&answers))
        };
        for answer in &answers {
            match answer {
                Ok(Verdict::Done(Disposition::Applied | Disposition::Unchanged, run)) => assert_eq!(run, winner),
                Ok(other) => panic!("nothing to replay: {other:?}"),
                Err(refusal) => {
                    assert_eq!(refusal.reason(), "INVALID_TRANSITION");
                    assert_ne!(winner.status, Status::Completed, "a late completion of a completed run is unchanged");
                }
            }
        }
        for store in stores {
            assert_eq!(stored(store, &key(&id)).await, **winner, "losers change nothing");
        }
    }
    let contents = sound(stores[0]).await;
    assert!(contents.runs.keys().all(|key| (contents.terminal_events(key), contents.revisions(key)) == (1, 2)));
}

pub(crate) async fn an_abort_before_the_start_wins_for_good<F: Fixture>(fixture: F) {
    let replica = fixture.replica().await;
    for round in 0..6 {
        let id = format!("run-{round}");
        apply(fixture.store(), deferred(&id)).await;
        let (aborted, started) = join(ask(fixture.store(), abort(&id)), ask(&*replica, start(&id))).await;
        assert_eq!(word(&aborted), "applied", "an abort is allowed before and after the start");
        let Ok(Verdict::Done(Disposition::Applied, end)) = aborted else { unreachable!() };
        assert_eq!(word(&started), if end.revision == 2 { "INVALID_TRANSITION" } else { "applied" });
        assert_eq!(word(&ask(&*replica, start(&id)).await), "INVALID_TRANSITION");
        assert_eq!(stored(fixture.store(), &key(&id)).await, *end);
    }
    let contents = sound(fixture.store()).await;
    assert!(contents.runs.keys().all(|key| contents.terminal_events(key) == 1));
}

pub(crate) async fn concurrent_updates_with_disjoint_keys_are_all_kept<F: Fixture>(fixture: F) {
    let replica = fixture.replica().await;
    let stores = [fixture.store(), &*replica];
    apply(stores[0], start("run-1").metadata(&json!({"first": true}))).await;
    let updates = (0..25).map(|n| {
        let patch = json!({ (format!("key-{n}")): n, "nested": { (format!("key-{n}")): [n] } });
        ask(stores[n % 2], update("run-1").metadata(&patch))
    });
    assert_eq!(words(&join_all(updates).await), ["applied"; 25]);
    let contents = sound(stores[0]).await;
    let run = &contents.runs[&key("run-1")];
    assert_eq!(run.revision, 26);
    let map = run.metadata.as_map();
    assert_eq!(map.len(), 27);
    for n in 0..25 {
        let name = format!("key-{n}");
        assert_eq!((&map[&name], &map["nested"][&name]), (&json!(n), &json!([n])));
    }
    let logged_updates = contents.log.iter().filter(|logged| logged.event.event_type == EventType::Updated);
    assert!(logged_updates.map(|logged| logged.event.revision).eq(2..=26));
}

pub(crate) async fn a_read_after_an_answer_sees_it_on_every_replica<F: Fixture>(fixture: F) {
    let replica = fixture.replica().await;
    let stores: [&dyn Store; 2] = [fixture.store(), &*replica];
    apply(stores[0], start("run-1")).await;
    for n in 0..30_usize {
        let run = apply(stores[n % 2], update("run-1").workflow(&format!("w-{n}"))).await;
        assert_eq!(stored(stores[(n + 1) % 2], &key("run-1")).await, run);
    }
}

//! Limits that claims state on values of labels: the runs that count, from when to when, and that no claim gets past a
//! limit.

use std::sync::Arc;

use futures_util::future::join_all;
use runledger::clock::draw_id;
use runledger::domain::ids::DEFAULT_NAMESPACE;
use runledger::domain::{Command, LabelValue, Refusal, Rules, RunId, Shard, Status};
use runledger::store::Store;

use super::asking::{Answer, apply, ask, ask_all, neighbours, word, words};
use super::fixture::{Fixture, OnDisk};
use super::sound::sound;
use crate::support::commands::{Asking as _, abort, claim, complete, deferred, release, start, sweep, update};

/// A pending run of an instance.
fn queued(run_id: &str, instance: &str) -> Command {
    deferred(run_id).label("instance", instance)
}

/// A claim that lets so many runs of an instance run.
fn at_most(limit: u32, run_id: &str) -> Command {
    claim(run_id).max_running("instance", limit)
}

async fn running(store: &dyn Store, instance: &str) -> Vec<RunId> {
    let (label, value) = ("instance".to_owned(), instance.to_owned());
    let value = LabelValue { namespace: DEFAULT_NAMESPACE.into(), label, value };
    let nobodys = LabelValue { namespace: "nobody's".into(), ..value.clone() };
    let [nobodys, running]: [_; 2] = store.running(&[nobodys, value]).await.unwrap().try_into().unwrap();
    assert_eq!(nobodys, [""; 0]);
    running
}

/// The runs that a refusal names.
fn waits_for(answer: &Answer) -> (u32, &[RunId]) {
    match answer {
        Err(Refusal::MaxRunning { max, running, .. }) => (max.limit, running),
        other => panic!("not refused for others: {other:?}"),
    }
}

pub(crate) async fn a_claim_is_refused_while_as_many_run_as_it_allows<F: Fixture>(fixture: F) {
    let store = fixture.store();
    for id in ["one", "two", "three"] {
        apply(store, queued(id, "é\"\\ 7")).await;
    }
    apply(store, queued("elsewhere", "8")).await;
    apply(store, deferred("anywhere").label("other", "é\"\\ 7")).await;
    apply(store, at_most(1, "one")).await;
    let refused = ask(store, at_most(1, "two")).await;
    assert_eq!(waits_for(&refused), (1, &["one".into()][..]));
    assert_eq!(apply(store, at_most(1, "elsewhere")).await.status, Status::Running, "another value has its own");
    assert_eq!(apply(store, at_most(1, "anywhere")).await.status, Status::Running, "a run without the label has none");
    apply(store, at_most(2, "two")).await;
    let refused = ask(store, at_most(2, "three")).await;
    assert_eq!(waits_for(&refused), (2, &["one".into(), "two".into()][..]));
    assert_eq!(waits_for(&ask(store, at_most(1, "three")).await), (1, &["one".into(), "two".into()][..]));
    apply(store, complete("one").epoch(1)).await;
    assert_eq!(running(store, "é\"\\ 7").await, ["two"]);
    assert_eq!(waits_for(&ask(store, at_most(1, "three")).await), (1, &["two".into()][..]));
    assert_eq!(apply(store, at_most(2, "three")).await.status, Status::Running);
    assert_eq!(running(store, "é\"\\ 7").await, ["three", "two"]);
    assert_eq!(running(store, "nobody's").await, [""; 0]);
    sound(store).await;
}

/// A run counts from its claim until it is terminal, through all events in between.
pub(crate) async fn a_run_counts_until_it_is_terminal<F: Fixture>(fixture: F) {
    let store = fixture.store();
    for id in ["first", "second", "third"] {
        apply(store, queued(id, "7")).await;
    }
    apply(store, at_most(1, "first").lease_ttl_ms(20_000)).await;
    apply(store, update("first").label("instance", "8").epoch(1)).await;
    apply(store, release("first").epoch(1)).await;
    assert_eq!(word(&ask(store, at_most(1, "second")).await), "MAX_RUNNING", "released, and of another value by now");
    apply(store, at_most(1, "first").lease_ttl_ms(20_000)).await;
    assert_eq!(word(&ask(store, at_most(1, "second")).await), "MAX_RUNNING", "taken over");
    fixture.pass_alive(&[], 21_000).await;
    assert_eq!(word(&ask(store, at_most(1, "second")).await), "MAX_RUNNING", "its lease is over and nobody said so");
    assert_eq!(word(&ask(store, sweep("first")).await), "applied");
    apply(store, at_most(1, "second")).await;
    assert_eq!(word(&ask(store, at_most(1, "third")).await), "MAX_RUNNING");
    apply(store, abort("second")).await;
    apply(store, at_most(1, "third")).await;
    assert_eq!(running(store, "7").await, ["third"]);
}

pub(crate) async fn what_was_started_or_claimed_without_a_limit_does_not_count<F: Fixture>(fixture: F) {
    let store = fixture.store();
    for id in ["claimed", "started", "counted", "waits"] {
        apply(store, queued(id, "7")).await;
    }
    apply(store, claim("claimed")).await;
    apply(store, start("started")).await;
    apply(store, at_most(1, "counted")).await;
    let refused = ask(store, at_most(1, "waits")).await;
    assert_eq!(waits_for(&refused), (1, &["counted".into()][..]));
}

pub(crate) async fn in_one_batch_each_claim_counts_for_the_next_and_each_end_makes_room<F: Fixture>(fixture: F) {
    let store = fixture.store();
    let ids = neighbours(store, 4);
    ask_all(store, ids.iter().map(|id| queued(id, "7")).collect()).await;
    let answers = ask_all(
        store,
        vec![
            at_most(1, &ids[0]),
            at_most(1, &ids[1]),
            complete(&ids[0]).epoch(1),
            at_most(1, &ids[1]),
            at_most(2, &ids[2]),
            at_most(2, &ids[3]),
        ],
    )
    .await;
    let expected = ["applied", "MAX_RUNNING", "applied", "applied", "applied", "MAX_RUNNING"];
    assert_eq!(words(&answers), expected);
    let mut now: Vec<RunId> = vec![ids[1].as_str().into(), ids[2].as_str().into()];
    now.sort_unstable();
    assert_eq!(running(store, "7").await, now);
    assert_eq!(waits_for(&ask(store, at_most(2, &ids[3])).await), (2, &now[..]));
    sound(store).await;
}

/// The store has not read the row for a run that is created in the batch: its claim is left to the next batch.
pub(crate) async fn a_claim_beside_the_start_of_its_run_is_decided_when_what_counts_is_known<F: Fixture>(fixture: F) {
    let store = fixture.store();
    let ids = neighbours(store, 3);
    apply(store, queued(&ids[0], "full")).await;
    apply(store, at_most(1, &ids[0])).await;
    for (id, instance, expected) in [(&ids[1], "full", "MAX_RUNNING"), (&ids[2], "free", "applied")] {
        let commands = [queued(id, instance), at_most(1, id)].map(Arc::new);
        let decided = store.commit(Shard(0), draw_id(), commands.into(), &Rules::shared()).await.unwrap();
        assert_eq!(words(&decided.verdicts), ["applied"], "{instance}");
        assert_eq!(word(&ask(store, at_most(1, id)).await), expected, "{instance}");
    }
    assert_eq!(running(store, "full").await, [ids[0].clone()]);
    assert_eq!(running(store, "free").await, [ids[2].clone()]);
    sound(store).await;
}

/// Claims of runs in all shards, by two replicas at once: the value's row is their mutex.
pub(crate) async fn claims_at_once_never_let_more_run_than_allowed<F: Fixture>(fixture: F) {
    let (here, there) = (fixture.store(), fixture.replica().await);
    let stores = [here, &*there];
    let mut ids: Vec<String> = (0..24).map(|n| format!("run-{n}")).collect();
    for id in &ids {
        apply(here, queued(id, "7").label("pool", "p")).await;
    }
    let mut held: Vec<String> = Vec::new();
    while !ids.is_empty() {
        let claims = ids.iter().enumerate().map(|(n, id)| ask(stores[n % 2], at_most(3, id)));
        let answers: Vec<Answer> = join_all(claims).await;
        let room = 3 - held.len();
        let won: Vec<String> = ids.iter().zip(&answers).filter(|(_, a)| a.is_ok()).map(|(id, _)| id.clone()).collect();
        assert_eq!(won.len(), room.min(ids.len()), "{:?}", words(&answers));
        assert!(answers.iter().all(|answer| ["applied", "MAX_RUNNING"].contains(&word(answer))), "{answers:?}");
        ids.retain(|id| !won.contains(id));
        held.extend(won);
        let mut now = held.clone();
        now.sort_unstable();
        assert_eq!(running(here, "7").await, now);
        // A claim and an end of the same moment: the claim sees it or not, and never counts wrong.
        let ended = held.remove(0);
        let next = ids.first().cloned();
        let claims = next.iter().map(|id| ask(stores[0], at_most(3, id)));
        let (claimed, _) =
            futures_util::future::join(join_all(claims), apply(stores[1], complete(&ended).epoch(1))).await;
        for (id, answer) in next.iter().zip(claimed) {
            match word(&answer) {
                "applied" => {
                    ids.retain(|other| other != id);
                    held.push(id.clone());
                }
                "MAX_RUNNING" => assert!(waits_for(&answer).1.contains(&ended.as_str().into())),
                other => panic!("{other}"),
            }
        }
    }
    sound(here).await;
}

/// Values that no run counts towards are forgotten in time, and no others.
pub(crate) async fn a_value_that_nothing_counts_towards_is_forgotten<F: OnDisk>(fixture: F) {
    for (id, instance) in [("ended", "7"), ("runs", "8"), ("waits", "8"), ("later", "7")] {
        apply(fixture.store(), queued(id, instance)).await;
    }
    apply(fixture.store(), at_most(1, "ended")).await;
    apply(fixture.store(), at_most(1, "runs")).await;
    apply(fixture.store(), complete("ended").epoch(1)).await;
    fixture.store().tidy().await.unwrap();
    let rows = async |fixture: &F| fixture.sql("select value from max_running order by value").await.concat();
    assert_eq!(rows(&fixture).await, [Some("7".to_owned()), Some("8".to_owned())], "not at once");
    fixture.pass(61_000).await;
    fixture.store().tidy().await.unwrap();
    assert_eq!(rows(&fixture).await, [Some("8".to_owned())]);
    assert_eq!(word(&ask(fixture.store(), at_most(1, "waits")).await), "MAX_RUNNING");
    apply(fixture.store(), at_most(1, "later")).await;
    assert_eq!(running(fixture.store(), "7").await, ["later"]);
}

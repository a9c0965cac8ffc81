//! Claims that were not begun, and claims by the claimer's own request.

use futures_util::future::join_all;
use runledger::domain::ids::{DEFAULT_NAMESPACE, shard_of};
use runledger::domain::{
    Claimed, Command, Disposition, LabelValue, Priority, Refusal, Renewal, Request, RunId, Shard, Status, Take, Verdict,
};
use runledger::store::Store;
use runledger::store::leases::OverduePlace;
use runledger::store::query::{Place, ReadyOf};

use super::asking::{Answer, apply, ask, ask_all, neighbours, stored, word, words};
use super::fixture::Fixture;
use super::sound::sound;
use crate::support::commands::{
    Asking as _, claim, complete, deferred, give_back, key, leased, release, request_abort, sweep, update,
};

/// A claim of a run that waits, under the claimer's own request.
fn next(run_id: &str, request_id: &str) -> Command {
    let request = Request { id: request_id.to_owned(), digest: [7; 32] };
    claim(run_id).on(|terms| (terms.only, terms.claim_request) = (Some(Take::Pending), Some(request)))
}

fn not_begun(run_id: &str, epoch: u64) -> Command {
    release(run_id).epoch(epoch).on(|terms| terms.not_begun = true)
}

/// The authority's command for an unreceived claim.
fn unreceived(run_id: &str, epoch: u64, request_id: &str) -> Command {
    let request = Request { id: request_id.to_owned(), digest: [7; 32] };
    give_back(run_id, epoch).on(|terms| terms.claim_request = Some(request))
}

async fn ready(store: &dyn Store) -> Vec<String> {
    let page = store
        .ready(&DEFAULT_NAMESPACE.into(), ReadyOf { not_begun: true, priority: Priority::NONE }, None, 100)
        .await
        .unwrap();
    page.runs.into_iter().map(|run| run.run_id.into()).collect()
}

async fn replayed(store: &dyn Store, request_id: &str) -> Option<(String, u64)> {
    let claimed = store.replay_claims(&DEFAULT_NAMESPACE.into(), &[request_id.to_owned()]).await.unwrap().remove(0);
    claimed.map(|Claimed { key, epoch, .. }| (key.run_id.into(), epoch.get()))
}

async fn overdue(store: &dyn Store) -> usize {
    let mut found = 0;
    for shard in 0..store.ledger().shard_count {
        found += store.overdue(Shard(shard), &OverduePlace::default(), 100).await.unwrap().runs.len();
    }
    found
}

pub(crate) async fn a_claim_that_was_not_begun_leaves_its_run_running_and_ready<F: Fixture>(fixture: F) {
    let store = fixture.store();
    apply(store, deferred("run-1")).await;
    apply(store, claim("run-1").lease_ttl_ms(1_000).by("worker")).await;
    let run = apply(store, not_begun("run-1", 1).by("worker")).await;
    let found = run.supervision.ready.clone().expect("it is ready");
    assert_eq!((run.status, found.not_begun, found.deadline), (Status::Running, true, None));
    assert_eq!(run.agent_id, None, "the claim had made the claimer its owner");
    assert_eq!((run.supervision.epoch(), store.leases(&[key("run-1")]).await.unwrap()), (2.into(), vec![None]));
    assert_eq!(ready(store).await, ["run-1"]);
    assert_eq!(sound(store).await.revisions(&key("run-1")), 3);
    fixture.pass(60_000).await;
    let store = fixture.store();
    store.stay_alive().await.unwrap();
    assert_eq!((overdue(store).await, word(&ask(store, sweep("run-1")).await)), (0, "unchanged"), "no ttl ends it");
    let last_holder = [
        complete("run-1").epoch(1),
        update("run-1").epoch(1).label("k", "v"),
        release("run-1").epoch(1),
        not_begun("run-1", 1),
    ];
    for late in last_holder {
        assert_eq!(word(&ask(store, late).await), "LEASE_LOST", "the claimer has given it back");
    }
    let run = apply(store, next("run-1", "request-1").by("other")).await;
    assert_eq!((run.supervision.epoch(), run.agent_id.as_deref(), run.is_ready()), (3.into(), Some("other"), false));
    assert_eq!(ready(store).await, [""; 0]);
    apply(store, complete("run-1").epoch(3).by("other")).await;
    sound(store).await;
}

pub(crate) async fn who_has_written_or_was_not_granted_a_claim_cannot_say_not_begun<F: Fixture>(fixture: F) {
    let store = fixture.store();
    apply(store, deferred("written")).await;
    apply(store, claim("written")).await;
    apply(store, update("written").epoch(1).label("k", "v")).await;
    assert_eq!(word(&ask(store, not_begun("written", 1)).await), "RUN_BEGUN");
    apply(store, leased("started")).await;
    assert_eq!(word(&ask(store, not_begun("started", 1)).await), "RUN_BEGUN");
    assert_eq!(word(&ask(store, not_begun("started", 2)).await), "LEASE_LOST");
    apply(store, release("started").epoch(1)).await;
    apply(store, claim("started")).await;
    assert_eq!(word(&ask(store, not_begun("started", 3)).await), "RUN_BEGUN", "somebody had begun it before");
    assert_eq!(ready(store).await, [""; 0]);
}

pub(crate) async fn a_run_that_nobody_claims_again_ends_as_one_that_was_never_started<F: Fixture>(fixture: F) {
    let store = fixture.store();
    apply(store, deferred("run-1").start_timeout_ms(10_000).run_timeout_ms(5_000)).await;
    fixture.pass(9_000).await;
    let store = fixture.store();
    apply(store, claim("run-1").lease_ttl_ms(100_000)).await;
    let run = apply(store, not_begun("run-1", 1)).await;
    let deadline = run.supervision.ready.as_ref().unwrap().deadline.unwrap();
    assert_eq!(deadline.micros() - run.updated_at.micros(), 10_000_000, "its time to be started is counted anew");
    assert_eq!((run.due_at(), run.deadline()), (Some(deadline), None), "its time to run stands still");
    fixture.pass(9_000).await;
    let store = fixture.store();
    assert_eq!(word(&ask(store, sweep("run-1")).await), "unchanged");
    let run = apply(store, claim("run-1").lease_ttl_ms(100_000)).await;
    let left = run.deadline().unwrap().micros() - run.updated_at.micros();
    assert!((4_000_000..=5_000_000).contains(&left), "{left} us of its time to run are left");
    apply(store, not_begun("run-1", 3)).await;
    fixture.pass(10_500).await;
    let store = fixture.store();
    assert_eq!(overdue(store).await, 1);
    let run = apply(store, sweep("run-1")).await;
    assert_eq!((run.status, run.ending.reason_code.as_deref()), (Status::Aborted, Some("TIMEOUT")));
    assert!(!run.supervision.presumed && !run.is_ready());
    assert_eq!(ready(store).await, [""; 0]);
    sound(store).await;
}

pub(crate) async fn a_request_to_abort_ends_a_run_that_is_ready_in_either_order<F: Fixture>(fixture: F) {
    let store = fixture.store();
    for id in ["before", "after"] {
        apply(store, deferred(id)).await;
        apply(store, claim(id)).await;
    }
    apply(store, request_abort("before")).await;
    let before = apply(store, not_begun("before", 1)).await;
    apply(store, not_begun("after", 1)).await;
    let after = apply(store, request_abort("after")).await;
    for run in [before, after] {
        assert_eq!((run.status, run.ending.reason_code.as_deref()), (Status::Aborted, Some("ABORT_REQUESTED")));
        assert!(run.supervision.abort_request.is_some() && !run.is_ready());
    }
    sound(store).await;
}

pub(crate) async fn a_run_that_is_ready_is_its_owners_as_it_was_before_the_claim<F: Fixture>(fixture: F) {
    let store = fixture.store();
    apply(store, deferred("owned").owner("owner")).await;
    apply(store, claim("owned").by("owner")).await;
    let run = apply(store, not_begun("owned", 1).by("owner")).await;
    assert_eq!(run.agent_id.as_deref(), Some("owner"));
    assert_eq!(word(&ask(store, next("owned", "request-1").by("stranger")).await), "NOT_OWNER");
    assert_eq!(word(&ask(store, next("owned", "request-1").by("owner")).await), "applied");
}

pub(crate) async fn a_run_that_is_ready_does_not_count_and_its_claim_does<F: Fixture>(fixture: F) {
    let store = fixture.store();
    let at_most_one = |run_id: &str| claim(run_id).max_running("instance", 1);
    for id in ["first", "second"] {
        apply(store, deferred(id).label("instance", "7")).await;
    }
    apply(store, at_most_one("first")).await;
    apply(store, not_begun("first", 1)).await;
    let (label, value) = ("instance".to_owned(), "7".to_owned());
    let value = LabelValue { namespace: DEFAULT_NAMESPACE.into(), label, value };
    assert_eq!(store.running(std::slice::from_ref(&value)).await.unwrap(), [[] as [RunId; 0]]);
    apply(store, at_most_one("second")).await;
    assert_eq!(word(&ask(store, at_most_one("first")).await), "MAX_RUNNING", "it is subject to the limit again");
    apply(store, complete("second").epoch(1)).await;
    apply(store, at_most_one("first")).await;
    assert_eq!(store.running(&[value]).await.unwrap(), [["first"]]);
    sound(store).await;
}

pub(crate) async fn ready_runs_are_paged_in_the_order_of_their_creation<F: Fixture>(fixture: F) {
    let store = fixture.store();
    let ids: Vec<String> = (0..7).map(|n| format!("run-{n}")).collect();
    for id in &ids {
        apply(store, deferred(id)).await;
    }
    for id in ids.iter().rev() {
        apply(store, claim(id)).await;
        apply(store, not_begun(id, 1)).await;
    }
    let (mut paged, mut after): (Vec<String>, Option<Place>) = (Vec::new(), None);
    loop {
        let page = store
            .ready(&DEFAULT_NAMESPACE.into(), ReadyOf { not_begun: true, priority: Priority::NONE }, after.as_ref(), 3)
            .await
            .unwrap();
        paged.extend(page.runs.into_iter().map(|run| run.run_id.to_string()));
        after = page.next;
        if after.is_none() {
            break;
        }
    }
    assert_eq!(paged, ids);
    assert_eq!(
        store
            .ready(&"elsewhere".into(), ReadyOf { not_begun: true, priority: Priority::NONE }, None, 3)
            .await
            .unwrap()
            .runs,
        []
    );
}

pub(crate) async fn of_two_attempts_of_one_request_one_claims_and_the_other_finds_that<F: Fixture>(fixture: F) {
    let (here, there) = (fixture.store(), fixture.replica().await);
    for round in 0..20 {
        let ids: Vec<String> = (0..8).map(|n| format!("run-{round}-{n}")).collect();
        for id in &ids {
            apply(here, deferred(id)).await;
        }
        let request = format!("request-{round}");
        let attempts = ids.iter().enumerate().map(|(n, id)| {
            let store = if n % 2 == 0 { here } else { &*there };
            ask(store, next(id, &request))
        });
        let answers = join_all(attempts).await;
        let claimed: Vec<&String> = ids.iter().zip(&answers).filter(|(_, it)| it.is_ok()).map(|(id, _)| id).collect();
        assert_eq!(claimed.len(), 1, "{:?}", words(&answers));
        for answer in &answers {
            match answer {
                Ok(Verdict::Done(Disposition::Applied, _)) => {}
                Err(Refusal::ClaimedBefore { claimed: found }) => assert_eq!(&found.key.run_id, claimed[0]),
                other => panic!("{other:?}"),
            }
        }
        assert_eq!(replayed(&*there, &request).await, Some((claimed[0].clone(), 1)));
    }
    let other = next("run-0-0", "request-1").on(|terms| terms.claim_request.as_mut().unwrap().digest = [8; 32]);
    assert_eq!(word(&ask(here, other).await), "REQUEST_ID_REUSED");
    assert_eq!(replayed(here, "unknown").await, None);
    sound(here).await;
}

/// The holder has received the claim, even if an answer was lost.
pub(crate) async fn a_claim_whose_lease_was_renewed_is_not_given_back_by_the_authority<F: Fixture>(fixture: F) {
    let store = fixture.store();
    for (id, request) in [("asked", Some("asked")), ("claimed", None)] {
        apply(store, deferred(id)).await;
        apply(store, if request.is_some() { next(id, id) } else { claim(id) }).await;
        let renewal = Renewal { epoch: 1.into(), agent_id: None, is_confined: false, progress: None };
        let shard = shard_of(store.ledger().id, store.ledger().shard_count, &key(id));
        let renewed = store.renew(shard, &[(key(id), renewal)]).await.unwrap();
        assert!(renewed[0].is_some());
        let given_back = if request.is_some() { unreceived(id, 1, id) } else { give_back(id, 1) };
        assert_eq!(word(&ask(store, given_back).await), "unchanged");
        let run = apply(store, not_begun(id, 1)).await;
        assert!(run.is_ready(), "its holder may say so all the same");
        // The next lease begins anew.
        apply(store, claim(id)).await;
        assert!(apply(store, give_back(id, 3)).await.is_ready());
    }
    sound(store).await;
}

pub(crate) async fn a_claim_is_given_back_unless_its_claimer_has_been_answered_meanwhile<F: Fixture>(fixture: F) {
    let store = fixture.store();
    for id in ["lost", "asked-again"] {
        apply(store, deferred(id)).await;
        apply(store, next(id, id)).await;
    }
    assert_eq!(replayed(store, "asked-again").await, Some(("asked-again".to_owned(), 1)));
    assert_eq!(word(&ask(store, unreceived("asked-again", 1, "asked-again")).await), "unchanged");
    let looked = store.claimed(&DEFAULT_NAMESPACE.into(), &["lost".to_owned()]).await.unwrap();
    assert!(looked[0].is_some(), "a look answers nobody");
    assert_eq!(word(&ask(store, unreceived("lost", 1, "another's")).await), "unchanged");
    let run = apply(store, unreceived("lost", 1, "lost")).await;
    assert!(run.is_ready() && !stored(store, &key("asked-again")).await.is_ready());
    assert_eq!(replayed(store, "lost").await, None, "the request claims anew");
    apply(store, next("lost", "lost")).await;
    assert_eq!(replayed(store, "lost").await, Some(("lost".to_owned(), 3)));
    // The repetition's answer was not received either.
    let again = unreceived("asked-again", 1, "asked-again").on(|terms| terms.claim_replays = 1);
    assert!(apply(store, again).await.is_ready());
    sound(store).await;
}

/// In one batch, and so in one transaction, it is the same.
pub(crate) async fn in_one_batch_a_request_claims_once_and_is_given_back_and_claims_again<F: Fixture>(fixture: F) {
    let store = fixture.store();
    let ids = neighbours(store, 2);
    ask_all(store, ids.iter().map(|id| deferred(id)).collect()).await;
    let answers = ask_all(
        store,
        vec![
            next(&ids[0], "request"),
            next(&ids[1], "request"),
            unreceived(&ids[0], 1, "request"),
            next(&ids[1], "request"),
            next(&ids[0], "other"),
        ],
    )
    .await;
    assert_eq!(words(&answers), ["applied", "CLAIMED_BEFORE", "applied", "applied", "applied"]);
    assert_eq!(replayed(store, "request").await, Some((ids[1].clone(), 1)));
    assert_eq!(replayed(store, "other").await, Some((ids[0].clone(), 3)));
    assert_eq!(ready(store).await, [""; 0]);
    // A request that is remembered already is forgotten and remembered anew.
    let answers = ask_all(store, vec![unreceived(&ids[1], 1, "request"), next(&ids[1], "request")]).await;
    assert_eq!(words(&answers), ["unchanged", "CLAIMED_BEFORE"], "its claimer has asked again");
    let given_back = unreceived(&ids[1], 1, "request").on(|terms| terms.claim_replays = 1);
    let answers = ask_all(store, vec![given_back, next(&ids[1], "request")]).await;
    assert_eq!(words(&answers), ["applied", "applied"]);
    assert_eq!(replayed(store, "request").await, Some((ids[1].clone(), 3)));
    let answers: Vec<Answer> = ask_all(store, ids.iter().map(|id| sweep(id)).collect()).await;
    assert_eq!(words(&answers), ["unchanged", "unchanged"]);
    sound(store).await;
}

pub(crate) async fn a_request_is_forgotten_after_an_hour<F: Fixture>(fixture: F) {
    for id in ["old", "new"] {
        apply(fixture.store(), deferred(id)).await;
    }
    apply(fixture.store(), next("old", "old")).await;
    fixture.pass(1_800_000).await;
    apply(fixture.store(), next("new", "new")).await;
    fixture.pass(1_830_000).await;
    let store = fixture.store();
    assert!(!store.tidy().await.unwrap(), "there is no more");
    assert_eq!((replayed(store, "old").await, replayed(store, "new").await), (None, Some(("new".to_owned(), 1))));
}

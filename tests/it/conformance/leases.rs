//! Leases in a store: renewals, leases that are over, and the runs that end with them. The tests move the store's clock
//! and do not wait.

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::{join, join_all};
use runledger::domain::{Disposition, Progress, Renewal, RunKey, Shard, Status, Verdict};
use runledger::store::Store;
use runledger::store::leases::{KeptLease, OverduePlace, Renewed};
use tokio::time::timeout;

use super::asking::{Answer, apply, ask, ask_all, home, neighbours, stored, word, words};
use super::fixture::{Fixture, OnDisk, alive};
use super::sound::sound;
use crate::support::commands::{
    Asking as _, TTL_MS, abort, claim, complete, deferred, fail, key, leased, release, request_abort, start, sweep,
    update,
};

/// Of leases that are to be over. Large against what a busy machine may make of a moment.
const SHORT_MS: u64 = 20_000;

fn renewal(epoch: u64) -> Renewal {
    Renewal { epoch: epoch.into(), agent_id: None, is_confined: false, progress: None }
}

async fn renew(store: &dyn Store, run_id: &str, renewal: Renewal) -> Option<Renewed> {
    let key = key(run_id);
    store.renew(home(store, &key), &[(key, renewal)]).await.unwrap().remove(0)
}

async fn kept(store: &dyn Store, run_id: &str) -> Option<KeptLease> {
    store.leases(&[key(run_id)]).await.unwrap().remove(0)
}

/// The first runs of a shard whose time is over.
async fn found(store: &dyn Store, shard: Shard) -> Vec<RunKey> {
    store.overdue(shard, &OverduePlace::default(), 100).await.unwrap().runs
}

/// A server is there, and looks for whose time is over in all shards.
async fn overdue(store: &dyn Store) -> Vec<RunKey> {
    alive(store).await;
    let mut keys = Vec::new();
    for shard in 0..store.ledger().shard_count {
        keys.extend(found(store, Shard(shard)).await);
    }
    keys
}

/// Runs that are held for a while, of which so many milliseconds have passed, and a second replica.
async fn leased_for_a_while<F: Fixture>(fixture: &F, passed_ms: u64) -> (Vec<String>, Arc<dyn Store>) {
    let there = fixture.replica().await;
    let ids: Vec<String> = (0..40).map(|n| format!("run-{n}")).collect();
    for id in &ids {
        apply(fixture.store(), leased(id).lease_ttl_ms(SHORT_MS)).await;
    }
    fixture.pass_alive(&[&*there], passed_ms).await;
    (ids, there)
}

/// Yields this many times to the other tasks.
async fn later(turns: usize) {
    for _ in 0..turns {
        tokio::task::yield_now().await;
    }
}

pub(crate) async fn a_lease_is_renewed_without_an_event<F: Fixture>(fixture: F) {
    let run = apply(fixture.store(), leased("run-1")).await;
    let before = kept(fixture.store(), "run-1").await.unwrap();
    assert_eq!((before.epoch, &before.progress), (1.into(), &None));
    let ttl_micros = i64::try_from(TTL_MS).unwrap() * 1_000;
    assert!((before.expires_at.micros() - run.started_at.micros() - ttl_micros).abs() < 5_000_000);
    fixture.pass_alive(&[], 20_000).await;
    let progress = Progress { done: 3, total: 10, message: "é\"\\".to_owned() };
    let asked = Renewal { progress: Some(progress.clone()), ..renewal(1) };
    let renewed = renew(fixture.store(), "run-1", asked).await.unwrap();
    assert_eq!(renewed.run, run, "the run is as it was");
    assert!(renewed.expires_at.micros() >= before.expires_at.micros() + 19_000_000);
    let after = kept(fixture.store(), "run-1").await.unwrap();
    assert_eq!(after.expires_at, renewed.expires_at);
    let (said, at) = after.progress.clone().unwrap();
    assert_eq!((said, at.micros()), (progress, renewed.expires_at.micros() - ttl_micros));
    fixture.pass_alive(&[], 1_000).await;
    renew(fixture.store(), "run-1", renewal(1)).await.unwrap();
    let silent = kept(fixture.store(), "run-1").await.unwrap();
    assert_eq!(silent.progress, after.progress, "who says nothing of the work leaves what was said");
    assert!(silent.expires_at > after.expires_at);
    assert_eq!(sound(fixture.store()).await.revisions(&key("run-1")), 1);
}

pub(crate) async fn only_the_holder_of_a_lease_that_is_not_over_renews_it<F: Fixture>(fixture: F) {
    let store = fixture.store();
    apply(store, leased("run-1").lease_ttl_ms(SHORT_MS).owner("owner")).await;
    apply(store, start("run-2")).await;
    let by = |agent: &str| Renewal { agent_id: Some(agent.to_owned()), ..renewal(1) };
    assert_eq!(renew(store, "run-1", renewal(2)).await, None, "an epoch to come");
    assert_eq!(renew(store, "run-1", by("stranger")).await, None);
    assert_eq!(renew(store, "run-2", renewal(1)).await, None, "a run without a lease");
    assert_eq!(renew(store, "unknown", renewal(1)).await, None);
    assert!(renew(store, "run-1", by("owner")).await.is_some());
    fixture.pass_alive(&[], SHORT_MS + 1_000).await;
    let store = fixture.store();
    assert_eq!(renew(store, "run-1", renewal(1)).await, None, "it is over, whether or not anybody noticed");
    let run = apply(store, complete("run-1").epoch(1).by("owner")).await;
    assert_eq!(run.status, Status::Completed, "who reports before the sweep was in time");
}

pub(crate) async fn many_leases_are_renewed_at_once<F: Fixture>(fixture: F) {
    let store = fixture.store();
    let ids = neighbours(store, 100);
    ask_all(store, ids.iter().map(|id| leased(id)).collect()).await;
    apply(store, complete(&ids[7]).epoch(1)).await;
    let asked: Vec<_> = ids.iter().rev().map(|id| (key(id), renewal(1))).collect();
    let renewed = store.renew(home(store, &asked[0].0), &asked).await.unwrap();
    for ((key, _), renewed) in asked.iter().zip(&renewed) {
        assert_eq!(renewed.as_ref().map(|renewed| renewed.run.key()), (key.run_id != ids[7]).then(|| key.clone()));
    }
}

pub(crate) async fn a_lease_that_is_over_orphans_its_run_once<F: Fixture>(fixture: F) {
    let (here, there) = (fixture.store(), fixture.replica().await);
    apply(here, leased("dead").lease_ttl_ms(SHORT_MS)).await;
    apply(here, leased("alive").lease_ttl_ms(SHORT_MS)).await;
    apply(here, start("without-a-lease")).await;
    fixture.pass_alive(&[&*there], SHORT_MS / 2).await;
    assert!(renew(here, "alive", renewal(1)).await.is_some());
    assert_eq!(word(&ask(here, sweep("dead")).await), "unchanged", "it is not over yet");
    fixture.pass_alive(&[&*there], SHORT_MS / 2 + 1_000).await;
    assert_eq!(overdue(here).await, [key("dead")]);
    assert_eq!(overdue(&*there).await, [key("dead")]);
    let (one, other) = join(ask(here, sweep("dead")), ask(&*there, sweep("dead"))).await;
    let mut both = [word(&one), word(&other)];
    both.sort_unstable();
    assert_eq!(both, ["applied", "unchanged"], "two sweeps make one event");
    let run = stored(here, &key("dead")).await;
    assert_eq!((run.status, run.ending.reason_code.as_deref()), (Status::Failed, Some("ORPHANED")));
    assert!(run.supervision.presumed && run.outcome() == Some(Status::Failed));
    assert_eq!(word(&ask(here, sweep("alive")).await), "unchanged", "the heartbeat that got in first wins");
    assert_eq!((overdue(here).await, kept(here, "dead").await), (Vec::new(), None));
    assert_eq!(renew(here, "dead", renewal(1)).await, None, "a heartbeat after the end changes nothing");
    let contents = sound(here).await;
    assert_eq!((contents.terminal_events(&key("dead")), contents.revisions(&key("dead"))), (1, 2));
}

/// Renewals and sweeps of the same moment: the first decides, and the other knows it.
pub(crate) async fn of_a_renewal_and_a_sweep_the_first_wins<F: Fixture>(fixture: F) {
    let (ids, there) = leased_for_a_while(&fixture, SHORT_MS - 100).await;
    let here = fixture.store();
    let races = ids.iter().enumerate().map(|(n, id)| {
        let there = &there;
        async move {
            later(n).await;
            join(renew(here, id, renewal(1)), ask(&**there, sweep(id))).await
        }
    });
    for (id, (renewed, swept)) in ids.iter().zip(join_all(races).await) {
        let run = stored(here, &key(id)).await;
        match word(&swept) {
            "applied" => assert_eq!((renewed, run.status, kept(here, id).await), (None, Status::Failed, None), "{id}"),
            "unchanged" => {
                assert_eq!(run.status, Status::Running, "{id}");
                assert_eq!(renewed.map(|renewed| renewed.expires_at), kept(here, id).await.map(|kept| kept.expires_at));
            }
            other => panic!("{id}: {other}"),
        }
    }
    sound(here).await;
}

/// Completions and sweeps of the same moment: a completion that comes first is the end, one that comes second is kept.
pub(crate) async fn of_a_completion_and_a_sweep_the_first_wins<F: Fixture>(fixture: F) {
    let (ids, there) = leased_for_a_while(&fixture, SHORT_MS + 1_000).await;
    let here = fixture.store();
    let races = ids.iter().enumerate().map(|(n, id)| {
        let there = &there;
        async move {
            let (first, second): (&dyn Store, &dyn Store) =
                if n % 2 == 0 { (here, &**there) } else { (&**there, here) };
            join(ask(first, complete(id).epoch(1)), ask(second, sweep(id))).await
        }
    });
    for (id, (completed, swept)) in ids.iter().zip(join_all(races).await) {
        let run = stored(here, &key(id)).await;
        let words = (word(&completed), word(&swept));
        match words {
            ("applied", "unchanged") => assert_eq!((run.status, run.revision), (Status::Completed, 2.into()), "{id}"),
            ("recorded late", "applied") => {
                assert_eq!((run.status, run.outcome()), (Status::Failed, Some(Status::Completed)), "{id}");
                assert_eq!(run.revision, 3, "{id}");
            }
            other => panic!("{id}: {other:?}"),
        }
        assert_eq!(kept(here, id).await, None);
    }
    let contents = sound(here).await;
    assert!(contents.runs.keys().all(|key| contents.terminal_events(key) == 1));
}

/// The old holder's heartbeats and a claim of the same moment: the lease is the one's or the other's.
pub(crate) async fn of_a_claim_and_the_old_holders_renewal_the_first_wins<F: Fixture>(fixture: F) {
    let (ids, there) = leased_for_a_while(&fixture, SHORT_MS - 100).await;
    let here = fixture.store();
    let races = ids.iter().enumerate().map(|(n, id)| {
        let there = &there;
        async move {
            later(n).await;
            join(renew(&**there, id, renewal(1)), ask(here, claim(id))).await
        }
    });
    for (id, (renewed, claimed)) in ids.iter().zip(join_all(races).await) {
        let epoch = kept(here, id).await.map(|kept| kept.epoch);
        match word(&claimed) {
            // A renewal that came first would have kept it.
            "applied" => assert_eq!((renewed, epoch), (None, Some(2.into())), "{id}"),
            "LEASE_HELD" => assert!(epoch == Some(1.into()), "{id}"),
            other => panic!("{id}: {other}"),
        }
        let holder = if word(&claimed) == "applied" { 2 } else { 1 };
        assert!(word(&ask(here, complete(id).epoch(3 - holder)).await) == "LEASE_LOST", "{id}");
        assert_eq!(apply(here, complete(id).epoch(holder)).await.status, Status::Completed, "{id}");
    }
    sound(here).await;
}

pub(crate) async fn a_clock_that_is_set_back_ends_no_lease_of_the_living<F: Fixture>(fixture: F) {
    apply(fixture.store(), leased("alive").lease_ttl_ms(SHORT_MS)).await;
    overdue(fixture.store()).await;
    fixture.set_the_clock_back().await;
    let store = fixture.store();
    assert!(renew(store, "alive", renewal(1)).await.is_some());
    apply(store, start("other")).await;
    assert_eq!(word(&ask(store, claim("alive")).await), "LEASE_HELD");
    assert_eq!(word(&ask(store, sweep("alive")).await), "unchanged");
    assert_eq!(overdue(store).await, []);
    fixture.pass_alive(&[], SHORT_MS + 1_000).await;
    assert_eq!(overdue(fixture.store()).await, [key("alive")], "and one that is not renewed is over in its time");
}

pub(crate) async fn an_outage_ends_no_lease_of_the_living<F: Fixture>(fixture: F) {
    let (store, there) = (fixture.store(), fixture.replica().await);
    apply(store, leased("alive").lease_ttl_ms(SHORT_MS)).await;
    apply(store, leased("dead").lease_ttl_ms(SHORT_MS)).await;
    fixture.pass_alive(&[&*there], 2_000).await;
    for away_ms in [SHORT_MS - 5_000, 100_000] {
        fixture.pass(away_ms).await;
        // The first to come back may be the worker, or a sweep here or there.
        assert!(renew(store, "alive", renewal(1)).await.is_some(), "away for {away_ms} ms");
        assert_eq!(word(&ask(store, claim("dead")).await), "LEASE_HELD", "nobody could have renewed it");
        for store in [store, &*there] {
            assert_eq!(overdue(store).await, []);
            assert_eq!(word(&ask(store, sweep("dead")).await), "unchanged");
        }
        fixture.pass_alive(&[&*there], SHORT_MS - 5_000).await;
        assert!(renew(store, "alive", renewal(1)).await.is_some());
        for store in [store, &*there] {
            assert_eq!(overdue(store).await, []);
        }
    }
    fixture.pass_alive(&[&*there], 6_000).await;
    for store in [store, &*there] {
        assert_eq!(overdue(store).await, [key("dead")], "one ttl after the authority came back");
    }
    assert_eq!(word(&ask(&*there, sweep("dead")).await), "applied");
    assert!(renew(store, "alive", renewal(1)).await.is_some());
}

pub(crate) async fn a_restart_of_any_length_gives_each_lease_one_whole_ttl<F: OnDisk>(mut fixture: F) {
    for (round, away_ms) in [0, 500, 3_000, 100_000].into_iter().enumerate() {
        let [alive, dead] = ["alive", "dead"].map(|id| format!("{id}-{round}"));
        for id in [&alive, &dead] {
            apply(fixture.store(), leased(id).lease_ttl_ms(SHORT_MS)).await;
        }
        fixture.pass_alive(&[], SHORT_MS - 1_000).await;
        fixture.pass(away_ms).await;
        fixture.reopen().await;
        fixture.pass_alive(&[], SHORT_MS / 2).await;
        let store = fixture.store();
        assert_eq!(overdue(store).await, [], "away for {away_ms} ms");
        assert_eq!(word(&ask(store, sweep(&dead)).await), "unchanged", "away for {away_ms} ms");
        assert!(renew(store, &alive, renewal(1)).await.is_some(), "away for {away_ms} ms");
        fixture.pass_alive(&[], SHORT_MS / 2 + 1_000).await;
        let store = fixture.store();
        assert_eq!(overdue(store).await, [key(&dead)], "one ttl after it came back");
        assert_eq!(word(&ask(store, sweep(&dead)).await), "applied");
        apply(store, complete(&alive).epoch(1)).await;
    }
}

pub(crate) async fn an_interruption_counts_for_a_lease_that_it_could_hurt_and_for_no_other<F: Fixture>(fixture: F) {
    let store = fixture.store();
    apply(store, leased("long").lease_ttl_ms(SHORT_MS)).await;
    fixture.pass_alive(&[], SHORT_MS - 8_000).await;
    apply(store, leased("short").lease_ttl_ms(6_000)).await;
    fixture.pass_alive(&[], 5_000).await;
    fixture.pass(1_700).await;
    assert_eq!(overdue(store).await, [], "one is over by its own expiry");
    fixture.pass_alive(&[], 2_300).await;
    assert_eq!(overdue(store).await, [key("long")], "more than a quarter of one ttl, and less than one of the other");
    assert_eq!(word(&ask(store, sweep("short")).await), "unchanged");
    fixture.pass_alive(&[], 4_500).await;
    let mut over = overdue(store).await;
    over.sort();
    assert_eq!(over, [key("long"), key("short")]);
}

pub(crate) async fn a_dead_worker_is_found_after_one_ttl_of_uptime<F: Fixture>(fixture: F) {
    let store = fixture.store();
    apply(store, leased("dead").lease_ttl_ms(SHORT_MS)).await;
    fixture.pass_alive(&[], SHORT_MS / 2).await;
    assert!(renew(store, "dead", renewal(1)).await.is_some());
    fixture.pass_alive(&[], SHORT_MS / 2 + 1_000).await;
    assert_eq!(overdue(store).await, []);
    fixture.pass_alive(&[], SHORT_MS / 2).await;
    assert_eq!(overdue(store).await, [key("dead")]);
    assert_eq!(word(&ask(store, sweep("dead")).await), "applied");
}

pub(crate) async fn a_replica_that_restarts_again_and_again_does_not_keep_the_dead_alive<F: Fixture>(fixture: F) {
    let store = fixture.store();
    apply(store, leased("dead").lease_ttl_ms(SHORT_MS)).await;
    for _ in 0..7 {
        let there = fixture.replica().await;
        fixture.pass_alive(&[&*there], 3_000).await;
    }
    assert_eq!(overdue(store).await, [key("dead")]);
    assert_eq!(word(&ask(store, sweep("dead")).await), "applied");
}

pub(crate) async fn renewals_that_could_not_be_made_count_as_an_outage<F: OnDisk>(fixture: F) {
    let store = fixture.store();
    for id in ["alive", "dead"] {
        apply(store, leased(id).lease_ttl_ms(SHORT_MS)).await;
    }
    fixture.pass_alive(&[], 5_000).await;
    let held_up = fixture.hold_up_renewals().await;
    let renewals = [(key("alive"), renewal(1))];
    let renew_alive = || store.renew(home(store, &renewals[0].0), &renewals);
    let mut renewing = renew_alive();
    for _ in 0..SHORT_MS / 1_000 {
        // The worker goes on where the store gives up.
        if let Ok(answer) = timeout(Duration::from_millis(20), &mut renewing).await {
            assert!(answer.is_err(), "nothing is renewed");
            renewing = renew_alive();
        }
        fixture.pass(1_000).await;
        store.tick();
        let _held_up = timeout(Duration::from_millis(20), store.stay_alive()).await;
    }
    for shard in 0..store.ledger().shard_count {
        assert_eq!(found(store, Shard(shard)).await, [], "nobody could renew");
    }
    drop(held_up);
    let renewed = match renewing.await {
        Ok(mut renewed) => renewed.remove(0),
        Err(_gave_up) => renew(store, "alive", renewal(1)).await,
    };
    assert!(renewed.is_some(), "it is made when it can be");
    fixture.pass_alive(&[], SHORT_MS / 2).await;
    assert_eq!(overdue(store).await, [], "nobody else could renew");
    assert!(renew(store, "alive", renewal(1)).await.is_some());
    fixture.pass_alive(&[], SHORT_MS / 2 + 1_000).await;
    assert_eq!(overdue(store).await, [key("dead")]);
}

pub(crate) async fn a_claim_fences_the_holder_before<F: Fixture>(fixture: F) {
    apply(fixture.store(), leased("run-1").lease_ttl_ms(SHORT_MS).owner("old")).await;
    assert_eq!(word(&ask(fixture.store(), claim("run-1").by("new")).await), "LEASE_HELD");
    fixture.pass_alive(&[], SHORT_MS + 1_000).await;
    let store = fixture.store();
    assert_eq!(word(&ask(store, claim("run-1").by("new").epoch(7)).await), "LEASE_LOST");
    let run = apply(store, claim("run-1").by("new").epoch(1)).await;
    assert_eq!((run.supervision.epoch(), run.agent_id.as_deref()), (2.into(), Some("new")));
    assert_eq!(kept(store, "run-1").await.map(|kept| kept.epoch), Some(2.into()));
    for stale in [update("run-1").workflow("w").epoch(1), complete("run-1").epoch(1), fail("run-1"), release("run-1")] {
        assert_eq!(word(&ask(store, stale.by("old")).await), "LEASE_LOST");
    }
    assert_eq!(renew(store, "run-1", renewal(1)).await, None);
    assert!(renew(store, "run-1", renewal(2)).await.is_some());
    assert_eq!(apply(store, complete("run-1").epoch(2).by("new")).await.revision, 3);
    sound(store).await;
}

pub(crate) async fn of_many_claims_one_wins<F: Fixture>(fixture: F) {
    let (here, there) = (fixture.store(), fixture.replica().await);
    let stores = [here, &*there];
    for round in 0..6 {
        let id = format!("run-{round}");
        if round % 2 == 0 {
            apply(here, deferred(&id)).await;
        } else {
            apply(here, leased(&id)).await;
            apply(here, release(&id).epoch(1)).await;
        }
        let claims = (0..8).map(|n| ask(stores[n % 2], claim(&id).by(&format!("worker-{n}"))));
        let answers: Vec<Answer> = join_all(claims).await;
        let winners: Vec<_> = answers.iter().filter(|answer| word(answer) == "applied").collect();
        let [Ok(Verdict::Done(Disposition::Applied, winner))] = winners[..] else {
            panic!("one winner: {:?}", words(&answers))
        };
        assert_eq!(stored(here, &key(&id)).await, **winner);
        let lost = answers.iter().filter(|answer| ["LEASE_HELD", "NOT_OWNER"].contains(&word(answer)));
        assert_eq!(lost.count(), 7, "{:?}", words(&answers));
        let epoch = winner.supervision.epoch();
        assert_eq!(
            (epoch, kept(here, &id).await.map(|kept| kept.epoch)),
            (if round % 2 == 0 { 1 } else { 3 }.into(), Some(epoch))
        );
    }
    sound(here).await;
}

pub(crate) async fn what_was_released_and_not_claimed_is_orphaned<F: Fixture>(fixture: F) {
    apply(fixture.store(), leased("run-1").lease_ttl_ms(SHORT_MS)).await;
    let run = apply(fixture.store(), release("run-1").epoch(1)).await;
    assert!(run.supervision.lease.is_some_and(|lease| lease.released && lease.epoch == 2));
    for epoch in [1, 2] {
        assert_eq!(renew(fixture.store(), "run-1", renewal(epoch)).await, None, "nobody holds it");
    }
    fixture.pass_alive(&[], SHORT_MS + 1_000).await;
    assert_eq!(overdue(fixture.store()).await, [key("run-1")]);
    assert_eq!(word(&ask(fixture.store(), sweep("run-1")).await), "applied");
}

pub(crate) async fn deadlines_and_graces_end_runs_and_nothing_before_them<F: Fixture>(fixture: F) {
    let store = fixture.store();
    apply(store, deferred("not-started").start_timeout_ms(2_000)).await;
    apply(store, deferred("started").start_timeout_ms(2_000).run_timeout_ms(10_000)).await;
    apply(store, start("started")).await;
    apply(store, start("asked-to-stop")).await;
    apply(store, request_abort("asked-to-stop").reason("enough").grace_ms(2_000)).await;
    apply(store, start("asked-politely")).await;
    apply(store, request_abort("asked-politely")).await;
    apply(store, leased("ended").run_timeout_ms(2_000)).await;
    apply(store, complete("ended").epoch(1)).await;
    for id in ["not-started", "started", "asked-to-stop", "asked-politely"] {
        assert_eq!(word(&ask(store, sweep(id)).await), "unchanged", "{id}");
    }
    fixture.pass_alive(&[], 3_000).await;
    let store = fixture.store();
    let mut due = overdue(store).await;
    due.sort();
    assert_eq!(due, [key("asked-to-stop"), key("not-started")]);
    let run = apply(store, sweep("not-started")).await;
    assert_eq!(
        (run.status, run.ending.reason_code.as_deref(), run.supervision.presumed),
        (Status::Aborted, Some("TIMEOUT"), false)
    );
    let run = apply(store, sweep("asked-to-stop")).await;
    assert_eq!((run.status, run.ending.reason_code.as_deref()), (Status::Aborted, Some("ABORT_GRACE_EXPIRED")));
    assert!(run.supervision.presumed && run.supervision.abort_request.is_some());
    assert_eq!(overdue(store).await, []);
    fixture.pass_alive(&[], 8_000).await;
    let store = fixture.store();
    assert_eq!(overdue(store).await, [key("started")]);
    let run = apply(store, sweep("started")).await;
    assert_eq!(
        (run.status, run.ending.reason_code.as_deref(), run.supervision.presumed),
        (Status::Aborted, Some("TIMEOUT"), false)
    );
    sound(store).await;
}

pub(crate) async fn a_request_that_was_answered_before_the_end_is_in_the_record<F: Fixture>(fixture: F) {
    let (here, there) = (fixture.store(), fixture.replica().await);
    for round in 0..10 {
        let id = format!("run-{round}");
        apply(here, leased(&id)).await;
        let (asked, ended) = join(ask(here, request_abort(&id)), ask(&*there, complete(&id).epoch(1))).await;
        let run = stored(here, &key(&id)).await;
        assert_eq!((word(&ended), run.status), ("applied", Status::Completed), "a completion is the truth and wins");
        assert_eq!(run.supervision.abort_request.is_some(), word(&asked) == "applied");
        let Ok(Verdict::Done(Disposition::Applied, end)) = ended else { unreachable!() };
        assert_eq!(*end, run, "what was asked before is in the answer, and nothing comes after");
        assert_eq!(word(&ask(here, request_abort(&id)).await), "unchanged");
    }
    sound(here).await;
}

pub(crate) async fn what_is_reported_late_is_kept_once_and_changes_no_status<F: Fixture>(fixture: F) {
    apply(fixture.store(), leased("run-1").lease_ttl_ms(SHORT_MS).metadata(&serde_json::json!({"kept": 1}))).await;
    fixture.pass_alive(&[], SHORT_MS + 1_000).await;
    let store = fixture.store();
    let orphan = apply(store, sweep("run-1")).await;
    assert_eq!(word(&ask(store, complete("run-1")).await), "LEASE_LOST", "who names no lease is not its holder");
    let report = complete("run-1").epoch(1).metadata(&serde_json::json!({"result": "found"})).by("worker");
    let late = ask(store, report.clone().request("late")).await;
    let Ok(Verdict::Done(Disposition::RecordedLate, run)) = &late else { panic!("{late:?}") };
    assert_eq!((run.status, run.revision, &run.metadata), (Status::Failed, 3.into(), &orphan.metadata));
    assert_eq!((run.completed_at, run.outcome()), (orphan.completed_at, Some(Status::Completed)));
    assert_eq!(stored(store, &key("run-1")).await, **run);
    assert_eq!(word(&ask(store, report.request("late")).await), "replayed");
    for again in [complete("run-1").epoch(1), fail("run-1").epoch(1), abort("run-1"), sweep("run-1")] {
        assert_eq!(word(&ask(store, again).await), "unchanged");
    }
    let events = store.run_events(&key("run-1"), 2.into(), 10, 1 << 20).await.unwrap();
    let kept = events[0].changes.supervision.late_report.as_ref().unwrap();
    assert_eq!((kept.status, kept.lease_epoch, kept.metadata.is_empty()), (Status::Completed, 1.into(), false));
    assert_eq!(overdue(store).await, []);
    sound(store).await;
}

//! A store's clock that is set, forward and back: what is over is over by the time that passes, and what is written bears the
//! time that it is.

use futures_util::future::join_all;
use runledger::domain::{Ask, Command, Renewal, RunKey, Shard, Status, Time};
use runledger::store::leases::OverduePlace;
use runledger::store::{PAGE_BYTES_MAX, Store};

use super::asking::{apply, ask, beginning, home, neighbours, stored, word};
use super::fixture::{Fixture, OnDisk, alive};
use super::sound::sound;
use crate::support::commands::{
    Asking as _, claim, complete, deferred, key, leased, request_abort, resume, start, suspend, sweep, update,
};

const DAY_MS: i64 = 24 * 3_600_000;

/// The ways in which a clock is set: a second, a minute, an hour, 400 days.
const STEPS_MS: [i64; 8] = [1_000, -1_000, 60_000, -60_000, 3_600_000, -3_600_000, 400 * DAY_MS, -400 * DAY_MS];

/// The length of every deadline: longer than people's deadlines are left alone after a server's start.
const LENGTH_MS: u64 = 90_000;

/// How much later than its length a deadline may be found.
const LATE_MS: u64 = 2_000;

/// A run with each kind of deadline, of which nobody holds a lease that ends before.
async fn runs_with_deadlines(store: &dyn Store, round: usize) -> Vec<RunKey> {
    let id = |kind: &str| format!("{kind}-{round}");
    let held = |kind: &str| leased(&id(kind)).lease_ttl_ms(3_600_000);
    apply(store, held("run").run_timeout_ms(LENGTH_MS)).await;
    apply(store, deferred(&id("start")).start_timeout_ms(LENGTH_MS)).await;
    apply(store, held("grace")).await;
    apply(store, request_abort(&id("grace")).grace_ms(LENGTH_MS)).await;
    apply(store, held("suspension")).await;
    let mut suspended = suspend(&id("suspension"), "HELP", "why");
    let Ask::Suspend(terms) = &mut suspended.ask else { panic!("no suspension") };
    terms.terms.timeout_ms = Some(LENGTH_MS);
    apply(store, suspended).await;
    apply(store, held("ready")).await;
    let mut suspended = suspend(&id("ready"), "HELP", "why");
    let Ask::Suspend(terms) = &mut suspended.ask else { panic!("no suspension") };
    terms.ready_timeout_ms = Some(LENGTH_MS);
    apply(store, suspended).await;
    apply(store, resume(&id("ready")).reason("because")).await;
    ["grace", "ready", "run", "start", "suspension"].map(|kind| key(&id(kind))).into()
}

async fn overdue(store: &dyn Store) -> Vec<RunKey> {
    alive(store).await;
    let mut keys = Vec::new();
    for shard in 0..store.ledger().shard_count {
        keys.extend(store.overdue(Shard(shard), &OverduePlace::default(), 100).await.unwrap().runs);
    }
    keys.sort();
    keys.dedup();
    keys
}

async fn now(store: &dyn Store) -> Time {
    store.changes(&beginning(store), 1, PAGE_BYTES_MAX).await.unwrap().as_of
}

pub(crate) async fn a_deadline_comes_when_its_length_has_passed_however_the_clock_is_set<F: Fixture>(fixture: F) {
    let store = fixture.store();
    let there = fixture.replica().await;
    fixture.pass_alive(&[&*there], LATE_MS).await;
    for (round, by_ms) in STEPS_MS.into_iter().enumerate() {
        let runs = runs_with_deadlines(store, round).await;
        fixture.pass_alive(&[&*there], 10_000).await;
        fixture.set_the_clock(by_ms).await;
        fixture.pass_alive(&[&*there], LENGTH_MS - 11_000).await;
        for store in [store, &*there] {
            assert_eq!(overdue(store).await, [], "too soon, by {by_ms} ms");
        }
        for key in &runs {
            assert_eq!(word(&ask(store, sweep(&key.run_id)).await), "unchanged", "{key:?} by {by_ms} ms");
        }
        fixture.pass_alive(&[&*there], 1_000 + LATE_MS).await;
        for store in [store, &*there] {
            assert_eq!(overdue(store).await, runs, "too late, by {by_ms} ms");
        }
        for key in &runs {
            let ended = apply(&*there, sweep(&key.run_id)).await;
            let expected = match key.run_id.split_once('-').unwrap().0 {
                "grace" => "ABORT_GRACE_EXPIRED",
                "suspension" => "SUSPENSION_TIMEOUT",
                "ready" => "ORPHANED",
                _ => "TIMEOUT",
            };
            assert_eq!(ended.ending.reason_code.as_deref(), Some(expected), "{key:?} by {by_ms} ms");
        }
    }
    sound(store).await;
}

pub(crate) async fn a_lease_lives_for_its_ttl_however_the_clock_is_set<F: Fixture>(fixture: F) {
    let (store, there) = (fixture.store(), fixture.replica().await);
    fixture.pass_alive(&[&*there], LATE_MS).await;
    let renews = async |store: &dyn Store, id: &str| {
        let renewal = Renewal { epoch: 1.into(), agent_id: None, is_confined: false, progress: None };
        let renewed = store.renew(home(store, &key(id)), &[(key(id), renewal)]).await.unwrap().remove(0);
        renewed.map(|renewed| renewed.expires_at)
    };
    let ttl_ms = 20_000;
    for (round, by_ms) in STEPS_MS.into_iter().enumerate() {
        let (living, dead) = (format!("alive-{round}"), format!("dead-{round}"));
        for id in [&living, &dead] {
            apply(store, leased(id).lease_ttl_ms(ttl_ms)).await;
        }
        for part in 0..7 {
            if part == 3 {
                fixture.set_the_clock(by_ms).await;
            }
            for (store, id) in [(store, &living), (&*there, &living)] {
                let expires_at = renews(store, id).await.unwrap_or_else(|| panic!("{id} by {by_ms} ms"));
                let left = expires_at.since(now(store).await);
                assert!(
                    (ttl_ms - 2_000) * 1_000 <= left.cast_unsigned(),
                    "{left} us are left of {ttl_ms} ms, by {by_ms} ms"
                );
            }
            let found = overdue(store).await;
            assert!(part == 6 || found.is_empty(), "{found:?} after {} ms, by {by_ms} ms", part * 3_600);
            if part < 6 {
                fixture.pass_alive(&[&*there], 3_600).await;
            }
        }
        // 21.6 s have passed.
        assert_eq!(overdue(&*there).await, [key(&dead)], "and nobody else, by {by_ms} ms");
        assert_eq!(word(&ask(&*there, claim(&living)).await), "LEASE_HELD");
        apply(&*there, sweep(&dead)).await;
        apply(store, complete(&living).epoch(1)).await;
    }
    sound(store).await;
}

pub(crate) async fn a_clock_that_was_ahead_for_a_moment_is_in_no_other_runs_times<F: Fixture>(fixture: F) {
    let store = fixture.store();
    let ids = neighbours(store, 3);
    fixture.set_the_clock(400 * DAY_MS).await;
    let wrong = apply(store, start(&ids[0])).await;
    alive(store).await;
    fixture.set_the_clock(-400 * DAY_MS).await;
    let before = now(store).await;
    for id in [&ids[1], &ids[2], &"elsewhere".to_owned()] {
        let run = apply(store, start(id)).await;
        assert!(
            run.started_at >= before && run.started_at <= now(store).await,
            "{} is not the time that it is",
            run.started_at
        );
    }
    let again = apply(store, update(&ids[0]).workflow("w")).await;
    assert!(again.updated_at >= wrong.updated_at, "no time of a run falls");
    let restarts = join_all(
        (0..8).map(|n| async move { stored(store, &apply(store, start(&format!("at-once-{n}"))).await.key()).await }),
    );
    assert!(restarts.await.iter().all(|run| run.started_at < wrong.started_at));
    sound(store).await;
}

pub(crate) async fn time_at_rest_is_counted_by_what_passes<F: Fixture>(fixture: F) {
    let store = fixture.store();
    for (round, by_ms) in STEPS_MS.into_iter().enumerate() {
        let id = format!("run-{round}");
        apply(store, leased(&id).lease_ttl_ms(3_600_000).run_timeout_ms(LENGTH_MS)).await;
        fixture.pass_alive(&[], 10_000).await;
        apply(store, suspend(&id, "PAUSED", "why")).await;
        fixture.pass_alive(&[], 5_000).await;
        fixture.set_the_clock(by_ms).await;
        fixture.pass_alive(&[], 5_000).await;
        let again = |command: Command| command.on(|terms| terms.lease_ttl_ms = Some(3_600_000));
        apply(store, again(resume(&id).reason("because"))).await;
        fixture.pass_alive(&[], LENGTH_MS - 11_000).await;
        assert_eq!(overdue(store).await, [], "too soon, by {by_ms} ms");
        fixture.pass_alive(&[], 1_000 + LATE_MS).await;
        assert_eq!(overdue(store).await, [key(&id)], "too late, by {by_ms} ms");
        assert_eq!(apply(store, sweep(&id)).await.status, Status::Aborted);
    }
    sound(store).await;
}

/// On a restart nobody knows how much time has passed, where the clock was set meanwhile: it is taken to be none.
pub(crate) async fn a_clock_that_was_set_back_over_a_restart_keeps_no_run<F: OnDisk>(mut fixture: F) {
    for (round, by_ms) in STEPS_MS.into_iter().filter(|by_ms| *by_ms < 0).enumerate() {
        alive(fixture.store()).await;
        let runs = runs_with_deadlines(fixture.store(), round).await;
        fixture.pass_alive(&[], 20_000).await;
        fixture.set_the_clock(by_ms).await;
        fixture.reopen().await;
        fixture.pass_alive(&[], LENGTH_MS - 21_000).await;
        let found = overdue(fixture.store()).await;
        assert_eq!(found, [], "too soon, by {by_ms} ms");
        fixture.pass_alive(&[], 1_000 + LATE_MS).await;
        assert_eq!(overdue(fixture.store()).await, runs, "too late, by {by_ms} ms");
        for key in &runs {
            apply(fixture.store(), sweep(&key.run_id)).await;
        }
    }
    sound(fixture.store()).await;
}

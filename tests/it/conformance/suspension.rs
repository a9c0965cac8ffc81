//! Suspensions in a store: the rows that come and go with them, and what an outage does to their deadlines.

use std::sync::Arc;

use futures_util::future::{join, join_all};
use runledger::domain::{Ask, Command, Identity, Principal, Priority, Renewal, Shard, Status, TimeoutThen};
use runledger::store::Store;
use runledger::store::leases::{ACTS_AFTER_MS, OverduePlace};
use runledger::store::query::ReadyOf;

use super::asking::{apply, ask, home, stored, word};
use super::fixture::{Fixture, OnDisk};
use super::sound::sound;
use crate::support::commands::{
    Asking as _, claim, complete, deferred, fail, key, leased, request_abort, resume, start, suspend, sweep, update,
};
use crate::support::lifecycles::{self, Standing as _};

/// Seed 004's graph, but for its reports and budgets, which come with later issues.
const TASK: &str = r"
name: openviber.graph
phases:
  intake:            {initial: true, next: [planning]}
  planning:          {next: [executing]}
  executing:         {next: [verifying, blocked]}
  verifying:         {next: [reporting]}
  reporting:         {next: [awaiting_feedback], may_complete: true}
  awaiting_feedback: {next: [planning, paused], may_complete: true, suspends: FEEDBACK, timeout: 7d}
  paused:            {next: [planning], suspends: PAUSED}
  blocked:           {next: [awaiting_feedback], suspends: BLOCKED}
on_suspend: {PAUSED: paused, BUDGET: paused, BLOCKED: blocked}
words: [{status: RUNNING, word_from: phase}]
";

/// The edges of the graph.
const EDGES: &[(&str, &str)] = &[
    ("intake", "planning"),
    ("planning", "executing"),
    ("executing", "verifying"),
    ("executing", "blocked"),
    ("verifying", "reporting"),
    ("reporting", "awaiting_feedback"),
    ("awaiting_feedback", "planning"),
    ("awaiting_feedback", "paused"),
    ("paused", "planning"),
    ("blocked", "awaiting_feedback"),
];

const PHASES: &[&str] =
    &["intake", "planning", "executing", "verifying", "reporting", "awaiting_feedback", "paused", "blocked"];

fn waiting_ms(mut command: Command, timeout_ms: u64) -> Command {
    let Ask::Suspend(suspend) = &mut command.ask else { panic!("no suspension") };
    suspend.terms.timeout_ms = Some(timeout_ms);
    command
}

fn under_a_lease(command: Command) -> Command {
    command.on(|terms| terms.lease_ttl_ms = Some(crate::support::commands::TTL_MS))
}

fn with_priority(mut command: Command, priority: i32) -> Command {
    if let Ask::Start(start) = &mut command.ask {
        start.priority = Priority::of(priority);
    } else if let Ask::Update(update) = &mut command.ask {
        update.priority = Priority::of(priority);
    } else {
        panic!("no priority");
    }
    command
}

async fn due(store: &dyn Store) -> Vec<String> {
    let mut due = Vec::new();
    for shard in 0..store.ledger().shard_count {
        let found = store.overdue(Shard(shard), &OverduePlace::default(), 100).await.unwrap();
        due.extend(found.runs.into_iter().map(|key| key.run_id.to_string()));
    }
    due
}

pub(crate) async fn no_deadline_of_a_suspension_is_acted_upon_in_the_first_minute_after_an_outage<F: Fixture>(
    fixture: F,
) {
    let store = fixture.store();
    apply(store, leased("run-1")).await;
    apply(store, waiting_ms(suspend("run-1", "HELP", "which one?"), 20_000)).await;
    fixture.pass_alive(&[], 10_000).await;
    // The authority is away when the deadline comes.
    fixture.pass(100_000).await;
    fixture.pass_alive(&[], ACTS_AFTER_MS - 5_000).await;
    assert_eq!(due(store).await, [""; 0], "its people get a minute");
    assert_eq!(word(&ask(store, sweep("run-1")).await), "unchanged");
    fixture.pass_alive(&[], 10_000).await;
    assert_eq!(due(store).await, ["run-1"]);
    assert_eq!(word(&ask(store, sweep("run-1")).await), "applied");
    let ended = stored(store, &key("run-1")).await;
    assert_eq!((ended.status, ended.ending.reason_code.as_deref()), (Status::Aborted, Some("SUSPENSION_TIMEOUT")));
    sound(store).await;
}

pub(crate) async fn a_suspension_that_nobody_ended_in_time_leads_to_what_was_said<F: Fixture>(fixture: F) {
    let (store, there) = (fixture.store(), fixture.replica().await);
    let ids = ["resumed", "unleased", "failed", "aborted"];
    for id in ids {
        apply(store, if id == "unleased" { start(id) } else { leased(id) }).await;
        let mut suspended = waiting_ms(suspend(id, "TIMER", "for a while"), 20_000);
        let Ask::Suspend(suspend) = &mut suspended.ask else { panic!("no suspension") };
        suspend.terms.timeout_then = match id {
            "failed" => Some(TimeoutThen::Fail),
            "aborted" => Some(TimeoutThen::Abort),
            _ => Some(TimeoutThen::Resume),
        };
        apply(store, suspended).await;
    }
    fixture.pass_alive(&[&*there], ACTS_AFTER_MS + 20_000).await;
    let mut found = due(&*there).await;
    found.sort_unstable();
    assert_eq!(found, ["aborted", "failed", "resumed", "unleased"]);
    for id in ids {
        assert_eq!(word(&ask(&*there, sweep(id)).await), "applied");
        assert_eq!(word(&ask(store, sweep(id)).await), "unchanged", "another replica comes too late");
    }
    assert_eq!(due(store).await, [""; 0]);
    let status = async |id| stored(store, &key(id)).await.status;
    assert_eq!((status("failed").await, status("aborted").await), (Status::Failed, Status::Aborted));
    let of = ReadyOf { not_begun: false, priority: Priority::NONE };
    let ready = store.ready(&"default".into(), of, None, 10).await.unwrap().runs;
    assert_eq!(ready.iter().map(|run| &*run.run_id).collect::<Vec<_>>(), ["resumed"], "a claim finds it");
    assert_eq!(apply(&*there, claim("resumed")).await.supervision.epoch().get(), 2);
    assert!(!stored(store, &key("unleased")).await.is_at_rest(), "it goes on as it is");
    sound(store).await;
}

pub(crate) async fn an_attempt_that_failed_leaves_its_run_for_the_next_claim<F: Fixture>(fixture: F) {
    let (store, there) = (fixture.store(), fixture.replica().await);
    let tried = |id: &str, max: u32| {
        let mut command = leased(id).lease_ttl_ms(5_000);
        let Ask::Start(start) = &mut command.ask else { panic!("no start") };
        start.max_attempts = Some(max);
        command
    };
    let held = |command: Command, epoch: u64| command.on(|terms| terms.lease_epoch = Some(epoch.into()));
    apply(store, tried("reported", 3)).await;
    apply(store, tried("silent", 3)).await;
    apply(&*there, held(fail("reported"), 1)).await;
    fixture.pass_alive(&[&*there], 6_000).await;
    assert_eq!(due(store).await, ["silent"], "no lease is left of what was reported");
    assert_eq!(word(&ask(store, sweep("silent")).await), "applied");
    assert_eq!(word(&ask(&*there, sweep("silent")).await), "unchanged", "another replica comes too late");
    fixture.pass_alive(&[&*there], 100_000).await;
    assert_eq!(due(store).await, [""; 0], "a run between its attempts has no end");
    for id in ["reported", "silent"] {
        // Of each `take`: a retried run is where one is that was never begun.
        let of = ReadyOf { not_begun: true, priority: Priority::NONE };
        let ready = there.ready(&"default".into(), of, None, 10).await.unwrap().runs;
        assert!(ready.iter().any(|run| *run.run_id == *id), "{id}: {ready:?}");
        assert_eq!(apply(store, claim(id)).await.supervision.epoch().get(), 2);
        assert_eq!(word(&ask(&*there, held(complete(id), 1)).await), "LEASE_LOST", "another attempt is under way");
        let done = apply(&*there, held(complete(id), 2)).await;
        assert_eq!((done.status, done.refinements.unwrap().attempts.unwrap().number()), (Status::Completed, 2));
    }
    sound(store).await;
}

pub(crate) async fn a_late_completion_a_failing_attempt_and_the_next_claim_have_one_winner<F: Fixture>(fixture: F) {
    let (store, there) = (fixture.store(), fixture.replica().await);
    let held = |command: Command, epoch: u64| command.on(|terms| terms.lease_epoch = Some(epoch.into()));
    for round in 0..20 {
        let id = format!("run-{round}");
        let mut begin = leased(&id).lease_ttl_ms(5_000);
        let Ask::Start(start) = &mut begin.ask else { panic!("no start") };
        start.max_attempts = Some(2);
        apply(store, begin).await;
        fixture.pass_alive(&[&*there], 6_000).await;
        // In some rounds the attempt has failed before the others meet, in some the completion meets the sweep.
        if round % 2 == 0 {
            assert_eq!(word(&ask(store, sweep(&id)).await), "applied");
        } else {
            let (swept, completed) = join(ask(store, sweep(&id)), ask(&*there, held(complete(&id), 1))).await;
            assert!(word(&completed) == "applied" && ["applied", "unchanged"].contains(&word(&swept)), "{swept:?}");
        }
        let told = join(ask(&*there, claim(&id)), ask(store, held(complete(&id), 1))).await;
        let (claimed, completed) = (word(&told.0), word(&told.1));
        let run = stored(store, &key(&id)).await;
        match run.status {
            // What was true came before the next grant.
            Status::Completed => assert!(claimed == "INVALID_TRANSITION" && completed != "LEASE_LOST", "{told:?}"),
            // The next attempt is under way.
            Status::Running => assert!(claimed == "applied" && completed == "LEASE_LOST", "{told:?}"),
            status @ (Status::Pending | Status::Aborted | Status::Failed) => panic!("{status:?}: {told:?}"),
        }
    }
    // Each of the two comes first, whichever did so above.
    for (id, claims_first) in [("first", true), ("last", false)] {
        let mut begin = leased(id).lease_ttl_ms(5_000);
        let Ask::Start(start) = &mut begin.ask else { panic!("no start") };
        start.max_attempts = Some(2);
        apply(store, begin).await;
        fixture.pass_alive(&[&*there], 6_000).await;
        apply(store, sweep(id)).await;
        if claims_first {
            apply(&*there, claim(id)).await;
        }
        let told = ask(store, held(complete(id), 1)).await;
        assert_eq!(word(&told), if claims_first { "LEASE_LOST" } else { "applied" });
    }
    sound(store).await;
}

pub(crate) async fn a_suspended_run_is_never_over_and_a_lease_that_is_over_may_be_suspended<F: Fixture>(fixture: F) {
    let (store, there) = (fixture.store(), fixture.replica().await);
    apply(store, leased("run-1").lease_ttl_ms(5_000)).await;
    apply(store, suspend("run-1", "HELP", "which one?")).await;
    apply(store, leased("run-2").lease_ttl_ms(5_000)).await;
    fixture.pass_alive(&[&*there], 100 * 5_000).await;
    assert_eq!(due(store).await, ["run-2"], "nothing of the first expires");
    // Before the sweep comes, somebody may suspend what is over; after that, it is no orphan any more.
    apply(&*there, suspend("run-2", "PAUSED", "not now")).await;
    assert_eq!(word(&ask(store, sweep("run-2")).await), "unchanged");
    assert_eq!(word(&ask(store, claim("run-2")).await), "RUN_SUSPENDED");
    assert_eq!(due(store).await, [""; 0]);
    apply(store, resume("run-2")).await;
    assert_eq!(apply(&*there, claim("run-2")).await.supervision.epoch().get(), 2);
    sound(store).await;
}

pub(crate) async fn the_rows_of_a_run_at_rest_come_and_go_with_its_events<F: OnDisk>(fixture: F) {
    let store = fixture.replica().await;
    let store = &*store;
    let rests = async || fixture.sql("select run_id, kind, ready, keep_slot, priority from suspended").await.len();
    let leases = async || fixture.sql("select run_id from leases").await.len();
    let queued = async || fixture.sql("select run_id from active where priority is not null").await.len();
    apply(store, with_priority(deferred("run-1"), 5)).await;
    assert_eq!(queued().await, 1);
    apply(store, with_priority(update("run-1"), 0)).await;
    assert_eq!(queued().await, 0, "a run without a priority has no row in its index");
    apply(store, with_priority(update("run-1"), -7)).await;
    apply(store, claim("run-1")).await;
    assert_eq!((queued().await, rests().await, leases().await), (0, 0, 1), "it waits no more");
    apply(store, suspend("run-1", "HELP", "which one?")).await;
    assert_eq!((rests().await, leases().await), (1, 0), "in the same commit");
    apply(store, suspend("run-1", "PAUSED", "not now")).await;
    apply(store, resume("run-1")).await;
    let ready = if F::micros("at") == "at" { "1" } else { "t" };
    let row = fixture.sql("select kind, ready, priority from suspended").await;
    assert_eq!(row, [[Some("PAUSED".to_owned()), Some(ready.to_owned()), Some("-7".to_owned())]]);
    apply(store, claim("run-1")).await;
    assert_eq!((rests().await, leases().await), (0, 1));
    apply(store, suspend("run-1", "HELP", "which one?")).await;
    apply(store, complete("run-1").epoch(2)).await;
    assert_eq!((rests().await, leases().await), (0, 0), "and with the end");
    sound(store).await;
}

/// Seed 002: a run that needs help says why, and the one who helps says what was done.
pub(crate) async fn seed_002_needs_help_in_and_out_with_reasons<F: Fixture>(fixture: F) {
    let (store, there) = (fixture.store(), fixture.replica().await);
    apply(store, leased("run-1")).await;
    let run = apply(store, suspend("run-1", "HELP", "a login is asked for").epoch(1)).await;
    let suspension = run.suspension().unwrap();
    assert_eq!((suspension.kind.as_str(), suspension.reason.as_str()), ("HELP", "a login is asked for"));
    let mut silent = resume("run-1");
    let Ask::Resume(asked) = &mut silent.ask else { panic!("a resumption") };
    asked.reason = None;
    assert_eq!(word(&ask(&*there, silent).await), "INVALID_FIELD", "whoever helps says what was done");
    apply(&*there, resume("run-1")).await;
    let resumed = apply(store, claim("run-1")).await;
    let left = resumed.refinements.as_ref().unwrap().rest.resumed_from.as_ref().unwrap();
    let said = left.resumption.as_ref().unwrap().reason.as_deref();
    assert_eq!((left.reason.as_str(), said), ("a login is asked for", Some("that one")));
    sound(store).await;
}

/// Seed 004: every edge of its graph is walked and every step that is no edge is refused, and a person approves after the
/// worker has gone.
pub(crate) async fn seed_004_every_edge_of_its_graph_and_no_other<F: Fixture>(fixture: F) {
    let store = fixture.store();
    lifecycles::put(store, TASK).await;
    let to: fn(&str) -> &'static [&'static str] = |phase| match phase {
        "intake" => &[],
        "planning" => &["planning"],
        "executing" => &["planning", "executing"],
        "verifying" => &["planning", "executing", "verifying"],
        "reporting" => &["planning", "executing", "verifying", "reporting"],
        "awaiting_feedback" => &["planning", "executing", "verifying", "reporting", "awaiting_feedback"],
        "paused" => &["planning", "executing", "verifying", "reporting", "awaiting_feedback", "paused"],
        _ => &["planning", "executing", "blocked"],
    };
    let suspends = |phase: &str| ["awaiting_feedback", "paused", "blocked"].contains(&phase);
    for from in PHASES {
        for target in PHASES.iter().filter(|target| *target != from) {
            let id = format!("{from}.{target}");
            apply(store, leased(&id).with("openviber.graph")).await;
            for phase in to(from) {
                apply(store, update(&id).phase(phase).epoch(1)).await;
            }
            let is_edge = EDGES.contains(&(*from, *target));
            // Where the run is suspended, only a resumption leaves for a phase that does not suspend.
            let step = if suspends(from) && !suspends(target) {
                under_a_lease(resume(&id).phase(target))
            } else {
                update(&id).phase(target).epoch(1)
            };
            let answer = word(&ask(store, step).await);
            let wanted = if is_edge { "applied" } else { "INVALID_PHASE" };
            assert_eq!(answer, wanted, "{from} to {target}");
            if is_edge {
                let run = stored(store, &key(&id)).await;
                let stands = run.position().unwrap();
                assert_eq!(stands.phase.as_deref(), Some(*target));
                assert_eq!(run.suspension().is_some(), suspends(target));
            }
        }
    }
    let approved = apply(store, complete("reporting.awaiting_feedback").by("person")).await;
    assert_eq!((approved.status, approved.suspension().is_none()), (Status::Completed, true));
    assert_eq!(word(&ask(store, complete("awaiting_feedback.paused").by("person")).await), "LEASE_LOST");
    sound(store).await;
}

pub(crate) async fn what_was_given_with_a_resumption_outlives_the_store<F: Fixture>(mut fixture: F) {
    apply(fixture.store(), leased("run-1")).await;
    apply(fixture.store(), suspend("run-1", "HELP", "which one?")).await;
    apply(fixture.store(), resume("run-1").phase("acting")).await;
    fixture.reopen().await;
    let there: Arc<dyn Store> = fixture.replica().await;
    if there.run(&key("run-1")).await.unwrap().is_none() {
        return;
    }
    let claimed = apply(&*there, claim("run-1")).await;
    assert_eq!(claimed.position().unwrap().phase.as_deref(), Some("acting"));
    sound(&*there).await;
}

/// The ttl of a lease that is to be over.
const SHORT_MS: u64 = 5_000;

/// Two calls of the same moment on one run.
struct Race {
    name: &'static str,
    prepared: fn(&str) -> Vec<Command>,
    calls: [fn(&str) -> Command; 2],
    /// The answers to both where the first call comes first, and where the second does.
    answers: [[&'static str; 2]; 2],
    /// What the run is after either: its status and the epoch of its lease.
    after: [(Status, u64); 2],
}

fn held_for(id: &str, ttl_ms: u64) -> Vec<Command> {
    vec![leased(id).lease_ttl_ms(ttl_ms)]
}

fn help(id: &str) -> Command {
    suspend(id, "HELP", "which one?")
}

const RACES: [Race; 9] = [
    Race {
        name: "suspension, sweep of the expired lease",
        prepared: |id| held_for(id, SHORT_MS),
        calls: [help, sweep],
        answers: [["applied", "unchanged"], ["RUN_NOT_RUNNING", "applied"]],
        after: [(Status::Running, 1), (Status::Failed, 1)],
    },
    Race {
        name: "suspension by the holder, claim of the expired lease",
        prepared: |id| held_for(id, SHORT_MS),
        calls: [|id| help(id).epoch(1), claim],
        answers: [["applied", "RUN_SUSPENDED"], ["LEASE_LOST", "applied"]],
        after: [(Status::Running, 1), (Status::Running, 2)],
    },
    Race {
        name: "suspension, completion",
        prepared: |id| held_for(id, 60_000),
        calls: [help, |id| complete(id).epoch(1)],
        answers: [["applied", "applied"], ["RUN_NOT_RUNNING", "applied"]],
        after: [(Status::Completed, 1); 2],
    },
    Race {
        name: "suspension, update by the holder",
        prepared: |id| held_for(id, 60_000),
        calls: [help, |id| update(id).workflow("more").epoch(1)],
        answers: [["applied", "RUN_SUSPENDED"], ["applied", "applied"]],
        after: [(Status::Running, 1); 2],
    },
    Race {
        name: "suspension, request to abort",
        prepared: |id| held_for(id, 60_000),
        calls: [help, request_abort],
        answers: [["applied", "applied"], ["applied", "applied"]],
        after: [(Status::Aborted, 1); 2],
    },
    Race {
        name: "completion by the last holder, resumption under another lease",
        prepared: |id| [held_for(id, 60_000), vec![help(id)]].concat(),
        calls: [|id| complete(id).epoch(1), |id| under_a_lease(resume(id))],
        answers: [["applied", "RUN_NOT_RUNNING"], ["LEASE_LOST", "applied"]],
        after: [(Status::Completed, 1), (Status::Running, 2)],
    },
    Race {
        name: "two resumptions",
        prepared: |id| [held_for(id, 60_000), vec![help(id)]].concat(),
        calls: [|id| under_a_lease(resume(id)), |id| under_a_lease(resume(id))],
        answers: [["applied", "LEASE_HELD"], ["LEASE_HELD", "applied"]],
        after: [(Status::Running, 2); 2],
    },
    Race {
        name: "two claims of a ready run",
        prepared: |id| [held_for(id, 60_000), vec![help(id), resume(id)]].concat(),
        calls: [claim, claim],
        answers: [["applied", "LEASE_HELD"], ["LEASE_HELD", "applied"]],
        after: [(Status::Running, 2); 2],
    },
    Race {
        name: "another priority, claim",
        prepared: |id| vec![deferred(id)],
        calls: [|id| with_priority(update(id), 7), claim],
        answers: [["applied", "applied"], ["LEASE_LOST", "applied"]],
        after: [(Status::Running, 1); 2],
    },
];

/// Each order is seen, and two calls at once on two replicas are answered as one of the orders would be.
pub(crate) async fn of_two_calls_about_a_suspension_each_order_has_its_answers<F: Fixture>(fixture: F) {
    let (here, there) = (fixture.store(), fixture.replica().await);
    let there = &*there;
    let rounds = 0..10;
    let runs = RACES.iter().enumerate().flat_map(|(race, it)| rounds.clone().map(move |round| (race, it, round)));
    let runs: Vec<(String, &Race, usize)> =
        runs.map(|(race, it, round)| (format!("race-{race}.{round}"), it, round)).collect();
    for (id, race, _) in &runs {
        for command in (race.prepared)(id) {
            apply(here, command).await;
        }
    }
    fixture.pass_alive(&[there], SHORT_MS + 1_000).await;
    let mut met = Vec::new();
    // A few at a time: a busy database is not to refuse any of them.
    for some in runs.chunks(16) {
        let asked = some.iter().map(|(id, race, round)| async move {
            let [one, other] = race.calls.map(|call| call(id));
            match round {
                0 => (ask(here, one).await, ask(there, other).await),
                1 => {
                    let other = ask(there, other).await;
                    (ask(here, one).await, other)
                }
                round if round % 2 == 0 => join(ask(here, one), ask(there, other)).await,
                _ => {
                    let (other, one) = join(ask(there, other), ask(here, one)).await;
                    (one, other)
                }
            }
        });
        met.extend(join_all(asked).await);
    }
    for ((id, race, round), (one, other)) in runs.iter().zip(met) {
        let found = [word(&one), word(&other)];
        let wanted = race.answers.get(*round).map_or(&race.answers[..], std::slice::from_ref);
        assert!(wanted.contains(&found), "{}, round {round}: {found:?}", race.name);
        let run = stored(here, &key(id)).await;
        let order = race.answers.iter().position(|answers| *answers == found).unwrap();
        let stands = (run.status, run.supervision.epoch().get());
        assert_eq!(stands, race.after[order], "{}, round {round}", race.name);
        if race.name.ends_with("request to abort") {
            assert_eq!(run.ending.reason_code.as_deref(), Some("ABORT_REQUESTED"));
        }
        if race.name.starts_with("another priority") {
            assert_eq!(run.priority().is_none(), order == 1);
        }
    }
    sound(here).await;
}

/// A heartbeat that is under way waits for the commit of the suspension, and finds no lease any more; or it comes first.
pub(crate) async fn of_a_suspension_and_a_heartbeat_the_lease_is_gone_after_both<F: Fixture>(fixture: F) {
    let (here, there) = (fixture.store(), fixture.replica().await);
    let ids: Vec<String> = (0..40).map(|n| format!("run-{n}")).collect();
    for id in &ids {
        apply(here, leased(id)).await;
    }
    let renew = async |id: &str| {
        let renewal = Renewal { epoch: 1.into(), agent_id: None, is_confined: false, progress: None };
        there.renew(home(&*there, &key(id)), &[(key(id), renewal)]).await.unwrap().remove(0)
    };
    join_all(ids.iter().map(|id| join(renew(id), apply(here, help(id))))).await;
    for id in &ids {
        assert_eq!(renew(id).await, None, "{id}: a suspended run's lease is not renewed");
        assert_eq!(here.leases(&[key(id)]).await.unwrap(), [None], "{id}");
        assert!(stored(here, &key(id)).await.suspension().is_some(), "{id}");
    }
    sound(here).await;
}

/// Nothing of it is lost in a store: who had an earlier lease, and who executed the run without one.
pub(crate) async fn an_identity_that_executed_a_run_before_does_not_approve_it<F: Fixture>(fixture: F) {
    let as_one = |mut command: Command, subject: &str, agent: &str| {
        let identity = Identity { subject: subject.into(), issuer: "cluster".into() };
        command.principal = Principal::authenticated(identity.into(), Some(agent.into()));
        command
    };
    let store = fixture.store();
    lifecycles::put(store, TASK).await;
    let to_feedback = ["planning", "executing", "verifying", "reporting", "awaiting_feedback"];
    apply(store, as_one(leased("leased").with("openviber.graph"), "first", "a")).await;
    apply(store, as_one(suspend("leased", "HELP", "?").epoch(1), "first", "a")).await;
    apply(store, as_one(resume("leased").reason("go on"), "person", "p")).await;
    apply(store, as_one(claim("leased"), "last", "b")).await;
    apply(store, as_one(start("free").with("openviber.graph"), "first", "a")).await;
    for phase in to_feedback {
        apply(store, as_one(update("leased").phase(phase).epoch(2), "last", "b")).await;
        apply(store, as_one(update("free").phase(phase), "last", "a")).await;
    }
    for (run_id, refusal) in [("leased", "LEASE_LOST"), ("free", "NOT_OWNER")] {
        for subject in ["first", "last"] {
            assert_eq!(word(&ask(store, as_one(complete(run_id), subject, "c")).await), refusal, "{subject}: {run_id}");
        }
        let approved = apply(store, as_one(complete(run_id), "person", "p")).await;
        assert_eq!(approved.status, Status::Completed);
    }
    sound(store).await;
}

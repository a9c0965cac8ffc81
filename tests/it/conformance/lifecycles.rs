//! Lifecycles in a store: how versions follow one another, what is remembered of them, and what the lifecycles that
//! ship with the authority promise.

use futures_util::future::{join, join_all};
use runledger::domain::ids::DEFAULT_NAMESPACE;
use runledger::domain::{
    Ask, Command, LifecycleId, LifecycleKey, LifecycleName, LifecyclePin, LimitThen, Namespace, NamespaceAsk,
    NamespaceCommand, NamespaceSettings, PutLifecycle, PutOutcome, Run, Status, Verdict,
};
use runledger::store::Store;
use serde_json::json;

use super::asking::{apply, ask, stored, word};
use super::fixture::{Fixture, OnDisk};
use super::sound::sound;
use crate::support::commands::{
    Asking as _, TTL_MS, abort, complete, deferred, fail, key, leased, request_abort, start, sweep, update,
};
use crate::support::lifecycles::{Standing as _, agent_loop, put, put_of, read, shipped};

/// A lifecycle of one phase, which differs from others by its limit.
fn limited(name: &str, max: u32) -> String {
    format!("name: {name}\nphases: {{only: {{initial: true}}}}\nmax_iterations: {max}\n")
}

fn version(outcome: &PutOutcome) -> u32 {
    outcome.id().version
}

async fn max_of(store: &dyn Store, run_id: &str, lifecycle: &str) -> Option<u32> {
    apply(store, start(run_id).with(lifecycle)).await.refinements.unwrap().position.max_iterations
}

fn phase(run: &Run) -> &str {
    run.position().and_then(|stands| stands.phase.as_deref()).unwrap_or_default()
}

fn pinned(run: &Run) -> String {
    run.position().unwrap().lifecycle.as_ref().unwrap().id.to_string()
}

/// What the run is called, as answers show it.
fn called(run: &Run) -> &str {
    let word = run.position().and_then(|stands| stands.word.as_deref());
    word.unwrap_or_else(|| run.status.name())
}

pub(crate) async fn versions_follow_one_another_and_a_put_is_seen_by_every_replica<F: Fixture>(fixture: F) {
    let (here, there) = (fixture.store(), fixture.replica().await);
    assert_eq!(
        put(here, &limited("a", 1)).await,
        put(&*there, &format!("# the same\n{}", limited("a", 1))).await.into_applied()
    );
    for (round, (max, expected)) in [(2, 2), (1, 3), (3, 4)].into_iter().enumerate() {
        let stores = [here, &*there];
        assert_eq!(version(&put(stores[round % 2], &limited("a", max)).await), expected);
        // The other one pins it, though it remembers the version before as the newest.
        let run_id = format!("run-{round}");
        assert_eq!(max_of(stores[(round + 1) % 2], &run_id, "a").await, Some(max));
    }
    assert_eq!(max_of(here, "old", "a@1").await, Some(1));
    // One that says the same as a version which somebody remembers is another version all the same.
    assert_eq!(max_of(here, "of-4", "a").await, Some(3));
    assert_eq!(version(&put(&*there, &limited("a", 4)).await), 5);
    assert_eq!(version(&put(&*there, &limited("a", 3)).await), 6);
    for (run_id, store) in [("of-6-here", here), ("of-6-there", &*there)] {
        assert_eq!(pinned(&apply(store, start(run_id).with("a")).await), "a@6");
    }
    assert_eq!(word(&ask(here, start("none").with("a@7")).await), "LIFECYCLE_NOT_FOUND");
    assert_eq!(word(&ask(here, start("none").with("b")).await), "LIFECYCLE_NOT_FOUND");

    put(here, &limited("b", 7)).await;
    let default: Namespace = DEFAULT_NAMESPACE.into();
    let listed = there.list_lifecycles(&default, "", 10).await.unwrap();
    assert_eq!(listed.iter().map(|record| record.id.to_string()).collect::<Vec<_>>(), ["a@6", "b@1"]);
    assert_eq!(there.list_lifecycles(&default, "a", 10).await.unwrap().len(), 1);
    let versions = there.lifecycle_versions(&default, "a", 4, 2).await.unwrap();
    assert_eq!(versions.iter().map(|record| record.id.version).collect::<Vec<_>>(), [3, 2]);
    let name = |text| LifecycleName::parse(text).unwrap();
    let second = here.lifecycle(&default, &name("a@2")).await.unwrap().unwrap();
    assert_eq!((second.source, second.id.version), (limited("a", 2), 2));
    assert_eq!(here.lifecycle(&default, &name("a")).await.unwrap().unwrap().id.version, 6);
    assert_eq!(here.lifecycle(&"elsewhere".into(), &name("a")).await.unwrap(), None);
    let elsewhere = PutLifecycle { namespace: "elsewhere".into(), ..put_of(&limited("a", 1)) };
    assert!(here.put_lifecycle(&elsewhere).await.is_err(), "there is no such namespace");
    sound(here).await;
}

trait Applied {
    fn into_applied(self) -> Self;
}

impl Applied for PutOutcome {
    /// The version as its first put answered it.
    fn into_applied(self) -> Self {
        Self::Applied(self.id().clone())
    }
}

pub(crate) async fn of_puts_at_once_none_is_lost<F: Fixture>(fixture: F) {
    let (here, there) = (fixture.store(), fixture.replica().await);
    for round in 0..5_u32 {
        let name = format!("round-{round}");
        let (one, other) = (limited(&name, 1), limited(&name, 2));
        let (first, second) = join(put(here, &one), put(&*there, &other)).await;
        let mut versions = [version(&first), version(&second)];
        versions.sort_unstable();
        assert_eq!(versions, [1, 2], "two declarations are two versions");
        let same = format!("same-{round}");
        let source = limited(&same, 1);
        let (first, second) = join(put(here, &source), put(&*there, &source)).await;
        assert_eq!((version(&first), version(&second)), (1, 1));
        assert_ne!(first, second, "one of them is unchanged");
    }
    // Runs that are started meanwhile are pinned to a version that was the newest while their call lasted.
    put(here, &limited("moving", 1)).await;
    let puts = async {
        for max in 2..10 {
            put(here, &limited("moving", max)).await;
        }
    };
    let starts = join_all((0..20).map(|n| {
        let there = there.clone();
        async move {
            let before = there.lifecycle(&DEFAULT_NAMESPACE.into(), &LifecycleName::parse("moving").unwrap()).await;
            let pinned = max_of(&*there, &format!("run-{n}"), "moving").await.unwrap();
            assert!(pinned >= before.unwrap().unwrap().id.version, "what was put before the call is seen by it");
        }
    }));
    join(puts, starts).await;
    sound(here).await;
}

pub(crate) async fn limits_on_names_versions_and_puts_are_kept<F: Fixture>(fixture: F) {
    let store = fixture.store();
    for n in 0..32 {
        put(store, &limited("often", n + 1)).await;
    }
    let refused = store.put_lifecycle(&put_of(&limited("often", 99))).await.unwrap_err();
    assert!(refused.to_string().contains("TooOften"), "{refused}");
    assert_eq!(version(&put(store, &limited("often", 32)).await), 32, "what changes nothing is no put");
    fixture.pass(61_000).await;
    assert_eq!(version(&put(store, &limited("often", 99)).await), 33);
}

/// Makes a thousand versions of a name that has one, past the store.
async fn a_thousand_versions<F: OnDisk>(fixture: &F, name: &str) {
    put(fixture.store(), &limited(name, 1)).await;
    let more = format!(
        "with recursive v (version) as (select 2 union all select version + 1 from v where version < 1000)
         insert into lifecycles (namespace, name, version, at, principal, source, declaration, digest)
         select l.namespace, l.name, v.version, l.at, l.principal, l.source,
                replace(l.declaration, '\"maxIterations\":1', '\"maxIterations\":' || v.version), 0
         from lifecycles as l cross join v where l.name = '{name}' and l.version = 1"
    );
    fixture.sql(&more).await;
    let digests = (2..=1_000).map(|version| {
        let declaration = read(&limited(name, version)).text();
        let digest = LifecyclePin::new(LifecycleId { name: name.to_owned(), version }, &declaration).digest;
        format!("when {version} then {}", digest.cast_signed())
    });
    let digests = digests.collect::<Vec<_>>().join(" ");
    let settle =
        format!("update lifecycles set digest = case version {digests} end where name = '{name}' and version > 1");
    fixture.sql(&settle).await;
}

/// The stores of these tests remember 64 KiB of lifecycles.
pub(crate) async fn a_thousand_versions_are_right_in_a_small_memory<F: OnDisk>(fixture: F) {
    let store = fixture.store();
    for name in ["a", "b"] {
        a_thousand_versions(&fixture, name).await;
        // What was put past the store counts as put now.
        fixture.pass(61_000).await;
    }
    let mut runs = Vec::new();
    for n in 0..120_u32 {
        let (name, wanted) = (["a", "b"][n as usize % 2], n * 397 % 1_000 + 1);
        let run_id = format!("run-{n}");
        let lifecycle = if n % 10 == 0 { name.to_owned() } else { format!("{name}@{wanted}") };
        let max = if n % 10 == 0 { 1_000 } else { wanted };
        assert_eq!(max_of(store, &run_id, &lifecycle).await, Some(max), "{lifecycle}");
        runs.push((run_id, max));
    }
    for (run_id, max) in runs {
        assert_eq!(word(&ask(store, update(&run_id).iteration(max + 1)).await), "ITERATION_LIMIT", "{run_id}");
        assert_eq!(word(&ask(store, update(&run_id).iteration(max)).await), "applied", "{run_id}");
    }
    let part = store.memory().into_iter().find(|part| part.name == "lifecycles").unwrap();
    assert!(part.bytes > 0 && part.bytes <= 64 * 1024 && part.bytes_max == Some(64 * 1024), "{part:?}");
    let refused = store.put_lifecycle(&put_of(&limited("a", 1))).await.unwrap_err();
    assert!(refused.to_string().contains("TooManyVersions"), "{refused}");
    sound(store).await;
}

pub(crate) async fn what_remains_of_a_deleted_lifecycle_is_read_and_ended<F: OnDisk>(mut fixture: F) {
    put(fixture.store(), &agent_loop("REFUSE")).await;
    for id in ["walked", "left"] {
        apply(fixture.store(), start(id).with("craik.task_run")).await;
        apply(fixture.store(), update(id).phase("act")).await;
    }
    fixture.sql("delete from lifecycles").await;
    fixture.reopen().await;
    let store = fixture.store();
    let run = stored(store, &key("walked")).await;
    assert_eq!((phase(&run), called(&run)), ("act", "running"));
    sound(store).await;
    assert_eq!(word(&ask(store, update("walked").phase("observe")).await), "LIFECYCLE_NOT_FOUND");
    assert_eq!(word(&ask(store, complete("walked").phase("stop")).await), "LIFECYCLE_NOT_FOUND");
    assert_eq!(apply(store, fail("walked")).await.status, Status::Failed);
    assert_eq!(apply(store, abort("left")).await.status, Status::Aborted);
    let lost = LifecycleKey::Pinned(DEFAULT_NAMESPACE.into(), run.refinements.unwrap().position.lifecycle.unwrap());
    assert_eq!(store.declared(&lost).await.unwrap(), None);
    sound(store).await;
}

/// The promises of `craik.task_run`: terminal runs do not move, iterations do not exceed their limit, a change of phase
/// refreshes its time, and an end has one.
pub(crate) async fn the_loop_of_an_agent_is_bounded_and_its_phase_is_fresh<F: Fixture>(fixture: F) {
    let store = fixture.store();
    put(store, &agent_loop("REFUSE")).await;
    let begun = apply(store, begin("run-1")).await;
    let since = |run: &Run| run.position().unwrap().phase_started_at.unwrap();
    assert_eq!((phase(&begun), since(&begun)), ("plan", begun.started_at));
    fixture.pass(1_000).await;
    let labelled = apply(store, update("run-1").label("a", "b")).await;
    assert_eq!(since(&labelled), since(&begun), "the phase did not change");
    let acting = apply(store, update("run-1").phase("act")).await;
    assert_eq!(since(&acting), acting.updated_at, "and now it did");
    for iteration in 1..=2 {
        for next in ["observe", "evaluate", "continue", "act"] {
            apply(store, update("run-1").phase(next)).await;
        }
        assert_eq!(stored(store, &key("run-1")).await.refinements.unwrap().position.iteration, iteration);
    }
    for next in ["observe", "evaluate"] {
        apply(store, update("run-1").phase(next)).await;
    }
    assert_eq!(word(&ask(store, update("run-1").phase("continue")).await), "ITERATION_LIMIT");
    assert_eq!(word(&ask(store, complete("run-1")).await), "INVALID_PHASE", "it completes where it stops");
    let ended = apply(store, complete("run-1").phase("stop")).await;
    assert_eq!((ended.status, ended.completed_at), (Status::Completed, Some(ended.updated_at)));
    assert_eq!(word(&ask(store, update("run-1").phase("plan")).await), "RUN_NOT_RUNNING");
    sound(store).await;
}

fn begin(id: &str) -> Command {
    start(id).with("craik.task_run").max_iterations(2, LimitThen::Refuse)
}

/// Whoever ends a run of `craik.task_run`, it stops, and has its word: the authority's own ends are ends as well.
pub(crate) async fn every_end_of_the_loop_stops_and_has_its_word<F: Fixture>(fixture: F) {
    let store = fixture.store();
    put(store, &agent_loop("REFUSE")).await;
    let with_a_lease = leased("orphaned").with("craik.task_run");
    apply(store, with_a_lease).await;
    apply(store, begin("timed-out").run_timeout_ms(TTL_MS)).await;
    apply(store, deferred("never-started").with("craik.task_run").start_timeout_ms(TTL_MS)).await;
    apply(store, begin("asked-to-abort")).await;
    apply(store, request_abort("asked-to-abort").grace_ms(TTL_MS)).await;
    fixture.pass_alive(&[], TTL_MS + 2_000).await;
    for (id, status, code, said) in [
        ("orphaned", Status::Failed, "ORPHANED", "failed"),
        ("timed-out", Status::Aborted, "TIMEOUT", "interrupted"),
        ("never-started", Status::Aborted, "TIMEOUT", "interrupted"),
        ("asked-to-abort", Status::Aborted, "ABORT_GRACE_EXPIRED", "interrupted"),
    ] {
        let run = apply(store, sweep(id)).await;
        assert_eq!((run.status, run.ending.reason_code.as_deref()), (status, Some(code)), "{id}");
        assert_eq!((phase(&run), called(&run)), ("stop", said), "{id}");
    }
    apply(store, begin("blocked")).await;
    let blocked = fail("blocked").changing(|fields| fields.reason_code = Some("BLOCKED".to_owned()));
    let run = apply(store, blocked).await;
    assert_eq!((run.status, phase(&run), called(&run)), (Status::Failed, "stop", "blocked"));
    apply(store, begin("broke")).await;
    let run = apply(store, fail("broke")).await;
    assert_eq!((phase(&run), called(&run)), ("stop", "failed"));
    sound(store).await;
}

/// The promises of `openchrome.task`: its own words, a cancel that keeps what there is, orphans that failed, and
/// arguments of which no secret is kept.
pub(crate) async fn a_background_task_has_its_own_words_and_keeps_no_secret<F: Fixture>(fixture: F) {
    let store = fixture.store();
    put(store, &shipped("openchrome.task")).await;
    let arguments = json!({
        "url": "https://example.com",
        "headers": {"Authorization": "hunter2", "Set-Cookie": "hunter2", "accept": "*"},
        "steps": [{"type": "login", "userPassword": "hunter2"}, [{"apiToken": "hunter2"}]],
        "client_SECRET": {"deep": "hunter2"},
    });
    let begin = |id: &str| deferred(id).with("openchrome.task").input(&arguments).metadata(&arguments);
    let pending = apply(store, begin("task-1").request("once")).await;
    assert_eq!(called(&pending), "PENDING");
    let kept = json!({
        "url": "https://example.com",
        "headers": {"Authorization": "[redacted]", "Set-Cookie": "[redacted]", "accept": "*"},
        "steps": [{"type": "login", "userPassword": "[redacted]"}, [{"apiToken": "[redacted]"}]],
        "client_SECRET": "[redacted]",
    });
    assert_eq!(serde_json::to_value(pending.metadata.as_map()).unwrap(), kept);
    let Ask::Start(again) = begin("task-1").input(&kept).ask else { unreachable!() };
    assert_eq!(pending.refinements.as_ref().unwrap().attachments.input, again.input.map(|input| input.digest()));
    assert!(matches!(ask(store, begin("task-1").request("once")).await, Ok(Verdict::Replayed { .. })));
    assert_eq!(word(&ask(store, begin("task-1")).await), "unchanged", "masked, it is the same input");

    assert_eq!(called(&apply(store, start("task-1")).await), "RUNNING");
    apply(store, update("task-1").result(&json!({"pages": [1]}))).await;
    let cancelled = apply(store, abort("task-1")).await;
    assert_eq!((called(&cancelled), cancelled.status), ("CANCELLED", Status::Aborted));
    assert!(cancelled.refinements.unwrap().attachments.result.is_some(), "what it had found stays");

    apply(store, leased("task-2").with("openchrome.task")).await;
    fixture.pass_alive(&[], TTL_MS + 2_000).await;
    let orphan = apply(store, sweep("task-2")).await;
    assert_eq!((called(&orphan), orphan.ending.reason_code.as_deref()), ("FAILED", Some("ORPHANED")));
    apply(store, start("task-3").with("openchrome.task")).await;
    assert_eq!(called(&apply(store, complete("task-3")).await), "COMPLETED");
    let contents = sound(store).await;
    assert!(!format!("{:?}", contents.log).contains("hunter2"));
}

/// Of the built-in lifecycle whose end moves its runs, and of one that somebody put.
pub(crate) async fn a_late_completion_of_a_run_whose_end_moved_it_is_judged_by_the_phase_before<F: Fixture>(
    fixture: F,
) {
    let store = fixture.store();
    put(store, &shipped("craik.task_run")).await;
    let gate = "name: gate\nphases:\n  draft: {initial: true, next: [ready]}\n  ready: {may_complete: true}\n  \
                closed: {}\nat_end: closed\n";
    put(store, gate).await;
    for (run_id, lifecycle, phase) in [
        ("1", "craik.task_run", None),
        ("2", "craik.task_run", Some("stop")),
        ("3", "gate", None),
        ("4", "gate", Some("ready")),
    ] {
        apply(store, leased(run_id).with(lifecycle)).await;
        if let Some(phase) = phase {
            apply(store, update(run_id).phase(phase).epoch(1)).await;
        }
    }
    fixture.pass_alive(&[], TTL_MS + 2_000).await;
    for (run_id, may_complete) in [("1", false), ("2", true), ("3", false), ("4", true)] {
        apply(store, sweep(run_id)).await;
        assert_eq!(word(&ask(store, complete(run_id).epoch(1)).await), "recorded late");
        let run = stored(store, &key(run_id)).await;
        let missing = run.supervision.late_report.as_ref().unwrap().completion_missing();
        assert_eq!(missing.is_empty(), may_complete, "{run_id}: {missing:?}");
        assert_eq!(run.outcome(), Some(if may_complete { Status::Completed } else { Status::Failed }), "{run_id}");
    }
    sound(store).await;
}

/// Versions begin at 1 again where a namespace was deleted and made anew: nothing of the former is remembered.
pub(crate) async fn a_namespace_that_is_made_anew_has_none_of_the_lifecycles_before<F: Fixture>(fixture: F) {
    let (here, there) = (fixture.store(), fixture.replica().await);
    let change = |ask| NamespaceCommand { name: "team".into(), ask, expected_revision: None };
    let within = |command: Command| {
        let key = runledger::domain::RunKey { namespace: "team".into(), ..command.key.clone() };
        Command { key, ..command }
    };
    let declare = |redact: &str| PutLifecycle {
        namespace: "team".into(),
        ..put_of(&format!("name: a\nphases: {{{redact}: {{initial: true}}}}\nredact_keys: [{redact}]\n"))
    };
    let secrets = json!({"first": "hunter2", "second": "hunter2"});
    here.change_namespace(&change(NamespaceAsk::Create(NamespaceSettings::default()))).await.unwrap();
    here.put_lifecycle(&declare("first")).await.unwrap();
    here.put_lifecycle(&declare("second")).await.unwrap();
    // Refused, they leave no run, and the version is remembered by both.
    for store in [here, &*there] {
        for lifecycle in ["a", "a@1"] {
            let refused = within(start("run-0").with(lifecycle).metadata(&secrets).revision(9));
            assert_eq!(word(&ask(store, refused).await), "REVISION_MISMATCH");
        }
    }
    there.change_namespace(&change(NamespaceAsk::Delete)).await.unwrap();
    there.change_namespace(&change(NamespaceAsk::Create(NamespaceSettings::default()))).await.unwrap();
    assert_eq!(word(&ask(here, within(start("run-0").with("a@1"))).await), "LIFECYCLE_NOT_FOUND");
    let outcome = there.put_lifecycle(&declare("second")).await.unwrap();
    assert_eq!(version(&outcome), 1);
    for (n, store) in [here, &*there, here, &*there].into_iter().enumerate() {
        let lifecycle = ["a@1", "a"][n / 2];
        let run = apply(store, within(start(&format!("run-{n}")).with(lifecycle).metadata(&secrets))).await;
        assert_eq!((phase(&run), pinned(&run).as_str()), ("second", "a@1"), "{lifecycle}");
        assert_eq!(run.metadata.as_map()["second"], json!("[redacted]"), "{lifecycle}");
    }
}

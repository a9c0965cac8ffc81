//! Lifecycles: what a declaration allows, and what it calls a run.

use proptest::collection::vec;
use proptest::prelude::*;
use proptest::test_runner::Config;
use runledger::domain::check::{Transition, check_run, next_phases};
use runledger::domain::evolve::evolve;
use runledger::domain::lifecycle::{Phase, WordRule};
use runledger::domain::{
    Agents, Changes, Command, Declared, Disposition, Event, EventType, Lifecycle, LifecycleFound, LifecycleId,
    LimitThen, PositionChange, Principal, RefinementsChange, Refusal, Run, Status, Verdict,
};
use serde_json::json;

use super::desk::{Desk, phase, refined, stands};
use crate::support::commands::{
    Asking as _, TTL_MS, abort, claim, complete, deferred, fail, left, request_abort, start, sweep, update,
};
use crate::support::lifecycles::{Standing as _, agent_loop, declared, shipped};

/// What a run is called, as answers show it.
fn word(run: &Run) -> String {
    stands(run).word.unwrap_or_else(|| run.status.name().to_owned())
}

/// The run, put into a phase past the rules.
fn put_into(run: &Run, phase: &str) -> Run {
    let position = PositionChange { phase: Some(phase.to_owned()), ..PositionChange::default() };
    let refinements = RefinementsChange { position, ..RefinementsChange::default() };
    let changes = Changes { refinements: Some(Box::new(refinements)), ..Changes::default() };
    let event = Event {
        key: run.key(),
        revision: run.revision.next(),
        at: run.updated_at,
        steady_ahead_micros: 0,
        request_id: None,
        event_type: EventType::Updated,
        from: Some(run.status),
        to: run.status,
        principal: runledger::domain::Principal::anonymous(),
        trace: None,
        changes,
    };
    evolve(Some(run.clone()), &event)
}

/// 32 phases, of which about a third may follow each.
fn graph() -> Lifecycle {
    let name = |n: usize| format!("p{n}");
    let follows = |from: usize, to: usize| from != to && (from * 7 + to * 13 + from * to).is_multiple_of(3);
    let phases = (0..32).map(|from| Phase {
        name: name(from),
        initial: from == 0,
        next: (0..32).filter(|to| follows(from, *to)).map(name).collect(),
        ..Phase::default()
    });
    Lifecycle { name: "graph".into(), phases: phases.collect(), ..Lifecycle::default() }
}

#[test]
fn every_edge_is_walked_and_every_other_one_is_refused_by_every_call_that_takes_a_phase() {
    let lifecycle = graph();
    let calls = [update as fn(&str) -> Command, complete, abort, fail, start];
    let (mut edges, mut others) = (0, 0);
    for (number, call) in calls.into_iter().enumerate() {
        let is_update = number == 0;
        let mut desk = Desk::of(lifecycle.clone());
        let created = if number == 4 { deferred("run-1") } else { start("run-1") };
        let begun = desk.apply(created.with("graph"));
        for from in &lifecycle.phases {
            for to in &lifecycle.phases {
                desk.runs.insert("run-1".into(), put_into(&begun, &from.name));
                let asked = call("run-1").phase(&to.name);
                if from.next.contains(&to.name) || from.name == to.name && !is_update {
                    assert_eq!(phase(&desk.apply(asked)), to.name, "{} to {}", from.name, to.name);
                    edges += 1;
                } else if from.name == to.name {
                    assert!(
                        matches!(desk.ask(asked), Ok(Verdict::Done(Disposition::Unchanged, _))),
                        "the same phase again is no step"
                    );
                } else {
                    let refusal = desk.refused(asked);
                    let Refusal::InvalidPhase { from: at, to: asked, completes: false, allowed, .. } = &refusal else {
                        panic!("{refusal:?}")
                    };
                    assert_eq!((at.as_deref(), asked), (Some(&*from.name), &to.name));
                    assert_eq!(*allowed, from.next, "the refusal says what may follow");
                    others += 1;
                }
            }
        }
    }
    assert!(edges > 5 * 200 && others > 5 * 700, "{edges} edges, {others} others");
}

#[test]
fn a_run_begins_in_the_initial_phase_and_in_no_other() {
    for begin in [start as fn(&str) -> Command, deferred] {
        let mut desk = Desk::of(graph());
        assert_eq!(desk.refused(begin("run-1").with("graph").phase("p1")).reason(), "INVALID_PHASE");
        assert_eq!(phase(&desk.apply(begin("run-1").with("graph").phase("p0"))), "p0");
        assert_eq!(phase(&desk.apply(begin("run-2").with("graph@1"))), "p0");
        let created = desk.last().changes.refinements.as_ref().unwrap();
        assert_eq!(
            created.position.lifecycle.as_ref().unwrap().id.to_string(),
            "graph@1",
            "the event says what was concluded"
        );
        for missing in ["graph@2", "other"] {
            assert_eq!(desk.refused(begin("run-3").with(missing)).reason(), "LIFECYCLE_NOT_FOUND");
        }
    }
}

#[test]
fn a_pending_run_keeps_what_it_was_created_with() {
    let mut desk = Desk::of(graph());
    desk.apply(deferred("run-1").with("graph").max_iterations(3, LimitThen::Abort));
    for other in [
        start("run-1").with("graph@2"),
        start("run-1").with("other"),
        start("run-1").max_iterations(4, LimitThen::Abort),
        start("run-1").max_iterations(3, LimitThen::Refuse),
    ] {
        assert_eq!(desk.refused(other).reason(), "RUN_ID_CONFLICT");
    }
    // A newer version is the newest from now on, and this run stays where it is.
    let second = LifecycleId { name: "graph".into(), version: 2 };
    desk.lifecycles.push(Declared::new(second, Lifecycle { at_end: Some("p3".into()), ..graph() }));
    let run = desk.apply(start("run-1").with("graph").max_iterations(3, LimitThen::Abort));
    assert_eq!((run.status, stands(&run).lifecycle.unwrap().id.version), (Status::Running, 1));
    assert!(matches!(desk.ask(start("run-1").with("other").phase("p9")), Ok(Verdict::Done(Disposition::Unchanged, _))));
    assert_eq!(stands(&desk.apply(start("run-2").with("graph"))).lifecycle.unwrap().id.version, 2);
}

#[test]
fn without_a_lifecycle_any_phase_follows_any_other_and_iterations_only_grow() {
    let mut desk = Desk::default();
    let run = desk.apply(start("run-1").phase("one").max_iterations(5, LimitThen::Refuse));
    assert_eq!((phase(&run), stands(&run).word), ("one".to_owned(), None));
    let began = stands(&run).phase_started_at;
    let run = desk.apply(update("run-1").iteration(2));
    assert_eq!(stands(&run).phase_started_at, began, "the phase did not change");
    let run = desk.apply(update("run-1").phase("three.and_a-half").iteration(5));
    assert!(stands(&run).phase_started_at > began, "and now it did");
    assert!(matches!(
        desk.ask(update("run-1").phase("three.and_a-half").iteration(5)),
        Ok(Verdict::Done(Disposition::Unchanged, _))
    ));
    assert_eq!(desk.refused(update("run-1").iteration(4)).reason(), "INVALID_FIELD");
    let refusal = desk.refused(update("run-1").iteration(6).phase("four"));
    assert!(matches!(refusal, Refusal::IterationLimit { iteration: 6, max_iterations: 5, .. }), "{refusal:?}");
    assert_eq!(phase(&desk.apply(complete("run-1").phase("last"))), "last");
}

/// Walks once round the loop of an agent.
fn round(desk: &mut Desk, id: &str) {
    for phase in ["act", "observe", "evaluate"] {
        desk.apply(update(id).phase(phase));
    }
}

#[test]
fn iterations_are_counted_by_the_lifecycle_and_end_at_their_limit() {
    let by_the_limit = Some("ITERATION_LIMIT");
    for (then, kept, end, reason) in [
        ("REFUSE", Status::Running, update as fn(&str) -> Command, None),
        ("ABORT", Status::Aborted, update, by_the_limit),
        ("ABORT", Status::Aborted, abort, None),
        ("ABORT", Status::Failed, fail, None),
    ] {
        let mut desk = Desk::with(&agent_loop(then));
        let id = "run-1";
        let mut begin = start(id).with("craik.task_run");
        let runledger::domain::Ask::Start(asked) = &mut begin.ask else { unreachable!() };
        asked.position.max_iterations = Some(2);
        desk.apply(begin);
        for iteration in 1..=2 {
            round(&mut desk, id);
            let run = desk.apply(update(id).phase("continue"));
            assert_eq!(stands(&run).iteration, iteration, "equal to the limit is allowed");
            desk.apply(update(id).phase("plan"));
        }
        round(&mut desk, id);
        let named = desk.refused(update(id).iteration(3));
        let Refusal::InvalidFields(violations) = &named else { panic!("{named:?}") };
        assert_eq!(violations[0].field, "iteration", "the lifecycle counts, and nobody else");
        if kept == Status::Running {
            for end in [update as fn(&str) -> Command, complete, fail, abort] {
                assert_eq!(desk.refused(end(id).phase("continue")).reason(), "ITERATION_LIMIT");
            }
            assert_eq!(phase(&desk.apply(complete(id).phase("stop"))), "stop");
            continue;
        }
        let (at_limit, lifecycle) = (&desk.runs[id], &desk.lifecycles[0]);
        assert_eq!(next_phases(at_limit, &lifecycle.lifecycle), ["stop"]);
        let asked = Transition { to: None, phase: Some("continue".to_owned()) };
        let (nobody, found) = (Principal::anonymous(), LifecycleFound::There(lifecycle));
        let checked = check_run(&at_limit.key(), Some(at_limit), asked, found, nobody, Agents::All);
        assert_eq!(checked.outcome.unwrap_err().reason(), "ITERATION_LIMIT", "the run would end, and make no step");
        assert!(!checked.allowed);
        let once_more = desk.refused(complete(id).phase("continue"));
        assert_eq!(once_more.reason(), "INVALID_PHASE", "it would complete where it stands, and may not");
        let once_more = end(id).phase("continue").result(&json!({"last": true}));
        let run = desk.apply(once_more);
        assert_eq!((stands(&run).iteration, phase(&run)), (2, "stop".to_owned()), "`at_end` is of every end");
        assert!(refined(&run).attachments.result.is_some(), "what else the call said is kept");
        assert!(!run.supervision.presumed, "a rule, and not a conclusion from silence");
        assert_eq!((run.status, run.ending.reason_code.as_deref()), (kept, reason), "what the caller says comes first");
    }
}

#[test]
fn a_run_completes_where_it_may_and_with_what_that_requires() {
    let source = "name: review\nphases: {drafting: {initial: true, next: [approved]}, approved: {may_complete: true}}\n\
                  completion_requires: ['LINK:evidence', 'LINK:memory']\n";
    let mut desk = Desk::with(source);
    let id = "run-1";
    desk.apply(start(id).with("review"));
    let refusal = desk.refused(complete(id));
    let Refusal::InvalidPhase { completes: true, to, allowed, .. } = &refusal else { panic!("{refusal:?}") };
    assert_eq!((to.as_str(), allowed.as_slice()), ("drafting", ["approved".to_owned()].as_slice()));
    desk.apply(left(id, &json!({}), &[("evidence", "1"), ("url", "2")]));
    let refusal = desk.refused(complete(id).phase("approved"));
    let Refusal::CompletionIncomplete { missing, .. } = &refusal else { panic!("{refusal:?}") };
    assert_eq!(missing.iter().cloned().map(String::from).collect::<Vec<_>>(), ["LINK:memory"]);
    let runledger::domain::Ask::Update(brought) = left(id, &json!({}), &[("memory", "3")]).ask else { unreachable!() };
    let mut last = complete(id).phase("approved");
    let runledger::domain::Ask::Complete(asked) = &mut last.ask else { unreachable!() };
    asked.added = brought.added;
    let run = desk.apply(last);
    assert_eq!((run.status, phase(&run)), (Status::Completed, "approved".to_owned()), "the call brings them itself");
    // No end but the completion requires anything.
    for end in [abort as fn(&str) -> Command, fail] {
        let mut desk = Desk::with(source);
        desk.apply(start(id).with("review"));
        desk.apply(end(id));
    }
}

#[test]
fn every_end_has_the_phase_of_the_end_and_its_word() {
    let source = agent_loop("REFUSE");
    let ended = |commands: &[Command], wait_ms: i64| {
        let mut desk = Desk::with(&source);
        let mut run = None;
        for command in commands {
            run = Some(desk.apply(command.clone()));
            desk.now += wait_ms * 1_000;
        }
        run.unwrap()
    };
    let id = "run-1";
    let begin = || start(id).with("craik.task_run");
    let blocked = fail(id).changing(|fields| fields.reason_code = Some("BLOCKED".into()));
    let hour = 3_600_000;
    for (commands, status, said) in [
        (vec![begin(), complete(id).phase("stop")], Status::Completed, "completed"),
        (vec![begin(), fail(id)], Status::Failed, "failed"),
        (vec![begin(), blocked], Status::Failed, "blocked"),
        (vec![begin(), abort(id)], Status::Aborted, "interrupted"),
        (vec![deferred(id).with("craik.task_run"), abort(id)], Status::Aborted, "interrupted"),
        (vec![deferred(id).with("craik.task_run"), request_abort(id)], Status::Aborted, "interrupted"),
        (vec![begin().run_timeout_ms(1), sweep(id)], Status::Aborted, "interrupted"),
        (vec![deferred(id).with("craik.task_run").start_timeout_ms(1), sweep(id)], Status::Aborted, "interrupted"),
        (vec![begin(), request_abort(id).grace_ms(1), sweep(id)], Status::Aborted, "interrupted"),
        (vec![begin().lease_ttl_ms(TTL_MS), sweep(id)], Status::Failed, "failed"),
    ] {
        let run = ended(&commands, hour);
        assert_eq!((run.status, phase(&run).as_str(), word(&run).as_str()), (status, "stop", said), "{commands:?}");
    }
    let orphan = ended(&[begin().lease_ttl_ms(TTL_MS), sweep(id)], hour);
    assert_eq!(orphan.ending.reason_code.as_deref(), Some("ORPHANED"));
    // An end that names a phase has that one.
    let run = ended(&[begin(), fail(id).phase("act")], 0);
    assert_eq!(phase(&run), "act");
}

#[test]
fn a_word_is_that_of_the_first_rule_that_matches() {
    let rule = |rule: WordRule, word: &str| WordRule { word: Some(word.to_owned()), ..rule };
    let lifecycle = Lifecycle {
        words: vec![
            rule(WordRule { ready: Some(true), ..WordRule::default() }, "waiting"),
            rule(WordRule { phase: Some("p3".into()), ..WordRule::default() }, "third"),
            WordRule { status: Some(Status::Running), ..WordRule::default() },
            rule(WordRule { status: Some(Status::Pending), ..WordRule::default() }, "queued"),
        ],
        phases: ["p0", "p3", "p6"]
            .map(|name| Phase {
                name: name.into(),
                initial: name == "p0",
                next: vec!["p0".into(), "p3".into(), "p6".into()],
                ..Phase::default()
            })
            .into(),
        ..graph()
    };
    let mut desk = Desk::of(lifecycle);
    let id = "run-1";
    assert_eq!(word(&desk.apply(deferred(id).with("graph"))), "queued");
    assert_eq!(word(&desk.apply(claim(id))), "p0");
    let released =
        runledger::domain::Ask::Release(runledger::domain::Release { lease_epoch: Some(1.into()), not_begun: true });
    assert_eq!(word(&desk.apply(Command { ask: released, ..update(id) })), "waiting");
    assert_eq!(word(&desk.apply(claim(id))), "p0");
    assert_eq!(word(&desk.apply(update(id).epoch(3).phase("p3"))), "third");
    let events = desk.events.len();
    assert_eq!(word(&desk.apply(update(id).epoch(3).label("a", "b"))), "third");
    assert!(desk.events[events].changes.refinements.is_none(), "a word that stays is not said again");
    assert_eq!(word(&desk.apply(update(id).epoch(3).phase("p6"))), "p6");
    assert_eq!(word(&desk.apply(complete(id).epoch(3))), "completed");
    assert_eq!(desk.last().changes.refinements.as_ref().unwrap().position.word.as_deref(), Some(""));
}

#[test]
fn a_lifecycle_that_was_deleted_by_hand_keeps_no_run_from_ending() {
    let source = agent_loop("REFUSE").replace("words:", "words:\n  - {status: RUNNING, word_from: phase}");
    for end in [abort as fn(&str) -> Command, fail, |id| sweep(id)] {
        let mut desk = Desk::with(&source);
        let run = desk.apply(start("run-1").with("craik.task_run").run_timeout_ms(60_000));
        assert_eq!(word(&run), "plan");
        desk.lifecycles.clear();
        for command in [
            update("run-1").phase("act"),
            update("run-1").label("a", "b"),
            complete("run-1"),
            fail("run-1").phase("stop"),
        ] {
            assert_eq!(desk.refused(command).reason(), "LIFECYCLE_NOT_FOUND");
        }
        // Another one in its place is not what the run is pinned to.
        desk.lifecycles.push(declared("name: craik.task_run\nphases: {plan: {initial: true}}", 1));
        assert_eq!(desk.refused(update("run-1").label("a", "b")).reason(), "LIFECYCLE_NOT_FOUND");
        desk.now += 60_000_000;
        let run = desk.apply(end("run-1"));
        assert_eq!((run.status.is_terminal(), phase(&run).as_str()), (true, "plan"));
        assert_eq!(word(&run), run.status.name(), "nobody knows its word any more");
    }
    let mut desk = Desk::with(&source);
    desk.apply(start("run-1").with("craik.task_run"));
    desk.lifecycles.clear();
    let run = desk.apply(abort("run-1").result(&json!({"password": "x", "page": {"a": 1}})));
    let masked = r#"{"page":"[redacted]","password":"[redacted]"}"#;
    let digest = runledger::domain::ContentDigest::new(masked);
    assert_eq!(
        refined(&run).attachments.result.unwrap().content,
        digest,
        "nobody knows what to mask: so it is everything"
    );
}

#[test]
fn a_late_completion_is_judged_by_the_phase_before_the_end_where_the_end_moves_the_run() {
    let source = "name: gate\nphases:\n  draft: {initial: true, next: [review]}\n  review: {next: [approved]}\n  \
                  approved: {may_complete: true}\n  closed: {may_complete: true}\nat_end: closed\n";
    let reported = |phases: &[&str], is_of_before: bool| {
        let mut desk = Desk::with(source);
        desk.apply(start("run-1").with("gate").lease_ttl_ms(TTL_MS));
        for phase in phases {
            desk.apply(update("run-1").phase(phase).epoch(1));
        }
        desk.now += 3_600_000_000;
        desk.apply(sweep("run-1"));
        // An earlier release did not note it.
        let run = desk.runs.get_mut("run-1").unwrap();
        let ended_in = &mut run.refinements.as_mut().unwrap().position.ended_in;
        assert_eq!(ended_in.as_deref(), Some(*phases.last().unwrap_or(&"draft")));
        *ended_in = ended_in.take().filter(|_| !is_of_before);
        let ended = desk.events.last_mut().unwrap().changes.refinements.as_mut().unwrap();
        ended.position.ended_in = ended.position.ended_in.take().filter(|_| !is_of_before);
        assert!(matches!(desk.ask(complete("run-1").epoch(1)), Ok(Verdict::Done(Disposition::RecordedLate, _))));
        let folded = desk.events.iter().fold(None, |run, event| Some(evolve(run, event)));
        assert_eq!(folded.as_ref(), desk.runs.get("run-1"));
        let run = &desk.runs["run-1"];
        assert_eq!(phase(run), "closed");
        (run.outcome(), run.supervision.late_report.as_ref().unwrap().completion_missing())
    };
    let lacking = (Some(Status::Failed), vec!["PHASE".to_owned()]);
    let whole = (Some(Status::Completed), Vec::new());
    assert_eq!(reported(&[], false), lacking);
    assert_eq!(reported(&["review"], false), lacking);
    assert_eq!(reported(&["review", "approved"], false), whole);
    assert_eq!(reported(&["review", "approved"], true), lacking, "nobody knows it any more");
}

#[test]
fn a_late_report_changes_no_word_whatever_became_of_the_lifecycle() {
    let source = agent_loop("REFUSE").replace("words:", "words:\n  - {status: RUNNING, word_from: phase}");
    let mut desk = Desk::with(&source);
    desk.apply(start("run-1").with("craik.task_run").lease_ttl_ms(TTL_MS));
    let lifecycles = std::mem::take(&mut desk.lifecycles);
    desk.now += 3_600_000_000;
    let ended = desk.apply(sweep("run-1"));
    desk.lifecycles = lifecycles;
    let blocked = fail("run-1").epoch(1).changing(|fields| fields.reason_code = Some("BLOCKED".into()));
    assert!(matches!(desk.ask(blocked), Ok(Verdict::Done(Disposition::RecordedLate, _))));
    assert_eq!(word(&desk.runs["run-1"]), word(&ended));
    let folded = desk.events.iter().fold(None, |run, event| Some(evolve(run, event)));
    assert_eq!(folded.as_ref(), desk.runs.get("run-1"));
}

#[test]
fn a_late_completion_that_its_lifecycle_would_refuse_is_kept_and_is_no_outcome() {
    let source = "name: review\nphases:\n  drafting: {initial: true, next: [in_review]}\n  in_review: {next: [approved]}\n  \
                  approved: {may_complete: true}\ncompletion_requires: [\"LINK:artifact\"]\n";
    let (rel, target) = ("artifact".to_owned(), "file:///a".to_owned());
    let link = runledger::domain::Link { rel, target, sha256: None, media_type: None, summary: None };
    let reported = |phases: &[&str], named: Option<&str>, has_link: bool| {
        let mut desk = Desk::with(source);
        desk.apply(start("run-1").with("review").lease_ttl_ms(TTL_MS));
        for phase in phases {
            desk.apply(update("run-1").phase(phase).epoch(1));
        }
        desk.now += 3_600_000_000;
        desk.apply(sweep("run-1"));
        let mut late = complete("run-1").epoch(1);
        late = if let Some(phase) = named { late.phase(phase) } else { late };
        if let runledger::domain::Ask::Complete(complete) = &mut late.ask
            && has_link
        {
            complete.added.push(link.clone());
        }
        assert!(matches!(desk.ask(late), Ok(Verdict::Done(Disposition::RecordedLate, _))));
        let folded = desk.events.iter().fold(None, |run, event| Some(evolve(run, event)));
        assert_eq!(folded.as_ref(), desk.runs.get("run-1"));
        let run = &desk.runs["run-1"];
        (run.outcome(), run.supervision.late_report.as_ref().unwrap().completion_missing())
    };
    let walked = ["in_review", "approved"];
    for (phases, named, has_link, missing) in [
        (&walked[..], None, true, &[][..]),
        (&walked[..1], Some("approved"), true, &[]),
        (&walked, None, false, &["LINK:artifact"]),
        (&walked[..1], None, true, &["PHASE"]),
        (&[], Some("approved"), true, &["PHASE"]),
        (&[], None, false, &["PHASE", "LINK:artifact"]),
    ] {
        let outcome = if missing.is_empty() { Status::Completed } else { Status::Failed };
        let missing: Vec<String> = missing.iter().map(|missing| (*missing).to_owned()).collect();
        assert_eq!(reported(phases, named, has_link), (Some(outcome), missing), "{phases:?} {named:?} {has_link}");
    }
}

#[test]
fn a_start_sets_no_looser_limit_than_its_lifecycle() {
    let mut desk = Desk::with("name: a\nphases: {p: {initial: true}}\nmax_iterations: 3\nmax_iterations_then: ABORT\n");
    let run = desk.apply(start("run-1").with("a").max_iterations(2, LimitThen::Abort));
    assert_eq!(stands(&run).max_iterations, Some(2));
    let looser = desk.refused(start("run-2").with("a").max_iterations(4, LimitThen::Refuse));
    let Refusal::InvalidFields(violations) = looser else { panic!("{looser:?}") };
    let fields: Vec<&str> = violations.iter().map(|violation| violation.field.as_str()).collect();
    assert_eq!(fields, ["max_iterations", "max_iterations_then"]);
}

#[test]
fn what_is_not_enforced_yet_is_refused_at_the_start_by_name() {
    let mut desk = Desk::with(&shipped("openviber.task"));
    let refusal = desk.refused(start("run-1").with("openviber.task"));
    let Refusal::LifecycleUnsupported { lifecycle, fields } = &refusal else { panic!("{refusal:?}") };
    assert_eq!(lifecycle.to_string(), "openviber.task@1");
    let named = ["completion_requires: REPORT", "budgets", "report_every"];
    assert_eq!(fields.as_slice(), named);
}

/// Any lifecycle: a graph of a few phases, with or without every other rule.
fn lifecycles() -> impl Strategy<Value = Lifecycle> {
    let phase = prop_oneof![Just("plan"), Just("act"), Just("stop")].prop_map(str::to_owned);
    let phases = vec((vec(phase.clone(), 0..3), any::<bool>()), 3..4);
    let word =
        (proptest::option::of(phase.clone()), proptest::option::of(any::<bool>()), proptest::option::of("[a-z]{1,4}"));
    let words = vec(word, 0..4);
    let ends = (proptest::option::of(phase.clone()), proptest::option::of(0..3_u32), any::<bool>(), any::<bool>());
    (phases, words, ends).prop_map(|(phases, words, (at_end, max_iterations, aborts, masks))| Lifecycle {
        name: "any".into(),
        phases: ["plan", "act", "stop"]
            .into_iter()
            .zip(phases)
            .map(|(name, (next, may_complete))| Phase {
                name: name.into(),
                initial: name == "plan",
                next,
                may_complete,
                ..Phase::default()
            })
            .collect(),
        words: words
            .into_iter()
            .map(|(phase, ready, word)| WordRule { phase, ready, word, ..WordRule::default() })
            .collect(),
        at_end,
        iterates: Some(runledger::domain::lifecycle::Iterates { from: "act".into(), to: "plan".into() }),
        max_iterations,
        max_iterations_then: aborts.then_some(LimitThen::Abort),
        redact_keys: if masks { vec!["*".into()] } else { Vec::new() },
        ..Lifecycle::default()
    })
}

proptest! {
    #![proptest_config(Config { failure_persistence: None, ..Config::with_cases(300) })]

    /// Whatever a declaration says, the five statuses and their matrix hold, and what has ended stays as it ended.
    #[test]
    fn the_five_statuses_and_their_matrix_hold(
        lifecycle in lifecycles(),
        asked in vec((0..7_u8, prop_oneof![Just(None), Just(Some("plan")), Just(Some("act")), Just(Some("stop"))]), 1..40),
    ) {
        let mut desk = Desk::of(lifecycle);
        let id = "run-1";
        for (call, phase) in asked {
            let command = match call {
                0 => start(id).with("any"),
                1 => deferred(id).with("any"),
                2 | 3 => update(id).metadata(&json!({"n": desk.events.len()})),
                4 => complete(id),
                5 => fail(id),
                _ => abort(id),
            };
            let command = phase.map_or(command.clone(), |phase| command.phase(phase));
            let before = desk.runs.get(id).cloned();
            let _answer = desk.ask(command);
            if let Some(before) = before.filter(|run| run.status.is_terminal()) {
                prop_assert_eq!(&desk.runs[id], &before);
            }
        }
        let mut at = None;
        for event in &desk.events {
            prop_assert_eq!(event.from, at);
            let stays = event.from == Some(event.to) && event.to == Status::Running;
            prop_assert!(stays || Status::allows(event.from, event.to), "{:?}", event);
            at = Some(event.to);
        }
        let folded = desk.events.iter().fold(None, |run, event| Some(evolve(run, event)));
        prop_assert_eq!(folded.as_ref(), desk.runs.get(id), "the fold of the events, without any lifecycle");
    }
}

//! Attempts: which failure is an attempt's, what is open until the next one, and what it begins with.

use runledger::domain::{
    Agents, Ask, AttemptFailure, Attempts, Command, Disposition, End, Ending, EventType, Pattern, Refusal, Run, Start,
    Status, Verdict,
};

use super::desk::{Desk, phase, refined};
use crate::support::commands::{
    Asking as _, Operation, TTL_MS, abort, claim, command, complete, deferred, fail, leased, release, request_abort,
    resume, start, suspend, sweep, update,
};
use crate::support::lifecycles::Standing as _;

const SECOND: i64 = 1_000_000;

/// A lifecycle whose runs may be attempted three times, for a minute each.
const RETRIED: &str = r"
name: retried
phases:
  planning: {initial: true, next: [acting]}
  acting: {next: [planning], may_complete: true}
max_attempts: 3
attempt_timeout: 1m
";

fn attempts(mut command: Command, max: u32) -> Command {
    let Ask::Start(start) = &mut command.ask else { panic!("no start") };
    start.max_attempts = Some(max);
    command
}

fn timed(mut command: Command, timeout_ms: u64) -> Command {
    let Ask::Start(Start { attempt_timeout_ms, .. }) = &mut command.ask else { panic!("no start") };
    *attempt_timeout_ms = Some(timeout_ms);
    command
}

fn for_good(mut command: Command) -> Command {
    let Ask::Fail(End { is_final, .. }) = &mut command.ask else { panic!("no failure") };
    *is_final = true;
    command
}

fn held(command: Command, epoch: u64) -> Command {
    command.on(|terms| terms.lease_epoch = Some(epoch.into()))
}

fn epoch(run: &Run) -> u64 {
    run.supervision.epoch().get()
}

fn tried(run: &Run) -> Attempts {
    *refined(run).attempts.unwrap_or_else(|| panic!("{run:?}"))
}

fn last(run: &Run) -> AttemptFailure {
    *tried(run).last_failure.unwrap_or_else(|| panic!("{run:?}"))
}

fn is_unchanged(told: &Result<Verdict, Refusal>) -> bool {
    matches!(told, Ok(Verdict::Done(Disposition::Unchanged, _)))
}

/// Lets the run's lease end.
fn orphaned(desk: &mut Desk, run_id: &str) -> Run {
    desk.now += i64::try_from(TTL_MS).unwrap() * 1_000 + SECOND;
    desk.apply(sweep(run_id))
}

#[test]
fn each_attempt_has_an_epoch_of_its_own_and_the_last_failure_is_the_runs() {
    let mut desk = Desk::default();
    desk.apply(attempts(deferred("run-1"), 5));
    for attempt in 1..5 {
        let claimed = desk.apply(claim("run-1"));
        assert_eq!((epoch(&claimed), tried(&claimed).number()), (attempt, u32::try_from(attempt).unwrap()));
        let failed = if attempt % 2 == 0 {
            desk.apply(held(fail("run-1").reason("the tab crashed"), attempt))
        } else {
            orphaned(&mut desk, "run-1")
        };
        assert_eq!((failed.status, desk.last().event_type), (Status::Running, EventType::AttemptFailed));
        assert!(failed.is_ready() && failed.awaits_claim() && !failed.is_held() && !failed.counts());
        assert_eq!((&failed.ending, failed.supervision.presumed), (&Ending::default(), false), "the run goes on");
        let failure = last(&failed);
        assert_eq!((u64::from(failure.attempt), failure.lease_epoch.get()), (attempt, attempt));
        let by_the_authority = attempt % 2 == 1;
        assert_eq!(failure.presumed, by_the_authority);
        assert_eq!(failure.reason_code.as_deref(), by_the_authority.then_some("ORPHANED"));
    }
    desk.apply(claim("run-1"));
    let ended = orphaned(&mut desk, "run-1");
    assert_eq!((ended.status, ended.ending.reason_code.as_deref()), (Status::Failed, Some("ORPHANED")));
    assert!(ended.supervision.presumed, "the fifth end is the run's");
    assert_eq!(last(&ended).attempt, 4);
    let failures = desk.events.iter().filter(|event| event.event_type == EventType::AttemptFailed).count();
    assert_eq!(failures, 4, "history has each");
}

#[test]
fn a_failure_that_is_final_or_of_the_only_attempt_ends_the_run() {
    for (command, ends) in [
        (attempts(leased("run-1"), 2), for_good(held(fail("run-1"), 1))),
        (attempts(leased("run-1"), 1), held(fail("run-1"), 1)),
        (leased("run-1"), held(fail("run-1"), 1)),
    ] {
        let mut desk = Desk::default();
        let run = desk.apply(command);
        let is_attempted_once = run.refinements.is_none();
        let ended = desk.apply(ends);
        assert_eq!((ended.status, desk.last().event_type), (Status::Failed, EventType::Failed));
        assert!(!is_attempted_once || ended.refinements.is_none(), "a plain run has nothing of attempts");
    }
    for (ends, status) in [(abort("run-1"), Status::Aborted), (complete("run-1"), Status::Completed)] {
        let mut desk = Desk::default();
        desk.apply(attempts(leased("run-1"), 9));
        assert_eq!(desk.apply(held(ends, 1)).status, status, "whatever is left");
    }
}

#[test]
fn the_same_failure_again_is_one_attempt() {
    for is_leased in [true, false] {
        let mut desk = Desk::default();
        desk.apply(attempts(if is_leased { leased("run-1") } else { start("run-1") }, 3));
        let failure = || if is_leased { held(fail("run-1"), 1) } else { fail("run-1") };
        desk.apply(failure());
        assert!(is_unchanged(&desk.ask(failure())), "the epoch tells");
        let claimed = desk.apply(claim("run-1"));
        assert_eq!(tried(&claimed).number(), 2);
        assert_eq!(desk.refused(failure()).reason(), "LEASE_LOST", "another has the run by now");
    }
    let mut desk = Desk::default();
    desk.apply(attempts(leased("run-1"), 3));
    let failure = || held(fail("run-1").request("once"), 1);
    desk.apply(failure());
    desk.apply(claim("run-1"));
    assert!(matches!(desk.ask(failure()), Ok(Verdict::Replayed { .. })), "its request id tells");
}

#[test]
fn what_is_true_stays_open_until_the_next_attempt_is_granted() {
    // Presumed failed: the holder knows better.
    let mut desk = Desk::default();
    desk.apply(attempts(leased("run-1"), 2));
    orphaned(&mut desk, "run-1");
    for said in [update("run-1").reason("x"), release("run-1"), suspend("run-1", "HELP", "which one?")] {
        assert_eq!(desk.refused(held(said, 1)).reason(), "LEASE_LOST", "it may not go on");
    }
    let done = desk.apply(held(complete("run-1"), 1));
    assert_eq!((done.status, done.is_ready()), (Status::Completed, false));
    // How it really failed is kept, once, and is no other attempt.
    let mut desk = Desk::default();
    desk.apply(attempts(leased("run-1"), 3));
    let ready = orphaned(&mut desk, "run-1").supervision.ready;
    let said = desk.apply(held(fail("run-1").reason("the tab crashed"), 1));
    assert_eq!((said.supervision.ready.clone(), tried(&said).number()), (ready, 2));
    assert_eq!((last(&said).presumed, last(&said).failure_reason.as_deref()), (false, Some("the tab crashed")));
    assert!(is_unchanged(&desk.ask(held(fail("run-1"), 1))));
    // After the grant it is lost.
    let mut desk = Desk::default();
    desk.apply(attempts(leased("run-1"), 2));
    orphaned(&mut desk, "run-1");
    desk.apply(claim("run-1"));
    assert_eq!(desk.refused(held(complete("run-1"), 1)).reason(), "LEASE_LOST");
    // Who has said that it failed does not say that it is done.
    let mut desk = Desk::default();
    desk.apply(attempts(leased("run-1"), 2));
    desk.apply(held(fail("run-1"), 1));
    assert_eq!(desk.refused(held(complete("run-1"), 1)).reason(), "LEASE_LOST");
    assert_eq!(desk.apply(for_good(held(fail("run-1"), 1))).status, Status::Failed, "but that it failed for good");
}

#[test]
fn a_request_to_abort_beside_a_failing_attempt_ends_the_run() {
    let mut desk = Desk::default();
    desk.apply(attempts(leased("run-1"), 3));
    desk.apply(request_abort("run-1"));
    assert_eq!(desk.apply(held(fail("run-1"), 1)).status, Status::Failed);
    let mut desk = Desk::default();
    desk.apply(attempts(leased("run-1"), 3));
    desk.apply(held(fail("run-1"), 1));
    let ended = desk.apply(request_abort("run-1"));
    assert_eq!((ended.status, ended.ending.reason_code.as_deref()), (Status::Aborted, Some("ABORT_REQUESTED")));
}

#[test]
fn the_next_attempt_is_whose_the_run_was_before_it_was_claimed() {
    let owner = |run: &Run| run.agent_id.clone();
    let confined = |command: Command, agent: &str| {
        let patterns = [Pattern::Exact(agent.to_owned())];
        Command { agents: Agents::Of(patterns.into()), ..command.by(agent) }
    };
    let mut desk = Desk::default();
    desk.apply(attempts(command("run-1", Operation::Start { deferred: true }), 4));
    assert_eq!(owner(&desk.apply(confined(claim("run-1"), "agent-a"))).as_deref(), Some("agent-a"));
    let failed = desk.apply(confined(held(fail("run-1"), 1), "agent-a"));
    assert_eq!((owner(&failed).as_deref(), failed.owner_to_claim()), (Some("agent-a"), None), "until the next claim");
    assert!(is_unchanged(&desk.ask(confined(held(fail("run-1"), 1), "agent-a"))), "its holder may say so once more");
    let next = desk.apply(confined(claim("run-1"), "agent-b"));
    assert_eq!(owner(&next).as_deref(), Some("agent-b"));
    // A claim that nobody began leaves the attempt as it was.
    let back = desk.apply(confined(held(release("run-1").on(|terms| terms.not_begun = true), 2), "agent-b"));
    assert_eq!((owner(&back), tried(&back).number(), back.supervision.ready.unwrap().deadline), (None, 2, None));
    let again = desk.apply(confined(claim("run-1"), "agent-c"));
    assert_eq!((owner(&again).as_deref(), tried(&again).number()), (Some("agent-c"), 2));
    // Presumed: who held it knows better, and is not the owner of the run any more for claims alone.
    orphaned(&mut desk, "run-1");
    let anonymous = desk.runs["run-1"].clone();
    let done = desk.apply(confined(held(complete("run-1"), 4), "agent-c"));
    assert_eq!((done.status, owner(&anonymous).as_deref()), (Status::Completed, Some("agent-c")));
    // Who claims it without an agent leaves it to nobody.
    desk.apply(attempts(command("run-2", Operation::Start { deferred: true }), 3));
    desk.apply(claim("run-2").by("agent-a"));
    desk.apply(held(fail("run-2").by("agent-a"), 1));
    assert_eq!(owner(&desk.apply(claim("run-2"))), None);
    // A run that has an owner by its start is that one's.
    desk.apply(attempts(leased("run-3").by("agent-a"), 3));
    desk.apply(held(fail("run-3").by("agent-a"), 1));
    assert_eq!(desk.refused(claim("run-3").by("agent-b")).reason(), "NOT_OWNER");
    assert_eq!(owner(&desk.apply(claim("run-3").by("agent-a"))).as_deref(), Some("agent-a"));
}

#[test]
fn an_attempt_has_a_time_of_its_own_that_stands_still_at_rest() {
    let mut desk = Desk::default();
    let minute = 60 * SECOND;
    let run = desk.apply(timed(attempts(leased("run-1"), 2), 60_000).on(|terms| terms.lease_ttl_ms = Some(3_600_000)));
    assert_eq!(run.attempt_deadline().unwrap().micros(), desk.now + minute);
    desk.apply(held(suspend("run-1", "HELP", "which one?"), 1));
    let since = desk.now;
    desk.now += 100 * minute;
    desk.apply(resume("run-1"));
    let run = desk.apply(claim("run-1").on(|terms| terms.lease_ttl_ms = Some(3_600_000)));
    let (deadline, rested) = (run.attempt_deadline().unwrap().micros(), desk.now - since);
    assert_eq!((deadline - rested, tried(&run).number()), (since - 1_000 + minute, 1), "the same attempt goes on");
    desk.now = deadline;
    let failed = desk.apply(sweep("run-1"));
    assert_eq!(last(&failed).reason_code.as_deref(), Some("ATTEMPT_TIMEOUT"));
    assert_eq!((failed.attempt_deadline(), failed.due_at()), (None, None), "nobody executes it");
    desk.now += 100 * minute;
    let run = desk.apply(claim("run-1").on(|terms| terms.lease_ttl_ms = Some(3_600_000)));
    assert_eq!(run.attempt_deadline().unwrap().micros(), desk.now + minute, "the next one has a whole time");
    desk.now = run.attempt_deadline().unwrap().micros();
    let ended = desk.apply(sweep("run-1"));
    assert_eq!((ended.status, ended.ending.reason_code.as_deref()), (Status::Failed, Some("ATTEMPT_TIMEOUT")));
    assert!(matches!(
        desk.ask(held(complete("run-1"), epoch(&ended))),
        Ok(Verdict::Done(Disposition::RecordedLate, _))
    ));
}

#[test]
fn a_lifecycle_says_how_often_and_where_the_next_attempt_begins() {
    for (source, begins_in) in [(RETRIED.to_owned(), "planning"), (format!("{RETRIED}on_retry: STAY\n"), "acting")] {
        let mut desk = Desk::with(&source);
        let run = desk.apply(leased("run-1").with("retried"));
        assert_eq!((tried(&run).max, tried(&run).timeout_ms), (3, Some(60_000)));
        desk.apply(held(update("run-1").phase("acting"), 1));
        let failed = desk.apply(held(fail("run-1"), 1));
        assert_eq!(phase(&failed), "acting", "a late completion is judged by where it was");
        assert_eq!(phase(&desk.apply(claim("run-1"))), begins_in);
        orphaned(&mut desk, "run-1");
        desk.now += 1;
        if begins_in == "acting" {
            assert_eq!(desk.apply(held(complete("run-1"), 2)).status, Status::Completed);
        }
    }
    let mut desk = Desk::with(RETRIED);
    let Refusal::InvalidFields(violations) = desk.refused(attempts(leased("run-1").with("retried"), 4)) else {
        panic!("more than the lifecycle allows")
    };
    assert_eq!(violations[0].field, "max_attempts");
    let longer = timed(attempts(leased("run-1").with("retried"), 4), 60_001);
    let Refusal::InvalidFields(violations) = desk.refused(longer) else { panic!("longer than the lifecycle allows") };
    let fields: Vec<&str> = violations.iter().map(|violation| violation.field.as_str()).collect();
    assert_eq!(fields, ["max_attempts", "attempt_timeout"], "each is named");
    assert_eq!(tried(&desk.apply(attempts(leased("run-1").with("retried"), 2))).max, 2, "but fewer");
    // On a pending run absent or equal.
    let mut desk = Desk::default();
    desk.apply(attempts(deferred("run-1"), 2));
    assert_eq!(desk.refused(attempts(start("run-1"), 3)).reason(), "RUN_ID_CONFLICT");
    assert_eq!(tried(&desk.apply(start("run-1"))).max, 2);
    let mut desk = Desk::default();
    desk.apply(deferred("run-1"));
    assert_eq!(desk.refused(attempts(start("run-1"), 3)).reason(), "RUN_ID_CONFLICT", "it was to be attempted once");
}

#[test]
fn a_suspension_outlives_its_attempt_and_the_next_one_begins_after_it() {
    for (is_leased, is_paused_first) in [(true, true), (true, false), (false, true), (false, false)] {
        let mut desk = Desk::default();
        let started = if is_leased { leased("run-1") } else { start("run-1") };
        desk.apply(timed(attempts(started, 3), 60_000));
        let by = |command: Command| if is_leased { held(command, 1) } else { command };
        let calls = if is_paused_first {
            [suspend("run-1", "PAUSED", "not now"), by(fail("run-1"))]
        } else {
            [by(fail("run-1")), suspend("run-1", "PAUSED", "not now")]
        };
        for call in calls {
            desk.apply(call);
        }
        let paused = desk.runs["run-1"].clone();
        assert_eq!(paused.suspension().map(|it| it.kind.as_str()), Some("PAUSED"), "nobody ended the pause");
        assert!(paused.is_between_attempts() && !paused.is_ready(), "{paused:?}");
        assert!(is_unchanged(&desk.ask(by(fail("run-1")))), "it is one attempt");
        assert_eq!(desk.refused(by(complete("run-1"))).reason(), "LEASE_LOST", "who said that it failed");
        assert_eq!(
            desk.refused(by(update("run-1").changing(|fields| fields.fallback_used = true))).reason(),
            "LEASE_LOST"
        );
        desk.now += 600 * SECOND;
        let ready = desk.apply(resume("run-1"));
        assert!(ready.is_ready() && ready.is_between_attempts(), "it waits for a claim, lease or not: {ready:?}");
        desk.now += 600 * SECOND;
        let next = desk.apply(claim("run-1"));
        assert_eq!((tried(&next).number(), next.is_between_attempts()), (2, false));
        assert_eq!(next.attempt_deadline().unwrap().micros(), desk.now + 60 * SECOND, "with a whole time");
        assert_eq!(desk.refused(by(fail("run-1"))).reason(), "LEASE_LOST");
    }
    // A suspension in an attempt that goes on is of the same attempt.
    let mut desk = Desk::default();
    desk.apply(attempts(leased("run-1"), 2));
    desk.apply(held(suspend("run-1", "HELP", "which one?"), 1));
    desk.apply(resume("run-1"));
    assert_eq!(tried(&desk.apply(claim("run-1"))).number(), 1);
}

#[test]
fn no_failure_gets_a_run_past_its_limit_or_past_a_phase_that_suspends() {
    let source = "name: gated\nphases:\n  acting: {initial: true, next: [review]}\n  \
                  review: {next: [acting], suspends: FEEDBACK, may_complete: true}\nmax_attempts: 5\non_retry: STAY\n\
                  iterates: {from: review, to: acting}\nmax_iterations: 1\nmax_iterations_then: SUSPEND\n";
    let mut desk = Desk::with(source);
    desk.apply(leased("run-1").with("gated"));
    let Refusal::InvalidFields(violations) = desk.refused(held(fail("run-1").phase("review"), 1)) else {
        panic!("a way in")
    };
    assert_eq!(violations[0].field, "phase");
    desk.apply(held(update("run-1").phase("review"), 1));
    let failed = desk.apply(held(fail("run-1"), 1));
    assert_eq!((phase(&failed).as_str(), failed.suspension().is_some()), ("review", true), "it waits for its review");
    assert_eq!(desk.refused(claim("run-1")).reason(), "RUN_SUSPENDED");
    desk.apply(resume("run-1").phase("acting"));
    assert_eq!(phase(&desk.apply(claim("run-1"))), "acting");
}

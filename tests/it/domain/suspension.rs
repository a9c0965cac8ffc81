//! Runs that wait without a process: what a suspended run takes, who lets it go on, and how its time stands still.

use proptest::collection::vec;
use proptest::option::of;
use proptest::prelude::*;
use runledger::domain::check::{Transition, check_run};
use runledger::domain::evolve::evolve;
use runledger::domain::{
    AbortRequest, Agents, Ask, Command, Disposition, EventType, Identity, Lease, LeaseEpoch, LifecycleFound, LimitThen,
    Link, Pattern, Principal, Priority, Ready, Refinements, Refusal, Run, Status, Suspension, Suspensions, Time,
    Verdict,
};

use super::desk::{Desk, phase, refined, stands};
use super::run_in;
use crate::support::commands::{
    Asking as _, Operation, TTL_MS, abort, claim, command, complete, fail, leased, release, request_abort, resume,
    start, suspend, sweep, update,
};
use crate::support::lifecycles::{Standing as _, shipped};

const SECOND: i64 = 1_000_000;

/// A lifecycle in which a run asks for feedback, and is paused.
const TASK: &str = r"
name: task
phases:
  planning: {initial: true, next: [acting]}
  acting: {next: [awaiting, planning]}
  awaiting: {next: [planning, paused], may_complete: true, suspends: FEEDBACK, timeout: 7d}
  paused: {next: [planning, awaiting], suspends: PAUSED}
  blocked: {next: [awaiting], suspends: BLOCKED}
on_suspend: {PAUSED: paused, BLOCKED: blocked, BUDGET: paused}
iterates: {from: acting, to: planning}
max_iterations: 1
max_iterations_then: SUSPEND
ready_timeout: 1d
words:
  - {suspended: PAUSED, word: on hold}
  - {ready: true, word: queued}
  - {status: RUNNING, word_from: phase}
";

fn held(command: Command, epoch: u64) -> Command {
    command.on(|terms| terms.lease_epoch = Some(epoch.into()))
}

/// Takes the lease that a resumption asks for.
fn under_a_lease(command: Command) -> Command {
    command.on(|terms| terms.lease_ttl_ms = Some(TTL_MS))
}

fn timeouts(mut command: Command, timeout_ms: Option<u64>, ready_timeout_ms: Option<u64>) -> Command {
    let Ask::Suspend(suspend) = &mut command.ask else { panic!("no suspension") };
    (suspend.terms.timeout_ms, suspend.ready_timeout_ms) = (timeout_ms, ready_timeout_ms);
    command
}

fn raising(mut command: Command, max: u32) -> Command {
    let Ask::Resume(resume) = &mut command.ask else { panic!("no resumption") };
    resume.position.max_iterations = Some(max);
    command
}

fn without_reason(mut command: Command) -> Command {
    let Ask::Resume(resume) = &mut command.ask else { panic!("no resumption") };
    resume.reason = None;
    command
}

fn with_priority(mut command: Command, priority: i32) -> Command {
    let Ask::Update(update) = &mut command.ask else { panic!("no update") };
    update.priority = Priority::of(priority);
    command
}

fn not_begun(run_id: &str) -> Command {
    release(run_id).on(|terms| terms.not_begun = true)
}

fn bringing(mut command: Command) -> Command {
    let Ask::Update(update) = &mut command.ask else { panic!("no update") };
    let (rel, target) = ("evidence".to_owned(), "1".to_owned());
    update.added.push(Link { rel, target, sha256: None, media_type: None, summary: None });
    command
}

fn suspension(run: &Run) -> Suspension {
    run.suspension().cloned().unwrap_or_else(|| panic!("{run:?}"))
}

fn epoch(run: &Run) -> u64 {
    run.supervision.epoch().get()
}

fn reason(refusal: &Refusal) -> &'static str {
    refusal.reason()
}

#[test]
fn a_suspension_keeps_the_epoch_and_its_holder_may_say_what_is_true() {
    for (end, status) in
        [(complete("run-1"), Status::Completed), (fail("run-1"), Status::Failed), (abort("run-1"), Status::Aborted)]
    {
        let mut desk = Desk::default();
        desk.apply(leased("run-1"));
        let run = desk.apply(held(suspend("run-1", "HELP", "which account?"), 1));
        assert_eq!((run.status, desk.last().event_type), (Status::Running, EventType::Suspended));
        let lease = run.supervision.lease.unwrap();
        assert_eq!((lease.epoch.get(), lease.resting, lease.released), (1, true, false));
        assert_eq!((suspension(&run).kind, suspension(&run).lease_epoch), ("HELP".to_owned(), Some(1.into())));
        assert!(!run.is_ready() && run.is_at_rest() && !run.is_held() && run.due_at().is_none());
        for goes_on in [update("run-1").changing(|fields| fields.fallback_used = true), release("run-1")] {
            assert_eq!(reason(&desk.refused(held(goes_on, 1))), "RUN_SUSPENDED");
        }
        assert_eq!(reason(&desk.refused(claim("run-1"))), "RUN_SUSPENDED");
        let ended = desk.apply(held(end, 1));
        assert_eq!((ended.status, ended.suspension()), (status, None), "history keeps it");
    }
}

#[test]
fn after_the_next_grant_all_that_the_last_holder_says_is_lost() {
    let mut desk = Desk::default();
    desk.apply(leased("run-1"));
    desk.apply(held(suspend("run-1", "HELP", "which account?"), 1));
    let resumed = desk.apply(under_a_lease(resume("run-1")));
    assert_eq!((epoch(&resumed), desk.last().event_type), (2, EventType::Resumed));
    assert!(resumed.suspension().is_none() && !resumed.supervision.lease.unwrap().resting && resumed.is_held());
    let from = refined(&resumed).rest.resumed_from.unwrap();
    assert_eq!((from.kind.as_str(), from.resumption.unwrap().reason.as_deref()), ("HELP", Some("that one")));
    for said in [complete("run-1"), fail("run-1"), update("run-1"), suspend("run-1", "PAUSED", "x"), abort("run-1")] {
        assert_eq!(reason(&desk.refused(held(said, 1))), "LEASE_LOST");
    }
    assert_eq!(desk.apply(held(complete("run-1"), 2)).status, Status::Completed);
}

#[test]
fn a_run_that_ever_had_a_lease_goes_on_only_under_one() {
    let mut desk = Desk::default();
    desk.apply(leased("run-1"));
    desk.apply(suspend("run-1", "HELP", "which account?"));
    let ready = desk.apply(resume("run-1"));
    assert_eq!((ready.status, desk.last().event_type), (Status::Running, EventType::Ready));
    assert!(ready.is_ready() && ready.suspension().is_some() && ready.supervision.lease.unwrap().resting);
    assert!(!ready.supervision.ready.as_ref().unwrap().not_begun);
    assert!(matches!(desk.ask(resume("run-1")), Ok(Verdict::Done(Disposition::Unchanged, _))), "it is ready already");
    assert_eq!(reason(&desk.refused(under_a_lease(resume("run-1")))), "LEASE_HELD");
    let claimed = desk.apply(claim("run-1"));
    assert_eq!((epoch(&claimed), desk.last().event_type), (2, EventType::Resumed));
    assert!(claimed.suspension().is_none() && !claimed.is_ready());
    // Who never had one goes on as it is.
    desk.apply(start("run-2"));
    desk.apply(suspend("run-2", "PAUSED", "not now"));
    let resumed = desk.apply(resume("run-2"));
    assert_eq!((desk.last().event_type, resumed.supervision.lease), (EventType::Resumed, None));
    assert!(matches!(desk.ask(resume("run-2")), Ok(Verdict::Done(Disposition::Unchanged, _))), "it is not suspended");
    assert_eq!(reason(&desk.refused(under_a_lease(resume("run-2")))), "LEASE_HELD");
}

#[test]
fn a_suspension_is_replaced_but_not_by_the_holder_where_somebody_else_made_it() {
    let mut desk = Desk::default();
    desk.apply(leased("run-1"));
    desk.apply(suspend("run-1", "PAUSED", "not during the release"));
    assert!(matches!(
        desk.ask(suspend("run-1", "PAUSED", "not during the release")),
        Ok(Verdict::Done(Disposition::Unchanged, _))
    ));
    assert_eq!(reason(&desk.refused(held(suspend("run-1", "HELP", "which account?"), 1))), "RUN_SUSPENDED");
    desk.apply(resume("run-1"));
    let again = desk.apply(suspend("run-1", "PAUSED", "not today either"));
    assert!(!again.is_ready() && suspension(&again).resumption.is_none(), "it is not ready any more");
    assert_eq!(desk.last().event_type, EventType::Suspended);
    let mut desk = Desk::default();
    desk.apply(leased("run-1"));
    desk.apply(held(suspend("run-1", "HELP", "which account?"), 1));
    let replaced = desk.apply(held(suspend("run-1", "BLOCKED", "the site is down"), 1));
    assert_eq!(suspension(&replaced).kind, "BLOCKED", "its own");
    assert_eq!(suspension(&desk.apply(suspend("run-1", "PAUSED", "not now"))).kind, "PAUSED");
}

#[test]
fn a_request_to_abort_and_a_suspension_lead_to_the_same_end_in_either_order() {
    for suspends_first in [true, false] {
        let mut desk = Desk::default();
        desk.apply(leased("run-1"));
        let calls = [held(suspend("run-1", "HELP", "which account?"), 1), request_abort("run-1")];
        let calls = if suspends_first {
            calls
        } else {
            let [one, other] = calls;
            [other, one]
        };
        let mut run = None;
        for call in calls {
            run = Some(desk.apply(call));
        }
        let run = run.unwrap();
        assert_eq!((run.status, run.ending.reason_code.as_deref()), (Status::Aborted, Some("ABORT_REQUESTED")));
        assert!(run.suspension().is_none() && run.supervision.abort_request.is_some() && !run.supervision.presumed);
    }
    let mut desk = Desk::with(TASK);
    desk.apply(leased("run-1").with("task"));
    desk.apply(held(update("run-1").phase("acting"), 1));
    desk.apply(request_abort("run-1"));
    let run = desk.apply(held(update("run-1").phase("awaiting"), 1));
    assert_eq!((run.status, run.ending.reason_code.as_deref()), (Status::Aborted, Some("ABORT_REQUESTED")));
}

#[test]
fn a_reason_is_asked_for_where_somebody_needed_help() {
    for (kind, needs_one) in
        [("HELP", true), ("BLOCKED", true), ("INTERRUPTED", true), ("PAUSED", false), ("OWN", false)]
    {
        let mut desk = Desk::default();
        desk.apply(leased("run-1"));
        desk.apply(suspend("run-1", kind, "because"));
        let answer = desk.ask(without_reason(resume("run-1")));
        assert_eq!(matches!(answer, Err(Refusal::InvalidFields(_))), needs_one, "{kind}: {answer:?}");
    }
}

#[test]
fn a_confined_caller_suspends_what_it_holds_and_nothing_else() {
    let mut desk = Desk::default();
    desk.apply(leased("run-1").by("agent-a"));
    let confined = |command: Command, agent: &str| {
        let patterns = [Pattern::Exact(agent.to_owned())];
        Command { agents: Agents::Of(patterns.into()), principal: Principal::claimed(agent.to_owned()), ..command }
    };
    let call = || suspend("run-1", "HELP", "which account?");
    assert_eq!(reason(&desk.refused(confined(call(), "agent-a"))), "LEASE_LOST", "it names no lease");
    assert_eq!(reason(&desk.refused(confined(held(call(), 1), "agent-b"))), "NOT_OWNER");
    let reporter = |command: Command, agent: &str| Command { agents: Agents::AllAsReporter, ..command.by(agent) };
    for agent in ["agent-a", "agent-b"] {
        let told = desk.refused(reporter(call(), agent));
        assert_eq!(reason(&told), "LEASE_LOST", "a reporter of all agents is no operator: {agent}");
    }
    assert_eq!(desk.apply(confined(held(call(), 1), "agent-a")).suspension().unwrap().lease_epoch, Some(1.into()));
    // It neither replaces what it did not say, nor lets the run wait on when somebody let it go on.
    desk.apply(resume("run-1"));
    assert_eq!(reason(&desk.refused(reporter(call(), "agent-b"))), "LEASE_LOST");
    desk.apply(command("run-2", Operation::Start { deferred: false }).by("agent-a"));
    let told = desk.apply(reporter(suspend("run-2", "HELP", "which account?"), "agent-b"));
    assert!(told.suspension().is_some(), "a run without a lease is held by nobody");
}

#[test]
fn a_run_that_goes_on_is_taken_over_by_any_worker_and_one_that_was_never_begun_is_not() {
    let confined = |command: Command, agent: &str| {
        let patterns = [Pattern::Exact(agent.to_owned())];
        Command { agents: Agents::Of(patterns.into()), principal: Principal::claimed(agent.to_owned()), ..command }
    };
    let mut desk = Desk::default();
    desk.apply(leased("run-1").by("agent-a"));
    desk.apply(held(suspend("run-1", "HELP", "which account?"), 1).by("agent-a"));
    desk.apply(resume("run-1"));
    assert_eq!(reason(&desk.refused(confined(claim("run-1"), "agent-b"))), "NOT_OWNER");
    let taken = desk.apply(claim("run-1").by("agent-b"));
    assert_eq!((taken.agent_id.as_deref(), epoch(&taken)), (Some("agent-b"), 2));
    // Its claim is not begun: it is for everybody once more.
    let given_back = desk.apply(held(not_begun("run-1"), 2).by("agent-b"));
    assert_eq!((given_back.agent_id.as_deref(), given_back.is_ready()), (Some("agent-a"), true));
    assert_eq!(desk.apply(claim("run-1").by("agent-c")).agent_id.as_deref(), Some("agent-c"));
    // Whoever may write the runs of its owner takes it, whichever agent of theirs it is.
    desk.apply(held(suspend("run-1", "HELP", "and which one?"), 4).by("agent-c"));
    desk.apply(resume("run-1"));
    let both = [Pattern::Exact("agent-c".to_owned()), Pattern::Exact("agent-d".to_owned())];
    let taken = desk.apply(Command { agents: Agents::Of(both.into()), ..claim("run-1").by("agent-d") });
    assert_eq!(taken.agent_id.as_deref(), Some("agent-d"));

    let mut desk = Desk::default();
    desk.apply(command("run-1", Operation::Start { deferred: true }).by("agent-a"));
    desk.apply(claim("run-1").by("agent-a"));
    desk.apply(held(not_begun("run-1"), 1).by("agent-a"));
    assert_eq!(reason(&desk.refused(claim("run-1").by("agent-b"))), "NOT_OWNER");
}

#[test]
fn a_resumption_that_nobody_began_is_given_back_as_it_was() {
    let mut desk = Desk::with(TASK);
    desk.apply(leased("run-1").with("task"));
    for step in ["acting", "awaiting"] {
        desk.apply(held(update("run-1").phase(step), 1));
    }
    let ready = desk.apply(resume("run-1").phase("planning"));
    desk.now += 3_600 * SECOND;
    let claimed = desk.apply(claim("run-1"));
    assert_eq!((phase(&claimed).as_str(), claimed.is_at_rest()), ("planning", false));
    let back = desk.apply(held(not_begun("run-1"), 2));
    let (was, is) = (suspension(&ready), suspension(&back));
    assert_eq!((is.kind, is.reason, is.by, is.at), (was.kind, was.reason, was.by, was.at));
    assert_eq!(is.resumption.as_ref().unwrap().reason.as_deref(), Some("that one"));
    let (was, is) = (ready.supervision.ready.unwrap(), back.supervision.ready.unwrap());
    assert!(!is.not_begun, "it is for those who take what goes on");
    let day = 24 * 3_600 * SECOND;
    assert_eq!(was.deadline.map(Time::micros), Some(was.at.micros() + day));
    assert_eq!(is.deadline.map(Time::micros), Some(is.at.micros() + day), "its time to be claimed begins anew");
    assert_eq!(reason(&desk.refused(held(complete("run-1"), 2))), "LEASE_LOST", "it was given up");
    let again = desk.apply(claim("run-1"));
    assert_eq!((phase(&again).as_str(), desk.last().event_type, epoch(&again)), ("planning", EventType::Resumed, 4));
    assert_eq!(refined(&again).rest.resumed_from.unwrap().kind, "FEEDBACK", "and finds how it was left");
}

#[test]
fn a_link_that_the_run_has_is_brought_anew_by_whoever_names_it() {
    let source = r#"
name: proven
phases:
  acting: {initial: true, next: [done]}
  done: {may_complete: true}
completion_requires: ["LINK:evidence"]
"#;
    for at_the_end in [false, true] {
        let mut desk = Desk::with(source);
        desk.apply(leased("run-1").with("proven"));
        desk.apply(held(bringing(update("run-1").phase("done")), 1));
        desk.apply(held(suspend("run-1", "PAUSED", "lunch"), 1));
        desk.apply(under_a_lease(resume("run-1")));
        assert_eq!(reason(&desk.refused(held(complete("run-1"), 2))), "COMPLETION_INCOMPLETE");
        let ends = if at_the_end {
            let mut ends = held(complete("run-1"), 2);
            let (Ask::Complete(complete), Ask::Update(update)) = (&mut ends.ask, bringing(update("run-1")).ask) else {
                panic!("an end")
            };
            complete.added = update.added;
            ends
        } else {
            desk.apply(held(bringing(update("run-1")), 2));
            held(complete("run-1"), 2)
        };
        assert_eq!(desk.apply(ends).status, Status::Completed);
    }
}

#[test]
fn its_own_agent_does_not_replace_a_pause_by_leaving_out_what_it_holds() {
    let mut desk = Desk::default();
    desk.apply(leased("run-1").by("agent-a"));
    desk.apply(suspend("run-1", "PAUSED", "not now").by("person"));
    assert_eq!(reason(&desk.refused(suspend("run-1", "HELP", "?").by("agent-a"))), "RUN_SUSPENDED");
    desk.apply(resume("run-1").by("person"));
    assert_eq!(reason(&desk.refused(suspend("run-1", "HELP", "?").by("agent-a"))), "RUN_SUSPENDED");
    desk.apply(claim("run-1").by("agent-a"));
    desk.apply(suspend("run-1", "HELP", "mine").by("agent-a"));
    desk.apply(suspend("run-1", "HELP", "mine, too").by("agent-a"));

    // Nor does a confined caller move it by another of its agents.
    let mut desk = Desk::with(TASK);
    desk.apply(leased("run-1").with("task").by("agent-a"));
    desk.apply(suspend("run-1", "BLOCKED", "not now").by("person"));
    let both = [Pattern::Exact("agent-a".to_owned()), Pattern::Exact("agent-b".to_owned())];
    let moves = Command { agents: Agents::Of(both.into()), ..update("run-1").phase("awaiting").by("agent-b") };
    assert_eq!(reason(&desk.refused(moves)), "NOT_OWNER");
}

#[test]
fn an_identity_does_not_approve_what_it_executed_whatever_agents_it_names() {
    let as_one = |mut command: Command, subject: &str, agent: Option<&str>| {
        let identity = Identity { subject: subject.into(), issuer: "cluster".into() };
        command.principal = Principal::authenticated(identity.into(), agent.map(Into::into));
        command
    };
    let names = [None, Some("agent-a"), Some("agent-b")];
    for worked in names {
        for (approves, is_suspended_by_another) in names.into_iter().flat_map(|agent| [(agent, false), (agent, true)]) {
            let mut desk = Desk::with(TASK);
            desk.apply(as_one(leased("run-1").with("task"), "worker", worked));
            desk.apply(as_one(held(update("run-1").phase("acting"), 1), "worker", worked));
            if is_suspended_by_another {
                desk.apply(as_one(suspend("run-1", "FEEDBACK", "?").phase("awaiting"), "person", None));
            } else {
                desk.apply(as_one(held(update("run-1").phase("awaiting"), 1), "worker", worked));
            }
            let refused = desk.refused(as_one(complete("run-1"), "worker", approves));
            assert_eq!(reason(&refused), "LEASE_LOST", "{worked:?} {approves:?} {is_suspended_by_another}");
            let reporter = Command { agents: Agents::AllAsReporter, ..as_one(complete("run-1"), "person", approves) };
            assert_eq!(reason(&desk.refused(reporter)), "LEASE_LOST", "an approval is an operator's");
            let approver = approves.filter(|agent| Some(*agent) != worked);
            assert_eq!(desk.apply(as_one(complete("run-1"), "person", approver)).status, Status::Completed);
        }
    }
    // Nor does it raise its own limit under another name.
    let mut desk = Desk::default();
    desk.apply(as_one(leased("run-1").max_iterations(1, LimitThen::Suspend), "worker", Some("agent-a")));
    for iteration in 1..=2 {
        desk.apply(as_one(held(update("run-1").iteration(iteration), 1), "worker", Some("agent-a")));
    }
    let raised = desk.refused(as_one(raising(resume("run-1"), 9), "worker", Some("agent-b")));
    assert_eq!(reason(&raised), "SELF_RAISE");
}

#[test]
fn an_identity_approves_neither_what_it_executed_under_an_earlier_lease_nor_without_one() {
    let as_one = |mut command: Command, subject: &str, agent: Option<&str>| {
        let identity = Identity { subject: subject.into(), issuer: "cluster".into() };
        command.principal = Principal::authenticated(identity.into(), agent.map(Into::into));
        command
    };
    // Under an earlier lease, whoever had the last one.
    let mut desk = Desk::with(TASK);
    desk.apply(as_one(leased("run-1").with("task"), "first", Some("agent-a")));
    desk.apply(as_one(suspend("run-1", "PAUSED", "not now"), "person", None));
    desk.apply(as_one(resume("run-1").phase("planning"), "person", None));
    desk.apply(as_one(claim("run-1"), "never-began", Some("agent-n")));
    desk.apply(as_one(not_begun("run-1").epoch(2), "never-began", Some("agent-n")));
    desk.apply(as_one(claim("run-1"), "last", Some("agent-b")));
    for to in ["acting", "awaiting"] {
        desk.apply(as_one(held(update("run-1").phase(to), 4), "last", Some("agent-b")));
    }
    for subject in ["first", "last"] {
        for agent in [None, Some("agent-c")] {
            let refused = desk.refused(as_one(complete("run-1"), subject, agent));
            assert_eq!(reason(&refused), "LEASE_LOST", "{subject} as {agent:?}");
        }
    }
    let run = desk.runs["run-1"].clone();
    let folded = desk.events.iter().fold(None, |run, event| Some(evolve(run, event)));
    assert_eq!(folded.as_ref(), Some(&run));
    let known: Vec<&str> = run.supervision.executed_by.iter().map(|identity| identity.subject.as_str()).collect();
    assert_eq!(known, ["first"]);
    assert_eq!(desk.apply(as_one(complete("run-1"), "never-began", Some("agent-n"))).status, Status::Completed);

    // Without one, whoever of those who executed it brought it to where it waits.
    for brings in ["starts", "goes-on"] {
        let mut desk = Desk::with(TASK);
        desk.apply(as_one(start("run-1").with("task"), "starts", Some("agent-a")));
        for to in ["acting", "awaiting"] {
            desk.apply(as_one(update("run-1").phase(to), brings, Some("agent-a")));
        }
        for subject in ["starts", brings] {
            let refused = desk.refused(as_one(complete("run-1"), subject, Some("agent-b")));
            assert_eq!(reason(&refused), "NOT_OWNER", "{subject} of a run that {brings}");
        }
        let folded = desk.events.iter().fold(None, |run, event| Some(evolve(run, event)));
        assert_eq!(folded.as_ref(), desk.runs.get("run-1"));
        assert_eq!(desk.apply(as_one(complete("run-1"), "person", Some("agent-p"))).status, Status::Completed);
    }
    // Whoever proves nothing leaves nothing behind.
    let mut desk = Desk::with(TASK);
    desk.apply(start("run-1").with("task").by("agent-a"));
    let run = desk.apply(update("run-1").phase("acting").by("agent-a"));
    assert!(run.supervision.executed_by.is_empty() && desk.last().changes.supervision.executor.is_none());
}

#[test]
fn the_last_32_identities_that_executed_a_run_are_kept_and_each_once() {
    let mut desk = Desk::default();
    let as_one = |mut command: Command, subject: String| {
        let identity = Identity { subject, issuer: "cluster".into() };
        command.principal = Principal::authenticated(identity.into(), None);
        command
    };
    desk.apply(as_one(start("run-1"), "0".into()));
    for turn in 1..=40 {
        for patch in [1, 2] {
            let patch = serde_json::json!({"n": turn * 10 + patch});
            desk.apply(as_one(update("run-1").metadata(&patch), turn.to_string()));
        }
    }
    let known = &desk.runs["run-1"].supervision.executed_by;
    let known: Vec<&str> = known.iter().map(|identity| identity.subject.as_str()).collect();
    let last: Vec<String> = (9..=40).map(|turn| turn.to_string()).collect();
    assert_eq!(known, last);
}

#[test]
fn who_was_granted_the_lease_is_known_whoever_suspends_the_run_and_whatever_it_is_called() {
    let as_one = |mut command: Command, subject: &str| {
        let identity = Identity { subject: subject.into(), issuer: "cluster".into() };
        command.principal = Principal::authenticated(identity.into(), None);
        command
    };
    let mut desk = Desk::default();
    let run = desk.apply(as_one(leased("run-1").max_iterations(1, LimitThen::Suspend), "worker"));
    assert!(run.supervision.grantee.is_some());
    // What the release before wrote is read as it was stored.
    let mut of_before = desk.last().clone();
    of_before.changes.supervision.to_grantee = false;
    assert_eq!(evolve(None, &of_before).supervision.grantee, None);
    desk.apply(as_one(suspend("run-1", "PAUSED", "not now"), "person"));
    assert_eq!(reason(&desk.refused(as_one(raising(resume("run-1"), 9), "worker"))), "SELF_RAISE");
    desk.apply(as_one(under_a_lease(resume("run-1")), "other"));
    for iteration in 1..=2 {
        desk.apply(as_one(held(update("run-1").iteration(iteration), 2), "other"));
    }
    // By whatever kind it is called, it is the limit of who came to it.
    desk.apply(as_one(suspend("run-1", "BUDGET", "ask finance"), "person"));
    assert_eq!(reason(&desk.refused(as_one(raising(resume("run-1"), 9), "other"))), "SELF_RAISE");
    desk.apply(as_one(raising(resume("run-1"), 9), "person"));
}

#[test]
fn a_run_suspended_for_three_times_its_timeout_has_exactly_the_rest() {
    let (timeout, begun) = (60 * SECOND, SECOND);
    for (is_ready, replaced) in [(false, false), (true, false), (true, true)] {
        let mut desk = Desk::default();
        desk.now = begun;
        let run = desk.apply(leased("run-1").on(|terms| terms.run_timeout_ms = Some(60_000)));
        let deadline = run.deadline().unwrap().micros();
        let used = 20 * SECOND;
        desk.now += used;
        let suspended = desk.apply(held(suspend("run-1", "HELP", "which account?"), 1));
        assert_eq!((suspended.deadline(), suspended.due_at()), (None, None), "it stands still");
        let since = desk.now;
        desk.now += timeout;
        if replaced {
            desk.apply(suspend("run-1", "PAUSED", "not now"));
        }
        desk.now += timeout;
        if is_ready {
            assert_eq!(desk.apply(resume("run-1")).deadline(), None);
        }
        desk.now += timeout;
        let resumed = if is_ready { claim("run-1") } else { under_a_lease(resume("run-1")) };
        let resumed = desk.apply(resumed);
        let rested = desk.now - since;
        assert_eq!(resumed.supervision.rest_micros, rested);
        assert_eq!(resumed.deadline().unwrap().micros(), deadline + rested);
        assert!(matches!(desk.ask(sweep("run-1")), Ok(Verdict::Done(Disposition::Unchanged, _))), "its lease is new");
    }
}

#[test]
fn a_deadline_of_a_suspension_is_a_rule_and_waits_for_a_minute_after_an_outage() {
    let mut desk = Desk::default();
    desk.apply(leased("run-1"));
    let run = desk.apply(timeouts(held(suspend("run-1", "HELP", "which account?"), 1), Some(10_000), None));
    let deadline = suspension(&run).deadline.unwrap();
    assert_eq!(run.due_at(), Some(deadline));
    desk.acts_from = deadline.micros() + 60 * SECOND;
    desk.now = deadline.micros() + SECOND;
    assert!(
        matches!(desk.ask(sweep("run-1")), Ok(Verdict::Done(Disposition::Unchanged, _))),
        "the authority was away until then"
    );
    desk.now = desk.acts_from;
    let ended = desk.apply(sweep("run-1"));
    assert_eq!((ended.status, ended.ending.reason_code.as_deref()), (Status::Aborted, Some("SUSPENSION_TIMEOUT")));
    assert!(!ended.supervision.presumed);
    let late = desk.ask(held(complete("run-1"), 1));
    assert!(matches!(late, Err(Refusal::InvalidTransition { .. })), "nothing is recorded late: {late:?}");
}

#[test]
fn a_ready_run_that_nobody_claims_in_time_is_presumed_an_orphan() {
    let mut desk = Desk::default();
    desk.apply(leased("run-1"));
    desk.apply(timeouts(held(suspend("run-1", "HELP", "which account?"), 1), Some(10_000), Some(5_000)));
    let ready = desk.apply(resume("run-1"));
    let deadline = ready.supervision.ready.as_ref().unwrap().deadline.unwrap();
    assert_eq!(deadline, Time::from_micros(desk.now + 5 * SECOND));
    assert_eq!((suspension(&ready).deadline, ready.due_at()), (None, Some(deadline)));
    desk.now = deadline.micros();
    let ended = desk.apply(sweep("run-1"));
    assert_eq!((ended.status, ended.ending.reason_code.as_deref()), (Status::Failed, Some("ORPHANED")));
    assert!(ended.supervision.presumed);
    assert!(
        matches!(desk.ask(held(complete("run-1"), 1)), Ok(Verdict::Done(Disposition::RecordedLate, _))),
        "its last holder knows better"
    );
}

#[test]
fn nothing_of_a_suspended_run_expires() {
    let mut desk = Desk::default();
    desk.apply(leased("run-1"));
    desk.apply(held(suspend("run-1", "HELP", "which account?"), 1));
    desk.now += 100 * i64::try_from(TTL_MS).unwrap() * 1_000;
    assert!(matches!(desk.ask(sweep("run-1")), Ok(Verdict::Done(Disposition::Unchanged, _))));
    assert_eq!(desk.runs["run-1"].status, Status::Running);
}

#[test]
fn a_phase_that_suspends_suspends_in_the_same_event() {
    let mut desk = Desk::with(TASK);
    desk.apply(leased("run-1").with("task"));
    desk.apply(held(update("run-1").phase("acting"), 1));
    let events = desk.events.len();
    let run = desk.apply(held(update("run-1").phase("awaiting"), 1));
    assert_eq!((desk.events.len(), desk.last().event_type), (events + 1, EventType::Suspended));
    let said = suspension(&run);
    assert_eq!((said.kind.as_str(), said.reason.as_str(), phase(&run).as_str()), ("FEEDBACK", "awaiting", "awaiting"));
    assert_eq!(said.deadline, Some(Time::from_micros(desk.now).plus_ms(7 * 24 * 3_600_000)), "the phase's own");
    assert_eq!(stands(&run).word.as_deref(), Some("awaiting"));
    // Between phases that suspend an update moves, and needs no lease; it grants nothing.
    let moved = desk.apply(update("run-1").phase("paused"));
    assert_eq!((suspension(&moved).kind.as_str(), epoch(&moved)), ("PAUSED", 1));
    assert_eq!(stands(&moved).word.as_deref(), Some("on hold"));
    assert_eq!(reason(&desk.refused(held(update("run-1").phase("planning"), 1))), "RUN_SUSPENDED", "that resumes");
    assert_eq!(reason(&desk.refused(update("run-1").phase("paused"))), "LEASE_LOST", "the same phase is no move");
    // Only a resumption leaves them, and says for where.
    let refused = desk.refused(resume("run-1"));
    let Refusal::InvalidPhase { allowed, .. } = &refused else { panic!("{refused:?}") };
    assert_eq!(allowed, &["planning"], "not for one that suspends");
    assert_eq!(reason(&desk.refused(resume("run-1").phase("awaiting"))), "INVALID_PHASE");
    assert_eq!(reason(&desk.refused(resume("run-1").phase("acting"))), "INVALID_PHASE");
    let ready = desk.apply(resume("run-1").phase("planning"));
    assert_eq!((phase(&ready).as_str(), stands(&ready).word.as_deref()), ("paused", Some("on hold")));
    assert_eq!(suspension(&ready).resumption.unwrap().phase.as_deref(), Some("planning"));
    assert!(ready.supervision.ready.as_ref().unwrap().deadline.is_some(), "by the lifecycle's ready_timeout");
    let claimed = desk.apply(claim("run-1"));
    assert_eq!((phase(&claimed).as_str(), claimed.suspension()), ("planning", None), "the claim applies it");
    assert_eq!(stands(&claimed).word.as_deref(), Some("planning"));
}

#[test]
fn on_suspend_moves_a_run_from_every_phase_and_drops_the_phase_of_the_call() {
    for from in ["planning", "acting", "awaiting"] {
        let mut desk = Desk::with(TASK);
        desk.apply(leased("run-1").with("task"));
        for step in ["acting", "awaiting"].iter().take(match from {
            "planning" => 0,
            "acting" => 1,
            _ => 2,
        }) {
            desk.apply(held(update("run-1").phase(step), 1));
        }
        let run = desk.apply(suspend("run-1", "BLOCKED", "the site is down"));
        assert_eq!((phase(&run).as_str(), suspension(&run).kind.as_str()), ("blocked", "BLOCKED"), "{from}");
    }
    let mut desk = Desk::with(TASK);
    desk.apply(leased("run-1").with("task"));
    let run = desk.apply(held(suspend("run-1", "PAUSED", "not now").phase("acting"), 1));
    assert_eq!(phase(&run), "paused");
    // A kind that it does not name leaves the run where it is, or moves it where the call says.
    let mut desk = Desk::with(TASK);
    desk.apply(leased("run-1").with("task"));
    assert_eq!(phase(&desk.apply(held(suspend("run-1", "HELP", "?").phase("acting"), 1))), "acting");
    assert_eq!(reason(&desk.refused(suspend("run-1", "HELP", "??").phase("awaiting2"))), "INVALID_PHASE");
}

#[test]
fn the_limit_of_iterations_suspends_and_only_somebody_else_raises_it() {
    let mut desk = Desk::with(TASK);
    desk.apply(leased("run-1").with("task").by("agent-a"));
    for step in ["acting", "planning", "acting"] {
        desk.apply(held(update("run-1").phase(step), 1));
    }
    let again = held(update("run-1").phase("planning"), 1).changing(|fields| fields.workflow_id = Some("kept".into()));
    let run = desk.apply(again);
    let said = suspension(&run);
    assert_eq!((said.kind.as_str(), phase(&run).as_str(), stands(&run).iteration), ("BUDGET", "paused", 1));
    assert_eq!((run.bindings.workflow_id.as_deref(), said.lease_epoch), (Some("kept"), None), "the rest is kept");
    let refused = desk.refused(resume("run-1").phase("planning"));
    let Refusal::BudgetExceeded { budget, spent, limit, .. } = refused else { panic!("{refused:?}") };
    assert_eq!((budget, spent, limit), ("iterations", 1, 1));
    assert_eq!(reason(&desk.refused(raising(resume("run-1").phase("planning"), 2).by("agent-a"))), "SELF_RAISE");
    let fault = desk.refused(raising(resume("run-1").phase("planning"), 0));
    assert!(matches!(fault, Refusal::InvalidFields(_)), "it only grows: {fault:?}");
    desk.apply(raising(resume("run-1").phase("planning"), 2));
    let claimed = desk.apply(claim("run-1").by("agent-a"));
    assert_eq!((stands(&claimed).max_iterations, stands(&claimed).iteration), (Some(2), 1));
}

#[test]
fn a_limit_is_raised_with_a_resumption_where_no_lifecycle_says_anything() {
    for lease_ttl_ms in [None, Some(60_000)] {
        let mut desk = Desk::default();
        desk.apply(leased("run-1").max_iterations(1, LimitThen::Suspend));
        desk.apply(held(update("run-1").iteration(1), 1));
        desk.apply(held(update("run-1").iteration(2), 1));
        let mut resumption = raising(resume("run-1"), 5);
        if let Ask::Resume(resume) = &mut resumption.ask {
            resume.lease_ttl_ms = lease_ttl_ms;
        }
        let resumed = desk.apply(resumption);
        let run = if lease_ttl_ms.is_none() { desk.apply(claim("run-1")) } else { resumed };
        assert_eq!((stands(&run).max_iterations, stands(&run).iteration), (Some(5), 1));
        assert_eq!(stands(&desk.apply(held(update("run-1").iteration(2), 2))).iteration, 2);
    }
}

#[test]
fn a_phase_that_suspends_by_budget_is_no_limit() {
    let mut desk =
        Desk::with("name: task\nphases: {work: {initial: true, next: [broke]}, broke: {suspends: BUDGET}}\n");
    desk.apply(leased("run-1").with("task"));
    let (run, asked) = (&desk.runs["run-1"], Transition { to: None, phase: Some("broke".to_owned()) });
    let found = LifecycleFound::There(&desk.lifecycles[0]);
    let checked = check_run(&run.key(), Some(run), asked, found, Principal::anonymous(), Agents::All);
    assert_eq!(checked.outcome, Ok(Disposition::Applied));
    assert_eq!(suspension(&desk.apply(held(update("run-1").phase("broke"), 1))).kind, "BUDGET");
}

#[test]
fn another_reason_to_wait_gives_no_more_to_spend() {
    let mut desk = Desk::default();
    desk.apply(leased("run-1").max_iterations(1, LimitThen::Suspend).by("agent-a"));
    for iteration in 1..=2 {
        desk.apply(held(update("run-1").iteration(iteration), 1).by("agent-a"));
    }
    assert_eq!(suspension(&desk.apply(suspend("run-1", "PAUSED", "not now").by("person"))).kind, "PAUSED");
    assert_eq!(reason(&desk.refused(resume("run-1").by("person"))), "BUDGET_EXCEEDED");
    desk.apply(raising(resume("run-1").by("person"), 2));
    // Who says BUDGET without a limit has the run wait for a word, and no more.
    desk.apply(claim("run-1").by("agent-a"));
    desk.apply(suspend("run-1", "BUDGET", "too dear").by("person"));
    desk.apply(resume("run-1").by("person"));
}

#[test]
fn the_owner_of_a_run_without_a_lease_does_not_replace_what_another_said() {
    let mut desk = Desk::default();
    desk.apply(start("run-1").by("agent-a"));
    desk.apply(suspend("run-1", "FEEDBACK", "mine").by("agent-a"));
    desk.apply(suspend("run-1", "HELP", "mine, too").by("agent-a"));
    desk.apply(suspend("run-1", "PAUSED", "not now").by("person"));
    assert_eq!(reason(&desk.refused(suspend("run-1", "FEEDBACK", "mine").by("agent-a"))), "RUN_SUSPENDED");
    assert_eq!(desk.apply(complete("run-1").by("agent-a")).status, Status::Completed, "what is true is taken");
}

#[test]
fn nobody_undoes_that_a_run_goes_on_but_who_may_suspend_it_anew() {
    let mut desk = Desk::with(TASK);
    desk.apply(leased("run-1").with("task").by("agent-a"));
    for step in ["acting", "awaiting"] {
        desk.apply(held(update("run-1").phase(step), 1).by("agent-a"));
    }
    desk.apply(resume("run-1").phase("planning").by("person"));
    for undoes in
        [update("run-1").phase("paused"), suspend("run-1", "FEEDBACK", "awaiting"), suspend("run-1", "HELP", "?")]
    {
        assert_eq!(reason(&desk.refused(held(undoes, 1).by("agent-a"))), "RUN_SUSPENDED");
    }
    // The same words as before say something new of a run that would go on.
    desk.apply(suspend("run-1", "PAUSED", "hold").by("person"));
    desk.apply(resume("run-1").phase("planning").by("person"));
    let run = desk.apply(suspend("run-1", "PAUSED", "hold").by("person"));
    assert!(!run.is_ready() && suspension(&run).resumption.is_none(), "{run:?}");
    // The order of the checks holds for a priority as well.
    assert_eq!(reason(&desk.refused(with_priority(update("run-1"), 3))), "LEASE_LOST");
    assert_eq!(reason(&desk.refused(held(with_priority(update("run-1"), 3), 1))), "RUN_SUSPENDED");
    // Where the lifecycle says where a suspension leads, what the call says of a phase is dropped.
    desk.apply(resume("run-1").phase("planning").by("person"));
    assert_eq!(phase(&desk.apply(suspend("run-1", "BLOCKED", "?").phase("paused"))), "blocked");
}

#[test]
fn another_suspension_does_not_hide_who_executed_the_run() {
    let by_one = |mut command: Command| {
        let identity = Identity { subject: "worker".into(), issuer: "cluster".into() };
        command.principal = Principal::authenticated(identity.into(), None);
        command
    };
    let mut desk = Desk::with(TASK);
    desk.apply(by_one(leased("run-1").with("task")));
    for step in ["acting", "awaiting"] {
        desk.apply(by_one(held(update("run-1").phase(step), 1)));
    }
    for said in [by_one(suspend("run-1", "FEEDBACK", "once more")), suspend("run-1", "FEEDBACK", "?").by("person")] {
        desk.apply(said);
        assert_eq!(reason(&desk.refused(by_one(complete("run-1")))), "LEASE_LOST");
    }
    assert_eq!(desk.apply(complete("run-1").by("person")).status, Status::Completed);
}

#[test]
fn an_identity_that_came_to_its_limit_does_not_raise_it_itself() {
    let as_one = |mut command: Command, agent: Option<&str>| {
        let identity = Identity { subject: "worker".into(), issuer: "cluster".into() };
        command.principal = Principal::authenticated(identity.into(), agent.map(Into::into));
        command
    };
    for (worked, raises) in [(None, None), (Some("agent-a"), None), (None, Some("agent-b"))] {
        let mut desk = Desk::default();
        desk.apply(as_one(leased("run-1").max_iterations(1, LimitThen::Suspend), worked));
        for iteration in 1..=2 {
            desk.apply(as_one(held(update("run-1").iteration(iteration), 1), worked));
        }
        let refused = desk.refused(as_one(raising(resume("run-1"), 2), raises));
        assert_eq!(reason(&refused), "SELF_RAISE", "{worked:?}, {raises:?}");
        desk.apply(raising(resume("run-1"), 2).by("person"));
    }
}

#[test]
fn a_slot_that_was_given_up_is_not_kept_again_and_one_that_was_kept_stays() {
    let kept = |mut command: Command| {
        if let Ask::Suspend(suspend) = &mut command.ask {
            suspend.keep_slot = true;
        }
        command
    };
    for (first, then, keeps) in [(false, true, false), (true, true, true), (true, false, false)] {
        let mut desk = Desk::default();
        desk.apply(leased("run-1"));
        let said =
            |keeps: bool, kind| if keeps { kept(suspend("run-1", kind, "?")) } else { suspend("run-1", kind, "?") };
        desk.apply(said(first, "HELP"));
        assert_eq!(suspension(&desk.apply(said(then, "PAUSED"))).keep_slot, keeps, "{first}, then {then}");
    }
    let mut desk = Desk::with(TASK);
    desk.apply(leased("run-1").with("task"));
    desk.apply(held(update("run-1").phase("acting"), 1));
    desk.apply(kept(suspend("run-1", "BLOCKED", "?")));
    assert!(
        suspension(&desk.apply(update("run-1").phase("awaiting"))).keep_slot,
        "it moves between phases that suspend"
    );
}

#[test]
fn an_approval_is_the_completion_and_never_the_agents_own() {
    let awaiting = || {
        let mut desk = Desk::with(TASK);
        desk.apply(leased("run-1").with("task").by("agent-a"));
        for step in ["acting", "awaiting"] {
            desk.apply(held(update("run-1").phase(step), 1).by("agent-a"));
        }
        desk
    };
    let mut desk = awaiting();
    assert_eq!(reason(&desk.refused(complete("run-1").by("agent-a"))), "LEASE_LOST", "its own agent does not approve");
    let confined = Command { agents: Agents::Of([Pattern::Any].into()), ..complete("run-1").by("person") };
    assert_eq!(reason(&desk.refused(confined)), "LEASE_LOST");
    let approved = desk.apply(complete("run-1").by("person"));
    assert_eq!((approved.status, approved.suspension()), (Status::Completed, None));
    // Where the lifecycle does not let a run complete, nobody approves it.
    let mut desk = awaiting();
    desk.apply(suspend("run-1", "PAUSED", "not now"));
    assert_eq!(reason(&desk.refused(complete("run-1").by("person"))), "LEASE_LOST");
    // One that was sent back, or waits for something else, awaits no approval.
    let mut desk = awaiting();
    desk.apply(resume("run-1").phase("planning"));
    assert_eq!(reason(&desk.refused(complete("run-1").by("person"))), "LEASE_LOST");
    let mut desk = awaiting();
    desk.apply(suspend("run-1", "HELP", "not now"));
    assert_eq!(phase(&desk.runs["run-1"]), "awaiting");
    assert_eq!(reason(&desk.refused(complete("run-1").by("person"))), "LEASE_LOST");
    // A check tells both what would become of it.
    let desk = awaiting();
    let checked = |agent: &str| {
        let (run, asked) = (&desk.runs["run-1"], Transition { to: Some(Status::Completed), phase: None });
        let found = LifecycleFound::There(&desk.lifecycles[0]);
        check_run(&run.key(), Some(run), asked, found, Principal::claimed(agent.into()), Agents::All).outcome
    };
    assert_eq!((checked("person"), checked("agent-a")), (Ok(Disposition::Applied), Ok(Disposition::Applied)));
    let mut desk = awaiting();
    assert_eq!(desk.apply(held(complete("run-1"), 1).by("agent-a")).status, Status::Completed, "its holder, as ever");
}

/// The phase that a completion names counts, an approval's too.
#[test]
fn an_approval_names_the_phase_that_may_complete_where_the_run_waits_in_none() {
    let review = "
name: review
phases:
  draft: {initial: true, next: asked}
  asked: {suspends: FEEDBACK, next: [draft, done]}
  done: {may_complete: true}
  never: {may_complete: true}
at_end: never
";
    let mut desk = Desk::with(review);
    desk.apply(leased("run-1").with("review").by("agent-a"));
    desk.apply(held(update("run-1").phase("asked"), 1).by("agent-a"));
    let approval = |to: &str| complete("run-1").phase(to).by("person");
    for waits_for_none in [complete("run-1").by("person"), approval("draft"), approval("done").by("agent-a")] {
        assert_eq!(reason(&desk.refused(waits_for_none)), "LEASE_LOST");
    }
    assert_eq!(reason(&desk.refused(approval("never"))), "INVALID_PHASE", "it may not follow");
    let approved = desk.apply(approval("done"));
    assert_eq!((approved.status, phase(&approved).as_str()), (Status::Completed, "done"));
}

#[test]
fn what_a_suspended_run_was_is_in_the_log_and_what_completion_requires_is_brought_anew() {
    let source = TASK.replace("ready_timeout: 1d", "completion_requires: [\"LINK:evidence\"]");
    let mut desk = Desk::with(&source);
    desk.apply(leased("run-1").with("task"));
    desk.apply(held(bringing(update("run-1").phase("acting")), 1));
    let run = desk.apply(held(update("run-1").phase("awaiting"), 1));
    assert_eq!(stands(&run).met.len(), 1, "before it is suspended, it counts");
    let resumed = desk.apply(under_a_lease(resume("run-1")).phase("planning"));
    assert!(stands(&resumed).met.is_empty(), "it has left a suspension since");
    desk.apply(held(update("run-1").phase("acting"), 2));
    desk.apply(held(update("run-1").phase("awaiting"), 2));
    assert_eq!(reason(&desk.refused(complete("run-1").by("person"))), "COMPLETION_INCOMPLETE");
}

/// Seed 001: a run that reaches its limit of iterations stops before more side effects; interrupted runs go on from where
/// they were, and only those.
#[test]
fn seed_001_interrupted_and_resumed_from_interrupted_only() {
    let mut desk = Desk::with(&shipped("craik.task_run"));
    desk.apply(leased("run-1").with("craik.task_run"));
    let fresh = desk.ask(resume("run-1"));
    assert!(matches!(fresh, Ok(Verdict::Done(Disposition::Unchanged, _))), "there is nothing to resume: {fresh:?}");
    desk.apply(held(update("run-1").phase("act"), 1));
    let interrupted = desk.apply(held(suspend("run-1", "INTERRUPTED", "the host goes down"), 1));
    assert_eq!((phase(&interrupted).as_str(), suspension(&interrupted).kind.as_str()), ("act", "INTERRUPTED"));
    assert!(matches!(desk.refused(without_reason(resume("run-1"))), Refusal::InvalidFields(_)));
    desk.apply(resume("run-1"));
    let resumed = desk.apply(claim("run-1"));
    assert_eq!((phase(&resumed).as_str(), stands(&resumed).iteration), ("act", 0), "where it was");
}

#[test]
fn seed_001_the_iteration_at_its_limit_suspends_before_more_side_effects() {
    let mut desk = Desk::with(&shipped("craik.task_run"));
    let limited = |command: Command| command.max_iterations(1, LimitThen::Suspend);
    desk.apply(limited(leased("run-1").with("craik.task_run")));
    for step in ["act", "observe", "evaluate", "continue", "act", "observe", "evaluate"] {
        desk.apply(held(update("run-1").phase(step), 1));
    }
    let run = desk.apply(held(update("run-1").phase("continue"), 1));
    assert_eq!(
        (phase(&run).as_str(), stands(&run).iteration, suspension(&run).kind.as_str()),
        ("evaluate", 1, "BUDGET")
    );
    assert_eq!(stands(&run).word.as_deref(), Some("interrupted"));
    assert_eq!(reason(&desk.refused(held(update("run-1").phase("continue"), 1))), "RUN_SUSPENDED", "no more of it");
}

/// The earliest of all deadlines that a run has, found by looking at each.
fn earliest(run: &Run) -> Option<Time> {
    let supervision = &run.supervision;
    let mut all = Vec::new();
    match run.status {
        Status::Pending => all.extend(supervision.start_deadline),
        Status::Running => {
            let suspension = run.refinements.as_ref().and_then(|all| all.rest.suspension.as_ref());
            all.extend(supervision.ready.as_ref().and_then(|ready| ready.deadline));
            all.extend(suspension.filter(|_| supervision.ready.is_none()).and_then(|suspension| suspension.deadline));
            if supervision.ready.is_none() && suspension.is_none() {
                let timeout = supervision.run_timeout_ms.zip(run.running_at);
                all.extend(timeout.map(|(ms, at)| at.plus_ms(ms).plus_micros(supervision.rest_micros)));
            }
        }
        Status::Completed | Status::Aborted | Status::Failed => return None,
    }
    all.extend(supervision.abort_request.as_ref().and_then(|request| request.deadline));
    all.into_iter().min()
}

proptest! {
    #[test]
    fn due_at_is_the_earliest_of_all_deadlines(
        status in prop_oneof![Just(Status::Pending), Just(Status::Running), Just(Status::Failed)],
        deadlines in vec(of(0..50_i64), 4..5),
        timeout in of(0..50_u64),
        rested in 0..50_i64,
        (ready, suspended) in any::<(bool, bool)>(),
    ) {
        let at = |micros: Option<i64>| micros.map(|seconds| Time::from_micros(seconds * SECOND));
        let mut run = run_in(status);
        let (now, by) = (Time::from_micros(0), Principal::anonymous());
        run.running_at = (status == Status::Running).then_some(now);
        run.supervision.start_deadline = at(deadlines[0]);
        run.supervision.run_timeout_ms = timeout.map(|seconds| seconds * 1_000);
        run.supervision.rest_micros = rested * SECOND;
        let request = deadlines[1].map(|_| AbortRequest { at: now, by: by.clone(), reason: None, deadline: at(deadlines[1]) });
        run.supervision.abort_request = request.map(Box::new);
        let is_ready = ready && status == Status::Running;
        run.supervision.ready = is_ready.then(|| Box::new(Ready { at: now, deadline: at(deadlines[2]), not_begun: !suspended }));
        run.supervision.lease = Some(Lease { epoch: LeaseEpoch::from(1), ttl_ms: 1_000, released: false, resting: suspended });
        let suspension = Suspension {
            kind: "HELP".into(), reason: "?".into(), resume_hint: None, at: now, by, lease_epoch: None,
            executed_by: None, deadline: at(deadlines[3]).filter(|_| !is_ready), ready_timeout_ms: None, keep_slot: false, by_limit: false,
            resumption: None, timeout_then: None,
        };
        let suspension = (suspended && status == Status::Running).then(|| Box::new(suspension));
        let rest = Suspensions { suspension, resumed_from: None };
        run.refinements = Some(Box::new(Refinements { rest, ..Refinements::default() }));
        prop_assert_eq!(run.due_at(), earliest(&run));
    }
}

#[test]
fn a_suspended_run_and_a_ready_one_meet_every_ask_as_the_table_says() {
    // Of its last holder, where the ask is a holder's; for a suspended run, and for one that is ready to go on.
    let table = |operation: Operation| match operation {
        Operation::Suspend => ["unchanged", "RUN_SUSPENDED"],
        Operation::Start { .. } | Operation::Sweep | Operation::Restore => ["unchanged", "unchanged"],
        Operation::Update | Operation::Release | Operation::GiveBack => ["RUN_SUSPENDED", "RUN_SUSPENDED"],
        Operation::Complete => ["Completed", "Completed"],
        Operation::Abort | Operation::RequestAbort => ["Aborted", "Aborted"],
        Operation::Fail => ["Failed", "Failed"],
        Operation::Claim => ["RUN_SUSPENDED", "Resumed"],
        Operation::Resume => ["Ready", "unchanged"],
        Operation::Archive => ["RUN_NOT_TERMINAL", "RUN_NOT_TERMINAL"],
        Operation::Redact => ["Redacted", "Redacted"],
    };
    for operation in Operation::ALL {
        for (is_ready, expected) in [false, true].into_iter().zip(table(operation)) {
            let mut desk = Desk::default();
            desk.apply(leased("run-1"));
            desk.apply(held(suspend("run-1", "HELP", "which one?"), 1));
            if is_ready {
                desk.apply(resume("run-1"));
            }
            let ask = command("run-1", operation);
            let is_the_holders = matches!(
                operation,
                Operation::Update
                    | Operation::Complete
                    | Operation::Fail
                    | Operation::Release
                    | Operation::GiveBack
                    | Operation::Suspend
            );
            let ask =
                if operation == Operation::Update { ask.changing(|fields| fields.fallback_used = true) } else { ask };
            let ask = if is_the_holders { held(ask, 1) } else { ask };
            let found = match desk.ask(ask) {
                Ok(Verdict::Done(Disposition::Applied, _)) => format!("{:?}", desk.last().event_type),
                Ok(Verdict::Done(Disposition::Unchanged, _)) => "unchanged".to_owned(),
                Ok(other) => panic!("{other:?}"),
                Err(refusal) => refusal.reason().to_owned(),
            };
            assert_eq!(found, expected, "{operation:?}, ready: {is_ready}");
        }
    }
}

//! Suspensions whose time is over: what becomes of their runs, and where they go on.

use runledger::declaration::notes;
use runledger::domain::{
    Agents, Ask, Command, Disposition, EventType, Principal, Refusal, Run, Status, Suspend, Suspension,
    SuspensionTerms, TimeoutThen, Update, Verdict,
};

use super::desk::{Desk, phase, refined, stands};
use crate::support::commands::{Asking as _, claim, complete, leased, resume, start, suspend, sweep, update};
use crate::support::lifecycles::{Standing as _, declared};

const SECOND: i64 = 1_000_000;
const TIMEOUT_MS: u64 = 10_000;

/// A lifecycle in which what nobody answers goes on by itself, and releases fail; `acting` leads to one phase of each kind, and to
/// two of the kind TWO.
const ASKING: &str = r"
name: asking
phases:
  planning: {initial: true, next: [acting]}
  acting: {next: [asking, releasing, one, two, again]}
  asking: {next: [releasing, acting, planning], suspends: FEEDBACK, timeout: 10s, timeout_then: RESUME}
  releasing: {next: acting, suspends: BLOCKED, timeout: 10s, timeout_then: FAIL}
  one: {next: acting, suspends: TWO}
  two: {next: acting, suspends: TWO}
  again: {next: [again_planned], suspends: HELP, timeout: 10s}
  again_planned: {next: acting, may_complete: true}
iterates: {from: acting, to: again}
";

/// A lifecycle that counts the iterations which begin with a resumption.
const COUNTING: &str = r"
name: counting
phases:
  acting: {initial: true, next: [asking], may_complete: true}
  asking: {next: acting, suspends: FEEDBACK, timeout: 10s, timeout_then: RESUME}
iterates: {from: asking, to: acting}
max_iterations: 1
";

fn terms(command: &mut Command) -> &mut SuspensionTerms {
    let (Ask::Suspend(Suspend { terms, .. }) | Ask::Update(Update { suspension: terms, .. })) = &mut command.ask else {
        panic!("it suspends nothing")
    };
    terms
}

fn then(mut command: Command, timeout_ms: Option<u64>, then: TimeoutThen) -> Command {
    (terms(&mut command).timeout_ms, terms(&mut command).timeout_then) = (timeout_ms, Some(then));
    command
}

fn held(command: Command, epoch: u64) -> Command {
    command.on(|terms| terms.lease_epoch = Some(epoch.into()))
}

fn suspension(run: &Run) -> Suspension {
    run.suspension().cloned().unwrap_or_else(|| panic!("{run:?}"))
}

/// Lets the time of the run's suspension pass, and sweeps it.
fn swept(desk: &mut Desk, run_id: &str) -> Run {
    desk.now = suspension(&desk.runs[run_id]).deadline.expect("a deadline").micros();
    desk.apply(sweep(run_id))
}

fn fault(refusal: &Refusal) -> String {
    let Refusal::InvalidFields(violations) = refusal else { panic!("{refusal:?}") };
    violations.iter().map(|violation| violation.field.clone()).collect::<Vec<_>>().join(" ")
}

#[test]
fn a_run_that_nobody_resumed_goes_on_by_itself_where_that_was_said() {
    for is_leased in [true, false] {
        let mut desk = Desk::default();
        desk.apply(if is_leased { leased("run-1") } else { start("run-1") });
        let run = desk.apply(then(suspend("run-1", "TIMER", "tomorrow"), Some(TIMEOUT_MS), TimeoutThen::Resume));
        assert_eq!(suspension(&run).timeout_then, Some(TimeoutThen::Resume));
        desk.acts_from = suspension(&run).deadline.unwrap().micros() + SECOND;
        desk.now = desk.acts_from - SECOND;
        assert!(
            matches!(desk.ask(sweep("run-1")), Ok(Verdict::Done(Disposition::Unchanged, _))),
            "its people get a minute"
        );
        desk.now = desk.acts_from;
        let run = desk.apply(sweep("run-1"));
        let expected = if is_leased { EventType::Ready } else { EventType::Resumed };
        assert_eq!((run.status, desk.last().event_type), (Status::Running, expected));
        let left = if is_leased { suspension(&run) } else { *refined(&run).rest.resumed_from.unwrap() };
        let said = left.resumption.unwrap();
        assert_eq!((said.by, said.reason.as_deref()), (Principal::authority(), Some("TIMEOUT")));
        assert_eq!((left.deadline, left.timeout_then), (None, None));
        assert!(matches!(desk.ask(sweep("run-1")), Ok(Verdict::Done(Disposition::Unchanged, _))), "once");
        if is_leased {
            assert!(run.is_ready() && !run.supervision.ready.as_ref().unwrap().not_begun);
            assert_eq!(desk.apply(claim("run-1")).supervision.epoch().get(), 2, "under the next lease");
        }
        let lease = if is_leased { held(complete("run-1"), 2) } else { complete("run-1") };
        assert_eq!(desk.apply(lease).status, Status::Completed);
    }
}

#[test]
fn a_run_fails_or_is_aborted_at_its_deadline_as_was_said() {
    for (said, status, is_shown) in [
        (None, Status::Aborted, None),
        (Some(TimeoutThen::Abort), Status::Aborted, None),
        (Some(TimeoutThen::Fail), Status::Failed, Some(TimeoutThen::Fail)),
    ] {
        let mut desk = Desk::default();
        desk.apply(leased("run-1"));
        let mut ask = held(suspend("run-1", "HELP", "which account?"), 1);
        (terms(&mut ask).timeout_ms, terms(&mut ask).timeout_then) = (Some(TIMEOUT_MS), said);
        assert_eq!(suspension(&desk.apply(ask)).timeout_then, is_shown);
        let ended = swept(&mut desk, "run-1");
        assert_eq!((ended.status, ended.ending.reason_code.as_deref()), (status, Some("SUSPENSION_TIMEOUT")));
        assert!(!ended.supervision.presumed, "a deadline is a rule");
    }
}

#[test]
fn a_persons_word_before_the_sweep_wins() {
    let mut desk = Desk::default();
    desk.apply(leased("run-1"));
    let run = desk.apply(then(suspend("run-1", "HELP", "which account?"), Some(TIMEOUT_MS), TimeoutThen::Fail));
    desk.now = suspension(&run).deadline.unwrap().micros() + SECOND;
    let ready = desk.apply(resume("run-1"));
    assert_eq!(suspension(&ready).resumption.unwrap().reason.as_deref(), Some("that one"));
    assert!(matches!(desk.ask(sweep("run-1")), Ok(Verdict::Done(Disposition::Unchanged, _))));
}

#[test]
fn what_becomes_of_a_run_is_said_only_where_that_can_be() {
    let mut desk = Desk::with(ASKING);
    desk.apply(leased("run-1").with("asking"));
    let without = then(suspend("run-1", "HELP", "which account?"), None, TimeoutThen::Fail);
    assert_eq!(fault(&desk.refused(without)), "timeout_then", "there is no deadline");
    desk.apply(held(update("run-1").phase("acting"), 1));
    let without = then(held(update("run-1").phase("one"), 1), None, TimeoutThen::Fail);
    assert_eq!(fault(&desk.refused(without)), "suspension.timeout_then");

    let closed = "name: closed\nphases:\n  a: {initial: true, next: b}\n  b: {next: c, suspends: HELP}\n  \
                  c: {suspends: FEEDBACK, may_complete: true}\n";
    let mut desk = Desk::with(closed);
    desk.apply(leased("run-1").with("closed"));
    let resumes = then(suspend("run-1", "HELP", "which account?"), Some(TIMEOUT_MS), TimeoutThen::Resume);
    assert_eq!(fault(&desk.refused(resumes)), "timeout_then", "it could not go on");

    // Nor does a run go on by itself that came to a limit: somebody has to raise it.
    let limited = COUNTING.replace("max_iterations: 1\n", "max_iterations: 1\nmax_iterations_then: SUSPEND\n");
    let limited = limited.replace("from: asking, to: acting", "from: acting, to: asking");
    let mut desk = Desk::with(&limited.replace("suspends: FEEDBACK", "suspends: BUDGET"));
    desk.apply(leased("run-1").with("counting"));
    desk.apply(held(update("run-1").phase("asking"), 1));
    swept(&mut desk, "run-1");
    desk.apply(claim("run-1"));
    let run = desk.apply(held(update("run-1").phase("asking"), 2));
    assert!(suspension(&run).by_limit, "{run:?}");
    assert_eq!(suspension(&run).timeout_then, None, "whatever the phase says");
    let resumes = then(suspend("run-1", "PAUSED", "wait"), Some(TIMEOUT_MS), TimeoutThen::Resume);
    assert_eq!(fault(&desk.refused(resumes)), "timeout_then");
    desk.apply(then(suspend("run-1", "PAUSED", "wait"), Some(TIMEOUT_MS), TimeoutThen::Fail));
    assert_eq!(swept(&mut desk, "run-1").status, Status::Failed);
}

#[test]
fn a_phase_says_what_becomes_of_its_runs_and_the_call_may_say_otherwise() {
    let mut desk = Desk::with(ASKING);
    for (run_id, phase_to, own, ends) in [
        ("run-1", "asking", None, None),
        ("run-2", "releasing", None, Some(Status::Failed)),
        ("run-3", "asking", Some(TimeoutThen::Abort), Some(Status::Aborted)),
        ("run-4", "releasing", Some(TimeoutThen::Resume), None),
    ] {
        desk.apply(leased(run_id).with("asking"));
        desk.apply(held(update(run_id).phase("acting"), 1));
        let mut ask = held(update(run_id).phase(phase_to), 1);
        terms(&mut ask).timeout_then = own;
        desk.apply(ask);
        let run = swept(&mut desk, run_id);
        assert_eq!(run.status, ends.unwrap_or(Status::Running), "{run_id}");
        if ends.is_none() {
            assert_eq!(
                suspension(&run).resumption.unwrap().phase.as_deref(),
                Some("acting"),
                "the first that does not suspend"
            );
            assert_eq!(phase(&desk.apply(claim(run_id))), "acting");
        }
    }
}

#[test]
fn a_run_that_cannot_go_on_at_its_deadline_is_aborted() {
    let mut desk = Desk::with(COUNTING);
    desk.apply(leased("run-1").with("counting"));
    desk.apply(held(update("run-1").phase("asking"), 1));
    swept(&mut desk, "run-1");
    let run = desk.apply(claim("run-1"));
    assert_eq!((phase(&run).as_str(), stands(&run).iteration), ("acting", 1));
    desk.apply(held(update("run-1").phase("asking"), 2));
    let ended = swept(&mut desk, "run-1");
    assert_eq!((ended.status, ended.ending.reason_code.as_deref()), (Status::Aborted, Some("SUSPENSION_TIMEOUT")));
    let why = ended.ending.failure_reason.unwrap();
    assert!(why.contains("could not go on"), "{why}");
}

#[test]
fn a_kind_leads_to_the_one_phase_that_suspends_by_it() {
    for (from, kind, to) in [
        ("acting", "FEEDBACK", "asking"),
        ("acting", "BLOCKED", "releasing"),
        // Two phases, an edge that begins an iteration, a phase that does not follow, a kind of no phase.
        ("acting", "TWO", "acting"),
        ("acting", "HELP", "acting"),
        ("planning", "FEEDBACK", "planning"),
        ("acting", "PAUSED", "acting"),
    ] {
        let mut desk = Desk::with(ASKING);
        desk.apply(leased("run-1").with("asking"));
        if from == "acting" {
            desk.apply(held(update("run-1").phase("acting"), 1));
        }
        let run = desk.apply(held(suspend("run-1", kind, "because"), 1));
        assert_eq!(phase(&run), to, "{kind} from {from}");
        let declared = declared(ASKING, 1);
        let timeout_ms = declared.lifecycle.phase(to).and_then(|phase| phase.timeout_ms);
        assert_eq!(suspension(&run).deadline.is_some(), timeout_ms.is_some(), "with the time of its phase");
    }
    let mut desk = Desk::with(ASKING);
    desk.apply(leased("run-1").with("asking"));
    desk.apply(held(update("run-1").phase("acting"), 1));
    let named = desk.apply(held(suspend("run-1", "FEEDBACK", "because").phase("releasing"), 1));
    assert_eq!(phase(&named), "releasing", "a phase that is named comes first");
    let noted = notes(&declared(ASKING, 1).lifecycle);
    assert_eq!(noted.len(), 1, "{noted:?}");
    assert!(noted[0].contains("phases.acting: one and two both suspend by TWO"), "{noted:?}");
}

#[test]
fn who_may_not_resume_a_run_does_not_let_it_pass_a_phase_that_suspends() {
    let reporter = |command: Command| Command { agents: Agents::AllAsReporter, ..command };
    let in_phase = |to: &str, timeout_ms: Option<u64>, says: Option<TimeoutThen>| {
        let mut desk = Desk::with(ASKING);
        desk.apply(reporter(leased("run-1").with("asking")));
        desk.apply(reporter(held(update("run-1").phase("acting"), 1)));
        let mut ask = held(update("run-1").phase(to), 1);
        (terms(&mut ask).timeout_ms, terms(&mut ask).timeout_then) = (timeout_ms, says);
        (desk, ask)
    };
    let resume = Some(TimeoutThen::Resume);
    for (to, timeout_ms, says, is_taken) in [
        ("asking", None, None, true),
        ("asking", None, resume, true),
        ("asking", Some(TIMEOUT_MS), None, true),
        ("asking", Some(1), None, false),
        ("asking", Some(1), resume, false),
        ("asking", Some(1), Some(TimeoutThen::Fail), true),
        ("releasing", None, resume, false),
        ("one", Some(1), resume, false),
    ] {
        let (mut desk, ask) = in_phase(to, timeout_ms, says);
        let told = desk.ask(reporter(ask));
        assert_eq!(told.is_ok(), is_taken, "{to}, {timeout_ms:?}, {says:?}: {told:?}");
        let (mut desk, ask) = in_phase(to, timeout_ms, says);
        assert!(desk.ask(ask).is_ok(), "an operator may");
    }
    // Elsewhere, a pause of its own is its own.
    let mut desk = Desk::default();
    desk.apply(reporter(leased("run-1")));
    desk.apply(reporter(then(held(suspend("run-1", "TIMER", "later"), 1), Some(1), TimeoutThen::Resume)));
}

#[test]
fn a_phase_says_of_its_own_kind_alone_that_it_ends_by_itself() {
    let mut desk = Desk::with(ASKING);
    desk.apply(leased("run-1").with("asking"));
    for step in ["acting", "asking"] {
        desk.apply(held(update("run-1").phase(step), 1));
    }
    assert!(suspension(&desk.runs["run-1"]).deadline.is_some());
    let paused = desk.apply(suspend("run-1", "PAUSED", "not during the release"));
    assert_eq!((phase(&paused).as_str(), suspension(&paused).deadline), ("asking", None), "until somebody resumes it");
}

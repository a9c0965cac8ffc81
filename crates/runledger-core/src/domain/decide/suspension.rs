//! Suspension and resumption: what a suspended run still takes, what suspends one, and how it goes on.

use super::attempts;
use super::effect::{Cx, Permitted};
use super::ending::{as_requested, concluded};
use super::lease::granted;
use super::max_running::leaves_room;
use super::phases::{PhaseStep, Said, invalid_resumption};
use crate::domain::lifecycle::{LimitThen, Phase};
use crate::domain::{
    Ask, Asker, Brought, Changes, Command, Event, EventType, Lease, LeaseEpoch, LifecycleFound, PositionAsk, Principal,
    Ready, RefinementsChange, Refusal, Resume, Resumption, Run, Status, Suspend, Suspension, SuspensionTerms,
    SuspensionsChange, TimeoutThen, Update, Violation,
};

/// The kind of a suspension by a limit of the run.
pub(in crate::domain) const BUDGET: &str = "BUDGET";

/// The name of the limit of iterations, as a refusal has it.
const ITERATIONS: &str = "iterations";

/// The reason for which the authority lets a run go on at its deadline.
const TIMEOUT: &str = "TIMEOUT";

/// The kinds of suspension that nobody ends without a reason.
const WITH_REASON: &[&str] = &["HELP", "BLOCKED", "INTERRUPTED"];

/// Whether the command says of a suspended run that it is done, for those who executed it: somebody who looks at what the
/// run waits with, and is not its own agent.
pub(super) fn approves(cx: Cx<'_>) -> bool {
    let Cx { run, command, .. } = cx;
    let Ask::Complete(complete) = &command.ask else { return false };
    let phase = |name: Option<&str>| cx.declared()?.lifecycle.phase(name?);
    // The phase that the approval names counts as that of every completion does: what may follow is looked at later.
    let (stands, named) = (phase(cx.phase()), phase(complete.position.phase.as_deref()));
    let may_complete = stands.into_iter().chain(named).any(|phase| phase.may_complete);
    // One that was sent back, or is paused for another reason, does not wait for an approval.
    let awaits = |suspension: &Suspension| {
        may_complete && stands.is_some_and(|phase| phase.suspends.as_ref() == Some(&suspension.kind))
    };
    run.suspension().is_some_and(awaits)
        && !run.is_ready()
        && complete.lease_epoch.is_none()
        && command.agents.is_operators()
        && !is_its_own_agents(run, command)
        && !command.principal.identity.as_ref().is_some_and(|identity| run.supervision.was_executed_by(identity))
}

/// Whether the caller is the run's own agent as it is now: its owner, who was granted its lease, or who suspended it as its holder, or
/// came to its limit. An identity is one caller, whatever agents it names.
fn is_its_own_agents(run: &Run, command: &Command) -> bool {
    let principal = &command.principal;
    let is_owner = principal.agent_id.is_some() && principal.agent_id == run.agent_id;
    let is_one = |by: &Principal| {
        let is_named = by.agent_id.is_some() && by.agent_id == principal.agent_id;
        is_named || (by.identity.is_some() && by.identity == principal.identity)
    };
    let is_grantee = run.supervision.grantee.as_deref().is_some_and(is_one);
    is_owner || is_grantee || run.suspension().and_then(executed_by).is_some_and(is_one)
}

/// Who executed the run, as far as its suspensions say: who suspended it as its holder, or came to its limit.
fn executed_by(suspension: &Suspension) -> Option<&Principal> {
    if suspension.lease_epoch.is_some() { Some(&suspension.by) } else { suspension.executed_by.as_deref() }
}

/// Whether an update moves a suspended run from one phase that suspends to another. It grants nothing, so it needs no
/// lease.
pub(super) fn moves(cx: Cx<'_>) -> bool {
    let Ask::Update(Update { position: PositionAsk { phase: Some(to), .. }, .. }) = &cx.command.ask else {
        return false;
    };
    let suspends = |phase: &str| cx.declared().is_some_and(|declared| declared.lifecycle.suspends(phase).is_some());
    cx.run.suspension().is_some()
        && !cx.run.is_ready()
        && cx.phase().is_some_and(|from| from != to && suspends(from))
        && suspends(to)
}

/// Refuses what would go on with a suspended run. What is true of it is taken: that it is done, or cannot be done.
pub(super) fn goes_on(cx: Cx<'_>) -> Result<(), Refusal> {
    let Cx { run, command, .. } = cx;
    let Some(suspension) = run.suspension().filter(|_| run.status == Status::Running) else { return Ok(()) };
    let is_its_own = is_its_own_agents(run, command);
    // Whoever executes a run without a lease names no epoch, and another may leave it out. Callers that tell nothing of
    // themselves may be anybody.
    let by = &suspension.by;
    let is_told_apart = by.agent_id.is_some() || by.identity.is_some() || run.supervision.lease.is_none();
    let is_said_by_its_own = is_told_apart && *by == command.principal && !suspension.by_limit;
    let is_anothers = suspension.lease_epoch.is_none() && !is_said_by_its_own;
    let brought = command.ask.brought();
    let by_its_own = brought.terms.lease_epoch.is_some() || is_its_own;
    let goes_on = match command.ask.facts().asker {
        Asker::Worker => !moves(cx) || (is_anothers && by_its_own),
        Asker::Claimer => !run.is_ready(),
        Asker::Holder => true,
        // Nor does it undo that somebody lets the run go on.
        Asker::Suspender => by_its_own && (run.is_ready() || (is_anothers && !is_same(suspension, &brought))),
        Asker::Anyone | Asker::Starter | Asker::Owner | Asker::Reporter | Asker::Stopper => false,
    };
    if goes_on { Err(Refusal::run_suspended(run)) } else { Ok(()) }
}

fn is_same(suspension: &Suspension, brought: &Brought<'_>) -> bool {
    let reason = brought.suspension.and_then(|terms| terms.reason.as_ref());
    brought.kind == Some(&suspension.kind) && reason == Some(&suspension.reason)
}

/// A suspension: what is to be said of it, by whatever brings it.
pub(super) struct Waits<'a> {
    kind: &'a str,
    terms: SuspensionTerms,
    lease_epoch: Option<LeaseEpoch>,
    ready_timeout_ms: Option<u64>,
    keep_slot: bool,
    /// It is the run's own limit, whoever came to it.
    by_limit: bool,
    /// The field that says what becomes of the run at the deadline.
    field: &'static str,
}

impl<'a> Waits<'a> {
    /// The suspension that the step of an update leads to.
    pub(super) fn of_step(step: &PhaseStep<'a>, update: &Update, cx: Cx<'a>) -> Option<Self> {
        let keep_slot = cx.run.suspension().is_some_and(|standing| standing.keep_slot);
        let (kind, terms, lease_epoch) = match step.above {
            Some((max, LimitThen::Suspend)) => {
                let reason = format!("the run would have begun one iteration more than the {max} that it may");
                (BUDGET, SuspensionTerms { reason: Some(reason), ..SuspensionTerms::default() }, None)
            }
            Some((_, LimitThen::Refuse | LimitThen::Abort)) => return None,
            None => (step.suspends(cx.declared())?, update.suspension.clone(), update.lease_epoch),
        };
        let (by_limit, field) = (step.above.is_some(), "suspension.timeout_then");
        Some(Self { kind, terms, lease_epoch, ready_timeout_ms: None, keep_slot, by_limit, field })
    }

    /// How long it may last, and what becomes of the run then, in the phase that the run stands in from now on. None: it is
    /// aborted, or nothing becomes of it.
    fn time(&self, phase: Option<&Phase>, cx: Cx<'_>) -> Result<(Option<u64>, Option<TimeoutThen>), Refusal> {
        let resumes = |then| then == TimeoutThen::Resume;
        // What is said of a phase's own suspension is not said of another one there: a pause does not end by itself.
        let own = phase
            .filter(|phase| phase.suspends.as_deref() == Some(self.kind) || !phase.timeout_then.is_some_and(resumes));
        let timeout_ms = self.terms.timeout_ms.or_else(|| own?.timeout_ms);
        let by_limit = self.by_limit || cx.run.suspension().is_some_and(|standing| standing.by_limit);
        let leads_nowhere = || {
            let suspending = phase.filter(|phase| phase.suspends.is_some()).zip(cx.declared());
            suspending.is_some_and(|(phase, declared)| declared.lifecycle.goes_on_in(&phase.name).is_none())
        };
        // To let a run go on takes who may resume it: others bring about what the phase says of itself, and no sooner.
        let is_own = |own: &Phase| own.timeout_then.is_some_and(resumes) && timeout_ms >= own.timeout_ms;
        let is_open = phase.is_none_or(|phase| phase.suspends.is_none());
        let may_say = cx.command.agents.is_operators() || is_open || own.is_some_and(is_own);
        let is_resumed = |then: Option<TimeoutThen>| then.or(own.and_then(|own| own.timeout_then)).is_some_and(resumes);
        let fault = match self.terms.timeout_then {
            Some(_) if timeout_ms.is_none() => "only with a timeout: without one the run waits for ever",
            Some(then) if resumes(then) && by_limit => {
                "must not be RESUME: the run came to a limit of its own, and goes on when somebody raises that"
            }
            then if !may_say && is_resumed(then) => {
                "is RESUME, which an operator says of a phase that suspends, or the phase itself, with no shorter timeout"
            }
            Some(then) if resumes(then) && leads_nowhere() => {
                "must not be RESUME: no phase that does not suspend may follow"
            }
            Some(_) | None => {
                let declared = own.and_then(|own| own.timeout_then).filter(|then| !(by_limit && resumes(*then)));
                let then = self.terms.timeout_then.or(declared);
                return Ok((timeout_ms, then.filter(|then| timeout_ms.is_some() && *then != TimeoutThen::Abort)));
            }
        };
        Err(Refusal::InvalidFields(vec![Violation::new(self.field, fault)]))
    }
}

/// Suspends a running run; or ends it, where somebody has asked for that.
pub(super) fn suspend(suspend: &Suspend, cx: Cx<'_>) -> Permitted {
    let Cx { run, command, .. } = cx;
    let standing = run.suspension();
    if !run.is_ready() && standing.is_some_and(|standing| is_same(standing, &command.ask.brought())) {
        return Ok(None);
    }
    // Where the lifecycle says which phase such a suspension leads to, what the call says of one is dropped.
    let is_moved = cx.declared().is_some_and(|declared| declared.lifecycle.on_suspend.contains_key(&suspend.kind));
    let phase = suspend.position.phase.as_deref().filter(|_| !is_moved);
    let step = cx.step(Said { phase, ..Said::default() })?.stays(run)?;
    if run.supervision.abort_request.is_some() {
        return cx.makes(EventType::Aborted, concluded(step, as_requested(run), false, cx));
    }
    let (mut changes, mut refinements) = (Changes::default(), RefinementsChange::default());
    let waits = Waits {
        kind: &suspend.kind,
        terms: suspend.terms.clone(),
        lease_epoch: suspend.lease_epoch,
        ready_timeout_ms: suspend.ready_timeout_ms,
        // Another run may have the slot that this one gave up.
        keep_slot: suspend.keep_slot && standing.map_or(!run.is_ready(), |standing| standing.keep_slot),
        by_limit: false,
        field: "timeout_then",
    };
    changes.supervision.lease = suspended(waits, step, cx, &mut refinements)?;
    changes.refinements = refinements.boxed();
    cx.makes(EventType::Suspended, changes)
}

/// Adds to an event's changes that its run waits, and where it stands then; the lease, which rests from now on.
pub(super) fn suspended<'a>(
    waits: Waits<'a>,
    step: PhaseStep<'a>,
    cx: Cx<'a>,
    change: &mut RefinementsChange,
) -> Result<Option<Lease>, Refusal> {
    let Cx { run, command: Command { principal, .. }, at, .. } = cx;
    let lifecycle = cx.declared().map(|declared| &declared.lifecycle);
    let moved = lifecycle.and_then(|lifecycle| match lifecycle.on_suspend.get(waits.kind) {
        None if step.is_named => None,
        None => lifecycle.phase_of_kind(cx.phase(), waits.kind),
        Some(phase) => Some(phase),
    });
    moved.map_or(step, |phase| PhaseStep::to(phase, cx)).put(&mut change.position);
    let phase = change.position.phase.as_deref().or(cx.phase());
    let declared = lifecycle.zip(phase).and_then(|(lifecycle, phase)| lifecycle.phase(phase));
    let (timeout_ms, timeout_then) = waits.time(declared, cx)?;
    let Waits { kind, terms, lease_epoch, ready_timeout_ms, keep_slot, by_limit, field: _ } = waits;
    let standing = run.suspension();
    let suspension = Suspension {
        kind: kind.to_owned(),
        reason: terms.reason.unwrap_or_else(|| phase.unwrap_or(kind).to_owned()),
        resume_hint: terms.resume_hint,
        at,
        by: principal.clone(),
        // What another says of it does not hide who executed it.
        executed_by: if by_limit { Some(principal) } else { standing.and_then(executed_by) }.cloned().map(Box::new),
        lease_epoch,
        deadline: timeout_ms.map(|timeout| at.plus_ms(timeout)),
        timeout_then,
        ready_timeout_ms: ready_timeout_ms.or_else(|| lifecycle?.ready_timeout_ms),
        keep_slot,
        // Another reason to wait gives no more to spend.
        by_limit: by_limit || standing.is_some_and(|standing| standing.by_limit),
        resumption: None,
    };
    change.rest.suspension = Some(Box::new(suspension));
    Ok(run.supervision.lease.filter(|lease| !lease.resting).map(|lease| Lease { resting: true, ..lease }))
}

/// Lets a suspended run go on: under a lease, or ready for one; only a run that never had one goes on without. What is said
/// with it stands in the event: what is applied now as the run's, what the claim is to apply as the resumption's.
pub(super) fn resume(resume: &Resume, cx: Cx<'_>) -> Permitted {
    let Cx { run, command, context, at } = cx;
    let Some(suspension) = run.suspension().filter(|_| !run.is_ready()) else { return not_suspended(resume, run) };
    may_resume(run, suspension, resume, command)?;
    if resume.lease_ttl_ms.is_some() {
        leaves_room(run, resume.max_running.as_ref(), context)?;
    }
    let step = cx.step(Said::of(&resume.position))?.goes_on(run)?;
    leaves(resume, cx)?;
    let (by, reason) = (command.principal.clone(), resume.reason.clone());
    let mut resumption = Resumption { at, by, reason, phase: None, max_iterations: None };
    let (mut changes, mut refinements) = (Changes::default(), RefinementsChange::default());
    let is_ready = resume.lease_ttl_ms.is_none() && (run.supervision.lease.is_some() || run.is_between_attempts());
    if is_ready {
        // The claim counts the iteration.
        (resumption.phase, resumption.max_iterations) = (step.to.map(str::to_owned), resume.position.max_iterations);
        changes.supervision.ready = Some(Box::new(ready_again(suspension, cx)));
    } else {
        step.put(&mut refinements.position);
        refinements.position.max_iterations = resume.position.max_iterations;
    }
    if let Some(ttl_ms) = resume.lease_ttl_ms {
        let agent_id = command.principal.agent_id.clone();
        changes.agent_id = agent_id.filter(|agent_id| Some(agent_id) != run.agent_id.as_ref());
        changes.supervision.lease = Some(granted(Some(run), context, ttl_ms));
    }
    refinements.rest.resumption = Some(Box::new(resumption));
    if !is_ready {
        refinements.attempts = attempts::goes_on(changes.agent_id.is_some(), cx);
    }
    changes.refinements = refinements.boxed();
    cx.makes(if is_ready { EventType::Ready } else { EventType::Resumed }, changes)
}

/// Lets a suspended run go on whose deadline has come, and that was to go on then; none where it cannot: what it spent or its
/// lifecycle forbids that.
pub(super) fn resumed_by_timeout(cx: Cx<'_>) -> Option<Box<Event>> {
    if matches!(cx.context.sides.lifecycle, LifecycleFound::Missing) {
        return None;
    }
    let suspending = cx.phase().zip(cx.declared()).filter(|(phase, it)| it.lifecycle.suspends(phase).is_some());
    let phase = suspending.and_then(|(phase, declared)| declared.lifecycle.goes_on_in(phase)).map(str::to_owned);
    let position = PositionAsk { phase, ..PositionAsk::default() };
    let resumption = Resume { reason: Some(TIMEOUT.to_owned()), position, ..Resume::default() };
    resume(&resumption, cx).ok().flatten()
}

/// A resumption of a run that is not suspended does nothing; but it grants no lease either.
fn not_suspended(resume: &Resume, run: &Run) -> Permitted {
    if resume.lease_ttl_ms.is_none() {
        return Ok(None);
    }
    let epoch = run.supervision.epoch();
    let ready = run.is_ready() || run.supervision.lease.is_some_and(|lease| lease.released);
    Err(Refusal::LeaseHeld { epoch, expires_at: None, ready, run: run.summary() })
}

fn may_resume(run: &Run, suspension: &Suspension, resume: &Resume, command: &Command) -> Result<(), Refusal> {
    let mut violations = Vec::new();
    if resume.reason.is_none() && WITH_REASON.contains(&suspension.kind.as_str()) {
        violations.push(Violation::new("reason", format!("is required: the run is suspended by {}", suspension.kind)));
    }
    let (stands, raised) = (run.position(), resume.position.max_iterations);
    let max = stands.and_then(|stands| stands.max_iterations);
    match (raised, max) {
        (Some(_), None) => violations.push(Violation::new("max_iterations", "must be absent: the run has no limit")),
        (Some(asked), Some(max)) if asked < max => {
            violations.push(Violation::new("max_iterations", format!("is {asked}; it only grows, and is {max}")));
        }
        (Some(_) | None, Some(_) | None) => {}
    }
    if !violations.is_empty() {
        return Err(Refusal::InvalidFields(violations));
    }
    if raised.is_some() && is_its_own_agents(run, command) {
        return Err(Refusal::SelfRaise { run: run.summary() });
    }
    let (spent, limit) = (stands.map_or(0, |stands| stands.iteration), raised.or(max));
    match limit {
        Some(limit) if suspension.by_limit && spent >= limit => {
            let (budget, spent, limit) = (ITERATIONS, spent.into(), limit.into());
            Err(Refusal::BudgetExceeded { budget, spent, limit, run: run.summary() })
        }
        Some(_) | None => Ok(()),
    }
}

/// From when on a run is ready to go on, and until when.
fn ready_again(suspension: &Suspension, Cx { at, .. }: Cx<'_>) -> Ready {
    let deadline = suspension.ready_timeout_ms.map(|timeout| at.plus_ms(timeout));
    Ready { at, deadline, not_begun: false }
}

/// A claim that let the run go on was not begun: the run waits as before, for the same workers. What was said with the
/// resumption was applied by the claim's event, and its time to be claimed begins anew.
pub(super) fn given_back(cx: Cx<'_>) -> Option<(Ready, RefinementsChange)> {
    let from = cx.run.refinements.as_ref()?.rest.resumed_from.as_deref()?;
    let said = from.resumption.as_deref().cloned();
    let rest = SuspensionsChange {
        suspension: Some(Box::new(Suspension { resumption: None, ..from.clone() })),
        resumption: said.map(|said| Box::new(Resumption { phase: None, max_iterations: None, ..said })),
    };
    Some((ready_again(from, cx), RefinementsChange { rest, ..RefinementsChange::default() }))
}

/// Refuses a resumption in a phase that suspends, and one without a phase where the run is in such a phase.
fn leaves(resume: &Resume, cx: Cx<'_>) -> Result<(), Refusal> {
    let Some(declared) = cx.declared() else { return Ok(()) };
    let to = resume.position.phase.as_deref();
    match declared.lifecycle.suspends(to.or(cx.phase()).unwrap_or_default()) {
        Some(_) => Err(invalid_resumption(declared, to, cx)),
        None => Ok(()),
    }
}

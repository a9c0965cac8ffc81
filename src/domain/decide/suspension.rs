//! Suspension and resumption: what a suspended run still takes, what suspends one, and how it goes on.

use super::changes::ABORT_REQUESTED;
use super::phases::{self, ITERATION_LIMIT, Step};
use super::{claim, event, lease};
use crate::domain::decision::{Context, Decision};
use crate::domain::lifecycle::LimitThen;
use crate::domain::{
    Ask, Asker, Brought, Changes, Command, Ending, EventType, Lease, LeaseEpoch, Principal, Refusal, Resume,
    Resumption, Run, Status, Suspension, SuspensionTerms, Time, Update, Violation,
};

/// The kind of a suspension by a limit of the run.
pub(in crate::domain) const BUDGET: &str = "BUDGET";

/// The name of the limit of iterations, as a refusal has it.
const ITERATIONS: &str = "iterations";

/// The kinds of suspension that nobody ends without a reason.
const WITH_REASON: &[&str] = &["HELP", "BLOCKED", "INTERRUPTED"];

/// Whether the command says of a suspended run that it is done, for those who executed it: somebody who looks at what the
/// run waits with, and is not its own agent.
pub(super) fn approves(run: &Run, command: &Command, context: &Context<'_>) -> bool {
    let Ask::Complete(complete) = &command.ask else { return false };
    let lifecycle = context.sides.lifecycle.declared().map(|declared| &declared.lifecycle);
    let phase = run.refinements.as_ref().and_then(|stands| stands.phase.as_deref());
    let declared = lifecycle.zip(phase).and_then(|(lifecycle, phase)| lifecycle.phase(phase));
    // The phase that the approval names counts as that of every completion does: what may follow is looked at later.
    let named = lifecycle.zip(complete.phase.as_deref()).and_then(|(lifecycle, phase)| lifecycle.phase(phase));
    let may_complete = declared.into_iter().chain(named).any(|phase| phase.may_complete);
    // One that was sent back, or is paused for another reason, does not wait for an approval.
    let awaits = |suspension: &Suspension| {
        may_complete && declared.is_some_and(|phase| phase.suspends.as_ref() == Some(&suspension.kind))
    };
    run.suspension().is_some_and(awaits)
        && !run.is_ready()
        && complete.lease_epoch.is_none()
        && command.agents.is_operators()
        && !is_its_own_agents(run, command)
        && !command.principal.identity.as_ref().is_some_and(|identity| run.supervision.was_executed_by(identity))
}

/// Whether an event shows a caller with a proven identity to execute its run without a lease, which the run does not know
/// of it: who starts such a run, or reports it before it waits. Nothing else tells who executes it.
pub(super) fn is_executor_shown(run: Option<&Run>, command: &Command, changes: &Changes) -> bool {
    let Some(identity) = &command.principal.identity else { return false };
    let supervision = run.map(|run| &run.supervision);
    let has_lease = changes.supervision.lease.is_some() || supervision.is_some_and(|all| all.lease.is_some());
    let is_running = run.is_some_and(|run| run.status == Status::Running && !run.is_at_rest());
    let agent_id = command.principal.agent_id.as_ref();
    let is_owner = agent_id.is_some() && run.and_then(|run| run.agent_id.as_ref()) == agent_id;
    let asker = command.ask.facts().asker;
    // Others may suspend it as well: who names its owner does so itself.
    let goes_on = asker == Asker::Worker || asker == Asker::Suspender && is_owner;
    let executes = asker == Asker::Starter || is_running && goes_on;
    executes && !has_lease && !supervision.is_some_and(|all| all.was_executed_by(identity))
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
pub(super) fn moves(run: &Run, command: &Command, context: &Context<'_>) -> bool {
    let Ask::Update(Update { phase: Some(to), .. }) = &command.ask else { return false };
    let Some(declared) = context.sides.lifecycle.declared() else { return false };
    let suspends = |phase: &str| declared.lifecycle.phase(phase).is_some_and(|phase| phase.suspends.is_some());
    let from = run.refinements.as_ref().and_then(|stands| stands.phase.as_deref());
    run.suspension().is_some()
        && !run.is_ready()
        && from.is_some_and(|from| from != to && suspends(from))
        && suspends(to)
}

/// Refuses what would go on with a suspended run. What is true of it is taken: that it is done, or cannot be done.
pub(super) fn goes_on(run: &Run, command: &Command, context: &Context<'_>) -> Result<(), Refusal> {
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
        Asker::Worker => !moves(run, command, context) || (is_anothers && by_its_own),
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

/// Suspends a running run; or ends it, where somebody has asked for that.
pub(super) fn suspend(run: &Run, command: &Command, context: &Context<'_>) -> Result<Decision, Refusal> {
    if !run.is_ready() && run.suspension().is_some_and(|suspension| is_same(suspension, &command.ask.brought())) {
        return Ok(Decision::Unchanged);
    }
    event(Some(run), command, context, suspends(run))
}

/// The event that suspends a run.
fn suspends(run: &Run) -> EventType {
    if run.supervision.abort_request.is_some() { EventType::Aborted } else { EventType::Suspended }
}

/// The event that an update makes, by its step.
pub(super) fn of_update(run: &Run, command: &Command, context: &Context<'_>) -> Result<EventType, Refusal> {
    let step = Step::of(Some(run), command, context)?;
    Ok(match step.above(Some(run)) {
        Some((_, LimitThen::Abort)) => EventType::Aborted,
        Some((_, LimitThen::Suspend)) => suspends(run),
        None if step.suspends(context).is_some() => suspends(run),
        // Above a limit that refuses, it is refused for that.
        Some((_, LimitThen::Refuse)) | None => EventType::Updated,
    })
}

/// Lets a suspended run go on: under a lease, or ready for one; only a run that never had one goes on without.
pub(super) fn resume(
    run: &Run,
    resume: &Resume,
    command: &Command,
    context: &Context<'_>,
) -> Result<Decision, Refusal> {
    let Some(suspension) = run.suspension().filter(|_| !run.is_ready()) else {
        return if resume.lease_ttl_ms.is_some() {
            let epoch = run.supervision.epoch();
            let ready = run.is_ready() || run.supervision.lease.is_some_and(|lease| lease.released);
            Err(Refusal::LeaseHeld { epoch, expires_at: None, ready, run: run.summary() })
        } else {
            Ok(Decision::Unchanged)
        };
    };
    may_resume(run, suspension, resume, command)?;
    let event_type = match (resume.lease_ttl_ms, run.supervision.lease) {
        (Some(_), _) => {
            claim::leaves_room(run, resume.max_running.as_ref(), context)?;
            EventType::Resumed
        }
        (None, Some(_)) => EventType::Ready,
        (None, None) => EventType::Resumed,
    };
    event(Some(run), command, context, event_type)
}

fn may_resume(run: &Run, suspension: &Suspension, resume: &Resume, command: &Command) -> Result<(), Refusal> {
    let mut violations = Vec::new();
    if resume.reason.is_none() && WITH_REASON.contains(&suspension.kind.as_str()) {
        violations.push(Violation::new("reason", format!("is required: the run is suspended by {}", suspension.kind)));
    }
    let stands = run.refinements.as_deref();
    let max = stands.and_then(|stands| stands.max_iterations);
    match (resume.max_iterations, max) {
        (Some(_), None) => violations.push(Violation::new("max_iterations", "must be absent: the run has no limit")),
        (Some(asked), Some(max)) if asked < max => {
            violations.push(Violation::new("max_iterations", format!("is {asked}; it only grows, and is {max}")));
        }
        (Some(_) | None, Some(_) | None) => {}
    }
    if !violations.is_empty() {
        return Err(Refusal::InvalidFields(violations));
    }
    if resume.max_iterations.is_some() && is_its_own_agents(run, command) {
        return Err(Refusal::SelfRaise { run: run.summary() });
    }
    let (spent, limit) = (stands.map_or(0, |stands| stands.iteration), resume.max_iterations.or(max));
    match limit {
        Some(limit) if suspension.by_limit && spent >= limit => {
            let (budget, spent, limit) = (ITERATIONS, spent.into(), limit.into());
            Err(Refusal::BudgetExceeded { budget, spent, limit, run: run.summary() })
        }
        Some(_) | None => Ok(()),
    }
}

/// The reason for which the authority suspends a run, or ends it instead.
struct Why<'a> {
    kind: &'a str,
    terms: SuspensionTerms,
    lease_epoch: Option<LeaseEpoch>,
}

/// The kind of the suspension that the command leads to; none where it leads to none.
pub(super) fn kind<'a>(run: &Run, command: &'a Command, context: &Context<'a>, step: &Step<'a>) -> Option<&'a str> {
    match (command.ask.brought().kind, step.above(Some(run))) {
        (Some(kind), _) => Some(kind),
        (None, Some((_, LimitThen::Suspend))) => Some(BUDGET),
        (None, Some((_, LimitThen::Refuse | LimitThen::Abort))) => None,
        (None, None) => step.suspends(context),
    }
}

/// Adds to an event's changes that it suspends its run, lets it go on, or makes it ready. The run's phase stands in the
/// changes already.
pub(super) fn add(
    run: Option<&Run>,
    command: &Command,
    context: &Context<'_>,
    (event_type, at): (EventType, Time),
    changes: &mut Changes,
) -> Result<(), Refusal> {
    let Some(run) = run else { return Ok(()) };
    let suspends = event_type == EventType::Suspended;
    if let Ask::Update(update) = &command.ask
        && !update.suspension.is_empty()
        && !suspends
        && event_type != EventType::Aborted
    {
        let fault = "must be absent: the call names no phase that suspends the run";
        return Err(Refusal::InvalidFields(vec![Violation::new("suspension", fault)]));
    }
    if suspends {
        let suspension = suspended(run, command, context, at, changes)?;
        changes.refinements.get_or_insert_default().suspension = Some(Box::new(suspension));
        let lease = run.supervision.lease.filter(|lease| !lease.resting);
        changes.supervision.lease = lease.map(|lease| Lease { resting: true, ..lease });
    }
    if let Ask::Resume(resume) = &command.ask {
        resumed(run, resume, command, (event_type, at), changes);
    } else if event_type == EventType::Ready {
        given_back(run, at, changes);
    }
    if event_type == EventType::Aborted && matches!(command.ask, Ask::Update(_) | Ask::Suspend(_)) {
        changes.ending = ended(run, command, context)?;
    }
    Ok(())
}

/// The end of a run that would have begun an iteration too many, or that was to be aborted and would have been suspended.
fn ended(run: &Run, command: &Command, context: &Context<'_>) -> Result<Ending, Refusal> {
    if let Ask::Update(_) = &command.ask
        && let Some((_, LimitThen::Abort)) = Step::of(Some(run), command, context)?.above(Some(run))
    {
        let reason = "the run would have begun one iteration more than it may".to_owned();
        return Ok(Ending { failure_reason: Some(reason), reason_code: Some(ITERATION_LIMIT.to_owned()) });
    }
    let request = run.supervision.abort_request.as_ref();
    let failure_reason = request.and_then(|request| request.reason.clone());
    Ok(Ending { failure_reason, reason_code: Some(ABORT_REQUESTED.to_owned()) })
}

fn suspended(
    run: &Run,
    command: &Command,
    context: &Context<'_>,
    at: Time,
    changes: &Changes,
) -> Result<Suspension, Refusal> {
    let lifecycle = context.sides.lifecycle.declared().map(|declared| &declared.lifecycle);
    let mut is_by_limit = false;
    let asked = command.ask.brought();
    let (terms, lease_epoch) = (asked.suspension.cloned().unwrap_or_default(), asked.terms.lease_epoch);
    let said = if let Some(kind) = asked.kind {
        Why { kind, terms, lease_epoch }
    } else {
        let step = Step::of(Some(run), command, context)?;
        if let Some((max, _)) = step.above(Some(run)) {
            // It is the run's own limit, whoever came to it.
            let reason = format!("the run would have begun one iteration more than the {max} that it may");
            let terms = SuspensionTerms { reason: Some(reason), ..SuspensionTerms::default() };
            is_by_limit = true;
            Why { kind: BUDGET, terms, lease_epoch: None }
        } else {
            Why { kind: step.suspends(context).unwrap_or_default(), terms, lease_epoch }
        }
    };
    let Why { kind, terms, lease_epoch } = said;
    let moved = changes.refinements.as_ref().and_then(|change| change.phase.as_deref());
    let stays = run.refinements.as_ref().and_then(|stands| stands.phase.as_deref());
    let phase = moved.or(stays);
    let declared = lifecycle.zip(phase).and_then(|(lifecycle, phase)| lifecycle.phase(phase));
    let timeout_ms = terms.timeout_ms.or_else(|| declared?.timeout_ms);
    Ok(Suspension {
        kind: kind.to_owned(),
        reason: terms.reason.unwrap_or_else(|| phase.unwrap_or(kind).to_owned()),
        resume_hint: terms.resume_hint,
        at,
        by: command.principal.clone(),
        // What another says of it does not hide who executed it.
        executed_by: if is_by_limit {
            Some(Box::new(command.principal.clone()))
        } else {
            run.suspension().and_then(executed_by).cloned().map(Box::new)
        },
        lease_epoch,
        deadline: timeout_ms.map(|timeout| at.plus_ms(timeout)),
        ready_timeout_ms: asked.terms.ready_timeout_ms.or_else(|| lifecycle?.ready_timeout_ms),
        // Another run may have the slot that this one gave up.
        keep_slot: (asked.kind.is_none() || asked.terms.keep_slot)
            && run.suspension().map_or(asked.kind.is_some() && !run.is_ready(), |standing| standing.keep_slot),
        // Another reason to wait gives no more to spend.
        by_limit: is_by_limit || run.suspension().is_some_and(|standing| standing.by_limit),
        resumption: None,
    })
}

/// What was said with the resumption stands in its event: what is applied now as the run's, what the claim is to apply as
/// the resumption's.
fn resumed(run: &Run, resume: &Resume, command: &Command, (event_type, at): (EventType, Time), changes: &mut Changes) {
    let change = changes.refinements.get_or_insert_default();
    let mut resumption = Resumption {
        at,
        by: command.principal.clone(),
        reason: resume.reason.clone(),
        phase: None,
        max_iterations: None,
    };
    if event_type == EventType::Ready {
        (resumption.phase, resumption.max_iterations) = (change.phase.take(), change.max_iterations.take());
        // The claim counts it.
        change.iteration = None;
        let ready_timeout_ms = run.suspension().and_then(|suspension| suspension.ready_timeout_ms);
        let deadline = ready_timeout_ms.map(|timeout| at.plus_ms(timeout));
        changes.supervision.ready = Some(Box::new(crate::domain::Ready { at, deadline, not_begun: false }));
    }
    change.resumption = Some(Box::new(resumption));
}

/// A claim that let the run go on was not begun: the run waits as before, for the same workers. What was said with the
/// resumption was applied by the claim's event, and its time to be claimed begins anew.
fn given_back(run: &Run, at: Time, changes: &mut Changes) {
    let Some(from) = run.refinements.as_ref().and_then(|stands| stands.resumed_from.as_deref()) else { return };
    let said = from.resumption.as_deref().cloned();
    let change = changes.refinements.get_or_insert_default();
    change.suspension = Some(Box::new(Suspension { resumption: None, ..from.clone() }));
    change.resumption = said.map(|said| Box::new(Resumption { phase: None, max_iterations: None, ..said }));
    let deadline = from.ready_timeout_ms.map(|timeout| at.plus_ms(timeout));
    changes.supervision.ready = Some(Box::new(crate::domain::Ready { at, deadline, not_begun: false }));
}

/// What a claim applies of what was said when its run was made ready.
pub(super) fn given(run: &Run) -> Option<&Resumption> {
    run.suspension().and_then(|suspension| suspension.resumption.as_deref())
}

/// The fields of a resumption that are the lease's.
pub(super) fn leased(run: Option<&Run>, resume: &Resume, command: &Command, context: &Context<'_>) -> Changes {
    let Some(ttl_ms) = resume.lease_ttl_ms else { return Changes::default() };
    let owner = run.and_then(|run| run.agent_id.as_ref());
    let agent_id = command.principal.agent_id.clone().filter(|agent_id| Some(agent_id) != owner);
    let mut changes = Changes { agent_id, ..Changes::default() };
    changes.supervision.lease = Some(lease::granted(run, context, ttl_ms));
    changes
}

/// Refuses a start in a phase that suspends: nothing of such a run would have been done.
pub(super) fn starts_in(step: &Step<'_>, context: &Context<'_>) -> Result<(), Refusal> {
    if step.suspends(context).is_none() {
        return Ok(());
    }
    let fault = "suspends the run: start it in another phase, and suspend it then";
    Err(Refusal::InvalidFields(vec![Violation::new("phase", fault)]))
}

/// Refuses a resumption in a phase that suspends, and one without a phase where the run is in such a phase.
pub(super) fn leaves(run: &Run, resume: &Resume, command: &Command, context: &Context<'_>) -> Result<(), Refusal> {
    let Some(declared) = context.sides.lifecycle.declared() else { return Ok(()) };
    let suspends = |phase: &str| declared.lifecycle.phase(phase).is_some_and(|phase| phase.suspends.is_some());
    let from = run.refinements.as_ref().and_then(|stands| stands.phase.as_deref());
    let to = resume.phase.as_deref().or(from).unwrap_or_default();
    if suspends(to) {
        return Err(phases::invalid_resumption(declared, &command.key, run, resume.phase.as_deref()));
    }
    Ok(())
}

//! The effect of a command on a run: every rule of the contract, in its order of checks.

mod changes;
mod claim;
pub(super) mod lease;
pub(super) mod masking;
mod origin;
pub(super) mod owner;
mod phases;
mod suspension;

use self::changes::{changes, within_limits};
use self::claim::{claimed_before, give_back, leaves_room, not_begun, take};
use self::lease::{holds_lease, is_the_holders};
pub use self::masking::masked;
use self::origin::same_identity;
use self::owner::{confined, owned, owned_by};
pub(super) use self::phases::ITERATION_LIMIT;
pub use super::decision::{AppliedRequest, Context, Decision};
use super::evolve::evolve;
use super::sweep::Due;
use super::{Ask, Changes, Command, Event, EventType, Refusal, Release, Request, Revision, Run, Start, Status};

/// Decides a command, whose values are [masked], on the run as it is.
///
/// # Errors
///
/// The refusal that the contract's order of checks comes to first.
pub fn decide(run: Option<&Run>, command: &Command, context: &Context<'_>) -> Result<Decision, Refusal> {
    if let Some(revision) = replayed(command, context)? {
        return Ok(Decision::Replayed { revision });
    }
    claimed_before(command, context)?;
    if let Some(expired) = run.and_then(Refusal::expired) {
        return Err(expired);
    }
    let Some(run) = existing(run, command)? else {
        context.sides.namespace.is_there(command)?;
        at_revision(None, command)?;
        context.sides.namespace.has_room()?;
        return event(None, command, context, EventType::Created);
    };
    same_identity(run, command)?;
    may_write(run, command, context)?;
    at_revision(Some(run), command)?;
    suspension::goes_on(run, command, context)?;
    match (run.status, &command.ask) {
        (Status::Pending, Ask::Start(Start { deferred: true, .. })) | (Status::Running, Ask::Start(_)) => {
            Ok(Decision::Unchanged)
        }
        (Status::Aborted | Status::Failed, Ask::Complete(_) | Ask::Fail(_) | Ask::Abort(_))
            if run.supervision.presumed && is_the_holders(command) =>
        {
            match run.supervision.late_report {
                None => event(Some(run), command, context, EventType::LateReported),
                Some(_) => Ok(Decision::Unchanged),
            }
        }
        (Status::Completed | Status::Aborted | Status::Failed, Ask::Archive) if run.archived_at.is_none() => {
            event(Some(run), command, context, EventType::Archived)
        }
        (Status::Completed | Status::Aborted | Status::Failed, Ask::Restore) if run.archived_at.is_some() => {
            event(Some(run), command, context, EventType::Restored)
        }
        (_, Ask::Redact(_)) => event(Some(run), command, context, EventType::Redacted),
        (_, Ask::Restore)
        | (Status::Completed, Ask::Complete(_))
        | (
            Status::Completed | Status::Aborted | Status::Failed,
            Ask::Abort(_) | Ask::Fail(_) | Ask::RequestAbort(_) | Ask::Sweep | Ask::Archive,
        ) => Ok(Decision::Unchanged),
        (Status::Pending, Ask::Start(Start { deferred: false, .. })) => {
            event(Some(run), command, context, EventType::Started)
        }
        (Status::Pending, Ask::Claim(claim)) => {
            leaves_room(run, claim.max_running.as_ref(), context)?;
            event(Some(run), command, context, EventType::Started)
        }
        (Status::Pending, Ask::Update(update)) if update.is_of_priority_alone() => {
            event(Some(run), command, context, EventType::Updated)
        }
        (Status::Running | Status::Completed | Status::Aborted | Status::Failed, Ask::Update(update))
            if update.priority.is_some() =>
        {
            Err(Refusal::RunNotPending { run: run.summary() })
        }
        (Status::Running, Ask::Update(_)) => {
            event(Some(run), command, context, suspension::of_update(run, command, context)?)
        }
        (Status::Running, Ask::Complete(_)) => event(Some(run), command, context, EventType::Completed),
        (Status::Pending | Status::Running, Ask::Abort(_)) | (Status::Pending, Ask::RequestAbort(_)) => {
            event(Some(run), command, context, EventType::Aborted)
        }
        (Status::Pending | Status::Running, Ask::Fail(_)) => event(Some(run), command, context, EventType::Failed),
        (Status::Running, Ask::Claim(claim)) => take(run, claim, command, context),
        (Status::Running, Ask::GiveBack(claim)) => give_back(run, command, claim, context),
        (Status::Running, Ask::Release(Release { not_begun: true, .. })) => not_begun(run, command, context),
        (Status::Running, Ask::Release(Release { not_begun: false, .. })) => {
            event(Some(run), command, context, EventType::Released)
        }
        // No worker executes the run and could be asked.
        (Status::Running, Ask::RequestAbort(_)) if run.is_at_rest() => {
            event(Some(run), command, context, EventType::Aborted)
        }
        (Status::Running, Ask::RequestAbort(_)) if run.supervision.abort_request.is_some() => Ok(Decision::Unchanged),
        (Status::Running, Ask::Suspend(_)) => suspension::suspend(run, command, context),
        (Status::Running, Ask::Resume(resume)) => suspension::resume(run, resume, command, context),
        (Status::Running, Ask::RequestAbort(_)) => event(Some(run), command, context, EventType::AbortRequested),
        (Status::Pending | Status::Running, Ask::Sweep) => sweep(run, command, context),
        (Status::Pending | Status::Running, Ask::Archive) => Err(Refusal::RunNotTerminal { run: run.summary() }),
        (
            Status::Pending | Status::Completed | Status::Aborted | Status::Failed,
            Ask::Update(_) | Ask::Release(_) | Ask::GiveBack(_) | Ask::Suspend(_) | Ask::Resume(_),
        ) => Err(Refusal::RunNotRunning { run: run.summary() }),
        (Status::Pending | Status::Aborted | Status::Failed, Ask::Complete(_)) => {
            Err(Refusal::InvalidTransition { run: run.summary(), to: Status::Completed })
        }
        (Status::Completed | Status::Aborted | Status::Failed, Ask::Start(Start { deferred: true, .. })) => {
            Err(Refusal::InvalidTransition { run: run.summary(), to: Status::Pending })
        }
        (
            Status::Completed | Status::Aborted | Status::Failed,
            Ask::Start(Start { deferred: false, .. }) | Ask::Claim(_),
        ) => Err(Refusal::InvalidTransition { run: run.summary(), to: Status::Running }),
    }
}

/// Refuses a command on a run that would be refused whatever values it brings: by the checks on the run and its caller, in
/// their order. A start may be of another run's identity, and what was applied before may be a replay: both rest on the
/// values.
fn refused_whatever_it_brings(run: Option<&Run>, command: &Command, context: &Context<'_>) -> Result<(), Refusal> {
    let Some(run) = run.filter(|_| context.applied.is_none() && !matches!(command.ask, Ask::Start(_))) else {
        return Ok(());
    };
    if let Some(expired) = Refusal::expired(run) {
        return Err(expired);
    }
    may_write(run, command, context)?;
    at_revision(Some(run), command)
}

/// Ends a run that is due, as what is due first ends it.
fn sweep(run: &Run, command: &Command, context: &Context<'_>) -> Result<Decision, Refusal> {
    match Due::of(run, context).map(Due::leads_to) {
        None => Ok(Decision::Unchanged),
        Some(Status::Failed) => event(Some(run), command, context, EventType::Failed),
        Some(Status::Pending | Status::Running | Status::Completed | Status::Aborted) => {
            event(Some(run), command, context, EventType::Aborted)
        }
    }
}

/// Who writes to a run holds its lease, where it has one, and is its owner. An approval comes from another, and so may
/// a call that moves a suspended run from phase to phase.
fn may_write(run: &Run, command: &Command, context: &Context<'_>) -> Result<(), Refusal> {
    if suspension::approves(run, command, context) {
        return Ok(());
    }
    if suspension::moves(run, command, context) && command.ask.brought().terms.lease_epoch.is_none() {
        confined(run, command)?;
        let agent_id = command.principal.agent_id.as_ref();
        return if command.agents.is_confined() { owned_by(run, command.ask.facts().rpc, agent_id) } else { Ok(()) };
    }
    holds_lease(run, command)?;
    owned(run, command)
}

fn replayed(command: &Command, context: &Context<'_>) -> Result<Option<Revision>, Refusal> {
    match (&command.request, context.applied) {
        (Some(Request { digest, .. }), Some(applied)) if applied.digest == *digest => Ok(Some(applied.revision)),
        (Some(Request { id, .. }), Some(_)) => {
            Err(Refusal::RequestIdReused { key: command.key.clone(), request_id: id.clone() })
        }
        (_, None) | (None, Some(_)) => Ok(None),
    }
}

fn existing<'a>(run: Option<&'a Run>, command: &Command) -> Result<Option<&'a Run>, Refusal> {
    match run {
        None if !matches!(command.ask, Ask::Start(_)) => Err(Refusal::RunNotFound { key: command.key.clone() }),
        Some(_) | None => Ok(run),
    }
}

fn at_revision(run: Option<&Run>, command: &Command) -> Result<(), Refusal> {
    match command.expected_revision {
        Some(expected) if expected != run.map_or(Revision::NONE, |run| run.revision) => {
            Err(Refusal::RevisionMismatch { key: command.key.clone(), expected, run: run.map(Run::summary) })
        }
        Some(_) | None => Ok(()),
    }
}

/// The event that a permitted command makes, and the run that it leads to, which must keep the limits.
fn event(
    run: Option<&Run>,
    command: &Command,
    context: &Context<'_>,
    event_type: EventType,
) -> Result<Decision, Refusal> {
    let at = run.map_or(context.now, |run| context.now.max(run.updated_at));
    let mut changes = changes(run, command, context, event_type, at);
    phases::add(run, command, context, event_type, &mut changes)?;
    suspension::add(run, command, context, (event_type, at), &mut changes)?;
    changes.supervision.to_grantee = lease::is_grantee_named(command, &changes);
    if event_type == EventType::Updated && changes == Changes::default() {
        return Ok(Decision::Unchanged);
    }
    changes.supervision.executor = if lease::is_executor_left(run, command, event_type, &changes) {
        Some(crate::domain::Executor::Grantee)
    } else {
        suspension::is_executor_shown(run, command, &changes).then_some(crate::domain::Executor::Caller)
    };
    let from = run.map(|run| run.status);
    let to = event_type.facts().leads_to.or(from).or(command.ask.facts().leads_to);
    let mut event = Event {
        key: command.key.clone(),
        revision: run.map_or(Revision::FIRST, |run| run.revision.next()),
        at,
        steady_ahead_micros: context.steady.ahead_of(at),
        request_id: command.request.as_ref().map(|request| request.id.clone()),
        event_type,
        from,
        to: to.expect("a start leads somewhere, and all else has a run"),
        principal: command.principal.clone(),
        trace: command.trace,
        changes,
    };
    let mut next = evolve(run.cloned(), &event);
    phases::name(&mut event, &mut next, context.sides.lifecycle);
    within_limits(&next, &event.changes)?;
    Ok(Decision::Apply(Box::new(event), Box::new(next)))
}

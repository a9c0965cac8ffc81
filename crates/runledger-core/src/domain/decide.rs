//! The effect of a command on a run: every rule of the contract, in its order of checks.

mod attempts;
mod claim;
mod effect;
mod ending;
pub(super) mod lease;
mod masking;
mod max_running;
mod origin;
pub(super) mod owner;
mod phases;
mod start;
mod suspension;
mod update;

use self::claim::claimed_before;
use self::effect::{Cx, Permitted};
pub(super) use self::ending::ITERATION_LIMIT;
use self::lease::holds_lease;
pub use self::masking::masked;
use self::origin::same_identity;
use self::owner::{confined, owned, owned_by};
pub use super::context::{AppliedRequest, Context};
pub use super::decision::Decision;
use super::evolve::evolve;
use super::limits::{LABELS_MAX, LINKS_MAX, METADATA_BYTES_MAX};
use super::{
    Ask, Changes, Command, End, EventType, Refusal, Release, Request, Revision, Run, Start, Status, Violation,
};

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
    let made = match run {
        None => creation(command, context),
        Some(run) => change(Cx::new(run, command, context)),
    };
    let Some(mut event) = made? else { return Ok(Decision::Unchanged) };
    let mut next = Box::new(evolve(run.cloned(), &event));
    phases::name(&mut event, &mut next, context.sides.lifecycle);
    within_limits(&next, &event.changes)?;
    Ok(Decision::Apply(event, next))
}

/// What a command does where its run is not there: a start creates it.
fn creation(command: &Command, context: &Context<'_>) -> Permitted {
    let Ask::Start(start) = &command.ask else {
        return Err(Refusal::RunNotFound { key: command.key.clone() });
    };
    context.sides.namespace.is_there(command)?;
    at_revision(None, command)?;
    context.sides.namespace.has_room()?;
    start::created(start, command, context)
}

/// What a command does to its run, once its caller may do that.
fn change(cx: Cx<'_>) -> Permitted {
    let Cx { run, command, .. } = cx;
    same_identity(run, command)?;
    may_write(cx)?;
    at_revision(Some(run), command)?;
    attempts::is_open(cx)?;
    suspension::goes_on(cx)?;
    effect(cx)
}

/// The matrix: what each ask does to a run of each status.
fn effect(cx: Cx<'_>) -> Permitted {
    use Status::{Aborted, Completed, Failed, Pending, Running};
    let Cx { run, command, context, .. } = cx;
    let presumed = run.supervision.presumed;
    let refused = |to| Err(Refusal::InvalidTransition { run: run.summary(), to });
    match (run.status, &command.ask) {
        (Aborted | Failed, Ask::Complete(_)) if presumed => ending::reported_late(Completed, cx),
        (Aborted | Failed, Ask::Fail(_)) if presumed => ending::reported_late(Failed, cx),
        // An abort is open to every caller, and is a report by the run's worker only under a lease.
        (Aborted | Failed, Ask::Abort(End { lease_epoch: Some(_), .. })) if presumed => {
            ending::reported_late(Aborted, cx)
        }
        (Completed | Aborted | Failed, Ask::Archive) if run.archived_at.is_none() => {
            cx.makes(EventType::Archived, Changes::default())
        }
        (Completed | Aborted | Failed, Ask::Restore) if run.archived_at.is_some() => {
            cx.makes(EventType::Restored, Changes::default())
        }
        (_, Ask::Redact(redaction)) => {
            let redaction = Some(Box::new(redaction.clone()));
            cx.makes(EventType::Redacted, Changes { redaction, ..Changes::default() })
        }
        (_, Ask::Restore)
        | (Pending, Ask::Start(Start { deferred: true, .. }))
        | (Running, Ask::Start(_))
        | (Completed, Ask::Complete(_))
        | (
            Completed | Aborted | Failed,
            Ask::Abort(_) | Ask::Fail(_) | Ask::RequestAbort(_) | Ask::Sweep | Ask::Archive,
        ) => Ok(None),
        (Pending, Ask::Start(start)) => start::started(start, cx),
        (Pending, Ask::Claim(claim)) => claim::start(claim, cx),
        (Pending, Ask::Update(update)) if update.is_of_priority_alone() => update::updated(update, cx),
        (Running | Completed | Aborted | Failed, Ask::Update(update)) if update.priority.is_some() => {
            Err(Refusal::RunNotPending { run: run.summary() })
        }
        (Running, Ask::Update(update)) => update::updated(update, cx),
        (Running, Ask::Complete(complete)) => ending::completed(complete, cx),
        (Pending | Running, Ask::Abort(end)) => ending::ended(end, EventType::Aborted, cx),
        // The holder says once more that its attempt has failed; what the authority has concluded before is said for the first
        // time.
        (Running, Ask::Fail(End { is_final: false, .. }))
            if run.is_between_attempts() && !attempts::is_presumed(run) =>
        {
            Ok(None)
        }
        (Running, Ask::Fail(end)) if !end.is_final && run.is_between_attempts() => ending::attempt_failed(end, cx),
        (Running, Ask::Fail(end)) if !end.is_final && attempts::are_left(run) => ending::attempt_failed(end, cx),
        (Pending | Running, Ask::Fail(end)) => ending::ended(end, EventType::Failed, cx),
        (Pending, Ask::RequestAbort(request)) => ending::aborted_at_once(request, cx),
        (Running, Ask::Claim(claim)) => claim::take(claim, cx),
        (Running, Ask::GiveBack(claim)) => claim::give_back(claim, cx),
        (Running, Ask::Release(Release { not_begun: true, .. })) => claim::not_begun(cx),
        (Running, Ask::Release(Release { not_begun: false, .. })) => {
            cx.makes(EventType::Released, Changes { supervision: lease::released(run, context), ..Changes::default() })
        }
        // No worker executes the run and could be asked.
        (Running, Ask::RequestAbort(request)) if run.is_at_rest() => ending::aborted_at_once(request, cx),
        (Running, Ask::RequestAbort(_)) if run.supervision.abort_request.is_some() => Ok(None),
        (Running, Ask::RequestAbort(request)) => ending::requested(request, cx),
        (Running, Ask::Suspend(suspend)) => suspension::suspend(suspend, cx),
        (Running, Ask::Resume(resume)) => suspension::resume(resume, cx),
        (Pending | Running, Ask::Sweep) => ending::swept(cx),
        (Pending | Running, Ask::Archive) => Err(Refusal::RunNotTerminal { run: run.summary() }),
        (
            Pending | Completed | Aborted | Failed,
            Ask::Update(_) | Ask::Release(_) | Ask::GiveBack(_) | Ask::Suspend(_) | Ask::Resume(_),
        ) => Err(Refusal::RunNotRunning { run: run.summary() }),
        (Pending | Aborted | Failed, Ask::Complete(_)) => refused(Completed),
        (Completed | Aborted | Failed, Ask::Start(Start { deferred: true, .. })) => refused(Pending),
        (Completed | Aborted | Failed, Ask::Start(_) | Ask::Claim(_)) => refused(Running),
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
    may_write(Cx::new(run, command, context))?;
    at_revision(Some(run), command)
}

/// Who writes to a run holds its lease, where it has one, and is its owner. An approval comes from another, and so may
/// a call that moves a suspended run from phase to phase.
fn may_write(cx: Cx<'_>) -> Result<(), Refusal> {
    let Cx { run, command, .. } = cx;
    if suspension::approves(cx) {
        return Ok(());
    }
    if suspension::moves(cx) && command.ask.brought().terms.lease_epoch.is_none() {
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

fn at_revision(run: Option<&Run>, command: &Command) -> Result<(), Refusal> {
    match command.expected_revision {
        Some(expected) if expected != run.map_or(Revision::NONE, |run| run.revision) => {
            Err(Refusal::RevisionMismatch { key: command.key.clone(), expected, run: run.map(Run::summary) })
        }
        Some(_) | None => Ok(()),
    }
}

/// Refuses what would take the run beyond its limits.
fn within_limits(run: &Run, changes: &Changes) -> Result<(), Refusal> {
    let adds_links = changes.refinements.as_ref().is_some_and(|refinements| !refinements.attachments.links.is_empty());
    let links = if adds_links { usize::try_from(run.all_links()).unwrap_or(usize::MAX) } else { 0 };
    let bytes = if changes.metadata.is_empty() { 0 } else { run.metadata.bytes() };
    let violations: Vec<_> = [
        ("labels", run.labels.len(), "labels", LABELS_MAX),
        ("links", links, "links", LINKS_MAX),
        ("metadata", bytes, "bytes of metadata as compact JSON", METADATA_BYTES_MAX),
    ]
    .into_iter()
    .filter(|(_, found, _, max)| found > max)
    .map(|(field, found, what, max)| (field, format!("the run would have {found} {what}; the limit is {max}")))
    .map(|(field, fault)| Violation::new(field, fault))
    .collect();
    if violations.is_empty() { Ok(()) } else { Err(Refusal::InvalidFields(violations)) }
}

//! What a command does to a run: every rule of the contract, in its order of checks.

use super::evolve::evolve;
use super::limits::{LABELS_MAX, METADATA_BYTES_MAX};
use super::{Changes, Command, Event, EventType, Operation, Refusal, Request, Run, Status, Time, Violation};

/// What a decision rests on besides the run and the command.
#[derive(Clone, Copy, Debug)]
pub struct Context<'a> {
    /// The store's clock, not before the shard's last event.
    pub now: Time,
    /// What the run's history says of the command's `request_id`.
    pub applied: Option<&'a AppliedRequest>,
}

/// A call that was applied under a `request_id`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AppliedRequest {
    /// The revision of the event that it made.
    pub revision: u64,
    /// See [`Command::digest`].
    pub digest: [u8; 32],
}

/// What a command does, when it is not refused.
#[derive(Clone, Debug, PartialEq)]
pub enum Decision {
    /// It makes this event, which makes this run.
    Apply(Box<Event>, Box<Run>),
    /// It is a permitted no-op.
    Unchanged,
    /// It was applied before, as this revision.
    Replayed {
        /// The revision of the event that the first call made.
        revision: u64,
    },
}

/// Decides a command on the run as it is.
///
/// # Errors
///
/// The refusal that the contract's order of checks comes to first.
pub fn decide(run: Option<&Run>, command: &Command, context: &Context<'_>) -> Result<Decision, Refusal> {
    if let Some(revision) = replayed(command, context)? {
        return Ok(Decision::Replayed { revision });
    }
    let Some(run) = existing(run, command)? else {
        at_revision(None, command)?;
        return event(None, command, context, EventType::Created);
    };
    same_identity(run, command)?;
    owned(run, command)?;
    at_revision(Some(run), command)?;
    match (run.status, command.operation) {
        (Status::Pending, Operation::Start { deferred: true })
        | (Status::Running, Operation::Start { .. })
        | (Status::Completed, Operation::Complete)
        | (Status::Completed | Status::Aborted | Status::Failed, Operation::Abort | Operation::Fail) => {
            Ok(Decision::Unchanged)
        }
        (Status::Pending, Operation::Start { deferred: false }) => {
            event(Some(run), command, context, EventType::Started)
        }
        (Status::Running, Operation::Update) => event(Some(run), command, context, EventType::Updated),
        (Status::Running, Operation::Complete) => event(Some(run), command, context, EventType::Completed),
        (Status::Pending | Status::Running, Operation::Abort) => event(Some(run), command, context, EventType::Aborted),
        (Status::Pending | Status::Running, Operation::Fail) => event(Some(run), command, context, EventType::Failed),
        (Status::Pending | Status::Completed | Status::Aborted | Status::Failed, Operation::Update) => {
            Err(Refusal::RunNotRunning { run: run.summary() })
        }
        (Status::Pending | Status::Aborted | Status::Failed, Operation::Complete) => {
            Err(Refusal::InvalidTransition { run: run.summary(), to: Status::Completed })
        }
        (Status::Completed | Status::Aborted | Status::Failed, Operation::Start { deferred }) => {
            let to = if deferred { Status::Pending } else { Status::Running };
            Err(Refusal::InvalidTransition { run: run.summary(), to })
        }
    }
}

fn replayed(command: &Command, context: &Context<'_>) -> Result<Option<u64>, Refusal> {
    match (&command.request, context.applied) {
        (Some(Request { digest, .. }), Some(applied)) if applied.digest == *digest => Ok(Some(applied.revision)),
        (Some(Request { id, .. }), Some(_)) => {
            Err(Refusal::RequestIdReused { key: command.key.clone(), request_id: id.clone() })
        }
        (_, None) | (None, Some(_)) => Ok(None),
    }
}

fn existing<'a>(run: Option<&'a Run>, command: &Command) -> Result<Option<&'a Run>, Refusal> {
    match (run, command.operation) {
        (Some(run), _) => Ok(Some(run)),
        (None, Operation::Start { .. }) => Ok(None),
        (None, Operation::Update | Operation::Complete | Operation::Abort | Operation::Fail) => {
            Err(Refusal::RunNotFound { key: command.key.clone() })
        }
    }
}

fn same_identity(run: &Run, command: &Command) -> Result<(), Refusal> {
    let conflict = |field, requested: &str, actual: &str| Refusal::RunIdConflict {
        field,
        requested: requested.to_owned(),
        actual: actual.to_owned(),
        run: run.summary(),
    };
    match command.operation {
        Operation::Start { .. } => {}
        Operation::Update | Operation::Complete | Operation::Abort | Operation::Fail => return Ok(()),
    }
    match &command.changes.task_thread_id {
        Some(requested) if *requested != run.task_thread_id => {
            return Err(conflict("task_thread_id", requested, &run.task_thread_id));
        }
        Some(_) | None => {}
    }
    match (&command.changes.agent_id, &run.agent_id) {
        (Some(requested), Some(actual)) if requested != actual => Err(conflict("agent_id", requested, actual)),
        (Some(_) | None, Some(_) | None) => Ok(()),
    }
}

/// An abort is open to everyone, and so is everything to a caller that names no agent.
fn owned(run: &Run, command: &Command) -> Result<(), Refusal> {
    match command.operation {
        Operation::Start { .. } | Operation::Abort => return Ok(()),
        Operation::Update | Operation::Complete | Operation::Fail => {}
    }
    match (&command.principal.agent_id, &run.agent_id) {
        (Some(agent_id), Some(owner)) if agent_id != owner => Err(Refusal::NotOwner {
            agent_id: agent_id.clone(),
            owner_agent_id: owner.clone(),
            tab_group_id: run.tab_group_id.clone(),
            operation: command.operation,
            key: command.key.clone(),
        }),
        (Some(_) | None, Some(_) | None) => Ok(()),
    }
}

fn at_revision(run: Option<&Run>, command: &Command) -> Result<(), Refusal> {
    match command.expected_revision {
        Some(expected) if expected != run.map_or(0, |run| run.revision) => {
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
    let changes = effective(run, command);
    if event_type == EventType::Updated && changes == Changes::default() {
        return Ok(Decision::Unchanged);
    }
    let from = run.map(|run| run.status);
    let event = Event {
        key: command.key.clone(),
        revision: run.map_or(0, |run| run.revision) + 1,
        at: run.map_or(context.now, |run| context.now.max(run.updated_at)),
        request_id: command.request.as_ref().map(|request| request.id.clone()),
        event_type,
        from,
        to: command.operation.leads_to().or(from).expect("only an update leads nowhere, and it has a run"),
        principal: command.principal.clone(),
        changes,
    };
    let next = evolve(run.cloned(), &event);
    within_limits(&next, &event.changes)?;
    Ok(Decision::Apply(Box::new(event), Box::new(next)))
}

/// What of the command's changes changes the run.
fn effective(run: Option<&Run>, command: &Command) -> Changes {
    let mut changes = command.changes.clone();
    let owner = run.and_then(|run| run.agent_id.as_ref());
    if matches!(command.operation, Operation::Start { .. }) && changes.agent_id.is_none() {
        changes.agent_id.clone_from(&command.principal.agent_id);
    }
    if owner.is_some() {
        changes.agent_id = None;
    }
    if run.is_some() {
        changes.task_thread_id = None;
    }
    if let Some(run) = run {
        changes.route = changes.route.filter(|route| run.route != Some(*route));
        changes.fallback_used &= !run.fallback_used;
        changes.labels.retain(|key, value| run.labels.get(key) != Some(value));
        changes.remove_labels.retain(|key| run.labels.contains_key(key));
        if !changes.metadata.is_empty() && run.metadata.merged(&changes.metadata) == run.metadata {
            changes.metadata = super::Metadata::default();
        }
    }
    for (change, now) in [
        (&mut changes.tab_group_id, run.and_then(|run| run.tab_group_id.as_deref())),
        (&mut changes.audit_session_id, run.and_then(|run| run.audit_session_id.as_deref())),
        (&mut changes.workflow_id, run.and_then(|run| run.workflow_id.as_deref())),
    ] {
        *change = change.take().filter(|value| value != now.unwrap_or_default());
    }
    changes
}

fn within_limits(run: &Run, changes: &Changes) -> Result<(), Refusal> {
    let mut violations = Vec::new();
    if run.labels.len() > LABELS_MAX {
        let found = run.labels.len();
        violations
            .push(Violation::new("labels", format!("the run would have {found} labels; the limit is {LABELS_MAX}")));
    }
    if !changes.metadata.is_empty() {
        let bytes = run.metadata.bytes();
        if bytes > METADATA_BYTES_MAX {
            violations.push(Violation::new(
                "metadata",
                format!(
                    "the run would have {bytes} bytes of metadata as compact JSON; the limit is {METADATA_BYTES_MAX}"
                ),
            ));
        }
    }
    if violations.is_empty() { Ok(()) } else { Err(Refusal::InvalidFields(violations)) }
}

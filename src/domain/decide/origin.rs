//! The rules of a run's identity and origin, which its creation settles.

use crate::domain::{Ask, Command, Content, ContentDigest, LifecyclePin, Refusal, Run, Start, Status};

/// Refuses a start of a run that is there and is another than the one which the start means.
pub(super) fn same_identity(run: &Run, command: &Command) -> Result<(), Refusal> {
    let conflict = |field, requested: &str, actual: &str| Refusal::RunIdConflict {
        field,
        requested: requested.to_owned(),
        actual: actual.to_owned(),
        run: run.summary(),
    };
    let Ask::Start(start) = &command.ask else { return Ok(()) };
    if start.task_thread_id != run.task_thread_id {
        return Err(conflict("task_thread_id", &start.task_thread_id, &run.task_thread_id));
    }
    match (&start.agent_id, &run.agent_id) {
        (Some(requested), Some(actual)) if requested != actual => Err(conflict("agent_id", requested, actual)),
        (Some(_) | None, Some(_) | None) => same_origin(run, start, conflict),
    }
}

/// Refuses a start of a pending run with another origin than it was created with. Once the run was started, nothing
/// rests on what a later start says of it.
fn same_origin(
    run: &Run,
    start: &Start,
    conflict: impl Fn(&'static str, &str, &str) -> Refusal,
) -> Result<(), Refusal> {
    if run.status != Status::Pending {
        return Ok(());
    }
    let kept = run.refinements.as_deref().cloned().unwrap_or_default();
    // The newest version of a name is whichever the run is pinned to.
    let pinned = |pin: &LifecyclePin| match &start.lifecycle {
        Some(name) if name.is(&pin.id) => name.to_string(),
        Some(_) | None => pin.id.to_string(),
    };
    let hash = |digest: Option<ContentDigest>| digest.map(|digest| digest.sha256.to_string());
    for (field, requested, actual) in [
        ("input", hash(start.input.as_ref().map(Content::digest)), hash(kept.input)),
        ("parent_run_id", start.parent_run_id.as_ref().map(ToString::to_string), kept.parent_run_id.map(Into::into)),
        (
            "continues_run_id",
            start.continues_run_id.as_ref().map(ToString::to_string),
            kept.continues_run_id.map(Into::into),
        ),
        ("lifecycle", start.lifecycle.as_ref().map(ToString::to_string), kept.lifecycle.as_ref().map(pinned)),
        (
            "max_iterations",
            start.max_iterations.map(|max| max.to_string()),
            kept.max_iterations.map(|max| max.to_string()),
        ),
        (
            "max_iterations_then",
            start.max_iterations_then.map(|then| then.name().to_owned()),
            Some(kept.max_iterations_then.unwrap_or_default().name().to_owned()),
        ),
    ] {
        if let Some(requested) = requested.filter(|requested| Some(requested) != actual.as_ref()) {
            return Err(conflict(field, &requested, &actual.unwrap_or_default()));
        }
    }
    Ok(())
}

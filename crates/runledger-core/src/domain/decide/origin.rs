//! The rules of a run's identity and origin, which its creation settles.

use crate::domain::{Ask, Attempts, Command, Content, ContentDigest, Refinements, Refusal, Run, Start, Status};

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
    let none = Refinements::default();
    let Refinements { attachments, origin, position, attempts, priority: _, rest: _ } =
        run.refinements.as_deref().unwrap_or(&none);
    let hash = |digest: Option<ContentDigest>| digest.map(|digest| digest.sha256.to_string());
    let input = ("input", hash(start.input.as_ref().map(Content::digest)), hash(attachments.input));
    let tries = Attempts::beside(attempts.as_deref(), start.max_attempts, start.attempt_timeout_ms);
    let said =
        [input].into_iter().chain(origin.beside(&start.origin)).chain(position.beside(&start.position)).chain(tries);
    for (field, requested, actual) in said {
        if let Some(requested) = requested.filter(|requested| Some(requested) != actual.as_ref()) {
            return Err(conflict(field, &requested, &actual.unwrap_or_default()));
        }
    }
    Ok(())
}

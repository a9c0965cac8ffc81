//! The fold: an event makes a run. The fold is pure and total: any event applies to any run.

use super::run::set;
use super::{Event, EventType, Refinements, Run, Status};

/// The run right after the event.
#[must_use]
pub fn evolve(run: Option<Run>, event: &Event) -> Run {
    let mut run = run.unwrap_or_else(|| Run::blank(event));
    let changes = &event.changes;
    run.status = event.to;
    run.revision = event.revision;
    run.updated_at = event.at;
    if event.to == Status::Running && run.running_at.is_none() {
        run.running_at = Some(event.at);
    }
    if event.to.is_terminal() && run.completed_at.is_none() {
        run.completed_at = Some(event.at);
    }
    if event.event_type == EventType::Archived {
        run.archived_at = Some(event.at);
    }
    if event.event_type == EventType::Restored {
        run.archived_at = None;
    }
    if let Some(task_thread_id) = &changes.task_thread_id {
        run.task_thread_id.clone_from(task_thread_id);
    }
    set(&mut run.agent_id, changes.agent_id.as_ref());
    run.links.fold(&changes.links);
    run.ending.fold(&changes.ending);
    changes.labels.fold_into(&mut run.labels);
    let rested_since = run.rests_since();
    run.supervision.fold(event);
    Refinements::fold(&mut run.refinements, event);
    if let Some(since) = rested_since
        && event.to == Status::Running
        && run.rests_since() != rested_since
    {
        run.supervision.rest_micros += event.at.micros() - since.micros();
    }
    if !changes.metadata.is_empty() {
        run.metadata = run.metadata.merged(&changes.metadata);
    }
    if let Some(redaction) = &changes.redaction {
        redaction.of_run(&mut run);
    }
    run
}

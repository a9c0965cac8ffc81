//! The fold: an event makes a run. The fold is pure and total: any event applies to any run.

use super::run::set;
use super::steady::shift;
use super::{Event, EventType, Refinements, Revision, Run, Status};

/// The run right after the event.
#[must_use]
pub fn evolve(run: Option<Run>, event: &Event) -> Run {
    let mut run = run.unwrap_or_else(|| Run::new(event.key.clone(), event.to, event.at));
    let changes = &event.changes;
    keep_deadlines(&mut run, event);
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

/// Notes the difference of the clocks, and keeps the deadlines of before where they are by the steady one. The deadline of a
/// run that waits to be started is counted from its creation, and from no later event.
fn keep_deadlines(run: &mut Run, event: &Event) {
    let is_new = run.revision == Revision::NONE;
    if !is_new && run.status == Status::Pending && event.to == Status::Pending {
        return;
    }
    if !is_new && run.status == Status::Running {
        let shift = shift(run, event);
        let is_at_rest = run.is_at_rest();
        run.supervision.reckon_anew(shift, is_at_rest);
        Refinements::reckon_anew(&mut run.refinements, shift);
    }
    run.supervision.steady_ahead_micros = event.steady_ahead_micros;
}

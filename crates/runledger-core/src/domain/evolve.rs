//! The fold: an event makes a run. The fold is pure and total: any event applies to any run.

use super::parts::texts::set;
use super::steady::shift;
use super::{Changes, Event, EventType, Refinements, Revision, Run, Status};

/// The run right after the event.
#[must_use]
pub fn evolve(run: Option<Run>, event: &Event) -> Run {
    let mut run = run.unwrap_or_else(|| Run::new(event.key.clone(), event.to, event.at));
    let happened = event.happened();
    let Changes { task_thread_id, agent_id, bindings, ending, labels, metadata, supervision, redaction, refinements } =
        &event.changes;
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
    if let Some(task_thread_id) = task_thread_id {
        run.task_thread_id.clone_from(task_thread_id);
    }
    set(&mut run.agent_id, agent_id.as_ref());
    run.bindings.fold(bindings);
    run.ending.fold(ending);
    labels.fold_into(&mut run.labels);
    // How long the run was at rest is told by what it was before these two are folded, and by what it is after.
    let rested_since = run.rests_since();
    run.supervision.fold(supervision, happened);
    Refinements::fold(&mut run.refinements, refinements.as_deref(), happened);
    if let Some(since) = rested_since
        && event.to == Status::Running
        && run.rests_since() != rested_since
    {
        run.supervision.rest_micros += event.at.micros() - since.micros();
    }
    if !metadata.is_empty() {
        run.metadata = run.metadata.merged(metadata);
    }
    if let Some(redaction) = redaction {
        run.take_out(redaction);
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
        let noted = run.supervision.steady_ahead_micros;
        let shift = shift((run.updated_at, noted), (event.at, event.steady_ahead_micros));
        let is_at_rest = run.is_at_rest();
        run.supervision.reckon_anew(shift, is_at_rest);
        if let Some(refinements) = run.refinements.as_mut().filter(|_| shift != 0) {
            refinements.rest.reckon_anew(shift);
        }
    }
    run.supervision.steady_ahead_micros = event.steady_ahead_micros;
}

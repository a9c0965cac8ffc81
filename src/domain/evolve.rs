//! What an event makes of a run. Pure and total: any event applies to any run.

use super::{Event, EventType, Metadata, Run, Status, Supervision};

/// The run right after the event.
#[must_use]
pub fn evolve(run: Option<Run>, event: &Event) -> Run {
    let mut run = run.unwrap_or_else(|| blank(event));
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
    if let Some(task_thread_id) = &changes.task_thread_id {
        run.task_thread_id.clone_from(task_thread_id);
    }
    if let Some(route) = changes.route {
        run.route = Some(route);
    }
    run.fallback_used |= changes.fallback_used;
    set(&mut run.agent_id, changes.agent_id.as_ref());
    set(&mut run.tab_group_id, changes.tab_group_id.as_ref());
    set(&mut run.audit_session_id, changes.audit_session_id.as_ref());
    set(&mut run.workflow_id, changes.workflow_id.as_ref());
    set(&mut run.failure_reason, changes.failure_reason.as_ref());
    set(&mut run.reason_code, changes.reason_code.as_ref());
    for key in &changes.remove_labels {
        run.labels.remove(key);
    }
    run.labels.extend(changes.labels.clone());
    let supervision = &mut run.supervision;
    supervision.lease = changes.lease.or(supervision.lease);
    supervision.start_deadline = changes.start_deadline.or(supervision.start_deadline);
    supervision.run_timeout_ms = changes.run_timeout_ms.or(supervision.run_timeout_ms);
    supervision.presumed |= changes.presumed;
    // Whatever happens to a run that is ready ends that; and after any event of its own a claim has been begun. A request
    // to abort the run is somebody else's.
    if event.event_type != EventType::AbortRequested {
        if let Some(ready) = supervision.ready.take().filter(|_| event.to == Status::Running) {
            supervision.rest_micros += event.at.micros() - ready.at.micros();
        }
        supervision.ready.clone_from(&changes.ready);
        supervision.unbegun.clone_from(&changes.unbegun);
    }
    if let Some(request) = &changes.abort_request {
        supervision.abort_request = Some(request.clone());
    }
    if let Some(report) = &changes.late_report {
        supervision.late_report = Some(Box::new(report.without_metadata()));
    }
    if !changes.metadata.is_empty() {
        run.metadata = run.metadata.merged(&changes.metadata);
    }
    run
}

/// Absent stays, empty clears.
fn set(field: &mut Option<String>, change: Option<&String>) {
    if let Some(value) = change {
        *field = Some(value.clone()).filter(|value| !value.is_empty());
    }
}

fn blank(event: &Event) -> Run {
    Run {
        task_thread_id: String::new(),
        run_id: event.key.run_id.clone(),
        namespace: event.key.namespace.clone(),
        status: event.to,
        revision: 0,
        started_at: event.at,
        updated_at: event.at,
        running_at: None,
        completed_at: None,
        route: None,
        fallback_used: false,
        agent_id: None,
        tab_group_id: None,
        audit_session_id: None,
        workflow_id: None,
        failure_reason: None,
        reason_code: None,
        labels: std::collections::BTreeMap::new(),
        supervision: Supervision::default(),
        metadata: Metadata::default(),
    }
}

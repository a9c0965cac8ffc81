//! Domain values as the wire shows them.

use prost_types::Timestamp;

use super::json::structure;
use super::v1;
use crate::domain::command::{Changes, Principal, PrincipalKind};
use crate::domain::{Event, EventType, Metadata, Route, Run, Status, Summary, Time, Verdict};

impl From<&Run> for v1::Run {
    fn from(run: &Run) -> Self {
        Self {
            task_thread_id: run.task_thread_id.clone(),
            run_id: run.run_id.clone(),
            status: v1::RunStatus::from(run.status).into(),
            started_at: Some(timestamp(run.started_at)),
            route: route(run.route).into(),
            fallback_used: run.fallback_used,
            agent_id: text(run.agent_id.as_ref()),
            tab_group_id: text(run.tab_group_id.as_ref()),
            audit_session_id: text(run.audit_session_id.as_ref()),
            workflow_id: text(run.workflow_id.as_ref()),
            completed_at: run.completed_at.map(timestamp),
            failure_reason: text(run.failure_reason.as_ref()),
            metadata: metadata(&run.metadata),
            revision: run.revision,
            running_at: run.running_at.map(timestamp),
            updated_at: Some(timestamp(run.updated_at)),
            reason_code: text(run.reason_code.as_ref()),
            labels: run.labels.iter().map(|(key, value)| (key.clone(), value.clone())).collect(),
            namespace: run.namespace.clone(),
        }
    }
}

impl From<&Summary> for v1::RunSummary {
    fn from(run: &Summary) -> Self {
        Self {
            namespace: run.namespace.clone(),
            run_id: run.run_id.clone(),
            task_thread_id: run.task_thread_id.clone(),
            agent_id: text(run.agent_id.as_ref()),
            status: v1::RunStatus::from(run.status).into(),
            revision: run.revision,
            started_at: Some(timestamp(run.started_at)),
            running_at: run.running_at.map(timestamp),
            updated_at: Some(timestamp(run.updated_at)),
            completed_at: run.completed_at.map(timestamp),
            reason_code: text(run.reason_code.as_ref()),
            failure_reason: text(run.failure_reason.as_ref()),
        }
    }
}

impl From<&Event> for v1::RunEvent {
    fn from(event: &Event) -> Self {
        Self {
            run_id: event.key.run_id.clone(),
            revision: event.revision,
            at: Some(timestamp(event.at)),
            r#type: v1::RunEventType::from(event.event_type).into(),
            from: event.from.map_or(v1::RunStatus::Unspecified, v1::RunStatus::from).into(),
            to: v1::RunStatus::from(event.to).into(),
            principal: Some((&event.principal).into()),
            changes: Some((&event.changes).into()),
            request_id: text(event.request_id.as_ref()),
        }
    }
}

impl From<&Changes> for v1::RunChanges {
    fn from(changes: &Changes) -> Self {
        Self {
            task_thread_id: changes.task_thread_id.clone(),
            agent_id: changes.agent_id.clone(),
            route: changes.route.map(|known| route(Some(known)).into()),
            fallback_used: changes.fallback_used,
            tab_group_id: changes.tab_group_id.clone(),
            audit_session_id: changes.audit_session_id.clone(),
            workflow_id: changes.workflow_id.clone(),
            failure_reason: changes.failure_reason.clone(),
            reason_code: changes.reason_code.clone(),
            labels: changes.labels.iter().map(|(key, value)| (key.clone(), value.clone())).collect(),
            remove_labels: changes.remove_labels.iter().cloned().collect(),
            metadata: metadata(&changes.metadata),
        }
    }
}

impl From<&Principal> for v1::Principal {
    fn from(principal: &Principal) -> Self {
        let kind = match principal.kind {
            PrincipalKind::Anonymous => v1::PrincipalKind::Anonymous,
            PrincipalKind::Claimed => v1::PrincipalKind::Claimed,
            PrincipalKind::Authenticated => v1::PrincipalKind::Authenticated,
        };
        Self { kind: kind.into(), agent_id: text(principal.agent_id.as_ref()) }
    }
}

impl From<Status> for v1::RunStatus {
    fn from(status: Status) -> Self {
        match status {
            Status::Pending => Self::Pending,
            Status::Running => Self::Running,
            Status::Completed => Self::Completed,
            Status::Aborted => Self::Aborted,
            Status::Failed => Self::Failed,
        }
    }
}

impl From<EventType> for v1::RunEventType {
    fn from(event_type: EventType) -> Self {
        match event_type {
            EventType::Created => Self::Created,
            EventType::Started => Self::Started,
            EventType::Updated => Self::Updated,
            EventType::Completed => Self::Completed,
            EventType::Aborted => Self::Aborted,
            EventType::Failed => Self::Failed,
        }
    }
}

impl From<&Verdict> for v1::Disposition {
    fn from(verdict: &Verdict) -> Self {
        match verdict {
            Verdict::Applied(_) => Self::Applied,
            Verdict::Unchanged(_) => Self::Unchanged,
            Verdict::Replayed { .. } => Self::Replayed,
        }
    }
}

/// A time as the wire shows it: whole microseconds.
#[must_use]
pub fn timestamp(time: Time) -> Timestamp {
    const SECOND: i64 = 1_000_000;
    let nanos = time.micros().rem_euclid(SECOND) * 1_000;
    Timestamp {
        seconds: time.micros().div_euclid(SECOND),
        nanos: i32::try_from(nanos).expect("less than a second of nanoseconds"),
    }
}

fn route(route: Option<Route>) -> v1::Route {
    match route {
        None => v1::Route::Unspecified,
        Some(Route::Mcp) => v1::Route::Mcp,
        Some(Route::Cli) => v1::Route::Cli,
        Some(Route::Http) => v1::Route::Http,
    }
}

/// An empty object is not sent.
fn metadata(metadata: &Metadata) -> Option<prost_types::Struct> {
    (!metadata.is_empty()).then(|| structure(metadata.as_map()))
}

fn text(text: Option<&String>) -> String {
    text.cloned().unwrap_or_default()
}

//! Domain values as the wire shows them: runs and events whole, as lists of their parts.

use super::parts::{
    attachments, attempts, bindings, deadlines, ending, labels, metadata, origin, position, priority, rest,
};
use super::scalars::{span, text, timestamp};
use crate::domain::{
    Changes, Disposition, Event, EventType, Principal, PrincipalKind, RefinementsChange, Run, Status, Summary,
};
use crate::store::ClockStep;
use crate::wire::from_domain::{FromDomain, IntoMessage};
use runledger_proto::v1;

impl FromDomain<&Run> for v1::Run {
    fn from_domain(run: &Run) -> Self {
        let mut shown = Self {
            task_thread_id: run.task_thread_id.clone(),
            run_id: run.run_id.to_string(),
            status: v1::RunStatus::from_domain(run.status).into(),
            started_at: Some(timestamp(run.started_at)),
            agent_id: text(run.agent_id.as_ref()),
            completed_at: run.completed_at.map(timestamp),
            metadata: metadata::shown(&run.metadata),
            revision: run.revision.into(),
            running_at: run.running_at.map(timestamp),
            updated_at: Some(timestamp(run.updated_at)),
            namespace: run.namespace.to_string(),
            lease: run.supervision.lease.as_ref().map(IntoMessage::into_message),
            outcome: run.outcome().map_or(v1::RunStatus::Unspecified, v1::RunStatus::from_domain).into(),
            archived_at: run.archived_at.map(timestamp),
            ..Self::default()
        };
        for show in [
            attachments::show,
            attempts::show,
            bindings::show,
            deadlines::show,
            ending::show,
            labels::show,
            origin::show,
            position::show,
            priority::show,
            rest::show,
        ] {
            show(run, &mut shown);
        }
        shown
    }
}

impl FromDomain<&Summary> for v1::RunSummary {
    fn from_domain(run: &Summary) -> Self {
        Self {
            namespace: run.namespace.to_string(),
            run_id: run.run_id.to_string(),
            task_thread_id: run.task_thread_id.clone(),
            agent_id: text(run.agent_id.as_ref()),
            status: v1::RunStatus::from_domain(run.status).into(),
            revision: run.revision.into(),
            started_at: Some(timestamp(run.started_at)),
            running_at: run.running_at.map(timestamp),
            updated_at: Some(timestamp(run.updated_at)),
            completed_at: run.completed_at.map(timestamp),
            reason_code: text(run.reason_code.as_ref()),
            failure_reason: text(run.failure_reason.as_ref()),
            presumed: run.presumed,
        }
    }
}

impl FromDomain<&Event> for v1::RunEvent {
    fn from_domain(event: &Event) -> Self {
        Self {
            run_id: event.key.run_id.to_string(),
            revision: event.revision.into(),
            at: Some(timestamp(event.at)),
            r#type: v1::RunEventType::from_domain(event.event_type).into(),
            from: event.from.map_or(v1::RunStatus::Unspecified, v1::RunStatus::from_domain).into(),
            to: v1::RunStatus::from_domain(event.to).into(),
            principal: Some((&event.principal).into_message()),
            changes: Some((&event.changes).into_message()),
            request_id: text(event.request_id.as_ref()),
            traceparent: event.trace.map(|trace| trace.to_string()).unwrap_or_default(),
        }
    }
}

impl FromDomain<&Changes> for v1::RunChanges {
    fn from_domain(changes: &Changes) -> Self {
        let Changes {
            task_thread_id,
            agent_id,
            bindings,
            ending,
            labels,
            metadata: patch,
            supervision,
            redaction,
            refinements,
        } = changes;
        let mut shown = Self {
            task_thread_id: task_thread_id.clone(),
            agent_id: agent_id.clone(),
            metadata: metadata::shown(patch),
            lease: supervision.lease.as_ref().map(IntoMessage::into_message),
            redaction: redaction.as_deref().map(IntoMessage::into_message),
            ..Self::default()
        };
        bindings::show_change(bindings, &mut shown);
        deadlines::show_change(supervision, &mut shown);
        ending::show_change(ending, supervision, &mut shown);
        labels::show_change(labels, &mut shown);
        rest::show_readiness(supervision, &mut shown);
        if let Some(change) = refinements {
            let RefinementsChange { attachments, origin, position, priority, rest, attempts } = &**change;
            attachments::show_change(attachments, &mut shown);
            origin::show_change(origin, &mut shown);
            position::show_change(position, &mut shown);
            priority::show_change(*priority, &mut shown);
            rest::show_change(rest, &mut shown);
            attempts::show_change(attempts.as_deref(), &mut shown);
        }
        shown
    }
}

impl FromDomain<&Principal> for v1::Principal {
    fn from_domain(principal: &Principal) -> Self {
        let kind = match principal.kind {
            PrincipalKind::Anonymous => v1::PrincipalKind::Anonymous,
            PrincipalKind::Claimed => v1::PrincipalKind::Claimed,
            PrincipalKind::Authenticated => v1::PrincipalKind::Authenticated,
            PrincipalKind::Authority => v1::PrincipalKind::Authority,
        };
        let identity = principal.identity.as_ref();
        Self {
            kind: kind.into(),
            agent_id: text(principal.agent_id.as_ref()),
            subject: text(identity.map(|identity| &identity.subject)),
            issuer: text(identity.map(|identity| &identity.issuer)),
        }
    }
}

impl FromDomain<Status> for v1::RunStatus {
    fn from_domain(status: Status) -> Self {
        match status {
            Status::Pending => Self::Pending,
            Status::Running => Self::Running,
            Status::Completed => Self::Completed,
            Status::Aborted => Self::Aborted,
            Status::Failed => Self::Failed,
        }
    }
}

impl FromDomain<Disposition> for v1::Disposition {
    fn from_domain(disposition: Disposition) -> Self {
        match disposition {
            Disposition::Applied => Self::Applied,
            Disposition::RecordedLate => Self::RecordedLate,
            Disposition::Unchanged => Self::Unchanged,
            Disposition::Replayed => Self::Replayed,
        }
    }
}

impl FromDomain<EventType> for v1::RunEventType {
    fn from_domain(event_type: EventType) -> Self {
        match event_type {
            EventType::Created => Self::Created,
            EventType::Started => Self::Started,
            EventType::Updated => Self::Updated,
            EventType::Completed => Self::Completed,
            EventType::Aborted => Self::Aborted,
            EventType::Failed => Self::Failed,
            EventType::Claimed => Self::Claimed,
            EventType::Released => Self::Released,
            EventType::AbortRequested => Self::AbortRequested,
            EventType::LateReported => Self::LateReported,
            EventType::Ready => Self::Ready,
            EventType::Suspended => Self::Suspended,
            EventType::Resumed => Self::Resumed,
            EventType::Archived => Self::Archived,
            EventType::Restored => Self::Restored,
            EventType::Redacted => Self::Redacted,
            EventType::AttemptFailed => Self::AttemptFailed,
        }
    }
}

impl From<ClockStep> for v1::ClockStep {
    fn from(ClockStep { clock, by_micros, ago }: ClockStep) -> Self {
        Self { clock: clock.to_owned(), by: Some(span(by_micros)), ago: ago.try_into().ok() }
    }
}

#[cfg(test)]
mod tests {
    use prost_types::Duration;

    use super::*;
    use crate::domain::{
        AbortRequest, Attachments, BindingsChange, ContentDigest, Ending, LateReport, Lease, LifecycleId, LifecyclePin,
        LimitThen, Metadata, Origin, Priority, Refinements, Requirement, ResultDigest, Route, RunPosition, Supervision,
        Suspensions, Time,
    };

    /// A run that has something in every field.
    fn whole() -> Run {
        let at = |micros| Time::from_micros(micros);
        let result = ResultDigest { content: ContentDigest::new("{}"), revision: 2.into() };
        Run {
            task_thread_id: "task".into(),
            run_id: "run".into(),
            namespace: "default".into(),
            status: Status::Failed,
            revision: 3.into(),
            started_at: at(1),
            updated_at: at(4),
            running_at: Some(at(2)),
            completed_at: Some(at(3)),
            archived_at: Some(at(4)),
            purged_at: None,
            agent_id: Some("agent".into()),
            bindings: bindings::tests::whole(),
            ending: Ending { failure_reason: Some("because".into()), reason_code: Some("TIMEOUT".into()) },
            labels: [("k".into(), "v".into())].into(),
            supervision: Supervision {
                lease: Some(Lease { epoch: 2.into(), ttl_ms: 1_500, released: true, resting: true }),
                start_deadline: Some(at(5)),
                run_timeout_ms: Some(1),
                abort_request: Some(Box::new(AbortRequest {
                    at: at(6),
                    by: Principal::claimed("operator".into()),
                    reason: Some("enough".into()),
                    deadline: Some(at(7)),
                })),
                presumed: true,
                late_report: Some(Box::new(LateReport {
                    at: at(8),
                    by: Principal::anonymous(),
                    lease_epoch: 2.into(),
                    status: Status::Completed,
                    failure_reason: Some("late".into()),
                    reason_code: Some("LATE".into()),
                    metadata: Metadata::default(),
                    result: Some(result),
                    links: 1,
                    phase: Some("late".into()),
                })),
                ready: None,
                unbegun: None,
                rest_micros: 2_000,
                grantee: None,
                executed_by: Vec::new(),
                steady_ahead_micros: 8,
            },
            refinements: Some(Box::new(Refinements {
                attachments: Attachments { input: Some(ContentDigest::new("{}")), result: Some(result), links: 2 },
                priority: Priority::of(-7).unwrap(),
                origin: Origin { parent_run_id: Some("parent".into()), continues_run_id: Some("before".into()) },
                position: RunPosition {
                    lifecycle: Some(LifecyclePin { id: LifecycleId { name: "review".into(), version: 3 }, digest: 7 }),
                    phase: Some("drafting".into()),
                    phase_started_at: Some(at(9)),
                    ended_in: Some("acting".into()),
                    iteration: 4,
                    max_iterations: Some(5),
                    max_iterations_then: Some(LimitThen::Abort),
                    word: Some("blocked".into()),
                    met: [Requirement::Link("evidence".into())].into(),
                },
                rest: Suspensions {
                    suspension: Some(Box::new(rest::tests::whole())),
                    resumed_from: Some(Box::new(rest::tests::whole())),
                },
                attempts: Some(Box::new(attempts::tests::whole())),
            })),
            metadata: Metadata::from(serde_json::Map::from_iter([("a".into(), 1.into())])),
        }
    }

    #[test]
    fn a_run_is_shown_whole() {
        let at = |micros| Time::from_micros(micros);
        let run = whole();
        let content = || v1::Content::from_domain(ContentDigest::new("{}"));
        let number = prost_types::Value { kind: Some(prost_types::value::Kind::NumberValue(1.0)) };
        let mut shown = v1::Run {
            task_thread_id: "task".into(),
            run_id: "run".into(),
            status: v1::RunStatus::Failed.into(),
            started_at: Some(timestamp(at(1))),
            agent_id: "agent".into(),
            completed_at: Some(timestamp(at(3))),
            archived_at: Some(timestamp(at(4))),
            failure_reason: "because".into(),
            metadata: Some(prost_types::Struct { fields: [("a".into(), number)].into() }),
            revision: 3,
            running_at: Some(timestamp(at(2))),
            updated_at: Some(timestamp(at(4))),
            reason_code: "TIMEOUT".into(),
            labels: [("k".into(), "v".into())].into(),
            namespace: "default".into(),
            lease: Some(v1::Lease {
                epoch: 2,
                ttl: Some(Duration { seconds: 1, nanos: 500_000_000 }),
                expires_at: None,
                released: true,
                resting: true,
            }),
            presumed: true,
            abort_request: Some(v1::AbortRequest {
                at: Some(timestamp(at(6))),
                by: Some((&Principal::claimed("operator".into())).into_message()),
                reason: "enough".into(),
                deadline: Some(timestamp(at(7))),
            }),
            late_report: Some(v1::LateReport {
                at: Some(timestamp(at(8))),
                by: Some((&Principal::anonymous()).into_message()),
                lease_epoch: 2,
                status: v1::RunStatus::Completed.into(),
                failure_reason: "late".into(),
                reason_code: "LATE".into(),
                metadata: None,
                result: Some(content()),
                link_count: 1,
                phase: "late".into(),
                completion_missing: Vec::new(),
            }),
            input: Some(content()),
            result: Some(content()),
            link_count: 3,
            parent_run_id: "parent".into(),
            continues_run_id: "before".into(),
            lifecycle: "review@3".into(),
            phase: "drafting".into(),
            phase_started_at: Some(timestamp(at(9))),
            iteration: 4,
            max_iterations: 5,
            max_iterations_then: v1::LimitThen::Abort.into(),
            word: "blocked".into(),
            priority: -7,
            suspension: Some(Box::new(rest::tests::shown())),
            resumed_from: Some(Box::new(rest::tests::shown())),
            attempt: 2,
            max_attempts: 4,
            attempt_timeout: Some(Duration { seconds: 2, nanos: 500_000_000 }),
            // It is at rest.
            attempt_deadline: None,
            last_failure: Some(Box::new(attempts::tests::shown())),
            outcome: v1::RunStatus::Completed.into(),
            start_deadline: Some(timestamp(at(5))),
            // It is at rest.
            deadline: None,
            progress: None,
            ready: None,
            ..v1::Run::default()
        };
        bindings::tests::shown(&mut shown);
        assert_eq!(v1::Run::from_domain(&run), shown);
        let summary = v1::RunSummary::from_domain(&run.summary());
        assert_eq!(
            (summary.agent_id, summary.status, summary.running_at),
            (shown.agent_id, shown.status, shown.running_at)
        );
        assert_eq!((summary.reason_code, summary.failure_reason), (shown.reason_code, shown.failure_reason));
    }

    #[test]
    fn every_status_has_the_number_that_the_ledger_keeps() {
        for status in Status::ALL {
            assert_eq!(v1::RunStatus::from_domain(status) as i32, i32::from(status.code()));
        }
    }

    #[test]
    fn a_cleared_link_differs_from_one_that_was_not_touched() {
        let bindings =
            BindingsChange { tab_group_id: Some(String::new()), route: Some(Route::Mcp), ..BindingsChange::default() };
        let changes = Changes { bindings, ..Changes::default() };
        let shown = v1::RunChanges::from_domain(&changes);
        assert_eq!((shown.tab_group_id.as_deref(), shown.workflow_id), (Some(""), None));
        assert_eq!((shown.route, shown.metadata), (Some(v1::Route::Mcp.into()), None));
    }
}

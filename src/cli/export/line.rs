//! One line for each event. The keys and their order are what readers rely on.

use serde::Serialize;

use crate::domain::ids::DEFAULT_NAMESPACE;
use crate::domain::{Event, EventType, Link, Metadata, Principal, Revision, RunId, Status, Time};
use crate::store::LoggedEvent;
use crate::store::inspect::Links;
use runledger_proto::json;

/// The type of a line that tells of no event, but of events that are gone.
pub(super) const GONE: &str = "purged";

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Line<'a> {
    at: Time,
    run_id: &'a str,
    audit_session_id: Option<&'a str>,
    task_thread_id: &'a str,
    revision: Revision,
    r#type: EventType,
    from: Option<Status>,
    to: Status,
    principal: &'a Principal,
    reason: Option<Reason<'a>>,
    /// None: `default`.
    #[serde(skip_serializing_if = "Option::is_none")]
    namespace: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    parent_run_id: Option<&'a RunId>,
    #[serde(skip_serializing_if = "Option::is_none")]
    continues_run_id: Option<&'a RunId>,
    /// What stands beside the run by this event.
    #[serde(skip_serializing_if = "Option::is_none")]
    input: Option<&'a Metadata>,
    #[serde(skip_serializing_if = "Option::is_none")]
    result: Option<&'a Metadata>,
    #[serde(skip_serializing_if = "<[Link]>::is_empty")]
    links: &'a [Link],
    /// Where the run stands from this event on, as far as the event says it. A lifecycle is `name@version`.
    #[serde(skip_serializing_if = "Option::is_none")]
    lifecycle: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    phase: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    iteration: Option<u32>,
    /// Empty: the run is called by its status.
    #[serde(skip_serializing_if = "Option::is_none")]
    word: Option<&'a str>,
    /// What the run waits for from this event on.
    #[serde(skip_serializing_if = "Option::is_none")]
    suspension: Option<Waits<'a>>,
    /// What was said by which it goes on, or will.
    #[serde(skip_serializing_if = "Option::is_none")]
    resumption: Option<GoesOn<'a>>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Waits<'a> {
    kind: &'a str,
    reason: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    resume_hint: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    deadline: Option<Time>,
}

#[derive(Serialize)]
struct GoesOn<'a> {
    by: &'a Principal,
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<&'a str>,
}

/// What was read of what stands beside a run by an event.
#[derive(Debug, Default)]
pub(super) struct Beside {
    pub(super) input: Option<Metadata>,
    pub(super) result: Option<Metadata>,
}

/// Events that are not there any more: their runs were purged. They were before the event of the next line of this shard.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Gap {
    /// The time of that event: those that are gone were not later.
    at: Time,
    r#type: &'static str,
    shard: u16,
    events: u64,
}

/// The reason for the run's end, as far as the event has it.
#[derive(Serialize)]
struct Reason<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    code: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    text: Option<&'a str>,
}

/// Lines on their way out.
#[derive(Default)]
pub(super) struct Lines {
    bytes: Vec<u8>,
    count: u64,
}

impl Lines {
    /// The bytes that were gathered.
    pub(super) fn bytes(&self) -> usize {
        self.bytes.len()
    }

    /// Adds an event, with its run's links right after it, and what it put beside the run.
    pub(super) fn write(&mut self, event: &Event, links: &Links, beside: &Beside) {
        let (code, text) =
            (event.changes.ending.reason_code.as_deref(), event.changes.ending.failure_reason.as_deref());
        // Of an attempt that is not the last, the reason stands with it.
        let failure = event.changes.refinements.as_ref().and_then(|all| all.attempts.as_ref()?.failure.as_ref());
        let (code, text) =
            (code.or_else(|| failure?.reason_code.as_deref()), text.or_else(|| failure?.failure_reason.as_deref()));
        let refinements = event.changes.refinements.as_deref();
        let line = Line {
            at: event.at,
            run_id: &event.key.run_id,
            audit_session_id: links.audit_session_id.as_deref(),
            task_thread_id: &links.task_thread_id,
            revision: event.revision,
            r#type: event.event_type,
            from: event.from,
            to: event.to,
            principal: &event.principal,
            reason: (code.is_some() || text.is_some()).then_some(Reason { code, text }),
            namespace: Some(event.key.namespace.as_str()).filter(|name| *name != DEFAULT_NAMESPACE),
            input: beside.input.as_ref(),
            result: beside.result.as_ref(),
            parent_run_id: refinements.and_then(|refinements| refinements.origin.parent_run_id.as_ref()),
            continues_run_id: refinements.and_then(|refinements| refinements.origin.continues_run_id.as_ref()),
            links: refinements.map_or(&[], |refinements| &refinements.attachments.links),
            lifecycle: refinements
                .and_then(|refinements| Some(refinements.position.lifecycle.as_ref()?.id.to_string())),
            phase: refinements.and_then(|refinements| refinements.position.phase.as_deref()),
            iteration: refinements.and_then(|refinements| refinements.position.iteration),
            word: refinements.and_then(|refinements| refinements.position.word.as_deref()),
            suspension: refinements.and_then(|refinements| refinements.rest.suspension.as_deref()).map(|suspension| {
                Waits {
                    kind: &suspension.kind,
                    reason: &suspension.reason,
                    resume_hint: suspension.resume_hint.as_deref(),
                    deadline: suspension.deadline,
                }
            }),
            resumption: refinements
                .and_then(|refinements| refinements.rest.resumption.as_deref())
                .map(|resumption| GoesOn { by: &resumption.by, reason: resumption.reason.as_deref() }),
        };
        self.push(&line);
        self.count += 1;
    }

    /// Adds a line that tells how many events of a shard are gone before one.
    pub(super) fn write_gap(&mut self, events: u64, before: &LoggedEvent) {
        self.push(&Gap { at: before.event.at, r#type: GONE, shard: before.shard.0, events });
    }

    fn push(&mut self, line: &impl Serialize) {
        let line = serde_json::to_string(line).expect("strings and numbers serialize");
        self.bytes.extend_from_slice(json::plain(&line).as_bytes());
        self.bytes.push(b'\n');
    }

    /// The bytes of the lines that were added, and the number of events among them.
    pub(super) fn take(&mut self) -> (Vec<u8>, u64) {
        (std::mem::take(&mut self.bytes), std::mem::take(&mut self.count))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::{Changes, LifecycleId, LifecyclePin, PositionChange, RefinementsChange, RunKey};

    #[test]
    fn a_line_has_the_ten_keys_in_their_order_and_a_namespace_that_is_not_default() {
        let mut event = Event {
            key: RunKey { namespace: "default".into(), run_id: "run-1".into() },
            revision: 1.into(),
            at: Time::from_micros(1_764_000_000_123_400),
            steady_ahead_micros: 0,
            request_id: None,
            event_type: EventType::Created,
            from: None,
            to: Status::Running,
            principal: Principal::anonymous(),
            trace: None,
            changes: Changes::default(),
        };
        let mut links = Links { task_thread_id: "thread-1".into(), audit_session_id: None };
        let mut written = Lines::default();
        written.write(&event, &links, &Beside::default());
        event.revision = 2.into();
        event.event_type = EventType::Failed;
        event.key.namespace = "team-a".into();
        event.from = Some(Status::Running);
        event.to = Status::Failed;
        event.principal = Principal::claimed("agent-1".into());
        event.changes.ending.reason_code = Some("TIMEOUT".into());
        event.changes.ending.failure_reason = Some("it \"hung\"".into());
        links.audit_session_id = Some("audit-1".into());
        event.changes.refinements = Some(Box::new(RefinementsChange {
            position: PositionChange {
                lifecycle: Some(LifecyclePin { id: LifecycleId { name: "review".into(), version: 2 }, digest: 7 }),
                phase: Some("drafting".into()),
                iteration: Some(3),
                word: Some(String::new()),
                ..PositionChange::default()
            },
            ..RefinementsChange::default()
        }));
        written.write(&event, &links, &Beside::default());
        let (bytes, count) = written.take();
        assert_eq!(count, 2);
        assert_eq!(
            String::from_utf8(bytes).unwrap(),
            concat!(
                r#"{"at":"2025-11-24T16:00:00.123400Z","runId":"run-1","auditSessionId":null,"taskThreadId":"thread-1","#,
                r#""revision":1,"type":"created","from":null,"to":"running","principal":{"kind":"anonymous"},"reason":null}"#,
                "\n",
                r#"{"at":"2025-11-24T16:00:00.123400Z","runId":"run-1","auditSessionId":"audit-1","#,
                r#""taskThreadId":"thread-1","revision":2,"type":"failed","from":"running","to":"failed","#,
                r#""principal":{"kind":"claimed","agentId":"agent-1"},"reason":{"code":"TIMEOUT","text":"it \"hung\""},"namespace":"team-a","#,
                r#""lifecycle":"review@2","phase":"drafting","iteration":3,"word":""}"#,
                "\n",
            )
        );
    }
}

//! What a permitted command changes.

use super::Context;
use crate::domain::limits::{LABELS_MAX, METADATA_BYTES_MAX};
use crate::domain::sweep::Due;
use crate::domain::{
    AbortRequest, Changes, Command, EventType, LateReport, Lease, Metadata, Operation, Ready, Refusal, Run, Time,
    Unbegun, Violation,
};

/// A ledger that lost a part of its past may grant a lease again whose epoch was granted in that part, to somebody who
/// still holds it. From then on its leases begin above all that were: no run has so many in one past.
const LEDGER_EPOCH_SHIFT: u32 = 24;

/// The `reason_code` of a pending run that was aborted because somebody asked for it.
const ABORT_REQUESTED: &str = "ABORT_REQUESTED";

/// What the event sets: what of the command's changes changes the run, and what the authority adds.
pub(super) fn changes(
    run: Option<&Run>,
    command: &Command,
    context: &Context<'_>,
    event_type: EventType,
    at: Time,
) -> Changes {
    let terms = &command.terms;
    let (epoch, acting) = (run.map_or(0, |run| run.supervision.epoch()), &command.principal.agent_id);
    let next_epoch = (epoch + 1).max(context.ledger_epoch << LEDGER_EPOCH_SHIFT);
    let granted = terms.lease_ttl_ms.map(|ttl_ms| Lease { epoch: next_epoch, ttl_ms, released: false });
    match command.operation {
        Operation::Start { deferred } => Changes {
            lease: granted,
            start_deadline: terms.start_timeout_ms.filter(|_| deferred).map(|timeout| at.plus_ms(timeout)),
            run_timeout_ms: terms
                .run_timeout_ms
                .filter(|timeout| run.is_none_or(|run| run.supervision.run_timeout_ms != Some(*timeout))),
            ..effective(run, command)
        },
        Operation::Claim => {
            // Who takes over a run that somebody executed becomes its owner; one that waits may have one already.
            let owner = run.and_then(|run| run.agent_id.as_ref());
            let awaited = run.is_some_and(Run::awaits_claim);
            let takes_over = owner.is_none() || !awaited;
            let agent_id = acting.clone().filter(|agent_id| takes_over && Some(agent_id) != owner);
            let unbegun = Unbegun { owner: agent_id.as_ref().map(|_| owner.cloned().unwrap_or_default()) };
            // What somebody has executed before is begun.
            let unbegun = awaited.then(|| Box::new(unbegun));
            Changes { lease: granted, agent_id, unbegun, ..Changes::default() }
        }
        Operation::Release if event_type == EventType::Aborted => {
            let request = run.and_then(|run| run.supervision.abort_request.as_ref());
            Changes {
                failure_reason: request.and_then(|request| request.reason.clone()),
                reason_code: Some(ABORT_REQUESTED.to_owned()),
                ..Changes::default()
            }
        }
        // The epoch that follows is nobody's: the holder's own writes are refused from here on.
        Operation::Release => {
            let lease = run.and_then(|run| run.supervision.lease);
            let lease = lease.map(|lease| Lease { epoch: next_epoch, released: true, ..lease });
            let unbegun = run.and_then(|run| run.supervision.unbegun.as_ref());
            let ready = unbegun.filter(|_| event_type == EventType::Ready).map(|unbegun| {
                let timeout = run.and_then(Run::start_timeout_micros);
                let deadline = timeout.map(|timeout| at.plus_micros(timeout));
                (unbegun.owner.clone(), Box::new(Ready { at, deadline, not_begun: true }))
            });
            let (agent_id, ready) = ready.unzip();
            Changes { lease, agent_id: agent_id.flatten(), ready, ..Changes::default() }
        }
        Operation::RequestAbort => {
            let Changes { failure_reason: reason, .. } = command.changes.clone();
            let ends = event_type == EventType::Aborted;
            let deadline = terms.grace_ms.filter(|_| !ends).map(|grace| at.plus_ms(grace));
            let by = command.principal.clone();
            Changes {
                failure_reason: reason.clone().filter(|_| ends),
                reason_code: ends.then(|| ABORT_REQUESTED.to_owned()),
                abort_request: Some(Box::new(AbortRequest { at, by, reason, deadline })),
                ..Changes::default()
            }
        }
        Operation::Sweep => {
            let due = run.and_then(|run| Some((run, Due::of(run, context)?)));
            let (run, due) = due.expect("a sweep makes an event only of a run whose time is over");
            Changes {
                failure_reason: Some(due.reason(run)),
                reason_code: Some(due.reason_code().to_owned()),
                presumed: due.is_presumed(),
                ..Changes::default()
            }
        }
        Operation::Complete | Operation::Fail | Operation::Abort if event_type == EventType::LateReported => {
            let Changes { failure_reason, reason_code, metadata, .. } = command.changes.clone();
            let status = command.operation.leads_to().expect("each leads to a status");
            let by = command.principal.clone();
            let report = LateReport { at, by, lease_epoch: epoch, status, failure_reason, reason_code, metadata };
            Changes { late_report: Some(Box::new(report)), ..Changes::default() }
        }
        Operation::Update | Operation::Complete | Operation::Abort | Operation::Fail => effective(run, command),
    }
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
            changes.metadata = Metadata::default();
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

pub(super) fn within_limits(run: &Run, changes: &Changes) -> Result<(), Refusal> {
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

//! The rules of ends: what is said of a run with its outcome, by whom it is ended, and what is told of one that the authority
//! had ended.

use super::effect::{Cx, Permitted, fresh, patched};
use super::phases::{PhaseStep, Said, is_complete, lacks, met};
use super::{attempts, suspension};
use crate::domain::sweep::Due;
use crate::domain::{
    AbortRequest, AttachmentsChange, Changes, Complete, End, Ending, EventType, LateReport, RefinementsChange, Refusal,
    RequestAbort, ResultDigest, Run, Status, SupervisionChange, Violation,
};

/// The `reason_code` of a run that was aborted on request, without a report of its worker.
const ABORT_REQUESTED: &str = "ABORT_REQUESTED";

/// The `reason_code` of a run that was aborted because it would have begun one iteration too many.
pub(in crate::domain) const ITERATION_LIMIT: &str = "ITERATION_LIMIT";

/// A completion: in a phase where the run may complete, with what its lifecycle requires.
pub(super) fn completed(complete: &Complete, cx: Cx<'_>) -> Permitted {
    let step = cx.step(Said::of(&complete.position))?.stays(cx.run)?;
    let mut refinements = cx.left(complete.result.as_ref(), &complete.added);
    refinements.position.met = met(cx, &complete.added);
    is_complete(&step, cx, &refinements.position.met)?;
    step.ends(cx, false, &mut refinements.position);
    let metadata = patched(Some(cx.run), &complete.metadata);
    cx.makes(EventType::Completed, Changes { metadata, refinements: refinements.boxed(), ..Changes::default() })
}

/// An abort or a failure, as the caller says it.
pub(super) fn ended(end: &End, event_type: EventType, cx: Cx<'_>) -> Permitted {
    let step = cx.step(Said::of(&end.position))?.stays(cx.run)?;
    let mut refinements = cx.left(end.result.as_ref(), &[]);
    step.ends(cx, false, &mut refinements.position);
    let (ending, refinements) = (end.why.clone(), refinements.boxed());
    cx.makes(event_type, Changes { ending, refinements, ..Changes::default() })
}

/// A failure of an attempt that is not the last, as the caller says it.
pub(super) fn attempt_failed(end: &End, cx: Cx<'_>) -> Permitted {
    let step = cx.step(Said::of(&end.position))?.stays(cx.run)?;
    if step.suspends(cx.declared()).is_some() {
        let fault = "suspends the run: an attempt fails in another phase, or the run is suspended before";
        return Err(Refusal::InvalidFields(vec![Violation::new("phase", fault)]));
    }
    let mut refinements = cx.left(end.result.as_ref(), &[]);
    step.put(&mut refinements.position);
    attempts::failed(&end.why, false, refinements, cx)
}

/// A request to abort a run that a worker executes, who is told of it.
pub(super) fn requested(request: &RequestAbort, cx: Cx<'_>) -> Permitted {
    let abort_request = Some(Box::new(asked(request, cx)));
    let supervision = SupervisionChange { abort_request, ..SupervisionChange::default() };
    cx.makes(EventType::AbortRequested, Changes { supervision, ..Changes::default() })
}

/// A request to abort a run that no worker executes: it ends at once.
pub(super) fn aborted_at_once(request: &RequestAbort, cx: Cx<'_>) -> Permitted {
    let abort_request = Some(Box::new(AbortRequest { deadline: None, ..asked(request, cx) }));
    let supervision = SupervisionChange { abort_request, ..SupervisionChange::default() };
    let ending = Ending { failure_reason: request.reason.clone(), reason_code: Some(ABORT_REQUESTED.to_owned()) };
    cx.makes(EventType::Aborted, Changes { supervision, ..concluded(PhaseStep::default(), ending, false, cx) })
}

fn asked(request: &RequestAbort, Cx { command, at, .. }: Cx<'_>) -> AbortRequest {
    let (by, reason) = (command.principal.clone(), request.reason.clone());
    AbortRequest { at, by, reason, deadline: request.grace_ms.map(|grace| at.plus_ms(grace)) }
}

/// The end of a run that somebody asked to be aborted, and that would wait otherwise.
pub(super) fn as_requested(run: &Run) -> Ending {
    let request = run.supervision.abort_request.as_ref();
    let failure_reason = request.and_then(|request| request.reason.clone());
    Ending { failure_reason, reason_code: Some(ABORT_REQUESTED.to_owned()) }
}

/// Ends a run that is due, as what is due first ends it; or lets it go on, where it was suspended until then.
pub(super) fn swept(cx: Cx<'_>) -> Permitted {
    let Some(due) = Due::of(cx.run, cx.context) else { return Ok(None) };
    if due == Due::GoesOn
        && let Some(event) = suspension::resumed_by_timeout(cx)
    {
        return Ok(Some(event));
    }
    let ending = Ending { failure_reason: Some(due.reason(cx.run)), reason_code: Some(due.reason_code().to_owned()) };
    if due.is_of_an_attempt() && attempts::are_left(cx.run) {
        return attempts::failed(&ending, due.is_presumed(), RefinementsChange::default(), cx);
    }
    cx.makes(due.event_type(), concluded(PhaseStep::default(), ending, due.is_presumed(), cx))
}

/// An end of which nothing is said but its reason, and the step that the run makes with it. `presumed`: the authority
/// concludes it from silence.
pub(super) fn concluded(step: PhaseStep<'_>, ending: Ending, presumed: bool, cx: Cx<'_>) -> Changes {
    let mut refinements = RefinementsChange::default();
    step.ends(cx, presumed, &mut refinements.position);
    let supervision = SupervisionChange { presumed, ..SupervisionChange::default() };
    Changes { ending, supervision, refinements: refinements.boxed(), ..Changes::default() }
}

/// The first report by the last lease's holder on a run that the authority had ended.
pub(super) fn reported_late(status: Status, cx: Cx<'_>) -> Permitted {
    let Cx { run, command, context, at } = cx;
    if run.supervision.late_report.is_some() {
        return Ok(None);
    }
    let brought = command.ask.brought();
    let links = fresh(brought.added, context);
    let Ending { failure_reason, reason_code } = brought.why.cloned().unwrap_or_default();
    let mut report = LateReport {
        at,
        by: command.principal.clone(),
        lease_epoch: run.supervision.epoch(),
        status,
        failure_reason,
        reason_code,
        metadata: brought.metadata.cloned().unwrap_or_default(),
        result: brought.result.map(|result| ResultDigest { content: result.digest(), revision: run.revision.next() }),
        links: u32::try_from(links.len()).unwrap_or(u32::MAX),
        phase: brought.phase().map(str::to_owned),
    };
    if status == Status::Completed {
        report.lacks(&lacks(brought.phase(), brought.added, cx));
    }
    let supervision = SupervisionChange { late_report: Some(Box::new(report)), ..SupervisionChange::default() };
    let attachments = AttachmentsChange { links, ..AttachmentsChange::default() };
    let refinements = RefinementsChange { attachments, ..RefinementsChange::default() }.boxed();
    cx.makes(EventType::LateReported, Changes { supervision, refinements, ..Changes::default() })
}

//! The rules of updates: what one changes, and what its step leads to.

use super::effect::{Cx, Permitted, written};
use super::ending::{self, ITERATION_LIMIT};
use super::phases::{PhaseStep, Said, has_lifecycle, met};
use super::suspension::{Waits, suspended};
use crate::domain::lifecycle::LimitThen;
use crate::domain::{Changes, Ending, EventType, Refusal, Update, Violation};

/// An update changes what it says, and moves its run: which may suspend the run, or end it.
pub(super) fn updated(update: &Update, cx: Cx<'_>) -> Permitted {
    let Cx { run, command, context, .. } = cx;
    let said = Said::of(&update.position);
    // Unlike with every other ask, the step's own faults come before a lifecycle that is gone.
    let step = PhaseStep::new(Some(run), said, cx.declared(), &command.key)?;
    has_lifecycle(Some(run), command, context)?;
    let mut changes = written(Some(run), &update.bindings, update.labels.clone(), &update.metadata);
    let mut refinements = cx.left(update.result.as_ref(), &update.added);
    refinements.priority = update.priority.filter(|priority| *priority != run.priority());
    refinements.position.met = met(cx, &update.added);
    let event_type = if let Some((_, LimitThen::Abort)) = step.above {
        let reason = "the run would have begun one iteration more than it may".to_owned();
        changes.ending = Ending { failure_reason: Some(reason), reason_code: Some(ITERATION_LIMIT.to_owned()) };
        step.stays(run)?.ends(cx, false, &mut refinements.position);
        EventType::Aborted
    } else if let Some(waits) = Waits::of_step(&step, update, cx) {
        let step = step.stays(run)?;
        if run.supervision.abort_request.is_some() {
            changes.ending = ending::as_requested(run);
            step.ends(cx, false, &mut refinements.position);
            EventType::Aborted
        } else {
            changes.supervision.lease = suspended(waits, step, cx, &mut refinements)?;
            EventType::Suspended
        }
    } else {
        step.goes_on(run)?.put(&mut refinements.position);
        if !update.suspension.is_empty() {
            let fault = "must be absent: the call names no phase that suspends the run";
            return Err(Refusal::InvalidFields(vec![Violation::new("suspension", fault)]));
        }
        EventType::Updated
    };
    changes.refinements = refinements.boxed();
    if changes == Changes::default() {
        return Ok(None);
    }
    cx.makes(event_type, changes)
}

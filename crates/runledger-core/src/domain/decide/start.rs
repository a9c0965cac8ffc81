//! The rules of starts: what a run begins with.

use super::attempts;
use super::effect::{Cx, Permitted, event, written};
use super::lease::granted;
use super::phases::{self, PhaseStep, Said, has_lifecycle};
use crate::domain::context::Context;
use crate::domain::{
    AttachmentsChange, Changes, Command, Content, EventType, LabelsChange, RefinementsChange, Refusal, Run, Start,
    Status, SupervisionChange, SuspensionsChange, Time, Violation,
};

/// A start of a run that is not there creates it.
pub(super) fn created(start: &Start, command: &Command, context: &Context<'_>) -> Permitted {
    has_lifecycle(None, command, context)?;
    let declared = context.sides.lifecycle.declared();
    let mut position = phases::created(&start.position, declared)?;
    let step = PhaseStep::new(None, said(start), declared, &command.key)?;
    starts_in(&step, context)?;
    step.put(&mut position);
    let input = start.input.as_ref().map(Content::digest);
    let refinements = RefinementsChange {
        attachments: AttachmentsChange { input, ..AttachmentsChange::default() },
        origin: start.origin.clone(),
        position,
        rest: SuspensionsChange::default(),
        priority: start.priority.filter(|priority| !priority.is_none()),
        attempts: attempts::created(start, declared)?,
    };
    let mut changes = begun(None, start, command, (context, context.now));
    changes.task_thread_id = Some(start.task_thread_id.clone());
    changes.refinements = refinements.boxed();
    let to = if start.deferred { Status::Pending } else { Status::Running };
    Ok(Some(event(None, command, (context, context.now), (EventType::Created, to), changes)))
}

/// A start of a pending run. The origin was said at its creation: a start that says it again says the same.
pub(super) fn started(start: &Start, cx: Cx<'_>) -> Permitted {
    let Cx { run, command, context, at } = cx;
    let step = cx.step(said(start))?.goes_on(run)?;
    starts_in(&step, context)?;
    let mut refinements = RefinementsChange::default();
    step.put(&mut refinements.position);
    let mut changes = begun(Some(run), start, command, (context, at));
    refinements.attempts = attempts::goes_on(changes.agent_id.is_some(), cx);
    changes.refinements = refinements.boxed();
    cx.makes(EventType::Started, changes)
}

fn said(start: &Start) -> Said<'_> {
    Said { phase: start.position.phase.as_deref(), ..Said::default() }
}

/// What every start says of its run, as far as that is not so already.
fn begun(run: Option<&Run>, start: &Start, command: &Command, (context, at): (&Context<'_>, Time)) -> Changes {
    let labels = LabelsChange { set: start.labels.clone(), ..LabelsChange::default() };
    let owner = run.and_then(|run| run.agent_id.as_ref());
    let kept = run.and_then(|run| run.supervision.run_timeout_ms);
    Changes {
        agent_id: start.agent_id.clone().or_else(|| command.principal.agent_id.clone()).filter(|_| owner.is_none()),
        supervision: SupervisionChange {
            lease: start.lease_ttl_ms.map(|ttl_ms| granted(run, context, ttl_ms)),
            start_deadline: start.start_timeout_ms.filter(|_| start.deferred).map(|timeout| at.plus_ms(timeout)),
            run_timeout_ms: start.run_timeout_ms.filter(|timeout| kept != Some(*timeout)),
            ..SupervisionChange::default()
        },
        ..written(run, &start.bindings, labels, &start.metadata)
    }
}

/// Refuses a start in a phase that suspends: nothing of such a run would have been done.
fn starts_in(step: &PhaseStep<'_>, context: &Context<'_>) -> Result<(), Refusal> {
    if step.suspends(context.sides.lifecycle.declared()).is_none() {
        return Ok(());
    }
    let fault = "suspends the run: start it in another phase, and suspend it then";
    Err(Refusal::InvalidFields(vec![Violation::new("phase", fault)]))
}

//! What the rules of an ask look at, and what they hand on: each makes the whole event of its command, at once.

use super::lease;
use crate::domain::context::Context;
use crate::domain::{
    AttachmentsChange, Bindings, BindingsChange, Changes, Command, Content, Declared, Event, EventType, Labels,
    LabelsChange, Link, Metadata, RefinementsChange, Refusal, Revision, Run, Status, Time,
};

/// What a decision looks at: a run that is there, and a command on it.
#[derive(Clone, Copy)]
pub(super) struct Cx<'a> {
    pub(super) run: &'a Run,
    pub(super) command: &'a Command,
    pub(super) context: &'a Context<'a>,
    /// The time of the event that the command makes.
    pub(super) at: Time,
}

/// The event that a permitted command makes; none: it is a no-op.
pub(super) type Permitted = Result<Option<Box<Event>>, Refusal>;

impl<'a> Cx<'a> {
    pub(super) fn new(run: &'a Run, command: &'a Command, context: &'a Context<'a>) -> Self {
        Self { run, command, context, at: context.now.max(run.updated_at) }
    }

    /// The lifecycle that the run is pinned to, as far as it is there.
    pub(super) fn declared(self) -> Option<&'a Declared> {
        self.context.sides.lifecycle.declared()
    }

    /// The phase that the run is in.
    pub(super) fn phase(self) -> Option<&'a str> {
        self.run.refinements.as_ref()?.position.phase.as_deref()
    }

    /// The command makes an event of this type, by which the run comes to its status, or keeps the one that it has.
    #[expect(clippy::unnecessary_wraps, reason = "it is what each rule hands on")]
    pub(super) fn makes(self, event_type: EventType, changes: Changes) -> Permitted {
        let Self { run, command, context, at } = self;
        let to = event_type.facts().leads_to.unwrap_or(run.status);
        Ok(Some(event(Some(run), command, (context, at), (event_type, to), changes)))
    }

    /// The result and the links that the run is left with, as far as it does not have them.
    pub(super) fn left(self, result: Option<&Content>, added: &[Link]) -> RefinementsChange {
        let kept = self.run.refinements.as_ref().and_then(|all| all.attachments.result).map(|result| result.content);
        let result = result.map(Content::digest).filter(|result| Some(*result) != kept);
        let attachments = AttachmentsChange { result, links: fresh(added, self.context), input: None };
        RefinementsChange { attachments, ..RefinementsChange::default() }
    }
}

/// An event with these changes: numbered, stamped, and with those who executed the run. In a box from here on, for its size.
pub(super) fn event(
    run: Option<&Run>,
    command: &Command,
    (context, at): (&Context<'_>, Time),
    (event_type, to): (EventType, Status),
    mut changes: Changes,
) -> Box<Event> {
    changes.supervision.to_grantee = lease::is_grantee_named(command, &changes);
    changes.supervision.executor = lease::executor(run, command, &changes);
    Box::new(Event {
        key: command.key.clone(),
        revision: run.map_or(Revision::FIRST, |run| run.revision.next()),
        at,
        steady_ahead_micros: context.steady.ahead_of(at),
        request_id: command.request.as_ref().map(|request| request.id.clone()),
        event_type,
        from: run.map(|run| run.status),
        to,
        principal: command.principal.clone(),
        trace: command.trace,
        changes,
    })
}

/// The links among these that the run does not have.
pub(super) fn fresh(added: &[Link], context: &Context<'_>) -> Vec<Link> {
    let mut known = context.sides.links.to_vec();
    let mut fresh = Vec::new();
    for link in added {
        let key = link.key();
        if !known.contains(&key) {
            known.push(key);
            fresh.push(link.clone());
        }
    }
    fresh
}

/// The fields that a caller wrote, as far as they change the run.
pub(super) fn written(run: Option<&Run>, bindings: &BindingsChange, labels: LabelsChange, patch: &Metadata) -> Changes {
    let blank = (Bindings::default(), Labels::default());
    let (now, labels_now) = run.map_or((&blank.0, &blank.1), |run| (&run.bindings, &run.labels));
    // A new run has no labels: each label of the ask is set, and none can be dropped.
    let (bindings, labels) = (now.effective(bindings.clone()), labels.effective(labels_now));
    Changes { bindings, labels, metadata: patched(run, patch), ..Changes::default() }
}

/// The patch of a run's metadata; an empty one where it changes nothing.
pub(super) fn patched(run: Option<&Run>, patch: &Metadata) -> Metadata {
    if run.is_some_and(|run| !patch.is_empty() && run.metadata.merged(patch) == run.metadata) {
        return Metadata::default();
    }
    patch.clone()
}

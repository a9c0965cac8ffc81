//! The changes that a permitted command makes.

use super::lease::granted;
use super::suspension::leased;
use crate::domain::decision::Context;
use crate::domain::limits::{LABELS_MAX, LINKS_MAX, METADATA_BYTES_MAX};
use crate::domain::sides::contents;
use crate::domain::sweep::Due;
use crate::domain::{
    AbortRequest, Ask, Changes, Claim, Command, Content, Ending, EventType, Labels, LabelsChange, LateReport, Lease,
    LeaseEpoch, Links, LinksChange, Metadata, Priority, Ready, RefinementsChange, Refusal, ResultDigest, Run, Start,
    SupervisionChange, Time, Unbegun, Violation,
};

/// The `reason_code` of a run that was aborted on request, without a report of its worker.
pub(super) const ABORT_REQUESTED: &str = "ABORT_REQUESTED";

/// The fields that the event sets: those of the command's ask that change the run, and those that the authority adds.
pub(super) fn changes(
    run: Option<&Run>,
    command: &Command,
    context: &Context<'_>,
    event_type: EventType,
    at: Time,
) -> Changes {
    match &command.ask {
        Ask::Start(start) => started(run, start, command, context, at),
        Ask::Update(update) => {
            let links = update.links.clone();
            let mut refinements = left(run, command, context);
            let kept = run.map_or(Priority::NONE, Run::priority);
            if let Some(priority) = update.priority.filter(|priority| *priority != kept) {
                refinements.get_or_insert_default().priority = Some(priority);
            }
            Changes { refinements, ..written(run, links, update.labels.clone(), &update.metadata) }
        }
        Ask::Claim(claim) => claimed(run, claim, command, context),
        Ask::Resume(resume) => leased(run, resume, command, context),
        Ask::Release(_) | Ask::GiveBack(_) if event_type == EventType::Aborted => {
            let request = run.and_then(|run| run.supervision.abort_request.as_ref());
            ended(request.and_then(|request| request.reason.clone()), ABORT_REQUESTED.to_owned())
        }
        Ask::Release(_) | Ask::GiveBack(_) => released(run, context, event_type, at),
        Ask::RequestAbort(request) => {
            let ends = event_type == EventType::Aborted;
            let (reason, by) = (request.reason.clone(), command.principal.clone());
            let deadline = request.grace_ms.filter(|_| !ends).map(|grace| at.plus_ms(grace));
            let ending = if ends { ended(reason.clone(), ABORT_REQUESTED.to_owned()) } else { Changes::default() };
            let abort_request = Some(Box::new(AbortRequest { at, by, reason, deadline }));
            Changes { supervision: SupervisionChange { abort_request, ..SupervisionChange::default() }, ..ending }
        }
        Ask::Sweep => {
            let due = run.and_then(|run| Some((run, Due::of(run, context)?)));
            let (run, due) = due.expect("a sweep makes an event only of a run whose time is over");
            let supervision = SupervisionChange { presumed: due.is_presumed(), ..SupervisionChange::default() };
            Changes { supervision, ..ended(Some(due.reason(run)), due.reason_code().to_owned()) }
        }
        Ask::Complete(_) | Ask::Fail(_) | Ask::Abort(_) if event_type == EventType::LateReported => {
            reported_late(run, command, context, at)
        }
        Ask::Complete(complete) => {
            let refinements = left(run, command, context);
            let unchanged = (LinksChange::default(), LabelsChange::default());
            Changes { refinements, ..written(run, unchanged.0, unchanged.1, &complete.metadata) }
        }
        Ask::Abort(end) | Ask::Fail(end) => {
            Changes { ending: end.why.clone(), refinements: left(run, command, context), ..Changes::default() }
        }
        // What suspends a run is added once its phase is known.
        Ask::Suspend(_) | Ask::Archive | Ask::Restore => Changes::default(),
        Ask::Redact(redaction) => Changes { redaction: Some(Box::new(redaction.clone())), ..Changes::default() },
    }
}

fn started(run: Option<&Run>, start: &Start, command: &Command, context: &Context<'_>, at: Time) -> Changes {
    let labels = LabelsChange { set: start.labels.clone(), ..LabelsChange::default() };
    let owner = run.and_then(|run| run.agent_id.as_ref());
    let kept = run.and_then(|run| run.supervision.run_timeout_ms);
    // The origin is said at creation; a later start that says it again says the same.
    let origin = RefinementsChange {
        input: start.input.as_ref().map(Content::digest),
        parent_run_id: start.parent_run_id.clone(),
        continues_run_id: start.continues_run_id.clone(),
        priority: start.priority.filter(|priority| !priority.is_none()),
        ..RefinementsChange::default()
    };
    Changes {
        refinements: if run.is_none() { origin.boxed() } else { None },
        task_thread_id: run.is_none().then(|| start.task_thread_id.clone()),
        agent_id: start.agent_id.clone().or_else(|| command.principal.agent_id.clone()).filter(|_| owner.is_none()),
        supervision: SupervisionChange {
            lease: start.lease_ttl_ms.map(|ttl_ms| granted(run, context, ttl_ms)),
            start_deadline: start.start_timeout_ms.filter(|_| start.deferred).map(|timeout| at.plus_ms(timeout)),
            run_timeout_ms: start.run_timeout_ms.filter(|timeout| kept != Some(*timeout)),
            ..SupervisionChange::default()
        },
        ..written(run, start.links.clone(), labels, &start.metadata)
    }
}

/// The claimer that takes over a run which another executed becomes its owner; a run that waits may have an owner
/// already.
fn claimed(run: Option<&Run>, claim: &Claim, command: &Command, context: &Context<'_>) -> Changes {
    let owner = run.and_then(|run| run.agent_id.as_ref());
    let awaited = run.is_some_and(Run::awaits_claim);
    let takes_over = owner.is_none() || !awaited || run.is_some_and(Run::is_for_any_worker);
    let agent_id = command.principal.agent_id.clone().filter(|agent_id| takes_over && Some(agent_id) != owner);
    let unbegun = Unbegun { owner: agent_id.as_ref().map(|_| owner.cloned().unwrap_or_default()) };
    let supervision = SupervisionChange {
        lease: Some(granted(run, context, claim.lease_ttl_ms)),
        // A run that was executed before is begun.
        unbegun: awaited.then(|| Box::new(unbegun)),
        ..SupervisionChange::default()
    };
    Changes { agent_id, supervision, ..Changes::default() }
}

/// The new epoch has no holder: the writes of the last holder are refused from here on.
fn released(run: Option<&Run>, context: &Context<'_>, event_type: EventType, at: Time) -> Changes {
    let lease = run.and_then(|run| run.supervision.lease);
    let lease = lease.map(|lease| Lease { released: true, ..granted(run, context, lease.ttl_ms) });
    let unbegun = run.and_then(|run| run.supervision.unbegun.as_ref());
    let ready = unbegun.filter(|_| event_type == EventType::Ready).map(|unbegun| {
        let timeout = run.and_then(Run::start_timeout_micros);
        let deadline = timeout.map(|timeout| at.plus_micros(timeout));
        (unbegun.owner.clone(), Box::new(Ready { at, deadline, not_begun: true }))
    });
    let (agent_id, ready) = ready.unzip();
    let supervision = SupervisionChange { lease, ready, ..SupervisionChange::default() };
    Changes { agent_id: agent_id.flatten(), supervision, ..Changes::default() }
}

/// The report by the last lease's holder on a run that the authority had ended.
fn reported_late(run: Option<&Run>, command: &Command, context: &Context<'_>, at: Time) -> Changes {
    let links = contents::fresh(command, context);
    let brought = command.ask.brought();
    let Ending { failure_reason, reason_code } = brought.why.cloned().unwrap_or_default();
    let report = LateReport {
        at,
        by: command.principal.clone(),
        lease_epoch: run.map_or(LeaseEpoch::NONE, |run| run.supervision.epoch()),
        status: command.ask.facts().leads_to.expect("each leads to a status"),
        failure_reason,
        reason_code,
        metadata: brought.metadata.cloned().unwrap_or_default(),
        result: run
            .zip(brought.result)
            .map(|(run, result)| ResultDigest { content: result.digest(), revision: run.revision.next() }),
        links: u32::try_from(links.len()).unwrap_or(u32::MAX),
        phase: brought.phase.map(str::to_owned),
    };
    let supervision = SupervisionChange { late_report: Some(Box::new(report)), ..SupervisionChange::default() };
    let refinements = RefinementsChange { links, ..RefinementsChange::default() }.boxed();
    Changes { supervision, refinements, ..Changes::default() }
}

/// The result and the links that the run is left with, as far as it does not have them.
fn left(run: Option<&Run>, command: &Command, context: &Context<'_>) -> Option<Box<RefinementsChange>> {
    let kept = run.and_then(|run| run.refinements.as_ref()?.result).map(|result| result.content);
    let result = command.ask.brought().result.map(Content::digest).filter(|result| Some(*result) != kept);
    RefinementsChange { result, links: contents::fresh(command, context), ..RefinementsChange::default() }.boxed()
}

pub(super) fn ended(failure_reason: Option<String>, reason_code: String) -> Changes {
    Changes { ending: Ending { failure_reason, reason_code: Some(reason_code) }, ..Changes::default() }
}

/// The fields that a caller wrote, as far as they change the run.
fn written(run: Option<&Run>, links: LinksChange, labels: LabelsChange, patch: &Metadata) -> Changes {
    let mut metadata = patch.clone();
    if let Some(run) = run
        && !metadata.is_empty()
        && run.metadata.merged(&metadata) == run.metadata
    {
        metadata = Metadata::default();
    }
    let blank = (Links::default(), Labels::default());
    let (now, labels_now) = run.map_or((&blank.0, &blank.1), |run| (&run.links, &run.labels));
    // A new run has no labels: each label of the ask is set, and none can be dropped.
    Changes { links: links.effective(now), labels: labels.effective(labels_now), metadata, ..Changes::default() }
}

pub(super) fn within_limits(run: &Run, changes: &Changes) -> Result<(), Refusal> {
    let mut violations = Vec::new();
    if run.labels.len() > LABELS_MAX {
        let found = run.labels.len();
        violations
            .push(Violation::new("labels", format!("the run would have {found} labels; the limit is {LABELS_MAX}")));
    }
    let links = usize::try_from(run.all_links()).unwrap_or(usize::MAX);
    if links > LINKS_MAX && changes.refinements.as_ref().is_some_and(|refinements| !refinements.links.is_empty()) {
        violations.push(Violation::new("links", format!("the run would have {links} links; the limit is {LINKS_MAX}")));
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

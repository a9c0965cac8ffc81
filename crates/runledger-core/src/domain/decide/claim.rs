//! The rules of claims: which run a claim takes, and which claim is given back.

use super::attempts;
use super::effect::{Cx, Permitted};
use super::ending::{as_requested, concluded};
use super::lease::{granted, released};
use super::max_running::leaves_room;
use super::phases::{PhaseStep, given};
use super::suspension::given_back;
use crate::domain::context::Context;
use crate::domain::sides::claims::sent_id;
use crate::domain::{
    Ask, Changes, Claim, Claimed, Command, EventType, GiveBack, HeldLease, Ready, RefinementsChange, Refusal, Run,
    SupervisionChange, Take, Unbegun,
};

/// Refuses a claim whose claimer's own request has had its effect already, on any run.
pub(super) fn claimed_before(command: &Command, context: &Context<'_>) -> Result<(), Refusal> {
    let Ask::Claim(Claim { request: Some(request), .. }) = &command.ask else { return Ok(()) };
    match context.sides.claimed {
        Some(claimed) if claimed.digest == request.digest => Err(Refusal::ClaimedBefore { claimed: claimed.clone() }),
        Some(claimed) => {
            Err(Refusal::RequestIdReused { key: claimed.key.clone(), request_id: sent_id(&request.id).to_owned() })
        }
        None => Ok(()),
    }
}

/// Starts a pending run.
pub(super) fn start(claim: &Claim, cx: Cx<'_>) -> Permitted {
    leaves_room(cx.run, claim.max_running.as_ref(), cx.context)?;
    cx.makes(EventType::Started, claimed(claim, cx))
}

/// Takes a running run: one that is ready after a suspension, or one that its last holder lost or let go.
pub(super) fn take(claim: &Claim, cx: Cx<'_>) -> Permitted {
    let Cx { run, context, .. } = cx;
    if run.is_ready() {
        if claim.only == Some(Take::Pending) && run.suspension().is_some() {
            return Err(Refusal::run_suspended(run));
        }
        leaves_room(run, claim.max_running.as_ref(), context)?;
    } else {
        free(run, claim, context)?;
    }
    let mut changes = claimed(claim, cx);
    let mut refinements = changes.refinements.take().map(|refinements| *refinements).unwrap_or_default();
    if let Some(said) = run.suspension().and_then(|suspension| suspension.resumption.as_deref()) {
        refinements.position = given(said, cx);
    }
    if run.is_between_attempts() && refinements.position.phase.is_none() {
        attempts::begins_anew(cx, &mut refinements.position);
    }
    changes.refinements = refinements.boxed();
    cx.makes(if run.suspension().is_some() { EventType::Resumed } else { EventType::Claimed }, changes)
}

/// The claimer that takes over a run which another executed becomes its owner; a run that waits may have an owner
/// already.
fn claimed(claim: &Claim, cx: Cx<'_>) -> Changes {
    let Cx { run, command, context, .. } = cx;
    let owner = run.owner_to_claim();
    let awaited = run.awaits_claim();
    let takes_over = owner.is_none() || !awaited || run.is_for_any_worker();
    let next = command.principal.agent_id.as_ref().filter(|_| takes_over).or(owner);
    let agent_id = (next != run.agent_id.as_ref()).then(|| next.cloned().unwrap_or_default());
    let unbegun = Unbegun { owner: (next != owner).then(|| owner.cloned().unwrap_or_default()) };
    let supervision = SupervisionChange {
        lease: Some(granted(Some(run), context, claim.lease_ttl_ms)),
        // A run that was executed before is begun.
        unbegun: awaited.then(|| Box::new(unbegun)),
        ..SupervisionChange::default()
    };
    let attempts = attempts::goes_on(next != owner, cx);
    let refinements = RefinementsChange { attempts, ..RefinementsChange::default() }.boxed();
    Changes { agent_id, supervision, refinements, ..Changes::default() }
}

/// Refuses a claim of a running run whose lease is held, and a claim that takes only waiting runs.
fn free(run: &Run, claim: &Claim, context: &Context<'_>) -> Result<(), Refusal> {
    let epoch = run.supervision.epoch();
    let held = context.sides.lease.filter(|held| held.epoch == epoch);
    let is_over = held.is_some_and(|held| held.expires_at <= context.steady.now);
    let is_free = is_over || run.supervision.lease.is_some_and(|lease| lease.released);
    if is_free && claim.only.is_none() {
        return Ok(());
    }
    let expires_at = held.map(|held| context.steady.shown(held.expires_at));
    Err(Refusal::LeaseHeld { epoch, expires_at, ready: false, run: run.summary() })
}

/// Gives an unreceived claim back. A holder that has renewed its lease has received the claim, even if an answer was
/// lost.
pub(super) fn give_back(claim: &GiveBack, cx: Cx<'_>) -> Permitted {
    let Cx { run, command, context, .. } = cx;
    let of_this_claim = |claimed: &Claimed| {
        claimed.key == command.key && claimed.epoch == claim.lease_epoch && claimed.replays == claim.replays
    };
    if claim.request.is_some() && !context.sides.claimed.is_some_and(of_this_claim) {
        // The claimer has asked again: the call that answers the repetition finds out whether that answer was received.
        return Ok(None);
    }
    let is_renewed = |lease: &HeldLease| lease.renewed && lease.epoch == run.supervision.epoch();
    if context.sides.lease.as_ref().is_some_and(is_renewed) {
        return Ok(None);
    }
    not_begun(cx)
}

/// Makes a run ready whose claim was not begun; or ends it, where an abort was requested meanwhile.
pub(super) fn not_begun(cx: Cx<'_>) -> Permitted {
    let Cx { run, context, at, .. } = cx;
    let Some(unbegun) = &run.supervision.unbegun else { return Err(Refusal::RunBegun { run: run.summary() }) };
    if run.supervision.abort_request.is_some() {
        return cx.makes(EventType::Aborted, concluded(PhaseStep::default(), as_requested(run), false, cx));
    }
    let (ready, refinements) = given_back(cx).map_or_else(
        || {
            // A run that was attempted before waits for its next attempt without a bound.
            let timeout = run.start_timeout_micros().filter(|_| !attempts::has_failed_before(run));
            let deadline = timeout.map(|timeout| at.plus_micros(timeout));
            (Ready { at, deadline, not_begun: true }, None)
        },
        |(ready, change)| (ready, change.boxed()),
    );
    let supervision = SupervisionChange { ready: Some(Box::new(ready)), ..released(run, context) };
    let agent_id = unbegun.owner.clone();
    cx.makes(EventType::Ready, Changes { agent_id, supervision, refinements, ..Changes::default() })
}

//! The rules of claims: which run a claim takes, and which claim is given back.

use super::event;
use crate::domain::decision::{Context, Decision};
use crate::domain::sides::claims::sent_id;
use crate::domain::{
    Ask, Claim, Claimed, Command, EventType, GiveBack, HeldLease, LabelValue, MaxRunning, Refusal, Run, RunId,
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

/// Takes a running run: one that is ready after a suspension, or one that its last holder lost or let go.
pub(super) fn take(run: &Run, claim: &Claim, command: &Command, context: &Context<'_>) -> Result<Decision, Refusal> {
    if run.is_ready() {
        if claim.only.is_some_and(|take| !take.takes_ready(run)) {
            return Err(Refusal::run_suspended(run));
        }
        leaves_room(run, claim.max_running.as_ref(), context)?;
    } else {
        free(run, claim, context)?;
    }
    let resumes = run.suspension().is_some();
    event(Some(run), command, context, if resumes { EventType::Resumed } else { EventType::Claimed })
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

/// Refuses a claim where as many runs with the same value of a label are running as it allows.
pub(super) fn leaves_room(run: &Run, max: Option<&MaxRunning>, context: &Context<'_>) -> Result<(), Refusal> {
    let Some(max) = max else { return Ok(()) };
    let Some(LabelValue { value, .. }) = LabelValue::of(run, &max.label) else { return Ok(()) };
    // A run that kept its slot takes no other one.
    let mut running: Vec<RunId> = context.sides.running.iter().filter(|other| **other != run.run_id).cloned().collect();
    let room = u32::try_from(running.len()).is_ok_and(|running| running < max.limit);
    if room {
        return Ok(());
    }
    running.sort_unstable();
    Err(Refusal::MaxRunning { max: max.clone(), value, running, run: run.summary() })
}

/// Gives an unreceived claim back. A holder that has renewed its lease has received the claim, even if an answer was
/// lost.
pub(super) fn give_back(
    run: &Run,
    command: &Command,
    claim: &GiveBack,
    context: &Context<'_>,
) -> Result<Decision, Refusal> {
    let of_this_claim = |claimed: &Claimed| {
        claimed.key == command.key && claimed.epoch == claim.lease_epoch && claimed.replays == claim.replays
    };
    if claim.request.is_some() && !context.sides.claimed.is_some_and(of_this_claim) {
        // The claimer has asked again: the call that answers the repetition finds out whether that answer was received.
        return Ok(Decision::Unchanged);
    }
    let is_renewed = |lease: &HeldLease| lease.renewed && lease.epoch == run.supervision.epoch();
    if context.sides.lease.as_ref().is_some_and(is_renewed) {
        return Ok(Decision::Unchanged);
    }
    not_begun(run, command, context)
}

/// Makes a run ready whose claim was not begun; or ends it, where an abort was requested meanwhile.
pub(super) fn not_begun(run: &Run, command: &Command, context: &Context<'_>) -> Result<Decision, Refusal> {
    if run.supervision.unbegun.is_none() {
        return Err(Refusal::RunBegun { run: run.summary() });
    }
    let ends = run.supervision.abort_request.is_some();
    event(Some(run), command, context, if ends { EventType::Aborted } else { EventType::Ready })
}

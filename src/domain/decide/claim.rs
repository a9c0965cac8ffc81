//! The rules of claims: which run a claim takes, and which claim is given back.

use super::event;
use crate::domain::decision::{Context, Decision};
use crate::domain::{Ask, Claim, Claimed, Command, EventType, GiveBack, HeldLease, LabelValue, Refusal, Run};

/// Refuses a claim whose claimer's own request has had its effect already, on any run.
pub(super) fn claimed_before(command: &Command, context: &Context<'_>) -> Result<(), Refusal> {
    let Ask::Claim(Claim { request: Some(request), .. }) = &command.ask else { return Ok(()) };
    match context.sides.claimed {
        Some(claimed) if claimed.digest == request.digest => Err(Refusal::ClaimedBefore { claimed: claimed.clone() }),
        Some(claimed) => Err(Refusal::RequestIdReused { key: claimed.key.clone(), request_id: request.id.clone() }),
        None => Ok(()),
    }
}

/// Refuses a claim of a running run whose lease is held, and a claim that takes only waiting runs.
pub(super) fn free(run: &Run, claim: &Claim, context: &Context<'_>) -> Result<(), Refusal> {
    let epoch = run.supervision.epoch();
    let held = context.sides.lease.filter(|held| held.epoch == epoch);
    let is_over = held.is_some_and(|held| held.expires_at <= context.clock);
    let is_free = is_over || run.supervision.lease.is_some_and(|lease| lease.released);
    if is_free && !claim.only_waiting {
        return Ok(());
    }
    Err(Refusal::LeaseHeld { epoch, expires_at: held.map(|held| held.expires_at), run: run.summary() })
}

/// Refuses a claim where as many runs with the same value of a label are running as it allows.
pub(super) fn leaves_room(run: &Run, claim: &Claim, context: &Context<'_>) -> Result<(), Refusal> {
    let Some(max) = &claim.max_running else { return Ok(()) };
    let Some(LabelValue { value, .. }) = LabelValue::of(run, &max.label) else { return Ok(()) };
    let room = u32::try_from(context.sides.running.len()).is_ok_and(|running| running < max.limit);
    if room {
        return Ok(());
    }
    let mut running = context.sides.running.to_vec();
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

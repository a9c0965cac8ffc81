//! The rules of attempts: which failure is an attempt's and not its run's, and what is open until the next one begins.

use super::effect::{Cx, Permitted};
use super::phases::PhaseStep;
use super::suspension;
use crate::domain::lifecycle::OnRetry;
use crate::domain::{
    Ask, Asker, AttemptBegin, AttemptFailure, Attempts, AttemptsChange, Changes, Declared, Ending, EventType, Lease,
    LeaseEpoch, PositionChange, Ready, RefinementsChange, Refusal, Run, Start, SupervisionChange, Violation,
};

fn attempts(run: &Run) -> Option<&Attempts> {
    run.refinements.as_ref()?.attempts.as_deref()
}

/// The attempts that a new run may have: as its start says, or its lifecycle. A start may set fewer than its lifecycle.
pub(super) fn created(start: &Start, declared: Option<&Declared>) -> Result<Option<Box<AttemptsChange>>, Refusal> {
    let lifecycle = declared.map(|declared| &declared.lifecycle);
    let most = lifecycle.and_then(|lifecycle| lifecycle.max_attempts);
    let longest = lifecycle.and_then(|lifecycle| lifecycle.attempt_timeout_ms);
    if let Some(declared) = declared {
        let id = &declared.pin.id;
        let attempts = start.max_attempts.zip(most).filter(|(asked, most)| asked > most);
        let timeout = start.attempt_timeout_ms.zip(longest).filter(|(asked, longest)| asked > longest);
        let violations: Vec<_> = attempts
            .map(|(asked, most)| Violation::new("max_attempts", format!("is {asked}; {id} allows {most}")))
            .into_iter()
            .chain(timeout.map(|(asked, longest)| {
                Violation::new("attempt_timeout", format!("is {asked} ms; {id} allows {longest} ms"))
            }))
            .collect();
        if !violations.is_empty() {
            return Err(Refusal::InvalidFields(violations));
        }
    }
    let max = start.max_attempts.or(most).filter(|max| *max > 1);
    let timeout_ms = start.attempt_timeout_ms.or(longest);
    Ok(AttemptsChange { max, timeout_ms, ..AttemptsChange::default() }.boxed())
}

/// Whether a failure of the run is that of an attempt: others are left, and nobody has asked for an abort.
pub(super) fn are_left(run: &Run) -> bool {
    attempts(run).is_some_and(Attempts::are_left) && run.supervision.abort_request.is_none()
}

/// Whether the authority has concluded that the last attempt failed, and its holder has not said so.
pub(super) fn is_presumed(run: &Run) -> bool {
    let failure = attempts(run).and_then(|all| all.last_failure.as_deref());
    run.is_between_attempts() && failure.is_some_and(|failure| failure.presumed)
}

/// Whether an attempt at the run has failed.
pub(super) fn has_failed_before(run: &Run) -> bool {
    attempts(run).is_some_and(|all| all.failed > 0)
}

/// The attempt fails, and the run waits for the claim that begins the next one. A suspension stays, whoever made it: the run is
/// ready once that has ended. Its owner and its phase stay as well, for what the attempt's holder may still report.
pub(super) fn failed(why: &Ending, presumed: bool, mut refined: RefinementsChange, cx: Cx<'_>) -> Permitted {
    let Cx { run, command, at, .. } = cx;
    let Ending { failure_reason, reason_code } = why.clone();
    // Where the authority has concluded it, the holder says more of the same failure.
    let is_known = run.is_between_attempts();
    let failure = AttemptFailure {
        attempt: attempts(run).map_or(1, |all| if is_known { all.failed } else { all.number() }),
        at,
        by: command.principal.clone(),
        lease_epoch: run.supervision.epoch(),
        failure_reason,
        reason_code,
        presumed,
    };
    refined.attempts = AttemptsChange { failure: Some(failure), ..AttemptsChange::default() }.boxed();
    let rests = |lease: Lease| Lease { resting: true, ..lease };
    let ready = match run.suspension() {
        None if !is_known => Some(Box::new(Ready { at, deadline: None, not_begun: false })),
        None | Some(_) => run.supervision.ready.clone(),
    };
    let supervision = SupervisionChange {
        lease: run.supervision.lease.filter(|lease| !lease.resting && !lease.released).map(rests),
        ready,
        ..SupervisionChange::default()
    };
    cx.makes(EventType::AttemptFailed, Changes { supervision, refinements: refined.boxed(), ..Changes::default() })
}

/// The next attempt begins in the initial phase, unless the lifecycle has it go on in the one where the last has failed.
pub(super) fn begins_anew(cx: Cx<'_>, position: &mut PositionChange) {
    let Some(lifecycle) = cx.declared().map(|declared| &declared.lifecycle) else { return };
    if lifecycle.on_retry != Some(OnRetry::Stay)
        && let Some(initial) = lifecycle.initial()
    {
        PhaseStep::to(initial, cx).put(position);
    }
}

/// What an event by which the run goes on changes of the attempts: after a failed one it begins the next, and the owner that a
/// run had before another became it is that of the next attempt.
pub(super) fn goes_on(is_owned_anew: bool, Cx { run, at, .. }: Cx<'_>) -> Option<Box<AttemptsChange>> {
    let all = attempts(run)?;
    let rested = run.rests_since().map_or(0, |since| at.since(since));
    let begins = AttemptBegin { at, rested_micros: run.supervision.rest_micros + rested };
    let owner = (is_owned_anew && all.owner.is_none()).then(|| run.agent_id.clone().unwrap_or_default());
    AttemptsChange { began: all.waits.then_some(begins), owner, ..AttemptsChange::default() }.boxed()
}

/// Refuses what an attempt's holder would still change when the attempt has failed: its lease is over. What is true is taken,
/// until another has the run: that it is done, where the failure was presumed, or that it fails for good. Who holds nothing may
/// pause the run meanwhile, and move it from phase to phase while it is paused.
pub(super) fn is_open(cx: Cx<'_>) -> Result<(), Refusal> {
    let Cx { run, command, .. } = cx;
    let Some(failure) = attempts(run).filter(|_| run.is_between_attempts()).and_then(|all| all.last_failure.as_deref())
    else {
        return Ok(());
    };
    let (facts, named) = (command.ask.facts(), command.ask.brought().terms.lease_epoch);
    let is_over = match facts.asker {
        Asker::Worker => !(suspension::moves(cx) && named.is_none()),
        Asker::Holder => true,
        Asker::Suspender => named.is_some(),
        Asker::Reporter => matches!(command.ask, Ask::Complete(_)) && !failure.presumed && !suspension::approves(cx),
        Asker::Anyone | Asker::Starter | Asker::Owner | Asker::Claimer | Asker::Stopper => false,
    };
    if is_over { Err(Refusal::lease_lost(facts.rpc, named.unwrap_or(LeaseEpoch::NONE), run)) } else { Ok(()) }
}

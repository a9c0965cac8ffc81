//! The rules of leases: who may report on a run that has one. What ends a lease is in
//! [`sweep`](crate::domain::sweep), what renews it in [`renewal`](crate::domain::renewal), and what a claim of it
//! takes in [`claim`](super::claim).

use crate::domain::context::Context;
use crate::domain::{
    Asker, Changes, Command, Executor, Facts, Lease, LeaseEpoch, Refusal, Run, Status, SupervisionChange,
};

/// Refuses an ask that only the lease's holder may make, unless it names the run's own lease and no older one: a worker
/// that lost its lease may still believe to hold it. A claim may name the lease that it means to follow.
pub(super) fn holds_lease(run: &Run, command: &Command) -> Result<(), Refusal> {
    let Facts { rpc, asker, .. } = command.ask.facts();
    let brought = command.ask.brought();
    let named = brought.terms.lease_epoch.or(brought.given_back);
    match asker {
        Asker::Anyone | Asker::Starter | Asker::Owner => Ok(()),
        // An operator suspends every run; others only what they hold.
        Asker::Suspender if named.is_none() && command.agents.is_operators() => Ok(()),
        Asker::Worker | Asker::Reporter | Asker::Suspender => {
            lease_is(run, rpc, named.unwrap_or(LeaseEpoch::NONE), false)
        }
        Asker::Holder => lease_is(run, rpc, named.unwrap_or(LeaseEpoch::NONE), true),
        Asker::Claimer => match named {
            Some(asked) if asked != run.supervision.epoch() => Err(Refusal::lease_lost(rpc, asked, run)),
            Some(_) | None => Ok(()),
        },
        Asker::Stopper => named.map_or(Ok(()), |asked| lease_is(run, rpc, asked, false)),
    }
}

/// Refuses an ask whose epoch is not the run's. `needs_lease`: the ask makes no sense without a lease.
pub(in crate::domain) fn lease_is(
    run: &Run,
    rpc: &'static str,
    asked: LeaseEpoch,
    needs_lease: bool,
) -> Result<(), Refusal> {
    let epoch = run.supervision.epoch();
    // A lease that does not exist or was given up has no holder.
    let released = run.supervision.lease.is_some_and(|lease| lease.released);
    let may = asked == epoch && !released && (epoch > LeaseEpoch::NONE || !needs_lease);
    if may { Ok(()) } else { Err(Refusal::lease_lost(rpc, asked, run)) }
}

/// Whether an event grants a lease to a caller who has proved an identity: else the run's owner says who it is.
pub(super) fn is_grantee_named(command: &Command, changes: &Changes) -> bool {
    let is_granted = changes.supervision.lease.is_some_and(|lease| !lease.released && !lease.resting);
    is_granted && command.principal.identity.is_some()
}

/// Who joins those that executed the run, by an event with these changes.
pub(super) fn executor(run: Option<&Run>, command: &Command, changes: &Changes) -> Option<Executor> {
    if is_executor_left(run, command, changes) {
        Some(Executor::Grantee)
    } else {
        is_executor_shown(run, command, changes).then_some(Executor::Caller)
    }
}

/// Whether an event ends the lease of a caller who has proved an identity, and executed the run: not one that gives back what
/// it never began.
fn is_executor_left(run: Option<&Run>, command: &Command, changes: &Changes) -> bool {
    let Some(supervision) = run.map(|run| &run.supervision) else { return false };
    let is_ended = changes.supervision.lease.is_some_and(|lease| !lease.resting);
    let is_given_back = supervision.unbegun.is_some() && changes.supervision.ready.is_some();
    let earlier = supervision.grantee.as_deref().and_then(|grantee| grantee.identity.as_ref());
    let next = command.principal.identity.as_ref().filter(|_| changes.supervision.to_grantee);
    let is_new = |earlier| next != Some(earlier) && !supervision.executed_by.contains(earlier);
    is_ended && !is_given_back && earlier.is_some_and(is_new)
}

/// Whether an event shows a caller with a proven identity to execute its run without a lease, which the run does not know
/// of it: who starts such a run, or reports it before it waits. Nothing else tells who executes it.
fn is_executor_shown(run: Option<&Run>, command: &Command, changes: &Changes) -> bool {
    let Some(identity) = &command.principal.identity else { return false };
    let supervision = run.map(|run| &run.supervision);
    let has_lease = changes.supervision.lease.is_some() || supervision.is_some_and(|all| all.lease.is_some());
    let is_running = run.is_some_and(|run| run.status == Status::Running && !run.is_at_rest());
    let agent_id = command.principal.agent_id.as_ref();
    let is_owner = agent_id.is_some() && run.and_then(|run| run.agent_id.as_ref()) == agent_id;
    let asker = command.ask.facts().asker;
    // Others may suspend it as well: who names its owner does so itself.
    let goes_on = asker == Asker::Worker || asker == Asker::Suspender && is_owner;
    let executes = asker == Asker::Starter || is_running && goes_on;
    executes && !has_lease && !supervision.is_some_and(|all| all.was_executed_by(identity))
}

/// Gives a lease up. The new epoch has no holder: the writes of the last holder are refused from here on.
pub(super) fn released(run: &Run, context: &Context<'_>) -> SupervisionChange {
    let released = |lease: Lease| Lease { released: true, ..granted(Some(run), context, lease.ttl_ms) };
    SupervisionChange { lease: run.supervision.lease.map(released), ..SupervisionChange::default() }
}

/// The lease that follows the run's last one.
pub(super) fn granted(run: Option<&Run>, context: &Context<'_>, ttl_ms: u64) -> Lease {
    let epoch = run.map_or(LeaseEpoch::NONE, |run| run.supervision.epoch());
    Lease { epoch: epoch.next(context.ledger_epoch), ttl_ms, released: false, resting: false }
}

//! The rules of a run's owner: whose runs an agent may write.

use crate::domain::{Asker, Command, Refusal, Run, Status};

/// Refuses an agent that is not the run's owner. Aborts and redactions are open to every agent, and all asks to a caller
/// that names no agent. A claim that takes over a running run takes it from its owner. But a caller that is confined to
/// its agents writes runs of others in no way.
pub(super) fn owned(run: &Run, command: &Command) -> Result<(), Refusal> {
    confined(run, command)?;
    let is_open = match command.ask.facts().asker {
        Asker::Anyone | Asker::Starter | Asker::Stopper => true,
        Asker::Claimer => run.status == Status::Running && (!run.is_ready() || run.is_for_any_worker()),
        // A suspension that is not the holder's is an operator's.
        Asker::Suspender => command.ask.brought().terms.lease_epoch.is_none(),
        Asker::Owner | Asker::Worker | Asker::Reporter | Asker::Holder => false,
    };
    let (rpc, owner) = (command.ask.facts().rpc, owner_to(run, command));
    if is_open { Ok(()) } else { owned_as(run, rpc, command.principal.agent_id.as_ref(), owner) }
}

/// Refuses a caller that is confined to its agents where the run is of none of them. A run without an owner can be
/// taken, and is the taker's from then on: by a claim, and by a start where the run waits for one.
pub(super) fn confined(run: &Run, command: &Command) -> Result<(), Refusal> {
    if !command.agents.is_confined() {
        return Ok(());
    }
    let asker = command.ask.facts().asker;
    let is_own = match owner_to(run, command) {
        Some(owner) => command.agents.contains(owner),
        None => asker == Asker::Claimer || asker == Asker::Starter && run.status == Status::Pending,
    };
    if is_own { Ok(()) } else { Err(not_owner(run, command.ask.facts().rpc, command.principal.agent_id.as_deref())) }
}

/// The owner that a command meets.
fn owner_to<'a>(run: &'a Run, command: &Command) -> Option<&'a String> {
    if command.ask.facts().asker == Asker::Claimer { run.owner_to_claim() } else { run.agent_id.as_ref() }
}

fn not_owner(run: &Run, rpc: &'static str, agent_id: Option<&str>) -> Refusal {
    Refusal::NotOwner {
        agent_id: agent_id.unwrap_or_default().to_owned(),
        owner_agent_id: run.agent_id.clone().unwrap_or_default(),
        tab_group_id: run.bindings.tab_group_id.clone(),
        rpc,
        key: run.key(),
    }
}

/// See [`confined`]: the same for a heartbeat, whose caller names its agent.
pub(in crate::domain) fn renewed_by(
    run: &Run,
    rpc: &'static str,
    agent_id: Option<&String>,
    is_confined: bool,
) -> Result<(), Refusal> {
    if is_confined && run.agent_id.is_none() {
        return Err(not_owner(run, rpc, agent_id.map(String::as_str)));
    }
    owned_by(run, rpc, agent_id)
}

pub(super) fn owned_by(run: &Run, rpc: &'static str, agent_id: Option<&String>) -> Result<(), Refusal> {
    owned_as(run, rpc, agent_id, run.agent_id.as_ref())
}

fn owned_as(run: &Run, rpc: &'static str, agent_id: Option<&String>, owner: Option<&String>) -> Result<(), Refusal> {
    match (agent_id, owner) {
        (Some(agent_id), Some(owner)) if agent_id != owner => Err(not_owner(run, rpc, Some(agent_id))),
        (Some(_) | None, Some(_) | None) => Ok(()),
    }
}

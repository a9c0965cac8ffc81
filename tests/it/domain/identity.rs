//! Identity on starts, and ownership on calls that only the owner may make.

use runledger::domain::{Bindings, Principal, PrincipalKind, Refusal, Run, Status};

use super::{applied, decided, run_in};
use crate::support::commands::{Asking as _, Operation, THREAD, command, start};

fn owned_by(owner: Option<&str>, status: Status) -> Run {
    let bindings = Bindings { tab_group_id: Some("tabs-1".into()), ..Bindings::default() };
    Run { agent_id: owner.map(str::to_owned), bindings, ..run_in(status) }
}

#[test]
fn only_a_named_stranger_is_refused_and_never_an_abort() {
    for status in Status::ALL {
        for owner in [None, Some("owner")] {
            for caller in [None, Some("owner"), Some("stranger")] {
                for operation in Operation::ALL {
                    let run = owned_by(owner, status);
                    let mut command = command("run-1", operation);
                    if let Some(caller) = caller {
                        command = command.by(caller);
                    }
                    let only_the_owner = match operation {
                        Operation::Update
                        | Operation::Complete
                        | Operation::Fail
                        | Operation::Archive
                        | Operation::Restore => true,
                        // A caller that takes over a running run takes it from its owner.
                        Operation::Claim => status != Status::Running,
                        // A release is refused before: the run has no lease.
                        Operation::Start { .. }
                        | Operation::Abort
                        | Operation::Release
                        | Operation::GiveBack
                        | Operation::RequestAbort
                        // Open to those who may write the runs of others.
                        | Operation::Suspend
                        | Operation::Resume
                        | Operation::Sweep
                        | Operation::Redact => false,
                    };
                    let expected = only_the_owner && owner.is_some() && caller == Some("stranger");
                    let answer = decided(Some(&run), &command);
                    let found = matches!(answer, Err(Refusal::NotOwner { .. }));
                    assert_eq!(found, expected, "{status} {owner:?} {caller:?} {operation:?}: {answer:?}");
                    if let Err(refusal @ Refusal::NotOwner { .. }) = answer {
                        let said = Refusal::NotOwner {
                            agent_id: "stranger".into(),
                            owner_agent_id: "owner".into(),
                            tab_group_id: Some("tabs-1".into()),
                            rpc: command.ask.facts().rpc,
                            key: run.key(),
                        };
                        assert_eq!(refusal, said);
                    }
                }
            }
        }
    }
}

#[test]
fn an_authenticated_stranger_is_a_stranger() {
    let run = owned_by(Some("owner"), Status::Running);
    let mut complete = command("run-1", Operation::Complete);
    complete.principal =
        Principal { kind: PrincipalKind::Authenticated, agent_id: Some("stranger".into()), identity: None };
    assert_eq!(decided(Some(&run), &complete).unwrap_err().reason(), "NOT_OWNER");
}

#[test]
fn a_start_conflicts_on_the_thread_always_and_on_the_agent_where_both_are_given() {
    for status in Status::ALL {
        for owner in [None, Some("owner")] {
            for thread in [THREAD, "another"] {
                for agent in [None, Some("owner"), Some("stranger")] {
                    let run = owned_by(owner, status);
                    let mut start = start("run-1").thread(thread);
                    start = start.changing(|fields| fields.agent_id = agent.map(str::to_owned));
                    let expected = if thread == "another" {
                        Some(("task_thread_id", "another", THREAD))
                    } else if owner.is_some() && agent == Some("stranger") {
                        Some(("agent_id", "stranger", "owner"))
                    } else {
                        None
                    };
                    let answer = decided(Some(&run), &start);
                    match (&answer, expected) {
                        (Err(Refusal::RunIdConflict { field, requested, actual, run: summary }), Some(expected)) => {
                            assert_eq!((*field, requested.as_str(), actual.as_str()), expected);
                            assert_eq!(*summary, run.summary());
                        }
                        (Err(Refusal::RunIdConflict { .. }), None) | (_, Some(_)) => {
                            panic!("{status} {owner:?} {thread} {agent:?}: {answer:?}")
                        }
                        (_, None) => {}
                    }
                }
            }
        }
    }
}

#[test]
fn the_acting_agent_of_another_owners_start_is_no_conflict() {
    let run = owned_by(Some("owner"), Status::Pending);
    let (event, after) = applied(Some(&run), &start("run-1").by("stranger"));
    assert_eq!((event.changes.agent_id, after.agent_id.as_deref()), (None, Some("owner")));
    assert_eq!(event.principal, Principal::claimed("stranger".into()));
}

#[test]
fn a_start_that_names_no_agent_makes_the_acting_agent_the_owner() {
    let owner = |command| applied(None, &command).1.agent_id;
    assert_eq!(owner(start("run-1").by("acting")), Some("acting".to_owned()));
    assert_eq!(owner(start("run-1").by("acting").owner("named")), Some("named".to_owned()));
    assert_eq!(owner(start("run-1")), None);
    let pending = owned_by(None, Status::Pending);
    assert_eq!(applied(Some(&pending), &start("run-1").by("acting")).1.agent_id.as_deref(), Some("acting"));
}

#[test]
fn no_operation_but_a_start_gives_a_run_an_owner() {
    let run = owned_by(None, Status::Running);
    for operation in [Operation::Complete, Operation::Abort, Operation::Fail] {
        assert_eq!(applied(Some(&run), &command("run-1", operation).by("acting")).1.agent_id, None);
    }
    assert_eq!(applied(Some(&run), &command("run-1", Operation::Update).workflow("w").by("acting")).1.agent_id, None);
}

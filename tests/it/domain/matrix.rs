//! Every status, and none, times every operation.

use runledger::domain::decide::Decision;
use runledger::domain::{EventType, Refusal, Revision, Status};

use super::{decided, now, run_in};
use crate::support::commands::{Asking as _, Operation, command};

#[derive(Clone, Copy, Debug, PartialEq)]
enum Answer {
    Makes(EventType, Status),
    Unchanged,
    Refused(&'static str),
    /// `INVALID_TRANSITION` to this status.
    NoWayTo(Status),
}

#[test]
fn every_operation_on_every_status_answers_by_the_matrix() {
    use Answer::{Makes, NoWayTo, Refused, Unchanged};
    use Status::{Aborted, Completed, Failed, Pending, Running};
    let (unknown, not_running) = (Refused("RUN_NOT_FOUND"), Refused("RUN_NOT_RUNNING"));
    let created = |status| Makes(EventType::Created, status);
    let (aborts, fails) = (Makes(EventType::Aborted, Aborted), Makes(EventType::Failed, Failed));
    let (starts, completes) = (Makes(EventType::Started, Running), Makes(EventType::Completed, Completed));
    let (updates, held) = (Makes(EventType::Updated, Running), Refused("LEASE_HELD"));
    let (lost, requests) = (Refused("LEASE_LOST"), Makes(EventType::AbortRequested, Running));
    let suspends = Makes(EventType::Suspended, Running);
    let redacts = |status| Makes(EventType::Redacted, status);
    let (not_ended, archives) = (Refused("RUN_NOT_TERMINAL"), |status| Makes(EventType::Archived, status));
    #[rustfmt::skip]
    let matrix: [(Option<Status>, [Answer; 16]); 6] = [
        //                 start              start deferred    update       complete            abort      fail       claim             release      give back    request abort  suspend      resume       sweep      archive      restore    redact
        (None,            [created(Running),  created(Pending), unknown,     unknown,            unknown,   unknown,   unknown,          unknown,     unknown,     unknown,       unknown,     unknown,     unknown,   unknown,     unknown,   unknown]),
        (Some(Pending),   [starts,            Unchanged,        not_running, NoWayTo(Completed), aborts,    fails,     starts,           lost,        lost,        aborts,        not_running, not_running, Unchanged, not_ended,   Unchanged, redacts(Pending)]),
        (Some(Running),   [Unchanged,         Unchanged,        updates,     completes,          aborts,    fails,     held,             lost,        lost,        requests,      suspends,    Unchanged,   Unchanged, not_ended,   Unchanged, redacts(Running)]),
        (Some(Completed), [NoWayTo(Running),  NoWayTo(Pending), not_running, Unchanged,          Unchanged, Unchanged, NoWayTo(Running), lost,        lost,        Unchanged,     not_running, not_running, Unchanged, archives(Completed), Unchanged, redacts(Completed)]),
        (Some(Aborted),   [NoWayTo(Running),  NoWayTo(Pending), not_running, NoWayTo(Completed), Unchanged, Unchanged, NoWayTo(Running), lost,        lost,        Unchanged,     not_running, not_running, Unchanged, archives(Aborted), Unchanged, redacts(Aborted)]),
        (Some(Failed),    [NoWayTo(Running),  NoWayTo(Pending), not_running, NoWayTo(Completed), Unchanged, Unchanged, NoWayTo(Running), lost,        lost,        Unchanged,     not_running, not_running, Unchanged, archives(Failed), Unchanged, redacts(Failed)]),
    ];
    for (from, answers) in matrix {
        for (operation, expected) in Operation::ALL.into_iter().zip(answers) {
            assert_eq!(answer(from, operation), expected, "{from:?} with {operation:?}");
        }
    }
}

fn answer(from: Option<Status>, operation: Operation) -> Answer {
    let run = from.map(run_in);
    let mut command = command("run-1", operation);
    if operation == Operation::Update {
        command = command.changing(|fields| fields.fallback_used = true);
    }
    match decided(run.as_ref(), &command) {
        Ok(Decision::Apply(event, after)) => {
            assert_eq!((event.from, event.to), (from, after.status));
            assert_eq!(after.revision, run.as_ref().map_or(Revision::FIRST, |run| run.revision.next()));
            assert_eq!(event.revision, after.revision);
            assert_eq!((event.at, after.updated_at), (now(), now()));
            let ended_at = run.as_ref().and_then(|run| run.completed_at).unwrap_or_else(now);
            assert_eq!(after.completed_at, after.status.is_terminal().then_some(ended_at));
            Answer::Makes(event.event_type, event.to)
        }
        Ok(Decision::Unchanged) => Answer::Unchanged,
        Ok(Decision::Replayed { .. }) => panic!("nothing was applied before"),
        Err(Refusal::InvalidTransition { run: summary, to }) => {
            assert_eq!(Some(summary), run.map(|run| run.summary()));
            Answer::NoWayTo(to)
        }
        Err(refusal) => {
            if let Refusal::RunNotRunning { run: summary } = &refusal {
                assert_eq!(Some(summary), run.map(|run| run.summary()).as_ref());
            }
            Answer::Refused(refusal.reason())
        }
    }
}

#[test]
fn the_matrix_of_transitions_is_the_contracts() {
    use Status::{Aborted, Completed, Failed, Pending, Running};
    let allowed = [
        (None, Pending),
        (None, Running),
        (Some(Pending), Running),
        (Some(Pending), Aborted),
        (Some(Pending), Failed),
        (Some(Running), Completed),
        (Some(Running), Aborted),
        (Some(Running), Failed),
    ];
    for from in Status::ALL.into_iter().map(Some).chain([None]) {
        for to in Status::ALL {
            assert_eq!(Status::allows(from, to), allowed.contains(&(from, to)), "{from:?} to {to:?}");
        }
    }
}

#[test]
fn every_event_is_a_transition_of_the_matrix_or_leaves_the_status() {
    let stays =
        [EventType::Updated, EventType::AbortRequested, EventType::Suspended, EventType::Archived, EventType::Redacted];
    for from in Status::ALL.into_iter().map(Some).chain([None]) {
        for operation in Operation::ALL {
            if let Answer::Makes(event_type, to) = answer(from, operation) {
                assert!(
                    stays.contains(&event_type) && from == Some(to) || Status::allows(from, to),
                    "{from:?} with {operation:?}"
                );
            }
        }
    }
}

//! The order of checks: a command that fails two of them gets the answer of the earlier one.

use runledger::domain::decide::{AppliedRequest, Context, Decision, decide};
use runledger::domain::{Command, Refusal, Run, Status};
use serde_json::json;

use super::{decided, now, refused, run_in};
use crate::support::commands::{Asking as _, Operation, abort, command, complete, deferred, fail, start, update};

/// Decides a command whose `request_id` the history has: with its own digest, or from another request.
fn remembered(run: Option<&Run>, command: &Command, same: bool) -> Result<Decision, Refusal> {
    let digest = if same { command.request.as_ref().unwrap().digest } else { [0; 32] };
    decide(
        run,
        command,
        &Context { applied: Some(&AppliedRequest { revision: 1.into(), digest }), ..Context::at(now()) },
    )
}

#[test]
fn a_replay_speaks_before_existence() {
    for operation in [Operation::Update, Operation::Complete, Operation::Abort, Operation::Fail] {
        let command = command("run-1", operation).request("request-1");
        assert_eq!(remembered(None, &command, true), Ok(Decision::Replayed { revision: 1.into() }));
        assert_eq!(remembered(None, &command, false).unwrap_err().reason(), "REQUEST_ID_REUSED");
    }
}

#[test]
fn a_replay_speaks_before_every_later_check() {
    let (running, completed) = (run_in(Status::Running), run_in(Status::Completed));
    for (run, command) in [
        (&running, start("run-1").thread("another")),
        (&running, update("run-1").by("stranger")),
        (&running, complete("run-1").revision(77)),
        (&running, start("run-1")),
        (&completed, start("run-1")),
        (&completed, update("run-1").workflow("late")),
    ] {
        let command = command.request("request-1");
        assert_eq!(remembered(Some(run), &command, true), Ok(Decision::Replayed { revision: 1.into() }), "{command:?}");
        assert_eq!(remembered(Some(run), &command, false).unwrap_err().reason(), "REQUEST_ID_REUSED", "{command:?}");
    }
}

#[test]
fn another_requests_history_is_no_concern_of_a_call_without_a_request_id() {
    let applied = AppliedRequest { revision: 1.into(), digest: [0; 32] };
    let context = Context { applied: Some(&applied), ..Context::at(now()) };
    assert!(matches!(decide(None, &start("run-1"), &context), Ok(Decision::Apply(..))));
}

/// Identity is tested on starts only, and a start of an unknown run is no failure: with ownership, which the same
/// calls do not share, the next check that existence can meet is the revision.
#[test]
fn existence_speaks_before_the_expected_revision() {
    for operation in [Operation::Update, Operation::Complete, Operation::Abort, Operation::Fail] {
        assert_eq!(refused(None, &command("run-1", operation).by("stranger").revision(7)), "RUN_NOT_FOUND");
    }
}

#[test]
fn identity_speaks_before_the_expected_revision() {
    let run = run_in(Status::Running);
    assert_eq!(refused(Some(&run), &start("run-1").thread("another").revision(77)), "RUN_ID_CONFLICT");
    assert_eq!(refused(Some(&run), &start("run-1").owner("another").revision(0)), "RUN_ID_CONFLICT");
}

#[test]
fn identity_speaks_before_the_no_op_rules_and_the_transition_rules() {
    for status in Status::ALL {
        for command in [start("run-1"), deferred("run-1")] {
            assert_eq!(refused(Some(&run_in(status)), &command.thread("another")), "RUN_ID_CONFLICT", "{status}");
        }
    }
}

#[test]
fn the_thread_speaks_before_the_agent() {
    let refusal = decided(Some(&run_in(Status::Running)), &start("run-1").thread("another").owner("another"));
    assert!(matches!(refusal, Err(Refusal::RunIdConflict { field: "task_thread_id", .. })), "{refusal:?}");
}

#[test]
fn ownership_speaks_before_the_expected_revision() {
    let run = run_in(Status::Running);
    for command in [update("run-1"), complete("run-1"), fail("run-1")] {
        assert_eq!(refused(Some(&run), &command.by("stranger").revision(77)), "NOT_OWNER");
    }
}

#[test]
fn ownership_speaks_before_the_no_op_rules_and_the_transition_rules() {
    for status in Status::ALL {
        for command in [update("run-1"), complete("run-1"), fail("run-1")] {
            assert_eq!(refused(Some(&run_in(status)), &command.by("stranger")), "NOT_OWNER", "{status}");
        }
    }
}

/// After a lost answer the run is a revision further: the first call itself would make the repetition refused.
#[test]
fn a_call_at_an_expected_revision_is_not_simply_to_be_sent_again() {
    for command in [complete("run-1"), start("run-1")] {
        assert!(command.is_idempotent());
        assert!(!command.revision(1).is_idempotent());
    }
}

#[test]
fn the_expected_revision_speaks_before_the_no_op_rules() {
    let (running, completed) = (run_in(Status::Running), run_in(Status::Completed));
    for (run, command) in [
        (&running, start("run-1")),
        (&running, deferred("run-1")),
        (&running, update("run-1")),
        (&completed, complete("run-1")),
        (&completed, abort("run-1")),
        (&completed, fail("run-1")),
    ] {
        assert_eq!(decided(Some(run), &command), Ok(Decision::Unchanged), "{command:?}");
        let refusal = decided(Some(run), &command.clone().revision(77));
        let Err(Refusal::RevisionMismatch { expected, run: Some(summary), .. }) = refusal else {
            panic!("{command:?}: {refusal:?}");
        };
        assert_eq!((expected, summary), (77.into(), run.summary()));
        assert_eq!(decided(Some(run), &command.revision(run.revision)), Ok(Decision::Unchanged));
    }
}

#[test]
fn the_expected_revision_speaks_before_the_transition_rules() {
    let (pending, failed) = (run_in(Status::Pending), run_in(Status::Failed));
    for (run, command) in [
        (&pending, update("run-1").workflow("w")),
        (&pending, complete("run-1")),
        (&failed, start("run-1")),
        (&failed, deferred("run-1")),
        (&failed, complete("run-1")),
        (&failed, update("run-1").workflow("w")),
    ] {
        assert_eq!(refused(Some(run), &command.clone().revision(77)), "REVISION_MISMATCH");
        let other = refused(Some(run), &command.revision(run.revision));
        assert!(["INVALID_TRANSITION", "RUN_NOT_RUNNING"].contains(&other), "{other}");
    }
}

#[test]
fn revision_0_means_that_the_run_must_not_exist() {
    assert!(matches!(decided(None, &start("run-1").revision(0)), Ok(Decision::Apply(..))));
    assert_eq!(refused(Some(&run_in(Status::Running)), &start("run-1").revision(0)), "REVISION_MISMATCH");
    let refusal = decided(None, &start("run-1").revision(3));
    assert!(
        matches!(refusal, Err(Refusal::RevisionMismatch { expected, run: None, .. }) if expected == 3),
        "{refusal:?}"
    );
}

#[test]
fn an_update_that_changes_nothing_is_still_refused_on_a_run_that_is_not_running() {
    for status in [Status::Pending, Status::Completed, Status::Aborted, Status::Failed] {
        assert_eq!(refused(Some(&run_in(status)), &update("run-1").label("kept", "yes")), "RUN_NOT_RUNNING");
    }
}

#[test]
fn the_limits_of_the_run_speak_last() {
    let huge = json!({"text": "x".repeat(70_000)});
    let (running, aborted) = (run_in(Status::Running), run_in(Status::Aborted));
    assert_eq!(refused(Some(&running), &update("run-1").metadata(&huge)), "INVALID_FIELD");
    assert_eq!(refused(Some(&running), &complete("run-1").metadata(&huge)), "INVALID_FIELD");
    assert_eq!(refused(Some(&running), &update("run-1").metadata(&huge).revision(77)), "REVISION_MISMATCH");
    assert_eq!(refused(Some(&aborted), &update("run-1").metadata(&huge)), "RUN_NOT_RUNNING");
    assert_eq!(refused(Some(&aborted), &complete("run-1").metadata(&huge)), "INVALID_TRANSITION");
    assert_eq!(decided(Some(&running), &start("run-1").metadata(&huge)), Ok(Decision::Unchanged));
}

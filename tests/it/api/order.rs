//! The contract's order of checks: where two checks would speak, the earlier one does.

use runledger_proto::v1::{
    AbortRunRequest, Disposition, FailRunRequest, RevisionMismatchError, RunStatus, StartRunRequest, UpdateRunRequest,
};
use tonic::Code;

use super::caller::{Ask, abort, complete, fail, fresh, start, update_something};
use super::place::Place;
use super::refused::summary;

pub(crate) async fn the_namespace_comes_before_the_request(place: Place) {
    let elsewhere = place.caller().await.header("runledger-namespace", b"elsewhere");
    for ask in Ask::each("no such run, and no run id") {
        elsewhere.refused(ask).await.is(Code::NotFound, "NAMESPACE_NOT_FOUND");
    }
}

pub(crate) async fn the_request_comes_before_the_replay(place: Place) {
    let caller = place.caller().await;
    let run = caller.run_in(RunStatus::Running).await;
    let asked = Ask::from(fail(&run.run_id)).request_id("r");
    caller.apply(asked.clone()).await;
    assert_eq!(caller.must(asked).await.disposition, Disposition::Replayed);
    let too_long = FailRunRequest { failure_reason: "x".repeat(4097), ..fail(&run.run_id) };
    assert_eq!(caller.refused(Ask::from(too_long).request_id("r")).await.fields(), ["failure_reason"]);
}

pub(crate) async fn the_request_comes_before_existence(place: Place) {
    let caller = place.caller().await;
    let reasonless = FailRunRequest { failure_reason: String::new(), ..fail(&fresh("unknown")) };
    assert_eq!(caller.refused(reasonless).await.fields(), ["failure_reason"]);
}

pub(crate) async fn the_replay_comes_before_identity(place: Place) {
    let caller = place.caller().await;
    let first = StartRunRequest { request_id: "r".into(), ..start(&fresh("replay")) };
    caller.apply(first.clone()).await;
    let other = StartRunRequest { task_thread_id: "another".into(), ..first };
    caller.refused(other.clone()).await.is(Code::InvalidArgument, "REQUEST_ID_REUSED");
    caller.refused(Ask::from(other).request_id("s")).await.is(Code::AlreadyExists, "RUN_ID_CONFLICT");
}

pub(crate) async fn the_replay_comes_before_ownership(place: Place) {
    let caller = place.caller().await;
    let run_id = caller.apply(StartRunRequest { agent_id: "owner".into(), ..start(&fresh("replay")) }).await.run_id;
    let asked = Ask::from(update_something(&run_id)).request_id("r");
    caller.agent("owner").apply(asked.clone()).await;
    caller.agent("other").refused(asked).await.is(Code::InvalidArgument, "REQUEST_ID_REUSED");
}

pub(crate) async fn the_replay_comes_before_the_expected_revision(place: Place) {
    let caller = place.caller().await;
    let run = caller.run_in(RunStatus::Running).await;
    let asked = Ask::from(update_something(&run.run_id)).request_id("r").expecting(1);
    let first = caller.apply(asked.clone()).await;
    let again = caller.must(asked).await;
    assert_eq!((again.run, again.disposition), (first, Disposition::Replayed));
}

pub(crate) async fn existence_comes_before_ownership_and_the_expected_revision(place: Place) {
    let caller = place.caller().await.agent("somebody");
    for ask in Ask::each(&fresh("unknown")).into_iter().skip(2) {
        caller.refused(ask.expecting(7)).await.is(Code::NotFound, "RUN_NOT_FOUND");
    }
}

pub(crate) async fn a_start_of_no_run_must_expect_none(place: Place) {
    let caller = place.caller().await;
    let run_id = fresh("unborn");
    let refused = caller.refused(Ask::from(start(&run_id)).expecting(7)).await.is(Code::Aborted, "REVISION_MISMATCH");
    let detail: RevisionMismatchError = refused.detail("runledger.v1.RevisionMismatchError");
    assert_eq!(detail, RevisionMismatchError { expected_revision: 7, actual_revision: 0, run: None });
    caller.apply(Ask::from(start(&run_id)).expecting(0)).await;
}

pub(crate) async fn identity_comes_before_the_expected_revision(place: Place) {
    let caller = place.caller().await;
    let run = caller.run_in(RunStatus::Running).await;
    let other = StartRunRequest { task_thread_id: "another".into(), ..start(&run.run_id) };
    caller.refused(Ask::from(other).expecting(0)).await.is(Code::AlreadyExists, "RUN_ID_CONFLICT");
}

pub(crate) async fn identity_comes_before_the_transition(place: Place) {
    let caller = place.caller().await;
    for status in [RunStatus::Completed, RunStatus::Aborted, RunStatus::Failed] {
        let run = caller.run_in(status).await;
        let other = StartRunRequest { task_thread_id: "another".into(), ..start(&run.run_id) };
        caller.refused(other).await.is(Code::AlreadyExists, "RUN_ID_CONFLICT");
    }
}

pub(crate) async fn ownership_comes_before_the_expected_revision(place: Place) {
    let caller = place.caller().await;
    let run_id = caller.apply(StartRunRequest { agent_id: "owner".into(), ..start(&fresh("owned")) }).await.run_id;
    let other = caller.agent("other");
    for ask in [Ask::from(update_something(&run_id)), complete(&run_id).into(), fail(&run_id).into()] {
        other.refused(ask.clone().expecting(7)).await.is(Code::PermissionDenied, "NOT_OWNER");
        caller.agent("owner").refused(ask.expecting(7)).await.is(Code::Aborted, "REVISION_MISMATCH");
    }
}

pub(crate) async fn ownership_comes_before_the_no_op_and_the_transition(place: Place) {
    let caller = place.caller().await;
    let run_id = caller.apply(StartRunRequest { agent_id: "owner".into(), ..start(&fresh("owned")) }).await.run_id;
    caller.apply(complete(&run_id)).await;
    for ask in [Ask::from(update_something(&run_id)), complete(&run_id).into(), fail(&run_id).into()] {
        caller.agent("other").refused(ask).await.is(Code::PermissionDenied, "NOT_OWNER");
    }
}

pub(crate) async fn the_expected_revision_comes_before_the_no_op(place: Place) {
    let caller = place.caller().await;
    let running = caller.run_in(RunStatus::Running).await;
    let aborted = caller.run_in(RunStatus::Aborted).await;
    let nothing = UpdateRunRequest { run_id: running.run_id.clone(), ..UpdateRunRequest::default() };
    let late = AbortRunRequest { failure_reason: "late".into(), ..abort(&aborted.run_id) };
    for (run, ask, expected) in [
        (&running, Ask::from(start(&running.run_id)), 0),
        (&running, start(&running.run_id).into(), 2),
        (&running, nothing.into(), 7),
        (&aborted, late.into(), 1),
        (&aborted, fail(&aborted.run_id).into(), u64::MAX),
    ] {
        let refused = caller.refused(ask.clone().expecting(expected)).await.is(Code::Aborted, "REVISION_MISMATCH");
        let detail: RevisionMismatchError = refused.detail("runledger.v1.RevisionMismatchError");
        let wanted = RevisionMismatchError {
            expected_revision: expected,
            actual_revision: run.revision,
            run: Some(summary(run)),
        };
        assert_eq!(detail, wanted);
        caller.unchanged(ask.expecting(run.revision)).await;
    }
}

pub(crate) async fn the_expected_revision_comes_before_the_transition(place: Place) {
    let caller = place.caller().await;
    let aborted = caller.run_in(RunStatus::Aborted).await;
    for ask in
        [Ask::from(start(&aborted.run_id)), update_something(&aborted.run_id).into(), complete(&aborted.run_id).into()]
    {
        caller.refused(ask.clone().expecting(1)).await.is(Code::Aborted, "REVISION_MISMATCH");
        assert_eq!(caller.refused(ask.expecting(2)).await.code, Code::FailedPrecondition);
    }
}

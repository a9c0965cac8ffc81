//! Every status times every RPC.

use runledger_proto::v1::{LifecycleTransitionError, RunStatus, RunSummary};
use tonic::Code;
use tonic_types::pb::ResourceInfo;

use super::caller::{Ask, Caller, STATUSES, fresh, name};
use super::place::Place;
use super::refused::{Refused, summary};

/// The result that a call must have.
#[derive(Clone, Copy, Debug)]
enum Outcome {
    /// The call makes its event and leads to this status.
    Applied(RunStatus),
    Unchanged,
    InvalidTransition(RunStatus),
    RunNotRunning,
    RunNotFound,
}

/// In the order of [`Ask::each`]: start, deferred start, update, complete, abort, fail.
fn expected(from: RunStatus) -> [Outcome; 6] {
    use Outcome::{Applied, InvalidTransition, RunNotFound, RunNotRunning, Unchanged};
    use RunStatus::{Aborted, Completed, Failed, Pending, Running};
    match from {
        RunStatus::Unspecified => {
            [Applied(Running), Applied(Pending), RunNotFound, RunNotFound, RunNotFound, RunNotFound]
        }
        Pending => [
            Applied(Running),
            Unchanged,
            RunNotRunning,
            InvalidTransition(Completed),
            Applied(Aborted),
            Applied(Failed),
        ],
        Running => [Unchanged, Unchanged, Applied(Running), Applied(Completed), Applied(Aborted), Applied(Failed)],
        Completed => {
            [InvalidTransition(Running), InvalidTransition(Pending), RunNotRunning, Unchanged, Unchanged, Unchanged]
        }
        Aborted | Failed => [
            InvalidTransition(Running),
            InvalidTransition(Pending),
            RunNotRunning,
            InvalidTransition(Completed),
            Unchanged,
            Unchanged,
        ],
    }
}

pub(crate) async fn every_status_answers_every_mutation(place: Place) {
    let caller = place.caller().await;
    for from in [RunStatus::Unspecified].into_iter().chain(STATUSES) {
        for (which, outcome) in expected(from).into_iter().enumerate() {
            mutation(&caller, from, which, outcome).await;
        }
    }
}

async fn mutation(caller: &Caller, from: RunStatus, which: usize, outcome: Outcome) {
    let before = match from {
        RunStatus::Unspecified => None,
        RunStatus::Pending | RunStatus::Running | RunStatus::Completed | RunStatus::Aborted | RunStatus::Failed => {
            Some(caller.run_in(from).await)
        }
    };
    let run_id = before.as_ref().map_or_else(|| fresh("matrix"), |run| run.run_id.clone());
    let ask = Ask::each(&run_id)[which].clone();
    let case = format!("{from:?} {ask:?}");
    let answer = caller.call(ask).await;
    match (outcome, before) {
        (Outcome::Applied(to), before) => {
            let done = answer.unwrap();
            assert_eq!(done.run.status(), to, "{case}");
            assert_eq!(done.run.revision, before.as_ref().map_or(0, |run| run.revision) + 1, "{case}");
            assert_eq!(done.current_revision, done.run.revision, "{case}");
            assert_eq!(done.disposition.as_str_name(), "DISPOSITION_APPLIED", "{case}");
            assert_eq!(done.run.completed_at.is_some(), to != RunStatus::Pending && to != RunStatus::Running, "{case}");
            assert_eq!(caller.get(&run_id).await, done.run, "{case}");
        }
        (Outcome::Unchanged, Some(before)) => {
            let done = answer.unwrap();
            assert_eq!(done.disposition.as_str_name(), "DISPOSITION_UNCHANGED", "{case}");
            assert_eq!((&done.run, done.current_revision), (&before, before.revision), "{case}");
            untouched(caller, &before).await;
        }
        (Outcome::InvalidTransition(to), Some(before)) => {
            let refused = Refused::from(answer.unwrap_err()).is(Code::FailedPrecondition, "INVALID_TRANSITION");
            let message = format!("Invalid lifecycle transition for run {run_id}: {} → {}", name(from), name(to));
            assert_eq!(refused.message, message, "{case}");
            let wanted = LifecycleTransitionError {
                name: "LifecycleTransitionError".into(),
                run_id: run_id.clone(),
                from: from.into(),
                to: to.into(),
                message,
                run: Some(summary(&before)),
            };
            assert_eq!(
                refused.detail::<LifecycleTransitionError>("runledger.v1.LifecycleTransitionError"),
                wanted,
                "{case}"
            );
            assert_eq!((&*refused.info["from"], &*refused.info["to"]), (&*name(from), &*name(to)));
            untouched(caller, &before).await;
        }
        (Outcome::RunNotRunning, Some(before)) => {
            let refused = Refused::from(answer.unwrap_err()).is(Code::FailedPrecondition, "RUN_NOT_RUNNING");
            assert_eq!(refused.detail::<RunSummary>("runledger.v1.RunSummary"), summary(&before), "{case}");
            untouched(caller, &before).await;
        }
        (Outcome::RunNotFound, None) => not_found(answer.unwrap_err().into(), &run_id),
        (outcome, before) => panic!("{case}: {outcome:?} on {before:?}"),
    }
}

async fn untouched(caller: &Caller, before: &runledger_proto::v1::Run) {
    assert_eq!(caller.get(&before.run_id).await, *before);
    assert_eq!(caller.events(&before.run_id).await.len() as u64, before.revision);
}

fn not_found(refused: Refused, run_id: &str) {
    let refused = refused.is(Code::NotFound, "RUN_NOT_FOUND");
    let resource: ResourceInfo = refused.detail("google.rpc.ResourceInfo");
    assert_eq!((resource.resource_type.as_str(), resource.resource_name.as_str()), ("runledger.v1.Run", run_id));
}

pub(crate) async fn every_status_answers_every_read(place: Place) {
    let caller = place.caller().await;
    for status in STATUSES {
        let run = caller.run_in(status).await;
        assert_eq!((caller.get(&run.run_id).await, run.status()), (run.clone(), status));
        let events = caller.events(&run.run_id).await;
        assert_eq!(events.last().unwrap().to(), status);
        assert_eq!(events.len() as u64, run.revision);
        let mut watch = caller.watch(&run.run_id, None).await;
        assert_eq!(watch.snapshot().await, run);
        match status {
            RunStatus::Pending | RunStatus::Running => assert_eq!(watch.caught_up().await, run.revision),
            RunStatus::Completed | RunStatus::Aborted | RunStatus::Failed => assert_eq!(watch.end().await, run),
            RunStatus::Unspecified => panic!("a run has a status"),
        }
    }
}

pub(crate) async fn an_unknown_run_is_not_found_by_any_read(place: Place) {
    let caller = place.caller().await;
    let run_id = fresh("unknown");
    not_found(caller.try_get(&run_id).await.unwrap_err().into(), &run_id);
    not_found(caller.page(&run_id, 0, "").await.unwrap_err().into(), &run_id);
    for after in [None, Some(0), Some(7)] {
        not_found(caller.try_watch(&run_id, after).await.unwrap_err().into(), &run_id);
    }
}

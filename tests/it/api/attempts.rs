//! Runs that are attempted more than once, on the wire: what fails an attempt, what its answer says, and who begins the next.

use prost_types::Duration;
use runledger_proto::v1::{
    self, ClaimNextRunRequest, CompleteRunRequest, Disposition, FailRunRequest, HeartbeatRunRequest,
    RequestAbortRequest, Run, RunEventType, RunFilter, RunStatus, StartRunRequest,
};
use tonic::{Code, Status};

use super::caller::{Caller, complete, deferred, fresh, start};
use super::place::Place;
use super::refused::Refused;

fn seconds(seconds: i64) -> Duration {
    Duration { seconds, nanos: 0 }
}

/// The failure that a worker of any release reports.
fn failing(run_id: &str, lease_epoch: u64) -> FailRunRequest {
    let (run_id, failure_reason, reason_code) =
        (run_id.to_owned(), "the tab crashed".to_owned(), "TAB_CRASHED".to_owned());
    FailRunRequest { run_id, failure_reason, reason_code, lease_epoch, ..FailRunRequest::default() }
}

/// Claims as a client does that knows of no `take`.
async fn next(caller: &Caller, pool: &str) -> Option<Run> {
    let labels = [("pool".to_owned(), pool.to_owned())].into();
    let filter = Some(RunFilter { labels, ..RunFilter::default() });
    let asked = ClaimNextRunRequest { filter, lease_ttl: Some(seconds(60)), ..Default::default() };
    caller.grpc.clone().claim_next_run(caller.request(asked)).await.unwrap().into_inner().run
}

async fn fail(caller: &Caller, asked: FailRunRequest) -> Result<(Disposition, Run), Status> {
    let answer = caller.grpc.clone().fail_run(caller.request(asked)).await?.into_inner();
    Ok((answer.disposition(), answer.run.unwrap()))
}

pub(crate) async fn an_attempt_that_failed_is_followed_by_whoever_claims_next(place: Place) {
    let (caller, other) = (place.caller().await, place.other().await);
    let run_id = fresh("attempted");
    let begin = StartRunRequest {
        labels: [("pool".to_owned(), run_id.clone())].into(),
        max_attempts: 3,
        attempt_timeout: Some(seconds(3_600)),
        ..deferred(&run_id)
    };
    let run = caller.apply(begin).await;
    assert_eq!((run.attempt, run.max_attempts, run.attempt_deadline), (1, 3, None));
    let first = next(&caller.agent("agent-1"), &run_id).await.expect("the run");
    assert_eq!((first.lease.as_ref().unwrap().epoch, first.attempt_deadline.is_some()), (1, true));
    let (disposition, failed) = fail(&caller.agent("agent-1"), failing(&run_id, 1)).await.unwrap();
    assert_eq!((disposition, failed.status(), failed.attempt), (Disposition::Applied, RunStatus::Running, 2));
    assert!(
        failed.ready.is_some() && failed.agent_id == "agent-1" && failed.lease.as_ref().unwrap().resting,
        "{failed:?}"
    );
    let failure = failed.last_failure.clone().unwrap();
    assert_eq!((failure.attempt, failure.lease_epoch, failure.presumed), (1, 1, false));
    assert_eq!((failure.reason_code.as_str(), failure.by.unwrap().agent_id.as_str()), ("TAB_CRASHED", "agent-1"));
    assert_eq!((failed.reason_code.as_str(), failed.failure_reason.as_str()), ("", ""), "the run has not failed");
    let again = fail(&caller.agent("agent-1"), failing(&run_id, 1)).await.unwrap();
    assert_eq!(again, (Disposition::Unchanged, failed.clone()), "one attempt");
    assert_eq!(other.get(&run_id).await, failed, "the other server shows it so");
    let beat = HeartbeatRunRequest { run_id: run_id.clone(), lease_epoch: 1, progress: None };
    Refused::from(other.grpc.clone().heartbeat_run(beat).await.unwrap_err()).is(Code::FailedPrecondition, "LEASE_LOST");

    let second = next(&other.agent("agent-2"), &run_id).await.expect("the run, for another agent");
    assert_eq!((second.agent_id.as_str(), second.lease.as_ref().unwrap().epoch, second.attempt), ("agent-2", 2, 2));
    assert_eq!(second.last_failure.unwrap().reason_code, "TAB_CRASHED", "it finds how the last one failed");
    caller
        .refused(CompleteRunRequest { lease_epoch: 1, ..complete(&run_id) })
        .await
        .is(Code::FailedPrecondition, "LEASE_LOST");
    let last = FailRunRequest { r#final: true, ..failing(&run_id, 2) };
    let (_, ended) = fail(&other.agent("agent-2"), last).await.unwrap();
    assert_eq!((ended.status(), ended.reason_code.as_str(), ended.attempt), (RunStatus::Failed, "TAB_CRASHED", 2));
    let types: Vec<RunEventType> = caller.events(&run_id).await.iter().map(v1::RunEvent::r#type).collect();
    let wanted = [
        RunEventType::Created,
        RunEventType::Started,
        RunEventType::AttemptFailed,
        RunEventType::Claimed,
        RunEventType::Failed,
    ];
    assert_eq!(types, wanted);
}

pub(crate) async fn a_run_between_its_attempts_is_aborted_at_once(place: Place) {
    let caller = place.caller().await;
    let run_id = fresh("attempted");
    caller.apply(StartRunRequest { max_attempts: 2, lease_ttl: Some(seconds(60)), ..start(&run_id) }).await;
    fail(&caller, failing(&run_id, 1)).await.unwrap();
    let asked = RequestAbortRequest { run_id: run_id.clone(), ..Default::default() };
    let run = caller.grpc.clone().request_abort(caller.request(asked)).await.unwrap().into_inner().run.unwrap();
    assert_eq!((run.status(), run.reason_code.as_str()), (RunStatus::Aborted, "ABORT_REQUESTED"));
}

pub(crate) async fn what_is_wrong_with_attempts_is_named(place: Place) {
    let caller = place.caller().await;
    let asked = StartRunRequest { max_attempts: 101, attempt_timeout: Some(seconds(-1)), ..start(&fresh("attempted")) };
    let refused = caller.refused(asked).await.is(Code::InvalidArgument, "INVALID_FIELD");
    assert_eq!(refused.fields(), ["max_attempts", "attempt_timeout"]);
    let run_id = fresh("attempted");
    caller.apply(StartRunRequest { max_attempts: 2, ..deferred(&run_id) }).await;
    let other = StartRunRequest { max_attempts: 3, ..start(&run_id) };
    caller.refused(other).await.is(Code::AlreadyExists, "RUN_ID_CONFLICT");
}

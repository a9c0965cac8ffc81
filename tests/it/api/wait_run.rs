//! `WaitRun`: when it answers, with what, and what it refuses.

use std::time::Duration;

use runledger_proto::v1::{RunStatus, WaitRunRequest, WaitRunResponse};
use tokio::time::Instant;
use tonic::{Code, Request, Status};

use super::caller::{Caller, abort, complete, fresh, update_something};
use super::place::Place;
use super::refused::Refused;

/// Far less than any wait here may last, and far more than an answer takes on a busy machine.
const SOON: Duration = Duration::from_secs(10);

async fn wait(caller: &Caller, run_id: &str, timeout: Option<Duration>) -> Result<WaitRunResponse, Status> {
    let timeout = timeout.map(|timeout| timeout.try_into().unwrap());
    let asked = WaitRunRequest { run_id: run_id.to_owned(), timeout, until: 0 };
    Ok(caller.grpc.clone().wait_run(caller.request(asked)).await?.into_inner())
}

pub(crate) async fn a_wait_for_a_terminal_run_answers_at_once(place: Place) {
    let caller = place.caller().await;
    for status in [RunStatus::Completed, RunStatus::Aborted, RunStatus::Failed] {
        let run = caller.run_in(status).await;
        for timeout in [None, Some(Duration::ZERO), Some(Duration::from_hours(24))] {
            let begun = Instant::now();
            let waited = wait(&place.other().await, &run.run_id, timeout).await.unwrap();
            assert_eq!(waited, WaitRunResponse { run: Some(run.clone()), timed_out: false });
            assert!(begun.elapsed() < SOON, "it took {:?}", begun.elapsed());
        }
    }
}

pub(crate) async fn a_wait_lasts_until_the_end_and_not_until_some_other_change(place: Place) {
    let (caller, other) = (place.caller().await, place.other().await);
    let run = caller.run_in(RunStatus::Running).await;
    let act = async {
        caller.apply(update_something(&run.run_id)).await;
        let short = wait(&other, &run.run_id, Some(Duration::from_millis(300))).await.unwrap();
        assert!(short.timed_out, "an update ends no wait");
        caller.apply(abort(&run.run_id)).await
    };
    let wait = wait(&other, &run.run_id, None);
    let (waited, aborted) = tokio::join!(wait, act);
    assert_eq!(waited.unwrap(), WaitRunResponse { run: Some(aborted), timed_out: false });
}

pub(crate) async fn a_wait_that_is_over_answers_with_the_run_as_it_is(place: Place) {
    let caller = place.caller().await;
    for status in [RunStatus::Pending, RunStatus::Running] {
        let run = caller.run_in(status).await;
        for timeout in [Duration::ZERO, Duration::from_nanos(1), Duration::from_millis(150)] {
            let begun = Instant::now();
            let waited = wait(&caller, &run.run_id, Some(timeout)).await.unwrap();
            assert_eq!(waited, WaitRunResponse { run: Some(run.clone()), timed_out: true });
            assert!((timeout..SOON).contains(&begun.elapsed()), "it took {:?}", begun.elapsed());
        }
    }
}

/// The run says more than that the time is over.
pub(crate) async fn a_wait_answers_before_the_calls_deadline(place: Place) {
    let caller = place.caller().await;
    let run = caller.run_in(RunStatus::Running).await;
    for deadline in [1_500, 3_000].map(Duration::from_millis) {
        let mut asked = Request::new(WaitRunRequest { run_id: run.run_id.clone(), timeout: None, until: 0 });
        asked.set_timeout(deadline);
        let begun = Instant::now();
        let waited = caller.grpc.clone().wait_run(asked).await.unwrap().into_inner();
        assert_eq!(waited, WaitRunResponse { run: Some(run.clone()), timed_out: true });
        let took = begun.elapsed();
        assert!((deadline / 2..deadline).contains(&took), "it took {took:?} of {deadline:?}");
    }
}

pub(crate) async fn nobody_waits_for_an_unknown_run(place: Place) {
    let refused = wait(&place.caller().await, &fresh("unknown"), None).await.unwrap_err();
    Refused::from(refused).is(Code::NotFound, "RUN_NOT_FOUND");
}

pub(crate) async fn a_wait_is_validated_whole(place: Place) {
    let caller = place.caller().await;
    let run_id = caller.run_in(RunStatus::Completed).await.run_id;
    let day = 24 * 60 * 60;
    let refused = async |run_id: &str, seconds, nanos| {
        let timeout = Some(prost_types::Duration { seconds, nanos });
        let asked = WaitRunRequest { run_id: run_id.to_owned(), timeout, until: 0 };
        Refused::from(caller.grpc.clone().wait_run(asked).await.unwrap_err()).fields()
    };
    for (seconds, nanos) in [(-1, 0), (0, -1), (day, 1), (day + 1, 0), (i64::MAX, 0), (i64::MIN, 0)] {
        assert_eq!(refused(&run_id, seconds, nanos).await, ["timeout"], "{seconds} s {nanos} ns");
    }
    assert_eq!(refused("a b", -1, 0).await, ["run_id", "timeout"]);
    assert_eq!(refused("", 0, 0).await, ["run_id"]);
    caller.unchanged(complete(&run_id)).await;
}

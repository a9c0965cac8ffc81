//! A caller's deadline: what it is told when the store is too slow for it.

use std::time::Duration;

use runledger_proto::v1::{GetRunRequest, RunStatus, UpdateRunRequest, WatchRunRequest};
use tonic::{Code, Request, Status};

use super::caller::{Ask, Caller, abort, complete, fail, start, update_something};
use super::place::{Own, Place};
use super::refused::Refused;
use crate::support::postgres;

const PATIENCE: Duration = Duration::from_millis(400);

/// A client library answers by itself when its own timer fires first, as it may on a busy machine: its answer has no
/// headers, because nothing came over the wire. Such an attempt says nothing about the server.
async fn told<A>(mut call: impl AsyncFnMut() -> Result<A, Status>) -> Refused {
    // The server answers ten milliseconds before the client gives up: beside much other work few attempts come to that.
    for _ in 0..200 {
        match call().await {
            Ok(_) => panic!("the store answered in time"),
            Err(status) if status.metadata().is_empty() => {}
            Err(status) => {
                let refused = Refused::from(status);
                // The commit gave up waiting for what is held, and wrote nothing: the store is what it says.
                if refused.reason != "STORE_UNAVAILABLE" {
                    return refused;
                }
            }
        }
    }
    panic!("the server never answered before the client gave up")
}

fn within<M>(message: M) -> Request<M> {
    let mut request = Request::new(message);
    request.set_timeout(PATIENCE);
    request
}

/// Holds what every commit needs until the transaction is dropped with its connection.
async fn hold(own: &Own, statement: &str) -> tokio_postgres::Client {
    let holder = postgres::direct(&own.database.as_ref().unwrap().dsn()).await;
    holder.batch_execute(&format!("begin; {statement}")).await.unwrap();
    holder
}

fn impatient(caller: &Caller) -> Caller {
    caller.header("grpc-timeout", format!("{}m", PATIENCE.as_millis()).as_bytes())
}

pub(crate) async fn a_read_whose_deadline_passes_says_so(place: Place) {
    let own = Own::start(place.kind).await;
    let caller = own.caller().await;
    let run_id = caller.run_in(RunStatus::Running).await.run_id;
    let holder = hold(&own, "lock table runs, run_events in access exclusive mode").await;
    let read = told(async || {
        caller.grpc.clone().get_run(within(GetRunRequest { run_id: run_id.clone(), ..GetRunRequest::default() })).await
    })
    .await;
    read.is(Code::DeadlineExceeded, "DEADLINE");
    let asked = || WatchRunRequest { run_id: run_id.clone(), after_revision: None, ledger_epoch: None };
    let watch = told(async || caller.grpc.clone().watch_run(within(asked())).await).await;
    watch.is(Code::DeadlineExceeded, "DEADLINE");
    holder.batch_execute("rollback").await.unwrap();
    assert_eq!(caller.get(&run_id).await.revision, 1);
}

/// A quiet watch: nothing but the deadline ends it.
pub(crate) async fn a_watch_ends_at_its_deadline(place: Place) {
    let caller = place.caller().await;
    let run_id = caller.run_in(RunStatus::Running).await.run_id;
    // The client's own timer is for the headers of the answer only.
    let impatient = caller.header("grpc-timeout", b"2S");
    let mut watch = impatient.watch(&run_id, None).await;
    watch.snapshot().await;
    assert_eq!(watch.caught_up().await, 1);
    Refused::from(watch.try_next().await.unwrap_err()).is(Code::DeadlineExceeded, "DEADLINE");
}

/// The first call is in a commit that may still be applied; the one after it has not left the queue.
pub(crate) async fn a_mutation_whose_deadline_passes_says_whether_it_may_be_applied(place: Place) {
    for (ask, code) in [
        (Ask::from(update_something("")), Code::Unknown),
        (Ask::from(update_something("")).request_id("r"), Code::Unavailable),
        (complete("").into(), Code::Unavailable),
        (abort("").into(), Code::Unavailable),
        (fail("").into(), Code::Unavailable),
    ] {
        let own = Own::start(place.kind).await;
        let caller = own.caller().await;
        let run_id = caller.run_in(RunStatus::Running).await.run_id;
        let ask = ask.run_id(&run_id);
        let holder = hold(&own, "lock table shards in access exclusive mode").await;
        let impatient = impatient(&caller);
        // The first command takes the place in the commit, and those after it queue.
        let refused = told(async || impatient.call(ask.clone()).await).await;
        if refused.code == Code::DeadlineExceeded {
            refused.is(Code::DeadlineExceeded, "DEADLINE");
        } else {
            refused.is(code, "OUTCOME_UNKNOWN");
        }
        // An attempt that the client gave up by itself says nothing, and may be applied: each has a name of its own.
        let mut attempts = 0;
        let mut queued = async || {
            attempts += 1;
            let tab_group_id = Some(format!("attempt-{attempts}"));
            impatient.call(UpdateRunRequest { tab_group_id, ..update_something(&run_id) }).await
        };
        let mut refused = told(&mut queued).await;
        // On a busy machine the first commit has given up by now, and this command was in the next one.
        for _ in 0..50 {
            if refused.reason == "DEADLINE" {
                break;
            }
            refused.is(Code::Unknown, "OUTCOME_UNKNOWN");
            refused = told(&mut queued).await;
        }
        refused.is(Code::DeadlineExceeded, "DEADLINE");
        holder.batch_execute("rollback").await.unwrap();
        // Behind everything that was accepted before it.
        let _whatever = caller.call(start(&run_id)).await;
        let applied = caller.get(&run_id).await.tab_group_id;
        assert_ne!(applied, format!("attempt-{attempts}"), "the call that was withdrawn is not applied");
    }
}

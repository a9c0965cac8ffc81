//! Calls that meet, through one server and over two.

use std::collections::BTreeMap;

use futures_util::future::join_all;
use runledger_proto::v1::{AbortRunRequest, Disposition, FailRunRequest, RunStatus, StartRunRequest, UpdateRunRequest};
use serde_json::json;
use tonic::Code;

use super::caller::{Ask, abort, complete, deferred, fail, fresh, start, update};
use super::place::Place;
use super::refused::Refused;
use super::values::structure;

pub(crate) async fn concurrent_updates_of_disjoint_keys_are_all_kept(place: Place) {
    let callers = [place.caller().await, place.other().await];
    let run_id = callers[0].apply(start(&fresh("disjoint"))).await.run_id;
    let updates = (0..25_usize).map(|n| {
        let metadata = structure(json!({ format!("key-{n}"): n, "shared": { format!("key-{n}"): [n] } }));
        let ask = UpdateRunRequest { metadata, ..update(&run_id) };
        let caller = callers[n % 2].clone();
        async move { caller.apply(ask).await.revision }
    });
    let mut revisions = join_all(updates).await;
    revisions.sort_unstable();
    assert!(revisions.into_iter().eq(2..=26), "each call has a revision of its own");
    let wanted: BTreeMap<String, usize> = (0..25).map(|n| (format!("key-{n}"), n)).collect();
    let mut wanted = json!(wanted);
    wanted["shared"] = json!((0..25).map(|n| (format!("key-{n}"), [n])).collect::<BTreeMap<_, _>>());
    for caller in &callers {
        let run = caller.get(&run_id).await;
        assert_eq!((run.metadata, run.revision), (structure(wanted.clone()), 26));
        assert_eq!(caller.events(&run_id).await.len(), 26);
    }
}

pub(crate) async fn one_of_complete_abort_and_fail_wins_and_the_losers_leave_no_trace(place: Place) {
    let callers = [place.caller().await, place.other().await];
    for round in 0..12_usize {
        let run = callers[0].run_in(RunStatus::Running).await;
        let run_id = &run.run_id;
        let aborting = AbortRunRequest { failure_reason: "aborted".into(), ..abort(run_id) };
        let failing = FailRunRequest { failure_reason: "failed".into(), ..fail(run_id) };
        let mut asks: Vec<Ask> = vec![
            complete(run_id).into(),
            AbortRunRequest { reason_code: "TIMEOUT".into(), ..aborting }.into(),
            FailRunRequest { reason_code: "SCRIPT_FAILURE".into(), ..failing }.into(),
        ];
        asks.rotate_left(round % 3);
        let calls = (0..).zip(&asks).map(|(n, ask)| callers[(n + round) % 2].call(ask.clone()));
        let answers = join_all(calls).await;

        let won: Vec<_> = answers.iter().flatten().filter(|done| done.disposition == Disposition::Applied).collect();
        assert_eq!(won.len(), 1, "{answers:?}");
        let winner = won[0].run.clone();
        let (reason, code) = match winner.status() {
            RunStatus::Completed => ("", ""),
            RunStatus::Aborted => ("aborted", "TIMEOUT"),
            RunStatus::Failed => ("failed", "SCRIPT_FAILURE"),
            other @ (RunStatus::Unspecified | RunStatus::Pending | RunStatus::Running) => {
                panic!("not terminal: {other:?}")
            }
        };
        assert_eq!((winner.failure_reason.as_str(), winner.reason_code.as_str(), winner.revision), (reason, code, 2));
        for (ask, answer) in asks.iter().zip(answers) {
            match (ask, answer) {
                (_, Ok(done)) if done.disposition == Disposition::Applied => {}
                (Ask::Abort(_) | Ask::Fail(_), Ok(done)) => {
                    assert_eq!((done.disposition, &done.run), (Disposition::Unchanged, &winner));
                }
                (Ask::Complete(_), Err(status)) => {
                    Refused::from(status).is(Code::FailedPrecondition, "INVALID_TRANSITION");
                }
                (ask, answer) => panic!("{ask:?}: {answer:?}"),
            }
        }
        for caller in &callers {
            assert_eq!(caller.get(run_id).await, winner, "no field of the winner's record is the losers'");
            assert_eq!(caller.events(run_id).await.len(), 2, "one terminal event");
        }
    }
}

pub(crate) async fn a_run_started_on_both_servers_is_one_run(place: Place) {
    let callers = [place.caller().await, place.other().await];
    for _ in 0..8 {
        let run_id = fresh("both");
        // Neighbours in both batches, which a collision must not harm.
        let neighbours: Vec<String> = (0..10).map(|_| fresh("neighbour")).collect();
        let asks = |n: usize| {
            let contested = StartRunRequest { workflow_id: format!("of {n}"), ..start(&run_id) };
            let (before, after) = neighbours[n * 5..n * 5 + 5].split_at(2);
            let asks = before.iter().map(|id| start(id)).chain([contested]).chain(after.iter().map(|id| start(id)));
            asks.collect::<Vec<_>>()
        };
        let calls = [0, 1].map(|n| join_all(asks(n).into_iter().map(|ask| callers[n].must(ask))));
        let answers = join_all(calls).await;
        let contested: Vec<_> = answers.iter().map(|done| &done[2]).collect();
        let mut dispositions: Vec<_> = contested.iter().map(|done| done.disposition).collect();
        dispositions.sort_unstable();
        assert_eq!(dispositions, [Disposition::Applied, Disposition::Unchanged]);
        assert_eq!(contested[0].run, contested[1].run);
        for (n, done) in answers.iter().flat_map(|done| done.iter().enumerate()).filter(|(n, _)| *n != 2) {
            assert_eq!((done.disposition, done.run.revision), (Disposition::Applied, 1), "neighbour {n}");
        }
    }
}

pub(crate) async fn a_repeated_nameless_start_meets_itself(place: Place) {
    let callers = [place.caller().await, place.other().await];
    let asked = StartRunRequest { run_id: String::new(), request_id: fresh("nameless"), ..start("") };
    let answers = join_all((0..10_usize).map(|n| callers[n % 2].must(asked.clone()))).await;
    let applied = answers.iter().filter(|done| done.disposition == Disposition::Applied).count();
    let replayed = answers.iter().filter(|done| done.disposition == Disposition::Replayed).count();
    assert_eq!((applied, replayed), (1, 9));
    assert!(answers.iter().all(|done| done.run == answers[0].run));
}

pub(crate) async fn an_abort_before_the_start_wins(place: Place) {
    let (caller, other) = (place.caller().await, place.other().await);
    for _ in 0..6 {
        let run_id = caller.apply(deferred(&fresh("abort"))).await.run_id;
        let (aborted, started) = tokio::join!(caller.must(abort(&run_id)), other.call(start(&run_id)));
        assert_eq!(aborted.disposition, Disposition::Applied, "an abort is allowed from PENDING and from RUNNING");
        if let Err(status) = started {
            Refused::from(status).is(Code::FailedPrecondition, "INVALID_TRANSITION");
            assert_eq!(aborted.run.running_at, None, "it never ran");
        }
        other.refused(start(&run_id)).await.is(Code::FailedPrecondition, "INVALID_TRANSITION");
        assert_eq!(caller.get(&run_id).await, aborted.run);
        let terminal = other.events(&run_id).await.iter().filter(|event| event.to() == RunStatus::Aborted).count();
        assert_eq!(terminal, 1);
    }
}

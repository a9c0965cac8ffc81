//! Leases, deadlines, requests to abort, and late reports, by the rules alone.

use runledger::domain::decide::{Context, Decision, decide};
use runledger::domain::{
    Command, Event, EventType, Found, HeldLease, LeaseEpoch, PrincipalKind, Refusal, Renewal, Run, Status, Steady,
    Time, Wanted, renewal,
};
use serde_json::json;

use super::{applied, decided, now, refused, run_in};
use crate::support::commands::{
    Asking as _, Operation, TTL_MS, abort, claim, command, complete, deferred, fail, key, leased, release,
    request_abort, start, sweep, update,
};

fn at(micros: i64) -> Time {
    Time::from_micros(micros)
}

/// Decides at a time, with the lease as it is kept.
fn decided_at(run: &Run, command: &Command, now: Time, lease: Option<HeldLease>) -> Result<Decision, Refusal> {
    decide(Some(run), command, &Context { sides: Found { lease, ..Found::default() }, ..Context::at(now) })
}

fn swept(run: &Run, now: Time, lease: Option<HeldLease>) -> Option<(Event, Run)> {
    match decided_at(run, &sweep("run-1"), now, lease) {
        Ok(Decision::Apply(event, run)) => Some((*event, *run)),
        Ok(Decision::Unchanged) => None,
        other => panic!("{other:?}"),
    }
}

/// A running run with a lease of epoch 1.
fn held() -> Run {
    applied(None, &leased("run-1")).1
}

/// One that was orphaned.
fn orphan() -> Run {
    let over = HeldLease { epoch: 1.into(), expires_at: now(), renewed: false };
    swept(&held(), now(), Some(over)).unwrap().1
}

#[test]
fn a_start_with_a_ttl_grants_the_first_lease_and_one_without_none() {
    let (event, run) = applied(None, &leased("run-1"));
    let lease = run.supervision.lease.unwrap();
    assert_eq!(
        (lease.epoch, lease.ttl_ms, lease.released, event.changes.supervision.lease),
        (1.into(), TTL_MS, false, Some(lease))
    );
    assert_eq!(applied(None, &start("run-1")).1.supervision.lease, None);
    let pending = run_in(Status::Pending);
    assert_eq!(applied(Some(&pending), &leased("run-1")).1.supervision.epoch(), 1);
    assert_eq!(decided(Some(&run), &leased("run-1")), Ok(Decision::Unchanged), "a second start grants nothing");
}

#[test]
fn a_holders_call_needs_the_epoch_that_the_run_has() {
    let run = held();
    let calls = [update("run-1").workflow("w"), complete("run-1"), fail("run-1"), release("run-1")];
    for call in calls {
        for asked in [None, Some(0), Some(2)] {
            let call = call.clone().on(|terms| terms.lease_epoch = asked.map(LeaseEpoch::from));
            match decided(Some(&run), &call) {
                Err(Refusal::LeaseLost { rpc, asked: said, epoch, released, run: summary, .. }) => {
                    assert_eq!(
                        (rpc, said, epoch, released),
                        (call.ask.facts().rpc, asked.unwrap_or(0).into(), 1.into(), false)
                    );
                    assert_eq!(summary, run.summary());
                }
                other => panic!("{asked:?} {call:?}: {other:?}"),
            }
        }
        applied(Some(&run), &call.epoch(1));
    }
    assert_eq!(refused(Some(&run_in(Status::Running)), &complete("run-1").epoch(1).by("owner")), "LEASE_LOST");
    for open in [abort("run-1"), request_abort("run-1")] {
        applied(Some(&run), &open.by("anybody"));
    }
}

#[test]
fn the_lease_is_looked_at_before_the_owner_and_after_the_existence() {
    let run = Run { agent_id: Some("owner".into()), ..held() };
    assert_eq!(refused(Some(&run), &complete("run-1").by("stranger")), "LEASE_LOST");
    assert_eq!(refused(Some(&run), &complete("run-1").epoch(1).by("stranger")), "NOT_OWNER");
    assert_eq!(refused(Some(&run), &complete("run-1").revision(9)), "LEASE_LOST");
    assert_eq!(refused(None, &complete("run-1").epoch(1)), "RUN_NOT_FOUND");
    let ended = applied(Some(&run), &abort("run-1")).1;
    assert_eq!(refused(Some(&ended), &complete("run-1").epoch(1)), "INVALID_TRANSITION");
    assert_eq!(refused(Some(&ended), &complete("run-1")), "LEASE_LOST");
}

#[test]
fn epochs_only_grow() {
    let mut run = held();
    let over = |run: &Run| Some(HeldLease { epoch: run.supervision.epoch(), expires_at: now(), renewed: false });
    for expected in [2, 3, 4] {
        let Ok(Decision::Apply(event, after)) = decided_at(&run, &claim("run-1"), now(), over(&run)) else { panic!() };
        assert_eq!(
            (event.event_type, event.from, event.to),
            (EventType::Claimed, Some(Status::Running), Status::Running)
        );
        assert_eq!(after.supervision.epoch(), expected);
        run = *after;
    }
    let (event, released) = applied(Some(&run), &release("run-1").epoch(4));
    assert_eq!((event.event_type, released.supervision.epoch()), (EventType::Released, 5.into()));
    assert_eq!(refused(Some(&released), &complete("run-1").epoch(4)), "LEASE_LOST", "who released it has nothing");
    let lost = decided(Some(&released), &complete("run-1").epoch(4));
    assert!(matches!(lost, Err(Refusal::LeaseLost { epoch, released: true, .. }) if epoch == 5), "{lost:?}");
    let taken = applied(Some(&released), &claim("run-1")).1;
    assert_eq!((taken.supervision.epoch(), taken.supervision.lease.unwrap().released), (6.into(), false));
}

#[test]
fn a_lease_that_was_released_is_nobodys_also_for_who_knows_its_epoch() {
    let released = applied(Some(&held()), &release("run-1").epoch(1)).1;
    let calls = [update("run-1").workflow("w"), complete("run-1"), fail("run-1"), release("run-1"), abort("run-1")];
    for call in calls {
        assert_eq!(refused(Some(&released), &call.epoch(2)), "LEASE_LOST");
    }
    let over = HeldLease { epoch: 2.into(), expires_at: now(), renewed: false };
    let orphan = swept(&released, now(), Some(over)).unwrap().1;
    assert_eq!(refused(Some(&orphan), &complete("run-1").epoch(2)), "LEASE_LOST", "nobody reports late");
    assert_eq!(applied(Some(&released), &claim("run-1").epoch(2)).1.supervision.epoch(), 3);
}

#[test]
fn an_abort_is_open_to_everyone_and_of_a_holder_only_while_it_is_one() {
    let run = held();
    assert_eq!(applied(Some(&run), &abort("run-1")).1.status, Status::Aborted);
    assert_eq!(applied(Some(&run), &abort("run-1").epoch(1)).1.status, Status::Aborted);
    assert_eq!(refused(Some(&run), &abort("run-1").epoch(2)), "LEASE_LOST");
    let orphan = orphan();
    assert_eq!(decided(Some(&orphan), &abort("run-1")), Ok(Decision::Unchanged));
    let (event, after) = applied(Some(&orphan), &abort("run-1").epoch(1).reason("told to"));
    assert_eq!((event.event_type, after.status), (EventType::LateReported, Status::Failed));
    assert_eq!(after.outcome(), Some(Status::Aborted));
}

/// After a step back of the store's clock, times of runs go on from where they were; leases are counted by the steady clock.
#[test]
fn a_clock_that_was_set_back_ends_no_lease() {
    let run = held();
    let clock = at(now().micros() - 60_000_000);
    let live = HeldLease { epoch: 1.into(), expires_at: at(clock.micros() + 1), renewed: false };
    for command in [claim("run-1"), sweep("run-1")] {
        let context = |clock| Context {
            steady: Steady::always(clock),
            sides: Found { lease: Some(live), ..Found::default() },
            ..Context::at(now())
        };
        let applies = |clock| matches!(decide(Some(&run), &command, &context(clock)), Ok(Decision::Apply(..)));
        assert!(!applies(clock) && applies(live.expires_at), "{command:?}");
    }
}

#[test]
fn a_claim_is_refused_while_somebody_holds_the_run() {
    let run = held();
    let live = HeldLease { epoch: 1.into(), expires_at: at(now().micros() + 1), renewed: false };
    match decided_at(&run, &claim("run-1"), now(), Some(live)) {
        Err(Refusal::LeaseHeld { epoch, expires_at, run: summary, .. }) => {
            assert_eq!((epoch, expires_at, summary), (1.into(), Some(live.expires_at), run.summary()));
        }
        other => panic!("{other:?}"),
    }
    let older = HeldLease { epoch: 0.into(), expires_at: at(0), renewed: false };
    for unknown in [None, Some(older)] {
        let answer = decided_at(&run, &claim("run-1"), now(), unknown);
        assert_eq!(answer.unwrap_err().reason(), "LEASE_HELD", "a lease that is not known is not over");
    }
    assert_eq!(refused(Some(&run_in(Status::Running)), &claim("run-1")), "LEASE_HELD", "it runs without a lease");
}

#[test]
fn a_pending_run_is_claimed_by_its_owner_and_a_running_one_by_anybody() {
    let pending = run_in(Status::Pending);
    assert_eq!(refused(Some(&pending), &claim("run-1").by("stranger")), "NOT_OWNER");
    let (event, run) = applied(Some(&pending), &claim("run-1").by("owner"));
    assert_eq!(
        (event.event_type, run.status, run.supervision.epoch()),
        (EventType::Started, Status::Running, 1.into())
    );
    let unowned = Run { agent_id: None, ..pending };
    assert_eq!(applied(Some(&unowned), &claim("run-1").by("worker")).1.agent_id.as_deref(), Some("worker"));
    let over = HeldLease { epoch: 1.into(), expires_at: now(), renewed: false };
    for (caller, owner) in [(claim("run-1").by("new"), "new"), (claim("run-1"), "owner")] {
        let Ok(Decision::Apply(_, after)) = decided_at(&run, &caller, now(), Some(over)) else { panic!() };
        assert_eq!(after.agent_id.as_deref(), Some(owner));
    }
}

#[test]
fn a_sweep_ends_what_is_over_and_nothing_else() {
    let run = held();
    let over = HeldLease { epoch: 1.into(), expires_at: now(), renewed: false };
    let (event, failed) = swept(&run, now(), Some(over)).unwrap();
    assert_eq!((event.event_type, event.principal.kind), (EventType::Failed, PrincipalKind::Authority));
    assert_eq!((failed.status, failed.ending.reason_code.as_deref()), (Status::Failed, Some("ORPHANED")));
    assert!(
        event.changes.supervision.presumed && failed.supervision.presumed && failed.ending.failure_reason.is_some()
    );
    for lease in [
        None,
        Some(HeldLease { expires_at: at(now().micros() + 1), ..over }),
        Some(HeldLease { epoch: 2.into(), ..over }),
        Some(HeldLease { epoch: 0.into(), ..over }),
    ] {
        assert_eq!(swept(&run, now(), lease), None, "{lease:?}");
    }
    for status in Status::ALL {
        assert_eq!(swept(&run_in(status), at(i64::MAX), None), None, "nothing was agreed on {status}");
    }
}

#[test]
fn a_deadline_is_a_rule_and_a_grace_that_is_over_a_conclusion() {
    let pending = applied(None, &deferred("run-1").start_timeout_ms(5).run_timeout_ms(7)).1;
    let start_by = at(now().micros() + 5_000);
    assert_eq!(
        (pending.supervision.start_deadline, pending.deadline(), pending.due_at()),
        (Some(start_by), None, Some(start_by))
    );
    assert_eq!(swept(&pending, at(start_by.micros() - 1), None), None);
    let aborted = swept(&pending, start_by, None).unwrap().1;
    assert_eq!((aborted.status, aborted.ending.reason_code.as_deref()), (Status::Aborted, Some("TIMEOUT")));
    assert!(!aborted.supervision.presumed);

    let running = applied(Some(&pending), &start("run-1")).1;
    let deadline = at(running.running_at.unwrap().micros() + 7_000);
    assert_eq!((running.deadline(), running.due_at()), (Some(deadline), Some(deadline)));
    assert_eq!(swept(&running, at(deadline.micros() - 1), None), None, "the start came in time");
    assert_eq!(swept(&running, deadline, None).unwrap().1.ending.reason_code.as_deref(), Some("TIMEOUT"));

    let asked = applied(Some(&running), &request_abort("run-1").grace_ms(3)).1;
    let grace = at(now().micros() + 3_000);
    assert_eq!(asked.due_at(), Some(grace));
    let late = at(deadline.micros() + 1);
    let first = HeldLease { epoch: 0.into(), expires_at: at(0), renewed: false };
    let aborted = swept(&asked, late, Some(first)).unwrap().1;
    assert_eq!(aborted.ending.reason_code.as_deref(), Some("ABORT_GRACE_EXPIRED"), "what was over first");
    assert!(aborted.supervision.presumed);
    assert_eq!(aborted.due_at(), None);
}

#[test]
fn a_request_to_abort_is_kept_whatever_becomes_of_the_run() {
    let ask = request_abort("run-1").reason("enough").grace_ms(5).by("operator");
    let (event, run) = applied(Some(&held()), &ask);
    assert_eq!((event.event_type, run.status), (EventType::AbortRequested, Status::Running));
    let request = run.supervision.abort_request.clone().unwrap();
    assert_eq!((request.at, request.reason.as_deref()), (event.at, Some("enough")));
    assert_eq!(
        (request.by.agent_id.as_deref(), request.deadline),
        (Some("operator"), Some(at(event.at.micros() + 5_000)))
    );
    assert_eq!((run.ending.failure_reason.clone(), event.changes.ending.failure_reason), (None, None));
    assert_eq!(decided(Some(&run), &request_abort("run-1").reason("again")), Ok(Decision::Unchanged));
    for end in [complete("run-1").epoch(1), fail("run-1").epoch(1), abort("run-1")] {
        let ended = applied(Some(&run), &end).1;
        assert_eq!(ended.supervision.abort_request.as_ref(), Some(&request), "the record shows both");
        assert_eq!(decided(Some(&ended), &request_abort("run-1")), Ok(Decision::Unchanged));
    }
    let (event, ended) = applied(Some(&run_in(Status::Pending)), &ask);
    assert_eq!((event.event_type, ended.status), (EventType::Aborted, Status::Aborted));
    let said =
        (ended.ending.reason_code.as_deref(), ended.ending.failure_reason.as_deref(), ended.supervision.presumed);
    assert_eq!(said, (Some("ABORT_REQUESTED"), Some("enough"), false));
    assert!(ended.supervision.abort_request.is_some_and(|request| request.deadline.is_none()));
}

#[test]
fn what_the_last_holder_reports_late_is_kept_once() {
    let run = orphan();
    let report = complete("run-1").epoch(1).metadata(&json!({"a": 1}));
    let (event, after) = applied(Some(&run), &report);
    assert_eq!(
        (event.event_type, event.from, event.to),
        (EventType::LateReported, Some(Status::Failed), Status::Failed)
    );
    assert_eq!((after.status, after.outcome()), (Status::Failed, Some(Status::Completed)));
    let kept = event.changes.supervision.late_report.unwrap();
    assert_eq!(
        (kept.status, kept.lease_epoch, kept.at, kept.metadata.is_empty()),
        (Status::Completed, 1.into(), event.at, false)
    );
    let shown = after.supervision.late_report.clone().unwrap();
    assert!(shown.metadata.is_empty() && after.metadata == run.metadata, "the patch is in the event alone");
    for again in [report.clone(), fail("run-1").epoch(1)] {
        assert_eq!(decided(Some(&after), &again), Ok(Decision::Unchanged));
    }
    for older in [complete("run-1"), complete("run-1").epoch(2), fail("run-1").epoch(0)] {
        assert_eq!(refused(Some(&run), &older), "LEASE_LOST");
    }
    let failed = applied(Some(&run), &fail("run-1").epoch(1).reason("it broke")).1;
    assert_eq!((&failed.ending.failure_reason, failed.outcome()), (&run.ending.failure_reason, Some(Status::Failed)));
    assert_eq!(failed.supervision.late_report.unwrap().failure_reason.as_deref(), Some("it broke"));
    for other in [update("run-1").epoch(1).workflow("w"), claim("run-1"), start("run-1")] {
        assert!(decided(Some(&run), &other).is_err(), "{other:?}");
    }
}

#[test]
fn a_genuine_end_takes_no_late_report() {
    let ended = applied(Some(&held()), &abort("run-1")).1;
    assert_eq!(refused(Some(&ended), &complete("run-1").epoch(1)), "INVALID_TRANSITION");
    assert_eq!(decided(Some(&ended), &fail("run-1").epoch(1)), Ok(Decision::Unchanged));
    assert_eq!(ended.outcome(), Some(Status::Aborted));
    assert_eq!(held().outcome(), None);
}

#[test]
fn a_heartbeat_that_renewed_nothing_says_why() {
    let run = Run { agent_id: Some("owner".into()), ..held() };
    let renewal = |epoch: u64, agent: Option<&str>| {
        let agent_id = agent.map(str::to_owned);
        Renewal { epoch: epoch.into(), agent_id, is_confined: false, progress: None }
    };
    let said = |run: Option<&Run>, renewal| renewal::refusal(&key("run-1"), run, &renewal);
    assert_eq!(said(None, renewal(1, None)).reason(), "RUN_NOT_FOUND");
    assert_eq!(said(Some(&run), renewal(1, Some("stranger"))).reason(), "NOT_OWNER");
    for (epoch, run) in [(2, &run), (1, &run), (1, &run_in(Status::Running)), (1, &run_in(Status::Completed))] {
        let refusal = said(Some(run), renewal(epoch, None));
        let Refusal::LeaseLost { asked, epoch: current, rpc, .. } = refusal else { panic!("{refusal:?}") };
        assert_eq!((asked, current, rpc), (epoch.into(), run.supervision.epoch(), "HeartbeatRun"));
    }
    let ended = applied(Some(&run), &complete("run-1").epoch(1)).1;
    assert_eq!(said(Some(&ended), renewal(1, None)).reason(), "RUN_NOT_RUNNING");
}

#[test]
fn every_call_that_looks_at_a_lease_says_so() {
    let looks: Vec<_> = Operation::ALL
        .into_iter()
        .filter(|operation| !Wanted::by([&command("run-1", *operation)]).leases.is_empty())
        .collect();
    assert_eq!(looks, [Operation::Claim, Operation::GiveBack, Operation::Sweep]);
}

//! The knowledge of a queue, step by step.

mod model;

use std::pin::Pin;

use tokio::sync::futures::OwnedNotified;

use super::super::Limits;
use super::*;
use crate::domain::evolve::evolve;
use crate::domain::{
    Changes, Event, EventType, Filter, LabelsChange, MaxRunning, Pattern, Principal, Ready, Refinements, RunKey,
    Status, Suspension, Suspensions, Take, Time,
};

/// A queue that keeps so many runs, of whose instances one run each may be running.
pub(super) fn backlog(runs_max: usize, limit: u32) -> Backlog {
    of_room(runs_max, Limits::default(), limit)
}

/// A queue that keeps so many bytes of runs.
pub(super) fn backlog_of_bytes(bytes_max: usize, limit: u32) -> Backlog {
    of_room(usize::MAX, Limits { bytes_max, bytes_granted: 0, ..Limits::default() }, limit)
}

fn of_room(runs_max: usize, limits: Limits, limit: u32) -> Backlog {
    let max_running = Some(MaxRunning { label: "instance".to_owned(), limit });
    let key = QueueKey::new("default".into(), Filter::default(), Take::Pending, max_running);
    Backlog::new(key, runs_max, AllRoom::new(&limits))
}

/// A pending run, created at this time.
pub(super) fn pending(at: usize, instance: &str, owner: Option<&str>) -> Run {
    let labels = [("instance".to_owned(), instance.to_owned())];
    let changes = Changes {
        task_thread_id: Some("thread-1".to_owned()),
        agent_id: owner.map(str::to_owned),
        labels: LabelsChange { set: labels.into(), ..LabelsChange::default() },
        ..Changes::default()
    };
    let event = Event {
        key: RunKey { namespace: "default".into(), run_id: format!("run-{at}").into() },
        revision: 1.into(),
        at: Time::from_micros(i64::try_from(at).unwrap()),
        steady_ahead_micros: 0,
        request_id: None,
        event_type: EventType::Created,
        from: None,
        to: Status::Pending,
        principal: Principal::anonymous(),
        trace: None,
        changes,
    };
    evolve(None, &event)
}

pub(super) fn ended(run: &Run) -> Run {
    Run { status: Status::Aborted, revision: run.revision.next(), ..run.clone() }
}

pub(super) fn ready(run: &Run) -> Run {
    let mut run = Run { status: Status::Running, revision: run.revision.next(), ..run.clone() };
    run.supervision.ready = Some(Box::new(Ready { at: run.started_at, deadline: None, not_begun: true }));
    run
}

/// As [`ready`], after a suspension.
pub(super) fn resumed(run: &Run) -> Run {
    let mut run = ready(run);
    let suspension = Suspension {
        kind: "HELP".to_owned(),
        reason: "which account?".to_owned(),
        resume_hint: None,
        at: run.started_at,
        by: Principal::anonymous(),
        executed_by: None,
        lease_epoch: None,
        deadline: None,
        timeout_then: None,
        ready_timeout_ms: None,
        keep_slot: false,
        by_limit: false,
        resumption: None,
    };
    let rest = Suspensions { suspension: Some(Box::new(suspension)), resumed_from: None };
    run.refinements = Some(Box::new(Refinements { rest, ..Refinements::default() }));
    run
}

/// A claimer that may write the runs of others.
pub(super) fn taker(agent_id: Option<&str>) -> Taker<'_> {
    Taker { agent_id, agents: &Agents::All }
}

/// The agents of a claimer that writes the runs of these agents only.
pub(super) fn only(agents: &[&str]) -> Agents {
    Agents::Of(agents.iter().map(|agent| Pattern::Exact((*agent).to_owned())).collect())
}

fn place(at: usize) -> ClaimPlace {
    ClaimPlace::new(&pending(at, "a", None))
}

/// A run that is not in the queue, and counts for a value.
fn stranger(backlog: &mut Backlog, value: &str, run_id: &str) -> Run {
    backlog.lanes.count(&value.into(), &run_id.into());
    Run { run_id: run_id.into(), ..ended(&pending(1_000_000, value, None)) }
}

/// A claimer that waits: it is woken when this is ready.
pub(super) fn waiter(backlog: &Backlog) -> Pin<Box<OwnedNotified>> {
    loop {
        let mut told = Box::pin(backlog.news().told.clone().notified_owned());
        // A wake-up may be left over from a run that came before a claimer waited.
        if !told.as_mut().enable() {
            return told;
        }
    }
}

fn is_woken(waiter: &mut Pin<Box<OwnedNotified>>) -> bool {
    waiter.as_mut().enable()
}

/// Reads a page that ends with its last run, or with the ledger.
fn read(
    backlog: &mut Backlog,
    after: &ClaimPlace,
    agent_id: Option<&str>,
    runs: Vec<Run>,
    is_last: bool,
) -> Option<RunId> {
    let feed = backlog.begin_page();
    let next = runs.last().filter(|_| !is_last).map(ClaimPlace::new);
    backlog.end_page(after, feed, ClaimPage { runs, next }, taker(agent_id)).0
}

/// Reads all that there is for an agent, which finds nothing.
fn walked(backlog: &mut Backlog, agent_id: Option<&str>, runs: Vec<Run>) {
    let (after, news) = backlog.begin_walk(taker(agent_id), false);
    assert_eq!(read(backlog, &after, agent_id, runs, true), None);
    backlog.end_walk(taker(agent_id), news);
}

/// Keeps four runs of instance `a`, of which a stranger runs, and has no place for more.
fn crowded() -> (Backlog, Run) {
    let mut backlog = backlog(4, 1);
    let stranger = stranger(&mut backlog, "a", "runs");
    let runs = (1..=4).map(|at| pending(at, "a", None)).collect();
    assert_eq!(read(&mut backlog, &ClaimPlace::start(), None, runs, false), None);
    assert_eq!((backlog.lanes.runs().len(), &backlog.unread_after), (4, &place(4)));
    (backlog, stranger)
}

fn is_known(backlog: &Backlog, agent_id: Option<&str>) -> bool {
    backlog.begin_walk(taker(agent_id), false).0 == ClaimPlace::end()
}

fn take(backlog: &mut Backlog, agent_id: Option<&str>) -> Option<RunId> {
    backlog.take(taker(agent_id), &ClaimPlace::start())
}

/// All runs that callers without an agent may have.
fn all(backlog: &mut Backlog) -> Vec<RunId> {
    std::iter::from_fn(|| take(backlog, None)).collect()
}

#[test]
fn what_was_not_kept_for_want_of_room_is_not_taken_for_known_when_there_is_room() {
    let (mut backlog, _) = crowded();
    read(&mut backlog, &place(4), None, vec![pending(5, "a", None)], false);
    backlog.tell(&ended(&pending(1, "a", None)));
    read(&mut backlog, &place(5), None, vec![pending(6, "a", None)], true);
    assert_eq!(backlog.unread_after, place(5).before(), "both are read again");
}

#[test]
fn a_page_that_was_read_before_the_feed_began_is_read_again() {
    let mut backlog = backlog(9, 1);
    let stranger = stranger(&mut backlog, "a", "runs");
    read(&mut backlog, &ClaimPlace::start(), None, vec![pending(1, "a", None)], false);
    let feed = backlog.begin_page();
    backlog.begin_feed();
    let page = ClaimPage { runs: vec![pending(2, "a", None)], next: None };
    assert_eq!(backlog.end_page(&place(1), feed, page, taker(None)), (None, ClaimPlace::start()));
    backlog.tell(&stranger);
    assert_eq!(take(&mut backlog, None), None, "it is not handed out before what is older");
    let runs = vec![pending(1, "a", None), pending(2, "a", None)];
    assert_eq!(read(&mut backlog, &ClaimPlace::start(), None, runs, true).as_deref(), Some("run-1"));
}

#[test]
fn what_is_being_claimed_when_the_feed_begins_leaves_no_room_for_the_next() {
    let mut backlog = backlog(9, 1);
    let runs = || vec![pending(1, "a", None), pending(2, "a", None), pending(3, "b", None)];
    assert_eq!(read(&mut backlog, &ClaimPlace::start(), None, runs(), true).as_deref(), Some("run-1"));
    backlog.begin_feed();
    assert_eq!(read(&mut backlog, &ClaimPlace::start(), None, runs(), true).as_deref(), Some("run-3"));
    assert_eq!(take(&mut backlog, None), None);
    backlog.give_up("run-1");
    assert_eq!(take(&mut backlog, None).as_deref(), Some("run-1"));
}

#[test]
fn what_is_not_kept_is_looked_for_again_when_its_value_has_room() {
    let (mut backlog, _) = crowded();
    let stranger = stranger(&mut backlog, "b", "runs-too");
    let owned = pending(5, "b", Some("away"));
    backlog.lanes.insert(ClaimPlace::new(&owned), WaitingRun::new(&owned, Some("instance")));
    walked(&mut backlog, Some("x"), vec![pending(6, "b", None)]);
    assert!(is_known(&backlog, Some("x")), "b is full");
    let mut waiters = [waiter(&backlog), waiter(&backlog)];
    backlog.tell(&stranger);
    assert!(waiters.iter_mut().all(is_woken));
    assert!(!is_known(&backlog, Some("x")), "what is kept of it is not for x");
    let stranger = self::stranger(&mut backlog, "c", "runs-as-well");
    walked(&mut backlog, Some("x"), vec![pending(7, "c", None)]);
    let mut waiters = [waiter(&backlog), waiter(&backlog)];
    backlog.tell(&stranger);
    assert!(waiters.iter_mut().all(is_woken) && !is_known(&backlog, Some("x")), "nothing is kept of c");
}

#[test]
fn each_agent_is_told_once_that_reading_on_brings_it_nothing() {
    let (mut backlog, _) = crowded();
    let owned = || vec![pending(5, "b", Some("away"))];
    for agent in ["x", "y"] {
        assert!(!is_known(&backlog, Some(agent)));
        walked(&mut backlog, Some(agent), owned());
    }
    assert!(is_known(&backlog, Some("x")) && is_known(&backlog, Some("y")) && !is_known(&backlog, Some("away")));
    walked(&mut backlog, None, vec![pending(5, "a", None)]);
    assert!(is_known(&backlog, Some("away")), "who may have everything found nothing");
    let mut waiters = [waiter(&backlog), waiter(&backlog)];
    backlog.tell(&pending(9, "c", None));
    assert!(waiters.iter_mut().any(is_woken) && !is_known(&backlog, Some("x")));
}

#[test]
fn what_is_told_while_a_page_is_read_that_does_not_show_it_is_kept() {
    let mut backlog = backlog(9, 9);
    let feed = backlog.begin_page();
    backlog.tell(&pending(2, "a", None));
    backlog.tell(&pending(9, "a", None));
    let page = ClaimPage { runs: vec![pending(1, "a", None)], next: Some(place(5)) };
    assert_eq!(backlog.end_page(&ClaimPlace::start(), feed, page, taker(None)), (Some("run-1".into()), place(5)));
    assert_eq!(all(&mut backlog), ["run-2"], "before the last one, others may be");
    let feed = backlog.begin_page();
    backlog.tell(&pending(10, "a", None));
    let page = ClaimPage { runs: vec![], next: None };
    assert_eq!(backlog.end_page(&place(5), feed, page, taker(Some("x"))).0.as_deref(), Some("run-9"));
    backlog.tell(&pending(11, "a", None));
    assert_eq!(all(&mut backlog), ["run-10", "run-11"]);
}

#[test]
fn what_ended_before_its_page_was_read_does_not_come_back() {
    let mut backlog = backlog(9, 9);
    let feed = backlog.begin_page();
    backlog.tell(&pending(2, "a", None));
    backlog.tell(&ended(&pending(2, "a", None)));
    let page = ClaimPage { runs: vec![], next: None };
    assert_eq!(backlog.end_page(&ClaimPlace::start(), feed, page, taker(None)), (None, ClaimPlace::end()));
    assert_eq!(all(&mut backlog), [""; 0]);
}

#[test]
fn what_the_feed_told_while_a_page_was_read_is_not_taken_back_by_the_page() {
    let mut backlog = backlog(9, 9);
    let waits = pending(1, "a", Some("x"));
    let feed = backlog.begin_page();
    backlog.tell(&resumed(&waits));
    let page = ClaimPage { runs: vec![waits.clone()], next: None };
    let found = backlog.end_page(&ClaimPlace::start(), feed, page, taker(Some("y"))).0;
    assert_eq!(found.as_deref(), Some("run-1"), "the page shows what is x's alone, and it is for every worker since");
    backlog.decided("run-1", Outcome::Waits);
    backlog.tell(&waits);
    assert_eq!(take(&mut backlog, Some("y")).as_deref(), Some("run-1"), "nor by what the feed tells late");
}

#[test]
fn what_is_told_of_a_run_while_it_is_handed_out_decides_whether_it_is_handed_out_again() {
    let mut backlog = backlog(9, 9);
    let waits = pending(1, "a", None);
    let hand_out = |backlog: &mut Backlog| {
        let runs = vec![waits.clone()];
        assert_eq!(read(backlog, &ClaimPlace::start(), None, runs, true).as_deref(), Some("run-1"));
    };
    hand_out(&mut backlog);
    backlog.tell(&ended(&waits));
    backlog.give_up("run-1");
    assert_eq!(all(&mut backlog), [""; 0], "it has ended");
    hand_out(&mut backlog);
    // The ledger is restored without what the run had become, and the run becomes ready at the same revision anew.
    backlog.tell(&ended(&ended(&waits)));
    backlog.begin_feed();
    backlog.tell(&ready(&waits));
    backlog.decided("run-1", Outcome::Lost);
    assert_eq!(all(&mut backlog), [""; 0], "the ledger is still to be read");
    assert_eq!(read(&mut backlog, &ClaimPlace::start(), None, vec![], true).as_deref(), Some("run-1"));
}

#[test]
fn what_there_is_no_room_for_is_read_later() {
    let mut backlog = Backlog { unread_after: ClaimPlace::end(), ..backlog(4, 1) };
    let stranger = stranger(&mut backlog, "a", "runs");
    (1..=4).for_each(|at| backlog.tell(&pending(at, "a", None)));
    assert_eq!((backlog.lanes.runs().len(), &backlog.unread_after), (4, &ClaimPlace::end()));
    backlog.tell(&pending(11, "a", None));
    assert_eq!(backlog.unread_after, place(11).before());
    backlog.tell(&pending(12, "a", None));
    assert_eq!(backlog.lanes.runs().len(), 4);
    let feed = backlog.begin_page();
    (20..30).for_each(|at| backlog.tell(&pending(at, "a", None)));
    backlog.end_page(&place(11).before(), feed, ClaimPage { runs: vec![], next: None }, taker(None));
    assert_eq!(backlog.unread_after, place(20).before(), "more was told than is kept: it is read again");
    backlog.tell(&pending(0, "a", None));
    assert_eq!(backlog.unread_after, place(4).before(), "the oldest are kept");
    backlog.tell(&stranger);
    assert_eq!(all(&mut backlog), ["run-0"]);
}

#[test]
fn a_value_is_full_until_one_of_its_runs_ends() {
    let mut backlog = Backlog { unread_after: ClaimPlace::end(), ..backlog(9, 2) };
    for (at, instance) in [(1, "a"), (2, "a"), (3, "a"), (4, "b")] {
        backlog.tell(&pending(at, instance, None));
    }
    backlog.lanes.count(&"a".into(), &"runs-1".into());
    assert_eq!(take(&mut backlog, None).as_deref(), Some("run-1"));
    assert_eq!(backlog.refused("run-1", &["runs-1".into(), "runs-2".into()]).as_deref(), Some("a"));
    backlog.decided("run-1", Outcome::Waits);
    assert_eq!(all(&mut backlog), ["run-4"]);
    let mut waiters = [waiter(&backlog), waiter(&backlog)];
    backlog.tell(&Run { run_id: "stranger".into(), ..ended(&pending(5, "a", None)) });
    assert!(!waiters.iter_mut().any(is_woken));
    backlog.tell(&Run { run_id: "runs-2".into(), ..ended(&pending(6, "a", None)) });
    assert_eq!(waiters.iter_mut().map(is_woken).collect::<Vec<_>>(), [true, false], "one of them is enough");
    assert_eq!(all(&mut backlog), ["run-1"]);
    let given_back = ready(&pending(1, "a", None));
    backlog.tell(&given_back);
    assert_eq!(all(&mut backlog), ["run-2"], "what is ready does not count");
    backlog.decided("run-1", Outcome::Lost);
    assert_eq!(all(&mut backlog), [""; 0]);
    backlog.decided("run-2", Outcome::Lost);
    assert_eq!(all(&mut backlog), ["run-1"], "the claim was refused for what was before");
}

#[test]
fn what_ended_while_a_claim_was_on_its_way_is_not_waited_for() {
    let mut backlog = Backlog { unread_after: ClaimPlace::end(), ..backlog(9, 1) };
    backlog.tell(&pending(1, "a", None));
    assert_eq!(take(&mut backlog, None).as_deref(), Some("run-1"));
    backlog.tell(&Run { run_id: "runs".into(), ..ended(&pending(2, "a", None)) });
    let value = backlog.refused("run-1", &["runs".into()]).unwrap();
    backlog.counts_at_most(&value, &[]);
    backlog.decided("run-1", Outcome::Waits);
    assert_eq!(take(&mut backlog, None).as_deref(), Some("run-1"), "it will not be told again");
    let value = backlog.refused("run-1", &["runs-2".into()]).unwrap();
    backlog.counts_at_most(&value, &["runs-2".into()]);
    backlog.decided("run-1", Outcome::Waits);
    assert_eq!(take(&mut backlog, None), None);
}

#[test]
fn of_what_ended_in_a_moment_of_doubt_nothing_is_believed() {
    let mut backlog = Backlog { unread_after: ClaimPlace::end(), ..backlog(9, 1) };
    let runs = || vec![pending(1, "a", None), pending(2, "a", None)];
    backlog.lanes.count(&"a".into(), &"runs".into());
    for run in &runs() {
        backlog.tell(run);
    }
    assert_eq!(take(&mut backlog, None), None);
    backlog.begin_feed();
    let found = read(&mut backlog, &ClaimPlace::start(), None, runs(), true);
    assert_eq!(found.as_deref(), Some("run-1"), "its end may have been missed");
    // The claimer goes before the store has said whether the refusal still holds.
    backlog.refused("run-1", &["other".into()]);
    let mut waiter = waiter(&backlog);
    backlog.give_up("run-1");
    assert!(is_woken(&mut waiter));
    assert_eq!(all(&mut backlog), ["run-1"], "nor is a refusal whose claimer has gone");
}

#[test]
fn for_each_run_that_comes_a_claimer_is_woken_and_for_an_owners_run_all_are() {
    let mut backlog = Backlog { unread_after: ClaimPlace::end(), ..backlog(9, 9) };
    let mut waiters = [waiter(&backlog), waiter(&backlog), waiter(&backlog)];
    let mut woken = || waiters.iter_mut().filter_map(|waiter| is_woken(waiter).then_some(())).count();
    backlog.tell(&pending(1, "a", None));
    backlog.tell(&pending(2, "a", None));
    assert_eq!(woken(), 1, "the first claimer has not looked yet");
    assert_eq!(take(&mut backlog, None).as_deref(), Some("run-1"));
    assert_eq!(woken(), 2, "the second one need not wait until the first one's claim is decided");
    assert_eq!(take(&mut backlog, None).as_deref(), Some("run-2"));
    assert_eq!(woken(), 2);
    backlog.tell(&pending(3, "a", Some("x")));
    assert_eq!(woken(), 3);
}

#[test]
fn a_run_that_a_page_shows_as_ready_while_its_claim_is_refused_is_handed_out_again() {
    let mut backlog = backlog(9, 9);
    let runs = || vec![pending(1, "a", None)];
    assert_eq!(read(&mut backlog, &ClaimPlace::start(), None, runs(), true).as_deref(), Some("run-1"));
    // Another caller claims the run and gives it back, and the feed does not tell of that.
    backlog.begin_feed();
    assert_eq!(read(&mut backlog, &ClaimPlace::start(), None, vec![ready(&runs()[0])], true), None);
    backlog.decided("run-1", Outcome::Lost);
    assert_eq!(take(&mut backlog, None).as_deref(), Some("run-1"));
}

#[test]
fn a_run_that_was_claimed_when_the_feed_began_anew_is_not_waited_for() {
    let mut backlog = Backlog { unread_after: ClaimPlace::end(), ..backlog(9, 1) };
    backlog.tell(&pending(1, "a", None));
    assert_eq!(take(&mut backlog, None).as_deref(), Some("run-1"));
    // The run is claimed, and ends, before the claimer hears of it.
    backlog.begin_feed();
    let runs = || vec![pending(2, "a", None)];
    assert_eq!(read(&mut backlog, &ClaimPlace::start(), None, runs(), true), None, "the claim may be on its way still");
    let mut waiter = waiter(&backlog);
    backlog.decided("run-1", Outcome::Claimed);
    assert!(is_woken(&mut waiter));
    assert_eq!(take(&mut backlog, None).as_deref(), Some("run-2"));
}

#[test]
fn what_the_store_says_counts_is_all_that_counts() {
    let mut backlog = Backlog { unread_after: ClaimPlace::end(), ..backlog(9, 3) };
    (1..=3).for_each(|at| backlog.tell(&pending(at, "a", None)));
    for run_id in ["runs-1", "runs-2"] {
        backlog.lanes.count(&"a".into(), &run_id.into());
    }
    assert_eq!(all(&mut backlog), ["run-1"]);
    assert_eq!(backlog.full(), ["a".into()]);
    backlog.counts_at_most(&"a".into(), &["runs-2".into(), "unheard-of".into()]);
    assert_eq!(all(&mut backlog), ["run-2"], "what is being claimed counts, and what is unheard of is not added");
}

/// Of many values all but one are full, then runs of a thousand of them end, the oldest first.
#[test]
fn beside_6_000_full_values_the_one_that_has_room_is_taken() {
    const VALUES: usize = 6_000;
    let mut backlog = backlog(VALUES, 1);
    let runs: Vec<Run> = (1..=VALUES).map(|at| pending(at, &format!("i-{at}"), None)).collect();
    for at in (1..=VALUES).filter(|at| *at != VALUES / 2) {
        backlog.lanes.count(&format!("i-{at}").into(), &format!("runs-{at}").into());
    }
    assert_eq!(read(&mut backlog, &ClaimPlace::start(), None, runs, true).as_deref(), Some("run-3000"));
    backlog.decided("run-3000", Outcome::Waits);
    for _ in 0..1_000 {
        let run_id = take(&mut backlog, None).unwrap();
        assert_eq!(run_id, "run-3000");
        backlog.decided(&run_id, Outcome::Waits);
    }
    let end = |at: usize| Run { run_id: format!("runs-{at}").into(), ..ended(&pending(at + 100_000, "x", None)) };
    let ends: Vec<Run> = (1..=1_000).map(end).collect();
    for end in &ends {
        backlog.tell(end);
    }
    for at in 1..=1_000 {
        let run_id = take(&mut backlog, None).unwrap();
        assert_eq!(run_id, format!("run-{at}"));
        backlog.decided(&run_id, Outcome::Claimed);
    }
}

#[test]
fn a_run_that_goes_on_is_for_every_agent_that_may_write_the_runs_of_its_owner() {
    let mut backlog = backlog(9, 9);
    let (mine, both) = (only(&["y"]), only(&["x", "y"]));
    let start = ClaimPlace::start();
    walked(&mut backlog, None, vec![]);
    backlog.tell(&ready(&pending(1, "a", Some("x"))));
    backlog.tell(&resumed(&pending(2, "a", Some("x"))));
    assert_eq!(backlog.take(Taker { agent_id: Some("y"), agents: &mine }, &start), None);
    let taken = backlog.take(Taker { agent_id: Some("y"), agents: &both }, &start);
    assert_eq!(taken.as_deref(), Some("run-2"), "it may write the runs of x");
    backlog.decided("run-2", Outcome::Waits);
    assert_eq!(backlog.take(taker(Some("y")), &start).as_deref(), Some("run-2"), "the other was never begun");
    assert_eq!(backlog.take(taker(Some("y")), &start), None);
    assert_eq!(backlog.take(taker(Some("x")), &start).as_deref(), Some("run-1"));
}

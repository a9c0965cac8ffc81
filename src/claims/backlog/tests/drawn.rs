//! Runs that are drawn of the oldest, where claims are lost.

use super::*;
use crate::domain::Priority;

const RUNS: usize = 2_000;

/// Takes so many, each with the number of runs that wait before it.
fn takes(backlog: &mut Backlog, count: usize) -> Vec<(RunId, usize)> {
    let one = |_| {
        let waiting: Vec<RunId> = backlog.lanes.runs().keys().map(|place| place.within.run_id.clone()).collect();
        let run_id = take(backlog, None).unwrap();
        let before = waiting.iter().position(|waits| *waits == run_id).unwrap();
        (run_id, before)
    };
    (0..count).map(one).collect()
}

fn decide(backlog: &mut Backlog, runs: &[(RunId, usize)], outcome: Outcome) {
    for (run_id, _) in runs {
        backlog.decided(run_id, outcome);
    }
}

#[test]
fn one_of_the_oldest_comes_while_claims_are_lost_again_and_again_and_before_and_after_the_oldest() {
    let mut backlog = backlog(RUNS, 10_000);
    let runs = (1..=RUNS).map(|at| pending(at, "a", None)).collect();
    let first = read(&mut backlog, &ClaimPlace::start(), None, runs, true).unwrap();
    backlog.decided(&first, Outcome::Lost);

    let once_lost = takes(&mut backlog, 50);
    assert!(once_lost.iter().all(|(_, before)| *before == 0), "{once_lost:?}");
    decide(&mut backlog, &once_lost, Outcome::Claimed);

    let lost = takes(&mut backlog, 10);
    decide(&mut backlog, &lost, Outcome::Lost);
    assert_eq!(takes(&mut backlog, 1)[0].1, 0, "nobody else is claiming");
    let drawn = takes(&mut backlog, 160);
    assert!(drawn.iter().all(|(_, before)| *before < 512), "{drawn:?}");
    assert!(drawn.iter().filter(|(_, before)| *before > 0).count() > 100, "{drawn:?}");
    for some in drawn.chunks(16) {
        assert!(some.iter().any(|(_, before)| *before == 0), "the oldest is passed over: {some:?}");
    }

    decide(&mut backlog, &drawn, Outcome::Claimed);
    let after = takes(&mut backlog, 50);
    assert!(after.iter().all(|(_, before)| *before == 0), "{after:?}");
}

#[test]
fn what_is_drawn_is_of_the_highest_priority_that_waits() {
    let mut backlog = backlog(RUNS, 10_000);
    let mut urgent: Vec<Run> = (1_001..=1_020).map(|at| pending(at, "a", None)).collect();
    for run in &mut urgent {
        run.refinements.get_or_insert_default().priority = Priority::of(7).unwrap();
    }
    let mut runs: Vec<Run> = urgent.clone();
    runs.extend((1..=1_000).map(|at| pending(at, "a", None)));
    read(&mut backlog, &ClaimPlace::start(), None, runs, true).unwrap();
    for _ in 0..4 {
        let run = takes(&mut backlog, 1);
        decide(&mut backlog, &run, Outcome::Lost);
    }
    let drawn = takes(&mut backlog, 15);
    assert!(drawn.iter().all(|(run_id, _)| urgent.iter().any(|run| run.run_id == *run_id)), "{drawn:?}");
    assert!(drawn.iter().any(|(_, before)| *before > 0), "{drawn:?}");
}

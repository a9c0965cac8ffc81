//! Claims whose callers have gone when the answer is due.

use super::*;
use crate::support::commands::release;

impl Process {
    fn commits(&self) -> usize {
        self.store.batches.lock().unwrap().len()
    }

    async fn comes_to_commits(&self, count: usize) {
        let all = async {
            while self.commits() < count {
                yield_now().await;
            }
        };
        timeout(SOON, all).await.expect("it hangs");
    }

    async fn run(&self, run_id: &str) -> Run {
        self.store.run(&key(run_id)).await.unwrap().unwrap()
    }

    /// Leaves the next commit with a claimer who is gone before it is made.
    async fn claim_and_go(&self) {
        self.store.gate.forget_permits(Semaphore::MAX_PERMITS);
        let before = self.commits();
        let mut gone = JoinSet::new();
        gone.spawn(next(self.claims.clone(), None, SOON));
        self.comes_to_commits(before + 1).await;
        gone.shutdown().await;
    }
}

/// A claim is caught in the middle of its commit when its caller goes.
#[tokio::test]
async fn a_claim_that_was_made_for_a_caller_who_had_gone_is_the_next_callers() {
    let process = Process::start().await;
    process.apply(deferred("run-1")).await;
    process.store.gate.forget_permits(Semaphore::MAX_PERMITS);
    let before = process.store.batches.lock().unwrap().len();
    let mut gone = JoinSet::new();
    gone.spawn(next(process.claims.clone(), None, SOON));
    while process.store.batches.lock().unwrap().len() == before {
        yield_now().await;
    }
    gone.shutdown().await;
    process.store.gate.add_permits(1 << 20);
    let got = timeout(SOON, process.next(Some("worker"), SOON)).await.expect("it hangs").unwrap();
    assert_eq!(got.as_deref(), Some("run-1"));
    let run = process.store.run(&key("run-1")).await.unwrap().unwrap();
    assert_eq!((run.supervision.epoch(), run.agent_id.as_deref()), (3.into(), Some("worker")), "given back in between");
}

/// Whether the answer is on its way, or there already, when its caller goes: by so many steps, of every second from
/// when its commit began.
#[tokio::test]
async fn at_whatever_moment_a_claimer_goes_its_run_is_the_next_callers() {
    let process = Process::start().await;
    let mut given_back = 0;
    for polls in 0..60 {
        let id = format!("run-{polls}");
        process.apply(deferred(&id)).await;
        let mut answered = false;
        {
            let before = process.commits();
            let mut gone = Box::pin(next(process.claims.clone(), None, Duration::ZERO));
            let mut steps = 0;
            while steps < polls && !answered {
                answered = futures_util::poll!(gone.as_mut()).is_ready();
                steps += usize::from(polls % 2 == 0 || process.commits() > before);
                yield_now().await;
            }
        }
        if !answered {
            let got = timeout(SOON, process.next(None, SOON)).await.expect("it hangs").unwrap();
            assert_eq!(got.as_ref(), Some(&id));
        }
        let epoch = process.store.run(&key(&id)).await.unwrap().unwrap().supervision.epoch();
        given_back += usize::from(epoch == 3);
        process.apply(complete(&id).epoch(epoch)).await;
    }
    assert!((1..60).contains(&given_back), "{given_back} of 60 went in the middle");
}

/// No caller waits for the outcome, and it is found out all the same: a claim that was not made is not given back under
/// the next claimer.
#[tokio::test(start_paused = true)]
async fn a_claim_of_unknown_outcome_is_given_back_only_when_it_was_made() {
    for (fate, epoch) in [(Fate::Lost, 1), (Fate::ConfirmationLost, 3)] {
        let process = Process::start().await;
        process.apply(deferred("run-1")).await;
        process.store.deaf.store(true, Ordering::Relaxed);
        process.store.fates.lock().unwrap().push_back(fate);
        process.claim_and_go().await;
        let before = process.commits();
        process.store.gate.add_permits(1 << 20);
        tokio::time::sleep(Duration::from_millis(500)).await;
        assert_eq!(process.commits(), before, "nothing is done before that is known");
        process.store.deaf.store(false, Ordering::Relaxed);
        let got = timeout(SOON, process.next(None, SOON)).await.expect("it hangs").unwrap();
        assert_eq!(got.as_deref(), Some("run-1"));
        process.apply(update("run-1").label("step", "1").epoch(epoch)).await;
        let before = process.commits();
        process.apply(deferred("another")).await;
        assert_eq!(process.commits(), before + 1, "nothing else is written");
        let run = process.run("run-1").await;
        assert_eq!((run.is_ready(), run.supervision.lease.unwrap().epoch), (false, epoch.into()));
    }
}

/// The claimer had gone, and knows all the same that it holds the run: it has read the run.
#[tokio::test]
async fn a_run_that_was_taken_over_is_not_given_back_under_a_holder_who_writes() {
    for writes in [false, true] {
        let process = Process::start().await;
        process.apply(leased("run-1")).await;
        let epoch = process.apply(release("run-1").epoch(1)).await.supervision.epoch().get() + 1;
        process.store.gate.forget_permits(Semaphore::MAX_PERMITS);
        let before = process.commits();
        let (mut gone, mut holder) = (JoinSet::new(), JoinSet::new());
        let submit = |command: Command| {
            let engine = process.engine.clone();
            async move { engine.submit(command, None).await }
        };
        gone.spawn(submit(claim("run-1").on(|terms| terms.lease_ttl_ms = Some(TTL_MS))));
        process.comes_to_commits(before + 1).await;
        if writes {
            holder.spawn(submit(update("run-1").label("step", "1").epoch(epoch)));
            while process.engine.unanswered().iter().map(|shard| shard.commands).sum::<usize>() < 2 {
                yield_now().await;
            }
        }
        gone.shutdown().await;
        process.store.gate.add_permits(1 << 20);
        // The claim, what was written, and that the claim was begun: so it is given up, or not.
        process.comes_to_commits(before + if writes { 4 } else { 3 }).await;
        let written = process.engine.submit(update("run-1").label("step", "2").epoch(epoch), None).await;
        assert_eq!(written.is_ok(), writes, "{written:?}");
        assert_eq!(process.run("run-1").await.supervision.lease.unwrap().released, !writes);
    }
}

#[tokio::test]
async fn a_claim_whose_caller_has_gone_is_given_back_before_the_service_stops() {
    let process = Process::start().await;
    process.apply(deferred("run-1")).await;
    process.claim_and_go().await;
    process.supervisor.stop().cancel();
    process.engine.close();
    let refused = process.engine.submit(deferred("another"), None).await;
    assert_eq!(refused.unwrap_err(), engine::Failure::Draining);
    process.store.gate.add_permits(1 << 20);
    assert!(process.supervisor.finished(SOON).await, "it ends");
    let run = process.run("run-1").await;
    assert_eq!((run.is_ready(), run.supervision.epoch()), (true, 2.into()));
}

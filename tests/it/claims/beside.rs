//! A claimer beside others that come on a new connection each time, and read whole queues.

use runledger::fairness::CallerKey;

use super::*;

/// The time that a page takes.
const PAGE_MS: u64 = 10;

/// Callers that come again and again.
const GREEDY: u64 = 16;

/// Runs that everybody's filter matches, and nobody may take: each of the pages that are read has some of them.
async fn backlog(process: &Process) {
    for batch in 0..3 {
        let owned = (0..400).map(|n| deferred(&format!("owned-{batch}-{n}")).owner("away").workflow("w"));
        let made = join_all(owned.map(|start| process.engine.submit(start, None))).await;
        assert!(made.iter().all(Result::is_ok));
    }
}

/// A claim of a queue of its own: by a value of a label that limits nothing.
fn by_filter(caller: CallerKey, label: &str) -> Claim {
    let max_running = Some(MaxRunning { label: label.to_owned(), limit: 1 });
    Claim { caller, max_running, ..claim_of(Some("worker".to_owned()), Duration::ZERO) }
}

#[tokio::test]
async fn who_comes_on_new_connections_and_reads_whole_queues_keeps_no_claimer_from_its_runs() {
    let process = Process::start().await;
    backlog(&process).await;
    process.store.slow_ms.store(PAGE_MS, Ordering::Relaxed);
    let honest = by_filter(CallerKey::new(1, None), "honest");
    assert_eq!(process.claims.next(&honest, pending()).await.unwrap().map(|granted| granted.replayed), None);
    let mut greedy = JoinSet::new();
    for nth in 0..GREEDY {
        let claims = process.claims.clone();
        greedy.spawn(async move {
            for round in 0.. {
                let number = 2 + nth + round * GREEDY;
                let claim = by_filter(CallerKey::new(number, None), &format!("greedy-{number}"));
                let _refused = claims.next(&claim, pending()).await;
            }
        });
    }
    let begun = Instant::now();
    while process.claims.bytes().0 < 8 * 16 * 1024 {
        assert!(begun.elapsed() < SOON, "the others have begun");
        yield_now().await;
    }
    let mut refused = Vec::new();
    for nth in 0..2 {
        let claim = by_filter(CallerKey::new(1, None), &format!("honest-{nth}"));
        refused.extend(process.claims.next(&claim, pending()).await.err());
    }
    greedy.shutdown().await;
    assert!(refused.is_empty(), "{refused:?}");
}

/// One that reads a whole queue waits for another turn after each page, and is counted.
#[tokio::test]
async fn a_page_of_a_whole_queue_is_a_turn_and_other_claims_come_in_between() {
    let process = Process::start().await;
    backlog(&process).await;
    process.apply(deferred("own").workflow("own")).await;
    process.store.slow_ms.store(10 * PAGE_MS, Ordering::Relaxed);
    let (claims, read) = (process.claims.clone(), process.store.lists.load(Ordering::Relaxed));
    let mut reading = JoinSet::new();
    for number in 2..4 {
        let claims = claims.clone();
        reading.spawn(async move {
            claims.next(&by_filter(CallerKey::new(number, None), &format!("whole-{number}")), pending()).await.is_ok()
        });
    }
    while process.store.lists.load(Ordering::Relaxed) == read {
        yield_now().await;
    }
    let filter = Filter { workflow_id: Some("own".to_owned()), ..Filter::default() };
    let short = Claim { filter, caller: CallerKey::new(1, None), ..claim_of(None, Duration::ZERO) };
    let granted = process.claims.next(&short, pending()).await.unwrap();
    assert_eq!(granted.map(received).as_deref(), Some("own"));
    let pages = process.store.lists.load(Ordering::Relaxed) - read;
    assert!(reading.try_join_next().is_none(), "after {pages} pages the others have not read half of their queues");
    assert!(timeout(SOON, reading.join_all()).await.expect("it hangs").into_iter().all(|is_answered| is_answered));
}

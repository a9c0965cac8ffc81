//! A shard's queue that callers share: what each may take of it, and how long its commands wait.

use runledger::fairness::CallerKey;

use super::*;

type Submitted = std::pin::Pin<Box<dyn Future<Output = Result<runledger::engine::Answer, Failure>>>>;

impl Process {
    /// Submits a start for a caller, as far as the queue; the failure where the queue does not take it.
    fn offer(&self, caller: CallerKey, run_id: &str) -> Result<Submitted, Failure> {
        let (engine, command) = (self.engine.clone(), start(run_id));
        let mut submitted: Submitted = Box::pin(async move { engine.submit_for(caller, command, None).await });
        match futures_util::FutureExt::now_or_never(submitted.as_mut()) {
            Some(answer) => Err(answer.unwrap_err()),
            None => Ok(submitted),
        }
    }

    fn has_unanswered(&self) -> bool {
        self.engine.unanswered().iter().any(|shard| shard.commands > 0)
    }

    /// As many commands of a caller as the queue takes.
    fn fill(&self, caller: CallerKey, name: &str) -> Vec<Submitted> {
        let offers = (0..1_000).map(|n| self.offer(caller, &format!("{name}-{n}")));
        offers.take_while(Result::is_ok).map(Result::unwrap).collect()
    }
}

#[tokio::test]
async fn a_caller_that_fills_a_shards_queue_keeps_no_other_one_out_and_then_has_half_of_it() {
    let process = Process::start_with(Limits { queue_commands_max: 64, ..Limits::default() }).await;
    process.hold().await;
    let (greedy, honest) = (CallerKey::new(1, None), CallerKey::new(2, Some(b"agent")));
    let first = process.fill(greedy, "greedy");
    assert!(first.len() >= 62, "{}: it was as good as alone", first.len());
    let others = process.fill(honest, "honest");
    assert!(others.len() >= 20, "{}: an equal share", others.len());
    process.release();
    let answers = join_all(first.into_iter().chain(others)).await;
    assert!(answers.iter().all(Result::is_ok));
    process.hold().await;
    let _waits = process.offer(honest, "waits").ok().unwrap();
    let again = process.fill(greedy, "again");
    assert_eq!(again.len(), 32, "half, while another one waits");
    process.release();
    assert!(join_all(again).await.iter().all(Result::is_ok));
}

#[tokio::test(start_paused = true)]
async fn a_command_that_has_waited_for_longer_than_callers_do_is_refused_and_writes_nothing() {
    let process = Process::start().await;
    process.hold().await;
    let old = process.offer(CallerKey::AUTHORITY, "old").ok().unwrap();
    tokio::time::advance(Duration::from_millis(3_100)).await;
    let new = process.offer(CallerKey::AUTHORITY, "new").ok().unwrap();
    process.release();
    let (old, new) = tokio::join!(old, new);
    let Err(Failure::Overloaded { wait }) = old else { panic!("{old:?}") };
    assert!((Duration::from_millis(2_480)..=Duration::from_millis(3_720)).contains(&wait), "{wait:?}");
    assert_eq!(new.unwrap().disposition, Disposition::Applied);
    assert_eq!(process.revision("old").await, None);
}

#[tokio::test(start_paused = true)]
async fn a_queue_that_no_batch_empties_refuses_what_has_waited_for_a_tenth_of_a_second() {
    let process = Process::start_with(Limits { batch_commands_max: 1, ..Limits::default() }).await;
    process.hold().await;
    let submitted: Vec<Submitted> =
        (0..12).map(|n| process.offer(CallerKey::AUTHORITY, &format!("run-{n}")).ok().unwrap()).collect();
    let commits = async {
        while process.has_unanswered() {
            tokio::time::advance(Duration::from_millis(90)).await;
            let begun = process.commits();
            process.store.gate.add_permits(1);
            // The next commit begins once this one is answered, however long the machine takes.
            while process.commits() == begun && process.has_unanswered() {
                yield_now().await;
            }
        }
        process.release();
    };
    let (answers, ()) = tokio::join!(join_all(submitted), commits);
    let made = answers.iter().take_while(|answer| answer.is_ok()).count();
    assert_eq!(made, 6, "the first one left others behind after 90 ms, and the seventh was due after 630 ms");
    assert!(answers[made..].iter().all(|answer| matches!(answer, Err(Failure::Overloaded { .. }))), "{answers:?}");
    let calm = process.engine.submit(start("calm"), None).await;
    assert_eq!(calm.unwrap().disposition, Disposition::Applied, "the queue was empty");
}

#[tokio::test]
async fn a_command_whose_caller_has_gone_is_not_executed() {
    let process = Process::start().await;
    process.hold().await;
    let gone = process.offer(CallerKey::new(1, None), "gone").ok().unwrap();
    let stays = process.offer(CallerKey::new(1, None), "stays").ok().unwrap();
    drop(gone);
    process.release();
    assert_eq!(stays.await.unwrap().disposition, Disposition::Applied);
    assert_eq!(process.revision("gone").await, None);
}

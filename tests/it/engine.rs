//! The engine on a store in memory whose commits are held and lost: what its callers are told, and what is true.

mod sharing;

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use futures_util::future::join_all;
use runledger::clock::SystemClock;
use runledger::domain::{Command, Disposition, Shard, Status};
use runledger::engine::{Answer, Engine, Failure, Limits};
use runledger::fairness::CallerKey;
use runledger::store::leases::OverduePlace;
use runledger::store::open::{self, Location};
use runledger::store::{Commits, OpenOptions, Runs as _, Upkeep as _};
use runledger::tasks::Supervisor;
use runledger::upkeep::sweeper;
use serde_json::json;
use tokio::sync::{Notify, Semaphore};
use tokio::task::yield_now;
use tokio::time::Instant;

use crate::support::commands::{Asking as _, complete, deferred, key, start, update};
use crate::support::wrapped::{Fate, Wrapped};

struct Process {
    store: Arc<Wrapped>,
    engine: Arc<Engine>,
    supervisor: Supervisor,
}

impl Process {
    async fn start() -> Self {
        Self::start_with(Limits::default()).await
    }

    async fn start_with(limits: Limits) -> Self {
        let (supervisor, options) = (Supervisor::new(), OpenOptions::default());
        let store = open::open(&Location::Memory, &options, Arc::new(SystemClock), &supervisor).await.unwrap();
        let store = Arc::new(Wrapped::around(store));
        let commits: Arc<dyn Commits> = store.clone();
        let engine = Arc::new(Engine::start(&commits, store.clone(), &supervisor, &Arc::new(Notify::new()), limits));
        Self { store, engine, supervisor }
    }

    fn fates(&self, fates: impl IntoIterator<Item = Fate>) {
        self.store.fates.lock().unwrap().extend(fates);
    }

    /// Holds all commits from now on, with one caught in the middle.
    async fn hold(&self) {
        self.store.gate.forget_permits(Semaphore::MAX_PERMITS);
        let before = self.commits();
        let (engine, caught) = (self.engine.clone(), start("caught"));
        self.supervisor.spawn(async move { drop(engine.submit(caught, None).await) });
        while self.commits() == before {
            yield_now().await;
        }
    }

    /// The answers to a list, in its order.
    async fn list(
        &self,
        caller: CallerKey,
        list: Vec<Command>,
        deadline: Option<Instant>,
    ) -> Result<Vec<Result<Answer, Failure>>, Failure> {
        let mut answers = Vec::new();
        self.engine.submit_all_for(caller, list, deadline, |answer| answers.push(answer)).await?;
        Ok(answers)
    }

    fn release(&self) {
        self.store.gate.add_permits(1 << 20);
    }

    fn commits(&self) -> usize {
        self.store.batches.lock().unwrap().len()
    }

    async fn revision(&self, run_id: &str) -> Option<u64> {
        self.store.run(&key(run_id)).await.unwrap().map(|run| run.revision.get())
    }
}

#[tokio::test]
async fn a_commit_whose_confirmation_was_lost_is_settled_as_applied_once() {
    let process = Process::start().await;
    process.fates([Fate::ConfirmationLost]);
    let answer = process.engine.submit(start("run-1"), None).await.unwrap();
    assert_eq!((answer.disposition, answer.run.revision), (Disposition::Applied, 1.into()));
    assert_eq!(process.commits(), 1, "what was applied is not sent again");
}

/// The commands of a run's life.
fn life(run_id: &str) -> [Command; 3] {
    let step = update(run_id).changing(|fields| fields.workflow_id = Some("another".to_owned()));
    [start(run_id), step, complete(run_id)]
}

#[tokio::test]
async fn a_list_of_commands_is_queued_whole_or_not_at_all() {
    let process = Process::start_with(Limits { queue_commands_max: 8, ..Limits::default() }).await;
    process.hold().await;
    let list = |runs: usize| (0..runs).flat_map(|n| life(&format!("run-{n}"))).collect::<Vec<_>>();
    let refused = process.list(CallerKey::AUTHORITY, list(20), None).await;
    assert!(matches!(refused, Err(Failure::Overloaded { .. })), "{refused:?}");
    assert_eq!(process.engine.unanswered().iter().map(|shard| shard.commands).sum::<usize>(), 1, "the caught one");
    let (answers, ()) = tokio::join!(biased;
        process.list(CallerKey::AUTHORITY, list(2), None),
        async { process.release() },
    );
    for (answer, revision) in answers.unwrap().into_iter().zip([1, 2, 3, 1, 2, 3]) {
        assert_eq!(answer.unwrap().run.revision.get(), revision);
    }
    assert_eq!(process.revision("run-2").await, None, "nothing of what was refused is there");
}

#[tokio::test]
async fn of_a_crowded_queue_each_caller_has_a_part_of_the_next_commit() {
    // Where lists wait, a commit takes less.
    for limits in
        [Limits { batch_commands_max: 8, ..Limits::default() }, Limits { batch_mixed_max: 8, ..Limits::default() }]
    {
        each_has_a_part_of_the_next_commit(limits).await;
    }
}

async fn each_has_a_part_of_the_next_commit(limits: Limits) {
    let process = Process::start_with(limits).await;
    process.hold().await;
    let held = process.commits();
    let many = (0..40).flat_map(|n| life(&format!("run-{n}"))).collect();
    let list = process.list(CallerKey::new(1, None), many, None);
    let single = async {
        let answer = process.engine.submit_for(CallerKey::new(2, None), start("one"), None).await;
        answer.unwrap().run.revision.get()
    };
    let (answers, revision, ()) = tokio::join!(biased; list, single, async { process.release() });
    assert!(answers.unwrap().iter().all(Result::is_ok), "the commands of the list keep their order");
    assert_eq!(revision, 1);
    // Which commit it was, and not how many there were when its caller heard of it.
    let commits = process.store.first.lock().unwrap()["one"];
    assert!(commits <= held + 3 && process.commits() >= held + 15, "{commits} of {}", process.commits());
}

/// How many single commands of one caller, and how many lists of others, are answered by the next commit.
async fn answered_by_the_next_commit(
    limits: Limits,
    singles: Vec<Command>,
    lists: Vec<Vec<Command>>,
) -> (usize, usize) {
    let process = Process::start_with(limits).await;
    process.hold().await;
    let held = process.commits();
    let (single, list) = (AtomicUsize::new(0), AtomicUsize::new(0));
    let singles = join_all(singles.into_iter().map(async |command| {
        process.engine.submit_for(CallerKey::new(1, None), command, None).await.unwrap();
        single.fetch_add(1, Ordering::Relaxed);
    }));
    let lists = join_all((2..).zip(lists).map(async |(caller, commands)| {
        let answers = process.list(CallerKey::new(caller, None), commands, None).await.unwrap();
        assert!(answers.iter().all(Result::is_ok));
        list.fetch_add(1, Ordering::Relaxed);
    }));
    let answered = async {
        // The one that is held, and the next.
        process.store.gate.add_permits(2);
        while process.commits() < held + 2 {
            yield_now().await;
        }
        for _ in 0..10 {
            yield_now().await;
        }
        let answered = (single.load(Ordering::Relaxed), list.load(Ordering::Relaxed));
        process.release();
        answered
    };
    tokio::join!(biased; singles, lists, answered).2
}

#[tokio::test]
async fn single_commands_of_one_caller_are_not_behind_the_lists_of_many() {
    let singles = (0..40).map(|n| start(&format!("one-{n}"))).collect();
    let list = |caller: usize| (0..30).flat_map(|n| life(&format!("run-{caller}-{n}"))).collect();
    let answered = answered_by_the_next_commit(Limits::default(), singles, (0..10).map(list).collect()).await;
    assert_eq!(answered, (40, 0), "the single commands, and a part of each list");
}

#[tokio::test]
async fn a_commit_that_is_full_of_bytes_has_commands_of_lists_as_well() {
    let large = json!({"large": "x".repeat(400)});
    let limits = Limits { batch_bytes_max: 8 * 1024, ..Limits::default() };
    let singles = (0..80).map(|n| start(&format!("one-{n}")).metadata(&large)).collect();
    let lists = (0..20).map(|n| vec![start(&format!("run-{n}"))]).collect();
    let (singles, lists) = answered_by_the_next_commit(limits, singles, lists).await;
    assert!((1..40).contains(&singles), "{singles}: the bytes are the limit");
    assert!(lists.abs_diff(singles) <= 1, "{lists} lists beside {singles} single commands");
}

#[tokio::test]
async fn what_is_behind_a_command_of_a_list_whose_commit_failed_goes_with_it() {
    let process = Process::start_with(Limits { batch_commands_max: 1, ..Limits::default() }).await;
    process.fates([Fate::Lost, Fate::Lost, Fate::Lost, Fate::Lost]);
    let answers = process.list(CallerKey::AUTHORITY, life("run").into(), None).await.unwrap();
    assert!(answers.iter().all(|answer| *answer == Err(Failure::StoreUnavailable)), "{answers:?}");
    assert_eq!(process.revision("run").await, None, "nothing was written");
    let answers = process.list(CallerKey::AUTHORITY, life("run").into(), None).await.unwrap();
    assert!(answers.iter().all(Result::is_ok), "{answers:?}");
}

#[tokio::test(start_paused = true)]
async fn a_list_that_has_waited_for_long_is_not_held_up_by_single_commands() {
    let limits = Limits { batch_mixed_max: 8, ..Limits::default() };
    for (waited, at_once) in [(Duration::ZERO, false), (limits.wait_max / 3, true)] {
        let process = Process::start_with(limits).await;
        process.hold().await;
        let held = process.commits();
        let list = process.list(CallerKey::new(1, None), (0..40).map(|n| start(&format!("run-{n}"))).collect(), None);
        let single = process.engine.submit_for(CallerKey::new(2, None), start("one"), None);
        let release = async {
            tokio::time::sleep(waited).await;
            process.release();
        };
        let (list, single, ()) = tokio::join!(biased; list, single, release);
        assert!(list.unwrap().iter().all(Result::is_ok) && single.is_ok());
        assert_eq!(process.commits() == held + 1, at_once, "{}", process.commits() - held);
    }
}

#[tokio::test(start_paused = true)]
async fn a_list_whose_time_is_over_is_given_up_from_its_end() {
    let process = Process::start_with(Limits { batch_commands_max: 2, ..Limits::default() }).await;
    process.hold().await;
    let deadline = Some(Instant::now() + Duration::from_millis(500));
    let list = (0..20).flat_map(|n| life(&format!("run-{n}"))).collect();
    let answers = process.list(CallerKey::AUTHORITY, list, deadline).await.unwrap();
    assert!(answers.iter().all(|answer| *answer == Err(Failure::Deadline)), "{answers:?}");
    let before = process.commits();
    process.release();
    process.engine.submit(start("after"), None).await.unwrap();
    assert_eq!(process.commits(), before + 1, "what was given up is in no commit");
    assert_eq!(process.revision("run-0").await, None);
}

#[tokio::test(start_paused = true)]
async fn of_a_list_that_waits_for_too_long_no_command_goes_before_one_that_was_refused() {
    let limits = Limits { batch_commands_max: 2, wait_max: Duration::from_millis(20), ..Limits::default() };
    let process = Process::start_with(limits).await;
    for round in 0..20 {
        process.hold().await;
        let list: Vec<_> = (0..10).flat_map(|n| life(&format!("run-{round}-{n}"))).collect();
        let held = async {
            tokio::time::sleep(Duration::from_millis(round)).await;
            process.release();
        };
        let (answers, ()) = tokio::join!(biased; process.list(CallerKey::AUTHORITY, list, None), held);
        let answers = answers.unwrap();
        for run in answers.chunks(3) {
            let done = run.iter().take_while(|answer| answer.is_ok()).count();
            assert!(run[done..].iter().all(|answer| matches!(answer, Err(Failure::Overloaded { .. }))), "{run:?}");
        }
    }
}

#[tokio::test]
async fn a_commit_that_was_lost_is_sent_again() {
    let process = Process::start().await;
    process.fates([Fate::Lost, Fate::Lost]);
    let answer = process.engine.submit(start("run-1"), None).await.unwrap();
    assert_eq!((answer.disposition, answer.run.revision), (Disposition::Applied, 1.into()));
    assert_eq!(process.commits(), 3);
}

#[tokio::test]
async fn a_batch_that_was_lost_is_sent_again_in_halves() {
    let process = Process::start().await;
    process.hold().await;
    let starts = (0..8).map(|n| {
        let engine = process.engine.clone();
        async move { engine.submit(start(&format!("run-{n}")), None).await }
    });
    let release = async {
        process.fates([Fate::Unavailable, Fate::Lost]);
        process.release();
    };
    let (answers, ()) = tokio::join!(biased; join_all(starts), release);
    assert!(answers.into_iter().all(|answer| answer.unwrap().disposition == Disposition::Applied));
    assert_eq!(process.store.batches.lock().unwrap()[1..], [8, 4, 4]);
}

#[tokio::test(start_paused = true)]
async fn an_outcome_that_cannot_be_settled_is_unknown_and_the_shard_goes_on_afterwards() {
    let process = Process::start().await;
    process.store.deaf.store(true, Ordering::Relaxed);
    process.fates([Fate::ConfirmationLost]);
    let deadline = Some(Instant::now() + Duration::from_secs(3));
    let (unknown, queued) = tokio::join!(biased;
        process.engine.submit(start("run-1"), deadline),
        async {
            while process.commits() == 0 {
                yield_now().await;
            }
            process.engine.submit(start("run-2"), None).await
        },
    );
    assert_eq!(unknown.unwrap_err(), Failure::OutcomeUnknown);
    assert_eq!(queued.unwrap_err(), Failure::StoreUnavailable, "what queues behind it is turned away");
    assert_eq!(process.revision("run-2").await, None);
    process.store.deaf.store(false, Ordering::Relaxed);
    let again = loop {
        match process.engine.submit(start("run-1"), None).await {
            Err(Failure::StoreUnavailable) => tokio::time::sleep(Duration::from_millis(100)).await,
            answer => break answer.unwrap(),
        }
    };
    assert_eq!(again.disposition, Disposition::Unchanged, "it was applied");
}

#[tokio::test(start_paused = true)]
async fn a_command_that_was_withdrawn_in_the_queue_is_never_committed() {
    let process = Process::start().await;
    process.hold().await;
    let deadline = Some(Instant::now() + Duration::from_millis(20));
    assert_eq!(process.engine.submit(start("run-1"), deadline).await.unwrap_err(), Failure::Deadline);
    process.release();
    assert_eq!(process.engine.submit(start("run-2"), None).await.unwrap().disposition, Disposition::Applied);
    assert_eq!(process.revision("run-1").await, None);
}

#[tokio::test(start_paused = true)]
async fn a_command_in_flight_at_its_deadline_has_an_unknown_outcome() {
    let process = Process::start().await;
    process.store.gate.forget_permits(Semaphore::MAX_PERMITS);
    let deadline = Some(Instant::now() + Duration::from_millis(20));
    assert_eq!(process.engine.submit(start("run-1"), deadline).await.unwrap_err(), Failure::OutcomeUnknown);
    process.release();
    assert_eq!(process.engine.submit(complete("run-1"), None).await.unwrap().run.revision, 2, "it was applied");
}

#[tokio::test]
async fn a_command_whose_deadline_has_passed_is_not_even_queued() {
    let process = Process::start().await;
    let failure = process.engine.submit(start("run-1"), Some(Instant::now())).await.unwrap_err();
    assert_eq!((failure, process.commits()), (Failure::Deadline, 0));
}

#[tokio::test(start_paused = true)]
async fn a_lost_command_is_not_sent_again_once_its_caller_was_told() {
    let process = Process::start().await;
    process.engine.submit(start("run-1"), None).await.unwrap();
    process.store.deaf.store(true, Ordering::Relaxed);
    process.fates([Fate::Lost]);
    let label = |value| update("run-1").label("key", value);
    let soon = Some(Instant::now() + Duration::from_millis(50));
    let told = async {
        let answer = process.engine.submit(label("left"), soon).await;
        process.store.deaf.store(false, Ordering::Relaxed);
        answer
    };
    let (unknown, patient) = tokio::join!(biased; told, process.engine.submit(label("stayed"), None));
    assert_eq!(unknown.unwrap_err(), Failure::OutcomeUnknown);
    assert_eq!(patient.unwrap().disposition, Disposition::Applied);
    assert_eq!(process.store.batches.lock().unwrap()[1..], [2, 1], "both were in the batch that was lost");
    assert_eq!(process.revision("run-1").await, Some(2));
}

#[tokio::test]
async fn a_full_queue_says_so_at_once() {
    let limits = Limits::default();
    // A commit that is held has its own command out of the queue, but not out of the budget of bytes.
    for (limits, held) in [
        (Limits { queue_commands_max: 16, ..limits }, 16..=16),
        (Limits { queue_bytes_max: 1024 * 1024, ..limits }, 15..=17),
    ] {
        let waiting = full_queue(limits).await;
        assert!(held.contains(&waiting), "{waiting} commands fit, and not {held:?}");
    }
}

/// Fills a queue, and answers how many commands were in it when the next one was refused.
async fn full_queue(limits: Limits) -> usize {
    let process = Process::start_with(limits).await;
    process.hold().await;
    let large = json!({"text": "x".repeat(60_000)});
    let mut waiting = Vec::new();
    let overloaded = loop {
        let (engine, command) = (process.engine.clone(), start("run-1").metadata(&large));
        let mut submitted = Box::pin(async move { engine.submit(command, None).await });
        match futures_util::poll!(&mut submitted) {
            std::task::Poll::Ready(answer) => break answer.unwrap_err(),
            std::task::Poll::Pending => waiting.push(submitted),
        }
        assert!(waiting.len() < 4096, "the queue takes commands without end");
    };
    assert!(matches!(overloaded, Failure::Overloaded { .. }), "{overloaded:?}");
    process.release();
    let answers = join_all(waiting).await;
    assert!(answers.iter().all(Result::is_ok));
    answers.len()
}

#[tokio::test]
async fn a_closed_engine_answers_what_was_queued_and_takes_no_more() {
    let process = Process::start().await;
    process.hold().await;
    let queued = process.engine.submit(start("run-1"), None);
    let close = async {
        process.engine.close();
        process.release();
    };
    let (queued, ()) = tokio::join!(biased; queued, close);
    assert_eq!(queued.unwrap().disposition, Disposition::Applied);
    process.supervisor.stop().cancel();
    assert!(process.supervisor.finished(Duration::from_secs(5)).await, "the committers end");
    assert_eq!(process.engine.submit(start("run-2"), None).await.unwrap_err(), Failure::Draining);
}

#[tokio::test]
async fn a_replay_that_cannot_be_read_does_not_say_that_nothing_was_written() {
    let process = Process::start().await;
    let command = || start("run-1").request("request-1");
    process.engine.submit(command(), None).await.unwrap();
    process.store.deaf.store(true, Ordering::Relaxed);
    assert_eq!(process.engine.submit(command(), None).await.unwrap_err(), Failure::OutcomeUnknown);
    process.store.deaf.store(false, Ordering::Relaxed);
    assert_eq!(process.engine.submit(command(), None).await.unwrap().disposition, Disposition::Replayed);
}

#[tokio::test]
async fn many_small_patches_of_a_large_run_are_committed_in_parts() {
    let process = Process::start().await;
    let large = json!({"a": vec![json!({"": 0}); 7_000]});
    process.engine.submit(start("run-1").metadata(&large), None).await.unwrap();
    process.hold().await;
    let updates = (0..64).map(|n| {
        let engine = process.engine.clone();
        async move { engine.submit(update("run-1").metadata(&json!({format!("{n}"): n})), None).await }
    });
    let release = async { process.release() };
    let (answers, ()) = tokio::join!(biased; join_all(updates), release);
    let revisions: Vec<_> = answers.into_iter().map(|answer| answer.unwrap().run.revision).collect();
    assert_eq!(revisions, (2..66).collect::<Vec<u64>>(), "in the order of their arrival");
    assert!(process.commits() > 5, "{:?}", process.store.batches.lock().unwrap());
}

#[tokio::test]
async fn after_a_commit_of_large_runs_the_next_ones_are_shorter_until_runs_are_small_again() {
    let limits = Limits { batch_commands_max: 8, batch_runs_bytes_max: 64 * 1024, ..Limits::default() };
    let process = Process::start_with(limits).await;
    let large = json!({"a": vec![json!({"": 0}); 60]});
    process.engine.submit(start("run-1").metadata(&large), None).await.unwrap();
    process.hold().await;
    let updates = (0..17).map(|n| update("run-1").metadata(&json!({format!("{n}"): n})));
    let commands = updates.chain((0..11).map(|n| start(&format!("small-{n}"))));
    let answers = join_all(commands.map(|command| process.engine.submit(command, None)));
    let release = async { process.release() };
    let (answers, ()) = tokio::join!(biased; answers, release);
    assert!(answers.into_iter().all(|answer| answer.is_ok()));
    assert_eq!(process.store.batches.lock().unwrap()[2..], [8, 4, 2, 1, 1, 1, 1, 2, 4, 4]);
}

/// A process with more runs whose time is over than one look finds.
async fn overdue() -> Process {
    let process = Process::start().await;
    let starts = (0..700).map(|n| process.engine.submit(deferred(&format!("run-{n}")).start_timeout_ms(1), None));
    assert!(join_all(starts).await.iter().all(Result::is_ok));
    process.engine.submit(deferred("for-ever"), None).await.unwrap();
    let first = OverduePlace::default();
    while process.store.overdue(Shard(0), &first, 1_000).await.unwrap().runs.len() < 700 {
        yield_now().await;
    }
    process
}

#[tokio::test]
async fn a_sweep_of_a_shard_that_takes_nothing_looks_at_no_further_page() {
    let process = overdue().await;
    process.engine.close();
    let before = process.store.sweeps.load(Ordering::Relaxed);
    assert_eq!(sweeper::sweep(&*process.store, &process.engine, Shard(0)).await.unwrap(), 0);
    assert_eq!(process.store.sweeps.load(Ordering::Relaxed), before + 1);
}

/// More runs than one look finds: the sweep goes on until none is left, and a second one finds nothing to do.
#[tokio::test]
async fn a_sweep_ends_everybody_whose_time_is_over() {
    let process = overdue().await;
    let sweep = async || sweeper::sweep(&*process.store, &process.engine, Shard(0)).await.unwrap();
    assert_eq!((sweep().await, sweep().await), (700, 0));
    let statuses =
        join_all((0..700).map(async |n| process.store.run(&key(&format!("run-{n}"))).await.unwrap().unwrap()));
    for run in statuses.await {
        assert_eq!(
            (run.status, run.ending.reason_code.as_deref(), run.revision),
            (Status::Aborted, Some("TIMEOUT"), 2.into())
        );
    }
    assert_eq!(process.revision("for-ever").await, Some(1));
}

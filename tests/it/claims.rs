//! Claims on a store in memory whose commits are held and lost: who gets what, and what is left for the next.

mod beside;
mod gone;

use std::collections::BTreeSet;
use std::future::{pending, ready};
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures_util::FutureExt as _;
use futures_util::future::join_all;
use runledger::claims::{Claim, Claims, Failure, Granted, Limits};
use runledger::clock::SystemClock;
use runledger::domain::ids::DEFAULT_NAMESPACE;
use runledger::domain::{Agents, Ask, Command, Filter, LabelValue, MaxRunning, Principal, Priority, Run, Status, Take};
use runledger::engine::{self, Engine};
use runledger::fairness::CallerKey;
use runledger::feed::{self, Feed};
use runledger::store::open::{self, Location};
use runledger::store::{Commits, OfLedger as _, OpenOptions, Runs as _, Upkeep as _};
use runledger::tasks::Supervisor;
use runledger::wire::WireFrames;
use runledger::wire::seal::Seals;
use tokio::sync::{Notify, Semaphore, mpsc, oneshot};
use tokio::task::{JoinSet, yield_now};
use tokio::time::{Instant, sleep, timeout};

use crate::support::commands::{Asking as _, TTL_MS, abort, claim, complete, deferred, key, leased, start, update};
use crate::support::wrapped::{Fate, Wrapped};

const SOON: Duration = Duration::from_secs(30);

struct Process {
    store: Arc<Wrapped>,
    engine: Arc<Engine>,
    claims: Arc<Claims>,
    feed: Feed,
    supervisor: Supervisor,
}

impl Process {
    async fn start() -> Self {
        Self::start_with(Limits::default()).await
    }

    async fn start_with(limits: Limits) -> Self {
        let (supervisor, options) = (Supervisor::new(), OpenOptions::default());
        let store = open::open(&Location::Memory, &options, Arc::new(SystemClock), &supervisor).await.unwrap();
        let (store, committed) = (Arc::new(Wrapped::around(store)), Arc::new(Notify::new()));
        let commits: Arc<dyn Commits> = store.clone();
        let engine =
            Arc::new(Engine::start(&commits, store.clone(), &supervisor, &committed, engine::Limits::default()));
        let frames = Arc::new(WireFrames { seals: Arc::new(Seals::new(store.ledger())) });
        let feed = Feed::start(store.clone(), store.clone(), &supervisor, committed, frames, feed::Limits::default());
        let claims =
            Arc::new(Claims::new(store.clone(), store.clone(), engine.clone(), feed.clone(), &supervisor, limits));
        Self { store, engine, claims, feed, supervisor }
    }

    async fn apply(&self, command: Command) -> Arc<Run> {
        self.engine.submit(command, None).await.unwrap().run
    }

    async fn next(&self, agent: Option<&str>, wait: Duration) -> Result<Option<String>, Failure> {
        next(self.claims.clone(), agent.map(str::to_owned), wait).await
    }
}

async fn next(claims: Arc<Claims>, agent: Option<String>, wait: Duration) -> Result<Option<String>, Failure> {
    let claim = claim_of(agent, wait);
    Ok(claims.next(&claim, pending()).await?.map(received))
}

fn received(granted: Granted) -> String {
    let run_id = granted.first.run().run_id.to_string();
    granted.first.receive();
    run_id
}

fn claim_of(agent: Option<String>, wait: Duration) -> Claim {
    Claim {
        namespace: DEFAULT_NAMESPACE.into(),
        filter: Filter::default(),
        take: Take::Pending,
        max_running: None,
        lease_ttl_ms: TTL_MS,
        max_runs: 1,
        bytes_max: usize::MAX,
        principal: agent.map_or_else(Principal::anonymous, Principal::claimed),
        agents: Agents::All,
        caller: CallerKey::AUTHORITY,
        request: None,
        wait_until: Instant::now() + wait,
        deadline: None,
        trace: None,
    }
}

#[tokio::test]
async fn a_run_behind_thousands_of_other_owners_runs_is_found() {
    let process = Process::start().await;
    for batch in 0..9 {
        let owned = (0..500).map(|n| deferred(&format!("owned-{batch}-{n}")).owner("away"));
        let made = join_all(owned.map(|start| process.engine.submit(start, None))).await;
        assert!(made.iter().all(Result::is_ok));
    }
    process.apply(deferred("anybodys")).await;
    assert_eq!(process.next(Some("worker"), Duration::ZERO).await.unwrap().as_deref(), Some("anybodys"));
    assert_eq!(process.next(Some("worker"), Duration::ZERO).await.unwrap(), None);
    assert_eq!(process.next(Some("away"), Duration::ZERO).await.unwrap().as_deref(), Some("owned-0-0"));
}

#[tokio::test]
async fn a_claimer_whose_connection_ends_is_granted_no_run_and_the_next_one_has_it() {
    let process = Process::start().await;
    let (cut, is_cut) = oneshot::channel::<()>();
    let (claims, claim) = (process.claims.clone(), claim_of(None, SOON));
    let mut waiting = JoinSet::new();
    waiting.spawn(async move { claims.next(&claim, is_cut.map(drop)).await.map(|granted| granted.is_some()) });
    while process.claims.bytes().0 == 0 {
        yield_now().await;
    }
    cut.send(()).unwrap();
    let ended = timeout(SOON, waiting.join_next()).await.expect("it hangs").unwrap().unwrap();
    assert!(matches!(ended, Err(Failure::Cut)), "{ended:?}");
    process.apply(deferred("run-1")).await;
    let at_once = process.claims.next(&claim_of(None, SOON), ready(())).await;
    assert!(matches!(at_once, Err(Failure::Cut)), "{at_once:?}");
    assert_eq!(process.next(None, Duration::ZERO).await.unwrap().as_deref(), Some("run-1"));
}

/// Its first candidate is lost to another caller while the connection ends.
#[tokio::test]
async fn a_claimer_whose_connection_ends_while_it_loses_a_run_claims_no_other() {
    let process = Process::start().await;
    // Of a queue that was read in vain, only the feed tells.
    assert_eq!(process.next(None, Duration::ZERO).await.unwrap(), None);
    let (first, _) = tokio::join!(process.next(None, SOON), process.apply(deferred("run-0")));
    assert_eq!(first.unwrap().as_deref(), Some("run-0"));
    for run_id in ["run-1", "run-2"] {
        let before = process.claims.bytes().0;
        process.apply(deferred(run_id)).await;
        let told = async {
            while process.claims.bytes().0 <= before {
                yield_now().await;
            }
        };
        timeout(SOON, told).await.expect("it hangs");
    }
    process.store.gate.forget_permits(Semaphore::MAX_PERMITS);
    let engine = process.engine.clone();
    let mut others = JoinSet::new();
    others.spawn(async move { engine.submit(abort("run-1"), None).await.map(drop) });
    let unanswered = || process.engine.unanswered().iter().map(|of_shard| of_shard.commands).sum::<usize>();
    let come = async |count: usize| {
        while unanswered() < count {
            yield_now().await;
        }
    };
    timeout(SOON, come(1)).await.expect("it hangs");
    let (cut, is_cut) = oneshot::channel::<()>();
    let (claims, claim) = (process.claims.clone(), claim_of(None, SOON));
    let mut claimer = JoinSet::new();
    claimer.spawn(async move { claims.next(&claim, is_cut.map(drop)).await.map(|granted| granted.is_some()) });
    timeout(SOON, come(2)).await.expect("it hangs");
    cut.send(()).unwrap();
    process.store.gate.add_permits(1 << 20);
    let ended = timeout(SOON, claimer.join_next()).await.expect("it hangs").unwrap().unwrap();
    assert!(matches!(ended, Err(Failure::Cut)), "{ended:?}");
    others.join_next().await.unwrap().unwrap().unwrap();
    let other = process.store.run(&key("run-2")).await.unwrap().unwrap();
    assert_eq!((other.status, other.supervision.lease), (Status::Pending, None));
}

#[tokio::test]
async fn a_run_whose_claimer_went_away_is_had_by_the_next() {
    let process = Process::start().await;
    process.apply(deferred("run-1")).await;
    // A commit is caught in the middle: what is claimed now is queued behind it.
    process.store.gate.forget_permits(Semaphore::MAX_PERMITS);
    let before = process.store.batches.lock().unwrap().len();
    let (engine, caught) = (process.engine.clone(), start("caught"));
    process.supervisor.spawn(async move { drop(engine.submit(caught, None).await) });
    while process.store.batches.lock().unwrap().len() == before {
        yield_now().await;
    }
    let mut gone = JoinSet::new();
    gone.spawn(next(process.claims.clone(), None, SOON));
    while process.engine.unanswered().iter().map(|shard| shard.commands).sum::<usize>() < 2 {
        yield_now().await;
    }
    let mut waits = JoinSet::new();
    waits.spawn(next(process.claims.clone(), None, SOON));
    gone.shutdown().await;
    process.store.gate.add_permits(1 << 20);
    let got = timeout(SOON, waits.join_next()).await.expect("it hangs").unwrap().unwrap();
    assert_eq!(got.unwrap().as_deref(), Some("run-1"));
}

#[tokio::test]
async fn a_claim_that_could_not_be_decided_leaves_the_run_to_the_next() {
    let process = Process::start().await;
    process.apply(deferred("run-1")).await;
    process.store.fates.lock().unwrap().push_back(Fate::Unavailable);
    let failed = process.next(None, Duration::ZERO).await.unwrap_err();
    assert!(matches!(failed, Failure::Engine(engine::Failure::StoreUnavailable)), "{failed:?}");
    assert_eq!(process.next(None, Duration::ZERO).await.unwrap().as_deref(), Some("run-1"));
}

/// Whoever does not wait for a run is not told that there is none while somebody else may yet leave it.
#[tokio::test]
async fn a_run_in_the_hand_of_a_claim_that_ends_with_nothing_is_the_next_claimers() {
    let process = Process::start().await;
    process.apply(deferred("run-1")).await;
    process.store.gate.forget_permits(Semaphore::MAX_PERMITS);
    process.store.fates.lock().unwrap().push_back(Fate::Unavailable);
    let mut first = JoinSet::new();
    first.spawn(next(process.claims.clone(), None, Duration::ZERO));
    while process.engine.unanswered().iter().map(|shard| shard.commands).sum::<usize>() == 0 {
        yield_now().await;
    }
    let mut second = JoinSet::new();
    second.spawn(next(process.claims.clone(), None, Duration::ZERO));
    let early = timeout(Duration::from_millis(200), second.join_next()).await;
    assert!(early.is_err(), "it is told that there is no run: {early:?}");
    process.store.gate.add_permits(1 << 20);
    assert!(first.join_next().await.unwrap().unwrap().is_err());
    let got = timeout(SOON, second.join_next()).await.expect("it hangs").unwrap().unwrap();
    assert_eq!(got.unwrap().as_deref(), Some("run-1"));
}

/// Pages are read by priority, so that a run may be in none of them. Half of the claimers come to a queue that is new.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_run_whose_priority_changes_all_the_time_is_had_at_once() {
    let process = Process::start().await;
    for round in 0..100 {
        let (id, queue) = (format!("run-{round}"), format!("q-{}", if round % 2 == 0 { 0 } else { round }));
        process.apply(deferred(&id).label("queue", &queue)).await;
        let (engine, mut changes) = (process.engine.clone(), JoinSet::new());
        changes.spawn(async move {
            for n in 0.. {
                let mut command = update(&id);
                let Ask::Update(update) = &mut command.ask else { unreachable!() };
                update.priority = Priority::of([5, -5, 50][n % 3]);
                if engine.submit(command, None).await.is_err() {
                    return;
                }
            }
        });
        let filter = Filter { labels: [("queue".to_owned(), queue)].into(), ..Filter::default() };
        let claim = Claim { filter, ..claim_of(None, Duration::ZERO) };
        let granted = process.claims.next(&claim, pending()).await.unwrap();
        assert!(granted.map(received).is_some(), "in round {round} it is told that there is none");
        changes.join_next().await;
    }
}

/// Changes in between are not told to the queue: it is read again.
#[tokio::test]
async fn a_claimer_whose_queue_was_cut_from_the_feed_gets_what_came_meanwhile() {
    let process = Process::start().await;
    let mut waiting = JoinSet::new();
    waiting.spawn(next(process.claims.clone(), None, SOON));
    while process.feed.hub().watches_of_many_runs() == 0 {
        yield_now().await;
    }
    // The log cannot be read past the run's first event.
    process.store.damaged.store(1, Ordering::Relaxed);
    process.apply(deferred("run-1")).await;
    let got = timeout(SOON / 2, waiting.join_next()).await.expect("it hangs").unwrap().unwrap();
    assert_eq!(got.unwrap().as_deref(), Some("run-1"));
}

/// A lease exists exactly when its run's commit was made, with or without an answer.
#[tokio::test]
async fn a_lease_begins_and_ends_with_a_commit_of_unknown_outcome() {
    let process = Process::start().await;
    let kept =
        async |run_id: &str| process.store.leases(&[key(run_id)]).await.unwrap().remove(0).map(|kept| kept.epoch);
    for (run_id, fate) in [("confirmed-late", Fate::ConfirmationLost), ("sent-again", Fate::Lost)] {
        process.store.fates.lock().unwrap().push_back(fate);
        assert_eq!(process.apply(leased(run_id)).await.revision, 1);
        assert_eq!(kept(run_id).await, Some(1.into()));
    }
    process.apply(deferred("claimed")).await;
    process.store.fates.lock().unwrap().push_back(Fate::ConfirmationLost);
    assert_eq!(process.next(None, Duration::ZERO).await.unwrap().as_deref(), Some("claimed"));
    assert_eq!(kept("claimed").await, Some(1.into()));
    for (run_id, fate) in [("claimed", Fate::ConfirmationLost), ("sent-again", Fate::Lost)] {
        process.store.fates.lock().unwrap().push_back(fate);
        assert_eq!(process.apply(complete(run_id).epoch(1)).await.revision, if run_id == "claimed" { 3 } else { 2 });
        assert_eq!(kept(run_id).await, None);
    }
}

/// A claim that lets one run of each instance run.
async fn next_of_an_instance(claims: Arc<Claims>, wait: Duration) -> Option<String> {
    let claim = Claim {
        filter: Filter { labels: [("pool".to_owned(), "p".to_owned())].into(), ..Filter::default() },
        max_running: Some(MaxRunning { label: "instance".to_owned(), limit: 1 }),
        ..claim_of(None, wait)
    };
    claims.next(&claim, pending()).await.unwrap().map(received)
}

fn queued(run_id: &str, instance: &str) -> Command {
    deferred(run_id).label("instance", instance).label("pool", "p")
}

#[tokio::test]
async fn each_instance_takes_one_run_at_a_time_first_in_first_out() {
    let process = Process::start().await;
    let now = || next_of_an_instance(process.claims.clone(), Duration::ZERO);
    for (id, instance) in [("a1", "a"), ("a2", "a"), ("b1", "b"), ("a3", "a"), ("b2", "b")] {
        process.apply(queued(id, instance)).await;
    }
    process.apply(deferred("free").label("pool", "p")).await;
    assert_eq!(now().await.as_deref(), Some("a1"));
    assert_eq!(now().await.as_deref(), Some("b1"), "what is behind a full queue is not held up by it");
    assert_eq!(now().await.as_deref(), Some("free"), "a run without the label is not limited");
    assert_eq!(now().await, None);
    process.apply(complete("b1").epoch(1)).await;
    assert_eq!(now().await.as_deref(), Some("b2"));
    process.apply(complete("a1").epoch(1)).await;
    assert_eq!(now().await.as_deref(), Some("a2"));
    assert_eq!(now().await, None);
}

/// The row that counts a run is written in the commit of its claim: it exists exactly when the claim does, with or
/// without an answer.
#[tokio::test]
async fn a_limited_claim_of_unknown_outcome_counts_once() {
    let process = Process::start().await;
    let value = LabelValue { namespace: DEFAULT_NAMESPACE.into(), label: "instance".to_owned(), value: "a".to_owned() };
    let running = async || process.store.running(std::slice::from_ref(&value)).await.unwrap().concat();
    for run_id in ["one", "two", "three"] {
        process.apply(queued(run_id, "a")).await;
    }
    for (run_id, fate) in [("one", Fate::ConfirmationLost), ("two", Fate::Lost)] {
        process.store.fates.lock().unwrap().push_back(fate);
        let claimed = next_of_an_instance(process.claims.clone(), Duration::ZERO).await;
        assert_eq!(claimed.as_deref(), Some(run_id));
        assert_eq!(running().await, [run_id]);
        assert_eq!(next_of_an_instance(process.claims.clone(), Duration::ZERO).await, None, "it counts");
        process.apply(complete(run_id).epoch(1)).await;
        assert_eq!(running().await, [""; 0]);
    }
}

/// The end of the run that it waits for wakes a claimer, also where that run is in another queue by now, or was claimed
/// through another one; and nothing is asked meanwhile.
#[tokio::test(start_paused = true)]
async fn a_claimer_of_a_full_instance_is_woken_by_the_end_of_the_run_that_fills_it() {
    let process = Process::start().await;
    process.apply(deferred("elsewhere").label("instance", "a")).await;
    process.apply(claim("elsewhere").max_running("instance", 1)).await;
    process.apply(queued("a1", "a")).await;
    let mut waiting = JoinSet::new();
    waiting.spawn(next_of_an_instance(process.claims.clone(), SOON));
    let commits = || process.store.batches.lock().unwrap().len();
    let before = commits();
    // Refused, it knows what it waits for.
    while commits() == before {
        yield_now().await;
    }
    process.apply(update("elsewhere").label("instance", "b").epoch(1)).await;
    sleep(Duration::from_millis(300)).await;
    assert!(waiting.try_join_next().is_none(), "it waits");
    assert!(commits() <= before + 3, "nothing is asked while nothing ends");
    process.apply(complete("elsewhere").epoch(1)).await;
    let got = timeout(SOON / 2, waiting.join_next()).await.expect("it hangs").unwrap().unwrap();
    assert_eq!(got.as_deref(), Some("a1"));
}

/// Ends and claims of the same moment: every run gets its turn, first in, first out, and no claimer waits for a run
/// that has ended.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_long_queue_of_full_instances_is_worked_off_in_order_and_no_instance_runs_two() {
    const RUNS: usize = 300;
    let process = Process::start().await;
    for n in 0..RUNS {
        process.apply(queued(&format!("run-{n}"), &format!("i-{}", n % 5))).await;
    }
    let busy: Arc<Mutex<BTreeSet<usize>>> = Arc::default();
    let (sender, mut done) = mpsc::channel(RUNS);
    let mut workers = JoinSet::new();
    for _ in 0..20 {
        let (claims, engine, busy, sender) =
            (process.claims.clone(), process.engine.clone(), busy.clone(), sender.clone());
        workers.spawn(async move {
            // Woken, and not by the end of its wait.
            while let Some(run_id) = next_of_an_instance(claims.clone(), SOON * 4).await {
                let number: usize = run_id.trim_start_matches("run-").parse().unwrap();
                assert!(busy.lock().unwrap().insert(number % 5), "two of an instance run");
                sender.send(number).await.unwrap();
                yield_now().await;
                assert!(busy.lock().unwrap().remove(&(number % 5)));
                engine.submit(complete(&run_id).epoch(1), None).await.unwrap();
            }
        });
    }
    let mut last = [None; 5];
    for _ in 0..RUNS {
        let number = timeout(SOON, done.recv()).await.expect("it hangs").unwrap();
        let before = last[number % 5].replace(number);
        assert!(before < Some(number), "{before:?} came before {number}");
    }
    workers.shutdown().await;
}

/// A queue that keeps so many runs and reads so many at once, beside a ledger with [`QUEUED`] of them.
const SHORT: Limits = Limits { runs_max: 64, page_runs_max: 4, ..Limits::DEFAULT };
const QUEUED: u64 = 100;

/// However long the queue is: what is not kept of it is not read again and again.
#[tokio::test(start_paused = true)]
async fn a_claimer_beside_a_very_long_queue_of_a_full_instance_reads_it_once() {
    let process = Process::start_with(SHORT).await;
    process.apply(queued("first", "a")).await;
    assert_eq!(next_of_an_instance(process.claims.clone(), Duration::ZERO).await.as_deref(), Some("first"));
    for n in 0..QUEUED {
        process.apply(queued(&format!("run-{n:05}"), "a")).await;
    }
    let mut waiting = JoinSet::new();
    waiting.spawn(next_of_an_instance(process.claims.clone(), SOON * 4));
    waiting.spawn(next_of_an_instance(process.claims.clone(), SOON * 4));
    let lists = || process.store.lists.load(Ordering::Relaxed);
    let (before, pages) = (lists(), QUEUED / SHORT.page_runs_max as u64 + 1);
    // The queue reads, unless the feed is still behind and tells of all runs, and comes to rest: only then time passes.
    sleep(Duration::from_millis(300)).await;
    assert!(waiting.try_join_next().is_none(), "they wait");
    assert!(lists() - before <= 2 * pages, "{} pages", lists() - before);
    // A run that no claimer here may have wakes none; a run that may run at once is claimed at once, and a run that
    // waited when it may run.
    process.apply(queued("another", "a")).await;
    let rest = lists();
    process.apply(queued("free", "b")).await;
    let got = timeout(SOON, waiting.join_next()).await.expect("it hangs").unwrap().unwrap();
    assert_eq!(got.as_deref(), Some("free"));
    process.apply(complete("first").epoch(1)).await;
    let got = timeout(SOON, waiting.join_next()).await.expect("it hangs").unwrap().unwrap();
    assert_eq!(got.as_deref(), Some("run-00000"));
    assert!(lists() - rest <= 2 * pages, "{} pages", lists() - rest);
}

/// Of a queue that is longer than what is kept of it, each agent reads what only others may have once, and no more.
#[tokio::test(start_paused = true)]
async fn agents_beside_a_very_long_queue_of_another_owner_read_it_once_each() {
    let process = Process::start_with(SHORT).await;
    for n in 0..QUEUED {
        process.apply(deferred(&format!("run-{n:05}")).owner("away")).await;
    }
    let mut waiting = JoinSet::new();
    for agent in ["one", "other", "third"] {
        waiting.spawn(next(process.claims.clone(), Some(agent.to_owned()), SOON * 4));
    }
    let lists = || process.store.lists.load(Ordering::Relaxed);
    sleep(Duration::from_millis(300)).await;
    assert!(waiting.try_join_next().is_none(), "they wait");
    let pages = QUEUED / SHORT.page_runs_max as u64 + 1;
    assert!((1..=4 * pages).contains(&lists()), "{} pages", lists());
    process.apply(deferred("anybodys")).await;
    let got = timeout(SOON, waiting.join_next()).await.expect("it hangs").unwrap().unwrap();
    assert_eq!(got.unwrap().as_deref(), Some("anybodys"));
}

/// A filter without claimers makes room for a new one.
#[tokio::test]
async fn of_more_filters_than_there_may_be_queues_each_is_served() {
    let process = Process::start_with(Limits { queues_max: 8, ..Limits::DEFAULT }).await;
    let next = async |pool: usize| {
        let filter = Filter { labels: [("pool".to_owned(), pool.to_string())].into(), ..Filter::default() };
        let claim = Claim { filter, ..claim_of(None, Duration::ZERO) };
        process.claims.next(&claim, pending()).await.unwrap().map(received)
    };
    for pool in 0..12 {
        assert_eq!(next(pool).await, None);
    }
    for pool in [0, 11] {
        let run_id = format!("run-{pool}");
        process.apply(deferred(&run_id).label("pool", &pool.to_string())).await;
        assert_eq!(next(pool).await, Some(run_id));
    }
    let evicted = async {
        while process.feed.hub().watches_of_many_runs() > 8 {
            yield_now().await;
        }
    };
    timeout(SOON, evicted).await.expect("evicted queues follow the log no more");
}

//! Claims on a store in memory whose commits are held and lost: who gets what, and what is left for the next.

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;
use runledger::claims::{Claim, Claims, Failure};
use runledger::clock::SystemClock;
use runledger::domain::ids::DEFAULT_NAMESPACE;
use runledger::domain::{Command, Filter, Principal, Run};
use runledger::engine::{self, Engine};
use runledger::feed::Feed;
use runledger::service::WireFrames;
use runledger::store::open::{self, Location};
use runledger::store::{OpenOptions, Store as _};
use runledger::supervise::Supervisor;
use tokio::sync::{Notify, Semaphore};
use tokio::task::{JoinSet, yield_now};
use tokio::time::{Instant, timeout};

use crate::support::commands::{Asking as _, TTL_MS, complete, deferred, key, leased, start};
use crate::support::wrapped::{Fate, Wrapped};

const SOON: Duration = Duration::from_secs(30);

struct Process {
    store: Arc<Wrapped>,
    engine: Arc<Engine>,
    claims: Arc<Claims>,
    supervisor: Supervisor,
}

impl Process {
    async fn start() -> Self {
        let store = open::open(&Location::Memory, &OpenOptions::default(), Arc::new(SystemClock)).await.unwrap();
        let store = Arc::new(Wrapped::around(store));
        let (supervisor, committed) = (Supervisor::new(), Arc::new(Notify::new()));
        let engine = Arc::new(Engine::start(store.clone(), &supervisor, &committed));
        let frames = Arc::new(WireFrames { ledger: store.ledger() });
        let feed = Feed::start(store.clone(), &supervisor, committed, frames);
        let claims = Arc::new(Claims::new(store.clone(), engine.clone(), feed, &supervisor));
        Self { store, engine, claims, supervisor }
    }

    async fn apply(&self, command: Command) -> Arc<Run> {
        self.engine.submit(command, None).await.unwrap().run
    }

    async fn next(&self, agent: Option<&str>, wait: Duration) -> Result<Option<String>, Failure> {
        next(self.claims.clone(), agent.map(str::to_owned), wait).await
    }
}

async fn next(claims: Arc<Claims>, agent: Option<String>, wait: Duration) -> Result<Option<String>, Failure> {
    let claim = Claim {
        namespace: DEFAULT_NAMESPACE.to_owned(),
        filter: Filter::default(),
        lease_ttl_ms: TTL_MS,
        principal: agent.map_or_else(Principal::anonymous, Principal::claimed),
        wait_until: Instant::now() + wait,
        deadline: None,
    };
    Ok(claims.next(&claim).await?.map(|run| run.run_id.clone()))
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

/// A lease is there exactly when its run's commit was made, whatever was heard of that.
#[tokio::test]
async fn a_lease_begins_and_ends_with_a_commit_of_unknown_outcome() {
    let process = Process::start().await;
    let kept =
        async |run_id: &str| process.store.leases(&[key(run_id)]).await.unwrap().remove(0).map(|kept| kept.epoch);
    for (run_id, fate) in [("confirmed-late", Fate::ConfirmationLost), ("sent-again", Fate::Lost)] {
        process.store.fates.lock().unwrap().push_back(fate);
        assert_eq!(process.apply(leased(run_id)).await.revision, 1);
        assert_eq!(kept(run_id).await, Some(1));
    }
    process.apply(deferred("claimed")).await;
    process.store.fates.lock().unwrap().push_back(Fate::ConfirmationLost);
    assert_eq!(process.next(None, Duration::ZERO).await.unwrap().as_deref(), Some("claimed"));
    assert_eq!(kept("claimed").await, Some(1));
    for (run_id, fate) in [("claimed", Fate::ConfirmationLost), ("sent-again", Fate::Lost)] {
        process.store.fates.lock().unwrap().push_back(fate);
        assert_eq!(process.apply(complete(run_id).epoch(1)).await.revision, if run_id == "claimed" { 3 } else { 2 });
        assert_eq!(kept(run_id).await, None);
    }
}

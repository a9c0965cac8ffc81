//! The health service in this process, on a store that may not answer and a clock that the test moves.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use runledger::authority::{Authority, AuthoritySlot, Looks, Turns, WaitMax};
use runledger::claims::{self, Claims};
use runledger::engine::{self, Engine, Failure};
use runledger::grpc::health;
use runledger::memory::Memory;
use runledger::namespaces::Registry;
use runledger::reads::Reads;
use runledger::store::{Commits, OfLedger as _, Upkeep};
use runledger::upkeep::progress::ProgressBoard;
use runledger::upkeep::renewals::Renewals;
use runledger::wire::seal::Seals;
use tokio::sync::Notify;
use tokio::time::{Instant, sleep, timeout};
use tonic::Code;
use tonic_health::pb::HealthCheckRequest;
use tonic_health::pb::health_check_response::ServingStatus::{self, NotServing, Serving};
use tonic_health::pb::health_client::HealthClient;
use tonic_health::pb::health_server::{Health, HealthServer};

use super::checkpoints::Process;
use crate::support::commands::start;

fn of(service: &str) -> HealthCheckRequest {
    HealthCheckRequest { service: service.to_owned() }
}

async fn said<H: Health>(health: &HealthServer<H>, service: &str) -> ServingStatus {
    HealthClient::new(health.clone()).check(of(service)).await.unwrap().into_inner().status()
}

pub(super) fn backend(process: &Process) -> Authority {
    let store = process.store.clone();
    let (commits, upkeep): (Arc<dyn Commits>, Arc<dyn Upkeep>) = (store.clone(), store.clone());
    let engine = Arc::new(Engine::start(
        &commits,
        store.clone(),
        &process.supervisor,
        &Arc::new(Notify::new()),
        engine::Limits::default(),
    ));
    let renewals = Renewals::start(&upkeep, store.clone(), &process.supervisor);
    let reads = Reads::new(store.clone(), &process.supervisor);
    let claims = Claims::new(
        store.clone(),
        upkeep.clone(),
        engine.clone(),
        process.feed.clone(),
        &process.supervisor,
        claims::Limits::default(),
    );
    let progress = ProgressBoard::start(upkeep, &process.supervisor);
    let (feed, wait_max, turns) = (process.feed.clone(), Duration::MAX, Turns::default());
    let seals = Arc::new(Seals::new(store.ledger()));
    let namespaces = Registry::new(store.clone());
    Authority {
        process_memory: Arc::new(Memory::new(None)),
        store,
        reads,
        engine,
        renewals,
        progress,
        claims,
        feed,
        wait_max: WaitMax::new(wait_max),
        turns,
        looks: Looks::default(),
        seals,
        namespaces,
    }
}

/// A store that was opened and has not answered since.
#[tokio::test(start_paused = true)]
async fn how_durable_a_store_is_does_not_hang_on_whether_it_answers() {
    let process = Process::start().await;
    let (store, supervisor) = (&process.store, &process.supervisor);
    store.blind.store(true, Ordering::Relaxed);
    let slot = AuthoritySlot::default();
    let (health, monitor) = health::service(slot.clone(), supervisor.stop()).await;
    supervisor.spawn(monitor.run());
    let mut durability = HealthClient::new(health.clone()).watch(of("durability")).await.unwrap().into_inner();
    assert_eq!(durability.message().await.unwrap().unwrap().status(), NotServing, "nobody knows yet");
    slot.install(backend(&process));
    assert_eq!(durability.message().await.unwrap().unwrap().status(), Serving);
    assert_eq!(said(&health, "").await, NotServing);
    store.blind.store(false, Ordering::Relaxed);
    let mut whole = HealthClient::new(health.clone()).watch(of("")).await.unwrap().into_inner();
    while whole.message().await.unwrap().unwrap().status() != Serving {}
}

#[tokio::test(start_paused = true)]
async fn a_health_watch_tells_changes_only() {
    let process = Process::start().await;
    let (store, supervisor) = (&process.store, &process.supervisor);
    let slot = AuthoritySlot::default();
    let (health, monitor) = health::service(slot.clone(), supervisor.stop()).await;
    supervisor.spawn(monitor.run());
    let mut readiness = HealthClient::new(health).watch(of("readiness")).await.unwrap().into_inner();
    assert_eq!(readiness.message().await.unwrap().unwrap().status(), NotServing);
    slot.install(backend(&process));
    assert_eq!(readiness.message().await.unwrap().unwrap().status(), Serving);
    let more = timeout(Duration::from_secs(20), readiness.message()).await;
    assert!(more.is_err(), "nothing changed, and it says {more:?}");
    store.blind.store(true, Ordering::Relaxed);
    assert_eq!(readiness.message().await.unwrap().unwrap().status(), NotServing, "after 30 s without an answer");
    store.blind.store(false, Ordering::Relaxed);
    assert_eq!(readiness.message().await.unwrap().unwrap().status(), Serving);
    supervisor.stop().cancel();
    assert_eq!(readiness.message().await.unwrap().unwrap().status(), NotServing, "before it stops");
    assert_eq!(readiness.message().await.unwrap_err().code(), Code::Unavailable, "it keeps no connection open");
}

#[tokio::test(start_paused = true)]
async fn commits_that_fail_take_a_replica_out_after_30_seconds_and_a_write_of_its_own_brings_it_back() {
    let process = Process::start().await;
    let (store, supervisor) = (&process.store, &process.supervisor);
    let slot = AuthoritySlot::default();
    let (health, monitor) = health::service(slot.clone(), supervisor.stop()).await;
    supervisor.spawn(monitor.run());
    slot.install(backend(&process));
    let engine = &slot.get().unwrap().engine;
    let mut watches = Vec::new();
    for part in ["", "runledger.v1.RunService", "readiness"] {
        let mut watch = HealthClient::new(health.clone()).watch(of(part)).await.unwrap().into_inner();
        while watch.message().await.unwrap().unwrap().status() != Serving {}
        watches.push(watch);
    }
    sleep(Duration::from_mins(5)).await;
    engine.submit(start("run-1"), None).await.unwrap();
    assert_eq!(store.probes.load(Ordering::Relaxed), 0, "while commits succeed, nothing is tried");

    store.unwritable.store(true, Ordering::Relaxed);
    let failed = Instant::now();
    assert_eq!(engine.submit(start("run-2"), None).await, Err(Failure::StoreUnavailable));
    let mut after = Vec::new();
    for watch in &mut watches {
        assert_eq!(watch.message().await.unwrap().unwrap().status(), NotServing);
        after.push(failed.elapsed().as_secs());
    }
    assert!(after[1] <= 2 && (29..=31).contains(&after[2]), "after so many seconds: {after:?}");
    assert!(store.probes.load(Ordering::Relaxed) > 5, "tried again and again");

    store.unwritable.store(false, Ordering::Relaxed);
    let mended = Instant::now();
    for watch in &mut watches {
        assert_eq!(watch.message().await.unwrap().unwrap().status(), Serving, "no call was sent");
    }
    assert!(mended.elapsed() <= Duration::from_secs(2), "{:?}", mended.elapsed());
    let probes = store.probes.load(Ordering::Relaxed);
    sleep(Duration::from_mins(5)).await;
    assert_eq!(store.probes.load(Ordering::Relaxed), probes, "and no more after that");
}

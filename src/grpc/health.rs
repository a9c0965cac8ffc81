//! The health service, for probes and load balancers.
//!
//! - `liveness`: the process does its work; never looks at the store, so that an outage of the store restarts nobody.
//! - `readiness`: may be sent traffic. Not before the store is open, not while draining, not once the store has been
//!   unreachable, or commits have failed, for 30 seconds.
//! - `""` and `runledger.v1.RunService`: the store answers, and commits succeed. Both follow the store within two
//!   seconds; a commit that hangs shows after six.
//! - `durability`: not serving when an acknowledged call could be lost (in memory, or an unsafe Postgres).
//!
//! The commits that are made tell whether commits succeed. While they fail, callers may have been sent elsewhere, so
//! this replica then probes by itself, with a write that means nothing, until one succeeds. While commits do not fail,
//! the replica writes no probe.

mod readiness;

use std::collections::HashMap;
use std::pin::Pin;
use std::time::Duration;

use async_stream::stream;
use futures_util::{Stream, StreamExt as _};
use tokio::sync::watch;
use tokio::time::error::Elapsed;
use tokio::time::{Instant, MissedTickBehavior, interval, sleep, timeout};
use tokio_util::sync::CancellationToken;
use tonic::{Request, Response, Status};
use tonic_health::ServingStatus;
use tonic_health::pb::health_server::{Health as HealthService, HealthServer};
use tonic_health::pb::{HealthCheckRequest, HealthCheckResponse};
use tonic_health::server::{HealthReporter, HealthService as Inner};

pub use self::readiness::Readiness;
use super::handlers::until;
use crate::authority::{Authority, AuthoritySlot, over};
use crate::domain::Shard;
use crate::engine::CommitOutage;
use crate::store::StoreError;
use crate::telemetry::chain;
use crate::wire::problem;

/// Interval between two pings of the store.
const PING_INTERVAL: Duration = Duration::from_millis(500);

/// Time that the store may take to answer a ping.
const PING_WAIT_MAX: Duration = Duration::from_secs(1);

/// The pause before a write is tried, while commits fail.
const PROBE_INTERVAL: Duration = Duration::from_secs(1);

/// Time that such a write may take: as on a slow disk.
const PROBE_WAIT_MAX: Duration = Duration::from_secs(10);

/// Time that the store may be unreachable, or refuse writes, before this replica asks for no more traffic: a shorter
/// outage hits every replica alike, and taking all of them out would only add to it.
const UNREADY_AFTER: Duration = Duration::from_secs(30);

/// The parts that follow the store.
const STORE_PARTS: [&str; 2] = ["", "runledger.v1.RunService"];

/// The health service, with every part as it is before the store was looked at, and what keeps it true.
pub async fn service(slot: AuthoritySlot, stop: CancellationToken) -> (HealthServer<impl HealthService>, Monitor) {
    let reporter = HealthReporter::new();
    let told = CancellationToken::new();
    let watched = Watched { inner: Inner::from_health_reporter(reporter.clone()), told: told.clone() };
    let mut board = Board { reporter, said: HashMap::new() };
    board.says("liveness", true).await;
    for part in STORE_PARTS.into_iter().chain(["readiness", "durability"]) {
        board.says(part, false).await;
    }
    let (readiness, is_well) = (watch::Sender::new(Readiness::Opening), watch::Sender::new(false));
    (HealthServer::new(watched), Monitor { board, readiness, is_well, slot, told, stop })
}

/// The health service, whose watches end: with their call, their connection, and once the stop was told of.
struct Watched {
    inner: Inner,
    told: CancellationToken,
}

type Answers = Pin<Box<dyn Stream<Item = Result<HealthCheckResponse, Status>> + Send>>;

#[tonic::async_trait]
impl HealthService for Watched {
    type WatchStream = Answers;

    async fn check(&self, request: Request<HealthCheckRequest>) -> Result<Response<HealthCheckResponse>, Status> {
        self.inner.check(request).await
    }

    async fn watch(&self, request: Request<HealthCheckRequest>) -> Result<Response<Answers>, Status> {
        let until = until(request.extensions());
        let told = self.told.clone();
        let mut answers = self.inner.watch(request).await?.into_inner();
        let answers = stream! {
            loop {
                let answer = tokio::select! {
                    biased;
                    answer = answers.next() => answer,
                    () = told.cancelled() => None,
                };
                match answer {
                    Some(answer) => yield answer,
                    None => break,
                }
            }
            yield Err(problem::draining().into());
        };
        Ok(Response::new(Box::pin(over(until, answers))))
    }
}

/// Keeps the statuses of the health service true.
pub struct Monitor {
    board: Board,
    readiness: watch::Sender<Readiness>,
    is_well: watch::Sender<bool>,
    slot: AuthoritySlot,
    /// Cancelled once the watches were told of the stop.
    told: CancellationToken,
    stop: CancellationToken,
}

impl Monitor {
    /// The status of `readiness`, for others than callers of the health service.
    #[must_use]
    pub fn readiness(&self) -> watch::Receiver<Readiness> {
        self.readiness.subscribe()
    }

    /// Whether the store answers and commits succeed.
    #[must_use]
    pub fn is_well(&self) -> watch::Receiver<bool> {
        self.is_well.subscribe()
    }

    /// Follows the store until the stop.
    pub async fn run(self) {
        let Self { mut board, readiness, is_well, slot, told, stop } = self;
        let work = async {
            let backend = opened(&slot).await;
            // Durability is known of an open store, whether the store answers now or not.
            board.says("durability", backend.store.describe().not_durable.is_none()).await;
            tokio::join!(follow(&mut board, (&readiness, &is_well), backend), probe(backend));
        };
        tokio::select! {
            () = work => {}
            () = stop.cancelled() => {}
        }
        readiness.send_replace(Readiness::Draining);
        for part in STORE_PARTS.into_iter().chain(["readiness"]) {
            board.says(part, false).await;
        }
        told.cancel();
    }
}

async fn opened(slot: &AuthoritySlot) -> &Authority {
    let mut ticks = interval(PING_INTERVAL);
    loop {
        ticks.tick().await;
        if let Some(backend) = slot.get() {
            return backend;
        }
    }
}

/// Reports the store's health, for ever.
async fn follow(
    board: &mut Board,
    (readiness, is_well): (&watch::Sender<Readiness>, &watch::Sender<bool>),
    backend: &Authority,
) {
    let mut ticks = interval(PING_INTERVAL);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut known = SeenHealth::default();
    let mut last_well = Instant::now();
    loop {
        ticks.tick().await;
        let ping = timeout(PING_WAIT_MAX, backend.store.ping()).await;
        backend.engine.commit_health().store_answers(match &ping {
            Ok(Ok(())) => Ok(()),
            Ok(Err(error)) => Err(chain(error)),
            Err(_elapsed) => Err("the store does not answer in time".to_owned()),
        });
        let answers = known.ping(ping);
        let commits = known.commits(backend.engine.commit_health().outage());
        let well = answers && commits;
        is_well.send_replace(well);
        if well {
            last_well = Instant::now();
        }
        for part in STORE_PARTS {
            board.says(part, well).await;
        }
        let ready = match (last_well.elapsed() < UNREADY_AFTER, answers) {
            (true, _) => Readiness::Ready,
            (false, false) => Readiness::StoreAway,
            (false, true) => Readiness::CommitsFail,
        };
        readiness.send_replace(ready);
        board.says("readiness", ready.is_ready()).await;
    }
}

/// Writes a probe while commits fail, until one succeeds, for ever. The probes go to one shard after the other: a
/// replica that can write to one of them is of use.
async fn probe(backend: &Authority) {
    let health = backend.engine.commit_health();
    let shards = backend.store.ledger().shard_count;
    let mut turn = 0;
    loop {
        let outage = health.fails().await;
        sleep(PROBE_INTERVAL).await;
        if health.outage().is_none() {
            continue;
        }
        let shard = Shard(outage.shard.0.wrapping_add(turn) % shards);
        turn = (turn + 1) % shards;
        match timeout(PROBE_WAIT_MAX, backend.store.probe_write(shard)).await {
            Ok(Ok(())) => health.succeeded(),
            Ok(Err(error)) => tracing::debug!(error = chain(&error), "commits would fail still"),
            Err(_elapsed) => tracing::debug!("a probe took too long: commits would fail still"),
        }
    }
}

/// The store's health, as last seen. Changes are logged.
#[derive(Default)]
struct SeenHealth {
    /// Whether the store answered; none before the first ping.
    answers: Option<bool>,
    /// The time since which commits fail.
    failing: Option<Instant>,
}

impl SeenHealth {
    /// Whether the store answers.
    fn ping(&mut self, ping: Result<Result<(), StoreError>, Elapsed>) -> bool {
        let answers = matches!(ping, Ok(Ok(())));
        let before = self.answers.replace(answers);
        if before != Some(answers) {
            match (before, ping) {
                (_, Ok(Err(error))) => tracing::warn!(error = chain(&error), "the store does not answer"),
                (_, Err(_elapsed)) => tracing::warn!("the store does not answer in time"),
                (Some(_), Ok(Ok(()))) => tracing::info!("the store answers again"),
                (None, Ok(Ok(()))) => {}
            }
        }
        answers
    }

    /// Whether commits succeed.
    fn commits(&mut self, outage: Option<CommitOutage>) -> bool {
        match (self.failing, outage) {
            (None, Some(CommitOutage { since, shard, reason })) => {
                tracing::warn!(shard = shard.0, error = reason, "commits fail: not serving until one succeeds");
                self.failing = Some(since);
            }
            (Some(since), None) => {
                let seconds = since.elapsed().as_secs();
                tracing::info!(seconds, "commits succeed again");
                self.failing = None;
            }
            (None, None) | (Some(_), Some(_)) => {}
        }
        self.failing.is_none()
    }
}

/// The statuses that the health service gives. A watcher hears of changes only, so that a status is not set again to
/// the same value.
struct Board {
    reporter: HealthReporter,
    said: HashMap<&'static str, bool>,
}

impl Board {
    async fn says(&mut self, part: &'static str, serving: bool) {
        if self.said.get(part) != Some(&serving) {
            let status = if serving { ServingStatus::Serving } else { ServingStatus::NotServing };
            self.reporter.set_service_status(part, status).await;
            self.said.insert(part, serving);
        }
    }
}

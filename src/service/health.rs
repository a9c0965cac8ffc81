//! What probes and balancers ask for.
//!
//! - `liveness`: the process does its work; never looks at the store, so that an outage of the store restarts nobody.
//! - `readiness`: may be sent traffic. Not before the store is open, not while draining, not once the store has been
//!   unreachable for 30 seconds.
//! - `""` and `runledger.v1.RunService`: follow the store within two seconds.
//! - `durability`: not serving when an acknowledged call could be lost (in memory, or an unsafe Postgres).

use std::collections::HashMap;
use std::time::Duration;

use tokio::time::{Instant, MissedTickBehavior, interval, timeout};
use tokio_util::sync::CancellationToken;
use tonic::Code;
use tonic::transport::Endpoint;
use tonic_health::ServingStatus;
use tonic_health::pb::HealthCheckRequest;
use tonic_health::pb::health_check_response::ServingStatus as WireStatus;
use tonic_health::pb::health_client::HealthClient;
use tonic_health::pb::health_server::{Health as HealthService, HealthServer};
use tonic_health::server::HealthReporter;

use super::BackendSlot;
use crate::telemetry::chain;

/// How often the store is asked.
const PING_INTERVAL: Duration = Duration::from_millis(500);

/// How long the store may take to answer.
const PING_WAIT_MAX: Duration = Duration::from_secs(1);

/// How long the store may be unreachable before this replica asks for no more traffic: a shorter outage hits every
/// replica alike, and taking all of them out would only add to it.
const UNREADY_AFTER: Duration = Duration::from_secs(30);

/// The parts that follow the store.
const STORE_PARTS: [&str; 2] = ["", "runledger.v1.RunService"];

/// The health service, with every part as it is before the store was looked at, and what keeps it true.
pub async fn service(slot: BackendSlot, stop: CancellationToken) -> (HealthServer<impl HealthService>, Monitor) {
    let (reporter, server) = tonic_health::server::health_reporter();
    let mut board = Board { reporter, said: HashMap::new() };
    board.says("liveness", true).await;
    for part in STORE_PARTS.into_iter().chain(["readiness", "durability"]) {
        board.says(part, false).await;
    }
    (server, Monitor { board, slot, stop })
}

/// Keeps what the health service says true.
pub struct Monitor {
    board: Board,
    slot: BackendSlot,
    stop: CancellationToken,
}

impl Monitor {
    /// Follows the store until the stop.
    pub async fn run(self) {
        let Self { mut board, slot, stop } = self;
        tokio::select! {
            () = follow(&mut board, &slot) => {}
            () = stop.cancelled() => {}
        }
        for part in STORE_PARTS.into_iter().chain(["readiness"]) {
            board.says(part, false).await;
        }
    }
}

async fn follow(board: &mut Board, slot: &BackendSlot) {
    let mut ticks = interval(PING_INTERVAL);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let store = loop {
        ticks.tick().await;
        if let Some(backend) = slot.get() {
            break &backend.store;
        }
    };
    // Known of an open store, whether it answers now or not.
    board.says("durability", store.describe().not_durable.is_none()).await;
    let mut answered = Instant::now();
    let mut reachable = None;
    loop {
        let ping = timeout(PING_WAIT_MAX, store.ping()).await;
        let now_reachable = matches!(ping, Ok(Ok(())));
        if now_reachable {
            answered = Instant::now();
        }
        if reachable != Some(now_reachable) {
            match (reachable, ping) {
                (_, Ok(Err(error))) => tracing::warn!(error = chain(&error), "the store does not answer"),
                (_, Err(_elapsed)) => tracing::warn!("the store does not answer in time"),
                (Some(_), Ok(Ok(()))) => tracing::info!("the store answers again"),
                (None, Ok(Ok(()))) => {}
            }
            reachable = Some(now_reachable);
        }
        for part in STORE_PARTS {
            board.says(part, now_reachable).await;
        }
        board.says("readiness", answered.elapsed() < UNREADY_AFTER).await;
        ticks.tick().await;
    }
}

/// What the health service says. A watcher hears of changes only, so what is said already is not said again.
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

/// What a server says of one of its services.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Health {
    /// It serves.
    Serving,
    /// It does not.
    NotServing,
    /// It has no such service.
    Unknown,
}

/// Asks a server for one of its services.
///
/// # Errors
///
/// The server does not answer in time.
pub async fn ask(
    server: &str,
    service: &str,
    wait_max: Duration,
) -> Result<Health, Box<dyn std::error::Error + Send + Sync>> {
    let endpoint = Endpoint::from_shared(format!("http://{server}"))?.connect_timeout(wait_max);
    let asked = timeout(wait_max, async {
        let mut client = HealthClient::new(endpoint.connect().await?);
        Ok(client.check(HealthCheckRequest { service: service.to_owned() }).await)
    });
    let answer: Result<_, tonic::transport::Error> = asked.await.map_err(|_elapsed| "no answer in time")?;
    match answer? {
        Ok(answer) => Ok(match answer.into_inner().status() {
            WireStatus::Serving => Health::Serving,
            WireStatus::Unknown | WireStatus::NotServing | WireStatus::ServiceUnknown => Health::NotServing,
        }),
        Err(status) if status.code() == Code::NotFound => Ok(Health::Unknown),
        Err(status) => Err(status.into()),
    }
}

//! What probes and balancers ask for.
//!
//! - `liveness`: the process does its work; never looks at the store, so that an outage of the store restarts nobody.
//! - `readiness`: may be sent traffic. Not before the store is open, not while draining, not once the store has been
//!   unreachable for 30 seconds.
//! - `""` and `runledger.v1.RunService`: follow the store within two seconds.
//! - `durability`: not serving when an acknowledged call could be lost (in memory, or an unsafe Postgres).

use std::time::Duration;

use tokio::time::{Instant, MissedTickBehavior, interval, timeout};
use tokio_util::sync::CancellationToken;
use tonic::Code;
use tonic::transport::Endpoint;
use tonic_health::ServingStatus;
use tonic_health::pb::HealthCheckRequest;
use tonic_health::pb::health_check_response::ServingStatus as WireStatus;
use tonic_health::pb::health_client::HealthClient;
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

/// The services that follow the store.
const STORE_SERVICES: [&str; 2] = ["", "runledger.v1.RunService"];

/// Every service, as it is before the store was looked at.
pub async fn begin(reporter: &HealthReporter) {
    set(reporter, "liveness", true).await;
    for service in STORE_SERVICES.into_iter().chain(["readiness", "durability"]) {
        set(reporter, service, false).await;
    }
}

/// Keeps the services true until the stop.
pub async fn monitor(reporter: HealthReporter, slot: BackendSlot, stop: CancellationToken) {
    let follow = async {
        let mut ticks = interval(PING_INTERVAL);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut answered = Instant::now();
        let mut reachable = None;
        loop {
            ticks.tick().await;
            let Some(backend) = slot.get() else { continue };
            let ping = timeout(PING_WAIT_MAX, backend.store.ping()).await;
            let now_reachable = matches!(ping, Ok(Ok(())));
            if now_reachable {
                answered = Instant::now();
            }
            if reachable != Some(now_reachable) {
                match (reachable, ping) {
                    (_, Ok(Err(error))) => tracing::warn!(error = chain(&error), "the store does not answer"),
                    (_, Err(_elapsed)) => tracing::warn!("the store does not answer in time"),
                    (Some(_), Ok(Ok(()))) => tracing::info!("the store answers again"),
                    (None, Ok(Ok(()))) => {
                        set(&reporter, "durability", backend.store.describe().not_durable.is_none()).await;
                    }
                }
                for service in STORE_SERVICES {
                    set(&reporter, service, now_reachable).await;
                }
                reachable = Some(now_reachable);
            }
            set(&reporter, "readiness", answered.elapsed() < UNREADY_AFTER).await;
        }
    };
    tokio::select! {
        () = follow => {}
        () = stop.cancelled() => {
            for service in STORE_SERVICES.into_iter().chain(["readiness"]) {
                set(&reporter, service, false).await;
            }
        }
    }
}

async fn set(reporter: &HealthReporter, service: &str, serving: bool) {
    let status = if serving { ServingStatus::Serving } else { ServingStatus::NotServing };
    reporter.set_service_status(service, status).await;
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

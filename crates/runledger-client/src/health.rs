//! The health of a server, by gRPC's health service.

use tokio::time::{Instant, timeout_at};
use tonic::{Code, Request};
use tonic_health::pb::HealthCheckRequest;
use tonic_health::pb::health_check_response::ServingStatus;
use tonic_health::pb::health_client::HealthClient;

use crate::client::Client;
use crate::failure::Failure;

/// A server's health status of one of its services.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Health {
    /// The service is served.
    Serving,
    /// The service is not served now.
    NotServing,
    /// The server has no such service.
    Unknown,
}

impl Client {
    /// The health of one of the server's services: `liveness`, `readiness`, `durability`, or a service of its API.
    ///
    /// # Errors
    ///
    /// There is no answer.
    pub async fn health(&self, service: &str, deadline: Instant) -> Result<Health, Failure> {
        let (channel, beginnings) = self.connected(deadline).await?;
        let mut request = Request::new(HealthCheckRequest { service: service.to_owned() });
        self.caller().sign(request.metadata_mut());
        let mut health = HealthClient::new(channel);
        match timeout_at(deadline, health.check(request)).await {
            Ok(Ok(answer)) => Ok(match answer.into_inner().status() {
                ServingStatus::Serving => Health::Serving,
                ServingStatus::Unknown | ServingStatus::NotServing | ServingStatus::ServiceUnknown => {
                    Health::NotServing
                }
            }),
            Ok(Err(status)) if status.code() == Code::NotFound => Ok(Health::Unknown),
            Ok(Err(status)) => Err(self.explained(Failure::from(&status), &beginnings)),
            Err(_elapsed) => Err(Failure::late()),
        }
    }
}

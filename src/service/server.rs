//! The listener: the run service, health, and reflection on one port.

use std::time::Duration;

use futures_util::TryStreamExt as _;
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;
use tonic::transport::Server;
use tonic::transport::server::TcpIncoming;
use tonic_health::pb::health_server::{Health, HealthServer};

use super::BackendSlot;
use super::connection::Connection;
use super::layer::CallLayer;
use super::replica::Replica;
use super::runs::Runs;
use crate::proto::FILE_DESCRIPTOR_SET;
use crate::proto::served::replica_service_server::ReplicaServiceServer;
use crate::proto::served::run_service_server::RunServiceServer;

/// A connection that says nothing is asked this often whether it is still there.
const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(30);

/// A connection that does not answer is closed after this.
const KEEPALIVE_WAIT_MAX: Duration = Duration::from_secs(20);

/// Calls and watches on one connection at most; what is above waits for its turn at the client.
const STREAMS_MAX: u32 = 16_384;

/// Serves on a listener, with this health service, until the stop, then lets the calls in flight end.
///
/// # Errors
///
/// The transport's.
pub async fn serve(
    listener: TcpListener,
    slot: BackendSlot,
    health: HealthServer<impl Health>,
    stop: CancellationToken,
) -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
    let reflection = || {
        tonic_reflection::server::Builder::configure()
            .register_encoded_file_descriptor_set(FILE_DESCRIPTOR_SET)
            .register_encoded_file_descriptor_set(tonic_health::pb::FILE_DESCRIPTOR_SET)
            .register_encoded_file_descriptor_set(tonic_types::pb::FILE_DESCRIPTOR_SET)
    };
    let incoming = TcpIncoming::from(listener).with_nodelay(Some(true)).map_ok(Connection);
    Server::builder()
        .http2_keepalive_interval(Some(KEEPALIVE_INTERVAL))
        .http2_keepalive_timeout(Some(KEEPALIVE_WAIT_MAX))
        .max_concurrent_streams(Some(STREAMS_MAX))
        .layer(CallLayer)
        .add_service(ReplicaServiceServer::new(Replica::new(slot.clone())))
        .add_service(RunServiceServer::new(Runs::new(slot)))
        .add_service(health)
        .add_service(reflection().build_v1()?)
        .add_service(reflection().build_v1alpha()?)
        .serve_with_incoming_shutdown(incoming, stop.cancelled_owned())
        .await?;
    Ok(())
}

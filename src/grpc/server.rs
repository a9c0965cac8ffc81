//! The port: the services of runs, namespaces, lifecycles, identities and the replica, health, and reflection.

use std::sync::Arc;

use tokio_util::sync::CancellationToken;
use tonic_health::pb::health_server::{Health, HealthServer};

use super::handlers::Handlers;
use super::identity::Identities;
use super::replica::Replica;
use super::routes::Routes;
use super::transport::Totals;
use super::transport::listener::{Limits, Port, listen};
use crate::auth::Gate;
use crate::authority::AuthoritySlot;
use crate::tasks::Supervisor;
use crate::wire::served::identity_service_server::IdentityServiceServer;
use crate::wire::served::lifecycle_service_server::LifecycleServiceServer;
use crate::wire::served::namespace_service_server::NamespaceServiceServer;
use crate::wire::served::replica_service_server::ReplicaServiceServer;
use crate::wire::served::run_service_server::RunServiceServer;
use runledger_proto::FILE_DESCRIPTOR_SET;

/// Bytes of one question to reflection: a name.
const QUESTION_BYTES_MAX: usize = 1024;

/// What a port serves, to whom, and in which bounds.
pub struct Served<H> {
    /// The authority, once there is one.
    pub slot: AuthoritySlot,
    /// The health service.
    pub health: HealthServer<H>,
    /// The gate that every call passes.
    pub gate: Arc<Gate>,
    /// The bounds of connections.
    pub limits: Limits,
    /// What all connections together take, in the bounds of callers.
    pub totals: Arc<Totals>,
}

/// Serves on a port until the stop. Each connection is a task of `connections`; after
/// the stop, these tasks let the calls in flight end.
///
/// # Errors
///
/// The bytes for reflection are no descriptor set.
pub fn serve(
    port: Port,
    Served { slot, health, gate, limits, totals }: Served<impl Health>,
    connections: Supervisor,
    stop: CancellationToken,
) -> Result<impl Future<Output = ()> + Send, Box<dyn std::error::Error + Send + Sync>> {
    let reflection = || {
        tonic_reflection::server::Builder::configure()
            .register_encoded_file_descriptor_set(FILE_DESCRIPTOR_SET)
            .register_encoded_file_descriptor_set(tonic_health::pb::FILE_DESCRIPTOR_SET)
            .register_encoded_file_descriptor_set(tonic_types::pb::FILE_DESCRIPTOR_SET)
    };
    let others = tonic::service::Routes::new(ReplicaServiceServer::new(Replica::new(slot.clone(), totals.clone())))
        .add_service(NamespaceServiceServer::new(Handlers::new(slot.clone())))
        .add_service(LifecycleServiceServer::new(Handlers::new(slot.clone())))
        .add_service(IdentityServiceServer::new(Identities))
        .add_service(health)
        .add_service(reflection().build_v1()?.max_decoding_message_size(QUESTION_BYTES_MAX))
        .add_service(reflection().build_v1alpha()?.max_decoding_message_size(QUESTION_BYTES_MAX));
    let routes = Routes { runs: RunServiceServer::new(Handlers::new(slot)), others: others.prepare() };
    Ok(listen(port, routes, gate, limits, totals, connections, stop))
}

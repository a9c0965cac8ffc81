//! What a call asks of the allocator on its way through the layers of the transport, counted by the allocator itself. A
//! binary of its own: one thread does all the work, the client's included, so that the numbers are the same every time.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on panics")]

use std::sync::Arc;
use std::time::Duration;

use runledger::auth::Gate;
use runledger::authority::AuthoritySlot;
use runledger::grpc::server::{Served, serve};
use runledger::grpc::transport::listener::{Limits, Port};
use runledger::grpc::transport::{CallerLimits, Lifetime, Totals};
use runledger::memory::Memory;
use runledger::tasks::Supervisor;
use runledger_proto::v1::identity_service_client::IdentityServiceClient;
use runledger_proto::v1::run_service_client::RunServiceClient;
use runledger_proto::v1::{GetRunRequest, WhoAmIRequest};
use tikv_jemalloc_ctl::thread::allocatedp;
use tikv_jemallocator::Jemalloc;
use tokio::net::TcpListener;
use tonic::Code;
use tonic::transport::{Channel, Endpoint};

#[global_allocator]
static ALLOCATOR: Jemalloc = Jemalloc;

/// Calls whose mean is taken.
const CALLS: u64 = 2_000;

/// Bytes of a call that is answered, and of one that its service refuses: its turn, which the other needs none of, and the
/// details of an error come with it. Whoever changes the way of a call says here what it costs.
const ANSWERED_BYTES: u64 = 42_000;
const REFUSED_BYTES: u64 = 39_500;

#[tokio::test]
async fn a_call_asks_the_allocator_for_no_more_than_is_known() {
    let (supervisor, channel) = server().await;
    let asked = |channel: &Channel| {
        let mut client = IdentityServiceClient::new(channel.clone());
        async move { client.who_am_i(WhoAmIRequest::default()).await.map(drop).unwrap() }
    };
    let refused = |channel: &Channel| {
        let mut client = RunServiceClient::new(channel.clone());
        async move {
            let request = GetRunRequest { run_id: "r".into(), ..GetRunRequest::default() };
            assert_eq!(client.get_run(request).await.unwrap_err().code(), Code::Unavailable);
        }
    };
    let (answered, refused) = (mean(|| asked(&channel)).await, mean(|| refused(&channel)).await);
    assert!(answered <= ANSWERED_BYTES && refused <= REFUSED_BYTES, "answered: {answered}, refused: {refused}");
    supervisor.stop().cancel();
}

/// Bytes that a call asks for.
async fn mean<F: Future<Output = ()>>(call: impl Fn() -> F) -> u64 {
    // The first calls fill what is kept for the next ones.
    for _ in 0..CALLS / 10 {
        call().await;
    }
    let allocated = allocatedp::read().unwrap();
    let before = allocated.get();
    for _ in 0..CALLS {
        call().await;
    }
    (allocated.get() - before) / CALLS
}

/// A server whose store does not open, and a connection to it.
async fn server() -> (Supervisor, Channel) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let hour = Duration::from_hours(1);
    let served = Served {
        slot: AuthoritySlot::default(),
        health: tonic_health::server::health_reporter().1,
        gate: Arc::new(Gate::open()),
        limits: Limits { connections_max: 8, lifetime: Lifetime { idle_max: hour, age_max: hour } },
        totals: Arc::new(Totals::new(CallerLimits::default(), Arc::new(Memory::new(None)))),
    };
    let supervisor = Supervisor::new();
    let serving = serve(Port { listener, tls: None }, served, supervisor.clone(), supervisor.stop()).unwrap();
    supervisor.spawn(serving);
    let channel = Endpoint::from_shared(format!("http://{address}")).unwrap().connect().await.unwrap();
    (supervisor, channel)
}

//! The services on the port for a stranger: reflection and health.

use futures_util::stream;
use runledger_client::{Client, Health};
use runledger_proto::v1::GetRunRequest;
use tokio::time::Instant;
use tonic_health::pb::health_check_response::ServingStatus;
use tonic_reflection::pb::{v1, v1alpha};

use super::place::Place;
use crate::support::server::{PATIENCE, Server};

const SERVICES: [&str; 2] = ["grpc.health.v1.Health", "runledger.v1.RunService"];

macro_rules! describes_the_service {
    ($version:ident, $place:expr) => {{
        use $version::server_reflection_client::ServerReflectionClient;
        use $version::server_reflection_request::MessageRequest;
        use $version::server_reflection_response::MessageResponse;
        let mut client = ServerReflectionClient::new($place.channel().await);
        let symbols = ["runledger.v1.RunService", "runledger.v1.LifecycleTransitionError", "google.rpc.ErrorInfo"];
        let asked = symbols.map(|symbol| MessageRequest::FileContainingSymbol(symbol.into()));
        let asked = [MessageRequest::ListServices(String::new())].into_iter().chain(asked);
        let asked =
            asked.map(|ask| $version::ServerReflectionRequest { host: String::new(), message_request: Some(ask) });
        let mut answers = client.server_reflection_info(stream::iter(asked)).await.unwrap().into_inner();
        match answers.message().await.unwrap().unwrap().message_response.unwrap() {
            MessageResponse::ListServicesResponse(listed) => {
                let names: Vec<_> = listed.service.into_iter().map(|service| service.name).collect();
                assert!(SERVICES.iter().all(|name| names.iter().any(|found| found == name)), "{names:?}");
            }
            other => panic!("{other:?}"),
        }
        for symbol in symbols {
            match answers.message().await.unwrap().unwrap().message_response.unwrap() {
                MessageResponse::FileDescriptorResponse(files) => assert!(!files.file_descriptor_proto.is_empty()),
                other => panic!("{symbol}: {other:?}"),
            }
        }
    }};
}

pub(crate) async fn reflection_describes_the_service_in_both_versions(place: Place) {
    describes_the_service!(v1, place);
    describes_the_service!(v1alpha, place);
}

pub(crate) async fn every_health_service_answers(place: Place) {
    let client = Client::new(place.address(), None).unwrap();
    let soon = || Instant::now() + PATIENCE;
    for service in ["liveness", "readiness", "", "runledger.v1.RunService"] {
        assert_eq!(client.health(service, soon()).await.unwrap(), Health::Serving, "{service:?}");
    }
    assert_eq!(client.health("no such service", soon()).await.unwrap(), Health::Unknown);
}

#[tokio::test]
async fn a_server_in_memory_serves_and_says_that_it_is_not_durable() {
    let server = Server::start("memory").await;
    assert_eq!(server.health("durability").await, Some(ServingStatus::NotServing));
    for service in ["liveness", "", "runledger.v1.RunService"] {
        server.until(service, ServingStatus::Serving).await;
    }
    let read =
        server.client().await.get_run(GetRunRequest { run_id: "unknown".into(), ..GetRunRequest::default() }).await;
    assert_eq!(read.unwrap_err().code(), tonic::Code::NotFound, "it serves");
    assert!(server.banner().contains("NOT DURABLE"), "{}", server.banner());
    assert!(server.stop().await.success());
}

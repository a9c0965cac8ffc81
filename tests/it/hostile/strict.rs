//! A request must be as HTTP and gRPC demand, and the refusal names the fault.

use std::net::SocketAddr;

use bytes::Bytes;
use http::{Method, Request, Response};
use prost::Message as _;
use runledger_proto::v1::{CheckTransitionRequest, RunStatus};
use tokio::net::TcpStream;
use tokio::task::JoinSet;
use tonic::{Code, Status};
use tonic_types::StatusExt as _;

use crate::process::calls::reason;
use crate::process::server::Server;
use crate::support::http2::body;

const CHECK: &str = "/runledger.v1.RunService/CheckTransition";

/// A question that is answered without a run.
fn question() -> Bytes {
    let asked = CheckTransitionRequest {
        from: Some(RunStatus::Running.into()),
        to: RunStatus::Completed.into(),
        ..CheckTransitionRequest::default()
    };
    body(&asked.encode_to_vec()).into()
}

/// Sends a request as it is. Gives the answer's head, and the status of gRPC if there is one.
async fn sent(address: SocketAddr, request: Request<()>, body: Bytes) -> (Response<()>, Option<Status>) {
    let (mut client, connection) = h2::client::handshake(TcpStream::connect(address).await.unwrap()).await.unwrap();
    let mut driven = JoinSet::new();
    driven.spawn(connection);
    let (answer, mut sender) = client.send_request(request, false).unwrap();
    sender.send_data(body, true).unwrap();
    let (head, mut received) = answer.await.unwrap().into_parts();
    let mut trailers = head.headers.clone();
    while let Some(data) = received.data().await {
        let _counted = received.flow_control().release_capacity(data.unwrap().len());
    }
    trailers.extend(received.trailers().await.unwrap().unwrap_or_default());
    let status = Status::from_header_map(&trailers);
    (Response::from_parts(head, ()), status)
}

fn request(headers: &[(&str, &str)]) -> Request<()> {
    let mut request = Request::builder().method(Method::POST).uri(format!("http://localhost{CHECK}"));
    for (name, value) in [("te", "trailers")].iter().chain(headers) {
        request = request.header(*name, *value);
    }
    request.body(()).unwrap()
}

async fn server() -> Server {
    let server = Server::start("memory").await;
    server.is_ready().await;
    server
}

#[tokio::test]
async fn only_grpc_is_spoken_and_http_says_so() {
    let server = server().await;
    for (kind, wanted) in [
        (Some("application/grpc"), 200),
        (Some("application/grpc+proto"), 200),
        (Some("application/grpc; charset=utf-8"), 200),
        (Some("application/json"), 415),
        (Some("application/grpc+json"), 415),
        (Some("application/grpc-web"), 415),
        (None, 415),
    ] {
        let headers: Vec<(&str, &str)> = kind.into_iter().map(|kind| ("content-type", kind)).collect();
        let (head, status) = sent(server.address, request(&headers), question()).await;
        assert_eq!(head.status(), wanted, "{kind:?}");
        assert_eq!(status.map(|status| status.code()), (wanted == 200).then_some(Code::Ok), "{kind:?}");
    }
    let mut put = request(&[("content-type", "application/grpc")]);
    *put.method_mut() = Method::PUT;
    let refused = sent(server.address, put, question()).await.0;
    assert_eq!((refused.status().as_u16(), refused.headers()["allow"].as_bytes()), (405, &b"POST"[..]));
}

/// The field that a refusal names.
fn refused(status: &Status) -> String {
    assert_eq!((status.code(), reason(status).as_str()), (Code::InvalidArgument, "INVALID_FIELD"), "{status:?}");
    status.get_details_bad_request().unwrap().field_violations[0].field.clone()
}

#[tokio::test]
async fn a_timeout_that_grpc_does_not_know_is_refused_by_name() {
    let server = server().await;
    for (timeout, is_sound) in [("5S", true), ("99999999H", true), ("5", false), ("-1S", false), ("123456789m", false)]
    {
        let asked = request(&[("content-type", "application/grpc"), ("grpc-timeout", timeout)]);
        let status = sent(server.address, asked, question()).await.1.unwrap();
        if is_sound {
            assert_eq!(status.code(), Code::Ok, "{timeout}: {status:?}");
        } else {
            assert_eq!(refused(&status), "grpc-timeout", "{timeout}");
        }
    }
    let twice = request(&[("content-type", "application/grpc"), ("grpc-timeout", "5S"), ("grpc-timeout", "6S")]);
    assert_eq!(refused(&sent(server.address, twice, question()).await.1.unwrap()), "grpc-timeout");
}

#[tokio::test]
async fn a_request_that_is_not_one_message_is_refused_and_the_reason_named() {
    let server = server().await;
    let long = u32::try_from((1 << 20) + 1).unwrap().to_be_bytes();
    for (body, reason) in [
        ([question(), question()].concat(), "follows the message"),
        ([&question()[..], &[0]].concat(), "follows the message"),
        (question()[..question().len() - 1].to_vec(), "ends after"),
        (vec![0, 0, 0], "no message"),
        (vec![], "no message"),
        ([&[0], &long[..]].concat(), "the limit is 1048576"),
        (body(&[0x72, 0].repeat(2_000)), "more than 1024 fields"),
    ] {
        let asked = request(&[("content-type", "application/grpc")]);
        let status = sent(server.address, asked, body.into()).await.1.unwrap();
        assert_eq!(refused(&status), "request");
        assert!(status.message().contains(reason), "{reason}: {status:?}");
    }
}

use std::convert::Infallible;
use std::future::ready;
use std::num::NonZeroU32;
use std::pin::Pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http::{Method, Response, StatusCode};
use http_body::Frame;
use hyper::body::Incoming;
use tokio::time::Instant;
use tonic::body::Body;
use tower::{Service, ServiceExt as _, service_fn};

use super::*;
use crate::grpc::transport::begun::Begun;
use crate::grpc::transport::{CallerLimits, Totals};
use crate::memory::Memory;

const GET_RUN: &str = "/runledger.v1.RunService/GetRun";

/// A request's body that takes the room of one that comes over a connection.
#[derive(Debug)]
struct Sent {
    body: Option<Bytes>,
    _room: [u8; size_of::<Incoming>() - size_of::<Option<Bytes>>()],
}

impl http_body::Body for Sent {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        Poll::Ready(self.body.take().map(|body| Ok(Frame::data(body))))
    }
}

/// A call of an empty message.
fn call(path: &str) -> Request<Sent> {
    let body = Sent { body: Some(Bytes::from_static(&[0; 5])), _room: [0; _] };
    Request::post(path).header("content-type", "application/grpc").body(body).unwrap()
}

/// One connection, and the number of calls that came to the services behind its layers.
struct Connection {
    peer: Arc<Peer>,
    served: Arc<AtomicUsize>,
}

impl Connection {
    fn of(limits: CallerLimits) -> Self {
        let totals = Arc::new(Totals::new(limits, Arc::new(Memory::new(None))));
        let peer = Peer::new(([127, 0, 0, 1], 1).into(), None, Instant::now() + Duration::from_hours(1), totals);
        Self { peer, served: Arc::default() }
    }

    fn layers(&self) -> impl Answering<Request<Sent>, Sent> {
        let served = self.served.clone();
        let services = service_fn(move |_: Request<Message<Sent>>| {
            served.fetch_add(1, Ordering::Relaxed);
            ready(Ok(Response::new(Body::empty())))
        });
        around(services, Arc::new(Gate::open()), &self.peer, StreamTasks::default())
    }

    /// The status of the answer to a call by HTTP, and by gRPC where it is in the headers.
    async fn answer(&self, call: Request<Sent>) -> (StatusCode, Option<String>) {
        let Ok(answer) = self.layers().oneshot(call).await;
        let status = answer.headers().get("grpc-status").map(|status| status.to_str().unwrap().to_owned());
        (answer.status(), status)
    }

    fn served(&self) -> usize {
        self.served.load(Ordering::Relaxed)
    }
}

fn refused(code: &str) -> (StatusCode, Option<String>) {
    (StatusCode::OK, Some(code.to_owned()))
}

#[tokio::test]
async fn a_call_that_keeps_every_rule_is_served() {
    let connection = Connection::of(CallerLimits::default());
    assert_eq!(connection.answer(call(GET_RUN)).await, (StatusCode::OK, None));
    assert_eq!(connection.served(), 1);
    assert_eq!(connection.peer.idle_after(), Some(1), "it is open no more");
}

#[tokio::test]
async fn a_call_that_a_layer_refuses_comes_to_no_service() {
    let connection = Connection::of(CallerLimits::default());
    let mut got = call(GET_RUN);
    *got.method_mut() = Method::GET;
    assert_eq!(connection.answer(got).await, (StatusCode::METHOD_NOT_ALLOWED, None));
    let mut json = call(GET_RUN);
    json.headers_mut().insert("content-type", "application/json".parse().unwrap());
    assert_eq!(connection.answer(json).await, (StatusCode::UNSUPPORTED_MEDIA_TYPE, None));
    let mut late = call(GET_RUN);
    late.headers_mut().insert("grpc-timeout", "soon".parse().unwrap());
    assert_eq!(connection.answer(late).await, refused("3"));
    let mut nobody = call(GET_RUN);
    nobody.headers_mut().insert("runledger-namespace", "?".parse().unwrap());
    assert_eq!(connection.answer(nobody).await, refused("3"));
    let mut broken = call(GET_RUN);
    broken.body_mut().body = Some(Bytes::from_static(&[0, 0, 0, 0, 9, 1]));
    assert_eq!(connection.answer(broken).await, refused("3"));
    assert_eq!(connection.served(), 0);
    assert_eq!(connection.peer.idle_after(), Some(5), "each was counted, and is open no more");
}

#[tokio::test]
async fn a_caller_of_too_many_calls_is_refused_behind_the_gate() {
    let one = NonZeroU32::new(1);
    let connection = Connection::of(CallerLimits { open_calls: one, ..CallerLimits::default() });
    let waits = connection.layers().call(call(GET_RUN));
    assert_eq!(connection.answer(call(GET_RUN)).await, refused("8"));
    drop(waits);
    assert_eq!(connection.answer(call(GET_RUN)).await, (StatusCode::OK, None));
}

#[tokio::test]
async fn whoever_breaks_a_rule_learns_of_that_where_there_is_no_room_either() {
    let connection = Connection::of(CallerLimits::default());
    connection.peer.withdraw();
    let mut got = call(GET_RUN);
    *got.method_mut() = Method::GET;
    assert_eq!(connection.answer(got).await.0, StatusCode::METHOD_NOT_ALLOWED);
    assert_eq!(connection.answer(call(GET_RUN)).await, refused("14"));
    assert_eq!(connection.served(), 0);
}

#[tokio::test]
async fn a_call_in_execution_takes_the_memory_of_one_box() {
    let connection = Connection::of(CallerLimits::default());
    let Begun::Executed(executed) = connection.layers().call(call(GET_RUN)) else { panic!("it is not begun") };
    let bytes = size_of_val(&*executed);
    assert!(bytes <= 2_048, "{bytes}");
}

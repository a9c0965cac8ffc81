//! A call that crosses the orderly end of its connection is made again, where that is safe.

use runledger_client::{Client, Kind};
use runledger_proto::v1::{ClaimNextRunRequest, GetRunRequest, StartRunRequest};
use serde_json::json;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, copy_bidirectional};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;
use tokio::time::Instant;

use super::pending;
use crate::support::gate::Gate;
use crate::support::http2::{GOAWAY, HEADERS, MAGIC, frame, settings};
use crate::support::server::{PATIENCE, Server};

fn soon() -> Instant {
    Instant::now() + PATIENCE
}

/// A server whose first connection ends as a call comes, with a GOAWAY that says that the call was not begun. The later
/// connections are those of the real server. Gives its address and, at its end, the connections that came.
async fn departing(server: &str) -> (String, JoinSet<()>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let server = server.to_owned();
    let mut serving = JoinSet::new();
    serving.spawn(async move {
        let (mut first, _) = listener.accept().await.unwrap();
        first.write_all(&settings(&[])).await.unwrap();
        let mut read = Vec::new();
        while !has_headers(&read) {
            assert_ne!(first.read_buf(&mut read).await.unwrap(), 0, "a call comes");
        }
        // The last stream that was begun: none.
        first.write_all(&frame(GOAWAY, 0, 0, &[0; 8])).await.unwrap();
        let mut later = JoinSet::new();
        loop {
            let (mut one, _) = listener.accept().await.unwrap();
            let mut other = TcpStream::connect(&server).await.unwrap();
            later.spawn(async move {
                let _ended = copy_bidirectional(&mut one, &mut other).await;
            });
        }
    });
    (address, serving)
}

/// Whether the bytes of a client hold the headers of a call.
fn has_headers(read: &[u8]) -> bool {
    let mut rest = read.get(MAGIC.len()..).unwrap_or_default();
    while let [l0, l1, l2, kind, ..] = rest {
        if *kind == HEADERS {
            return true;
        }
        let length = usize::try_from(u32::from_be_bytes([0, *l0, *l1, *l2])).unwrap();
        rest = rest.get(9 + length..).unwrap_or_default();
    }
    false
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_call_that_was_not_begun_is_made_again_where_it_is_safe() {
    let server = Server::start("memory").await;
    pending(&server, "run-1", json!({})).await;

    let (address, _serving) = departing(server.address()).await;
    let get = GetRunRequest { run_id: "run-1".to_owned(), ..GetRunRequest::default() };
    Client::new(&address, None).unwrap().ask(&get, soon()).await.unwrap();

    let (address, _serving) = departing(server.address()).await;
    let start = StartRunRequest {
        task_thread_id: "thread-1".to_owned(),
        run_id: "run-2".to_owned(),
        request_id: "once".to_owned(),
        ..StartRunRequest::default()
    };
    let started = Client::new(&address, None).unwrap().ask(&start, soon()).await.unwrap();
    assert_eq!(started.current_revision, 1);

    let (address, _serving) = departing(server.address()).await;
    let mut client = Client::new(&address, None).unwrap();
    let lease_ttl = Some(prost_types::Duration { seconds: 60, nanos: 0 });
    let claim = ClaimNextRunRequest { lease_ttl, ..ClaimNextRunRequest::default() };
    let failure = client.ask(&claim, soon()).await.unwrap_err();
    assert_eq!((failure.kind, failure.to_string().as_str()), (Kind::Cut, "the connection ended as the call was sent"));
    let claim = ClaimNextRunRequest { request_id: "claim-1".to_owned(), ..claim };
    assert!(client.ask(&claim, soon()).await.unwrap().run.is_some());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_call_fails_while_connections_reach_their_age() {
    let server = Server::start("memory").await;
    pending(&server, "run-1", json!({})).await;
    let gate = Gate::before(server.address(), None).await;
    let mut callers = JoinSet::new();
    for caller in 0..10 {
        let mut client = Client::new(&gate.address.to_string(), None).unwrap();
        callers.spawn(async move {
            for call in 0..100 {
                let start = StartRunRequest {
                    task_thread_id: "thread-1".to_owned(),
                    run_id: format!("run-{caller}-{call}"),
                    request_id: format!("start-{caller}-{call}"),
                    ..StartRunRequest::default()
                };
                let answer = client.ask(&start, soon()).await.unwrap_or_else(|failure| panic!("{failure:?}"));
                assert_eq!(answer.current_revision, 1);
            }
        });
    }
    let mut ticks = tokio::time::interval(std::time::Duration::from_millis(5));
    loop {
        tokio::select! {
            called = callers.join_next() => match called {
                Some(called) => called.unwrap(),
                None => break,
            },
            _ = ticks.tick() => gate.ends_connections(),
        }
    }
}

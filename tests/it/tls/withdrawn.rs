//! The trust in a client ends while it is connected: its CA is taken out, its certificate is revoked or comes to its
//! end.

use std::time::Duration;

use prost_types::Duration as WireDuration;
use runledger_proto::v1::{
    ClaimNextRunRequest, ClaimNextRunResponse, RunFilter, WaitRunRequest, WatchRunRequest, WatchRunsRequest,
    watch_runs_response,
};
use tokio::task::JoinSet;
use tokio::time::{Instant, timeout};
use tonic::{Code, Status};
use tonic_types::StatusExt as _;

use super::Served;
use crate::process::calls::{Step, ask, reason};
use crate::process::server::{Client, SOON};
use crate::support::tls::{Ca, Pair, replace, seconds_after_now};

/// The time within which a connection ends: a look at the files, and a moment.
const END_WAIT_MAX: Duration = Duration::from_secs(3);

const URI: &[&str] = &["spiffe://example.org/bridge"];

/// Watches of a client, a wait and a claim that waits, on one connection.
struct Watching {
    client: Client,
    claims: JoinSet<Result<tonic::Response<ClaimNextRunResponse>, Status>>,
    one: tonic::Streaming<runledger_proto::v1::WatchRunResponse>,
    many: tonic::Streaming<runledger_proto::v1::WatchRunsResponse>,
    cursor: String,
}

impl Watching {
    async fn begin(served: &Served, pair: &Pair) -> Self {
        let mut client = served.client(Some(pair));
        let asked = WatchRunRequest { run_id: "watched".to_owned(), ..WatchRunRequest::default() };
        let mut one = client.watch_run(asked).await.unwrap().into_inner();
        assert!(one.message().await.unwrap().is_some());
        let mut many = client.watch_runs(WatchRunsRequest::default()).await.unwrap().into_inner();
        let cursor = loop {
            if let Some(watch_runs_response::Frame::CaughtUp(it)) = many.message().await.unwrap().unwrap().frame {
                break it.cursor;
            }
        };
        let mut claimer = client.clone();
        let work = RunFilter { workflow_id: "work".to_owned(), ..RunFilter::default() };
        let ask = ClaimNextRunRequest {
            filter: Some(work),
            lease_ttl: Some(WireDuration { seconds: 30, nanos: 0 }),
            wait: Some(WireDuration { seconds: 30, nanos: 0 }),
            ..ClaimNextRunRequest::default()
        };
        let mut claims = JoinSet::new();
        claims.spawn(async move { claimer.claim_next_run(ask).await });
        Self { client, claims, one, many, cursor }
    }

    /// The streams and a wait end, and say that they may be resumed elsewhere; a call is not begun. Gives the cursor.
    async fn ends(mut self) -> String {
        let wait = WaitRunRequest { run_id: "watched".to_owned(), ..WaitRunRequest::default() };
        let mut waiting = self.client.clone();
        let waits = async { waiting.wait_run(wait).await };
        let one = async {
            loop {
                match self.one.message().await {
                    Ok(Some(_)) => {}
                    Ok(None) => panic!("it ended as if the run had"),
                    Err(status) => break status,
                }
            }
        };
        let many = async {
            loop {
                if let Err(status) = self.many.message().await {
                    break status;
                }
            }
        };
        let ended = timeout(END_WAIT_MAX, async { tokio::join!(waits, one, many) }).await;
        let (waited, one, many) = ended.expect("they end");
        let claimed = timeout(SOON, self.claims.join_next()).await.expect("it ends").unwrap().unwrap();
        let claimed = claimed.map(tonic::Response::into_inner).expect_err("its caller is trusted no more");
        for status in [&one, &many, &claimed] {
            assert_eq!((status.code(), reason(status).as_str()), (Code::Unavailable, "DRAINING"), "{status:?}");
            assert!(status.get_details_retry_info().is_some(), "{status:?}");
        }
        // A wait that comes as its connection ends is answered as if its time were over.
        match waited {
            Ok(waited) => assert!(waited.into_inner().timed_out),
            Err(status) => assert_eq!(status.code(), Code::Unavailable, "{status:?}"),
        }
        self.cursor
    }
}

async fn watched(served: &Served, pair: &Pair) {
    ask(&mut served.client(Some(pair)), "watched", Step::Start, "").await.unwrap();
}

#[tokio::test]
async fn a_ca_that_is_taken_out_ends_its_clients_connections_and_no_others() {
    let (leaving, staying) = (Ca::new("leaving"), Ca::new("staying"));
    let both = [leaving.pem(), staying.pem()].concat();
    let served = Served::start_with(&[("tls-client-ca", &both)], &[]).await;
    let (left, stayed) = (leaving.client(URI), staying.client(URI));
    watched(&served, &stayed).await;
    let ending = Watching::begin(&served, &left).await;
    let mut going_on = Watching::begin(&served, &stayed).await;
    replace(&served.file("tls-client-ca"), &staying.pem());
    let cursor = ending.ends().await;
    assert!(served.begins(served.trusted(Some(&left))).await.is_err(), "it does not come back");
    let asked = WatchRunsRequest { cursor, ..WatchRunsRequest::default() };
    let resumed = going_on.client.watch_runs(asked).await;
    assert!(resumed.is_ok(), "the cursor is good: {resumed:?}");
    ask(&mut going_on.client, "watched", Step::Update(7), "").await.unwrap();
    while going_on
        .many
        .message()
        .await
        .unwrap()
        .unwrap()
        .frame
        .is_none_or(|frame| !matches!(frame, watch_runs_response::Frame::Change(_)))
    {}
    served.server.process.says("its client's certificate holds no more").await;
    assert_eq!(served.server.process.said().matches("its client's certificate holds no more").count(), 1);
}

#[tokio::test]
async fn a_certificate_that_is_revoked_ends_its_connections() {
    let clients = Ca::new("clients");
    let (files, none) = (clients.pem(), clients.revokes(&[]));
    let served = Served::start_with(&[("tls-client-ca", &files), ("tls-client-crl", &none)], &[]).await;
    let (revoked, other) = (clients.client(URI), clients.client(URI));
    watched(&served, &other).await;
    let ending = Watching::begin(&served, &revoked).await;
    let mut going_on = served.client(Some(&other));
    ask(&mut going_on, "watched", Step::Update(1), "").await.unwrap();
    replace(&served.file("tls-client-crl"), &clients.revokes(&[&revoked]));
    ending.ends().await;
    assert!(served.begins(served.trusted(Some(&revoked))).await.is_err());
    ask(&mut going_on, "watched", Step::Update(2), "").await.unwrap();
    served.server.process.says("Revoked").await;
}

#[tokio::test]
async fn a_client_whose_ca_has_no_revocation_list_is_refused() {
    let (clients, others) = (Ca::new("clients"), Ca::new("others"));
    let (files, list) = ([clients.pem(), others.pem()].concat(), clients.revokes(&[]));
    let served = Served::start_with(&[("tls-client-ca", &files), ("tls-client-crl", &list)], &[]).await;
    watched(&served, &clients.client(URI)).await;
    assert!(served.begins(served.trusted(Some(&others.client(URI)))).await.is_err());
}

#[tokio::test]
async fn a_certificate_that_comes_to_its_end_ends_its_connections() {
    let clients = Ca::new("clients");
    let served = Served::start_with(&[("tls-client-ca", &clients.pem())], &[]).await;
    watched(&served, &clients.client(URI)).await;
    let begun = Instant::now();
    let ending = Watching::begin(&served, &clients.client_until(URI, seconds_after_now(2))).await;
    ending.ends().await;
    assert!(begun.elapsed() > Duration::from_millis(500), "it held for as long as it said");
    served.server.process.says("its client's certificate holds no more").await;
}

#[tokio::test]
async fn a_call_on_a_connection_that_is_being_closed_is_refused_and_the_connection_cut() {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

    use crate::support::http2::{GOAWAY, HEADERS, call};
    let clients = Ca::new("clients");
    let served = Served::start_with(&[("tls-client-ca", &clients.pem())], &[]).await;
    let pair = clients.client(URI);
    watched(&served, &pair).await;
    let (mut stream, mut bytes) = served.begins(served.trusted(Some(&pair))).await.unwrap();
    replace(&served.file("tls-client-ca"), &Ca::new("others").pem());
    served.server.process.says("its client's certificate holds no more").await;
    let begun = Instant::now();
    // A client that overlooks the GOAWAY, and neither acknowledges nor closes.
    let wait = call(1, "/runledger.v1.RunService/WaitRun", b"\x0a\x07watched");
    stream.write_all(&wait).await.unwrap();
    let closed = timeout(SOON, stream.read_to_end(&mut bytes)).await;
    assert!(closed.is_ok(), "it is cut");
    assert!(begun.elapsed() < Duration::from_secs(7), "{:?}", begun.elapsed());
    let told = super::frames(&bytes);
    assert!(told.iter().any(|frame| frame.kind == GOAWAY), "{told:?}");
    let answer = told.iter().find(|frame| frame.kind == HEADERS).expect("the call is answered");
    // The status as HPACK has it: "14" by Huffman's code.
    assert!(answer.payload.windows(3).any(|part| part == [0x82, 0x0b, 0x5f]), "UNAVAILABLE: {answer:?}");
}

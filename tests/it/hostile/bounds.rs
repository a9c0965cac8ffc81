//! The bounds of one connection against any client.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use futures_util::future::join_all;
use runledger_proto::v1::GetReplicaRequest;
use runledger_proto::v1::replica_service_client::ReplicaServiceClient;
use tempfile::TempDir;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::task::JoinSet;
use tokio::time::{Instant, timeout};

use super::attacks::{Attack, Got, UPDATE, WATCH, WATCH_ALL, run_id, update};
use super::honest;
use super::table::{attacked, greatest_memory};
use crate::process::calls::{Step, ask, reason};
use crate::process::server::{Process, SOON, Server, hasty};
use crate::support::http2::{
    Connection, DATA, GOAWAY, HEADERS, INITIAL_WINDOW_SIZE, MAGIC, RST_STREAM, WINDOW_MAX, call, frame, headers,
    settings, window_update,
};

const SECOND: Duration = Duration::from_secs(1);

/// The memory of the server beside one client at most.
const MEMORY_KB_MAX: u64 = 256 * 1024;

async fn serve(args: &[&str]) -> Server {
    let server = Server::start_with(&[&["--store", "memory"], args].concat()).await;
    server.is_ready().await;
    server
}

/// The time until the other side closes, at most 30 s.
async fn closed_after(stream: &mut TcpStream) -> Duration {
    let begun = Instant::now();
    let _until_the_end = timeout(SOON, stream.read_to_end(&mut Vec::new())).await.expect("it is closed");
    begun.elapsed()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn beside_any_attack_every_honest_call_is_answered_and_memory_is_bounded() {
    let directory = TempDir::new().unwrap();
    let server = attacked(directory.path()).await;
    let over = Arc::new(AtomicBool::new(false));
    let attacks = async {
        for attack in Attack::ALL {
            let got = Arc::new(Got::default());
            let mut attacking = JoinSet::new();
            attacking.spawn(attack.run(server.address, Instant::now() + SECOND, got.clone()));
            let met = honest::calls(server.address, SECOND).await;
            attacking.join_next().await.unwrap().unwrap();
            assert_eq!(met.failed, Vec::<String>::new(), "beside {attack:?}, which got {got}");
            assert!(!met.calls_ms.is_empty(), "beside {attack:?}, which got {got}");
        }
        over.store(true, Ordering::Relaxed);
    };
    let (memory_kb, ()) = tokio::join!(greatest_memory(&server, &over), attacks);
    assert!(memory_kb < MEMORY_KB_MAX, "{memory_kb} kB");
}

#[tokio::test]
async fn whoever_makes_this_side_reset_streams_is_sent_away() {
    let server = serve(&[]).await;
    let mut connection = Connection::open(server.address, &[]).await;
    let faults: Vec<u8> =
        (0..2_000).flat_map(|n| [headers(2 * n + 1, UPDATE), window_update(2 * n + 1, WINDOW_MAX)].concat()).collect();
    connection.send(&faults).await;
    let goaway = connection.reader.until(SOON, |frame| frame.kind == GOAWAY).await.expect("a GOAWAY");
    assert_eq!(goaway.payload[7], 11, "ENHANCE_YOUR_CALM: {goaway:?}");
    server.process.says("it broke HTTP/2's rules").await;
}

#[tokio::test]
async fn a_client_that_gives_up_many_calls_at_once_is_not_sent_away() {
    let server = serve(&[]).await;
    let mut connection = Connection::open(server.address, &[]).await;
    for round in 0..4 {
        let given_up = (round * 400..(round + 1) * 400)
            .flat_map(|n| {
                [call(2 * n + 1, UPDATE, &update("none", "1")), frame(RST_STREAM, 0, 2 * n + 1, &[0, 0, 0, 8])]
            })
            .flatten()
            .collect::<Vec<u8>>();
        assert!(connection.send(&given_up).await);
    }
    assert!(connection.send(&call(9_999, UPDATE, &update("none", "1"))).await);
    let answered = connection.reader.until(SOON, |frame| frame.kind == GOAWAY || frame.stream == 9_999).await.unwrap();
    assert_eq!(answered.kind, HEADERS, "{answered:?}");
}

#[tokio::test]
async fn a_flood_of_pings_is_read_slowly_and_its_connection_stays() {
    let server = serve(&[]).await;
    let got = Arc::new(Got::default());
    let begun = Instant::now();
    Attack::Pings.run(server.address, begun + 2 * SECOND, got.clone()).await;
    let answered = got.acknowledged.load(Ordering::Relaxed);
    // Pings that may come at once, pings that may come in a second, and pings that were read before they were counted.
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a bound")]
    let bound = 1_024 + (500.0 * begun.elapsed().as_secs_f64()) as u64 + 1_000;
    assert!(answered <= bound, "{answered} pings were answered, and not {bound}");
    assert_eq!(got.connections.load(Ordering::Relaxed), 1);
}

#[tokio::test]
async fn a_connection_that_does_not_begin_is_closed() {
    let server = serve(&[]).await;
    let connections = [&b""[..], &MAGIC[..12], MAGIC].map(async |begun| {
        let mut stream = TcpStream::connect(server.address).await.unwrap();
        stream.write_all(begun).await.unwrap();
        let after = closed_after(&mut stream).await;
        assert!(after > 9 * SECOND, "{begun:?}: it has ten seconds, and was closed after {after:?}");
    });
    join_all(connections).await;
}

#[tokio::test]
async fn a_connection_without_calls_is_closed_and_one_with_calls_stays() {
    let server = serve(&["--connection-idle-max", "1s"]).await;
    ask(&mut server.hasty(), "watched", Step::Start, "").await.unwrap();
    let mut idle = Connection::open(server.address, &[]).await;
    let mut watching = Connection::open(server.address, &[]).await;
    watching.send(&call(1, WATCH, &run_id("watched"))).await;
    let told = idle.reader.until(SOON, |frame| frame.kind == GOAWAY).await.expect("a GOAWAY");
    assert_eq!(told.payload[4..8], [0; 4], "NO_ERROR: {told:?}");
    assert!(idle.reader.until(SOON, |_| false).await.is_none());
    assert!(watching.reader.until(2 * SECOND, |frame| frame.kind == GOAWAY).await.is_none(), "it has a call");
}

#[tokio::test]
async fn a_watch_on_a_connection_that_has_come_of_age_is_told_to_go_on_elsewhere() {
    use runledger_proto::v1::WatchRunRequest;
    let server = serve(&["--connection-age-max", "2s"]).await;
    let mut client = server.hasty();
    ask(&mut client, "watched", Step::Start, "").await.unwrap();
    let asked = WatchRunRequest { run_id: "watched".to_owned(), ..WatchRunRequest::default() };
    let mut frames = client.watch_run(asked).await.unwrap().into_inner();
    let ended = loop {
        match frames.message().await {
            Ok(Some(_)) => {}
            Ok(None) => panic!("it ended as if the run had"),
            Err(status) => break status,
        }
    };
    assert_eq!((ended.code(), reason(&ended).as_str()), (tonic::Code::Unavailable, "DRAINING"), "{ended:?}");
    // Another connection is made for the next call, without a failed one.
    ask(&mut client, "watched", Step::Update(1), "").await.unwrap();
}

#[tokio::test]
async fn a_watch_of_health_ends_as_its_connection_comes_of_age_and_with_its_deadline() {
    use tonic_health::pb::HealthCheckRequest;
    use tonic_health::pb::health_client::HealthClient;
    let server = serve(&["--connection-age-max", "2s"]).await;
    for (deadline, code) in [(None, tonic::Code::Unavailable), (Some(SECOND / 2), tonic::Code::DeadlineExceeded)] {
        let endpoint = tonic::transport::Endpoint::from_shared(format!("http://{}", server.address)).unwrap();
        let mut asked = tonic::Request::new(HealthCheckRequest { service: "readiness".to_owned() });
        if let Some(deadline) = deadline {
            asked.set_timeout(deadline);
        }
        let mut answers = HealthClient::new(endpoint.connect_lazy()).watch(asked).await.unwrap().into_inner();
        assert_eq!(answers.message().await.unwrap().unwrap().status, 1, "SERVING");
        assert_eq!(answers.message().await.unwrap_err().code(), code);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn connections_that_take_all_places_neither_cut_nor_keep_out_an_honest_client() {
    let directory = TempDir::new().unwrap();
    let store = format!("sqlite:{}", directory.path().join("ledger.db").display());
    let args = ["serve", "--listen", "127.0.0.1:0", "--store", &store];
    let server = Server::of(Process::spawn_with_files(160, &args)).await;
    server.is_ready().await;
    let mut before = server.hasty();
    ask(&mut before, "before", Step::Start, "").await.unwrap();
    let mut silent = Vec::new();
    for _ in 0..200 {
        silent.push(TcpStream::connect(server.address).await.unwrap());
    }
    server.process.says("all connections are taken").await;
    for update in 0..20 {
        ask(&mut before, "before", Step::Update(update), "").await.unwrap();
    }
    // A new one has its turn when the silent ones were closed.
    ask(&mut hasty(server.address), "after", Step::Start, "").await.unwrap();
    assert!(server.process.said().matches("all connections are taken").count() <= 3, "it is said now and then");
    assert!(!server.process.said().contains("cannot be accepted"), "descriptors are kept for the store");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn answers_that_are_not_taken_are_bounded_in_bytes() {
    let directory = TempDir::new().unwrap();
    let server = attacked(directory.path()).await;
    let got = Arc::new(Got::default());
    let mut attacking = JoinSet::new();
    attacking.spawn(Attack::UntakenPages.run(server.address, Instant::now() + 2 * SECOND, got));
    let unsent = greatest_unsent(server.address, Instant::now() + 2 * SECOND).await;
    attacking.join_next().await.unwrap().unwrap();
    // The bytes that a connection may have unsent, and the answers of the calls that were let go on below that.
    assert!((1 << 20..16 << 20).contains(&unsent), "{unsent}");
}

/// The turns to read history are few, and all watchers share them.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn watches_that_nobody_reads_hold_no_turn_that_others_wait_for() {
    use runledger_proto::v1::watch_runs_request::Initial;
    use runledger_proto::v1::watch_runs_response::Frame;
    use runledger_proto::v1::{WatchRunRequest, WatchRunsRequest};
    let directory = TempDir::new().unwrap();
    let server = attacked(directory.path()).await;
    let mut attacking = JoinSet::new();
    for attack in [Attack::SleepingViews, Attack::SleepingWatches] {
        attacking.spawn(attack.run(server.address, Instant::now() + SOON, Arc::default()));
    }
    let mut client = server.hasty();
    for _ in 0..10 {
        let view = WatchRunsRequest { initial: Initial::All.into(), ..WatchRunsRequest::default() };
        let mut frames = client.watch_runs(view).await.unwrap().into_inner();
        let caught_up =
            async { while !matches!(frames.message().await.unwrap().unwrap().frame, Some(Frame::CaughtUp(_))) {} };
        timeout(SOON / 2, caught_up).await.expect("a view of all runs");
        let history = WatchRunRequest { run_id: "large".to_owned(), after_revision: Some(1), ..Default::default() };
        let mut frames = client.watch_run(history).await.unwrap().into_inner();
        for _ in 0..40 {
            timeout(SOON / 2, frames.message()).await.expect("the history of a run").unwrap().unwrap();
        }
    }
}

/// More pages of history than one connection may keep, and each watch needs one more read to show the first event of
/// its page.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_watches_of_one_connection_that_catch_up_together_all_get_on() {
    use runledger_proto::v1::WatchRunRequest;
    let directory = TempDir::new().unwrap();
    let server = attacked(directory.path()).await;
    let client = server.hasty();
    let mut watches = JoinSet::new();
    for _ in 0..200 {
        let mut client = client.clone();
        let history = WatchRunRequest { run_id: "large".to_owned(), after_revision: Some(2), ..Default::default() };
        watches.spawn(async move {
            let mut frames = client.watch_run(history).await.unwrap().into_inner();
            for _ in 0..10 {
                frames.message().await.unwrap().unwrap();
            }
        });
    }
    let all = async {
        while let Some(caught_up) = watches.join_next().await {
            caught_up.unwrap();
        }
    };
    timeout(2 * SOON, all).await.expect("all get on");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_views_that_nobody_reads_hold_no_turn_that_others_wait_for() {
    use runledger_proto::v1::watch_runs_request::Initial;
    use runledger_proto::v1::watch_runs_response::Frame;
    use runledger_proto::v1::{StartRunRequest, WatchRunsRequest};
    let directory = TempDir::new().unwrap();
    let server = Server::start(&format!("sqlite:{}", directory.path().join("ledger.db").display())).await;
    server.is_ready().await;
    let mut client = server.hasty();
    // Pages of runs so small that all of one is encoded in one go, and the next one read before anything is taken.
    for nth in 0..300 {
        let (task_thread_id, run_id) = ("t".to_owned(), nth.to_string());
        client.start_run(StartRunRequest { task_thread_id, run_id, ..Default::default() }).await.unwrap();
    }
    let mut sleeping = Connection::open(server.address, &[(INITIAL_WINDOW_SIZE, 0)]).await;
    let views = [1, 3].map(|stream| call(stream, WATCH_ALL, &[16, 2])).concat();
    sleeping.send(&views).await;
    for _ in 0..2 {
        sleeping.reader.until(SOON, |frame| frame.kind == HEADERS).await.expect("a view has begun");
    }
    for _ in 0..10 {
        let view = WatchRunsRequest { initial: Initial::All.into(), ..WatchRunsRequest::default() };
        let mut frames = client.watch_runs(view).await.unwrap().into_inner();
        let caught_up =
            async { while !matches!(frames.message().await.unwrap().unwrap().frame, Some(Frame::CaughtUp(_))) {} };
        timeout(SOON / 2, caught_up).await.expect("a view of all runs");
    }
}

async fn greatest_unsent(address: SocketAddr, until: Instant) -> u64 {
    let endpoint = tonic::transport::Endpoint::from_shared(format!("http://{address}")).unwrap();
    let mut replica = ReplicaServiceClient::new(endpoint.connect_lazy());
    let mut greatest = 0;
    while Instant::now() < until {
        greatest = greatest.max(replica.get_replica(GetReplicaRequest {}).await.unwrap().into_inner().unsent_bytes);
    }
    greatest
}

#[tokio::test]
async fn an_http_1_client_is_told_what_this_port_speaks() {
    let server = serve(&[]).await;
    let mut stream = TcpStream::connect(server.address).await.unwrap();
    stream.write_all(b"GET / HTTP/1.1\r\nhost: a\r\n\r\n").await.unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.unwrap();
    assert!(answer.starts_with("HTTP/1.1 505 ") && answer.contains("gRPC"), "{answer}");
}

#[tokio::test]
async fn settings_without_an_end_and_empty_frames_are_survived() {
    let server = serve(&[]).await;
    let mut connection = Connection::open(server.address, &[]).await;
    connection.send(&settings(&[(3, 100)]).repeat(900)).await;
    connection.send(&call(1, UPDATE, &update("none", "1"))).await;
    let answer = connection.reader.until(SOON, |frame| frame.stream == 1).await.unwrap();
    assert_ne!((answer.kind, answer.kind), (DATA, RST_STREAM));
}

#[tokio::test]
async fn requests_that_are_announced_and_do_not_come_keep_nobody_elses_out() {
    let server = serve(&[]).await;
    let mut client = server.hasty();
    ask(&mut client, "large", Step::Start, "").await.unwrap();
    let mut announced = Vec::new();
    for _ in 0..16 {
        let mut connection = Connection::open(server.address, &[]).await;
        let announce = |nth: u32| {
            let stream = 2 * nth + 1;
            [headers(stream, UPDATE), frame(DATA, 0, stream, &[0, 0, 15, 0, 0])].concat()
        };
        connection.send(&(0..900).flat_map(announce).collect::<Vec<u8>>()).await;
        announced.push(connection);
    }
    for _ in 0..20 {
        ask(&mut client, "large", Step::Bulk, "").await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn connections_that_begin_and_say_nothing_more_leave_when_others_wait() {
    let server = Server::of(Process::spawn_with_files(160, &["serve", "--listen", "127.0.0.1:0", "--store", "memory"]));
    let server = server.await;
    server.is_ready().await;
    let mut silent = Vec::new();
    for _ in 0..70 {
        let mut stream = TcpStream::connect(server.address).await.unwrap();
        stream.write_all(&[MAGIC, &settings(&[])].concat()).await.unwrap();
        silent.push(stream);
    }
    server.process.says("all connections are taken").await;
    ask(&mut hasty(server.address), "after", Step::Start, "").await.unwrap();
}

#[tokio::test]
async fn reflection_takes_names_and_nothing_larger() {
    let server = serve(&[]).await;
    let mut connection = Connection::open(server.address, &[]).await;
    let path = "/grpc.reflection.v1.ServerReflection/ServerReflectionInfo";
    let announce = [headers(1, path), frame(DATA, 0, 1, &[0, 0, 15, 0, 0])].concat();
    connection.send(&announce).await;
    let ended = |answer: &crate::support::http2::Frame| answer.stream == 1 && answer.flags & 1 != 0;
    assert!(connection.reader.until(SOON, ended).await.is_some(), "it is refused by its length");
}

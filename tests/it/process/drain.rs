//! SIGTERM: every accepted command is answered, watchers are told to come back, and no client can hold the process.

use std::net::SocketAddr;
use std::time::Duration;

use runledger_proto::v1::{Disposition, UpdateRunRequest, WatchRunRequest};
use tempfile::TempDir;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, copy};
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep};
use tonic::Code;
use tonic_types::StatusExt as _;

use super::calls::{Answer, Step, ask, meaning, reason};
use super::cuts::{Behind, behind_a_proxy};
use super::data::Data;
use super::load::{Load, answered};
use super::server::{Server, client};
use super::watching::{Watcher, uncut};
use crate::support::postgres::Database;
use crate::support::proxy::Rule;

/// The time that a stop may take with hanging clients.
const STOP_MAX: Duration = Duration::from_secs(10);

/// The pause of a reader that is behind, from frame to frame.
const PACE: Duration = Duration::from_millis(200);

/// What a slow line passes on.
const LINE_BYTES_A_SECOND: u32 = 200_000;

async fn every_accepted_command_is_answered(data: Data) {
    let mut server = Server::start(&data.store()).await;
    server.is_ready().await;
    let (_servers, targets) = watch::channel(vec![server.address]);
    let mut load = Load::start("run", 64, &targets);
    load.progresses(300).await;
    server.process.signal("TERM");
    let (code, said) = server.process.exited(STOP_MAX).await;
    assert_eq!(code, 0, "{said}");
    let mut calls = load.give_up().await;
    for call in &mut calls {
        for answer in &call.answers {
            assert!(!matches!(answer, Answer::Unknown(_)), "a sound store leaves nothing unknown: {call:?}");
        }
        // Without an answer of the service's own only when the service never took it: then nothing was written.
        if let Some(Answer::Cut(why)) = call.answers.last().cloned() {
            *call.answers.last_mut().unwrap() = Answer::NothingWritten(why);
        }
    }
    data.sound().await.agree_with(&calls);
    let told = answered(&calls, |answer| matches!(answer, Answer::NothingWritten(_)));
    assert!(told > 0, "the stop hit no call");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stop_under_load_answers_every_command_that_was_accepted_on_sqlite() {
    let directory = TempDir::new().unwrap();
    every_accepted_command_is_answered(Data::Sqlite(directory.path().join("ledger.db"))).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stop_under_load_answers_every_command_that_was_accepted_on_postgres() {
    let database = Database::fresh().await;
    every_accepted_command_is_answered(Data::Postgres(database.dsn())).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn watchers_of_a_stopping_server_are_told_to_come_back_and_resume_at_another() {
    let database = Database::fresh().await;
    let data = Data::Postgres(database.dsn());
    let mut stopping = Server::start(&data.store()).await;
    let staying = Server::start(&data.store()).await;
    stopping.is_ready().await;
    staying.is_ready().await;
    let (_writers, writer_targets) = watch::channel(vec![staying.address]);
    let (_watchers, watcher_targets) = watch::channel(vec![stopping.address, staying.address]);
    let mut story = Load::story("story", &writer_targets);
    let mut watcher = Watcher::start("story", &watcher_targets);
    watcher.progresses(10).await;
    stopping.process.signal("TERM");
    let (code, said) = stopping.process.exited(STOP_MAX).await;
    assert_eq!(code, 0, "{said}");
    watcher.progresses(10).await;
    story.progresses(1).await;
    story.finish().await;
    let seen = watcher.seen().await;
    assert_eq!(seen.cuts, ["DRAINING"]);
    assert_eq!(seen.changes, uncut("story", staying.address).await, "the resumed watch equals an uncut one");
}

/// It takes what was sent to it before for longer than others may take to close.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_watcher_that_is_behind_comes_to_the_goodbye_behind_what_it_takes() {
    let mut server = Server::start("memory").await;
    server.is_ready().await;
    let mut writer = server.client();
    ask(&mut writer, "run-1", Step::Start, "").await.unwrap();
    let watch = WatchRunRequest { run_id: "run-1".to_owned(), after_revision: Some(0), ledger_epoch: None };
    let mut frames = server.client().watch_run(watch).await.unwrap().into_inner();
    frames.message().await.unwrap().expect("the start");
    for number in 0..50 {
        writer.update_run(text("run-1", &format!("{number}{}", "x".repeat(16_000)))).await.unwrap();
    }
    server.process.signal("TERM");
    let told = Instant::now();
    let cut = loop {
        match frames.message().await {
            Ok(frame) => assert!(frame.is_some(), "a watch ends with its reason"),
            Err(cut) => break cut,
        }
        sleep(PACE).await;
    };
    assert_eq!((cut.code(), reason(&cut).as_str()), (Code::Unavailable, "DRAINING"));
    assert!(told.elapsed() > Duration::from_secs(4), "it was behind: {:?}", told.elapsed());
    let (code, said) = server.process.exited(STOP_MAX).await;
    assert_eq!(code, 0, "{said}");
}

/// What is sent to it stands in the kernel's buffers, of which the server knows nothing.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_watcher_behind_a_slow_line_comes_to_the_goodbye_behind_all_that_was_sent() {
    let mut server = Server::start("memory").await;
    server.is_ready().await;
    let (slow, is_slow) = watch::channel(false);
    let (address, _line) = slow_line(server.address, is_slow).await;
    let mut writer = server.client();
    ask(&mut writer, "run-1", Step::Start, "").await.unwrap();
    let watch = WatchRunRequest { run_id: "run-1".to_owned(), after_revision: Some(0), ledger_epoch: None };
    let wide = tonic::transport::Endpoint::from_shared(format!("http://{address}")).unwrap();
    let wide = wide.initial_stream_window_size(1 << 20).initial_connection_window_size(1 << 20).connect_lazy();
    let mut watcher = runledger_proto::v1::run_service_client::RunServiceClient::new(wide);
    let mut frames = watcher.watch_run(watch).await.unwrap().into_inner();
    frames.message().await.unwrap().expect("the start");
    slow.send_replace(true);
    for number in 0..300 {
        writer.update_run(text("run-1", &format!("{number}{}", "x".repeat(4_000)))).await.unwrap();
    }
    server.process.signal("TERM");
    let mut taken = 0;
    let cut = loop {
        match frames.message().await {
            Ok(frame) => taken += usize::from(frame.is_some()),
            Err(cut) => break cut,
        }
    };
    assert_eq!((cut.code(), reason(&cut).as_str()), (Code::Unavailable, "DRAINING"));
    assert!(taken > 0, "it was behind");
    let (code, said) = server.process.exited(STOP_MAX).await;
    assert_eq!(code, 0, "{said}");
}

/// Passes bytes on, and what the server says slowly once it is told to.
async fn slow_line(server: SocketAddr, is_slow: watch::Receiver<bool>) -> (SocketAddr, JoinSet<()>) {
    const ROOM: u32 = 16 * 1024;
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let mut tasks = JoinSet::new();
    tasks.spawn(async move {
        let (client, _) = listener.accept().await.unwrap();
        let (mut from_client, mut to_client) = client.into_split();
        let line = TcpSocket::new_v4().unwrap();
        line.set_recv_buffer_size(ROOM).unwrap();
        let (mut from_server, mut to_server) = line.connect(server).await.unwrap().into_split();
        let slowly = async move {
            let mut bytes = vec![0; ROOM as usize];
            loop {
                let count = from_server.read(&mut bytes).await.unwrap();
                if count == 0 {
                    return;
                }
                to_client.write_all(&bytes[..count]).await.unwrap();
                if *is_slow.borrow() {
                    sleep(Duration::from_secs(1) * u32::try_from(count).unwrap() / LINE_BYTES_A_SECOND).await;
                }
            }
        };
        tokio::join!(slowly, async { drop(copy(&mut from_client, &mut to_server).await) });
    });
    (address, tasks)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_idle_watcher_is_told_to_come_back_at_once() {
    let mut server = Server::start("memory").await;
    server.is_ready().await;
    let mut client = server.client();
    ask(&mut client, "run-1", Step::Start, "").await.unwrap();
    let watch = WatchRunRequest { run_id: "run-1".to_owned(), after_revision: Some(1), ledger_epoch: None };
    let mut frames = client.watch_run(watch).await.unwrap().into_inner();
    frames.message().await.unwrap().expect("caught up");
    server.process.signal("TERM");
    let cut = frames.message().await.unwrap_err();
    assert_eq!((cut.code(), reason(&cut).as_str()), (Code::Unavailable, "DRAINING"));
    assert!(cut.get_details_retry_info().is_some_and(|retry| retry.retry_delay.is_some()), "{cut:?}");
    let (code, said) = server.process.exited(STOP_MAX).await;
    assert_eq!(code, 0, "{said}");
    assert!(!said.contains("connections that did not close are cut"), "nobody hangs, so nobody is waited for: {said}");
}

/// Passes bytes on until it is told to stop reading what the server says, and then holds the connection.
async fn relay(server: SocketAddr, frozen: watch::Receiver<bool>) -> (SocketAddr, JoinSet<()>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let mut tasks = JoinSet::new();
    tasks.spawn(async move {
        let (client, _) = listener.accept().await.unwrap();
        let (mut from_client, mut to_client) = client.into_split();
        let (mut from_server, mut to_server) = TcpStream::connect(server).await.unwrap().into_split();
        let mut frozen = frozen;
        tokio::select! {
            _ = copy(&mut from_client, &mut to_server) => {}
            _ = copy(&mut from_server, &mut to_client) => {}
            () = async { drop(frozen.wait_for(|frozen| *frozen).await) } => std::future::pending().await,
        }
    });
    (address, tasks)
}

/// Clients that hang, each in its own way, until this is dropped.
struct Hung {
    _relay: JoinSet<()>,
    _sockets: Vec<TcpStream>,
    _streams: Vec<tonic::Streaming<runledger_proto::v1::WatchRunResponse>>,
}

fn text(run_id: &str, text: &str) -> UpdateRunRequest {
    let text = prost_types::value::Kind::StringValue(text.to_owned());
    let fields = [("text".to_owned(), prost_types::Value { kind: Some(text) })].into();
    let metadata = Some(prost_types::Struct { fields });
    UpdateRunRequest { run_id: run_id.to_owned(), metadata, ..UpdateRunRequest::default() }
}

async fn hang(server: &Server) -> Hung {
    let mut writer = server.client();
    ask(&mut writer, "big", Step::Start, "").await.unwrap();
    let watch = WatchRunRequest { run_id: "big".to_owned(), after_revision: Some(0), ledger_epoch: None };
    // One watches and never reads its stream; one watches and stops reading its connection.
    let (freeze, frozen) = watch::channel(false);
    let (address, relay) = relay(server.address, frozen).await;
    let mut streams = Vec::new();
    for address in [server.address, address] {
        streams.push(client(address).watch_run(watch.clone()).await.unwrap().into_inner());
    }
    freeze.send_replace(true);
    // More than the windows and buffers on the way take.
    for number in 0..200 {
        writer.update_run(text("big", &format!("{number}{}", "x".repeat(60_000)))).await.unwrap();
    }
    // One says nothing, one greets and says no more, one stops in the middle of a word.
    let mut sockets = Vec::new();
    for word in [&b""[..], b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\x00\x00\x00\x04\x00\x00\x00\x00\x00", b"PRI * HT"] {
        let mut socket = TcpStream::connect(server.address).await.unwrap();
        socket.write_all(word).await.unwrap();
        sockets.push(socket);
    }
    Hung { _relay: relay, _sockets: sockets, _streams: streams }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn clients_that_hang_cannot_hold_a_stopping_server() {
    let directory = TempDir::new().unwrap();
    let data = Data::Sqlite(directory.path().join("ledger.db"));
    let mut server = Server::start(&data.store()).await;
    server.is_ready().await;
    let _hung = hang(&server).await;
    server.process.signal("TERM");
    let (code, said) = server.process.exited(STOP_MAX).await;
    assert_eq!(code, 0, "{said}");
    assert!(said.contains("connections that did not close are cut"), "somebody did hang: {said}");
    assert_eq!(data.sound().await.run("big").unwrap().revision, 201);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_second_signal_ends_a_stop_at_once() {
    let mut server = Server::start("memory").await;
    server.is_ready().await;
    let _hung = hang(&server).await;
    server.process.signal("TERM");
    server.process.says("draining").await;
    // The same one would count as the first where it comes as soon.
    server.process.signal("INT");
    let (code, said) = server.process.exited(STOP_MAX).await;
    assert_eq!(code, 130, "{said}");
    assert!(!said.contains("connections that did not close are cut"), "it waits for nobody any more: {said}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_interrupt_stops_as_a_termination_does() {
    let mut server = Server::start("memory").await;
    server.is_ready().await;
    ask(&mut server.client(), "run-1", Step::Start, "").await.unwrap();
    server.process.signal("INT");
    let (code, said) = server.process.exited(STOP_MAX).await;
    assert_eq!(code, 0, "{said}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_command_in_flight_when_the_stop_comes_is_committed_and_answered() {
    let Behind { proxy, mut server, data, _database } = behind_a_proxy().await;
    let (release, released) = watch::channel(false);
    proxy.meet(Rule::HoldUntil(released), 1);
    let mut client = server.client();
    let mut calls = JoinSet::new();
    calls.spawn(async move { ask(&mut client, "held", Step::Start, "request").await });
    proxy.has_met(1).await;
    server.process.signal("TERM");
    server.process.says("draining").await;
    release.send_replace(true);
    let answer = calls.join_next().await.unwrap().unwrap();
    assert_eq!(answer.unwrap(), (Disposition::Applied, 1, 1));
    let (code, said) = server.process.exited(STOP_MAX).await;
    assert_eq!(code, 0, "{said}");
    assert_eq!(data.sound().await.made_by("held", "request"), [1]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_database_that_has_fallen_silent_cannot_hold_a_stopping_server() {
    let Behind { proxy, mut server, data, _database } = behind_a_proxy().await;
    let (_release, released) = watch::channel(false);
    proxy.meet(Rule::HoldUntil(released), 1);
    let mut client = server.client();
    let mut calls = JoinSet::new();
    calls.spawn(async move { ask(&mut client, "held", Step::Start, "request").await });
    proxy.has_met(1).await;
    proxy.silence(true);
    server.process.signal("TERM");
    // As long as a call may wait for its answer, and the goodbyes.
    let (code, said) = server.process.exited(Duration::from_secs(25)).await;
    assert_eq!(code, 0, "{said}");
    let answer = calls.join_next().await.unwrap().unwrap();
    assert_eq!(meaning(&answer.unwrap_err()), Answer::Unknown("OUTCOME_UNKNOWN".to_owned()));
    drop(proxy);
    assert!(data.sound().await.made_by("held", "request").len() <= 1);
}

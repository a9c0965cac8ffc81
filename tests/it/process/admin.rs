//! The admin port of the real binary.

use std::net::SocketAddr;
use std::time::Duration;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, timeout};

use super::server::{Process, SOON, Server, eventually};
use crate::support::http2::{Connection, END_HEADERS, HEADERS, frame, header_block};

const ASK: &str = "host: x\r\nconnection: close\r\n\r\n";

/// A server with an admin port, and the port's address.
pub(crate) async fn start(flags: &[&str]) -> (Server, SocketAddr) {
    let server = Server::start_with(&[&["--admin-listen", "127.0.0.1:0"], flags].concat()).await;
    server.process.says("  admin  ").await;
    let said = server.process.said();
    let line = said.lines().find_map(|line| line.strip_prefix("  admin  http://")).unwrap();
    let address = line.split('/').next().unwrap().parse().unwrap();
    (server, address)
}

/// The whole answer to a request's first line. None when nobody listens.
pub(crate) async fn asked(address: SocketAddr, line: &str) -> Option<String> {
    let mut stream = TcpStream::connect(address).await.ok()?;
    stream.write_all(format!("{line} HTTP/1.1\r\n{ASK}").as_bytes()).await.ok()?;
    let mut answer = String::new();
    timeout(SOON, stream.read_to_string(&mut answer)).await.expect("it answers").ok()?;
    Some(answer)
}

/// Waits until the process may be sent traffic, and gives the answer that says so.
pub(crate) async fn ready(admin: SocketAddr) -> String {
    let ready = eventually(SOON, async || {
        asked(admin, "GET /readyz").await.filter(|answer| answer.starts_with("HTTP/1.1 200 "))
    });
    ready.await.expect("it is ready")
}

#[tokio::test]
async fn it_says_that_the_process_lives_and_may_be_sent_traffic() {
    let (_server, admin) = start(&["--store", "memory"]).await;
    assert!(ready(admin).await.ends_with("\r\n\r\nready\n"));
    for (line, status, text) in [
        ("GET /livez", "200", "alive\n"),
        ("GET /readyz?verbose", "200", "ready\n"),
        ("HEAD /readyz", "200", ""),
        ("GET /", "404", "not found: /livez, /readyz and /metrics are here\n"),
        ("POST /livez", "405", "only GET and HEAD are answered\n"),
    ] {
        let answer = asked(admin, line).await.unwrap();
        assert!(answer.starts_with(&format!("HTTP/1.1 {status} ")), "{line}: {answer}");
        assert_eq!(answer.split_once("\r\n\r\n").unwrap().1, text, "{line}");
    }
}

#[tokio::test]
async fn a_process_without_its_store_lives_and_says_why_it_is_not_ready() {
    let (_server, admin) = start(&["--store", "postgres://nobody@127.0.0.1:1/none"]).await;
    let answer = asked(admin, "GET /readyz").await.unwrap();
    assert!(answer.starts_with("HTTP/1.1 503 ") && answer.ends_with("the store is not open yet\n"), "{answer}");
    assert!(asked(admin, "GET /livez").await.unwrap().starts_with("HTTP/1.1 200 "));
}

#[tokio::test]
async fn it_answers_through_the_drain() {
    let (mut server, admin) = start(&["--store", "memory"]).await;
    server.process.says("the store is open").await;
    // A call whose request does not come to its end holds the drain for as long as it may.
    let mut held = Connection::open(server.address, &[]).await;
    held.send(&frame(HEADERS, END_HEADERS, 1, &header_block("/runledger.v1.RunService/GetRun", &[]))).await;
    server.process.signal("TERM");
    let draining = eventually(SOON, async || {
        asked(admin, "GET /readyz").await.filter(|answer| answer.ends_with("not ready: draining\n"))
    });
    assert!(draining.await.unwrap().starts_with("HTTP/1.1 503 "));
    assert!(asked(admin, "GET /livez").await.unwrap().starts_with("HTTP/1.1 200 "));
    let (code, said) = server.process.exited(SOON).await;
    assert_eq!(code, 0, "{said}");
    assert_eq!(asked(admin, "GET /livez").await, None);
}

#[tokio::test]
async fn silent_connections_are_closed_and_keep_no_probe_out() {
    let (_server, admin) = start(&["--store", "memory"]).await;
    let begun = Instant::now();
    let mut silent = Vec::new();
    for nth in 0..64 {
        let mut stream = TcpStream::connect(admin).await.unwrap();
        if nth % 2 == 0 {
            stream.write_all(b"GET /livez HTTP/1.1\r\nhost:").await.unwrap();
        }
        silent.push(stream);
    }
    for _ in 0..3 {
        let answer = asked(admin, "GET /livez").await.unwrap();
        assert!(answer.starts_with("HTTP/1.1 200 "), "{answer}");
    }
    let closed = timeout(SOON, silent[0].read_to_end(&mut Vec::new())).await.expect("the oldest gives way");
    assert!(closed.is_err() || begun.elapsed() < SOON);
    let kept = timeout(Duration::from_millis(10), silent[63].read_u8()).await;
    assert!(kept.is_err() || begun.elapsed() > Duration::from_secs(9), "the youngest does not: {kept:?}");
    for mut stream in silent {
        let _reset = timeout(SOON, stream.read_to_end(&mut Vec::new())).await.expect("it is closed");
    }
}

#[tokio::test]
async fn connections_that_ask_again_and_again_keep_no_probe_out() {
    let (_server, admin) = start(&["--store", "memory"]).await;
    let mut greedy = JoinSet::new();
    for _ in 0..80 {
        greedy.spawn(async move {
            loop {
                let Ok(mut stream) = TcpStream::connect(admin).await else { continue };
                while stream.write_all(b"GET /livez HTTP/1.1\r\nhost: x\r\n\r\n").await.is_ok() {
                    let mut answer = [0; 4_096];
                    match stream.read(&mut answer).await {
                        Ok(0) | Err(_) => break,
                        Ok(_) => sleep(Duration::from_millis(200)).await,
                    }
                }
            }
        });
    }
    for _ in 0..5 {
        let answer = asked(admin, "GET /livez").await.expect("a probe is answered beside them");
        assert!(answer.starts_with("HTTP/1.1 200 "), "{answer}");
        sleep(Duration::from_millis(300)).await;
    }
    greedy.shutdown().await;
}

#[tokio::test]
async fn a_port_that_is_taken_is_named() {
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let at = taken.local_addr().unwrap().to_string();
    let flags = ["serve", "--store", "memory", "--listen", "127.0.0.1:0", "--admin-listen", &at];
    let (code, said) = Process::spawn(&flags).exited(SOON).await;
    assert!(code == 1 && said.contains(&format!("cannot listen on {at} (--admin-listen)")), "{said}");
}

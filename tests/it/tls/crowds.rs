//! Many clients that say half of a hello, or all of it and nothing more, beside an honest one.

use std::sync::Arc;
use std::time::Duration;

use rustls::pki_types::ServerName;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::task::JoinSet;
use tokio::time::{Instant, timeout};

use super::Served;
use crate::hostile::honest;
use crate::process::server::{Client, SOON};
use crate::support::patient::Patient;
use crate::support::postgres::variable;
use crate::support::tls::channel;

/// Clients that say hello: as many as descriptors allow anywhere.
const HELLOS: usize = 800;

/// Their number: `RUNLEDGER_TEST_HELLOS`, where so many descriptors may be open.
fn hellos() -> usize {
    variable("RUNLEDGER_TEST_HELLOS").map_or(HELLOS, |number| number.parse().unwrap())
}

/// A client's hello.
fn hello(served: &Served) -> Vec<u8> {
    let name = ServerName::try_from("localhost").unwrap();
    let mut client = rustls::ClientConnection::new(served.trusted(None), name).unwrap();
    let mut hello = Vec::new();
    client.write_tls(&mut hello).unwrap();
    hello
}

#[tokio::test]
async fn half_a_hello_is_closed_within_its_bound() {
    let served = Served::start().await;
    let hello = hello(&served);
    let mut closed = JoinSet::new();
    for sent in [&b""[..], &hello[..1], &hello[..7], &hello[..hello.len() - 1], &hello[..]].map(<[u8]>::to_vec) {
        let address = served.server.address;
        closed.spawn(async move {
            let begun = Instant::now();
            let mut stream = TcpStream::connect(address).await.unwrap();
            stream.write_all(&sent).await.unwrap();
            timeout(SOON, stream.read_to_end(&mut Vec::new())).await.expect("it is closed").unwrap();
            begun.elapsed()
        });
    }
    while let Some(after) = closed.join_next().await {
        let after = after.unwrap();
        assert!((9..13).contains(&after.as_secs()), "it has ten seconds, and was closed after {after:?}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn beside_thousands_of_hellos_every_honest_call_is_answered() {
    let served = Served::start().await;
    let (address, config) = (served.server.address, served.trusted(None));
    let honest = |time| {
        let config = config.clone();
        honest::calls_by(move || Client::new(Patient::hasty(channel(address, config))), time)
    };
    let alone = honest(Duration::from_secs(2)).await;
    assert_eq!(alone.failed, Vec::<String>::new());
    let hello: Arc<[u8]> = hello(&served).into();
    for sent in [hello.len() / 2, hello.len()] {
        let mut saying = JoinSet::new();
        for _ in 0..hellos() {
            let hello = hello.clone();
            saying.spawn(async move {
                let mut stream = TcpStream::connect(address).await.unwrap();
                stream.write_all(&hello[..sent]).await.unwrap();
                stream
            });
        }
        let (met, streams) = tokio::join!(honest(Duration::from_secs(3)), saying.join_all());
        assert_eq!(met.failed, Vec::<String>::new(), "beside hellos of {sent} bytes");
        assert!(met.calls_ms.len() > alone.calls_ms.len() / 4, "{} calls", met.calls_ms.len());
        eprintln!(
            "beside {} hellos of {sent} bytes: p50 {:.2} ms, p99 {:.2} ms; alone {:.2} ms, {:.2} ms",
            streams.len(),
            met.quantile_ms(0.5),
            met.quantile_ms(0.99),
            alone.quantile_ms(0.5),
            alone.quantile_ms(0.99),
        );
    }
}

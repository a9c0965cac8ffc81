//! The protocols that are spoken at the port, and the end of those who speak others.

use runledger_proto::v1::WatchRunRequest;
use tokio::io::AsyncWriteExt as _;
use tokio::net::TcpStream;

use super::{H2, Served, until_the_end};
use crate::process::calls::{Step, ask};
use crate::process::server::{SOON, Server, run};
use crate::support::http2::{MAGIC, settings};
use crate::support::tls::{Ca, connect};

#[tokio::test]
async fn a_client_calls_and_watches_over_tls() {
    let served = Served::start().await;
    let mut client = served.client(None);
    ask(&mut client, "watched", Step::Start, "").await.unwrap();
    let asked = WatchRunRequest { run_id: "watched".to_owned(), ..WatchRunRequest::default() };
    let mut watch = client.watch_run(asked).await.unwrap().into_inner();
    assert!(watch.message().await.unwrap().is_some());
    ask(&mut client, "watched", Step::Bulk, "").await.unwrap();
    ask(&mut client, "watched", Step::Complete, "").await.unwrap();
    while watch.message().await.unwrap().is_some() {}
    assert!(served.server.process.said().contains("try    grpcurl -cacert "), "the banner says how to call it");
}

#[tokio::test]
async fn a_client_that_speaks_no_tls_is_told_so_in_a_way_that_ends_its_call() {
    let served = Served::start().await;
    let mut stream = TcpStream::connect(served.server.address).await.unwrap();
    stream.write_all(&[MAGIC, &settings(&[])].concat()).await.unwrap();
    // A fatal alert of TLS: an unexpected message. Every library of gRPC gives up the connection at once.
    assert_eq!(until_the_end(&mut stream, SOON).await, [0x15, 3, 3, 0, 2, 2, 10]);

    let mut stream = TcpStream::connect(served.server.address).await.unwrap();
    stream.write_all(b"GET /livez HTTP/1.1\r\nhost: x\r\n\r\n").await.unwrap();
    let told = String::from_utf8(until_the_end(&mut stream, SOON).await).unwrap();
    assert!(told.starts_with("HTTP/1.1 505 ") && told.contains("by TLS only"), "{told}");

    let mut stream = TcpStream::connect(served.server.address).await.unwrap();
    stream.write_all(b"\x00\x01\x02").await.unwrap();
    assert_eq!(until_the_end(&mut stream, SOON).await, b"");
    served.server.process.says("the client speaks no TLS").await;
}

#[tokio::test]
async fn a_client_that_speaks_tls_to_a_port_without_it_is_told_so() {
    let server = Server::start("memory").await;
    let refused = connect(server.address, Ca::new("any").trusted(None, H2)).await.unwrap_err();
    assert!(refused.to_string().contains("InvalidContentType"), "{refused}");
    server.process.says("the client speaks TLS, and this port does not").await;
}

#[tokio::test]
async fn a_client_that_offers_no_http_2_is_refused() {
    let served = Served::start().await;
    let mut stream = connect(served.server.address, served.ca.trusted(None, &[])).await.unwrap();
    stream.write_all(b"GET / HTTP/1.1\r\nhost: x\r\n\r\n").await.unwrap();
    let told = String::from_utf8(until_the_end(&mut stream, SOON).await).unwrap();
    assert!(told.starts_with("HTTP/1.1 505 ") && told.contains("ALPN"), "{told}");
    served.server.process.says("does not offer h2").await;
    let refused = connect(served.server.address, served.ca.trusted(None, &[b"http/1.1"])).await.unwrap_err();
    assert!(refused.to_string().contains("NoApplicationProtocol"), "{refused}");
}

#[tokio::test]
async fn files_that_cannot_be_used_are_named_at_the_start_and_nothing_is_served() {
    let files = tempfile::TempDir::new().unwrap();
    let path = |name: &str| files.path().join(name).display().to_string();
    let (pair, other, client) = (Ca::new("a").server(), Ca::new("b").server(), Ca::new("c").client(&["spiffe://d/x"]));
    for (name, text) in [
        ("client.pem", &client.certificate),
        ("client.key", &client.key),
        ("good.pem", &pair.certificate),
        ("good.key", &pair.key),
        ("other.key", &other.key),
        ("locked.key", &pair.key.replace("PRIVATE", "ENCRYPTED PRIVATE")),
        ("empty", &String::new()),
    ] {
        std::fs::write(files.path().join(name), text).unwrap();
    }
    for (certificate, key, more, what) in [
        ("none.pem", "good.key", None, "cannot read"),
        ("empty", "good.key", None, "empty is empty"),
        ("good.key", "good.key", None, "good.key holds no certificate in PEM"),
        ("good.pem", "good.pem", None, "good.pem holds no private key in PEM"),
        ("good.pem", "locked.key", None, "without a password"),
        ("good.pem", "other.key", None, "other.key is not the key of the first certificate in"),
        ("client.pem", "client.key", None, "client.pem is a certificate that clients refuse"),
        ("good.pem", "good.key", Some(("--tls-client-ca", "good.key")), "good.key holds no certificate in PEM"),
    ] {
        let mut args = ["serve", "--store", "memory", "--listen", "127.0.0.1:0"].map(str::to_owned).to_vec();
        args.extend(["--tls-cert".to_owned(), path(certificate), "--tls-key".to_owned(), path(key)]);
        args.extend(more.into_iter().flat_map(|(flag, name)| [flag.to_owned(), path(name)]));
        let (code, said) = run(&args.iter().map(String::as_str).collect::<Vec<_>>()).await;
        assert_eq!(code, 1, "{said}");
        assert!(said.contains(what) && !said.contains("listens on"), "{what}: {said}");
        assert!(!pair.key.lines().any(|line| said.contains(line) && line.len() > 16), "no key is shown: {said}");
    }
    let (code, said) = run(&["serve", "--store", "memory", "--tls-cert", "x"]).await;
    assert!(code == 2 && said.contains("--tls-key"), "{said}");
}

//! Clients' certificates: who is let in.

use rustls::HandshakeKind;
use tokio::io::AsyncReadExt as _;

use super::{Served, frames, until_the_end};
use crate::process::calls::{Step, ask};
use crate::process::server::SOON;
use crate::support::http2::{GOAWAY, SETTINGS};
use crate::support::tls::{Ca, seconds_after_now};

const URI: &[&str] = &["spiffe://example.org/bridge"];

#[tokio::test]
async fn only_clients_of_the_cas_are_let_in() {
    let (clients, others) = (Ca::new("clients"), Ca::new("others"));
    let served = Served::start_with(&[("tls-client-ca", &clients.pem())], &[]).await;
    ask(&mut served.client(Some(&clients.client(URI))), "run", Step::Start, "").await.unwrap();
    for (who, pair) in [
        ("nobody", None),
        ("a client of another CA", Some(others.client(URI))),
        ("one of another CA by the same name", Some(Ca::new("clients").client(URI))),
        ("one whose certificate is over", Some(clients.client_until(URI, seconds_after_now(0) - 60))),
        ("a server of the CA", Some(clients.server())),
    ] {
        assert!(served.begins(served.trusted(pair.as_ref())).await.is_err(), "{who} is let in");
        let refused = ask(&mut served.client(pair.as_ref()), "run", Step::Update(1), "").await.unwrap_err();
        assert_ne!(refused.code(), tonic::Code::Ok, "{who}");
    }
    served.server.process.says("a connection was refused").await;
}

#[tokio::test]
async fn where_certificates_are_optional_a_bad_one_is_refused_all_the_same() {
    let (clients, others) = (Ca::new("clients"), Ca::new("others"));
    let flags = ["--tls-client-auth", "optional"];
    let served = Served::start_with(&[("tls-client-ca", &clients.pem())], &flags).await;
    ask(&mut served.client(None), "run", Step::Start, "").await.unwrap();
    ask(&mut served.client(Some(&clients.client(URI))), "run", Step::Update(1), "").await.unwrap();
    assert!(served.begins(served.trusted(Some(&others.client(URI)))).await.is_err());
}

#[tokio::test]
async fn a_certificate_that_names_two_clients_or_none_is_refused_with_the_reason() {
    let clients = Ca::new("clients");
    let served = Served::start_with(&[("tls-client-ca", &clients.pem())], &[]).await;
    for (uris, why) in [
        (&["spiffe://example.org/a", "spiffe://example.org/b"][..], "more than one URI"),
        (&[], "no URI and no DNS name"),
    ] {
        let pair = clients.client(uris);
        let (mut stream, first) = served.begins(served.trusted(Some(&pair))).await.unwrap();
        let told = frames(&[first, until_the_end(&mut stream, SOON).await].concat());
        let goaway = told.iter().find(|frame| frame.kind == GOAWAY).expect("a GOAWAY");
        assert!(String::from_utf8_lossy(&goaway.payload[8..]).contains(why), "{goaway:?}");
    }
}

#[tokio::test]
async fn a_session_is_never_resumed_where_clients_show_certificates() {
    let clients = Ca::new("clients");
    for (files, expected) in
        [(&[][..], HandshakeKind::Resumed), (&[("tls-client-ca", clients.pem().as_str())][..], HandshakeKind::Full)]
    {
        let served = Served::start_with(files, &[]).await;
        let pair = clients.client(URI);
        // Tickets are kept with these settings.
        let config = served.trusted((!files.is_empty()).then_some(&pair));
        for nth in 0..3 {
            let (mut stream, first) = served.begins(config.clone()).await.unwrap();
            assert_eq!(first[3], SETTINGS);
            // A byte more, so that what came before it was read.
            stream.read_u8().await.unwrap();
            let kind = stream.get_ref().1.handshake_kind();
            assert_eq!(kind, Some(if nth == 0 { HandshakeKind::Full } else { expected }), "{nth}");
        }
    }
}

//! Clients' certificates: who is let in.

use runledger::auth::token::TokenHash;
use rustls::HandshakeKind;
use tokio::io::AsyncReadExt as _;

use super::{Served, frames, until_the_end};
use crate::process::calls::{Step, ask};
use crate::process::server::{SOON, run};
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
async fn a_certificate_that_no_entry_names_is_blamed_by_its_name_and_not_the_good_token_beside_it() {
    let clients = Ca::new("clients");
    let access = format!(
        "[[token]]\nname = \"t\"\nsha256 = \"{}\"\ngrants = [{{ namespaces = [\"*\"], roles = [\"reader\"] }}]\n\
         [[certificate]]\nname = \"spiffe://example.org/known\"\n\
         grants = [{{ namespaces = [\"*\"], roles = [\"reader\"] }}]\n",
        TokenHash::new(b"rl_good")
    );
    let files = [("tls-client-ca", clients.pem()), ("access-file", access)];
    let files: Vec<(&str, &str)> = files.iter().map(|(flag, text)| (*flag, text.as_str())).collect();
    let served = Served::start_with(&files, &[]).await;
    let path = |name: &str| served.files.path().join(name);
    std::fs::write(path("ca.pem"), served.ca.pem()).unwrap();
    std::fs::write(path("token"), "rl_good").unwrap();
    let ca = path("ca.pem");
    for (uri, token, wanted) in [
        ("spiffe://example.org/known", true, None),
        ("spiffe://example.org/nobody", true, Some("whatever the token is")),
        ("spiffe://example.org/nobody", false, Some("nobody is known here by the client certificate")),
    ] {
        clients.client(&[uri]).write(&path("own.pem"), &path("own.key"));
        let address = format!("https://localhost:{}", served.server.address.port());
        let own = [path("own.pem"), path("own.key"), path("token")].map(|path| path.display().to_string());
        let mut args = vec!["whoami", "--server", &address, "--tls-ca", ca.to_str().unwrap()];
        args.extend(["--tls-cert", &own[0], "--tls-key", &own[1]]);
        if token {
            args.extend(["--token-file", &own[2]]);
        }
        let (code, said) = run(&args).await;
        let Some(wanted) = wanted else {
            assert_eq!(code, 0, "{said}");
            continue;
        };
        assert_eq!(code, 1, "{said}");
        for text in [wanted, "`spiffe://example.org/nobody`", "[[certificate]]", "--tls-cert"] {
            assert!(said.contains(text), "{text}: {said}");
        }
        for text in ["is not accepted", "no token was sent", "token file", "--token-file"] {
            assert!(!said.contains(text), "{text}: {said}");
        }
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

//! A client over TLS: whom it trusts, what it shows, and what it says where that fails.

use runledger_client::{Builder, Client, Failure, Fault, Kind, Tls, Unusable};
use runledger_proto::v1::GetRunRequest;
use tokio::net::TcpListener;
use tokio::time::Instant;

use super::pending;
use crate::support::authorities::Authority;
use crate::support::gate::Gate;
use crate::support::server::{PATIENCE, Server};

fn of(address: &(impl ToString + ?Sized)) -> Builder {
    Client::builder([address.to_string().parse().unwrap()])
}

async fn got(client: &mut Client) -> Result<String, Failure> {
    let request = GetRunRequest { run_id: "run-1".to_owned(), ..GetRunRequest::default() };
    Ok(client.ask(&request, Instant::now() + PATIENCE).await?.run.unwrap().run_id)
}

async fn served() -> Server {
    let server = Server::start("memory").await;
    pending(&server, "run-1", serde_json::json!({})).await;
    server
}

/// The fault of a call that has one, which nobody served.
async fn fault(client: &mut Client) -> (Fault, String) {
    let failure = got(client).await.unwrap_err();
    assert_eq!(failure.kind, Kind::Unreachable, "{failure}");
    (failure.fault().unwrap_or_else(|| panic!("{failure:?}")).clone(), failure.to_string())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_whose_ca_is_trusted_is_called_over_tls() {
    let (server, authority) = (served().await, Authority::new("a"));
    let gate = Gate::before(server.address(), Some(authority.server())).await;
    let mut client = of(&gate.address).tls(Tls::default().ca_file(authority.file())).build().unwrap();
    assert_eq!(got(&mut client).await.unwrap(), "run-1");
    let url = format!("https://localhost:{}", gate.address.port());
    let mut client = of(&url).tls(Tls::default().ca_file(authority.file())).build().unwrap();
    assert_eq!(got(&mut client).await.unwrap(), "run-1");
    assert_eq!(client.replica(Instant::now() + PATIENCE).await.unwrap().store, "memory");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_certificate_that_is_not_accepted_is_told_by_its_fault() {
    let (server, authority, other) = (served().await, Authority::new("a"), Authority::new("b"));
    let gate = Gate::before(server.address(), Some(authority.server())).await;
    let tls = Tls::default().ca_file(authority.file());

    let (found, said) = fault(&mut of(&gate.address).tls(Tls::default().ca_file(other.file())).build().unwrap()).await;
    assert_eq!(found, Fault::UnknownCa);
    let whole =
        format!("{} cannot be called: its certificate was issued by a CA that is not trusted here", gate.address);
    assert_eq!(said, whole);
    // The roots of the machine do not have it either, where the machine has any.
    match of(&gate.address).tls(Tls::default()).build() {
        Ok(mut client) => assert_eq!(fault(&mut client).await.0, Fault::UnknownCa),
        Err(error) => assert!(matches!(error, Unusable::Tls(_)), "{error}"),
    }

    let named = tls.clone().server_name("runs.example");
    let (found, said) = fault(&mut of(&gate.address).tls(named.clone()).build().unwrap()).await;
    assert!(matches!(found, Fault::WrongName { .. }), "{said}");
    assert!(said.contains("127.0.0.1") && said.ends_with(" and not for runs.example"), "{said}");
    gate.speaks(authority.issues(&["runs.example"]).server(None));
    assert_eq!(got(&mut of(&gate.address).tls(named).build().unwrap()).await.unwrap(), "run-1");

    gate.speaks(authority.issues_expired(&["127.0.0.1"]).server(None));
    let (found, said) = fault(&mut of(&gate.address).tls(tls).build().unwrap()).await;
    assert!(matches!(found, Fault::Expired(_)) && said.contains(" days ago"), "{said}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tls_and_plain_text_that_meet_are_told_from_each_other() {
    let (server, authority) = (served().await, Authority::new("a"));
    let gate = Gate::before(server.address(), Some(authority.server())).await;
    let (found, said) = fault(&mut of(&gate.address).build().unwrap()).await;
    assert_eq!(found, Fault::SpeaksTls, "{said}");

    let plain = Gate::before(server.address(), None).await;
    let tls = Tls::default().ca_file(authority.file());
    for address in [plain.address.to_string(), server.address().to_owned()] {
        let (found, said) = fault(&mut of(&address).tls(tls.clone()).build().unwrap()).await;
        assert!([Fault::PlainText, Fault::HungUp].contains(&found), "{said}");
    }

    let mut no_http2 = authority.server();
    no_http2.alpn_protocols = Vec::new();
    gate.speaks(no_http2);
    let (found, said) = fault(&mut of(&gate.address).tls(tls).build().unwrap()).await;
    assert_eq!(found, Fault::NoHttp2, "{said}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_client_shows_its_certificate_and_hears_why_it_is_refused() {
    let (server, authority, clients, other) =
        (served().await, Authority::new("a"), Authority::new("clients"), Authority::new("b"));
    let config = authority.issues(&["127.0.0.1"]).server(Some(&clients));
    let gate = Gate::before(server.address(), Some(config)).await;
    let tls = Tls::default().ca_file(authority.file());
    let shows = |issuer: &Authority| {
        let issued = issuer.issues(&["bridge"]);
        tls.clone()
            .identity_files(issuer.write("client.pem", &issued.certificate), issuer.write("client.key", &issued.key))
    };
    let mut client = of(&gate.address).tls(shows(&clients)).build().unwrap();
    assert_eq!(got(&mut client).await.unwrap(), "run-1");
    // What the server says of it is lost at times, because it closes the connection on what the client has sent.
    let (found, said) = fault(&mut of(&gate.address).tls(tls.clone()).build().unwrap()).await;
    assert!(matches!(found, Fault::WantsCertificate | Fault::Ended("it may ask for a client certificate")), "{said}");
    let (found, said) = fault(&mut of(&gate.address).tls(shows(&other)).build().unwrap()).await;
    let refused = Fault::Ended("it may not accept the client certificate");
    assert!(matches!(found, Fault::RefusedCertificate(_)) || found == refused, "{said}");
    assert_eq!(gate.calls().len(), 1, "no call was sent to a server that does not accept the certificate");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn files_of_tls_are_read_again_for_each_connection() {
    let (server, first, second) = (served().await, Authority::new("a"), Authority::new("b"));
    let gate = Gate::before(server.address(), Some(first.server())).await;
    let roots = first.file();
    let mut client = of(&gate.address).tls(Tls::default().ca_file(&roots)).build().unwrap();
    got(&mut client).await.unwrap();
    gate.speaks(second.server());
    gate.ends_connections();
    let failure = loop {
        if let Err(failure) = got(&mut client).await {
            break failure;
        }
    };
    assert_eq!(failure.fault(), Some(&Fault::UnknownCa), "{failure}");
    std::fs::copy(second.file(), &roots).unwrap();
    assert_eq!(got(&mut client).await.unwrap(), "run-1", "the same client trusts the CA that came");
    std::fs::write(&roots, "no certificate").unwrap();
    gate.ends_connections();
    let failure = loop {
        if let Err(failure) = got(&mut client).await {
            break failure;
        }
    };
    assert!(failure.to_string().ends_with("holds no certificate in PEM"), "{failure}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_bad_certificate_is_told_and_only_the_next_call_goes_to_the_next_server() {
    let (server, authority, other) = (served().await, Authority::new("a"), Authority::new("b"));
    let bad = Gate::before(server.address(), Some(other.server())).await;
    let good = Gate::before(server.address(), Some(authority.server())).await;
    let servers = [bad.address, good.address].map(|address| address.to_string().parse().unwrap());
    let tls = Tls::default().ca_file(authority.file());
    let mut client = Client::builder(servers).tls(tls.clone()).build().unwrap();
    assert_eq!(fault(&mut client).await.0, Fault::UnknownCa);
    assert_eq!((bad.calls().len(), good.calls().len()), (0, 0), "nothing was asked of either");
    assert_eq!(got(&mut client).await.unwrap(), "run-1");
    assert_eq!((bad.calls().len(), good.calls().len()), (0, 1));

    // A server that is not there is no such fault.
    let nobody = TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap();
    let servers = [nobody, good.address].map(|address| address.to_string().parse().unwrap());
    assert_eq!(got(&mut Client::builder(servers).tls(tls).build().unwrap()).await.unwrap(), "run-1");
}

#[test]
fn settings_that_cannot_work_make_no_client() {
    let authority = Authority::new("a");
    let (issued, another) = (authority.issues(&["bridge"]), authority.issues(&["bridge"]));
    let certificate = authority.write("client.pem", &issued.certificate);
    let built = |tls: Tls| of("10.0.0.7:1").tls(tls).build().map(drop).unwrap_err().to_string();
    let key = authority.write("client.key", &another.key);
    let said = built(Tls::default().ca_file(authority.file()).identity_files(&certificate, &key));
    assert!(said.contains("do not belong together"), "{said}");
    let said = built(Tls::default().ca_file(authority.file()).identity_files(&certificate, &certificate));
    assert!(said.contains("holds no private key in PEM"), "{said}");
    let said = built(Tls::default().ca_file("/nowhere/ca.pem"));
    assert!(said.starts_with("the CA file /nowhere/ca.pem cannot be read: "), "{said}");
    let said = built(Tls::default().ca_file(authority.file()).server_name("no name"));
    assert!(said.contains("\"no name\""), "{said}");
    let both = ["https://a:1", "http://b:1"].map(|address| address.parse().unwrap());
    let said = Client::builder(both).tls(Tls::default().ca_file(authority.file())).build().map(drop).unwrap_err();
    assert!(matches!(said, Unusable::PlainText(_)), "{said}");
    let said = of("a:1").namespace("two words").build().map(drop).unwrap_err();
    assert!(matches!(said, Unusable::Namespace(_)), "{said}");
}

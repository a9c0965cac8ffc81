//! The server's certificate is replaced while clients are connected.

use runledger_proto::v1::WatchRunRequest;

use super::Served;
use crate::process::calls::{Step, ask};
use crate::process::server::{SOON, eventually};
use crate::support::tls::replace;

impl Served {
    /// The certificate that a new connection is shown.
    async fn shown(&self) -> Vec<u8> {
        let (stream, _) = self.begins(self.trusted(None)).await.unwrap();
        stream.get_ref().1.peer_certificates().unwrap()[0].to_vec()
    }
}

#[tokio::test]
async fn a_new_certificate_is_shown_to_new_connections_and_the_others_go_on() {
    let served = Served::start().await;
    let mut old = served.client(None);
    ask(&mut old, "watched", Step::Start, "").await.unwrap();
    let asked = WatchRunRequest { run_id: "watched".to_owned(), ..WatchRunRequest::default() };
    let mut watch = old.watch_run(asked).await.unwrap().into_inner();
    for update in 0..3 {
        let next = served.ca.server();
        next.write(&served.file("server.pem"), &served.file("server.key"));
        let turned = eventually(SOON, async || (served.shown().await == next.der().as_ref()).then_some(())).await;
        assert!(turned.is_some(), "{}", served.server.process.said());
        ask(&mut old, "watched", Step::Update(update), "").await.unwrap();
        ask(&mut served.client(None), "watched", Step::Bulk, "").await.unwrap();
    }
    ask(&mut old, "watched", Step::Complete, "").await.unwrap();
    let mut frames = 0;
    while watch.message().await.unwrap().is_some() {
        frames += 1;
    }
    assert!(frames > 6, "the watch has seen it all, and ended with its run");
    served.server.process.says("was read anew").await;
}

#[tokio::test]
async fn files_that_do_not_fit_each_other_change_nothing_until_they_do() {
    let served = Served::start().await;
    let next = served.ca.server();
    replace(&served.file("server.key"), &next.key);
    served.server.process.says("is not the key of the first certificate").await;
    assert_eq!(served.shown().await, served.pair.der().as_ref());
    replace(&served.file("server.pem"), "");
    assert_eq!(served.shown().await, served.pair.der().as_ref());
    std::fs::remove_file(served.file("server.pem")).unwrap();
    assert_eq!(served.shown().await, served.pair.der().as_ref());
    replace(&served.file("server.pem"), &next.certificate);
    let turned = eventually(SOON, async || (served.shown().await == next.der().as_ref()).then_some(())).await;
    assert!(turned.is_some(), "{}", served.server.process.said());
    let said = served.server.process.said();
    assert!(said.matches("stay in force").count() <= 3, "each change is said once: {said}");
    assert!(!next.key.lines().any(|line| line.len() > 16 && said.contains(line)), "no key is shown");
}

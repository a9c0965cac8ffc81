//! A client with a token: it is sent with each call and nowhere else, and exchanged while the client runs.

use std::pin::pin;
use std::time::Duration;

use futures_util::StreamExt as _;
use runledger_client::worker::{Claiming, Job, Options, Outcome, Worker};
use runledger_client::{Client, News, RunsWatch, Tls, Token, Unusable, follow};
use runledger_proto::v1::watch_runs_response::Frame;
use runledger_proto::v1::{GetRunRequest, RunStatus, WatchRunsRequest};
use serde_json::json;
use tokio::time::{Instant, timeout};
use tokio_util::sync::CancellationToken;

use super::{pending, run};
use crate::support::authorities::Authority;
use crate::support::gate::Gate;
use crate::support::server::{PATIENCE, Server};

/// A server behind TLS that accepts the token in the authority's file `token`, which is `first`.
struct Scene {
    server: Server,
    authority: Authority,
    gate: Gate,
}

impl Scene {
    async fn new() -> Self {
        let (server, authority) = (Server::start("memory").await, Authority::new("a"));
        pending(&server, "run-1", json!({})).await;
        let gate = Gate::before(server.address(), Some(authority.server())).await;
        gate.accepts(&["first"]);
        authority.write("token", "first\n");
        Self { server, authority, gate }
    }

    fn client(&self, token: Token) -> Client {
        let tls = Tls::default().ca_file(self.authority.file());
        let builder = Client::builder([self.gate.address.to_string().parse().unwrap()]);
        builder.tls(tls).token(token).namespace("qa").agent_id("agent-1").build().unwrap()
    }

    fn with_file(&self) -> Client {
        self.client(Token::of_file(self.authority.write("token", "first\n")).unwrap())
    }

    /// From now on another token is accepted, and it stands in the file.
    fn rotates(&self, token: &str) {
        self.gate.accepts(&[token]);
        self.authority.write("token", token);
    }
}

fn get() -> GetRunRequest {
    GetRunRequest { run_id: "run-1".to_owned(), ..GetRunRequest::default() }
}

fn soon() -> Instant {
    Instant::now() + PATIENCE
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_call_says_who_calls_and_in_which_namespace() {
    let scene = Scene::new().await;
    let mut client = scene.client(Token::of_value("first").unwrap());
    client.ask(&get(), soon()).await.unwrap();
    client.replica(soon()).await.unwrap();
    client.health("readiness", soon()).await.unwrap();
    assert_eq!(scene.gate.sent("authorization"), ["Bearer first"; 3]);
    assert_eq!(scene.gate.sent("runledger-namespace"), ["qa"; 3]);
    assert_eq!(scene.gate.sent("runledger-agent-id"), ["agent-1"; 3]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_token_that_was_exchanged_on_disk_is_sent_without_a_restart_and_without_a_failed_call() {
    let scene = Scene::new().await;
    let mut client = scene.with_file();
    client.ask(&get(), soon()).await.unwrap();
    for token in ["second", "third"] {
        scene.rotates(token);
        client.ask(&get(), soon()).await.unwrap();
        assert_eq!(scene.gate.sent("authorization").last().unwrap(), &format!("Bearer {token}"));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_token_that_stays_refused_is_sent_once_and_told_without_being_shown() {
    let scene = Scene::new().await;
    scene.gate.accepts(&["another"]);
    let mut client = scene.with_file();
    let failure = client.ask(&get(), soon()).await.unwrap_err();
    assert!(failure.is_unauthenticated() && !failure.is_open(), "{failure:?}");
    assert_eq!(scene.gate.calls().len(), 1, "the file has no other token");
    let said = format!("{failure} {failure:?} {client:?}");
    assert!(said.contains("/token is not accepted, as it is now"), "{said}");
    assert!(!said.contains("first"), "{said}");
    let mut nobody = Client::builder([scene.gate.address.to_string().parse().unwrap()])
        .tls(Tls::default().ca_file(scene.authority.file()))
        .build()
        .unwrap();
    let failure = nobody.ask(&get(), soon()).await.unwrap_err();
    assert!(failure.to_string().ends_with(": no token was sent"), "{failure}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_worker_goes_on_working_while_its_token_is_exchanged() {
    let scene = Scene::new().await;
    let mut worker = Worker::new(
        scene.with_file(),
        Options { lease_ttl: Duration::from_secs(3), report_for: PATIENCE, ..Options::default() },
    );
    let work = |job: Job| {
        let scene = &scene;
        async move {
            scene.rotates("second");
            job.progress(1, 2, "half");
            // The heartbeat that says so is answered under the next token.
            while run(&scene.server, "run-1").await.progress.is_none() {
                assert_eq!(job.cancellation(), None);
            }
            scene.rotates("third");
            Outcome::Completed(None)
        }
    };
    let claiming = Claiming { idle: Some(Duration::ZERO), ..Claiming::default() };
    worker.run(&claiming, &CancellationToken::new(), work).await.unwrap();
    assert_eq!(run(&scene.server, "run-1").await.status(), RunStatus::Completed);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_end_of_work_is_reported_when_the_next_token_comes_late() {
    let scene = Scene::new().await;
    let (late, noticed) = tokio::sync::watch::channel(false);
    let mut worker = Worker::new(scene.with_file(), Options { report_for: PATIENCE, ..Options::default() })
        .with_notices(move |_retrying| {
            let _all_gone = late.send(true);
        });
    let work = |_job: Job| {
        scene.gate.accepts(&["second"]);
        async { Outcome::Completed(None) }
    };
    let comes = async {
        let mut noticed = noticed.clone();
        noticed.wait_for(|late| *late).await.unwrap();
        scene.authority.write("token", "second");
    };
    let claiming = Claiming { idle: Some(Duration::ZERO), ..Claiming::default() };
    let stop = CancellationToken::new();
    let (ended, ()) = tokio::join!(worker.run(&claiming, &stop, work), comes);
    ended.unwrap();
    assert_eq!(run(&scene.server, "run-1").await.status(), RunStatus::Completed);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_watch_goes_on_under_the_next_token() {
    let scene = Scene::new().await;
    let mut news = pin!(follow(scene.with_file(), RunsWatch::new(WatchRunsRequest::default()), true));
    let mut found = false;
    loop {
        match timeout(PATIENCE, news.next()).await.unwrap().unwrap().unwrap() {
            News::Frame(frame) if matches!(frame.frame, Some(Frame::CaughtUp(_))) => {
                scene.rotates("second");
                scene.gate.ends_connections();
                pending(&scene.server, "run-2", json!({})).await;
            }
            News::Frame(frame) => {
                if let Some(Frame::Change(change)) = frame.frame {
                    assert_eq!(change.run.unwrap().run_id, if found { "run-3" } else { "run-2" });
                    if std::mem::replace(&mut found, true) {
                        return;
                    }
                    pending(&scene.server, "run-3", json!({})).await;
                }
            }
            News::Lost(_) | News::Found => {}
            News::Restored => panic!("nothing was restored"),
            News::Expired => panic!("nothing was purged"),
        }
    }
}

#[test]
fn a_token_is_sent_in_plain_text_to_this_machine_only_unless_it_is_allowed() {
    let to = |address: &str| Client::builder([address.parse().unwrap()]).token(Token::of_value("first").unwrap());
    for address in ["10.0.0.7:50051", "http://runs.example", "localhost.example:1"] {
        let error = to(address).build().map(drop).unwrap_err();
        assert!(matches!(error, Unusable::TokenInPlainText(_)), "{error}");
        to(address).allow_token_in_plain_text(true).build().unwrap();
    }
    for address in ["127.0.0.1:1", "localhost:1", "[::1]:1"] {
        to(address).build().unwrap();
    }
}

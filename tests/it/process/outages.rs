//! Postgres itself is killed and comes back, or answers and takes nothing.

use std::time::Duration;

use runledger_client::Health;
use runledger_proto::v1::GetRunRequest;
use tokio::sync::watch;
use tokio::task::block_in_place;

use super::calls::{Answer, Step, ask, meaning};
use super::data::Data;
use super::load::{Load, answered, are_replayed};
use super::server::{SOON, Server};
use super::watching::{Watcher, uncut};
use crate::support::postgres::{Cluster, Database};

/// The time within which the service's health follows the store's. The contract says 2 seconds; the rest is for asking.
const FOLLOWS: Duration = Duration::from_millis(2500);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_postgres_that_is_killed_under_load_costs_nothing_that_was_acknowledged_and_is_found_again() {
    let mut cluster = block_in_place(|| Cluster::start(&[]));
    let data = Data::Postgres(cluster.dsn());
    let server = Server::start(&data.store()).await;
    server.is_ready().await;
    server.becomes("", Health::Serving, FOLLOWS).await;
    let (_servers, targets) = watch::channel(vec![server.address]);
    let mut load = Load::start("run", 32, &targets);
    let mut story = Load::story("story", &targets);
    let mut watcher = Watcher::start("story", &targets);
    for _ in 0..3 {
        load.progresses(100).await;
        story.progresses(5).await;
        watcher.progresses(5).await;
        block_in_place(|| cluster.kill());
        for service in ["", "runledger.v1.RunService"] {
            server.becomes(service, Health::NotServing, FOLLOWS).await;
        }
        assert_eq!(server.health("readiness").await, Some(Health::Serving), "a short outage takes no replica out");
        assert_eq!(server.health("liveness").await, Some(Health::Serving), "an outage restarts nobody");
        block_in_place(|| cluster.restart());
        server.becomes("", Health::Serving, FOLLOWS).await;
    }
    load.progresses(100).await;
    let mut calls = load.finish().await;
    calls.extend(story.finish().await);
    let seen = watcher.seen().await;
    are_replayed(&server, &mut calls).await;
    data.sound().await.agree_with(&calls);
    assert_eq!(seen.changes, uncut("story", server.address).await, "the watch missed nothing");
    assert_eq!(answered(&calls, |answer| matches!(answer, Answer::Cut(_))), 0, "the service answers for itself");
    let told = answered(&calls, |answer| matches!(answer, Answer::NothingWritten(_) | Answer::Unknown(_)));
    assert!(told > 0, "no outage hit a call");
    let said = server.process.said();
    assert!(!said.contains("a read failed"), "the outage is said once, not by each read: {said}");
}

/// As a full disk does: what is there can be read, and nothing can be added.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn while_postgres_takes_nothing_the_service_says_that_it_does_not_serve_and_finds_out_by_itself_when_it_does() {
    let database = Database::fresh().await;
    let data = Data::Postgres(database.dsn());
    let server = Server::start(&data.store()).await;
    server.is_ready().await;
    let mut client = server.hasty();
    ask(&mut client, "before", Step::Start, "request").await.unwrap();
    server.becomes("", Health::Serving, SOON).await;
    data.sql(
        "create function full_disk() returns trigger language plpgsql as $$
         begin raise exception 'could not extend file' using errcode = '53100'; end $$;
         create trigger full_disk before insert on run_events for each row execute function full_disk()",
    )
    .await;
    let refused = ask(&mut client, "during", Step::Start, "request").await.unwrap_err();
    assert_eq!(meaning(&refused), Answer::NothingWritten("STORE_UNAVAILABLE".to_owned()));
    for service in ["", "runledger.v1.RunService"] {
        server.becomes(service, Health::NotServing, SOON).await;
    }
    server.process.says("could not extend file").await;
    let request = GetRunRequest { run_id: "before".to_owned(), ..GetRunRequest::default() };
    assert!(client.get_run(request).await.is_ok(), "what is there can be read");
    assert!(!server.process.said().contains("commits succeed again"), "{}", server.process.said());

    data.sql("drop trigger full_disk on run_events").await;
    for service in ["", "runledger.v1.RunService", "readiness"] {
        server.becomes(service, Health::Serving, SOON).await;
    }
    assert_eq!(data.sound().await.events.len(), 1, "what was tried cannot be seen");
}

//! Postgres itself is killed and comes back.

use std::time::Duration;

use runledger::service::health::Health;
use tokio::sync::watch;
use tokio::task::block_in_place;

use super::calls::Answer;
use super::data::Data;
use super::load::{Load, answered, are_replayed};
use super::server::Server;
use super::watching::{Watcher, uncut};
use crate::support::postgres::Cluster;

/// How fast the health of the service follows the store's. The contract says 2 seconds; the rest is for asking.
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

//! SIGKILL of the server, under load and while watched.

use std::net::SocketAddr;

use tempfile::TempDir;
use tokio::sync::watch;

use super::calls::Answer;
use super::data::Data;
use super::load::{Load, answered, are_replayed};
use super::server::Server;
use super::watching::{Watcher, uncut};
use crate::support::postgres::Database;

const CALLERS: usize = 32;
const KILLS: usize = 4;

/// Kills and restarts the server under load and while it is watched.
async fn survives_kills(data: Data) {
    let mut server = Server::start(&data.store()).await;
    server.is_ready().await;
    let (address, targets) = watch::channel(vec![server.address]);
    let mut load = Load::start("run", CALLERS, &targets);
    let mut story = Load::story("story", &targets);
    let mut watcher = Watcher::start("story", &targets);
    for _ in 0..KILLS {
        load.progresses(200).await;
        story.progresses(5).await;
        watcher.progresses(5).await;
        server.process.kill();
        server = Server::start(&data.store()).await;
        address.send_replace(vec![server.address]);
    }
    load.progresses(200).await;

    let mut calls = load.finish().await;
    calls.extend(story.finish().await);
    let seen = watcher.seen().await;
    are_replayed(&server, &mut calls).await;
    data.sound().await.agree_with(&calls);
    assert!(answered(&calls, |answer| matches!(answer, Answer::Cut(_))) >= KILLS, "no kill hit a call");
    assert_eq!(seen.changes, uncut("story", server.address).await, "the resumed watch equals an uncut one");
    assert!(seen.cuts.len() >= KILLS, "each kill cut the watch: {:?}", seen.cuts);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_on_sqlite_that_is_killed_under_load_keeps_what_it_acknowledged() {
    let directory = TempDir::new().unwrap();
    survives_kills(Data::Sqlite(directory.path().join("ledger.db"))).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_on_postgres_that_is_killed_under_load_keeps_what_it_acknowledged() {
    let database = Database::fresh().await;
    survives_kills(Data::Postgres(database.dsn())).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_replica_that_is_killed_costs_the_other_ones_callers_and_watchers_nothing() {
    let database = Database::fresh().await;
    let data = Data::Postgres(database.dsn());
    let mut servers = [Server::start(&data.store()).await, Server::start(&data.store()).await];
    let addresses = |servers: &[Server; 2]| -> Vec<SocketAddr> { servers.iter().map(|one| one.address).collect() };
    // The writer on the first, the watcher on the second, the load on both.
    let (first, writer_targets) = watch::channel(vec![servers[0].address]);
    let (_second, watcher_targets) = watch::channel(vec![servers[1].address]);
    let (both, load_targets) = watch::channel(addresses(&servers));
    for server in &servers {
        server.is_ready().await;
    }
    let mut load = Load::start("run", CALLERS, &load_targets);
    let mut story = Load::story("story", &writer_targets);
    let mut watcher = Watcher::start("story", &watcher_targets);
    for _ in 0..2 {
        load.progresses(200).await;
        story.progresses(5).await;
        watcher.progresses(5).await;
        servers[0].process.kill();
        // The other one serves the load alone meanwhile.
        load.progresses(100).await;
        servers[0] = Server::start(&data.store()).await;
        first.send_replace(vec![servers[0].address]);
        both.send_replace(addresses(&servers));
    }
    story.progresses(5).await;

    let mut calls = load.finish().await;
    calls.extend(story.finish().await);
    let seen = watcher.seen().await;
    assert_eq!(seen.cuts, Vec::<String>::new(), "the watcher's server was not touched");
    for server in &servers {
        assert_eq!(seen.changes, uncut("story", server.address).await, "every replica shows the same history");
        are_replayed(server, &mut calls).await;
    }
    data.sound().await.agree_with(&calls);
}

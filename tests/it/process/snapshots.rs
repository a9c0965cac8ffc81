//! A session that holds an old snapshot, such as a dump, does not slow the service down.

use std::env;
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::sleep;

use super::data::Data;
use super::load::Load;
use super::server::Server;
use crate::support::postgres::{Database, direct};

/// A service under load, and its database.
struct Loaded {
    data: Data,
    _server: Server,
    load: Load,
    _database: Database,
}

impl Loaded {
    async fn start() -> Self {
        let database = Database::fresh().await;
        let data = Data::Postgres(database.dsn());
        let server = Server::start(&data.store()).await;
        server.is_ready().await;
        let (_servers, targets) = watch::channel(vec![server.address]);
        let mut load = Load::start("run", 16, &targets);
        load.progresses(200).await;
        Self { data, _server: server, load, _database: database }
    }
}

/// The time that the snapshot is held.
#[expect(clippy::disallowed_methods, reason = "a longer test is asked for by the environment")]
fn held() -> Duration {
    let seconds = env::var("RUNLEDGER_TEST_SNAPSHOT_SECONDS").ok().map_or(9, |text| text.parse().unwrap());
    Duration::from_secs(seconds)
}

/// Beside a second service with no such session, which tells how busy the machine is.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_snapshot_that_is_held_open_under_load_costs_less_than_half_of_the_throughput() {
    let (watched, control) = (Loaded::start().await, Loaded::start().await);
    let holder = direct(&watched.data.store()).await;
    holder.batch_execute("begin isolation level repeatable read; select count(*) from run_events").await.unwrap();
    let mut done = Vec::new();
    for _ in 0..3 {
        let before = [watched.load.acknowledged(), control.load.acknowledged()];
        sleep(held() / 3).await;
        let after = [watched.load.acknowledged(), control.load.acknowledged()];
        done.push([0, 1].map(|one| after[one] - before[one]));
    }
    holder.batch_execute("commit").await.unwrap();
    let [first, _, last] = done[..] else { unreachable!("three parts") };
    // Without the machine's own ups and downs: what the last part would have been.
    let expected = first[0] * last[1].min(first[1]) / first[1];
    assert!(last[0] * 2 >= expected, "throughput fell (beside the control's) {done:?}");
    for Loaded { data, load, .. } in [watched, control] {
        let calls = load.finish().await;
        data.sound().await.agree_with(&calls);
    }
}

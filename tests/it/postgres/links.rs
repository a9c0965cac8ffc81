//! What links cost the database.

use runledger::domain::Rules;
use runledger::store::Commits as _;
use serde_json::json;
use tokio_postgres::Client;

use super::open;
use crate::conformance::asking::home;
use crate::support::commands::{left, start};
use crate::support::postgres::{Cluster, direct};

/// The bytes of log that the database has written so far.
async fn log_bytes(session: &Client) -> i64 {
    let position = "select (pg_current_wal_insert_lsn() - '0/0')::bigint";
    session.query_one(position, &[]).await.unwrap().get(0)
}

/// A page that is touched for the first time since a checkpoint is written whole, and the server writes now and then for
/// itself: so each place is measured on several runs, and the middle of its figures counts.
#[tokio::test]
async fn the_64th_link_costs_the_log_what_the_second_one_costs() {
    const RUNS: usize = 15;
    // Nobody else writes to its log.
    let cluster = Cluster::start(&[]);
    let store = open(&cluster.dsn()).await;
    let session = direct(&cluster.dsn()).await;
    let mut costs: Vec<Vec<i64>> = vec![Vec::new(); 65];
    for run in 0..RUNS {
        let id = format!("run-{run}");
        let commit = async |command: runledger::domain::Command| {
            let shard = home(&store, &command.key);
            let commands = [std::sync::Arc::new(command)].into();
            store.commit(shard, runledger::clock::draw_id(), commands, &Rules::shared()).await.unwrap();
        };
        commit(start(&id)).await;
        for (number, costs) in costs.iter_mut().enumerate().skip(1) {
            let before = log_bytes(&session).await;
            let target = format!("{number:0>64}");
            commit(left(&id, &json!({ "n": 1 }), &[("artifact", &target)])).await;
            costs.push(log_bytes(&session).await - before);
        }
    }
    let middle = |number: usize| {
        let mut costs = costs[number].clone();
        costs.sort_unstable();
        costs[RUNS / 2]
    };
    // Neither has an event with a keyframe.
    let (second, last) = (middle(2), middle(64));
    println!("the 1st link costs {} bytes of log, the 2nd {second}, the 64th {last}", middle(1));
    assert!((last - second).abs() * 20 <= second, "{second} and {last}");
}
